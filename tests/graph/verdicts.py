"""How cases of others end: each is right, wrong, refused with a reason, or crashed."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from textwrap import wrap

from tilewright.base.errors import UnsupportedError

VERDICTS = ("right", "wrong", "refused", "crashed")


def judged(compare: Callable[[], str]) -> tuple[str, str]:
    """The verdict of a function that returns what is wrong, and why."""
    try:
        problem = compare()
    except UnsupportedError as error:
        reasons = error.data.get("reasons") or [("", "", "?", str(error))]
        return "refused", "; ".join(f"{r[2]} {r[1]} {r[3]}" for r in reasons if len(r) > 3)
    except Exception as error:  # noqa: BLE001
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return "crashed", f"{type(error).__name__} {where} {error}".replace("\n", " ")[:300]
    return ("wrong", problem) if problem else ("right", "")


def recorded(path: Path, prefix: str = "") -> dict[str, set[str]]:
    """The names of the cases by verdict, as the file has them: without their common prefix."""
    found: dict[str, set[str]] = {}
    names: set[str] = set()
    for line in path.read_text().splitlines():
        if line.startswith("  "):
            names.update(prefix + name for name in line.split())
        else:
            names = found.setdefault(line.split()[0], set())
    return found


def record(verdicts: Mapping[str, str], path: Path, prefix: str = "") -> None:
    """Write the names of the cases by verdict."""
    lines: list[str] = []
    for kind in dict.fromkeys(verdicts[name] for name in sorted(verdicts)):
        names = sorted(n.removeprefix(prefix) for n, k in verdicts.items() if k == kind)
        lines.append(f"{kind} {len(names)}")
        lines += wrap(" ".join(names), 100, initial_indent="  ", subsequent_indent="  ",
                      break_long_words=False, break_on_hyphens=False)  # fmt: skip
    path.write_text("\n".join(lines) + "\n")


def regressions(verdicts: Mapping[str, str], right: Set[str]) -> list[str]:
    """The cases that were right, and are no longer."""
    return sorted(name for name, kind in verdicts.items() if name in right and kind != "right")

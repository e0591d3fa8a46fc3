"""Does some test notice when a condition is not checked? `python scripts/mutate_requires.py`.

Each `require(...)` of the primitives and of what they share is switched off in turn, and the tests
are run in which it has refused something or recorded a constraint. Conditions for which no test
fails are printed; the exit status is then 1. Sources are not touched: `require` is wrapped and
looks at where it is called from.

    python scripts/mutate_requires.py                           # all, takes minutes
    python scripts/mutate_requires.py --only primitives/loops   # those of some files
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
TESTS = "tests/schedule"
SECONDS = 300
"""A run that takes longer counts as failed: what was switched off had kept it short."""


@dataclass(frozen=True)
class Site:
    """A call of `require` in lines `first` to `last` of a file, with its message."""

    path: str
    first: int
    last: int
    message: str

    @property
    def name(self) -> str:
        return f"{self.path}:{self.first}"


def main() -> int:
    """Try each site, and print those that no test is about."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--only", default="", help="files whose path has this in it")
    options.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options.add_argument("--observe", type=Path, help=argparse.SUPPRESS)
    options.add_argument("--without", help=argparse.SUPPRESS)
    options.add_argument("tests", nargs="*", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.observe:
        return observe(given.observe)
    if given.without:
        return run_without(given.without, given.tests)
    chosen = [s for s in sites() if given.only in s.path]
    tests = observed()
    missed = 0
    with ThreadPoolExecutor(given.jobs) as pool:
        noticed = pool.map(lambda s: is_noticed(s, tests.get(s.name, ())), chosen)
        for site, was in zip(chosen, noticed, strict=True):
            if not was:
                missed += 1
                print(f"{site.name}: {site.message}", flush=True)
    print(f"{len(chosen)} conditions; switching off {missed} of them fails no test")
    return 1 if missed else 0


def sites() -> Iterator[Site]:
    """All calls of `require` in the room of schedules."""
    for path in sorted((ROOT / "schedule").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "require":
                yield Site(name, node.lineno, node.end_lineno or node.lineno, message_of(node))


def message_of(call: ast.Call) -> str:
    message = call.args[1]
    return message.value if isinstance(message, ast.Constant) else ast.unparse(message)


def observed() -> Mapping[str, Sequence[str]]:
    """The tests in which each site did something, those of few sites first."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "observed.json"
        command = [sys.executable, __file__, "--observe", str(file)]
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            raise SystemExit("some tests fail as it is: mend them first")
        found: dict[str, list[str]] = json.loads(file.read_text(encoding="utf-8"))
    count: dict[str, int] = {}
    for tests in found.values():
        for test in tests:
            count[test] = count.get(test, 0) + 1
    return {site: sorted(tests, key=lambda t: count[t]) for site, tests in found.items()}


def is_noticed(site: Site, tests: Sequence[str]) -> bool:
    """Whether one of `tests` fails without the condition."""
    if not tests:
        return False
    command = [sys.executable, __file__, "--without", site.name, "--", *tests]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return True
    if done.returncode not in (0, 1):
        raise SystemExit(f"{site.name}: pytest fails\n{done.stdout.decode()}")
    return done.returncode == 1


# In a process of its own


def observe(file: Path) -> int:
    """Run all tests and note in which of them each site refuses, or records a constraint."""
    found: dict[str, dict[str, None]] = {}
    known = {(s.path, line): s.name for s in sites() for line in range(s.first, s.last + 1)}
    current = [""]

    class Plugin:
        def pytest_runtest_setup(self, item: pytest.Item) -> None:
            current[0] = item.nodeid

    module = importlib.import_module("tilewright.schedule.require")

    def noting(real: Callable[..., None], caller: FrameType, *args: Any, **kwargs: Any) -> None:
        space = module.current_space()
        before = 0 if space is None else len(space.constraints)
        done = False
        try:
            real(*args, **kwargs)
            done = True
        finally:
            if not done or (space is not None and len(space.constraints) > before):
                name = known.get(place(caller))
                if name is not None:
                    found.setdefault(name, {})[current[0]] = None

    wrap_require(noting)
    code = int(pytest.main([TESTS, "-q", "-p", "no:cacheprovider"], plugins=[Plugin()]))
    file.write_text(json.dumps({k: list(v) for k, v in found.items()}), encoding="utf-8")
    return code


def run_without(name: str, tests: Sequence[str]) -> int:
    """Run `tests` with the site of that name switched off."""
    site = next(s for s in sites() if s.name == name)

    def skipping(real: Callable[..., None], caller: FrameType, *args: Any, **kwargs: Any) -> None:
        path, line = place(caller)
        if not (path == site.path and site.first <= line <= site.last):
            real(*args, **kwargs)

    wrap_require(skipping)
    return int(pytest.main([*tests, "-x", "-q", "-p", "no:cacheprovider"]))


def wrap_require(around: Callable[..., None]) -> None:
    """Let all modules of the room call `around(require, the caller's frame, ...)` instead."""
    importlib.import_module("tilewright.schedule")
    real = importlib.import_module("tilewright.schedule.require").require

    def wrapped(*args: Any, **kwargs: Any) -> None:
        around(real, sys._getframe(1), *args, **kwargs)

    for name, module in list(sys.modules.items()):
        if name.startswith("tilewright.schedule") and getattr(module, "require", None) is real:
            module.require = wrapped  # type: ignore[attr-defined]


def place(frame: FrameType) -> tuple[str, int]:
    """The file, from the root of the repository, and the line that a frame is at."""
    return os.path.relpath(frame.f_code.co_filename, ROOT), frame.f_lineno


if __name__ == "__main__":
    sys.exit(main())

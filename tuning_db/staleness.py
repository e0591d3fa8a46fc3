"""Which schedules are to be verified again: those that another compiler than today's measured.

Times are those of a generation of the tools, see `Toolchain`. A step of a trace is of a version of
its primitive: `{"op": "split", "version": 2, ...}`, or of the first where it names none. A
toolchain names the versions of primitives beyond that. Records of other generations and versions
are shown, and no lookup takes them; `refresh` measures the best of them again.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..base.errors import DatabaseError
from .canonical import Json, parse_trace
from .values import Toolchain

PRIMITIVE = "primitive "
"""What the name of a version of a toolchain begins with if it is that of a primitive."""
LOWERED = "lowering"
"""The name of a version of a toolchain: the generation of what makes programs of models."""
RE_VERIFY = "re-verify"
"""The mark of a record that was measured by another generation, or made by other primitives."""


def versions_of(primitives: Mapping[str, int]) -> dict[str, Json]:
    """The versions of primitives as those of a toolchain: those beyond the first."""
    return {f"{PRIMITIVE}{name}": n for name, n in sorted(primitives.items()) if n > 1}


def other_version(trace: str, toolchain: Toolchain) -> str | None:
    """The step of a trace (JSON text) that was of another version of its primitive, in words.

    `None` if all are of those of the toolchain.
    """
    now = _primitives(toolchain)
    # The version of the format is one; a step that names another is rare, and parsing takes time.
    if not now and trace.count('"version"') < 2:
        return None
    try:
        data = parse_trace(trace)
    except DatabaseError:
        return None  # the record is damaged, which is not said here
    steps = data.get("steps") if isinstance(data, dict) else None
    for step in steps if isinstance(steps, list) else ():
        if not isinstance(step, dict) or not isinstance(name := step.get("op"), str):
            continue
        made, today = step.get("version", 1), now.get(name, 1)
        if made != today:
            return f"made with version {made!r:.20} of {name:.80}, wanted {today}"
    return None


def suspicious(toolchain: Toolchain) -> list[str]:
    """Patterns of SQL, at least one of which a trace has that is of other versions."""
    names = (f'%"{name}"%' for name in _primitives(toolchain))
    return ['%"version"%"version"%', *names]


def lowered(toolchain: Toolchain) -> int | None:
    """The generation of lowering that a toolchain names; older ones name none."""
    generation = toolchain.versions.get(LOWERED)
    return generation if type(generation) is int else None


def _primitives(toolchain: Toolchain) -> dict[str, Json]:
    """The versions of primitives beyond the first, by their names."""
    return {
        name.removeprefix(PRIMITIVE): version
        for name, version in toolchain.versions.items()
        if name.startswith(PRIMITIVE)
    }


def reverify(trace: str, measured: Toolchain, toolchain: Toolchain) -> str | None:
    """Why another toolchain has to verify again what one has measured; `None` if it has not."""
    if measured.generation != toolchain.generation:
        return f"measured with {measured.generation}, wanted {toolchain.generation}"
    return other_version(trace, toolchain)

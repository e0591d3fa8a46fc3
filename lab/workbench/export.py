"""A version as text: a script that replays it, and a sketch rule that searches its sizes."""

from __future__ import annotations

import keyword
import unicodedata
from collections.abc import Iterable, Iterator

from ...base.errors import ScheduleError
from ...base.text import excerpt, printable
from ...schedule import Schedule, Trace
from ...schedule.primitive import find_primitive
from ...schedule.tensorizable import instruction_modules
from ...target import Target
from ...tir.equality import family_hash
from ...tir.ir import Buffer, Func, Var
from ...tir.parser import parse
from ...tir.printer import expr_text, func_text, listing
from ...tir.visit import substitute
from .sliders import Sliders, holds
from .versions import LabError, Version

_NOTEBOOK = "__main__"
_TAKEN = ("FAMILY", "T", "family_hash", "tw")
"""Names that the module of a rule uses itself."""
_RENAMED = 16
"""Names that a comment lists."""
_LONGEST = 80
"""Characters of the name of a rule."""


def script(version: Version) -> str:
    """A Python file that makes the program of a version: `sch` is its schedule.

    A comment has the names that are others in the program that it makes. Raises `LabError` for
    steps that a notebook or script defines itself.
    """
    schedule = version.schedule
    program = func_text(schedule.original)
    quoted = f"'''\\\n{program}\n'''"
    if "\\" in program or "'''" in program or printable(program) != program:
        quoted = repr(program)
    lines = [
        f'"""Schedule {version.id} of {_word(schedule.original.name)}, as the lab showed it."""',
        "",
        *_imports(schedule),
        "",
        f"func = tw.script({quoted})",
        "sch = tw.Schedule(func)",
        schedule.trace.as_python(),
        *_renamed(schedule),
        "",
        'if __name__ == "__main__":',
        "    print(sch.func)",
        "",
    ]
    return "\n".join(lines)


def _renamed(schedule: Schedule) -> list[str]:
    """Comments on the names that are others once the text of the program was read.

    Steps name what they make after the names of the program, of which its text may have others.
    """
    read = parse(func_text(schedule.original))
    pairs = zip(_names(schedule.func), _names(schedule.trace.apply(read).func), strict=True)
    renamed = [f"#   {kind} {a!a} is {b!a}" for (kind, a), (_, b) in dict.fromkeys(pairs) if a != b]
    if not renamed:
        return []
    if len(renamed) > _RENAMED:
        renamed[_RENAMED:] = [f"#   and {len(renamed) - _RENAMED} more"]
    return [
        "",
        "# The text of the program has other names than the program: identifiers of ASCII letters,",
        "# none of them that of two things. Steps name what they make after these.",
        *renamed,
    ]


def _names(func: Func) -> Iterator[tuple[str, str]]:
    """The names in the text of a program, and of what each is one."""
    shown = listing(func)
    for thing, name in shown.names.items():
        yield "buffer" if isinstance(thing, Buffer) else "variable", name
    for line in shown.lines:
        if line.block is not None:
            yield "block", excerpt(line.block.label.name, len(line.block.label.name))


def rule(version: Version, target: Target, name: str) -> str:
    """A module with a sketch rule that takes the steps of a version, its sizes left to the search.

    It is for programs that differ in their sizes alone, and for targets of that kind. The search
    tries the sizes of the version first. Those that cannot be open are as they are. The limits of
    the search's rule that made the version are written out, but for those that it does not keep
    itself; what the target cannot build, any sketch rule leaves out by itself. Raises `LabError`
    for a name that is none, and as `script`.
    """
    plain = unicodedata.normalize("NFKC", name)  # Python reads names so
    taken = keyword.iskeyword(plain) or plain in _TAKEN or plain.startswith("_")
    if not plain.isidentifier() or taken or len(plain) > _LONGEST:
        raise LabError("{0!r:.80} cannot name a rule; expected the name of a function", name)
    schedule = version.schedule
    if not len(schedule.trace):
        raise LabError("the program as written has no steps to make a rule of")
    limits: list[str] = []
    try:
        sliders = Sliders(schedule, target)
    except LabError:
        trace = _closed(schedule)
    else:
        trace = sliders.sketch.trace.with_row(sliders.row)
        limits = _limits(sliders) if sliders.searched else []
    if limits:
        limits = ["# What the search would not try.", *limits]
    kind = target.kind
    steps = [f"    {line}" for line in [*trace.as_python().split("\n"), *limits]]
    lines = [
        f'"""A rule of the steps that scheduled {_word(schedule.original.name)} in the lab."""',
        "",
        *_imports(schedule),
        *(["from tilewright import te as T"] if any("T." in line for line in limits) else []),
        "from tilewright.tir.equality import family_hash",
        "",
        f'FAMILY = "{family_hash(schedule.original)}"',
        "",
        "",
        "@tw.sketch_rule",
        f"def {name}(draft: tw.Draft) -> None:",
        f'    """The steps of {version.id}, for programs that differ in their sizes alone."""',
        "    sch = draft.schedule",
        '    tw.require(family_hash(sch.original) == FAMILY, "the rule is for another program")',
        f'    tw.require(draft.target.kind == "{kind}", "the rule is for {kind} targets")',
        *steps,
        "",
    ]
    return "\n".join(lines)


def _closed(schedule: Schedule) -> Trace:
    """The trace of a schedule that has no open sizes. Raises `LabError` where it is not legal as
    long as other sizes are open."""
    try:
        return schedule.trace.apply(schedule.original, symbolic=True).trace
    except ScheduleError as error:
        raise LabError("these steps make no rule: {0}", error.condition) from error


def _limits(sliders: Sliders) -> list[str]:
    """The limits of a sketch that the version keeps, as statements behind its steps."""
    sketch = sliders.sketch
    outputs = "".join(step.outputs for step in sketch.trace)
    names = [f"t{n}" for n, kind in enumerate(outputs) if kind == "t"]
    known = {v: Var(name) for v, name in zip(sketch.variables, names, strict=True)}
    values = dict(zip(sketch.variables, sliders.row, strict=True))
    return [
        f"draft.limit({name!r}, {expr_text(substitute(condition, known))})"
        for name, condition in sketch.prune
        if holds(condition, values)
    ]


def _imports(schedule: Schedule) -> list[str]:
    """What registers the steps and instructions of a schedule."""
    homes = [find_primitive(step.op).home for step in schedule.trace]
    modules = _importable([*homes, *instruction_modules(schedule.func)])
    return ["import tilewright as tw", *(f"import {m}  # registers steps" for m in modules)]


def _importable(homes: Iterable[str | None]) -> list[str]:
    modules = sorted({home for home in homes if home is not None})
    if _NOTEBOOK in modules:
        raise LabError(
            "this version has steps that are defined in the notebook or script itself",
            hint="put @tw.primitive into a module, and import that",
        )
    return modules


def _word(name: str) -> str:
    """A name inside of a docstring."""
    return name if name.isidentifier() else "the program"

"""Traces: the steps of a schedule as data, as JSON and as Python, and their replay.

A block of the original program is recorded by its position, never by its name, so that renaming a
tensor orphans no record. The same holds for the functions of a schedule of several. Nothing from
JSON is ever executed: a step is the name of a registered primitive with checked arguments. `from`
names the module that registered a primitive outside of this package. The module is named in errors
if it is missing, and never imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, get_args, get_origin

from ..base.display import html
from ..base.errors import ScheduleError
from ..base.text import count, excerpt
from .facts import keeping_facts
from .primitive import PRIMITIVES, Primitive, find_primitive
from .step_arguments import KINDS, MAX_INT, Argument, Ref, from_json, to_json, to_python

if TYPE_CHECKING:
    from ..tir.ir import Func
    from .schedule import Schedule

VERSION = 1
MAX_STEPS = 4096
MAX_OUTPUTS = 1024
MAX_JSON = 4 << 20
MAX_HOME = 256
_KEYS = {"op", "version", "from", "args", "out", "decision", "note"}


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a primitive.

    `outputs` has a letter for each handle or number that came out: `l` loop, `b` block, `t` sampled
    integer. `decision` has the integers that a sampling step chose, `None` if it is open. `note`
    is for display only and no part of equality; the text of a step has it as a comment.
    """

    op: str
    arguments: tuple[tuple[str, Argument], ...]
    outputs: str = ""
    decision: tuple[int | None, ...] = ()
    note: str | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"<Step {step_text(self, ())}>"


@dataclass(frozen=True, slots=True)
class Trace:
    """The steps that made a schedule. Prints as runnable Python."""

    steps: tuple[Step, ...] = ()

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __str__(self) -> str:
        return self.as_python()

    _repr_html_ = html

    def __repr__(self) -> str:
        """A line; `str` has the steps."""
        return f"<Trace of {count(len(self.steps), 'step')}; print it for Python>"

    def apply(
        self, func: Func | Mapping[str, Func], *, seed: int = 0, symbolic: bool = False
    ) -> Schedule:
        """Replay on `func`, or on programs by name, which count by position.

        Open decisions are drawn with `seed`; all are open when `symbolic`.

        Raises `ScheduleError` at the first step that is refused.
        """
        from .schedule import Schedule

        schedule = Schedule(func, seed=seed, symbolic=symbolic)
        with keeping_facts():
            for step in self.steps:
                schedule.replay(step)
        return schedule

    @property
    def decisions(self) -> dict[int, tuple[int | None, ...]]:
        """The decisions by the number of the step that takes them."""
        return {k: s.decision for k, s in enumerate(self.steps) if s.decision}

    def with_decisions(self, decisions: Mapping[int, Sequence[int | None]]) -> Trace:
        """The trace with other decisions for some of its sampling steps, by number of the step.

        Raises `ScheduleError` if a step takes none, or another number of them.
        """
        steps = list(self.steps)
        for k, decision in decisions.items():
            found = len(steps[k].decision) if 0 <= k < len(steps) else 0
            if not decision or len(decision) != found:
                raise ScheduleError(
                    "step {0} takes {1} decisions, found {2}", k, found, len(decision)
                )
            steps[k] = replace(steps[k], decision=tuple(decision))
        return Trace(tuple(steps))

    def opened(self) -> Trace:
        """The trace with all decisions open."""
        return self.with_decisions({k: [None] * len(d) for k, d in self.decisions.items()})

    def with_row(self, row: Sequence[int]) -> Trace:
        """The trace with all decisions taken from `row`, in the order in which they are made.

        A row has one integer per variable of the `Space` of the symbolic schedule.
        """
        decisions: dict[int, Sequence[int]] = {}
        start = 0
        for k, decision in self.decisions.items():
            decisions[k] = [int(v) for v in row[start : start + len(decision)]]
            start += len(decision)
        if start != len(row):
            raise ScheduleError("the trace takes {0} decisions, found {1}", start, len(row))
        return self.with_decisions(decisions)

    @property
    def inexact(self) -> tuple[str, ...]:
        """The primitives by which it equals its program over the reals alone, each once."""
        inexact = (s.op for s in self.steps if find_primitive(s.op).inexact is not None)
        return tuple(dict.fromkeys(inexact))

    @property
    def error_factor(self) -> float:
        """How many times the error that the order of sums explains it may have; 1 if it is exact.

        Raises `ScheduleError` if a primitive gives no such factor.
        """
        factors = (find_primitive(s.op).error_factor(dict(s.arguments)) for s in self.steps)
        return max(factors, default=1.0)

    def to_json(self, *, notes: bool = True) -> str:
        """The trace as JSON text; without `notes`, only the steps."""
        return json.dumps(self.to_data(notes=notes), separators=(",", ":"))

    def to_data(self, *, notes: bool = True) -> dict[str, Any]:
        """The trace as a JSON value, as `to_json` writes it."""
        steps: list[dict[str, Any]] = []
        count = 0
        for step in self.steps:
            data: dict[str, Any] = {"op": step.op}
            primitive = find_primitive(step.op)
            if primitive.version > 1:
                data["version"] = primitive.version
            if primitive.home is not None:
                data["from"] = primitive.home
            data["args"] = {name: to_json(value) for name, value in step.arguments}
            if step.outputs:
                data["out"] = [f"{kind}{count + k}" for k, kind in enumerate(step.outputs)]
                count += len(step.outputs)
            if step.decision:
                data["decision"] = list(step.decision)
            if notes and step.note is not None:
                data["note"] = step.note
            steps.append(data)
        return {"version": VERSION, "steps": steps}

    @staticmethod
    def from_json(text: str, *, older: bool = False) -> Trace:
        """The trace in a JSON text.

        With `older`, steps of older versions of primitives are taken as steps of today's, which may
        make another program: to show them, and to measure that.

        Raises `ScheduleError` for anything that is not one: damaged text, a newer version, unknown
        primitives or other versions of them, arguments of wrong types, sizes that make no sense.
        """
        return Trace(tuple(_read_steps(_read_document(text), older=older)))

    def as_python(self, name: str = "sch") -> str:
        """The trace as Python statements on a `Schedule` called `name`."""
        lines = []
        count = 0
        for step in self.steps:
            outputs = [f"{kind}{count + k}" for k, kind in enumerate(step.outputs)]
            count += len(outputs)
            lines.append(step_text(step, outputs, name))
        return "\n".join(lines)


def is_note(text: object) -> bool:
    """Whether `text` can be the note of a step: it stays within a line when it is shown."""
    return isinstance(text, str) and len(text) < 256 and text.isprintable()


def step_text(step: Step, outputs: Sequence[str], schedule: str = "sch") -> str:
    """A step as a Python statement."""
    args = _python_arguments(step)
    if any(v is not None for v in step.decision):
        args.append(f"decision={list(step.decision)}")
    left = ""
    if outputs:
        result = get_args(find_primitive(step.op).types["return"])[1]
        left = f"{_targets(result, iter(outputs))} = "
    note = "" if step.note is None else f"  # {excerpt(step.note)}"
    return f"{left}{schedule}.{step.op}({', '.join(args)}){note}"


def _targets(result: Any, names: Iterator[str]) -> str:
    """The Python targets that a result of that type is unpacked into."""
    if get_origin(result) is not tuple:
        return next(names)
    parts = get_args(result)
    if parts[-1] is ...:
        targets = list(names)
    else:
        targets = [
            f"({_targets(part, names)})" if get_origin(part) is tuple else next(names)
            for part in parts
        ]
    return ", ".join(targets) + ("," if len(targets) == 1 else "")


def _python_arguments(step: Step) -> list[str]:
    """Handles first and by position, the rest by name."""
    primitive = PRIMITIVES.get(step.op)
    variadic = None if primitive is None else primitive.variadic
    args: list[str] = []
    leading = True
    for name, value in step.arguments:
        if name == variadic:
            args.extend(to_python(v) for v in value)
            continue
        leading = leading and (
            (type(value) is Ref and value.kind in "lb") or step.op in ("get_block", "work_on")
        )
        args.append(to_python(value) if leading else f"{name}={to_python(value)}")
    return args


def _read_document(text: str) -> list[Any]:
    if len(text) > MAX_JSON:
        raise ScheduleError("a trace of {0} bytes; at most {1}", len(text), MAX_JSON)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScheduleError("the trace is not JSON: {0}", error) from error
    if not isinstance(data, dict) or type(data.get("version")) is not int:
        raise ScheduleError("not a trace: expected an object with `version` and `steps`")
    if data["version"] > VERSION:
        raise ScheduleError(
            "the trace is of version {0}, this program reads up to {1}",
            data["version"],
            VERSION,
            hint="update tilewright",
        )
    steps = data.get("steps")
    if data["version"] < 1 or set(data) != {"version", "steps"} or not isinstance(steps, list):
        raise ScheduleError("not a trace: expected an object with `version` and `steps`")
    if len(steps) > MAX_STEPS:
        raise ScheduleError("a trace of {0} steps; at most {1}", len(steps), MAX_STEPS)
    return steps


def _read_steps(steps: list[Any], *, older: bool) -> Iterator[Step]:
    outputs = ""
    for number, data in enumerate(steps):
        try:
            step = _read_step(data, outputs, older=older)
        except ScheduleError as error:
            raise ScheduleError(
                "step {0} of the trace: {1}", number, error, **error.data
            ) from error
        outputs += step.outputs
        yield step


def _read_step(data: Any, outputs: str, *, older: bool) -> Step:
    if not isinstance(data, dict) or not data.keys() <= _KEYS:
        raise ScheduleError("not a step: {0!r:.80}", data)
    op, args = data.get("op"), data.get("args")
    if not isinstance(op, str) or not isinstance(args, dict):
        raise ScheduleError("a step has `op`, a text, and `args`, an object")
    home = data.get("from")
    if home is not None and not (
        isinstance(home, str)
        and len(home) <= MAX_HOME
        and all(part.isidentifier() for part in home.split("."))
    ):
        raise ScheduleError("`from` is the name of a module")
    primitive = find_primitive(op, home)
    _require_version(primitive, data.get("version", 1), older=older)
    primitive.check_names(args)
    bound = {name: from_json(args[name], outputs) for name in primitive.names if name in args}
    primitive.check_types(bound)
    note = data.get("note")
    if note is not None and not is_note(note):
        raise ScheduleError("`note` is a short printable text")
    made = _read_outputs(data.get("out", []), len(outputs))
    decision = _read_decision(data.get("decision", []))
    if decision and not primitive.samples:
        raise ScheduleError("{0} takes no decision", op)
    return Step(op, tuple(bound.items()), made, decision, note)


def _require_version(primitive: Primitive, version: Any, *, older: bool) -> None:
    if type(version) is not int or version < 1:
        raise ScheduleError("`version` is an integer from 1 on, found {0!r:.40}", version)
    if version > primitive.version or (version < primitive.version and not older):
        newer = version > primitive.version
        raise ScheduleError(
            "it was made by version {0} of {1}, and this is version {2}",
            version,
            primitive.name,
            primitive.version,
            hint="update what registers it" if newer else "measure it again: tilewright db refresh",
            primitive=primitive.name,
            found=version,
            expected=primitive.version,
        )


def _read_outputs(data: Any, count: int) -> str:
    if not isinstance(data, list) or len(data) > MAX_OUTPUTS:
        raise ScheduleError("`out` is a list of at most {0} names", MAX_OUTPUTS)
    for k, name in enumerate(data):
        if not isinstance(name, str) or name[:1] not in KINDS or name[1:] != str(count + k):
            raise ScheduleError("output {0!r} is out of order", name)
    return "".join(name[0] for name in data)


def _read_decision(data: Any) -> tuple[int | None, ...]:
    if not isinstance(data, list) or len(data) > MAX_OUTPUTS:
        raise ScheduleError("`decision` is a list of integers")
    for value in data:
        if value is not None and (type(value) is not int or abs(value) > MAX_INT):
            raise ScheduleError("`decision` is a list of integers, found {0!r}", value)
    return tuple(data)

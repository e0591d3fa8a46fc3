"""The steps that can be taken at a place of a program: which are legal, what each would cost.

Every registered primitive that takes such a place is tried on a copy of the schedule. A legal move
has the predicted time of the program after it; a refused one has the condition that does not hold.
A step is refused too if the program after it exceeds a limit of the target that the one before it
does not, and cannot be built.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import islice
from typing import Any, NamedTuple, Protocol, get_args, get_origin

from ...base.errors import BuildError, ScheduleError, Text
from ...schedule import Schedule, Trace
from ...schedule.facts import keeping_facts
from ...schedule.index_map import MAX_TEXT, IndexMap, parse_index_map
from ...schedule.primitive import PRIMITIVES, Primitive, find_primitive
from ...schedule.primitives import query
from ...schedule.step_arguments import MAX_DEPTH, MAX_INT, MAX_ITEMS, describe
from ...target import Target
from ...tir.ir import Func, Label, Var
from ...tir.printer import loop_names
from ..pictures.page import text
from .completions import Place, completed
from .program_tree import Data, Handles
from .versions import LabError


class Costs(Protocol):
    """What programs take, in seconds; `None` where that is not known. Not all can be built."""

    def predict(self, func: Func) -> float | None:
        """The time that the model of the target predicts."""

    def measured(self, trace: Trace) -> float | None:
        """The time that was measured of a schedule."""

    def exceeded(self, func: Func) -> Set[str]:
        """The limits of the target that a program exceeds, by their names."""

    def not_built(self, func: Func) -> BuildError | None:
        """Why code generation refuses a program; `None` if it takes it."""


@keeping_facts()
def moves(
    schedule: Schedule,
    handle: Var | Label | None,
    target: Target,
    handles: Handles,
    costs: Costs,
) -> list[Data]:
    """The moves at a loop, a block or the whole program (`None`).

    Legal ones come first, those with the least predicted time before others; then those that ask
    for arguments (`legal` is `None`, `needs` has them); then one refusal for each primitive that
    has no legal move here.
    """
    place = Place(schedule.func, handle, target)
    attempt = Attempts(schedule, handles, costs)
    found: list[Data] = []
    for primitive in PRIMITIVES.values():
        if not _is_move(primitive):
            continue
        calls = completed(primitive, place)
        if calls is None:
            continue
        if calls.needed:
            found.append(attempt.asking(primitive, calls.calls[0], calls.needed))
            continue
        tried = [attempt(primitive, bound) for bound in calls.calls]
        legal = [move for move in tried if isinstance(move, dict)]
        refused = (move for move in tried if isinstance(move, Attempt))
        found += legal or [attempt.refused(first) for first in islice(refused, 1)]
    return sorted(found, key=_rank)


def _rank(move: Data) -> tuple[int, float]:
    predicted = move.get("predicted")
    group = 1 if move["legal"] is None else 0 if move["legal"] else 2
    return group, math.inf if predicted is None else predicted


def _is_move(primitive: Primitive) -> bool:
    """Whether it changes programs, and by no chance."""
    return not primitive.samples and primitive.function.__module__ != query.__name__


def try_move(
    schedule: Schedule, op: str, arguments: object, handles: Handles, costs: Costs
) -> Data:
    """A step with arguments as JSON data, tried like those of `moves`."""
    primitive = find_primitive(op)
    attempt = Attempts(schedule, handles, costs)
    move = attempt(primitive, decoded(primitive, arguments, handles))
    if isinstance(move, Attempt):
        return attempt.refused(move)
    return {"op": op, "legal": True, "changes": False} if move is None else move


class Attempt(NamedTuple):
    """A step that was refused. Its error is formatted only if it is shown."""

    primitive: Primitive
    bound: Mapping[str, Any]
    error: ScheduleError


class Attempts:
    """Tries steps on copies of a schedule."""

    def __init__(self, schedule: Schedule, handles: Handles, costs: Costs) -> None:
        self._schedule, self._handles, self._costs = schedule, handles, costs
        self._names = loop_names(schedule.func)

    def __call__(self, primitive: Primitive, bound: Mapping[str, Any]) -> Data | Attempt | None:
        """A legal move, or what was refused; `None` if it would change nothing."""
        try:
            after = applied(self._schedule, primitive, bound, self._costs)
        except ScheduleError as error:
            return Attempt(primitive, bound, error)
        if after.func is self._schedule.func:
            return None
        move = self._described(primitive, bound)
        return {
            **move,
            "legal": True,
            "predicted": self._costs.predict(after.func),
            "measured": self._costs.measured(after.trace),
        }

    def refused(self, refused: Attempt) -> Data:
        """A refused step as a move."""
        move = self._described(refused.primitive, refused.bound)
        return {**move, "legal": False, "error": refusal(refused.error, self._handles)}

    def asking(self, primitive: Primitive, bound: Mapping[str, Any], needed: Iterable[str]) -> Data:
        """A move for which the user is asked for arguments."""
        needs = [{"name": n, "type": describe(primitive.types[n])} for n in needed]
        return {**self._described(primitive, bound), "legal": None, "needs": needs}

    def _described(self, primitive: Primitive, bound: Mapping[str, Any]) -> Data:
        return {
            "op": primitive.name,
            "args": {name: _encoded(value, self._handles) for name, value in bound.items()},
            "text": call_text(primitive, bound, self._names),
            "says": (inspect.getdoc(primitive.function) or "").partition("\n")[0],
            "from": primitive.home,
        }


def applied(
    schedule: Schedule, primitive: Primitive, bound: Mapping[str, Any], costs: Costs
) -> Schedule:
    """A copy of a schedule with a step more.

    Raises `ScheduleError` if it is refused, where a user's primitive fails in another way, and if
    the program exceeds a limit of the target that it does not exceed without the step, and is
    refused by code generation.
    """
    after = _stepped(schedule, primitive, bound)
    exceeded = costs.exceeded(after.func)
    if exceeded and exceeded - costs.exceeded(schedule.func):
        error = costs.not_built(after.func)
        if error is not None:
            raise ScheduleError(
                "the program after it cannot be built: {0}",
                error,
                hint=error.hint,
                example=error.example,
            ) from error
    return after


def _stepped(schedule: Schedule, primitive: Primitive, bound: Mapping[str, Any]) -> Schedule:
    after = schedule.copy()
    for handle in _handles_in(bound.values()):
        after.refer(handle)
    arguments = dict(bound)
    variadic = arguments.pop(primitive.variadic, ()) if primitive.variadic else ()
    try:
        getattr(after, primitive.name)(*variadic, **arguments)
    except ScheduleError:
        raise
    except Exception as error:
        if primitive.home is None:
            raise
        raise ScheduleError(
            "primitive {0} of {1} fails: {2}: {3}",
            primitive.name,
            primitive.home,
            type(error).__name__,
            error,
            hint="a primitive refuses by ScheduleError, as tw.require does",
        ) from error
    return after


def _handles_in(values: Any) -> Iterator[Var | Label]:
    for value in values:
        if isinstance(value, (Var, Label)):
            yield value
        elif isinstance(value, tuple):
            yield from _handles_in(value)


def refusal(error: ScheduleError, handles: Handles) -> Data:
    """A refused step as data: `place` is the loop or block in the way, `example` what clashes."""
    place = error.place if isinstance(error.place, (Var, Label)) else None
    return {
        "kind": type(error).__name__,
        "text": text(error.condition),
        "hint": _read(error.hint),
        "example": _read(error.example),
        "place": None if place is None else handles.id(place),
        "name": None if place is None else place.name,
        "alternatives": [text(a) for a in error.alternatives[:16]],
        "step": None if error.step is None else {"number": error.step, "text": _read(error.asked)},
    }


def _read(part: Text | None) -> str | None:
    shown = part() if callable(part) else part
    return None if shown is None else text(shown)


def decoded(primitive: Primitive, arguments: object, handles: Handles) -> dict[str, Any]:
    """Arguments of a step from JSON data, in which loops and blocks are ids.

    Raises `LabError` for what is no argument, and `ScheduleError` for wrong names.
    """
    if not isinstance(arguments, Mapping):
        raise LabError("args: expected an object, found {0!r:.80}", arguments)
    primitive.check_names(dict(arguments))
    if primitive.variadic and not isinstance(arguments[primitive.variadic], list):
        raise LabError("{0}: expected a list", primitive.variadic)
    return {
        name: _decoded(arguments[name], primitive.types[name], handles, name == primitive.variadic)
        for name in primitive.names
        if name in arguments
    }


def _decoded(value: Any, hint: Any, handles: Handles, several: bool = False, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise LabError("an argument is nested more than {0} deep", MAX_DEPTH)
    match value:
        case None | bool():
            return value
        case int() if abs(value) <= MAX_INT:
            return value
        case float() if math.isfinite(value):
            return value
        case str() if len(value) <= MAX_TEXT:
            return _named(value, hint, handles)
        case list() if len(value) <= MAX_ITEMS:
            part = hint if several else _part(hint)
            return tuple([_decoded(v, part, handles, depth=depth + 1) for v in value])
        case dict() if len(value) <= MAX_ITEMS:
            return {str(k): _decoded(v, Any, handles, depth=depth + 1) for k, v in value.items()}
        case _:
            raise LabError("no argument of a step: {0:.80}", repr(value))


def _part(hint: Any) -> Any:
    """The type of the elements of a sequence."""
    for option in (hint, *get_args(hint)):
        if get_origin(option) is not None and _is_sequence(option):
            return next((h for h in get_args(option) if h is not ...), Any)
    return Any


def _is_sequence(hint: Any) -> bool:
    origin = get_origin(hint)
    return (
        isinstance(origin, type)
        and origin.__module__ in ("builtins", "collections.abc")
        and (origin is not dict)
    )


def _named(text: str, hint: Any, handles: Handles) -> Any:
    """A text, or the loop, block or index map that it stands for where one is expected."""
    options = {hint, *get_args(hint)}
    if Var in options or Label in options:
        handle = handles.get(text)
        if handle is None:
            raise LabError("there is no loop or block {0!r:.40}", text, hint="ids are in the tree")
        return handle
    if IndexMap in options:
        return parse_index_map(text)
    return text


def _encoded(value: Any, handles: Handles) -> Any:
    """An argument as JSON data."""
    if isinstance(value, (Var, Label)):
        return handles.id(value)
    if isinstance(value, tuple):
        return [_encoded(v, handles) for v in value]
    return repr(value) if isinstance(value, IndexMap) else value


def call_text(primitive: Primitive, bound: Mapping[str, Any], names: Mapping[Var, str]) -> str:
    """A step as people write it; `names` are those that the program's text has for loops."""

    def shown(value: Any) -> str:
        if isinstance(value, Var):
            return names.get(value, value.name)
        if isinstance(value, Label):
            return value.name
        if isinstance(value, tuple):
            return f"[{', '.join(map(shown, value))}]"
        return repr(value)

    parts: list[str] = []
    leading = True
    for name in primitive.names:
        if name not in bound:
            leading = False
        elif name == primitive.variadic:
            parts += map(shown, bound[name])
        else:
            leading = leading and isinstance(bound[name], (Var, Label))
            parts.append(shown(bound[name]) if leading else f"{name}={shown(bound[name])}")
    return f"sch.{primitive.name}({', '.join(parts)})"

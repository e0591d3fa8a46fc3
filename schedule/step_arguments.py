"""Arguments of steps in a trace: references to outputs of earlier steps, and plain data.

| live value | in a trace | in JSON |
| --- | --- | --- |
| a loop, a block, a sampled integer or loop | `Ref` | `{"v": "l3"}` |
| arithmetic on sampled integers | `Derived` | `{"e": ["*", {"v": "t5"}, 2]}` |
| an index map | `Lambda` | `{"map": "lambda i, j: (j, i)"}` |
| a dict | `Record` | `{"dict": {...}}` |
| a sequence | tuple | a list |
| None, bool, int, float, str | itself | itself |
"""

from __future__ import annotations

import collections.abc
import math
import operator
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import formatannotation
from typing import Any, TypeAlias, Union, get_args, get_origin

from ..base.errors import ScheduleError
from ..tir.ir import Binary, Expr, Label, Op, Operand, Var, binary
from .index_map import MAX_TEXT, IndexMap, parse_index_map

Argument: TypeAlias = Any
"""A value of the middle column of the table above."""
Check: TypeAlias = Callable[[Argument], bool]

KINDS = {"l": "loop", "b": "block", "t": "sampled integer"}
MAX_ITEMS = 256
MAX_DEPTH = 16
MAX_INT = 1 << 62


@dataclass(frozen=True, slots=True)
class Ref:
    """The output number `index` of a trace, counted over all its steps."""

    kind: str
    index: int

    def __repr__(self) -> str:
        return f"{self.kind}{self.index}"


@dataclass(frozen=True, slots=True)
class Derived:
    """Arithmetic on sampled integers; `args` are `Ref`, `Derived` and integers."""

    op: str
    args: tuple[Argument, ...]

    def __repr__(self) -> str:
        return f"({self.args[0]!r} {self.op} {self.args[1]!r})"


@dataclass(frozen=True, slots=True)
class Lambda:
    """The text of an index map, in which sampled integers go by the name of their reference."""

    text: str


@dataclass(frozen=True, slots=True)
class Record:
    """A dict with string keys."""

    items: tuple[tuple[str, Argument], ...]


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
_EXPR_OPERATORS = {op: symbol for symbol in OPERATORS for op in [Op(symbol)]}


class Sampled(int):
    """An integer that was sampled, or computed from sampled ones, with its source.

    A step that takes it is recorded with the reference instead of the number, so that the trace can
    be replayed with other decisions.
    """

    source: Ref | Derived

    def __int__(self) -> int:
        if _tracing.get():
            raise ScheduleError(
                "an index map uses the sampled integer {0!r} where its decision cannot be followed",
                self.source,
                hint="let the function capture the integer itself, as a variable of its own",
            )
        return int.__int__(self)

    def __neg__(self) -> Any:
        return 0 - self

    def __new__(cls, value: int, source: Ref | Derived) -> Sampled:
        self = super().__new__(cls, value)
        self.source = source
        return self


class SampledLoop(Var):
    """A handle of the loop that a sampling step chose; `loop` is its variable in the program.

    A step that takes it is recorded with the reference to that step instead of the loop's earlier
    reference, so that the trace can be replayed with other decisions.
    """

    __slots__ = ("loop", "source")
    loop: Var
    source: Ref

    @staticmethod
    def of(loop: Var, source: Ref) -> SampledLoop:
        """The handle of `loop` as output `source`."""
        self = SampledLoop(loop.name, loop.dtype)
        object.__setattr__(self, "loop", loop)
        object.__setattr__(self, "source", source)
        self.mark_handle()
        return self

    @property
    def referent(self) -> Var:
        return self.loop

    def __hash__(self) -> int:
        return hash(self.loop)

    def __repr__(self) -> str:
        return repr(self.loop)


_tracing: ContextVar[bool] = ContextVar("tilewright_tracing", default=False)


@contextmanager
def all_traced() -> Iterator[None]:
    """Raise `ScheduleError` in this context if a sampled integer is converted to a plain one."""
    token = _tracing.set(True)
    try:
        yield
    finally:
        _tracing.reset(token)


def _arithmetic(symbol: str, reflected: bool) -> Callable[[Sampled, Any], Any]:
    operate = OPERATORS[symbol]

    def method(self: Sampled, other: Any) -> Any:
        if not isinstance(other, int) or isinstance(other, bool):
            return NotImplemented
        mine, theirs = self.source, other.source if isinstance(other, Sampled) else int(other)
        a, b = (int(other), int(self)) if reflected else (int(self), int(other))
        return Sampled(
            operate(a, b), Derived(symbol, (theirs, mine) if reflected else (mine, theirs))
        )

    return method


for _symbol, _name in [("+", "add"), ("-", "sub"), ("*", "mul"), ("//", "floordiv"), ("%", "mod")]:
    setattr(Sampled, f"__{_name}__", _arithmetic(_symbol, reflected=False))
    setattr(Sampled, f"__r{_name}__", _arithmetic(_symbol, reflected=True))


def evaluate(derived: Derived, value: Callable[[Ref], Operand]) -> Any:
    """The integer or expression of `derived`, given the values of references."""
    args = [
        a if type(a) is int else value(a) if type(a) is Ref else evaluate(a, value)
        for a in derived.args
    ]
    if any(isinstance(a, Expr) for a in args):
        return binary(Op(derived.op), *args)
    try:
        return OPERATORS[derived.op](*args)
    except ZeroDivisionError as error:
        raise ScheduleError("{0!r} divides by zero", derived) from error


def expr_parts(e: Expr) -> tuple[str, Expr, Expr] | None:
    """Symbol and operands of an expression that a `Derived` can represent."""
    if type(e) is not Binary or e.op not in _EXPR_OPERATORS:
        return None
    return _EXPR_OPERATORS[e.op], e.a, e.b


def _is_dim(v: Argument) -> bool:
    kind = type(v)
    return kind is int or kind is Derived or (kind is Ref and v.kind == "t")


def is_json(v: Argument) -> bool:
    """Whether `v` is plain data."""
    if type(v) is tuple:
        return all(is_json(x) for x in v)
    if type(v) is Record:
        return all(is_json(x) for _, x in v.items)
    return v is None or type(v) in (bool, int, float, str)


_SIMPLE: dict[Any, tuple[Check, str]] = {
    Var: (lambda v: type(v) is Ref and v.kind == "l", "a loop"),
    Label: (lambda v: type(v) is Ref and v.kind == "b", "a block"),
    Expr: (_is_dim, "an integer"),
    int: (lambda v: type(v) is int, "a plain integer"),
    float: (lambda v: type(v) in (int, float), "a number"),
    bool: (lambda v: type(v) is bool, "a bool"),
    str: (lambda v: type(v) is str, "a text"),
    type(None): (lambda v: v is None, "None"),
    IndexMap: (lambda v: type(v) is Lambda, "an index map"),
    Any: (is_json, "a JSON value"),
}
"""The types that are no compounds: their checks, and their names for errors."""


def _is_sequence(hint: Any) -> bool:
    return get_origin(hint) in (collections.abc.Sequence, tuple, list)


def _is_callable(hint: Any) -> bool:
    return get_origin(hint) is collections.abc.Callable


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (types.UnionType, Union)


def checker(hint: Any) -> Check:
    """A check that an argument has the type `hint`. Raises `ScheduleError` for an unknown one."""
    if hint in _SIMPLE:
        return _SIMPLE[hint][0]
    if _is_callable(hint):
        return _SIMPLE[IndexMap][0]
    if _is_union(hint):
        options = [checker(h) for h in get_args(hint)]
        return lambda v: any(option(v) for option in options)
    if get_origin(hint) is tuple and ... not in get_args(hint):
        parts = [checker(h) for h in get_args(hint)]
        return lambda v: (
            type(v) is tuple
            and len(v) == len(parts)
            and all(part(x) for part, x in zip(parts, v, strict=True))
        )
    if _is_sequence(hint):
        one = checker(next(h for h in get_args(hint) if h is not ...))
        return lambda v: type(v) is tuple and all(one(x) for x in v)
    raise ScheduleError(
        "a primitive has a parameter of type {0}, which no trace can hold",
        lambda: formatannotation(hint),
    )


def only_blocks(hint: Any) -> bool:
    """Whether a parameter takes blocks and nothing else, but for `None`."""
    if _is_union(hint) or _is_sequence(hint):
        parts = [h for h in get_args(hint) if h is not type(None) and h is not ...]
        return all(only_blocks(h) for h in parts)
    return hint is Label


def describe(hint: Any) -> str:
    """`hint` in words, for errors."""
    if hint in _SIMPLE:
        return _SIMPLE[hint][1]
    if _is_callable(hint):
        return _SIMPLE[IndexMap][1]
    if _is_union(hint):
        sampled = Expr in get_args(hint)
        words = [describe(Expr if h is int and sampled else h) for h in get_args(hint)]
        return " or ".join(dict.fromkeys(words))
    if get_origin(hint) is tuple and ... not in get_args(hint):
        return f"({', '.join(describe(h) for h in get_args(hint))})"
    return f"a sequence with each {describe(get_args(hint)[0])}"


def to_json(v: Argument) -> Any:
    """An argument as JSON data."""
    match v:
        case tuple():
            return [to_json(x) for x in v]
        case Ref():
            return {"v": repr(v)}
        case Derived():
            return {"e": [v.op, *(to_json(a) for a in v.args)]}
        case Lambda():
            return {"map": v.text}
        case Record():
            return {"dict": {k: to_json(x) for k, x in v.items}}
        case _:
            return v


def from_json(data: Any, outputs: str, depth: int = 0) -> Argument:
    """Returns the argument in JSON data; `outputs` are the kinds of the outputs so far.

    Raises `ScheduleError` for anything else, and for senseless sizes.
    """
    if depth > MAX_DEPTH:
        raise ScheduleError("an argument is nested more than {0} deep", MAX_DEPTH)
    match data:
        case None | bool():
            return data
        case int():
            if abs(data) > MAX_INT:
                raise ScheduleError("the number {0:e} is out of range", data)
            return data
        case float() if math.isfinite(data):
            return data
        case str():
            if len(data) > MAX_TEXT:
                raise ScheduleError("a text of {0} characters; at most {1}", len(data), MAX_TEXT)
            return data
        case list():
            if len(data) > MAX_ITEMS:
                raise ScheduleError("a list of {0} items; at most {1}", len(data), MAX_ITEMS)
            return tuple(from_json(x, outputs, depth + 1) for x in data)
        case {"v": str(name)} if len(data) == 1:
            return parse_ref(name, outputs)
        case {"e": [str(op), *args]} if len(data) == 1 and op in OPERATORS and len(args) == 2:
            parts = tuple(from_json(a, outputs, depth + 1) for a in args)
            if all(_is_dim(p) for p in parts):
                return Derived(op, parts)
        case {"map": str(text)} if len(data) == 1:
            return _index_map(text, outputs)
        case {"dict": dict(items)} if len(data) == 1 and len(items) <= MAX_ITEMS:
            return Record(tuple((k, from_json(x, outputs, depth + 1)) for k, x in items.items()))
    raise ScheduleError("a trace cannot hold {0!r}", data)


def _index_map(text: str, outputs: str) -> Lambda:
    """An index map; its text is written into statements as it is, and cannot end them."""
    parse_index_map(text, {f"t{k}": Var(f"t{k}") for k, kind in enumerate(outputs) if kind == "t"})
    if "#" in text or not text.isprintable():
        raise ScheduleError("an index map is a line without comments, found {0!r}", text)
    return Lambda(text)


def parse_ref(name: str, outputs: str) -> Ref:
    """The reference called `name`. Raises `ScheduleError` if no such output exists yet."""
    number = name[1:]
    if (
        number.isascii()
        and number.isdecimal()
        and len(number) < 7
        and int(number) < len(outputs)
        and outputs[int(number)] == name[:1]
    ):
        return Ref(name[0], int(number))
    raise ScheduleError("there is no output {0!r} of an earlier step", name)


def to_python(v: Argument) -> str:
    """An argument as Python text."""
    match v:
        case tuple():
            return "[" + ", ".join(to_python(x) for x in v) + "]"
        case Lambda():
            return v.text
        case Derived():
            return repr(v)[1:-1]
        case Record():
            return "{" + ", ".join(f"{k!r}: {to_python(x)}" for k, x in v.items) + "}"
        case _:
            return repr(v)

"""Arguments for a primitive at a place of a program, completed by their types and names.

A place is a loop, a block, or the whole program. The first parameter that takes such a handle gets
it. The others that have no default get what the program has that is sensible:

| type | values |
| --- | --- |
| `Var` | loops around the block and its producers and consumers |
| several `Var` | the loop with those inside and around it, with its neighbour |
| `Label` | producers and consumers of the block, or the blocks in the loop |
| `Dim`, `int` | powers of two |
| `bool` | both |
| an index map | dimensions in another order, or the last one in two |
| a text | what parameters of that name take: a scope, a thread axis, an instruction, a layout |

A parameter of this package or of a user's that is called as those of `_BY_NAME` gets the same
values. For what has none, as a key of an annotation, the user is asked.
"""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, product
from typing import Any, NamedTuple, TypeAlias, get_args, get_origin

from ...codegen.generator import generator_for
from ...schedule.block_queries import readers_of, region_buffers, writers_of
from ...schedule.find import blocks_in, find_path, loops_in, perfect_nest, statements
from ...schedule.index_map import IndexMap, parse_index_map
from ...schedule.primitive import Primitive
from ...target import Target
from ...tir.instruction_set import instructions_of
from ...tir.ir import HARDWARE_AXES, Block, Buffer, Expr, For, Func, Label, Stmt, Var

VARIANTS = 6
"""Completions of a primitive at a place, at most."""
_LOOPS = 8
_POWERS = (8, 16, 4, 32, 64, 2)
Values: TypeAlias = Sequence[Any]
Bound: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Completed:
    """Calls of a primitive at a place: arguments by name, and the parameters that are `needed`
    still, for which nothing is sensible."""

    calls: tuple[Bound, ...]
    needed: tuple[str, ...] = ()


@dataclass
class Place:
    """A loop, a block or the whole program (`None`) in `func`, with what is near it."""

    func: Func
    handle: Var | Label | None
    target: Target
    path: tuple[Stmt, ...] = field(init=False)

    def __post_init__(self) -> None:
        found = () if self.handle is None else find_path(self.func.body, self.handle)
        self.path = found or ()

    @cached_property
    def loops(self) -> list[For]:
        """The loops around the place, outermost first, itself included."""
        return [s for s in self.path if type(s) is For]

    @cached_property
    def inside(self) -> list[For]:
        """The loops of the perfect nest from the place on; none for a block."""
        return perfect_nest(self.path[-1])[0] if self.path else []

    @cached_property
    def block(self) -> Block | None:
        """The block of the place; of a loop, the first one in it that reduces or is last."""
        if not self.path:
            return None
        return next(blocks_in(self.path[-1]), None)

    @cached_property
    def related(self) -> list[Block]:
        """The blocks that use what the block of the place writes, and those that write what it
        reads; of a loop, those in it and those around them."""
        if self.block is None:
            return []
        own = list(blocks_in(self.path[-1])) if isinstance(self.handle, Var) else [self.block]
        found: dict[Block, None] = dict.fromkeys(own) if isinstance(self.handle, Var) else {}
        for b in own:
            found.update(dict.fromkeys(readers_of(self.func, region_buffers(b.writes), b.label)))
            for buffer in sorted(region_buffers(b.reads), key=lambda x: x.name):
                found.update((w, None) for w in writers_of(self.func, buffer) if w is not b)
        return [b for b in found if b.label is not self.handle]

    @cached_property
    def near_loops(self) -> list[Var]:
        """The loops around the block and around what is related to it."""
        rows = [[s.var for s in self.loops]]
        for b in self.related:
            above = find_path(self.func.body, b.label) or ()
            rows.append([s.var for s in above if type(s) is For])
        inner = [s.var for s in loops_in(self.path[-1])] if self.path else []
        found = dict.fromkeys(v for row in (*rows[1:], rows[0], inner) for v in row)
        return [v for v in found if v is not self.handle][:_LOOPS]

    @property
    def iterations(self) -> int:
        """The iteration variables of the block."""
        return 0 if self.block is None else len(self.block.iters)

    @property
    def statements(self) -> int:
        """The statements in the body of the loop."""
        last = self.path[-1] if self.path else None
        return len(statements(last.body)) if type(last) is For else 0

    @property
    def reads(self) -> list[Buffer]:
        """The inputs of the block, by their position."""
        read = [] if self.block is None else _distinct(r.buffer for r in self.block.reads)
        return [b for b in read if b not in self.writes]

    @property
    def writes(self) -> list[Buffer]:
        return [] if self.block is None else _distinct(r.buffer for r in self.block.writes)


def completed(primitive: Primitive, place: Place) -> Completed | None:
    """The calls of a primitive at a place; `None` if it takes no such place."""
    types = {name: primitive.types[name] for name in primitive.names}
    first = _first(primitive, types, place)
    if first is None:
        return None
    wanted = [n for n in primitive.names if n in primitive.required and n != first]
    calls: list[Bound] = []
    needed: tuple[str, ...] = ()
    for value in _of_place(primitive, types[first], place) if first else [None]:
        bound = {first: value} if first else {}
        values = [_values(name, Question(primitive, place, value)) for name in wanted]
        needed = tuple(n for n, v in zip(wanted, values, strict=True) if v is None)
        if needed:
            return Completed((bound,), needed)
        calls += [
            _in_order(primitive, {**bound, **dict(zip(wanted, row, strict=True))})
            for row in islice(product(*[v for v in values if v is not None]), VARIANTS)
        ]
    return Completed(tuple(calls[:VARIANTS]))


def _in_order(primitive: Primitive, bound: Bound) -> Bound:
    return {name: bound[name] for name in primitive.names if name in bound}


def _first(primitive: Primitive, types: dict[str, Any], place: Place) -> str | None:
    """The parameter that takes the place: empty for the program, `None` if there is none."""
    handles = [n for n in primitive.names if _takes(types[n], Var) or _takes(types[n], Label)]
    if place.handle is None:
        return "" if not handles else None
    kind = Label if isinstance(place.handle, Label) else Var
    required = [n for n in handles if n in primitive.required or n == primitive.variadic]
    return next((n for n in required if _takes(types[n], kind)), None)


def _of_place(primitive: Primitive, hint: Any, place: Place) -> Iterator[Any]:
    """The place as an argument: itself, or with others in a sequence of loops."""
    kind = Label if isinstance(place.handle, Label) else Var
    if _takes_one(hint, kind) and _variadic_type(primitive) is not hint:
        yield place.handle
        return
    yield from (tuple(loops) for loops in _sequences(place))


def _variadic_type(primitive: Primitive) -> Any:
    return None if primitive.variadic is None else primitive.types[primitive.variadic]


def _sequences(place: Place) -> Iterator[Sequence[Var]]:
    """The loop of the place with others: those inside, in another order, and its neighbour."""
    loop, inner = place.handle, [s.var for s in place.inside]
    outer = [s.var for s in _nest_above(place)]
    assert isinstance(loop, Var)
    if len(inner) > 1:
        yield inner[:2]
        yield [inner[1], loop]
    if len(inner) > 2:
        yield inner[:3]
        yield [*inner[1:], loop]
    if len(outer) > 1:
        yield [loop, *outer]
    parent = place.path[-2] if len(place.path) > 1 else None
    beside = statements(parent) if parent is not None else statements(place.func.body)
    loops = [s.var for s in beside if type(s) is For]
    if loop in set(loops[:-1]):
        at = next(n for n, v in enumerate(loops) if v is loop)
        yield loops[at : at + 2]
    yield [loop]


def _nest_above(place: Place) -> list[For]:
    """The loops around that have nothing in them but each other and the place."""
    return [s for s in place.loops[:-1] if place.path[-1] in perfect_nest(s)[0]]


class Question(NamedTuple):
    """What to complete: a call of a primitive at a place, which is `given` as an argument."""

    primitive: Primitive
    place: Place
    given: Any


def _values(name: str, asked: Question) -> Values | None:
    """Values for a parameter; `None` where the user is asked."""
    hint, place = asked.primitive.types[name], asked.place
    if name in _BY_NAME:
        return _BY_NAME[name](asked)
    if _takes_one(hint, Var):
        return place.near_loops
    if _takes_one(hint, Label):
        return [b.label for b in place.related]
    if hint is bool:
        return [True, False]
    if hint is int or _takes_one(hint, Expr):
        return _POWERS
    if _takes_one(hint, IndexMap):
        return _maps(place.iterations)
    return None


def _factors(asked: Question) -> Values:
    """Of `split` the inner one; for tiles one for each loop; one for the layout of a copy."""
    if isinstance(asked.given, tuple):
        return [(f,) * len(asked.given) for f in _POWERS]
    if "layout" in asked.primitive.names:
        return [(f,) for f in _POWERS]
    if isinstance(asked.given, Label):
        return [(f, f) for f in _POWERS]
    extent = asked.place.loops[-1].extent if asked.place.loops else 0
    return [(None, f) for f in _POWERS if not isinstance(extent, int) or f < extent]


def _buffers(asked: Question) -> Values:
    read = [("read", n) for n in range(len(asked.place.reads))]
    return [*read, *(("write", n) for n in range(len(asked.place.writes)))]


def _scopes(asked: Question) -> Values:
    on_device = generator_for(asked.place.target).on_device
    return ["shared", "local", "global"] if on_device else ["register", "local", "global"]


def _axes(asked: Question) -> Values:
    return HARDWARE_AXES if generator_for(asked.place.target).on_device else []


def _keys(asked: Question) -> Values | None:
    """The annotations that are there; one that comes with a value is the user's."""
    last = asked.place.path[-1] if asked.place.path else None
    if "value" in asked.primitive.names or not isinstance(last, (For, Block)):
        return None
    return [key for key, _ in last.annotations]


def _maps(count: int) -> list[IndexMap]:
    """Another order of dimensions, and the last one in two."""
    if not 1 <= count <= len(_LETTERS):
        return []
    letters = _LETTERS[:count]
    last = letters[-1]
    outputs = [[*letters[:-1], f"{last} // 16", f"{last} % 16"]]
    if count > 1:
        outputs.insert(0, [*letters[:-2], last, letters[-2]])
    head = f"lambda {', '.join(letters)}: "
    return [parse_index_map(f"{head}({', '.join(parts)})") for parts in outputs]


_LETTERS = ("i", "j", "k", "l", "m", "n", "o", "p")


def _order(asked: Question) -> Values:
    count = asked.place.iterations
    return [(*range(count - 2), count - 1, count - 2)] if count > 1 else []


def _layouts(asked: Question) -> Values:
    """One dimension in two, for each dimension of an input."""
    ranks = sorted({len(b.shape) for b in asked.place.reads if len(b.shape) <= len(_LETTERS)})
    capitals = "ABCDEFGH"
    return [
        f"{capitals[d]}{capitals[:d]}{capitals[d + 1 : rank]}{capitals[d].lower()}"
        for rank in ranks
        for d in range(rank - 1, -1, -1)
    ]


def _padding(asked: Question) -> Values:
    count = asked.place.iterations
    return [(f,) * count for f in (16, 8, 4)] if count else []


def _stages(asked: Question) -> Values:
    count = asked.place.statements
    return [tuple(min(n, 1) for n in range(count))] if count > 1 else []


_BY_NAME: dict[str, Callable[[Question], Values | None]] = {
    "axis": lambda asked: range(max((len(b.shape) for b in asked.place.writes), default=0)),
    "buffer": _buffers,
    "buffer_index": lambda asked: range(len(asked.place.writes)),
    "factors": _factors,
    "intrin": lambda asked: [i.name for i in instructions_of(asked.place.target)],
    "key": _keys,
    "layout": _layouts,
    "new_order": _order,
    "padding": _padding,
    "read_buffer_index": lambda asked: range(len(asked.place.reads)),
    "stages": _stages,
    "storage_scope": _scopes,
    "thread_axis": _axes,
    "tile": lambda _: (4, 2),
    "write_buffer_index": lambda asked: range(len(asked.place.writes)),
}
"""Values by the names of parameters, which mean the same in all primitives."""


def _takes(hint: Any, kind: type) -> bool:
    """Whether a parameter takes a handle of that kind, or several."""
    return hint is kind or any(_takes(part, kind) for part in get_args(hint) if part is not ...)


def _takes_one(hint: Any, kind: type) -> bool:
    """Whether a parameter takes one value of that kind."""
    if get_origin(hint) in (collections.abc.Sequence, tuple, list, collections.abc.Callable):
        return False
    return hint is kind or any(_takes_one(part, kind) for part in get_args(hint))


def _distinct(buffers: Iterable[Buffer]) -> list[Buffer]:
    return list(dict.fromkeys(buffers))

"""Exact dependences between quasi-affine accesses, with examples.

Two accesses conflict if two iterations of the loops around them, in a given order, touch the same
element. That is a question about integers: the variables of both iterations, and conditions on
them. `affine.py` asks the integer set library, which proves that there is no such pair or returns
the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

from . import affine
from .bounds import variables
from .evaluate import evaluate
from .ir import Dim, Expr, Op, Range, Var, as_expr, binary
from .visit import substitute


class Access(NamedTuple):
    """A box of elements that something touches, while the variables `inner` (with extents) sweep.

    It does so only where all `guards` hold.
    """

    ranges: Sequence[Range]
    inner: Mapping[Var, Dim]
    guards: Sequence[Expr] = ()


class Point(NamedTuple):
    """Values of loop variables, by name, outermost first."""

    values: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.values)


class Conflict(NamedTuple):
    """Two iterations that touch an element; `outer` are the loops that are at one iteration."""

    outer: Point
    first: Point
    second: Point
    element: tuple[int, ...]


Order: TypeAlias = Callable[[Sequence[Expr], Sequence[Expr]], Expr]
"""The condition under which the first of two iterations is to be looked at with the second."""


class Verdict:
    """The result for two accesses: they are `apart`, or `clash`, or neither is shown."""

    def __init__(self, apart: bool, find: Callable[[], Conflict | None] | None = None) -> None:
        self.apart = apart
        self.clash = find is not None
        self._find = find

    @cached_property
    def example(self) -> Conflict | None:
        """The first conflict, searched for when it is read; `None` if that takes too long."""
        return None if self._find is None else self._find()


APART = Verdict(True)
UNKNOWN = Verdict(False)


def before(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
    """The condition that iteration `a` precedes iteration `b`, outermost loops first."""
    result: Expr = as_expr(False)
    for x, y in zip(reversed(a), reversed(b), strict=True):
        same = binary(Op.EQ, x, y)
        result = binary(Op.OR, binary(Op.LT, x, y), binary(Op.AND, same, result))
    return result


def conflict(
    first: Access,
    second: Access,
    outer: Mapping[Var, Dim],
    loops: Mapping[Var, Dim],
    order: Order = before,
) -> Verdict:
    """Whether `first` in one iteration of `loops` touches what `second` touches in a later one.

    Both are at the same iteration of `outer`. `order` selects other pairs of iterations than the
    first before the second. All other variables (scalar parameters) may have any value. Unknown if
    sizes are open.
    """
    outer_sizes, sizes = _sizes(outer), _sizes(loops)
    a, b = _copy(first, loops), _copy(second, loops)
    if outer_sizes is None or sizes is None or a is None or b is None:
        return UNKNOWN
    conditions = [*a.guards, *b.guards, order(a.loops, b.loops)]
    element: list[Expr] = []
    for r, q in zip(a.ranges, b.ranges, strict=True):
        conditions += _meet(r, q)
        element.append(binary(Op.MAX, r.min, q.min))
    used = {v for c in (*conditions, *element) for v in variables(c)}
    around = {v: n for v, n in outer_sizes.items() if v in used}
    extents: dict[Var, int | None] = dict(around)
    for x, y, extent in zip(a.loops, b.loops, sizes.values(), strict=True):
        extents[x] = extents[y] = extent
    extents |= a.inner | b.inner
    extents |= dict.fromkeys(sorted(used - extents.keys(), key=lambda v: v.name))
    solutions = affine.solve(extents, conditions)
    if solutions is None:
        return UNKNOWN
    if solutions.empty:
        return APART
    if not solutions.exact:
        return UNKNOWN

    def example() -> Conflict | None:
        values = solutions.first()
        if values is None:
            return None
        return Conflict(
            _point(around, around, values),
            _point(loops, a.loops, values),
            _point(loops, b.loops, values),
            tuple([int(evaluate(e, values)) for e in affine.without_casts(element, extents)]),
        )

    return Verdict(False, example)


def beyond(
    read: Access, writes: Sequence[Access], shape: Sequence[Dim], shared: Mapping[Var, Dim]
) -> Verdict:
    """Whether `read` touches only what `writes` touch in the same iteration of `shared`.

    If so, the verdict is `apart`. Accesses of more than one element, or with open sizes, are not
    decided. Both iterations of an example are the same.
    """
    sizes = _sizes(shared)
    if sizes is None or not all(isinstance(n, int) for n in shape):
        return UNKNOWN
    reading = _elements(read, shape, sizes, certain=False)
    exact = _elements(read, shape, sizes, certain=True) is not None
    writing = [_elements(w, shape, sizes, certain=True) for w in writes]
    known = [w for w in writing if w is not None]
    if reading is None:
        return UNKNOWN
    if affine.covered(reading, known):
        return APART
    if not exact or len(known) < len(writing):
        return UNKNOWN

    def example() -> Conflict | None:
        found = affine.first_beyond(reading, known)
        if found is None:
            return None
        point = Point(tuple((v.name, n) for v, n in zip(shared, found[0], strict=True)))
        return Conflict(Point(()), point, point, tuple(found[1]))

    return Verdict(False, example)


def _elements(
    access: Access, shape: Sequence[Dim], shared: Mapping[Var, int], *, certain: bool
) -> affine.Elements | None:
    inner = _sizes(access.inner)
    if inner is None or not all(isinstance(r.extent, int) and r.extent == 1 for r in access.ranges):
        return None
    box = affine.Box({**shared, **inner}, access.guards)
    indices = [r.min for r in access.ranges]
    return affine.elements(indices, shape, box, list(shared), certain)


class _Copy(NamedTuple):
    """An access with variables of its own, those of the loops among them."""

    loops: list[Var]
    inner: dict[Var, int]
    ranges: list[Range]
    guards: list[Expr]


def _copy(access: Access, loops: Iterable[Var]) -> _Copy | None:
    """`None` if the access has open sizes."""
    inner = _sizes(access.inner)
    if inner is None or not all(isinstance(r.extent, int) for r in access.ranges):
        return None
    names = {v: Var(v.name) for v in (*loops, *inner)}
    return _Copy(
        [names[v] for v in loops],
        {names[v]: n for v, n in inner.items()},
        [Range(substitute(r.min, names), r.extent) for r in access.ranges],
        [substitute(g, names) for g in access.guards],
    )


def _meet(a: Range, b: Range) -> list[Expr]:
    """The condition that two ranges intersect; the intersection begins where the later one does."""
    if a.extent == 1 and b.extent == 1:
        return [binary(Op.EQ, a.min, b.min)]
    return [
        binary(Op.LT, a.min, b.min + as_expr(b.extent)),
        binary(Op.LT, b.min, a.min + as_expr(a.extent)),
    ]


def _sizes(extents: Mapping[Var, Dim]) -> dict[Var, int] | None:
    """The extents as integers; `None` if one is open."""
    sizes = {v: n for v, n in extents.items() if isinstance(n, int)}
    return sizes if len(sizes) == len(extents) else None


def _point(named: Iterable[Var], own: Iterable[Var], values: Mapping[Var, int]) -> Point:
    return Point(tuple([(v.name, values[w]) for v, w in zip(named, own, strict=True)]))

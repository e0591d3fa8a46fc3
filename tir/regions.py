"""The region of each buffer that a statement touches.

A region has one range (first index, number of indices) per dimension and covers everything that is
touched; strided accesses are covered by their hull. Swept variables (loops inside the statement,
and those given) are eliminated; other variables stay in `Range.min`. Extents are integers or
expressions over decision variables, never over loop variables.

The reads and writes of a statement, with inner bindings substituted.

Infer the regions of blocks whose text does not declare them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .bounds import LARGEST, Sweeper, Window, variables
from .inequality import at_most, nonnegative
from .ir import (
    Alloc,
    Barrier,
    Block,
    Buffer,
    Dim,
    Expr,
    For,
    If,
    Iter,
    Let,
    Load,
    Op,
    Prefetch,
    Range,
    Region,
    Seq,
    Stmt,
    Store,
    Var,
    as_dim,
    as_expr,
    const,
)
from .polynomial import Poly, Ranges, add, negated, number, shifted
from .simplify import NO_RANGES
from .structure import key_of
from .visit import substitute, walk


def hull(expr: Expr, sweep: Mapping[Var, Dim], ranges: Ranges = NO_RANGES) -> Range | None:
    """The hull of `expr` while each variable of `sweep` runs over 0 .. extent-1.

    `ranges` are those of other variables, which stay free. `None` if it depends on data without a
    `value_range`.
    """
    return Hulls(sweep, ranges)(expr)


class Hulls:
    """`hull` of many expressions over the same sweep and ranges."""

    def __init__(self, sweep: Mapping[Var, Dim], ranges: Ranges = NO_RANGES) -> None:
        self._sweeper = _Sweeper(sweep, ranges, ())

    def __call__(self, expr: Expr) -> Range | None:
        """The hull of an expression."""
        sweeper = self._sweeper
        window = sweeper.window(sweeper.poly(expr))
        return None if window is None else sweeper.range(*window)


def access_regions(
    stmt: Stmt, ranges: Ranges = NO_RANGES
) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
    """(reads, writes) of `stmt` when its loops run.

    There is one region per buffer and side, in order of first access, within the buffer's shape.
    Blocks inside count with their declared regions. Buffers that are allocated inside are left out.
    """
    accesses = Accesses(stmt)
    outside = [a for a in accesses.found if a.buffer not in accesses.inside]
    dims = [n for a in outside for n in (*a.extents, *a.buffer.shape)]
    sweeper = _Sweeper(accesses.loops, ranges, dims)
    sides: tuple[dict[Buffer, list[Window | None]], dict[Buffer, list[Window | None]]] = ({}, {})
    for access in outside:
        merged = sides[access.is_write]
        windows = sweeper.windows(access)
        before = merged.get(access.buffer)
        merged[access.buffer] = windows if before is None else sweeper.unions(before, windows)
    reads, writes = (
        tuple([sweeper.region(buffer, windows) for buffer, windows in side.items()])
        for side in sides
    )
    return reads, writes


def whole(buffer: Buffer) -> Region:
    """All of `buffer`."""
    return Region(buffer, tuple([Range(const(0), n) for n in buffer.shape]))


class _Sweeper(Sweeper):
    """Sweeps variables from 0 to their extent.

    `dims` are dimensions: their variables, and those in extents of the sweep, are decisions.
    """

    def __init__(self, sweep: Mapping[Var, Dim], ranges: Ranges, dims: Iterable[Dim]) -> None:
        known: dict[Var, tuple[Dim, Dim]] = dict(ranges)
        decisions: set[Var] = set()
        for n in (*sweep.values(), *dims):
            decisions.update(variables(n))
        for v in decisions:
            known.setdefault(v, (0, LARGEST))
        for v, extent in sweep.items():
            known[v] = (0, extent - 1)
        super().__init__(known, sweep, decisions)

    def windows(self, access: BufferAccess) -> list[Window | None]:
        """First and last index per dimension."""
        result: list[Window | None] = []
        for first, extent in zip(access.first, access.extents, strict=True):
            window = self.window(self.poly(first))
            if window is not None and not (type(extent) is int and extent == 1):
                window = window[0], shifted(add(window[1], self.poly(as_expr(extent))), -1)
            result.append(window)
        return result

    def unions(
        self, first: Sequence[Window | None], second: Sequence[Window | None]
    ) -> list[Window | None]:
        """The hull of two windows in each dimension."""
        return [self._union(a, b) for a, b in zip(first, second, strict=True)]

    def _union(self, a: Window | None, b: Window | None) -> Window | None:
        if a is None or b is None:
            return None
        low = a[0] if at_most(self, a[0], b[0]) else b[0] if at_most(self, b[0], a[0]) else None
        high = b[1] if at_most(self, a[1], b[1]) else a[1] if at_most(self, b[1], a[1]) else None
        return None if low is None or high is None else (low, high)

    def range(self, low: Poly, high: Poly) -> Range:
        """A range from its first and last index."""
        return self._make(low, shifted(add(high, low, -1), 1))

    def _make(self, low: Poly, extent: Poly) -> Range:
        """A range; of a sweep over nothing, whose extent comes out negative, an empty one."""
        count = as_dim(self(self.build(extent)))
        return Range(self(self.build(low)), max(count, 0) if isinstance(count, int) else count)

    def region(self, buffer: Buffer, windows: Sequence[Window | None]) -> Region:
        """A region within the shape of the buffer."""
        pairs = zip(windows, buffer.shape, strict=True)
        return Region(buffer, tuple([self._clamped(w, n) for w, n in pairs]))

    def _clamped(self, window: Window | None, size: Dim) -> Range:
        """A range within a dimension that covers what of `window` is in it."""
        if window is None:
            return Range(const(0), size)
        low, high = window
        extent = shifted(add(high, low, -1), 1)
        if not self.is_extent(extent):
            extent = number(self.interval(extent)[1])
        room = add(self.poly(as_expr(size)), extent, -1)
        if nonnegative(self, negated(room)):
            return Range(const(0), size)
        if not nonnegative(self, room):
            extent = self.extremum(Op.MIN, extent, self.poly(as_expr(size)))
            room = add(self.poly(as_expr(size)), extent, -1)
        if not nonnegative(self, low):
            low = self.extremum(Op.MAX, low, {})
        if not nonnegative(self, add(room, low, -1)):
            low = self.extremum(Op.MIN, low, room)
        return self._make(low, extent)


class BufferAccess(NamedTuple):
    """`extents[d]` elements from `first[d]` on, in each dimension d."""

    buffer: Buffer
    is_write: bool
    first: tuple[Expr, ...]
    extents: tuple[Dim, ...]


class Accesses:
    """All accesses in a statement, as functions of loop variables and free variables.

    Blocks count with their declared regions. `loops` are the extents of the loops inside, `inside`
    the buffers that are allocated there.
    """

    def __init__(self, stmt: Stmt) -> None:
        self.found: list[BufferAccess] = []
        self.loops: dict[Var, Dim] = {}
        self.inside: set[Buffer] = set()
        self._stmt(stmt, {})

    def _stmt(self, s: Stmt, values: dict[Var, Expr]) -> None:
        match s:
            case For():
                self.loops[s.var] = s.extent
                self._stmt(s.body, values)
            case Seq():
                for child in s.stmts:
                    self._stmt(child, values)
            case If():
                self._loads(s.cond, values)
                self._stmt(s.then, values)
                if s.other is not None:
                    self._stmt(s.other, values)
            case Let():
                self._loads(s.value, values)
                self._stmt(s.body, {**values, s.var: substitute(s.value, values)})
            case Alloc():
                self.inside.add(s.buffer)
                self._stmt(s.body, values)
            case Store():
                self._loads(s.value, values)
                for e in s.indices if s.mask is None else (*s.indices, s.mask):
                    self._loads(e, values)
                self._add(s.buffer, True, s.indices, values)
            case Barrier():
                pass
            case Prefetch():
                for e in s.indices:
                    self._loads(e, values)
            case Block():
                self._block(s, values)
            case _:
                raise TypeError(f"{type(s).__name__} is no statement")

    def _block(self, s: Block, values: dict[Var, Expr]) -> None:
        for i in s.iters:
            self._loads(i.value, values)
        if s.predicate is not None:
            self._loads(s.predicate, values)
        inner = {**values, **{i.var: substitute(i.value, values) for i in s.iters}}
        for is_write, regions in ((False, s.reads), (True, s.writes)):
            for r in regions:
                first = tuple([substitute(x.min, inner) for x in r.ranges])
                extents = tuple([x.extent for x in r.ranges])
                self.found.append(BufferAccess(r.buffer, is_write, first, extents))

    def _loads(self, e: Expr, values: dict[Var, Expr]) -> None:
        for n in walk(e):
            if type(n) is Load:
                self._add(n.buffer, False, n.indices, values)

    def _add(
        self, buffer: Buffer, is_write: bool, indices: tuple[Expr, ...], values: dict[Var, Expr]
    ) -> None:
        first = tuple([substitute(i, values) for i in indices])
        self.found.append(BufferAccess(buffer, is_write, first, (1,) * len(first)))


Regions = tuple[Region, ...]


def element_regions(body: Stmt, init: Stmt | None) -> tuple[Regions, Regions] | None:
    """(reads, writes) of a body without loops or blocks: one region per distinct access, in order.

    An index that is read from a buffer, or bound in the body, covers the whole dimension. `None` if
    the body has loops or blocks. Program text relies on this rule: it is frozen.
    """
    nodes = [*walk(body), *(() if init is None else walk(init))]
    if any(isinstance(n, (Alloc, Block, For)) for n in nodes):
        return None
    local = {n.var for n in nodes if type(n) is Let}
    reads = _distinct([n for n in nodes if type(n) is Load], local)
    return reads, _distinct([n for n in nodes if type(n) is Store], local)


def infer_regions(
    iters: tuple[Iter, ...], body: Stmt, init: Stmt | None
) -> tuple[Regions, Regions]:
    """(reads, writes) of a block: of each access, or the hull per buffer where there are loops."""
    simple = element_regions(body, init)
    if simple is not None:
        return simple
    whole = body if init is None else Seq((body, init))
    ranges: dict[Var, tuple[Dim, Dim]] = {i.var: (0, i.extent - 1) for i in iters}
    return access_regions(whole, ranges)


def same_regions(a: Regions, b: Regions) -> bool:
    """Whether two lists of regions over the same variables are equal."""
    return list(map(region_key, a)) == list(map(region_key, b))


def _distinct(accesses: Sequence[Load | Store], local: set[Var]) -> Regions:
    regions: dict[object, Region] = {}
    for n in accesses:
        pairs = zip(n.indices, n.buffer.shape, strict=False)
        region = Region(n.buffer, tuple([_range(i, d, local) for i, d in pairs]))
        regions.setdefault(region_key(region), region)
    return tuple(regions.values())


def _range(index: Expr, dim: Dim, local: set[Var]) -> Range:
    if any(type(n) is Load or n in local for n in walk(index)):
        return Range(const(0), dim)
    return Range(index, 1)


def region_key(r: Region) -> object:
    """A key, equal for regions of one structure."""
    return r.buffer, tuple([(key_of(x.min), key_of(as_expr(x.extent))) for x in r.ranges])

"""The places of elements in memory of blocks and threads: the shapes that buffers shrink to there.

`codegen/passes/compact.py` gives a buffer the shape of what is touched inside the loops around all
its accesses. Here are the same shapes as dimensions over decisions.

Dimensions of a profile as numbers of many rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile

import numpy as np
import numpy.typing as npt

from ....base import dtypes
from ....tir.bounds import variables
from ....tir.columns import HIGH, LOW
from ....tir.evaluate import Columns
from ....tir.ir import (
    INDEX,
    Binary,
    Buffer,
    Const,
    Dim,
    Expr,
    For,
    ForKind,
    Load,
    Op,
    Var,
    as_dim,
    as_expr,
    binary,
    ceildiv,
    const,
    product,
)
from ....tir.visit import substitute, walk
from ..profile import Ints
from .launches import THREAD, Access, Launch, Phase

Span = tuple[Dim, Dim]
ZERO = const(0)


def least(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return a if a is b else as_dim(binary(Op.MIN, as_expr(a), as_expr(b)))


def most(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return a if a is b else as_dim(binary(Op.MAX, as_expr(a), as_expr(b)))


def depends_on_data(e: Expr) -> bool:
    """Whether an index is more than int64 arithmetic: it reads elements, or has other dtypes."""
    return any(
        type(n) is Load or (isinstance(n, Expr) and n.dtype not in (INDEX, "bool")) for n in walk(e)
    )


def span(e: Expr, loops: Mapping[Var, Dim]) -> Span | None:
    """The least and the greatest value of an index while loops of these extents run.

    Other variables are decisions, which are positive. `None` where it is not known.
    """
    if type(e) is Const:
        return int(e.value), int(e.value)
    if variables(e).isdisjoint(loops):
        return None if depends_on_data(e) else (as_dim(e), as_dim(e))
    if type(e) is Var:
        return 0, loops[e] - 1
    if type(e) is not Binary:
        return None
    a, b = span(e.a, loops), span(e.b, loops)
    if a is None or b is None:
        return None
    ends = _SPANS[e.op](a, b) if e.op in _SPANS else None
    if ends is None or not all(map(_fits, ends)):
        return None
    return as_dim(ends[0]), as_dim(ends[1])


def _fits(n: Dim) -> bool:
    """Whether a number is an index: what is none may have wrapped around."""
    return not isinstance(n, int) or LOW <= n <= HIGH


def _multiplied(a: Span, b: Span) -> Span | None:
    if not _same(b):
        a, b = b, a
    if not _same(b):
        return None
    (low, high), by = a, b[0]
    if isinstance(by, int) and by < 0:
        low, high = high, low
    return low * by, high * by


def _below(n: Dim, limit: int) -> bool:
    return isinstance(n, int) and n < limit


def _counts(n: Dim) -> bool:
    """Whether a number is known not to be negative, where it is one of positive decisions."""
    if isinstance(n, int):
        return n >= 0
    if type(n) is Const:
        return int(n.value) >= 0
    if type(n) is Binary:
        return n.op in _COUNTING and _counts(n.a) and _counts(n.b)
    return type(n) is Var


_COUNTING = frozenset({Op.ADD, Op.MUL, Op.FLOORDIV, Op.MOD, Op.MIN, Op.MAX})
"""Operators on numbers that are not negative whose result is not, either."""


def _same(a: Span) -> bool:
    """Whether it is one value."""
    low, high = a
    return low is high or (isinstance(low, int) and isinstance(high, int) and low == high)


def _divided(a: Span, b: Span) -> Span | None:
    if not _same(b) or _below(b[0], 1):
        return None
    low = 0 if isinstance(a[0], int) and a[0] == 0 else a[0] // b[0]  # also by a decision
    return low, a[1] // b[0]


def _rest(a: Span, b: Span) -> Span | None:
    if not _same(b) or _below(b[0], 1) or not _counts(a[0]):
        return None
    return 0, least(a[1], b[0] - 1)


_SPANS: Mapping[Op, Callable[[Span, Span], Span | None]] = {
    Op.ADD: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    Op.SUB: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    Op.MUL: _multiplied,
    Op.FLOORDIV: _divided,
    Op.MOD: _rest,
    Op.MIN: lambda a, b: (least(a[0], b[0]), least(a[1], b[1])),
    Op.MAX: lambda a, b: (most(a[0], b[0]), most(a[1], b[1])),
}


def at_zero(e: Expr, loops: Iterable[For]) -> Expr:
    """An index where loops are at 0."""
    return substitute(e, {f.var: ZERO for f in loops})


def place(buffer: Buffer, indices: Sequence[Expr], strides: Sequence[Dim]) -> Dim:
    """The offset in elements of the element at `indices`."""
    indices = list(indices)
    if buffer.swizzle is not None:
        axis, by, rows, width = buffer.swizzle
        a = indices[axis]
        indices[axis] = (a // width ^ indices[by] % rows) * width + a % width
    total: Expr = ZERO
    for i, step in zip(indices, strides, strict=True):
        total = total + i * as_expr(step)  # expressions wrap around, numbers of Python do not
    return as_dim(total)


def strides_of(shape: Sequence[Dim], buffer: Buffer) -> list[Dim]:
    """Strides in elements of a buffer that has shrunk to a shape."""
    if buffer.strides is not None:
        return list(buffer.strides)
    wanted = {axis: (factor, offset) for axis, factor, offset in buffer.align}
    strides: list[Dim] = []
    step: Dim = 1
    for axis in reversed(range(len(shape))):
        factor, offset = wanted.get(axis, (1, 0))
        if factor != 1:
            step = step + (offset - step) % factor
        strides.append(step)
        step = step * shape[axis]
    return strides[::-1]


class Shapes:
    """The shapes of the shared buffers of a launch, and what a thread holds of its own."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.uses: dict[Buffer, list[tuple[Phase, Access]]] = {}
        for phase in launch.phases:
            for a in phase.accesses:
                self.uses.setdefault(a.buffer, []).append((phase, a))
        self._shapes: dict[Buffer, list[Dim]] = {}

    def shared(self) -> list[Buffer]:
        return [b for b, uses in self.uses.items() if any(a.scope == "shared" for _, a in uses)]

    def held(self) -> list[Buffer]:
        return [b for b, uses in self.uses.items() if any(a.scope == THREAD for _, a in uses)]

    def common(self, buffer: Buffer) -> list[For]:
        """The loops around all uses of a buffer, from outside."""
        loops = [p.loops for p, _ in self.uses[buffer]]
        together = takewhile(
            lambda level: all(f.var is level[0].var for f in level), zip(*loops, strict=False)
        )
        shared = [level[0] for level in together]
        return list(takewhile(lambda f: f.kind is not ForKind.VECTOR, shared))

    def shape(self, buffer: Buffer) -> list[Dim]:
        """What one iteration of these loops touches of a shared buffer, by all threads."""
        if buffer not in self._shapes:
            fixed = [f for f in self.common(buffer) if f.thread is None or "block" in f.thread]
            uses = self.uses[buffer]
            self._shapes[buffer] = [_extent(d, n, uses, fixed) for d, n in enumerate(buffer.shape)]
        return self._shapes[buffer]

    def strides(self, buffer: Buffer) -> list[Dim]:
        """Of a buffer in shared memory as it has shrunk, of others as they are."""
        if any(a.scope == "shared" for _, a in self.uses[buffer]):
            return strides_of(self.shape(buffer), buffer)
        return strides_of(buffer.shape, buffer)

    def bytes(self, buffer: Buffer) -> Dim:
        """The bytes of a shared buffer in a block, in units of 16."""
        shape, strides = self.shape(buffer), self.strides(buffer)
        last: Dim = 1
        for n, step in zip(shape, strides, strict=True):
            last = last + (n - 1) * step
        return ceildiv(last * dtypes.nbytes(buffer.dtype), 16) * 16

    def elements(self, buffer: Buffer) -> Dim:
        """The elements of a buffer that a thread holds at once."""
        around = {f.var for f in self.common(buffer)}
        size: Dim = 1
        for phase, a in self.uses[buffer]:
            if phase.collective:
                continue
            extents = [
                f.extent
                for f in phase.loops
                if f.kind is not ForKind.THREAD and f.var not in around and f.var in a.moving
            ]
            size = most(size, product(extents))
        return least(size, product(buffer.shape))


def _extent(
    dim: int, whole: Dim, uses: Sequence[tuple[Phase, Access]], fixed: Sequence[For]
) -> Dim:
    low: Dim | None = None
    high: Dim = 0
    names = {f.var for f in fixed}
    for phase, a in uses:
        loops = {f.var: f.extent for f in phase.loops if f.var not in names}
        reach = span(at_zero(a.indices[dim], fixed), loops)
        if reach is None:
            return whole
        low = reach[0] if low is None else least(low, reach[0])
        high = most(high, reach[1])
    assert low is not None, "a buffer has uses"
    return least(high - low + 1, whole)


Floats = npt.NDArray[np.float64]


class Dims:
    """Dimensions that are evaluated together: a number of each row for each of them."""

    def __init__(self, bounds: Mapping[Var, tuple[int, int]]) -> None:
        self._bounds = bounds
        self._places: dict[Dim, int] = {}
        self._exprs: list[Dim] = []
        self._columns: Columns | None = None
        self._values: list[Floats] = []

    def need(self, dim: Dim) -> None:
        """Have a dimension evaluated."""
        if not isinstance(dim, int) and dim not in self._places:
            self._places[dim] = len(self._exprs)
            self._exprs.append(dim)

    def evaluate(self, rows: Ints) -> None:
        """Evaluate all for these rows, which calls refer to from then on."""
        if self._columns is None:
            self._columns = Columns(self._exprs, self._bounds)
        self._values = list(self._columns(rows).astype(np.float64).T)

    def __call__(self, dim: Dim) -> Floats:
        if isinstance(dim, int):
            return np.asarray(float(dim))
        return self._values[self._places[dim]]

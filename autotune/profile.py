"""What a scheduled program does, as columns of integers: loops, accesses and their strides.

One function reads a program, symbolic or concrete, into dimensions (`Dim`). For a sketch they are
expressions over its decisions, which `columns` evaluates for a whole matrix of candidates; for a
concrete program they are the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .. import dtypes
from ..schedule.blocks import expr_key
from ..schedule.find import blocks_in, find_path
from ..tir.evaluate import compile_columns
from ..tir.ir import (
    Binary,
    Block,
    Buffer,
    Call,
    Dim,
    Expr,
    For,
    ForKind,
    Func,
    Load,
    Select,
    Store,
    Var,
)
from ..tir.linear import linear
from ..tir.simplify import Simplifier
from ..tir.visit import substitute, walk
from .structure import EXPENSIVE

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Access:
    """A buffer access. `coefficients[d][l]` is what loop `l` adds to index `d` in an iteration.

    `blurred[d]` are the loops that it depends on in another way (the quotient of a fused loop).
    """

    buffer: Buffer
    stores: bool
    sizes: tuple[Dim, ...]
    coefficients: tuple[tuple[Dim, ...], ...]
    blurred: tuple[tuple[bool, ...], ...]


@dataclass(frozen=True)
class Visit:
    """A block with the loops around it, outermost first, and what one visit of it computes."""

    name: str
    extents: tuple[Dim, ...]
    kinds: tuple[ForKind, ...]
    reduces: tuple[bool, ...]
    accesses: tuple[Access, ...]
    operations: int
    expensive: int
    accumulates: bool
    dtype: str


@dataclass(frozen=True)
class Profile:
    """The visits of a program and the columns that `values` computes for rows of decisions."""

    visits: tuple[Visit, ...]
    dims: tuple[Dim, ...]
    compute: Callable[[Ints], Ints] | None

    def values(self, rows: Ints) -> dict[int, Ints | int]:
        """The value of each dimension for each row, by the identity of the dimension."""
        found: dict[int, Ints | int] = {}
        if self.compute is not None:
            matrix = self.compute(rows)
            for n, dim in enumerate(self.dims):
                found[id(dim)] = matrix[:, n]
        return found


def profile(func: Func, variables: Sequence[Var] = (), bounds: object = None) -> Profile:
    """Read a scheduled program; `variables` are its decisions and `bounds` their ranges."""
    ranges: dict[Var, tuple[Dim, Dim]] = dict(bounds or {})  # type: ignore[call-overload]
    visits = tuple(_visit(func, b, ranges) for b in blocks_in(func.body))
    dims: dict[int, Dim] = {}
    for v in visits:
        for dim in _dims_of(v):
            if not isinstance(dim, int):
                dims[id(dim)] = dim
    ordered = tuple(dims.values())
    compute = compile_columns(ordered, variables) if ordered else None
    return Profile(visits, ordered, compute)  # type: ignore[arg-type]


def _dims_of(visit: Visit) -> list[Dim]:
    found = list(visit.extents)
    for a in visit.accesses:
        found += a.sizes
        for row in a.coefficients:
            found += row
    return found


def _visit(func: Func, block: Block, outer: dict[Var, tuple[Dim, Dim]]) -> Visit:
    path = find_path(func.body, block.label)
    assert path is not None
    loops = [s for s in path if type(s) is For]
    ranges = dict(outer)
    for loop in loops:
        ranges[loop.var] = (0, loop.extent - 1)
    values = {i.var: i.value for i in block.iters}
    reduce: set[Var] = set()
    for i in block.iters:
        if i.kind.value == "reduce":
            reduce |= {n for n in walk(i.value) if type(n) is Var}
    simplifier = Simplifier(ranges)
    accesses: dict[object, Access] = {}
    operations = expensive = 0
    dtype = "float32"
    for n in walk(block.body):
        kind = type(n)
        if kind is Load or kind is Store:
            key = (n.buffer, kind is Store, *map(expr_key, n.indices))
            if key not in accesses:
                indices = [simplifier(substitute(e, values)) for e in n.indices]
                accesses[key] = _access(n.buffer, kind is Store, indices, loops, ranges)
            if kind is Store:
                dtype = n.buffer.dtype
        elif (kind is Binary and dtypes.info(n.dtype).kind == "float") or kind is Select:
            operations += 1
        elif kind is Call:
            expensive += n.fn in EXPENSIVE
            operations += n.fn not in EXPENSIVE
    stored = {a.buffer for a in accesses.values() if a.stores}
    accumulates = any(not a.stores and a.buffer in stored for a in accesses.values())
    return Visit(
        block.label.name,
        tuple(s.extent for s in loops),
        tuple(s.kind for s in loops),
        tuple(s.var in reduce for s in loops),
        tuple(accesses.values()),
        operations,
        expensive,
        accumulates,
        dtype,
    )


def _access(
    buffer: Buffer,
    stores: bool,
    indices: list[Expr],
    loops: list[For],
    ranges: dict[Var, tuple[Dim, Dim]],
) -> Access:
    found = [_coefficients(e, loops, ranges) for e in indices]
    rows = tuple(row for row, _ in found)
    blurred = tuple(tuple(unclear) for _, unclear in found)
    return Access(buffer, stores, buffer.shape, rows, blurred)


def _coefficients(
    e: Expr, loops: list[For], ranges: dict[Var, tuple[Dim, Dim]]
) -> tuple[tuple[Dim, ...], list[bool]]:
    """What each loop adds to an index, and which loops it depends on in another way."""
    used = {n for n in walk(e) if type(n) is Var}
    candidates = [s.var for s in loops if s.var in used]
    while candidates:
        found = linear(e, candidates, ranges)
        if found is not None:
            clear = set(candidates)
            row = tuple(found.coefficients.get(s.var, 0) for s in loops)
            return row, [s.var in used and s.var not in clear for s in loops]
        candidates = candidates[1:]
    return tuple(0 for _ in loops), [s.var in used for s in loops]


@dataclass(frozen=True)
class Numbers:
    """The numbers of a visit for a matrix of candidates: one column per loop."""

    visit: Visit
    extents: list[Floats]
    rows: int

    def product(self, which: Callable[[int], bool]) -> Floats:
        """The product of the extents of the loops with the numbers that `which` picks."""
        total = np.ones(self.rows)
        for n, extent in enumerate(self.extents):
            if which(n):
                total = total * extent
        return total


class Evaluated:
    """A profile with its dimensions evaluated for a matrix of rows."""

    def __init__(self, source: Profile, rows: Ints) -> None:
        self.rows = len(rows)
        self._values = source.values(rows)
        self.visits = [
            Numbers(v, [self.column(e) for e in v.extents], self.rows) for v in source.visits
        ]

    def column(self, dim: Dim) -> Floats:
        """A dimension as a column of floats."""
        if isinstance(dim, int):
            return np.full(self.rows, float(dim))
        return np.asarray(self._values[id(dim)], dtype=np.float64)

    def footprint(self, numbers: Numbers, access: Access, level: int) -> tuple[Floats, Floats]:
        """Elements, and runs along the last dimension, touched while the loops from `level` sweep.

        Dimensions are taken as hulls; one that depends on a loop in an unclear way is whole.
        """
        elements = np.ones(self.rows)
        runs = np.ones(self.rows)
        last = len(access.sizes) - 1
        for d, size in enumerate(access.sizes):
            span = np.ones(self.rows)
            for n in range(level, len(numbers.extents)):
                c = access.coefficients[d][n]
                if isinstance(c, int):
                    if c != 0:
                        span = span + abs(c) * (numbers.extents[n] - 1)
                else:
                    span = span + np.abs(self.column(c)) * (numbers.extents[n] - 1)
            whole = self.column(size)
            span = whole if any(access.blurred[d][level:]) else np.minimum(span, whole)
            elements = elements * span
            if d != last:
                runs = runs * span
        return elements, runs

    def depends(self, access: Access, loop: int) -> bool:
        """Whether a loop moves the access."""
        return any(row[loop] for row in access.blurred) or any(
            _nonzero(row[loop]) for row in access.coefficients
        )

    def stride(self, access: Access, loop: int) -> Floats:
        """Elements of memory by which one iteration of a loop moves the access."""
        total = np.zeros(self.rows)
        step = np.ones(self.rows)
        for d in range(len(access.sizes) - 1, -1, -1):
            c = access.coefficients[d][loop]
            if _nonzero(c):
                total = total + self.column(c) * step
            step = step * self.column(access.sizes[d])
        return total


def _nonzero(c: Dim) -> bool:
    return not isinstance(c, int) or c != 0

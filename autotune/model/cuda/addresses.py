"""The addresses that the threads of a block access, as expressions over decisions.

What is known of an index without the data that a program runs on.

Indices may depend on elements that are read (gathers), on parameters, on floats, and on integers
of any dtype. Patterns of addresses are counted from int64 arithmetic over loops and decisions.

What rows have in common: the parts of expressions that depend on decisions alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from ....base import dtypes
from ....target.cuda import BANK_BYTES, BANKS, SECTOR_BYTES, WARP
from ....tir.bounds import variables
from ....tir.bounds import variables as variables_of
from ....tir.columns import HIGH, LOW
from ....tir.ir import (
    INDEX,
    TRUE,
    Binary,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    Load,
    Op,
    Select,
    Var,
    as_dim,
    as_expr,
    binary,
    const,
    select,
)
from ....tir.structure import key_of
from ....tir.visit import rewrite_children, substitute
from .launches import Access, Phase, is_one
from .spans import ZERO, Shapes, depends_on_data, least, place, strides_of

LETTERS = "xyz"


class Addresses:
    """The addresses of a phase. `places` are variables for the place of a thread along each axis.

    Of a vector the first two lanes and the last one, which is -1, are needed: `ends`. Of indices
    that depend on data, what is `known` counts.
    """

    def __init__(self, phase: Phase, shapes: Shapes, decisions: Collection[Var]) -> None:
        self.phase, self.shapes = phase, shapes
        self.variables = {*decisions, *(f.var for f in phase.loops)}
        self.places = {f"threadIdx.{c}": Var(f"t{c}") for c in LETTERS}
        self.ends = (0,) if phase.vector is None else (0, 1, -1)
        self._offsets: dict[int, Expr] = {}
        self._of_threads: dict[int, list[Expr]] = {}
        self._moved: dict[int, list[Dim]] = {}

    def at(self, e: Expr, lane: int = 0) -> Expr:
        """An expression of a thread where the loops that it runs itself, and blocks, are at 0."""
        values: dict[Var, Expr] = {}
        for f in self.phase.loops:
            if f.thread in self.places:
                values[f.var] = self.places[f.thread]
            elif f is self.phase.vector and lane:
                values[f.var] = const(1) if lane == 1 else as_expr(f.extent - 1)
            else:
                values[f.var] = ZERO
        return substitute(e, values)

    def of_threads(self, a: Access) -> list[Expr]:
        """The elements that threads access, counted from the start of the buffer, by `ends`."""
        elements = self._of_threads.get(id(a))
        if elements is None:
            elements = [self.at(self._offset(a), lane) for lane in self.ends]
            self._of_threads[id(a)] = elements
        return elements

    def moved(self, a: Access) -> list[Dim]:
        """Of each loop that moves an access of the first thread: its extent, and by how many
        elements it does so in the second iteration, in one in the middle and in the last one."""
        steps = self._moved.get(id(a))
        if steps is None:
            steps = self._moved[id(a)] = self._steps(self._offset(a))
        return steps

    def _offset(self, a: Access) -> Expr:
        if id(a) not in self._offsets:
            strides = self.shapes.strides(a.buffer)
            indices = [known(i, self.variables) for i in a.indices]
            self._offsets[id(a)] = as_expr(place(a.buffer, indices, strides))
        return self._offsets[id(a)]

    def _steps(self, offset: Expr) -> list[Dim]:
        phase = self.phase
        lanes = {f.var for f in phase.loops if f is phase.vector or f.thread in self.places}
        first = substitute(offset, dict.fromkeys(lanes, ZERO))
        used = variables(first)
        loops = [f for f in phase.loops if f.var in used and not is_one(f.extent)]
        start = substitute(first, {f.var: ZERO for f in phase.loops})
        steps: list[Dim] = []
        for f in loops:
            others: Mapping[Var, Expr] = {g.var: ZERO for g in phase.loops if g.var is not f.var}
            alone, extent = substitute(first, others), as_expr(f.extent)
            steps.append(f.extent)
            for iteration in (const(1), extent // 2, extent - 1):
                there = substitute(alone, {f.var: iteration})
                steps.append((there - start) * as_expr(least(f.extent - 1, 1)))
        return steps


def known(e: Expr, variables: AbstractSet[Var]) -> Expr:
    """An index or condition as int64 arithmetic over `variables`.

    An integer that is read counts as its place in its array: other elements have other values.
    Integers of other dtypes do not wrap around. Floats and other variables count as 0, conditions
    that are read as true.
    """
    if variables_of(e) <= variables and not depends_on_data(e):
        return e
    if dtypes.is_float(e.dtype):
        return ZERO

    def visit(n: Expr) -> Expr:
        return known(n, variables)

    match e:
        case Const(value=bool()):
            return e
        case Const(value=value):
            return const(min(max(int(value), LOW), HIGH))
        case Var():
            return e if e in variables else ZERO
        case Load() if dtypes.is_bool(e.dtype):
            return TRUE
        case Load(buffer=buffer):
            indices = [visit(i) for i in e.indices]
            return as_expr(place(buffer, indices, strides_of(buffer.shape, buffer)))
        case Cast(value=value):
            inner = visit(value)
            if dtypes.is_bool(e.dtype) == dtypes.is_bool(inner.dtype):
                return inner
            return binary(Op.NE, inner, ZERO) if dtypes.is_bool(e.dtype) else select(inner, 1, ZERO)
        case Binary(op=op):
            a, b = visit(e.a), visit(e.b)
            divides = op is Op.FLOORDIV or op is Op.MOD
            return a if divides and b is ZERO else binary(op, a, b)
        case Select():
            return select(visit(e.cond), visit(e.then), visit(e.other))
        case Call(fn="neg"):
            return ZERO - visit(e.args[0])
        case Call(fn="not"):
            return ~visit(e.args[0])
        case _:
            return ZERO


Ints = npt.NDArray[np.int64]
_HASH = 0x9E3779B97F4A7C15
"""An odd number whose powers differ in all bits."""


class DecidedParts:
    """Expressions in which a variable stands for each part that is free of `others`.

    `names` are these variables, and `exprs` what each of them stands for. Sums and products are
    ordered so that these parts are large: int64 arithmetic wraps around, and is the same in any
    order.
    """

    def __init__(self, others: Collection[Var]) -> None:
        self._others = frozenset(others)
        self._known: dict[object, Var] = {}
        self._decided: dict[Expr, bool] = {}
        self.names: list[Var] = []
        self.exprs: list[Expr] = []

    def __call__(self, dim: Dim) -> Dim:
        return dim if isinstance(dim, int) else as_dim(self._visit(dim))

    def _visit(self, e: Expr) -> Expr:
        if type(e) is Const or e in self._others:
            return e
        if e.dtype == INDEX and self._is_decided(e):
            return self._part(e)
        if type(e) is Binary and e.dtype == INDEX and e.op in (Op.ADD, Op.MUL):
            terms = _terms(e, e.op)
            decided = [t for t in terms if self._is_decided(t)]
            operands = [self._visit(t) for t in terms if not self._is_decided(t)]
            if decided:
                operands.append(self._visit(reduce(lambda a, b: binary(e.op, a, b), decided)))
            return reduce(lambda a, b: binary(e.op, a, b), operands)
        return rewrite_children(e, self._visit)

    def _is_decided(self, e: Expr) -> bool:
        decided = self._decided.get(e)
        if decided is None:
            if type(e) is Binary:
                decided = self._is_decided(e.a) and self._is_decided(e.b)
            else:
                decided = variables(e).isdisjoint(self._others)
            self._decided[e] = decided
        return decided

    def _part(self, e: Expr) -> Expr:
        key = key_of(e)
        part = self._known.get(key)
        if part is None:
            part = self._known[key] = Var(f"d{len(self.names)}")
            self.names.append(part)
            self.exprs.append(e)
        return part


def _terms(e: Expr, op: Op) -> list[Expr]:
    """The operands of a sum, or of a product."""
    if type(e) is Binary and e.op is op and e.dtype == INDEX:
        return [*_terms(e.a, op), *_terms(e.b, op)]
    return [e]


def distinct_rows(rows: Ints) -> tuple[Ints, Ints]:
    """The places of the different rows of a matrix, and the number of each row among these."""
    with np.errstate(over="ignore"):
        key = np.zeros(len(rows), dtype=np.uint64)
        for column in rows.T:
            key = (key ^ column.astype(np.uint64)) * np.uint64(_HASH)
            key ^= key >> np.uint64(29)
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    place = place.ravel()
    if not np.array_equal(rows[first[place]], rows):  # two rows have one key
        _, first, place = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, place.ravel()


# What requests of warps cost: sectors of global memory, wavefronts of shared memory.
#
# The rules are those of `codegen/cuda/emulate_memory.py`, for the threads of one block of many
# candidates at once.

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Threads:
    """The threads of blocks, one block after the other.

    For each thread the number of its block and that of its warp among all, its lane, and its place
    along x, y and z. For each warp its block. Of each block the share of its warps that are here.
    """

    block: Ints
    warp: Ints
    lane: Ints
    x: Ints
    y: Ints
    z: Ints
    block_of_warp: Ints
    blocks: int
    share_of_warps: Floats

    @staticmethod
    def of(x: Ints, y: Ints, z: Ints, most_warps: int | None = None) -> Threads:
        """The threads of blocks of these extents, of the first warps of each block."""
        threads = x * y * z
        all_warps = -(-threads // WARP)
        if most_warps is not None:
            threads = np.minimum(threads, most_warps * WARP)
        warps = -(-threads // WARP)
        count = len(threads)
        block = np.repeat(np.arange(count), threads)
        number = np.arange(len(block)) - np.repeat(np.cumsum(threads) - threads, threads)
        warp = np.repeat(np.cumsum(warps) - warps, threads) + number // WARP
        rest, place_x = np.divmod(number, x[block])
        place_z, place_y = np.divmod(rest, y[block])
        return Threads(
            block,
            warp,
            number % WARP,
            place_x,
            place_y,
            place_z,
            np.repeat(np.arange(count), warps),
            count,
            warps / all_warps,
        )

    def where(self, chosen: Mask) -> Threads:
        """Those of them that are chosen."""
        return Threads(
            self.block[chosen],
            self.warp[chosen],
            self.lane[chosen],
            self.x[chosen],
            self.y[chosen],
            self.z[chosen],
            self.block_of_warp,
            self.blocks,
            self.share_of_warps,
        )

    def count(self) -> Ints:
        """The threads of each block."""
        return np.bincount(self.block, minlength=self.blocks)

    def requests(self) -> Ints:
        """The warps of each block that have one of these threads."""
        used = np.zeros(len(self.block_of_warp), dtype=np.bool_)
        used[self.warp] = True
        return np.bincount(self.block_of_warp[used], minlength=self.blocks)

    def sectors(self, elements: Ints, element_bytes: int) -> Ints:
        """The sectors of a request of each warp for these elements, by blocks."""
        distinct = _distinct(self.warp, elements // (SECTOR_BYTES // element_bytes))
        return np.bincount(self.block_of_warp[distinct[0]], minlength=self.blocks)

    def wavefronts(self, elements: Ints, element_bytes: int, access_bytes: Ints) -> Ints:
        """The wavefronts of accesses to shared memory, each of so many bytes, by blocks."""
        total = np.zeros(self.blocks, dtype=np.int64)
        words = elements * element_bytes // BANK_BYTES
        parts = np.maximum(access_bytes // BANK_BYTES, 1)
        for n in np.unique(parts).tolist():
            chosen = parts == n
            group = (self.warp[chosen] * WARP + self.lane[chosen]) // (WARP // n)
            every = words[chosen][:, None] + np.arange(n)
            groups = np.broadcast_to(group[:, None], every.shape)
            where, word = _distinct(groups.ravel(), every.ravel())
            first = int(where[0]) if len(where) else 0
            size = (int(where[-1]) - first + 1) * BANKS if len(where) else 0
            used = np.bincount((where - first) * BANKS + word % BANKS, minlength=size)
            fronts = used.reshape(-1, BANKS).max(axis=1)
            warps = (np.arange(len(fronts)) + first) // n
            total += np.bincount(
                self.block_of_warp[warps], weights=fronts, minlength=self.blocks
            ).astype(np.int64)
        return total


def _distinct(groups: Ints, numbers: Ints) -> tuple[Ints, Ints]:
    """The different numbers of each group, with their groups, in order of these."""
    if len(numbers) == 0:
        return groups, numbers
    low = int(numbers.min())
    size = int(numbers.max()) - low + 1
    keys = groups * size + (numbers - low)
    if int(groups.max() + 1) * size < 1 << 31:  # half as wide is sorted in half the time
        keys = keys.astype(np.int32)
    keys.sort()
    new = np.empty(len(keys), dtype=np.bool_)
    new[0] = True
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    group, number = np.divmod(keys[new].astype(np.int64), size)
    return group, number + low

"""Split buffers in registers: each element, or vector of elements, becomes a buffer of its own.

Transpose squares of vectors by networks of shuffles between pairs of vectors.

Step k swaps the off-diagonal blocks of each square of 2 by 2 blocks of 2^k elements. A square of n
vectors of n lanes takes log2(n) shuffles per vector instead of n: the recursive transposition of
Eklundh, "A Fast Computer Method for Matrix Transposing", IEEE Transactions on Computers C-21, 1972.
Columns share most of their shuffles. Where there are fewer vectors than lanes, they form squares
side by side, which are transposed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from ...base import dtypes
from ...base.errors import BuildError
from ...tir.ir import (
    Alloc,
    Binary,
    Broadcast,
    Buffer,
    Const,
    Expr,
    Func,
    Load,
    Ramp,
    Shuffle,
    Stmt,
    Store,
    Var,
    const,
    shuffle,
)
from ...tir.lanes import spaced
from ...tir.visit import map_tuple, rewrite_children, walk, with_func_body
from .rewrite import adjacent, allocated, statements

SCOPE = "register"
Elements: TypeAlias = range | tuple[int, ...]
Home: TypeAlias = dict[int, tuple[Elements, int]]
"""For each element the vector in which it is stored, and its lane there."""


def registers(func: Func) -> Func:
    """Split each buffer of scope `register` into one buffer per value.

    R[ramp(0, 1, 16)] = ...; R[ramp(16, 1, 16)] = ...   ->   R_0[...] = ...; R_16[...] = ...

    A value is as wide as the widest vector that is accessed; narrower accesses are parts of it.
    Columns of several vectors may be read too, or all of them lane by lane; those are shuffled
    together. Code generation turns such buffers into values. Raises `BuildError` if an index is not
    constant.
    """
    if not any(type(s) is Alloc and s.buffer.scope == SCOPE for s in statements(func.body)):
        return func
    slots = _slots(func)
    done: dict[Expr, Expr] = {}

    def expr(e: Any) -> Any:
        kind = type(e)
        if kind is Const or kind is Var:
            return e
        found = done.get(e)
        if found is None:
            if kind is Load and e.buffer in slots:
                elements = _elements(e)
                found = slots[e.buffer].across.get(elements)
                if found is None:
                    slot, where = slots[e.buffer].place(e.buffer, elements)
                    found = Load(slot, where, e.dtype, None if e.mask is None else expr(e.mask))
            elif kind is Binary:
                x, y = expr(e.a), expr(e.b)
                found = e if x is e.a and y is e.b else Binary(e.op, x, y, e.dtype)
            else:
                found = rewrite_children(e, lambda c: expr(c) if isinstance(c, Expr) else c)
            done[e] = found
        return found

    def stmt(s: Stmt) -> Stmt:
        if type(s) is Store:
            return _store(s, slots, expr)
        if type(s) is Alloc and s.buffer in slots:
            return allocated(slots[s.buffer].buffers[::-1], stmt(s.body))
        return rewrite_children(s, lambda c: stmt(c) if isinstance(c, Stmt) else expr(c))

    return with_func_body(func, stmt(func.body))


def _store(s: Store, slots: dict[Buffer, _Slots], expr: Callable[[Any], Any]) -> Store:
    value = expr(s.value)
    mask = None if s.mask is None else expr(s.mask)
    if s.buffer in slots:
        slot, where = slots[s.buffer].place(s.buffer, _elements(s))
        return Store(slot, where, value, mask)
    indices = map_tuple(s.indices, expr)
    if value is s.value and mask is s.mask and indices is s.indices:
        return s
    return Store(s.buffer, indices, value, mask)


class _Slots(NamedTuple):
    """The values of a buffer, and where each element is: in which of them, and in which lane."""

    buffers: tuple[Buffer, ...]
    lanes: dict[int, tuple[Buffer, int]]
    places: dict[Elements, tuple[Buffer, tuple[Expr, ...]]]
    across: dict[Elements, Expr]

    def place(self, buffer: Buffer, elements: Elements) -> tuple[Buffer, tuple[Expr, ...]]:
        """The value that holds `elements` one after the other, and the index of them in it."""
        known = self.places.get(elements)
        if known is None:
            known = self.places[elements] = self._place(buffer, elements)
        return known

    def _place(self, buffer: Buffer, elements: Elements) -> tuple[Buffer, tuple[Expr, ...]]:
        places = [self.lanes[e] for e in elements]
        slot, first = places[0]
        if places != [(slot, first + k) for k in range(len(places))]:
            raise BuildError(
                "{0} is held in registers, and the elements {1} are accessed as one vector, others "
                "of their vectors in another order",
                buffer.name,
                tuple(elements),
                hint="vectorize all loops over it along one dimension",
            )
        return slot, _index(first, len(elements))


def _slots(func: Func) -> dict[Buffer, _Slots]:
    accessed: dict[Buffer, dict[Elements, bool]] = {}
    seen: set[Expr] = set()

    def see(n: Any) -> Any:
        kind = type(n)
        if kind is Const or kind is Var or kind is Buffer:
            return n
        if kind is Alloc and n.buffer.scope == SCOPE:
            accessed.setdefault(n.buffer, {})
        elif (kind is Load or kind is Store) and n.buffer.scope == SCOPE:
            known, elements = accessed.setdefault(n.buffer, {}), _elements(n)
            known[elements] = known.get(elements, False) or kind is Store
        if kind is Binary:
            see(n.a)
            see(n.b)
        elif n not in seen:
            if isinstance(n, Expr):
                seen.add(n)
            rewrite_children(n, see)
        return n

    see(func.body)
    return {buffer: _cut(buffer, found) for buffer, found in accessed.items()}


def _cut(buffer: Buffer, accesses: dict[Elements, bool]) -> _Slots:
    """Group elements that are accessed together, except for reads across vectors."""
    home = _homes(accesses)
    stored = {e for elements, stores in accesses.items() if stores for e in elements}
    loads = [e for e, stores in accesses.items() if not stores and len(e) > 1]
    # What is never stored is masked off where it is read, and may be anything.
    unset = {e for e in loads if stored.isdisjoint(e)}
    loads = [e for e in loads if e not in unset]
    columns = {e: column for e in loads if (column := _column(e, home)) is not None}
    others = [e for e in loads if e not in columns]
    mixed = {e: order for e in others if (order := _interleaved(e, home)) is not None}
    group: dict[int, list[int]] = {}
    across = {*columns, *mixed, *unset}
    for elements in (a for a in accesses if a not in across):
        merged = {id(group[e]): group[e] for e in elements if e in group}
        if len(merged) == 1 and all(e in group for e in elements):
            continue
        together = sorted({*elements, *(e for g in merged.values() for e in g)})
        for e in together:
            group[e] = together
    buffers: list[Buffer] = []
    lanes: dict[int, tuple[Buffer, int]] = {}
    for together in {id(g): g for g in group.values()}.values():
        name = f"{buffer.name}_{together[0]}"
        slot = replace(buffer, name=name, shape=(len(together),))
        buffers.append(slot)
        for lane, e in enumerate(together):
            lanes[e] = slot, lane
    zero = const(0, buffer.dtype)
    zeros = {e: Broadcast(zero, len(e), dtypes.vector(buffer.dtype, len(e))) for e in unset}
    slots = _Slots(tuple(buffers), lanes, {}, dict(zeros))

    def vectors(rows: tuple[Elements, ...]) -> list[Expr]:
        dtype = dtypes.vector(buffer.dtype, len(rows[0]))
        return [Load(*slots.place(buffer, row), dtype) for row in rows]

    known: dict[tuple[Elements, ...], Columns] = {}
    for elements, (rows, number) in columns.items():
        if rows not in known:
            known[rows] = Columns(vectors(rows), len(rows[0]))
        slots.across[elements] = known[rows][number]
    for elements, (rows, taken) in mixed.items():
        slots.across[elements] = interleaved(vectors(rows), taken)
    return slots


def shuffles(elements: Elements, home: Home, dtype: str) -> float:
    """Those that a read of `elements` takes where it is across the vectors of `home`.

    What columns of the same vectors have in common counts for each of them in part.
    """
    column, mixed = _column(elements, home), _interleaved(elements, home)
    if column is not None:
        return _counted(len(column[0]), len(column[0][0]), None, dtype)
    return 0.0 if mixed is None else _counted(len(mixed[0]), len(mixed[0][0]), mixed[1], dtype)


@cache
def _counted(rows: int, lanes: int, taken: tuple[int, ...] | None, dtype: str) -> float:
    """Shuffles for each column of vectors, or those that interleave the lanes `taken` of them."""
    vectors = [Var("row", dtypes.vector(dtype, lanes)) for _ in range(rows)]
    if taken is not None:
        return float(_distinct([interleaved(vectors, taken)]))
    square = Columns(vectors, lanes)
    return _distinct([square[n] for n in range(lanes)]) / lanes


def _distinct(values: Sequence[Expr]) -> int:
    return len({n for value in values for n in walk(value) if type(n) is Shuffle})


def _homes(accesses: dict[Elements, bool]) -> Home:
    """The places of elements, if they are stored as whole vectors that do not overlap."""
    home: Home = {}
    for elements, stores in accesses.items():
        if not stores:
            continue
        if any(e in home for e in elements):
            return {}
        home.update({e: (elements, lane) for lane, e in enumerate(elements)})
    return home


def _column(elements: Elements, home: Home) -> tuple[tuple[Elements, ...], int] | None:
    """The vectors, and the one lane of all of them, from which `elements` are taken.

    What is never stored is masked off, and may be anything.
    """
    places = [home[e] for e in elements if e in home]
    rows, lanes = [row for row, _ in places], {lane for _, lane in places}
    widths = {len(row) for row in rows}
    if len(lanes) != 1 or len(widths) != 1 or len(set(rows)) < len(rows):
        return None
    if widths == {1}:
        return None
    return tuple(home[e][0] if e in home else rows[0] for e in elements), lanes.pop()


def _interleaved(
    elements: Elements, home: Home
) -> tuple[tuple[Elements, ...], tuple[int, ...]] | None:
    """The vectors that `elements` alternate between, and the lane of each element."""
    if any(e not in home for e in elements):
        return None
    places = [home[e] for e in elements]
    rows = tuple(dict.fromkeys(row for row, _ in places))
    count, widths = len(rows), {len(row) for row in rows}
    lanes = tuple(lane for _, lane in places)
    if count < 2 or len(widths) != 1 or 2 < count == len(elements):
        return None
    each, rest = divmod(len(elements), count)
    even = _is_power(count) and each > 1 and not rest and len(set(lanes[:count])) == 1
    runs = all(
        place == (rows[k % count], lanes[k % count] + k // count) for k, place in enumerate(places)
    )
    return (rows, lanes) if runs and (even or widths == {len(elements)}) else None


def _is_power(n: int) -> bool:
    return n & (n - 1) == 0


@cache
def _index(first: int, count: int) -> tuple[Expr, ...]:
    return (adjacent(const(first), count),)


def _elements(n: Load | Store) -> Elements:
    match n.indices[0]:
        case Const(value=start):
            return range(int(start), int(start) + 1)
        case Ramp(base=Const(value=start), stride=Const(value=step), lanes=lanes):
            return range(int(start), int(start) + int(step) * lanes, int(step))
        case index:
            known = _constants(index)
            if known is not None:
                return known
            raise BuildError(
                "{0} is held in registers, and its index {1} is not a constant",
                n.buffer.name,
                index,
                hint="unroll or vectorize the loops in the index, or use another scope",
            )


def _constants(index: Expr) -> tuple[int, ...] | None:
    """The value of each lane, where all of them are known."""
    found = spaced(index)
    if found is None or type(found[0]) is not Const:
        return None
    first = int(found[0].value)
    return tuple([first + step for step in found[1]])


SECTION_BITS = 128
"""Of a vector, within which bytes move by one instruction (Intel's `vpshufb`)."""


class Columns:
    """The columns of vectors `rows` of `lanes` lanes, padded to powers of two."""

    def __init__(self, rows: Sequence[Expr], lanes: int) -> None:
        self._rows = len(rows)
        self._count = 1 << (len(rows) - 1).bit_length()
        self._lanes = max(self._count, 1 << (lanes - 1).bit_length())
        if self._lanes > lanes:
            order = (*range(lanes), *[0] * (self._lanes - lanes))
            rows = [shuffle(r, r, order) for r in rows]
        padded = [*rows, *[rows[-1]] * (self._count - len(rows))]
        self._known: dict[tuple[int, int], Expr] = {
            (self._count, i): r for i, r in enumerate(padded)
        }

    def __getitem__(self, number: int) -> Expr:
        square, column = divmod(number, self._count)
        found = self._mixed(1, column)
        if self._rows == self._lanes:
            return found
        first = square * self._count
        return shuffle(found, found, tuple(range(first, first + self._rows)))

    def _mixed(self, block: int, i: int) -> Expr:
        """Vector `i` once all blocks of `block` elements and more are in their places."""
        found = self._known.get((block, i))
        if found is None:
            own = i & block
            first, second = (self._mixed(2 * block, i ^ own ^ other) for other in (0, block))
            lanes = range(self._lanes)
            if own:
                order = [k + self._lanes if k & block else k + block for k in lanes]
            else:
                order = [k + self._lanes - block if k & block else k for k in lanes]
            found = self._known[block, i] = shuffle(first, second, tuple(order))
        return found


def interleaved(rows: Sequence[Expr], lanes: Sequence[int]) -> Expr:
    """Elements that alternate between `rows`: number `k` is lane `lanes[k]` of row `k % n` of `n`.

    Lane after lane of a power of two of rows (a0 b0 c0 d0 a1 b1 c1 d1 ...) is put together from
    pairs. Else there are as many elements as lanes, and each row but the first takes a shuffle.
    """
    count, found = len(rows), rows[0]
    first = range(lanes[0], lanes[0] + len(lanes) // count)
    if count & (count - 1) == 0 and list(lanes) == [lane for lane in first for _ in rows]:
        return _by_pairs(rows, first)
    for number, row in enumerate(rows[1:], 1):
        order = [lane if number == 1 else k for k, lane in enumerate(lanes)]
        order[number::count] = [len(lanes) + lane for lane in lanes[number::count]]
        found = shuffle(found, row, tuple(order))
    return found


def _by_pairs(rows: Sequence[Expr], lanes: range) -> Expr:
    """Lane after lane, those of each of a power of two of vectors.

    Bytes cross sections of a vector by many instructions, groups of four by one: four rows of a
    section each are first cut into squares, one for each section, which are then turned.
    """
    count, dtype = len(rows), rows[0].dtype
    width = dtypes.info(dtype).lanes
    if count == 2:
        a, b = rows
        return shuffle(a, b, tuple(k for i in lanes for k in (i, width + i)))
    square = count * count
    if square == len(lanes) and square * dtypes.info(dtype).bits == SECTION_BITS:
        tall = _stacked(rows)
        runs = [row * width + i for i in lanes[::count] for row in range(count)]
        squares = shuffle(tall, tall, tuple(k for i in runs for k in range(i, i + count)))
        turned = [
            first + k
            for first in range(0, count * square, square)
            for column in range(count)
            for k in range(column, square, count)
        ]
        return shuffle(squares, squares, tuple(turned))
    even, odd = (_by_pairs(rows[start::2], lanes) for start in (0, 1))
    return _by_pairs((even, odd), range(dtypes.info(even.dtype).lanes))


def _stacked(rows: Sequence[Expr]) -> Expr:
    """The vectors one after the other in one."""
    while len(rows) > 1:
        pairs = zip(rows[::2], rows[1::2], strict=True)
        order = tuple(range(2 * dtypes.info(rows[0].dtype).lanes))
        rows = [shuffle(a, b, order) for a, b in pairs]
    return rows[0]

"""Transpose squares of vectors by networks of shuffles between pairs of vectors.

Step k swaps the off-diagonal blocks of each square of 2 by 2 blocks of 2^k elements. A square of n
vectors of n lanes takes log2(n) shuffles per vector instead of n: the recursive transposition of
Eklundh, "A Fast Computer Method for Matrix Transposing", IEEE Transactions on Computers C-21, 1972.
Columns share most of their shuffles. Where there are fewer vectors than lanes, they form squares
side by side, which are transposed at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...base import dtypes
from ...tir.ir import Expr, shuffle

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

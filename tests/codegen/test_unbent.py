"""Vectors of clamped and wrapped indices at places that a tile decides when it runs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.codegen.detect import resolve
from tilewright.codegen.lower import lower
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Binary, Expr, Func, If, Load, Op, Ramp
from tilewright.tir.language import script
from tilewright.tir.visit import walk

from .machinery import SERIAL, check, check_passes

AVX2, SSE4 = "cpu -mcpu=x86-64-v3 -threads=1", "cpu -mcpu=x86-64-v2 -threads=1"
Bend = Callable[[Expr, int], Expr]

BENT: dict[str, Bend] = {
    "clamped": lambda e, n: te.maximum(te.minimum(e, n - 1), 0),
    "clamped below first": lambda e, n: te.minimum(te.maximum(e, 0), n - 1),
    "wrapped": lambda e, n: (e + n) % n,
    "backwards": lambda e, n: te.maximum(te.minimum(n - 1 - e, n - 1), 0),
    "at its ends, of a wrapped one": lambda e, n: te.minimum((e + n) % n, n - 2),
    "clamped by conditions": lambda e, n: te.where(e < 0, 0, te.where(e >= n, n - 1, e)),
    "reflected": lambda e, n: te.where(e < 0, -e, te.where(e >= n, 2 * (n - 1) - e, e)),
    "reflected by absolute values": lambda e, n: n - 1 - te.abs(n - 1 - te.abs(e)),
    "reflected by extrema": lambda e, n: te.minimum(te.maximum(e, -e), 2 * (n - 1) - e),
    "reflected as triangles": lambda e, n: (
        n - 1 - te.abs((e + 2 * (n - 1)) % (2 * (n - 1)) - n + 1)
    ),
    "reflected with the edge": lambda e, n: te.where(e < 0, -1 - e, te.minimum(e, 2 * n - 1 - e)),
    "wrapped by conditions": lambda e, n: te.where(
        (e >= 0) & (e < n), e, te.where(e < 0, e + n, e - n)
    ),
    "one element apart": lambda e, n: te.where(e == 7, 6, te.clip(e, 0, n - 1)),
}


def tiled(bend: Bend, columns: int, tile: int, shifts: tuple[int, ...]) -> Func:
    """Sums of shifted rows, in tiles: one loop counts rows and tiles, so that no end is peeled."""
    a = te.placeholder((3, columns), "float32", name="A")
    b = te.compute(
        (3, columns),
        lambda i, j: sum((a[i, bend(j + d, columns)] for d in shifts), te.const(0.0, "float32")),
        name="B",
    )
    schedule = Schedule(te.func([a, b]))
    i, j = schedule.get_loops(schedule.get_block("B"))
    column, lanes = schedule.split(j, factors=[None, tile])
    schedule.parallel(schedule.fuse(i, column))
    schedule.vectorize(lanes)
    return schedule.func


@pytest.mark.part(12)
@pytest.mark.parametrize("target", [SERIAL, AVX2, SSE4])
@pytest.mark.parametrize("bend", BENT.values(), ids=BENT)
@pytest.mark.parametrize(
    ("columns", "tile", "shifts"), [(61, 16, (-2, 0, 3)), (40, 8, (5,)), (16, 16, (1,))]
)
def test_tiles_of_rows(
    bend: Bend, columns: int, tile: int, shifts: tuple[int, ...], target: str
) -> None:
    func = tiled(bend, columns, tile, shifts)
    check(func, target=target)
    check_passes(func, target)


@pytest.mark.parametrize("name", sorted(BENT.keys() - {"backwards"}))
def test_rows_are_loaded_whole_where_no_lane_is_bent(name: str) -> None:
    lowered = lower(tiled(BENT[name], 160, 16, (-2, 0, 3)), resolve(AVX2))
    (choice, *_) = [n for n in walk(lowered.body) if type(n) is If and n.other is not None]
    loads = [n for n in walk(choice.then) if type(n) is Load]
    assert loads
    assert all(type(n.indices[0]) is Ramp for n in loads)
    bent = (Op.MIN, Op.MAX)
    assert not any(type(n) is Binary and n.op in bent for n in walk(choice.then))


def test_one_condition_is_for_all_shifts() -> None:
    """The least and the greatest of them: the others follow."""
    lowered = lower(tiled(BENT["clamped"], 160, 8, (-2, -1, 0, 1, 2)), resolve(AVX2))
    (choice, *_) = [n for n in walk(lowered.body) if type(n) is If and n.other is not None]
    orders = [n for n in walk(choice.cond) if type(n) is Binary and n.op not in (Op.AND, Op.MOD)]
    assert sum(n.op in (Op.LT, Op.LE, Op.GT, Op.GE) for n in orders) == 2


@pytest.mark.parametrize(
    "cond",
    [
        *("n < m", "n >= m", "n // 3 < m", "n + k < m", "n == m", "n > m", "n <= m", "n != m"),
        *("T.abs(n) < m", "T.minimum(n, m) < j", "T.maximum(n - j, m) < 0", "T.abs(m + j) > n"),
    ],
)
def test_conditions_whose_difference_may_wrap_around_stay(cond: str) -> None:
    """Of numbers of each call nothing is known: neither side is the usual one."""
    func = script(
        f"""
def f(n: T.int64, m: T.int64, A: T.Buffer((144,), "float32"), B: T.Buffer((144,), "float32")):
    for k in T.parallel(18):
        for j in T.vectorized(8):
            B[k * 8 + j] = A[k // 6 * 48 + T.select(
                {cond}, T.maximum(k % 6 * 8 + j - 3, 0), T.minimum(k % 6 * 8 + j + 2, 47)
            )]
"""
    )
    a = np.arange(144, dtype=np.float32)
    for n, m in [(0, 0), (0, 1), (1, 0), (2**63 - 1, -(2**63)), (-(2**63), 2**63 - 1)]:
        check(func, [n, m, a, np.zeros_like(a)], target=AVX2)

"""Regions cover every access, lie within the buffer, and are tight where that is possible."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings

from tilewright.tir.equality import structural_equal
from tilewright.tir.ir import (
    Alloc,
    Block,
    Buffer,
    Dim,
    Expr,
    For,
    If,
    Iter,
    IterKind,
    Label,
    Let,
    Op,
    Range,
    Region,
    Var,
    as_expr,
    binary,
    cast,
    ceildiv,
    const,
    select,
    seq,
    store,
)
from tilewright.tir.regions import access_regions, hull, whole

from ..long import examples
from .expressions import SEEDS, Maker, value

I, J, K, O, T = (Var(v) for v in "ijkot")  # noqa: E741
A, B = Buffer("A", (64, 64), "float32"), Buffer("B", (62, 62), "float32")


def is_region(region: Region, buffer: Buffer, *ranges: tuple[Expr | int, Dim]) -> bool:
    return region.buffer is buffer and all(
        structural_equal(r.min, as_expr(low))
        and structural_equal(as_expr(r.extent), as_expr(extent))
        for r, (low, extent) in zip(region.ranges, ranges, strict=True)
    )


def test_window_of_a_tile() -> None:
    y, x, dy, dx = (Var(v) for v in ("y", "x", "dy", "dx"))
    row = O * 8 + y
    inner = store(B, (row, x), A[row + dy, x + dx])
    body = For(y, 8, For(x, 62, For(dy, 3, For(dx, 3, inner))))
    (read,), (write,) = access_regions(body, ranges={O: (0, 6)})
    assert is_region(read, A, (O * 8, 10), (0, 64))
    assert is_region(write, B, (O * 8, 8), (0, 62))


def test_what_may_lie_outside_is_moved_inside() -> None:
    body = For(I, 8, store(B, (O * 8 + I, 0), A[O * 8 + I - 1, I]))
    (read,), (write,) = access_regions(body, ranges={O: (0, 7)})
    assert is_region(read, A, (binary(Op.MAX, O * 8 - 1, 0), 8), (0, 8))
    assert is_region(write, B, (binary(Op.MIN, O * 8, 54), 8), (0, 1))


def test_loops_are_swept_and_other_variables_stay() -> None:
    body = store(B, (I, J), A[I, J] * A[J, I])
    (read,), (write,) = access_regions(For(J, 62, body), {I: (0, 61)})
    assert is_region(write, B, (I, 1), (0, 62))
    assert is_region(read, A, (0, 62), (0, 62))
    (read,), _ = access_regions(store(B, (I, J), A[I, J + 1]), {I: (0, 61), J: (0, 61)})
    assert is_region(read, A, (I, 1), (J + 1, 1))


def test_buffers_in_order_and_merged() -> None:
    body = For(I, 8, seq(store(B, (I, 0), A[I, 5]), store(B, (I + 8, 1), B[I, 3] + A[I + 1, 0])))
    reads, writes = access_regions(body)
    assert [r.buffer for r in reads] == [A, B]
    assert is_region(reads[0], A, (0, 9), (0, 6))
    assert is_region(writes[0], B, (0, 16), (0, 2))


def test_symbolic_extents() -> None:
    ranges: dict[Var, tuple[Dim, Dim]] = {T: (1, 62), O: (0, ceildiv(62, T) - 1)}
    body = For(I, T, store(B, (binary(Op.MIN, O * T + I, 61), 0), A[O + I, I // 2]))
    (read,), (write,) = access_regions(body, ranges=ranges)
    assert structural_equal(as_expr(write.ranges[0].extent), T)
    assert structural_equal(as_expr(read.ranges[0].extent), T)
    assert structural_equal(as_expr(read.ranges[1].extent), (T - 1) // 2 + 1)


def test_blocks_count_with_their_declared_regions() -> None:
    v = Var("v")
    block = Block(
        Label("copy"),
        (Iter(v, 62, IterKind.SPATIAL, O * 4 + I),),
        (Region(A, (Range(v * 1, 2), Range(const(0), 5))),),
        (Region(B, (Range(v * 1, 1), Range(const(3), 1))),),
        store(B, (v, 3), A[v, 0]),
        predicate=O * 4 + I < 62,
    )
    (read,), (write,) = access_regions(For(I, 4, block), ranges={O: (0, 14)})
    assert is_region(read, A, (O * 4, 5), (0, 5))
    assert is_region(write, B, (O * 4, 4), (3, 1))


def test_inner_names_and_buffers() -> None:
    inner, base = Buffer("inner", (8,), "float32", scope="register"), Var("base")
    body = Alloc(
        inner,
        Let(base, O * 4, For(I, 4, If(base < 9, store(inner, (I,), A[base + I, 0])))),
    )
    reads, writes = access_regions(body, ranges={O: (0, 3)})
    assert writes == ()
    assert is_region(reads[0], A, (O * 4, 4), (0, 1))


def test_gathered_indices() -> None:
    index = Buffer("index", (16,), "int32", value_range=(2, 40))
    wild = Buffer("wild", (16,), "int32")
    for table, expected in ((index, (2, 38)), (wild, (0, 64))):
        body = For(I, 16, store(B, (I, 0), A[cast("int64", table[I]), 0]))
        reads, _ = access_regions(body)
        assert is_region(next(r for r in reads if r.buffer is A), A, expected, (0, 1))
    assert hull(cast("int64", wild[I]) * 4, {I: 16}) is not None
    assert hull(Buffer("w", (4,), "int64")[I], {I: 4}) is None


def test_a_sweep_over_nothing_covers_nothing() -> None:
    for stride in (1, 2):
        found = hull(O + I * stride, {I: 0}, {O: (0, 15)})
        assert found is not None
        assert found.extent == 0


def test_a_buffer_has_one_region() -> None:
    near, far = A[O * 8 + I, 0], A[O * 8 + 6 + I, 4]
    (read,), _ = access_regions(For(I, 4, store(B, (I, 0), near + far)), ranges={O: (0, 6)})
    assert is_region(read, A, (O * 8, 10), (0, 5))


def test_whole() -> None:
    assert is_region(whole(A), A, (0, 64), (0, 64))


HULLS: list[tuple[Expr, Expr | int, Dim]] = [
    (O * 8 + I, O * 8, 8),
    (O - I, O - 7, 8),
    (O * 8 + I * 2, O * 8, 15),
    ((O * 8 + I) // 4, O * 2, 2),
    ((O * 16 + I) % 16, 0, 8),
    ((O + I) // 2, O // 2, 5),
    ((O + I) % 5, 0, 5),
    (select(I < 3, O, O + 1), 0, 17),
    (binary(Op.MIN, O + I, 12), binary(Op.MIN, O, 12), 8),
]


@pytest.mark.parametrize(("e", "low", "extent"), HULLS, ids=[str(h[0]) for h in HULLS])
def test_hulls(e: Expr, low: Expr | int, extent: Dim) -> None:
    found = hull(e, {I: 8}, {O: (0, 15)})
    assert found is not None
    assert structural_equal(found.min, as_expr(low))
    for o, i in itertools.product(range(16), range(8)):
        row = {O: o, I: i}
        start = value(found.min, row)
        assert start <= value(e, row) < start + value(as_expr(found.extent), row)
    if isinstance(found.extent, int):
        assert found.extent == extent


@given(SEEDS)
@settings(max_examples=examples(200))
def test_regions_cover_every_access(seed: int) -> None:
    maker = Maker(seed, (I, J, O))
    size = maker.pick([1, 7, 64])
    buffer = Buffer("X", (size,), "float32")
    indices = [maker.integer(3) for _ in range(2)]
    body = For(I, 5, For(J, 3, seq(*(store(buffer, (e,), 0.0) for e in indices))))
    _, (write,) = access_regions(body, ranges={O: (-3, 9)})
    (r,) = write.ranges
    for o, i, j in itertools.product((-3, 0, 4, 9), range(5), range(3)):
        row = {O: o, I: i, J: j}
        try:
            places = [value(e, row) for e in indices]
            start = value(r.min, row)
        except ZeroDivisionError:
            continue
        assert isinstance(r.extent, int)
        assert start >= 0
        assert start + r.extent <= size
        for place in places:
            assert not 0 <= place < size or start <= place < start + r.extent, (indices, row)

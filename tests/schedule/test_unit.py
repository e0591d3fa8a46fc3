"""blockize and tensorize."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright import ops
from tilewright.base.errors import BuildError, ScheduleError
from tilewright.codegen.build import compile_func, to_module
from tilewright.schedule import Schedule, Trace
from tilewright.tir import te
from tilewright.tir.instruction import KEY
from tilewright.tir.ir import Func, Label, Var
from tilewright.tir.parser import parse
from tilewright.tir.printer import func_text
from tilewright.tir.verify import verify

from ..hosts import runs
from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled, check_meaning
from .programs import diagonal, elementwise, loops, matmul, rowsum

SERIAL = "cpu -threads=1"
AVX2 = "cpu -mcpu=x86-64-v3 -threads=1"
AMX = "cpu -mcpu=sapphirerapids -threads=1"


def int8_matmul(n: int = 6, m: int = 32, k: int = 8) -> Func:
    return ops.matmul_func(n, m, k, "uint8", dtype_b="int8")


def tile_of_dot(sch: Schedule, lanes: int = 16, group: int = 4) -> tuple[Label, Var]:
    """The tile that dot instructions take, without an init, as the innermost loops."""
    block = sch.get_block("C")
    sch.pack(block, 1, "BAba", [lanes, group])
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, factors=[None, lanes], perfect=True)
    k0, k1 = sch.split(k, factors=[None, group], perfect=True)
    sch.reorder(j0, k0, i, j1, k1)
    sch.decompose_reduction(block, k0)
    return block, j1


def test_a_tile_of_a_map(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, j = loops(sch, "B")
        _, _, i1, _ = sch.tile((i, j), (4, 3))
        sch.blockize(i1)

    check_compiled(elementwise(), golden("blockize/map", elementwise(), script).func)


def test_a_tile_with_an_init(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, j, k = loops(sch, "C")
        _, _, k0, i1, _, _ = sch.tile((i, j, k), (4, 3, 5))
        sch.reorder(k0, i1)
        block = sch.blockize(i1)
        sch.unroll(sch.get_loops(block)[0])

    check_compiled(matmul(), golden("blockize/reduction", matmul(), script).func)


def test_a_whole_reduction_stays_a_reduction(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.blockize(loops(sch, "S")[1])
        sch.parallel(sch.get_loops(block)[0])

    check_compiled(rowsum(), golden("blockize/rows", rowsum(), script).func)


def test_tiles_of_which_some_do_not_run(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, j = loops(sch, "B")
        _, _, i2 = sch.split(i, factors=[None, 2, 8])
        sch.reorder(j, i2)
        sch.blockize(j)

    func = elementwise(24)
    check_compiled(func, golden("blockize/guarded", func, script).func)


def test_units_are_split_moved_and_initialised_like_other_blocks() -> None:
    func = matmul(8, 12, 10)
    sch = Schedule(func)
    i, j, k = loops(sch, "C")
    i0, j0, i1, j1 = sch.tile((i, j), (2, 3))
    sch.reorder(i0, j0, k, i1, j1)
    block = sch.blockize(i1)
    i0, j0, k = sch.get_loops(block)
    init = sch.decompose_reduction(block, k)
    sch.split(i0, factors=[None, 3])
    copy = sch.cache_read(block, 0, "global")
    sch.compute_at(copy, sch.get_loops(block)[1])
    assert len(sch.get_loops(init)) == 3
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


def refusals() -> list[tuple[str, Func, Callable[[Schedule], object], str]]:
    def not_nested(s: Schedule) -> None:
        i, _ = loops(s, "C")[:2]
        s.decompose_reduction(s.get_block("C"), loops(s, "C")[2])
        s.blockize(i)

    def tail(s: Schedule) -> None:
        s.blockize(s.split(loops(s, "B")[1], factors=[None, 5])[1])

    def strided(s: Schedule) -> None:
        outer, inner = s.split(loops(s, "B")[1], factors=[None, 4])
        s.reorder(inner, outer)
        s.blockize(outer)

    def inner_parallel(s: Schedule) -> None:
        j = loops(s, "B")[1]
        s.parallel(j)
        s.blockize(j)

    def in_vector(s: Schedule) -> None:
        i, j = loops(s, "B")
        s.unroll(j)
        s.vectorize(i)
        s.blockize(j)

    def empty(s: Schedule) -> None:
        s.blockize(loops(s, "B")[0])

    def shared(s: Schedule) -> None:
        s.blockize(loops(s, "B")[0])

    def between_parts(s: Schedule) -> None:
        tail, _ = s.loop_partition(loops(s, "B")[1], at=2)
        s.loop_partition(tail, at=8)
        s.blockize(s.split(tail, factors=[None, 4])[1])

    def partial(s: Schedule) -> None:
        outer, _ = s.split(loops(s, "S")[1], factors=[None, 4])
        s.blockize(s.get_loops(s.rfactor(outer, 0))[-1])

    def fused(s: Schedule) -> None:
        i, j = loops(s, "B")
        s.blockize(s.split(s.fuse(i, j), factors=[None, 8])[1])

    return [
        ("not nested", matmul(), not_nested, "loop i must contain a single block"),
        ("tail", elementwise(), tail, "a tile of 5 does not divide the 12 values of iteration vj"),
        ("strided", elementwise(), strided, "iteration vj of block B advances by 4 with loop j_0"),
        ("parallel", elementwise(), inner_parallel, "loop j is parallel; a unit is run by one"),
        ("in a vector", elementwise(), in_vector, "loop i around it is vectorized"),
        ("nothing", elementwise(0), empty, "loop i runs nothing"),
        ("two iterations", diagonal(), shared, "loop i is part of several iterations of block B"),
        ("not aligned", elementwise(), between_parts, r"tiles of 4 .* start at .* \* 4 \+ 2"),
        ("guarded", rowsum(4, 10), partial, "block S_rf runs only for a part of some tiles: where"),
        ("fused", elementwise(), fused, "no sum of multiples of the tile's loops"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("func", "script", "message"),
    [case[1:] for case in refusals()],
    ids=[case[0] for case in refusals()],
)
def test_no_unit(func: Func, script: Callable[[Schedule], object], message: str) -> None:
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match=message):
        script(sch)


def test_the_size_of_a_unit_must_be_known() -> None:
    sch = Schedule(elementwise(), symbolic=True)
    i, _ = loops(sch, "B")
    _, inner = sch.split(i, factors=sch.sample_perfect_tile(i, 2))
    with pytest.raises(ScheduleError):
        sch.blockize(inner)


def test_units_among_sampled_loops() -> None:
    sch = Schedule(elementwise(), symbolic=True)
    i, j = loops(sch, "B")
    sch.split(i, factors=sch.sample_perfect_tile(i, 2))
    _, inner = sch.split(j, factors=[None, 4])
    sch.blockize(inner)
    for seed in range(3):
        found = Schedule(elementwise(), seed=seed)
        i, j = loops(found, "B")
        found.split(i, factors=found.sample_perfect_tile(i, 2))
        _, inner = found.split(j, factors=[None, 4])
        found.blockize(inner)
        check_meaning(elementwise(), found.func)


def test_dot_product(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        _, tile = tile_of_dot(sch)
        sch.tensorize(tile, "dot_16x4_vnni")

    found = golden("tensorize/dot", int8_matmul(), script).func
    check_compiled(int8_matmul(), found)
    assert "vpdpbusd" in compile_func(found, "cpu -mcpu=cascadelake -threads=1").source("asm")


def matrix_tiles(sch: Schedule, *, packed: bool = True) -> tuple[Var, Var, Var]:
    """Tiles of matrices in registers: the loops around a product, an init and a copy of one."""
    block = sch.get_block("C")
    if packed:
        sch.pack(block, 1, "BAba", [16, 4])
    write = sch.cache_write(block, 0, "register")
    i, j, k = sch.get_loops(block)
    i0, i1, i2 = sch.split(i, factors=[None, 2, 16], perfect=True)
    j0, j1 = sch.split(j, factors=[None, 16], perfect=True)
    k0, k1, k2 = sch.split(k, factors=[None, 16, 4], perfect=True)
    sch.reorder(i0, j0, k0, i1, i2, j1, k1, k2)
    sch.reverse_compute_at(write, j0)
    count, rows = sch.split(sch.get_loops(write)[-2], factors=[None, 16], perfect=True)
    for loop in (i1, count):
        sch.unroll(loop)
    init = sch.decompose_reduction(block, k0)
    return i2, sch.get_loops(init)[-2], rows


def test_product_of_matrices(golden: Golden) -> None:
    func = int8_matmul(64, 32, 128)

    def script(sch: Schedule) -> None:
        names = ("matmul_u8s8_amx", "zero_int32_amx", "copy_int32_amx")
        for loop, name in zip(matrix_tiles(sch), names, strict=True):
            sch.tensorize(loop, name)

    found = golden("tensorize/matmul", func, script).func
    rng = np.random.default_rng(0)
    a = rng.integers(0, 255, (64, 128), np.uint8, endpoint=True)
    b = rng.integers(-128, 127, (128, 32), np.int8, endpoint=True)
    for target in filter(runs, (SERIAL, "cpu -mcpu=x86-64 -threads=1", AVX2, AMX)):
        c = np.zeros((64, 32), np.int32)
        to_module(compile_func(found, target))(a, b, c)
        np.testing.assert_array_equal(c, a.astype(np.int32) @ b.astype(np.int32))
    code = compile_func(found, "cpu -mcpu=sapphirerapids -threads=1").source("asm")
    assert code.count("tdpbusd") == code.count("tilestored") == 2
    assert code.count("tileloadd") == 3


def test_rows_of_matrices_must_lie_in_one_piece() -> None:
    sch = Schedule(int8_matmul(64, 32, 128))
    tile, *_ = matrix_tiles(sch, packed=False)
    with pytest.raises(ScheduleError):
        sch.tensorize(tile, "matmul_u8s8_amx")


def test_outer_product_of_a_block(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("C")
        i, j, k = sch.get_loops(block)
        i0, j0, i1, j1 = sch.tile((i, j), (4, 8))
        sch.reorder(i0, j0, k, i1, j1)
        sch.decompose_reduction(block, k)
        sch.tensorize(sch.blockize(i1), "outer_4x8_fma")

    func = matmul(8, 16, 4, "float32")
    check_compiled(func, golden("tensorize/outer", func, script).func)


@pytest.mark.parametrize("name", ["dot_16x2_bf16", "dot_8x2_bf16"])
def test_bfloat16(name: str) -> None:
    lanes = 16 if "16x" in name else 8
    func = bfloat16_matmul(4, 2 * lanes, 6)
    sch = Schedule(func)
    _, tile = tile_of_dot(sch, lanes, 2)
    sch.tensorize(tile, name)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)
    assert "vdpbf16ps" in compile_func(sch.func, "cpu -mcpu=cooperlake -threads=1").source("asm")


def bfloat16_matmul(n: int, m: int, k: int) -> Func:
    a = te.placeholder((n, k), "bfloat16", name="A")
    b = te.placeholder((k, m), "bfloat16", name="B")
    r = te.reduce_axis(k, name="r")
    c = te.compute(
        (n, m),
        lambda i, j: te.sum(te.cast(a[i, r], "float32") * te.cast(b[r, j], "float32"), axis=r),
        name="C",
    )
    return te.func([a, b, c], name="matmul")


def test_accumulators_in_registers() -> None:
    func = int8_matmul(7, 64, 16)
    sch = Schedule(func)
    block = sch.get_block("C")
    sch.pack(block, 1, "BAba", [16, 4])
    write = sch.cache_write(block, 0, "register")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, factors=[None, 16], perfect=True)
    j0, jc = sch.split(j0, factors=[None, 3])
    i0, i1 = sch.split(i, factors=[None, 2])
    k0, k1 = sch.split(k, factors=[None, 4])
    sch.reorder(j0, i0, k0, i1, jc, j1, k1)
    sch.reverse_compute_at(write, i0)
    for loop in (i1, jc):
        sch.unroll(loop)
    init = sch.decompose_reduction(block, k0)
    sch.vectorize(sch.get_loops(init)[-1])
    *_, rows, columns = sch.get_loops(write)
    count, lane = sch.split(columns, factors=[None, 16])
    sch.vectorize(lane)
    for loop in (rows, count):
        sch.unroll(loop)
    sch.tensorize(j1, "dot_16x4_vnni")
    check_meaning(func, sch.func)
    again = Trace.from_json(sch.trace.to_json()).apply(func).func
    assert func_text(again) == func_text(sch.func)
    for target in filter(runs, (SERIAL, "cpu -mcpu=x86-64 -threads=1", AVX2, AMX)):
        rng = np.random.default_rng(0)
        a = rng.integers(0, 10, (7, 16)).astype(np.uint8)
        b = rng.integers(-9, 10, (16, 64)).astype(np.int8)
        c = np.zeros((7, 64), np.int32)
        to_module(compile_func(sch.func, target))(a, b, c)
        np.testing.assert_array_equal(c, a.astype(np.int32) @ b.astype(np.int32))


def test_no_such_instruction() -> None:
    sch = Schedule(int8_matmul())
    with pytest.raises(ScheduleError):
        sch.tensorize(loops(sch, "C")[0], "dot")


def test_the_init_is_no_part_of_an_instruction() -> None:
    sch = Schedule(int8_matmul(1, 16, 4))
    with refused(ScheduleError, "C", "dot_16x4_vnni"):
        sch.tensorize(loops(sch, "C")[1], "dot_16x4_vnni")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "dot_8x4_vnni",
            r"its loops have the extents \[16, 4\], those of the instruction \[8, 4\]",
        ),
        ("dot_16x2_bf16", r"its loops have the extents \[16, 4\]"),
    ],
)
def test_other_loops(name: str, message: str) -> None:
    sch = Schedule(int8_matmul())
    _, tile = tile_of_dot(sch)
    with pytest.raises(ScheduleError, match=message):
        sch.tensorize(tile, name)


def test_other_arithmetic() -> None:
    sch = Schedule(ops.matmul_func(6, 32, 8, "int8"))
    _, tile = tile_of_dot(sch)
    with pytest.raises(ScheduleError):
        sch.tensorize(tile, "dot_16x4_vnni")


def test_twice() -> None:
    sch = Schedule(int8_matmul())
    block, tile = tile_of_dot(sch)
    sch.tensorize(tile, "dot_16x4_vnni")
    with pytest.raises(ScheduleError):
        sch.tensorize(block, "dot_16x4_vnni")


def test_vectors_must_lie_in_one_piece() -> None:
    sch = Schedule(int8_matmul())
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, factors=[None, 16])
    k0, k1 = sch.split(k, factors=[None, 4])
    sch.reorder(i, j0, k0, j1, k1)
    sch.decompose_reduction(block, k0)
    with pytest.raises(ScheduleError):
        sch.tensorize(j1, "dot_16x4_vnni")


def test_vectors_in_rows_of_an_open_length() -> None:
    sch = Schedule(matmul(8, 16, 4, "float32"), symbolic=True)
    block = sch.get_block("C")
    sch.pack(block, 1, "ABa", [sch.sample_categorical([2, 4])])
    i, j, k = sch.get_loops(block)
    i0, j0, i1, j1 = sch.tile((i, j), (4, 8))
    sch.reorder(i0, j0, k, i1, j1)
    sch.decompose_reduction(block, k)
    with pytest.raises(ScheduleError):
        sch.tensorize(i1, "outer_4x8_fma")


def test_a_unit_is_copied_as_a_whole_or_not_at_all() -> None:
    sch = Schedule(elementwise())
    block = sch.blockize(loops(sch, "B")[1])
    with pytest.raises(ScheduleError):
        sch.cache_write(block, 0, "local")


def test_tiles_of_rows_of_an_open_length() -> None:
    sch = Schedule(elementwise(), symbolic=True)
    block = sch.get_block("B")
    i, j = sch.get_loops(block)
    outer, inner = sch.split(i, factors=[4, sch.sample_categorical([4, 8])])
    sch.reorder(inner, j, outer)
    with pytest.raises(ScheduleError):
        sch.blockize(outer)


def test_what_it_computes_must_stay() -> None:
    sch = Schedule(int8_matmul())
    block, tile = tile_of_dot(sch)
    loop = sch.get_loops(block)[0]
    sch.tensorize(tile, "dot_16x4_vnni")
    with pytest.raises(ScheduleError):
        sch.vectorize(sch.get_loops(block)[-1])
    assert loop in sch.get_loops(block)


def test_a_producer_is_not_inlined_into_an_instruction() -> None:
    a = te.placeholder((4, 8), "uint8", name="A")
    b = te.placeholder((8, 32), "int8", name="B")
    twice = te.compute((4, 8), lambda i, k: a[i, k] // 2, name="H")
    r = te.reduce_axis(8, name="r")
    c = te.compute(
        (4, 32),
        lambda i, j: te.sum(te.cast(twice[i, r], "int32") * te.cast(b[r, j], "int32"), axis=r),
        name="C",
    )
    func = te.func([a, b, c], name="halved")
    sch = Schedule(func)
    _, tile = tile_of_dot(sch)
    sch.tensorize(tile, "dot_16x4_vnni")
    with pytest.raises(ScheduleError):
        sch.compute_inline(sch.get_block("H"))
    sch.transform_layout(sch.get_block("H"), ("write", 0), lambda i, k: (k, i))
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)  # by a gather


def test_only_tensorize_marks_instructions() -> None:
    sch = Schedule(elementwise())
    with refused(ScheduleError, "tensor_intrin"):
        sch.annotate(sch.get_block("B"), KEY, "dot_16x4_vnni")


def test_a_mark_that_is_not_true_is_not_compiled() -> None:
    func = int8_matmul()
    sch = Schedule(func)
    _, tile = tile_of_dot(sch)
    sch.tensorize(tile, "dot_16x4_vnni")
    text = func_text(sch.func)
    with pytest.raises(BuildError):
        compile_func(parse(text.replace("dot_16x4_vnni", "dot_8x4_vnni")), SERIAL)
    with pytest.raises(BuildError):
        compile_func(parse(text.replace("dot_16x4_vnni", "other")), SERIAL)
    foreign = Schedule(parse(text.replace("dot_16x4_vnni", "other")))
    with pytest.raises(ScheduleError):
        foreign.unroll(loops(foreign, "C")[0])

"""The counts of the estimate: shuffles, invariants, and data that is in a cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright import ops
from tilewright.autotune.model import profile as profile_module
from tilewright.autotune.model.cpu.estimate import FEATURES, Estimator
from tilewright.autotune.model.cpu.footprints import shuffles_of
from tilewright.autotune.model.cpu.instructions import Converting, instructions_of
from tilewright.autotune.model.memo import Memo
from tilewright.autotune.model.profile import _fixed_part, _Loops, profile
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.sketch import sketches
from tilewright.schedule.find import blocks_in
from tilewright.target import CpuTarget, Target
from tilewright.tir.ir import For, Func, Seq, Var
from tilewright.tir.parser import parse
from tilewright.tir.simplify import Simplifier

from .checking import sketches_named

TARGET = CpuTarget.parse("cpu -mcpu=cascadelake -threads=1")


def shuffles(func: Func) -> dict[str, float]:
    read = profile(func).visits
    return dict(zip([v.name for v in read], shuffles_of(read), strict=True))


def features(func: Func, target: Target = TARGET) -> dict[str, float]:
    (row,) = Estimator(profile(func), target)(np.zeros((1, 0), dtype=np.int64)).features
    return dict(zip(FEATURES, (2.0**row).tolist(), strict=True))


def seconds(func: Func, name: str, target: Target = TARGET) -> float:
    """The value of a feature that is a share, of a program without decisions, in seconds."""
    found = features(func, target)
    return found[name] * found["log_seconds"]


def best(func: Func, target: Target = TARGET) -> dict[str, float]:
    """The least estimate of some rows of each sketch, in seconds."""
    rng = np.random.default_rng(0)
    found = {}
    for sketch in sketches(func, target):
        read = profile(sketch.func, sketch.space.bounds)
        rows = Rowspace(sketch).sample(rng, 50)
        found[sketch.name] = float(Estimator(read, target)(rows).seconds.min())
    return found


def copied(store: str) -> Func:
    return parse(f"""
def f(X: T.Buffer((4, 32), "int8"), Y: T.Buffer((2, 16, 4), "int8")):
    R = T.alloc((4, 32), "int8", scope="register")
    for p in range(2):
        for r in T.unrolled(4):
            for c in T.vectorized(16):
                with T.block("read"):
                    vr = T.axis.spatial(4, r)
                    vc = T.axis.spatial(32, p * 16 + c)
                    R[vr, vc] = X[vr, vc]
        for e in T.vectorized(64):
            with T.block("write"):
                vp = T.axis.spatial(2, p)
                vc = T.axis.spatial(16, e // 4)
                vr = T.axis.spatial(4, e % 4)
                Y[{store}] = R[vr, vp * 16 + vc]
""")


def test_digits_of_a_vector_that_are_next_to_each_other_are_no_scatter() -> None:
    """The numbers of the vector's lanes are e // 4 and e % 4, whose strides are 4 and 1."""
    assert features(copied("vp, vc, vr"))["gathers"] < 1.0
    func = parse("""
def f(X: T.Buffer((64,), "int8"), Y: T.Buffer((16, 5), "int8")):
    for e in T.vectorized(64):
        with T.block("write"):
            vc = T.axis.spatial(16, e // 4)
            vr = T.axis.spatial(4, e % 4)
            Y[vc, vr] = X[vc * 4 + vr]
""")
    assert features(func)["gathers"] == pytest.approx(64.0)


def test_rows_that_are_interleaved_in_registers_take_the_shuffles_that_are_emitted() -> None:
    assert shuffles(copied("vp, vc, vr")) == {"read": 0, "write": 5}


def test_columns_of_squares_take_as_many_shuffles_as_their_width_has_bits() -> None:
    func = parse("""
def f(X: T.Buffer((16, 16), "float32"), Y: T.Buffer((16, 16), "float32")):
    R = T.alloc((16, 16), "float32", scope="register")
    for r in T.unrolled(16):
        for c in T.vectorized(16):
            with T.block("read"):
                vr, vc = T.axis.remap("SS", [r, c])
                R[vr, vc] = X[vr, vc]
    for r in T.unrolled(16):
        for c in T.vectorized(16):
            with T.block("turned"):
                vr, vc = T.axis.remap("SS", [r, c])
                Y[vr, vc] = R[vc, vr]
""")
    assert shuffles(func) == {"read": 0, "turned": 4}


def test_packing_for_dot_products_is_worth_it() -> None:
    found = best(ops.matmul_func(16, 368, 120, "uint8", dtype_b="int8"))
    dots = [seconds for name, seconds in found.items() if name.startswith("dot_")]
    others = [seconds for name, seconds in found.items() if not name.startswith("dot_")]
    assert 2.0 * max(dots) < min(others)


def test_tiles_are_worth_it_where_matrices_are_large() -> None:
    amx = Target.parse("cpu -mcpu=sapphirerapids -threads=1")
    func = ops.matmul_func(256, 256, 256, "uint8", dtype_b="int8")
    found = best(func, amx)
    tiles = [seconds for name, seconds in found.items() if name.startswith("matmul_")]
    others = [seconds for name, seconds in found.items() if not name.startswith("matmul_")]
    assert 2.0 * max(tiles) < min(others)
    (sketch,) = sketches_named(func, amx, lambda name: name == "matmul_u8s8_amx")
    read = profile(sketch.func, sketch.space.bounds)
    rows = np.array([[across, 2, down, 2] for across in (1, 2) for down in (1, 2)])
    one, *some, four = Estimator(read, amx)(rows).seconds
    assert four < min(some) <= max(some) < one


def test_rows_of_tiles_that_lie_apart_take_longer_to_load() -> None:
    amx = Target.parse("cpu -mcpu=sapphirerapids -threads=1")
    func = ops.matmul_func(256, 256, 256, "uint8", dtype_b="int8")
    loads = {}
    for sketch in sketches_named(func, amx, lambda name: name.startswith("matmul")):
        read = profile(sketch.func, sketch.space.bounds)
        found = Estimator(read, amx)(np.array([[2, 2, 2, 2]])).features
        loads[sketch.name] = 2.0 ** found[0, FEATURES.index("tile_loads")]
    assert loads["matmul_u8s8_amx"] > 2 * loads["matmul_u8s8_amx_packA"]


def test_a_factor_that_lanes_share_is_loaded_for_each_product() -> None:
    """Of the rows of a tile four bytes each are broadcast; the vectors of the other are loads."""
    (sketch,) = (
        s
        for s in sketches(ops.matmul_func(16, 32, 8, "uint8", dtype_b="int8"), TARGET)
        if s.name == "dot_16x4_vnni"
    )
    read = profile(sketch.func, sketch.space.bounds)
    rows = Rowspace(sketch).sample(np.random.default_rng(0), 20)
    found = 2.0 ** Estimator(read, TARGET)(rows).features[:, FEATURES.index("tile_loads")]
    assert found.max() >= 8.0


def test_what_does_not_change_in_the_innermost_loop_is_computed_once() -> None:
    func = parse("""
def f(
    X: T.Buffer((8, 64), "float32"), S: T.Buffer((8,), "float32"), Y: T.Buffer((8, 64), "float32")
):
    for i, j in T.grid(8, 4):
        for k in T.vectorized(16):
            with T.block("Y"):
                vi = T.axis.spatial(8, i)
                vj = T.axis.spatial(64, j * 16 + k)
                Y[vi, vj] = (X[vi, vj] - S[vi] / 64.0) * (X[vi, vj] - S[vi] / 64.0) * T.rsqrt(S[vi])
""")
    (found,) = profile(func).visits
    assert (found.operations, found.expensive) == (3, 0)


def test_casts_of_what_a_register_tile_shares_are_counted_once() -> None:
    """4 rows by 2 vectors: 8 products, 4 elements of A, each cast and broadcast, 2 vectors of B.

    Without casts, the 8 sums wait for each other."""
    func = parse("""
def f(
    A: T.Buffer((4, 64), "float16"), B: T.Buffer((64, 32), "int8"), C: T.Buffer((4, 32), "float32")
):
    for k in range(64):
        for i in T.unrolled(4):
            for j in T.unrolled(2):
                for l in T.vectorized(16):
                    with T.block("C"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        vj = T.axis.spatial(32, j * 16 + l)
                        C[vi, vj] = C[vi, vj] + T.float32(A[vi, vk]) * T.float32(B[vk, vj])
""")
    (visit,) = profile(func).visits
    taken = instructions_of(visit)
    assert (visit.operations, taken.other) == (2, 2)
    converting = {visit.accesses[n].buffer.name: found for n, found in taken.converting.items()}
    assert converting == {"A": Converting(2, 3, 2), "B": Converting(1, 2, 1)}
    bare = parse(str(func).replace("float16", "float32").replace("int8", "float32")
                 .replace("T.float32(A[vi, vk])", "A[vi, vk]")
                 .replace("T.float32(B[vk, vj])", "B[vk, vj]"))  # fmt: skip
    assert seconds(func, "compute") / seconds(bare, "compute") == pytest.approx(
        (8 + 4 * 3 + 2) / 8 / 2**0.25, rel=0.02
    )


def test_casts_that_shift_take_place_beside_multiply_adds() -> None:
    """12 products of a row of 3 vectors with 4 elements, of which each vector is widened in two
    steps. A number is shifted as an integer and moved to all lanes."""
    func = parse("""
def f(
    A: T.Buffer((4, 64), "bfloat16"), B: T.Buffer((64, 48), "bfloat16"),
    C: T.Buffer((4, 48), "float32")
):
    for k in range(64):
        for i in T.unrolled(4):
            for j in T.unrolled(3):
                for l in T.vectorized(16):
                    with T.block("C"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        vj = T.axis.spatial(48, j * 16 + l)
                        C[vi, vj] = C[vi, vj] + T.float32(A[vi, vk]) * T.float32(B[vk, vj])
""")
    (visit,) = profile(func).visits
    converting = instructions_of(visit).converting.values()
    assert set(converting) == {Converting(2, 2, 0)}
    half = parse(str(func).replace("bfloat16", "float16"))
    cycles, waiting = {}, (1 + (8 / 12) ** 4) ** 0.25
    for shuffled in (1.0, 4.0):
        target = replace(TARGET, rates=TARGET.rates._replace(shuffles=shuffled))
        cycles[shuffled] = [
            seconds(f, "compute", target) * target.rates.hertz / 64 for f in (func, half)
        ]
    assert cycles[1.0] == pytest.approx([(12 + 8 + 6) / 2, (12 + 12 + 6) / 2], rel=0.01)
    assert cycles[4.0] == pytest.approx([26 / 4, 26 / 2 * waiting], rel=0.01)


@pytest.mark.parametrize(("vectors", "times"), [(4, 0.887), (2, 0.950)])
def test_the_last_register_tile_is_shorter_and_its_sums_wait_for_each_other(
    vectors: int, times: float
) -> None:
    """7 rows are tiles of 4 and 3: with 4 vectors each, the sums of both hide the latency, of 8
    chains, so that the time is nearly 7/8 of that of 8 rows."""

    def program(rows: int) -> Func:
        return parse(f"""
def f(
    A: T.Buffer(({rows}, 64), "float32"), B: T.Buffer((64, {16 * vectors}), "float32"),
    C: T.Buffer(({rows}, {16 * vectors}), "float32")
):
    for t in range(2):
        for k in range(64):
            for i in T.unrolled(4):
                for j in T.unrolled({vectors}):
                    for l in T.vectorized(16):
                        with T.block("C"):
                            vi = T.axis.spatial({rows}, t * 4 + i)
                            vk = T.axis.reduce(64, k)
                            vj = T.axis.spatial({16 * vectors}, j * 16 + l)
                            T.where(t * 4 + i < {rows})
                            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""")

    seven, eight = program(7), program(8)
    assert seconds(seven, "compute") / seconds(eight, "compute") == pytest.approx(times, rel=0.01)
    for name in ("l1", "overhead"):
        assert seconds(seven, name) == pytest.approx(seconds(eight, name), rel=0.01)


def twice(rows: int, second: str = "vi, vj") -> Func:
    """A row is summed up and then divided by the sum."""
    return parse(f"""
def f(X: T.Buffer((64, {rows}), "float32"), Y: T.Buffer((64, {rows}), "float32")):
    S = T.alloc((64,), "float32")
    for i in range(64):
        for j in range({rows}):
            with T.block("sum"):
                vi = T.axis.spatial(64, i)
                vj = T.axis.reduce({rows}, j)
                with T.init():
                    S[vi] = 0.0
                S[vi] = S[vi] + X[vi, vj]
        for j in range({rows}):
            with T.block("Y"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = X[{second}] / S[vi]
""")


def memory(func: Func) -> float:
    """Bytes of memory that are moved, of all blocks."""
    rate = TARGET.rates.memory * TARGET.rates.hertz
    return (seconds(func, "memory") + seconds(func, "other_memory")) * rate


@pytest.mark.parametrize(("rows", "reads"), [(1 << 17, 1), (1 << 24, 2)])
def test_a_row_that_fits_the_cache_is_brought_once(rows: int, reads: int) -> None:
    """Y is written, which reads its lines first."""
    assert memory(twice(rows)) == pytest.approx(64.0 * rows * 4 * (reads + 2), rel=0.01)


def test_another_part_of_a_buffer_is_not_there() -> None:
    rows = 1 << 17
    assert memory(twice(rows, "63 - vi, vj")) == pytest.approx(64.0 * rows * 4 * 4, rel=0.01)


def test_long_rows_take_less_time_with_their_statistics_in_one_pass() -> None:
    found = best(ops.softmax_func(64, 131072))
    assert found["online"] < found["rows"]


def test_blocks_that_sketches_have_in_common_are_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = []

    def counted(*given: Any) -> Any:
        read.append(given)
        return visit(*given)

    visit = profile_module._visit
    monkeypatch.setattr(profile_module, "_visit", counted)
    func = ops.attention_func(1, 2, 64, 32)
    made = sketches(func, TARGET)[::3]
    memo = Memo()
    rng = np.random.default_rng(0)
    for sketch in made:
        given = sketch.func, sketch.space.bounds
        shared, own = profile(*given, memo), profile(*given)
        rows = Rowspace(sketch).sample(rng, 20)
        np.testing.assert_array_equal(
            Estimator(shared, TARGET)(rows).features, Estimator(own, TARGET)(rows).features
        )
    blocks = sum(len(list(blocks_in(s.func.body))) for s in made)
    assert len(read) < 1.8 * blocks  # each of them alone, and those of the memo


def test_what_is_fixed_of_an_index_may_be_a_product() -> None:
    """Two decisions times each other, in whatever order, beside a loop that moves the index."""
    i, a, b = Var("i"), Var("a"), Var("b")
    around = _Loops([For(i, 4, Seq(()))])
    known = Simplifier({i: (0, 3), a: (1, 8), b: (1, 8)})
    fixed = [_fixed_part(e, around, known) for e in (a * b * 2 + i, i * a + b * 2 * a, a * 2 * a)]
    assert fixed[0] == fixed[1] != fixed[2]


def test_quotients_of_loops_whose_sizes_are_open() -> None:
    func = parse("""
@tw.script
def packed(
    J1: T.Buffer((3, 7), "int32"), P1: T.Buffer((8, 7), "int32"), J2: T.Buffer((3, 8), "int32")
):
    P = T.alloc((7, 4, 3, 2), "int32")
    S2 = T.alloc((3, 8), "int32")
    for c0, c1, c2 in T.grid(3, 8, 7):
        with T.block("P"):
            v0, v1, v2 = T.axis.remap("SSS", [c0, c1, c2])
            P[v2, v1 // 2, v0, v1 % 2] = P1[v1, v2]
    for i0, i1, r in T.grid(3, 8, 7):
        with T.block("S2"):
            vi0, vi1, vr = T.axis.remap("SSR", [i0, i1, r])
            with T.init():
                S2[vi0, vi1] = 0
            S2[vi0, vi1] = S2[vi0, vi1] + J1[vi0, vr] * P[vr, vi1 // 2, vi0, vi1 % 2]
    for i0, i1 in T.grid(3, 8):
        with T.block("J2"):
            vi0, vi1 = T.axis.remap("SS", [i0, i1])
            J2[vi0, vi1] = S2[vi0, vi1] + J1[vi0, vi1 % 7]
""")
    for sketch in sketches(func, replace(TARGET, threads=2), inexact=True):
        rows = Rowspace(sketch).sample(np.random.default_rng(0), 4)
        assert np.isfinite(
            Estimator(profile(sketch.func, sketch.space.bounds), TARGET)(rows).features
        ).all()

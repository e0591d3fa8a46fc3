"""Sketches of every operator: random candidates compute what the program does."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright import ops
from tilewright.autotune.measure.numeric_check import check_outputs, tolerance_of
from tilewright.autotune.model.profile import profile
from tilewright.autotune.rules import MAX_SKETCHES
from tilewright.autotune.rules.access_patterns import extents, in_order
from tilewright.autotune.rules.cpu.fused_attention import MAX_BAND
from tilewright.autotune.rules.cpu.rule_set import separate_all_digits
from tilewright.autotune.rules.cpu.vector_choices import vector_variables
from tilewright.autotune.rules.draft import Draft
from tilewright.autotune.rules.register_tiles import tile_variables
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.sketch import sketches
from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.lower import lower
from tilewright.schedule import Schedule
from tilewright.schedule.block_queries import feeding, has_reduction
from tilewright.schedule.find import blocks_in, find_block, path_to
from tilewright.target import CpuTarget
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import (
    Buffer,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    IterKind,
    Load,
    Prefetch,
    Ramp,
    Seq,
    Store,
)
from tilewright.tir.parser import parse
from tilewright.tir.visit import walk

from ..hosts import processor, runs
from .checking import (
    arguments,
    expected,
    first_sketch,
    planned,
    plans_of,
    run,
    sketches_named,
    some_rows,
)
from .formulas import FORMULAS
from .selection import OPERATORS, operator, operator_name, selected

Tile = tuple[int, int, int]
ROWS = 6
"""Candidates of a program, at most; of each sketch one at least."""


@pytest.mark.part(2)
@pytest.mark.parametrize("number", range(len(OPERATORS)), ids=operator_name)
def test_candidates_compute_what_the_program_does(number: int) -> None:
    func = operator(number)
    target = processor("cpu -threads=2")
    rng = np.random.default_rng(0)
    wanted = expected(func, 1)
    made = selected(func, target)
    for sketch in made:
        for row in some_rows(sketch, rng, max(1, ROWS // len(made))):
            schedule = sketch.trace.with_row(row.tolist()).apply(func)
            found = arguments(func, 1)
            run(schedule.func, target, found)
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_allclose(
                    a.astype(np.float64), b.astype(np.float64), rtol=2e-4, atol=2e-5,
                    err_msg=f"{sketch.name} {row.tolist()}",
                )  # fmt: skip


@pytest.mark.parametrize("shape", [(17, 13), (64, 3), (5, 7, 11), (9, 40, 3)])
def test_elements_of_rows_that_are_shorter_than_vectors(shape: tuple[int, ...]) -> None:
    """Vectors begin at any element of a row, and go on in the next ones."""
    a = te.placeholder(shape, name="A")
    func = te.func([a, te.compute(shape, ONE_MORE[len(shape)](a), name="B")])
    target = processor("cpu -threads=2")
    found, wanted = arguments(func, 1), expected(func, 1)
    (sketch,) = sketches(func, target)
    for row in Rowspace(sketch).sample(np.random.default_rng(0), 4):
        schedule = sketch.trace.with_row(row.tolist()).apply(func)
        run(schedule.func, target, found)
        np.testing.assert_array_equal(found[-1], wanted[-1])


ONE_MORE: dict[int, Any] = {
    2: lambda a: lambda i, j: a[i, j] + 1,
    3: lambda a: lambda i, j, k: a[i, j, k] + 1,
}


def test_attention_in_bands_keeps_only_a_band_of_scores() -> None:
    func = ops.attention_func(1, 2, 160, 32)
    target = CpuTarget.parse("cpu -mcpu=cascadelake -threads=2")
    sketch = first_sketch(func, target)
    assert sketch.name == "fused_attention_packK"
    (row,) = Rowspace(sketch).sample(np.random.default_rng(0), 1)
    scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
    (scores,) = (b for b in func.allocs if b.name == "Y_scores")
    (band,) = (b for b in _buffers(lower(scheduled, target)) if b.name == scores.name)
    size = math.prod(n for n in band.shape if isinstance(n, int))
    assert size <= MAX_BAND * 160 < math.prod(n for n in scores.shape if isinstance(n, int))


@pytest.mark.parametrize(
    ("heads", "queries", "keys", "options"),
    [
        (2, 101, 1024, {}),
        (1, 37, 1280, {"causal": True}),
    ],
)
def test_attention_takes_keys_in_pieces_where_a_cache_holds_no_rows(
    heads: int, queries: int, keys: int, options: dict[str, Any]
) -> None:
    func = attention_of(heads, queries, keys, **options)
    target = replace(processor("cpu -threads=2"), l2_bytes=1 << 16)
    made = sketches_named(func, target, lambda name: name.startswith("flash_attention"))
    assert [s.name for s in made] == ["flash_attention_packK"]
    wanted = expected(func, 1)
    rng = np.random.default_rng(0)
    for sketch in made:
        for row in some_rows(sketch, rng, 3):
            scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
            (scores,) = (b for b in _buffers(lower(scheduled, target)) if b.name == "Y_scores")
            size = math.prod(n for n in scores.shape if isinstance(n, int))
            assert size * 8 <= target.l2_bytes
            found = arguments(func, 1)
            run(scheduled, target, found)
            check = check_outputs(found[-1:], wanted[-1:], ["Y"], tolerance_of(func))
            assert check.passed, f"{row.tolist()}: {check.error}"


def attention_of(heads: int, queries: int, keys: int, *, causal: bool = False) -> Func:
    """Attention of as many queries and keys as are asked for."""
    q = te.placeholder((1, heads, queries, 16), "float32", name="Q")
    k, v = (te.placeholder((1, heads, keys, 16), "float32", name=n) for n in "KV")
    return te.func([q, k, v, ops.attention(q, k, v, causal=causal, name="Y")], name="attention")


@pytest.mark.parametrize("keys", [1031, 1040])
def test_keys_that_no_pieces_make_up(keys: int) -> None:
    """Pieces are of whole vectors, and of several of them."""
    func = attention_of(2, 40, keys)
    target = CpuTarget.parse("cpu -mcpu=cascadelake -threads=2")
    assert not any("flash" in name for name in planned(func, replace(target, l2_bytes=1 << 16)))


def test_keys_in_pieces_only_where_the_cache_is_too_small() -> None:
    func = attention_of(2, 40, 768)
    target = CpuTarget.parse("cpu -mcpu=cascadelake -threads=2")
    for l2_bytes, pieces in ((1 << 20, True), (1 << 21, False)):
        names = planned(func, replace(target, l2_bytes=l2_bytes))
        assert any("flash" in name for name in names) is pieces


def _buffers(func: Func) -> set[Buffer]:
    return {n.buffer for n in walk(func.body) if type(n) is Load or type(n) is Store}


def test_no_bands_where_there_is_too_little() -> None:
    func = ops.attention_func(batch=1, heads=1, sequence=12, dim=64)
    target = CpuTarget.parse("cpu -mcpu=cascadelake -threads=2")
    assert not any("attention" in name for name in planned(func, target))


def test_bands_with_an_epilogue_compute_what_the_program_does() -> None:
    """The result of float16 is rounded after the attention."""
    func = ops.attention_func(batch=1, heads=1, dtype="float16", sequence=160, dim=32)
    target = processor("cpu -threads=2")
    rng = np.random.default_rng(0)
    wanted = expected(func, 1)
    bands = sketches_named(func, target, lambda name: "attention" in name)
    assert bands
    for sketch in bands:
        for row in some_rows(sketch, rng, 2):
            results = arguments(func, 1)
            run(sketch.trace.with_row(row.tolist()).apply(func).func, target, results)
            check = check_outputs(results[-1:], wanted[-1:], ["Y"], tolerance_of(func))
            assert check.passed, f"{sketch.name} {row.tolist()}: {check}"


SOFTMAX = {"Y_max", "Y_sum"}
LAYER_NORM = {"Y_sum", "Y_square"}


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("func", "statistics"),
    [
        (ops.softmax_func(3, 4096), {*SOFTMAX, "Y_max_rf", "Y_sum_rf"}),
        (ops.softmax_func(3, 3000), {*SOFTMAX, "Y_max_rf", "Y_sum_rf"}),
        (ops.softmax_func(3, 1999, dtype="float64"), {*SOFTMAX, "Y_max_rf", "Y_sum_rf"}),
        (ops.softmax_func(3, 2600, dtype="float16"), {*SOFTMAX, "Y_max_rf", "Y_sum_rf"}),
        (ops.layer_norm_func(3, 4096), {*LAYER_NORM, "Y_sum_rf", "Y_square_rf"}),
        (ops.layer_norm_func(3, 2999), {*LAYER_NORM, "Y_sum_rf", "Y_square_rf"}),
        (ops.layer_norm_func(3, 4099, dtype="float16"), {*LAYER_NORM, "Y_sum_rf", "Y_square_rf"}),
    ],
)
def test_long_rows_are_read_in_pieces_of_which_the_cache_holds_two(
    func: Func, statistics: set[str]
) -> None:
    target = replace(processor("cpu -threads=2"), l1_bytes=1 << 13, l2_bytes=1 << 14)
    sketch, *others = sketches(func, target)
    assert [s.name for s in (sketch, *others)].count("online") == (sketch.name == "online") == 1
    found, wanted = arguments(func, 1), expected(func, 1)
    for row in Rowspace(sketch).sample(np.random.default_rng(0), ROWS):
        scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
        # Of a row, nothing is kept but its statistics, and two numbers for each piece.
        assert {b.name for b in scheduled.allocs if b.scope != "register"} == statistics
        run(scheduled, target, found)
        check = check_outputs(found[-1:], wanted[-1:], ["Y"], tolerance_of(func))
        assert check.passed, f"{row.tolist()}: {check.error}"


@pytest.mark.parametrize(
    "func",
    [
        ops.softmax_func(3, 2000),
        ops.layer_norm_func(3, 2000),
        ops.reduction_func(n=3, m=8192, axis=1),
    ],
)
def test_no_pieces_of_rows_that_are_short_or_have_one_statistic(func: Func) -> None:
    target = replace(processor("cpu -threads=2"), l1_bytes=1 << 13, l2_bytes=1 << 14)
    assert not any("online" in s.name for s in sketches(func, target))


OTHER_ALGEBRA: list[dict[str, Any]] = [
    {"c": 8, "h": 9, "w": 19, "o": 7},
    {"c": 9, "h": 8, "w": 8, "o": 16, "n": 2, "bias": True, "epilogue": "relu"},
    {"c": 8, "h": 7, "w": 6, "o": 16, "layout": "NHWC", "constant_w": True},
    {"c": 8, "h": 6, "w": 35, "o": 4, "dtype": "float16"},
]


@pytest.mark.part(2)
@pytest.mark.parametrize("case", range(len(OTHER_ALGEBRA)))
def test_candidates_of_other_algebra(case: int) -> None:
    """Each program has candidates of both tiles, and two programs those of each sketch."""
    options = OTHER_ALGEBRA[case]
    func = ops.conv2d_func(**options)
    target = processor("cpu -threads=2")
    made = sketches_named(func, target, lambda name: name.startswith("winograd"), inexact=True)
    tiles = {s.name.partition(":")[0] for s in made}
    if target.vector_registers == 32:  # others do not hold a tile of each program
        assert len(made) == 8
        assert tiles == {"winograd2", "winograd4"}
    assert not any(name.startswith("winograd") for name in planned(func, target))
    rng, wanted, limit = np.random.default_rng(0), expected(func, 1), tolerance_of(func)
    for sketch in made[case % 2 :: 2]:
        for row in some_rows(sketch, rng, 1):
            schedule = sketch.trace.with_row(row.tolist()).apply(func)
            found = arguments(func, 1)
            module = run(schedule.func, target, found)
            visited = [v.name for v in profile(schedule.func).visits]
            constant = options.get("constant_w", False)
            assert ("W" in module.layouts) is constant
            assert ("W_tiles" in visited) is not constant
            check = check_outputs(
                found[-1:], wanted[-1:], ["Y"], limit * schedule.trace.error_factor
            )
            assert check.passed, f"{sketch.name} {row.tolist()}: {check.error}"


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("options", "cpu", "first"),
    [
        ({"dtype": "uint8", "dtype_b": "int8"}, "cascadelake", "dot_16x4_vnni_packA"),
        ({"dtype": "uint8", "dtype_b": "int8"}, "alderlake", "dot_8x4_vnni_packA"),
        ({"dtype": "bfloat16"}, "cooperlake", "dot_16x2_bf16_packA"),
        ({"dtype": "uint8", "dtype_b": "int8", "n": 1}, "cascadelake", "dot_16x4_vnni"),
        ({"dtype": "uint8", "dtype_b": "int8"}, "x86-64-v2", "tiled"),
        ({"dtype": "uint8", "dtype_b": "int8"}, "skylake-avx512", "dot_16x4_u8s8_packA"),
        ({"dtype": "uint8", "dtype_b": "int8"}, "haswell", "dot_8x4_u8s8_packA"),
        ({"dtype": "int8"}, "cascadelake", "dot_16x4_s8s8_packA"),
        ({"dtype": "int16", "k": 7}, "haswell", "dot_8x2_s16s16_packA"),
        ({"dtype": "uint8", "dtype_b": "int8", "k": 6}, "cascadelake", "dot_16x4_vnni_packA"),
        ({"dtype": "uint8", "dtype_b": "int8", "m": 24}, "cascadelake", "dot_16x4_vnni_packA"),
        ({"dtype": "uint8", "dtype_b": "int8", "m": 7}, "cascadelake", "dot_8x4_vnni"),
        (
            {"dtype": "uint8", "dtype_b": "int8", "n": 13, "m": 33, "k": 19},
            "alderlake",
            "dot_8x4_vnni_packA",
        ),
        ({"dtype": "bfloat16", "m": 23, "k": 5}, "cooperlake", "dot_16x2_bf16_packA"),
        (
            {"dtype": "uint8", "dtype_b": "int8", "transpose_a": True},
            "cascadelake",
            "dot_16x4_vnni_packA",
        ),
    ],
)
def test_dot_products_by_the_widest_instruction_that_fits(
    options: dict[str, Any], cpu: str, first: str
) -> None:
    func = ops.matmul_func(**{"n": 9, "m": 32, "k": 8, **options})
    target = CpuTarget.parse(f"cpu -mcpu={cpu} -threads=1")
    sketch = first_sketch(func, target)
    assert sketch.name.partition("/")[0] == first
    widths = {name.split("_")[1] for name in planned(func, target) if name.startswith("dot")}
    assert len(widths) == first.startswith("dot")
    (row,) = Rowspace(sketch).sample(np.random.default_rng(0), 1)
    scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
    wanted, computed = expected(func, 1), arguments(func, 1)
    interpret(scheduled, *computed)
    results = [computed]
    if runs(target):
        results.append(arguments(func, 1))
        run(scheduled, target, results[-1])
    for found in results:
        np.testing.assert_allclose(
            found[-1].astype(np.float64), wanted[-1].astype(np.float64), rtol=2e-2
        )
    code = compile_func(scheduled, target).source("asm")
    dots = ("vpdpbusd", "vdpbf16ps", "vpmaddwd")
    assert any(instruction in code for instruction in dots) is first.startswith("dot")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float16", "bfloat16"])
def test_a_sum_of_one_product_takes_no_instruction_for_sums(dtype: str) -> None:
    func = ops.conv2d_func(c=1, h=8, w=8, o=16, kernel=1, padding=0, dtype=dtype)
    for cpu in ("cascadelake", "sapphirerapids"):
        names = planned(func, CpuTarget.parse(f"cpu -mcpu={cpu} -threads=1"))
        assert names
        assert not any(name.startswith(("dot_", "matmul_")) for name in names)


BYTES: dict[str, Any] = {"dtype": "uint8", "dtype_b": "int8"}


@pytest.mark.part(2)
@pytest.mark.parametrize(
    ("options", "first"),
    [
        (BYTES, "matmul_u8s8_amx"),
        ({"dtype": "int8"}, "matmul_s8s8_amx"),
        ({"dtype": "uint8"}, "matmul_u8u8_amx"),
        ({"dtype": "int8", "dtype_b": "uint8"}, "matmul_s8u8_amx"),
        ({"dtype": "bfloat16", "k": 48}, "matmul_bf16_amx"),
        ({**BYTES, "transpose_a": True}, "matmul_u8s8_amx_packA"),
        ({**BYTES, "transpose_b": True, "constant_b": True}, "matmul_u8s8_amx"),
        ({**BYTES, "n": 30, "m": 33, "k": 100, "epilogue": "relu"}, "matmul_u8s8_amx"),
        ({**BYTES, "n": 7, "k": 20}, "matmul_u8s8_amx"),
        ({**BYTES, "n": 3, "k": 20}, "dot_16x4_vnni_packA"),
    ],
)
def test_products_of_matrices_by_the_unit_where_padding_is_little(
    options: dict[str, Any], first: str
) -> None:
    func = ops.matmul_func(**{"n": 32, "m": 48, "k": 64, **options})
    target = CpuTarget.parse("cpu -mcpu=sapphirerapids -threads=1")
    sketch = first_sketch(func, target)
    assert sketch.name == first
    made = [
        sketch.trace.with_row(row.tolist()).apply(func).func
        for row in Rowspace(sketch).sample(np.random.default_rng(0), 2)
    ]
    for scheduled in made:
        code = compile_func(scheduled, target).source("asm")
        assert ("\ttdp" in code) is first.startswith("matmul")
        products = [block for block in re.split(r"\n\.L\w+:", code) if "\ttdp" in block]
        assert not any("tilestored" in block.partition("\ttdp")[0] for block in products)
    found, wanted = arguments(func, 1), expected(func, 1)
    run(made[0], "cpu -threads=1", found)
    np.testing.assert_allclose(
        found[-1].astype(np.float64), wanted[-1].astype(np.float64), rtol=2e-2, atol=1e-2
    )


WIDE = "cpu -mcpu=skylake-avx512"
"""Turned register tiles of 16 lanes are compiled for vectors of 16 lanes."""
CONVOLUTION = {"n": 2, "c": 24, "h": 5, "w": 13, "o": 20}


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("options", "cpu", "first"),
    [
        ({"dtype": "int8"}, "sapphirerapids", "channels_last:matmul_s8s8_amx+rows"),
        ({"dtype": "uint8", "padding": 0}, "sapphirerapids", "channels_last:matmul_u8u8_amx"),
        (
            {"dtype": "bfloat16", "bias": True},
            "sapphirerapids",
            "channels_last:matmul_bf16_amx+rows",
        ),
        ({"dtype": "bfloat16", "stride": 2}, "cooperlake", "channels_last:dot_16x2_bf16+rows"),
        ({"dtype": "int8", "layout": "NHWC"}, "sapphirerapids", "matmul_s8s8_amx+rows"),
        ({"dtype": "int8"}, "cascadelake", "channels_last:dot_16x4_s8s8+rows"),
        ({"dtype": "int8"}, "x86-64-v2", "tiled+rows"),
        ({}, "sapphirerapids", "tiled+rows"),
    ],
)
def test_convolutions_by_units_have_their_channels_last(
    options: dict[str, Any], cpu: str, first: str
) -> None:
    func = ops.conv2d_func(**{**CONVOLUTION, **options})
    target = CpuTarget.parse(f"cpu -mcpu={cpu} -threads=1")
    sketch = first_sketch(func, target)
    assert sketch.name == first
    last = [name for name in planned(func, target) if "channels_last" in name]
    assert all("_amx" in name or "dot_" in name for name in last)
    found, wanted = arguments(func, 1), expected(func, 1)
    for row in Rowspace(sketch).sample(np.random.default_rng(0), 2):
        scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
        if "_amx" in first:
            assert "\ttdp" in compile_func(scheduled, target).source("asm")
        if not runs(WIDE):
            continue
        run(scheduled, "cpu -threads=1", found)
        np.testing.assert_allclose(
            found[-1].astype(np.float64), wanted[-1].astype(np.float64), rtol=2e-2, atol=1e-2
        )


@pytest.mark.parametrize("columns", [32, 40])
def test_dot_products_are_written_along_rows_where_these_lie_together(columns: int) -> None:
    """Columns of the register tile are vectors: no lane is stored by itself, nor where a result is
    cropped."""
    a = te.placeholder((48, 64), "uint8", name="A")
    b = te.placeholder((64, columns), "int8", name="B", constant=True)
    k = te.reduce_axis(64, name="k")

    def product(i: Expr, j: Expr) -> Expr:
        return te.sum(te.cast(a[i, k], "int32") * te.cast(b[k, j], "int32"), axis=k)

    c = te.compute((48, columns), product, name="C")
    func = te.func([a, b, te.compute((columns, 48), lambda j, i: c[i, j] + 1, name="Y")])
    target = CpuTarget.parse("cpu -mcpu=cascadelake -threads=1")
    (sketch,) = sketches_named(func, target, lambda name: name == "dot_16x4_vnni")
    found, wanted = arguments(func, 1), expected(func, 1)
    for row in some_rows(sketch, np.random.default_rng(0), 3):
        scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
        code = compile_func(scheduled, target).source("asm")
        assert not re.search(r"scatter|vpextrd|vextractps", code)
        if not runs(WIDE):
            continue
        run(scheduled, "cpu -threads=1", found)
        np.testing.assert_array_equal(found[-1], wanted[-1])


@pytest.mark.parametrize("rows", [48, 40])
@pytest.mark.parametrize("transposed", [True, False])
def test_what_lies_across_tiles_follows_them(rows: int, transposed: bool) -> None:
    """A result that is transposed, and one to which something is added that is."""
    a = te.placeholder((rows, 64), "int8", name="A")
    b = te.placeholder((64, 32), "int8", name="B")
    r, k = te.placeholder((32, rows), "int32", name="R"), te.reduce_axis(64, name="k")

    def product(i: Expr, j: Expr) -> Expr:
        return te.sum(te.cast(a[i, k], "int32") * te.cast(b[k, j], "int32"), axis=k)

    c = te.compute((rows, 32), product, name="C")
    turned = te.compute((32, rows), lambda i, j: c[j, i] + r[i, j], name="Y")
    plain = te.compute((rows, 32), lambda i, j: c[i, j] + r[j, i], name="Y")
    func = te.func([a, b, r, turned if transposed else plain])
    sketch = first_sketch(func, CpuTarget.parse("cpu -mcpu=sapphirerapids -threads=1"))
    assert sketch.name == "matmul_s8s8_amx"
    found, wanted = arguments(func, 1), expected(func, 1)
    for row in Rowspace(sketch).sample(np.random.default_rng(0), 2):
        scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
        run(scheduled, "cpu -threads=1", found)
        np.testing.assert_array_equal(found[-1], wanted[-1])


def test_a_processor_without_the_unit_is_given_no_tiles() -> None:
    func = ops.matmul_func(32, 48, 64, **BYTES)
    for cpu in ("icelake-server", "sapphirerapids -mattr=-amx-int8", "znver4"):
        names = planned(func, CpuTarget.parse(f"cpu -mcpu={cpu} -threads=1"))
        assert not any("amx" in name for name in names)


def test_rows_of_matrices_are_those_of_images_too() -> None:
    """Pixels of a row of an image are the rows of a matrix, read in place for each step."""
    x = te.placeholder((1, 5, 18, 64), "uint8", name="X")
    w = te.placeholder((2, 3, 64, 16), "int8", name="W")
    i, j, c = te.reduce_axis(2, name="i"), te.reduce_axis(3, name="j"), te.reduce_axis(64, name="c")

    def pixel(n: Expr, h: Expr, v: Expr, o: Expr) -> Expr:
        product = te.cast(x[n, h + i, v + j, c], "int32") * te.cast(w[i, j, c, o], "int32")
        return te.sum(product, axis=(i, j, c))

    func = te.func([x, w, te.compute((1, 4, 16, 16), pixel, name="Y")])
    sketch = first_sketch(func, CpuTarget.parse("cpu -mcpu=sapphirerapids -threads=1"))
    assert sketch.name == "matmul_u8s8_amx"
    (row,) = Rowspace(sketch).sample(np.random.default_rng(0), 1)
    found, wanted = arguments(func, 1), expected(func, 1)
    scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
    to_module(compile_func(scheduled, "cpu -threads=1"))(*found)
    np.testing.assert_array_equal(found[-1], wanted[-1])


@pytest.mark.parametrize(
    ("sizes", "a", "b"),
    [
        ((13, 33, 19), "uint8", "int8"),
        ((16, 32, 16), "uint8", "int8"),
        ((13, 33, 19), "bfloat16", "bfloat16"),
    ],
)
def test_what_instructions_take_packed_is_packed_ahead(
    sizes: tuple[int, int, int], a: str, b: str
) -> None:
    func = ops.matmul_func(*sizes, dtype=a, dtype_b=b, constant_b=True)
    target = CpuTarget.parse("cpu -mcpu=cooperlake -threads=1")
    rng = np.random.default_rng(0)
    made = sketches_named(func, target, lambda name: name.startswith("dot"))
    for sketch in made:
        (row,) = Rowspace(sketch).sample(rng, 1)
        scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
        module = to_module(compile_func(scheduled, "cpu -threads=1"))
        assert module.layouts["B"].startswith("BAba, b = 16, a = ")
        (left, right, found), wanted = arguments(func, 1), expected(func, 1)
        module(left, module.pack("B", right), found)
        np.testing.assert_allclose(
            found.astype(np.float64), wanted[-1].astype(np.float64), rtol=2e-2
        )


@pytest.mark.parametrize(("n", "asked"), [(1 << 24, {"A", "B"}), (1 << 12, set())])
def test_what_comes_from_memory_is_asked_for_ahead(n: int, asked: set[str]) -> None:
    for sketch in sketches(ops.add_relu_func(n), CpuTarget.named("cascadelake", threads=1)):
        hints = {n.buffer.name for n in walk(sketch.func.body) if type(n) is Prefetch}
        assert hints == asked


@pytest.mark.parametrize(
    ("func", "names"),
    [
        (ops.add_relu_func(1 << 20), {"rows", "streamed"}),
        (ops.add_relu_func(1 << 17), {"rows"}),
        (ops.transpose_func(1024, 1024), {"squares", "tiles", "rows"}),
    ],
)
def test_large_results_are_written_past_the_caches(func: Func, names: set[str]) -> None:
    found = sketches(func, CpuTarget.named("cascadelake", threads=1))
    assert {s.name for s in found} == names
    assert {s.name for s in found if s.func.annotations} == names & {"streamed"}


@pytest.mark.parametrize(
    ("mcpu", "dtype", "lanes"),
    [
        ("cascadelake", "int8", 16),
        ("cascadelake", "float16", 16),
        ("cascadelake", "float64", 8),
        ("haswell", "uint8", 8),
        ("haswell", "int16", 8),
    ],
)
def test_squares_of_any_type_fit_the_registers(mcpu: str, dtype: str, lanes: int) -> None:
    func = ops.transpose_func(37, 70, dtype)
    target = CpuTarget.parse(f"cpu -mcpu={mcpu} -threads=1")
    (sketch,) = sketches_named(func, target, lambda name: name == "squares")
    wanted = expected(func, 1)
    for row in Rowspace(sketch).sample(np.random.default_rng(0), ROWS):
        scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
        assert {
            n.extent for n in walk(scheduled.body) if type(n) is For and n.kind is ForKind.VECTOR
        } == {lanes}
        found = arguments(func, 1)
        run(scheduled, "cpu -threads=1", found)
        np.testing.assert_array_equal(found[-1], wanted[-1])


@pytest.mark.parametrize(("width", "lanes"), [(1, set()), (3, {4}), (9, {16}), (16, {16})])
def test_short_rows_are_a_vector_with_a_mask(width: int, lanes: set[int]) -> None:
    a = te.placeholder((5, 2, 33), name="A")
    func = te.func([a, te.compute((5, 2, width), lambda i, j, k: a[i, j, 2 * k], name="B")])
    (sketch,) = sketches(func, CpuTarget.named("cascadelake", threads=1))
    wanted = expected(func, 1)
    for row in Rowspace(sketch).sample(np.random.default_rng(0), ROWS):
        scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
        loops = [n for n in walk(scheduled.body) if type(n) is For]
        assert {n.extent for n in loops if n.kind is ForKind.VECTOR} == lanes
        found = arguments(func, 1)
        run(scheduled, "cpu -threads=1", found)
        np.testing.assert_array_equal(found[-1], wanted[-1])


@pytest.mark.parametrize("internal", [False, True])
def test_results_that_are_computed_together(internal: bool) -> None:
    a = te.placeholder((1 << 10, 1 << 10), name="A")
    b, c = te.compute((1 << 10, 1 << 10), lambda i, j: (a[i, j], a[i, j] * 2), name=("B", "C"))
    k = te.reduce_axis(1 << 10, name="k")
    d = te.compute((1 << 10,), lambda i: te.sum(b[i, k] * c[i, k], axis=k), name="D")
    func = te.func([a, d] if internal else [a, b, c])
    found = sketches(func, CpuTarget.named("cascadelake", threads=1))
    notes = {s.name: s.func.annotations for s in found}
    apart = {"rows": (), "streamed": (("stream", [1, 2]),)}
    assert notes == ({"rows+rows": ()} if internal else apart)


def test_a_result_that_is_read_again_stays_in_the_caches() -> None:
    a = te.placeholder((1 << 20,), name="A")
    b = te.compute((1 << 20,), lambda i: a[i] * 2, name="B")
    c = te.compute((1 << 10,), lambda i: b[i] + 1, name="C")
    found = sketches(te.func([a, b, c]), CpuTarget.named("cascadelake", threads=1))
    assert not any(s.func.annotations for s in found)


def test_a_row_that_all_share_is_not_asked_for() -> None:
    a, b = te.placeholder((64, 100), name="A"), te.placeholder((100,), name="B")
    func = te.func([a, b, te.compute((64, 100), lambda i, j: a[i, j] + b[j], name="C")])
    small = replace(processor("cpu -threads=2"), l2_bytes=1 << 10, l3_bytes=1 << 14)
    found, wanted = arguments(func, 1), expected(func, 1)
    for sketch in sketches(func, small):
        hints = {n.buffer.name for n in walk(sketch.func.body) if type(n) is Prefetch}
        assert hints == {"A"}
        for row in Rowspace(sketch).sample(np.random.default_rng(0), ROWS):
            schedule = sketch.trace.with_row(row.tolist()).apply(func)
            run(schedule.func, small, found)
            np.testing.assert_array_equal(found[-1], wanted[-1])


def test_vectors_of_channels_are_written_along_rows() -> None:
    """The columns of the register tile, not its vectors, lie together in memory."""
    func = ops.conv2d_func(c=4, h=14, w=14, o=16, constant_w=True)
    target = CpuTarget.named("cascadelake", threads=1)
    (sketch,) = sketches_named(func, target, lambda name: name.startswith("tiled_across"))
    for row in Rowspace(sketch).sample(np.random.default_rng(0), ROWS):
        scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
        assert "vscatter" not in compile_func(scheduled, target).source("asm")


@pytest.mark.parametrize(
    ("images", "size", "channels", "along"),
    [
        (1, 14, 64, ["vx", "vo"]),
        (2, 14, 64, ["vx", "vo"]),
        (16, 4, 64, ["vx", "vn", "vo"]),
        (20, 4, 64, ["vx", "vo"]),
        (32, 4, 20, ["vx", "vn"]),
    ],
)
def test_vectors_run_along_what_fills_them(
    images: int, size: int, channels: int, along: list[str]
) -> None:
    """Images of a batch, or channels; what is contiguous comes first though it fill less."""
    func = ops.conv2d_func(images, 8, size, size, channels, constant_w=True)
    target = CpuTarget.named("cascadelake", threads=1)
    assert [v.name for v in vector_variables(in_order(func)[-1], target.vector_bits)] == along
    first = {name.split("+")[0] for name in (s.name for s in sketches(func, target))}
    assert ("tiled_across_packW" in first) is ("vo" in along)
    assert ("tiled_across_packY_pad" in first) is ("vn" in along)


@pytest.mark.parametrize(("channels", "vectors"), [(32, True), (8, True), (24, True), (20, False)])
def test_channels_of_a_group_share_what_they_read(channels: int, vectors: bool) -> None:
    """Register tiles and vectors span them, the latter where a group is whole vectors."""
    func = ops.conv2d_func(2, 16, 7, 7, 4 * channels, groups=4, constant_w=True)
    target = CpuTarget.parse("cpu -mcpu=haswell -threads=1")
    apart = separate_all_digits(Draft(Schedule(func), target)).func
    (main,) = [b for b in in_order(apart) if has_reduction(b)]
    row, *others = vector_variables(main, target.vector_bits)
    group = tile_variables(main, row)[0]
    assert extents(main)[group] == channels
    assert any(v is group for v in others) is vectors
    made = [s.name for s in sketches(func, target)]
    assert "tiled+inside" in made
    assert ("tiled_across_packW+rows" in made) is vectors


@pytest.mark.parametrize("images", [1, 2])
def test_pointwise_convolutions_of_groups_are_tiled(images: int) -> None:
    """Windows of one element leave no variables behind that the reduction would come before."""
    func = ops.conv2d_func(images, 32, 7, 7, 24, 1, padding=0, groups=4, constant_w=True)
    target = CpuTarget.parse("cpu -mcpu=haswell -threads=1")
    assert {"tiled", "tiled_packW"} <= {s.name for s in sketches(func, target)}


def test_products_of_tiny_matrices_have_vectors_of_many() -> None:
    func = ops.matmul_func(8, 8, 8, batch=64)
    target = CpuTarget.named("cascadelake", threads=1)
    along = vector_variables(in_order(func)[-1], target.vector_bits)
    assert [v.name for v in along] == ["vj", "vb"]


def test_packing_reads_rows_from_end_to_end() -> None:
    """A row's piece of every panel before the next row, not the pieces of a panel one by one."""
    func = ops.matmul_func(32, 4096, 64)
    target = CpuTarget.named("cascadelake", threads=1)
    for sketch in sketches_named(func, target, lambda name: name == "tiled_packB"):
        sch = Schedule(sketch.trace.with_row([1] * len(sketch.variables)).apply(func).func)
        label = sch.get_block("B_packed")
        panel, row, element = (set(walk(i.value)) for i in find_block(sch.func, label).iters)
        names = {"row": row, "panel": panel, "element": element}
        order = [n for v in sch.get_loops(label) for n, used in names.items() if v in used]
        assert order == ["row", "panel", "element", "element"]


@pytest.mark.parametrize("rows", [1, 16])
def test_constants_along_vectors_are_packed_ahead_of_calls(rows: int) -> None:
    """That costs no call anything, whether they lie along vectors as they are or not."""
    target = CpuTarget.named("cascadelake", threads=1)
    for transposed in (False, True):
        func = ops.matmul_func(rows, 512, 128, transpose_b=transposed, constant_b=True)
        names = planned(func, target)
        along = [name for name in names if "across" not in name]
        assert along
        assert all("packB" in name and "local" not in name for name in along)
        # Parts of the reduction are for what is read again.
        assert any(name.startswith("blocked") for name in along) is (rows > 1)


def test_sums_of_a_window_over_constants_have_vectors_of_channels() -> None:
    """A single pixel reuses nothing but the image, and its window lies in no one run."""
    func = ops.conv2d_func(c=64, h=2, w=2, o=64, stride=2, padding=1, constant_w=True)
    names = planned(func, CpuTarget.named("cascadelake", threads=1))
    assert any(name.startswith("tiled_packW") for name in names)


@pytest.mark.parametrize("kernel", [5, 7])
def test_a_row_of_a_window_is_taken_at_once(kernel: int) -> None:
    """Loops of so few steps end too soon to be predicted, and a window's values are read again."""
    func = ops.conv2d_func(c=3, h=32, w=32, o=32, kernel=kernel, padding=kernel // 2)
    made = sketches(func, CpuTarget.named("cascadelake", threads=1))
    assert made
    for sketch in made:
        assert sketch.space is not None
        if sketch.name.startswith("tiled"):
            assert [1, kernel] in [list(values) for values in sketch.space.values.values()]


@pytest.mark.parametrize(
    ("kernel", "stride", "fit", "too_many"),
    [
        (7, 2, [(2, 8, 7), (1, 10, 7), (2, 14, 1)], [(2, 10, 7), (1, 16, 7)]),
        (3, 1, [(2, 8, 3), (1, 14, 3), (2, 14, 1)], [(2, 12, 3), (2, 14, 3)]),
    ],
)
def test_what_steps_of_a_window_share_fits_the_registers(
    kernel: int, stride: int, fit: list[Tile], too_many: list[Tile]
) -> None:
    """Vectors, pixels and steps at once of a register tile: measured, they are fast or spill."""
    func = ops.conv2d_func(
        c=16, h=112, w=112, o=64, kernel=kernel, stride=stride, padding=kernel // 2, constant_w=True
    )
    target = CpuTarget.named("cascadelake", threads=1)
    (sketch,) = sketches_named(func, target, lambda name: name == "tiled_across_packW+rows")
    rows = Rowspace(sketch).sample(np.random.default_rng(0), 20_000)
    found = {(int(r[0]), int(r[2]), int(r[6])) for r in rows}
    assert found.issuperset(fit)
    assert found.isdisjoint(too_many)


@pytest.mark.parametrize("kernel", [3, 5])
def test_rows_of_a_window_may_be_taken_at_once(kernel: int) -> None:
    """Of what lies in several rows of a register tile each vector is loaded once then."""
    func = ops.depthwise_conv2d_func(1, 4, 24, 32, kernel, 1, kernel // 2, constant_w=True)
    target = CpuTarget.named("cascadelake", threads=1)
    (sketch,) = sketches_named(func, target, lambda name: name == "tiled+inside")
    depths = set()
    for row in Rowspace(sketch).sample(np.random.default_rng(0), 100):
        scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
        (block,) = (b for b in blocks_in(scheduled.body) if has_reduction(b))
        summed = feeding(block, IterKind.REDUCE)
        around = [s for s in path_to(scheduled, block.label) if type(s) is For]
        taken = [s for s in around if s.var in summed and s.kind is ForKind.UNROLL]
        depths.add(math.prod(s.extent for s in taken if isinstance(s.extent, int)))
    assert depths >= {1, kernel, kernel * kernel}


def test_variants_that_differ_in_their_copies_are_tiled_once() -> None:
    """Steps that are the same object are applied once."""
    found = plans_of(ops.matmul_func(64, 64, 64), CpuTarget.named("cascadelake", threads=1))
    steps = {p.name: (p.start, *p.steps) for p in found}
    ahead, local = steps["tiled_packB"], steps["tiled_packB_local"]
    assert ahead[:-1] == local[:-1]
    assert ahead[-1] != local[-1]
    assert steps["tiled"][:-1] != ahead[:-1]


def parts_of(func: Func) -> set[int]:
    """The parts that the reduction of a matmul is cut into, where B is not packed."""
    target = CpuTarget.named("cascadelake", threads=1)
    (blocked,) = sketches_named(func, target, lambda name: name == "blocked")
    samples = [s for s in blocked.trace if s.op == "sample_categorical"]
    return set(dict(samples[-2].arguments)["candidates"])


def test_rows_that_are_pages_apart_come_from_memory_in_parts_that_are_followed() -> None:
    short = {8, 16, 32}
    assert parts_of(ops.matmul_func(16, 4096, 256)) == short
    assert parts_of(ops.matmul_func(16, 512, 256)) > short  # B is in the cache
    assert parts_of(ops.matmul_func(16, 768, 1024)) > short  # B is not, its rows are 3 KB
    assert parts_of(ops.matmul_func(16, 4096, 2 * 67)) == {67}  # 2 is too short


def test_rows_that_are_pages_apart_may_be_asked_for_ahead() -> None:
    target = CpuTarget.named("x86-64-v3", threads=1)
    func = ops.matmul_func(3, 1040, 264)
    names = [s.name for s in sketches(func, target)]
    assert names.index("blocked") < names.index("blocked_ahead")
    (ahead,) = sketches_named(func, target, lambda name: name == "blocked_ahead")
    row = Rowspace(ahead).sample(np.random.default_rng(0), 1)[0].tolist()
    scheduled = ahead.trace.with_row(row).apply(func).func
    (hint,) = (n for n in walk(scheduled) if type(n) is Prefetch)
    assert hint.buffer.name == "B"
    found, wanted = arguments(func, 1), expected(func, 1)
    run(scheduled, "cpu -threads=1", found)
    np.testing.assert_allclose(found[-1], wanted[-1], rtol=1e-4, atol=1e-4)
    assert "blocked_ahead" not in [s.name for s in sketches(ops.matmul_func(3, 512, 256), target)]


@pytest.mark.parametrize(
    ("func", "inside"),
    [
        (ops.depthwise_conv2d_func(1, 8, 14, 14), True),
        (ops.conv2d_func(1, 8, 14, 14, 8, 3, padding=1), False),  # all channels read all padding
    ],
)
def test_padding_that_each_channel_has_for_itself_is_made_where_it_is_read(
    func: Func, inside: bool
) -> None:
    found = {s.name: s for s in sketches(func, CpuTarget.named("cascadelake", threads=1))}
    assert inside == any(name.endswith("+inside") for name in found)
    if inside:
        assert type(found["tiled+rows"].func.body) is Seq
        made = found["tiled+inside"].func
        assert type(made.body) is For
        (block,) = (b for b in blocks_in(made.body) if b.label.name == "Y_pad")
        *_, vectors, lanes = (s for s in path_to(made, block.label) if type(s) is For)
        assert (vectors.kind, lanes.kind) == (ForKind.UNROLL, ForKind.VECTOR)
        assert block.writes[0].buffer.align == ((2, 16, 0),), "rows begin with a line of the cache"


def test_stages_that_are_read_row_by_row_are_computed_there() -> None:
    target = CpuTarget.named("cascadelake", threads=1)
    found = {s.name: s for s in sketches(FORMULAS["edges_of_channels"](), target)}
    func = found["rows"].func
    loops = {b.label.name: loops_around(func, b.label.name) for b in blocks_in(func.body)}
    tile, row, channel = loops["Y"][:3]
    assert tile.kind is ForKind.PARALLEL
    assert (channel.extent, row.kind) == (3, ForKind.SERIAL)
    for name in ("Ax", "Dn"):
        assert loops[name][:2] == [tile, row], "not again for each channel"
    assert loops["Grey"][0] is tile, "the window of `Dn` has rows that several rows read"
    assert row not in loops["Grey"]


def test_stages_whose_windows_are_of_several_rows_are_not_computed_in_one() -> None:
    target = CpuTarget.named("cascadelake", threads=1)
    found = {s.name for s in sketches(FORMULAS["clamped_stencils"](), target)}
    assert found == {"tiled", "apart", "inside"}


def test_stages_whose_rows_wrap_around_are_computed_on_their_own() -> None:
    target = CpuTarget.named("cascadelake", threads=1)
    func = FORMULAS["wrapped_stencils"]()
    assert {s.name for s in sketches(func, target)} == {"apart", "inside"}
    x = te.placeholder((23, 37), "float32", name="X")
    a = te.compute((23, 37), lambda i, j: x[i, j] + x[i, (j + 1) % 37], name="A")
    b = te.compute((23, 37), lambda i, j: a[i, j] + a[i, (j + 1) % 37], name="B")
    assert "rows" in {s.name for s in sketches(te.func([x, b]), target)}, "columns may"


@pytest.mark.parametrize(("count", "least"), [(1, 2), (2, 4), (3, 8), (4, 12), (6, 12)])
def test_programs_of_several_groups_have_the_sketches_that_apply(count: int, least: int) -> None:
    """The first two variants of each pipeline are refused: nothing of a row moves with rows."""
    target = CpuTarget.named("cascadelake", threads=1)
    names = [s.name for s in sketches(pipelines(count), target)]
    assert len(names) == least
    assert names[0] == "+".join(["apart"] * count)
    assert names[1] == "+".join([*["apart"] * (count - 1), "inside"])
    assert {part for name in names for part in name.split("+")} == {"apart", "inside"}


def test_a_sketch_behind_many_refused_ones_is_made_alone() -> None:
    target, func = CpuTarget.named("cascadelake", threads=1), pipelines(4)
    generator = "+".join(["pipeline(form=inside)", *["pipeline(form=apart)"] * 3])
    assert generator in {s.generator for s in sketches(func, target)}
    (alone,) = sketches(func, target, {generator})
    assert alone.generator == generator


def test_all_ways_to_part_a_program_have_sketches() -> None:
    q, k, v = (te.placeholder((64, 16), "float32", name=n) for n in "QKV")
    w = te.placeholder((16, 16), "float32", name="W")
    y, r = ops.attention(q, k, v, name="Y"), te.reduce_axis(16, "r")
    z = te.compute((64, 16), lambda i, j: te.sum(y[i, r] * w[r, j], axis=r), name="Z")
    found = sketches(te.func([q, k, v, w, z]), CpuTarget.named("cascadelake", threads=1))
    fused = ["attention" in s.name for s in found]
    assert fused == [True, False] * (len(found) // 2)
    assert len(found) == MAX_SKETCHES


def pipelines(count: int) -> Func:
    """Pipelines of two stages, that have nothing to do with each other."""
    made = [pipeline(n) for n in range(count)]
    return te.func([x for x, _ in made] + [y for _, y in made])


def pipeline(number: int) -> tuple[te.Tensor, te.Tensor]:
    x = te.placeholder((300,), "float32", name=f"X{number}")
    a = te.compute((298,), lambda i: x[i] * x[i + 1] + x[i + 2] * x[i + 1], name=f"A{number}")
    return x, te.compute((296,), lambda i: a[i] * a[i + 1] + a[i + 2], name=f"Y{number}")


def loops_around(func: Func, name: str) -> list[For]:
    (block,) = (b for b in blocks_in(func.body) if b.label.name == name)
    return [s for s in path_to(func, block.label) if type(s) is For]


@pytest.mark.parametrize("name", ["gravity", "drag_of_pairs", "colour_matrix"])
def test_vectors_along_interleaved_points_hold_all_their_columns(name: str) -> None:
    func = FORMULAS[name]()
    for sketch in sketches(func, CpuTarget.parse("cpu -mcpu=haswell -threads=1")):
        block = next(b for b in blocks_in(sketch.func.body) if has_reduction(b))
        kinds = {s.var: s.kind for s in path_to(sketch.func, block.label) if type(s) is For}
        *_, rows, columns = [i.value for i in block.iters if i.kind is IterKind.SPATIAL]
        assert {kinds[v] for v in walk(columns) if v in kinds} == {ForKind.UNROLL}
        assert ForKind.VECTOR in {kinds[v] for v in walk(rows) if v in kinds}


@pytest.mark.part(2)
@pytest.mark.parametrize("name", ["gravity", "chroma"])
@pytest.mark.parametrize("cpu", ["x86-64-v2", "haswell", "cascadelake"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_columns_are_interleaved_in_vectors_of_any_width(name: str, cpu: str, dtype: str) -> None:
    func = parse(str(FORMULAS[name]()).replace("float32", dtype))
    target = CpuTarget.parse(f"cpu -mcpu={cpu} -threads=1")
    for sketch in sketches(func, target):
        for row in some_rows(sketch, np.random.default_rng(0), 2):
            scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
            compile_func(scheduled, target)
            stored = [n.indices[0] for n in walk(lower(scheduled, target)) if type(n) is Store]
            vectors = [index for index in stored if type(index) is Ramp]
            assert vectors
            assert all(type(r.stride) is Const and r.stride.value == 1 for r in vectors)


@pytest.mark.parametrize("name", ["complex_product", "chroma"])
def test_few_columns_of_a_spatial_block_are_written_without_scatters(name: str) -> None:
    func = FORMULAS[name]()
    target = CpuTarget.parse("cpu -mcpu=cascadelake -threads=1")
    (sketch,) = sketches(func, target)
    assert sketch.name == "columns"
    for row in some_rows(sketch, np.random.default_rng(0), 3):
        schedule = sketch.trace.with_row(row.tolist()).apply(func)
        text = compile_func(schedule.func, target).source("asm")
        assert not re.search(r"gather|scatter", text)


def test_a_large_input_that_does_not_move_with_the_reduction_has_sketches() -> None:
    """The nearest of 16 numbers: the input is larger than the second cache."""
    target = processor("cpu -mcpu=x86-64-v3 -threads=1")
    X, c = te.placeholder((1024, 1024), name="X"), te.placeholder((16,), name="c")
    k = te.reduce_axis(16, name="k")
    Y = te.compute((1024, 1024), lambda i, j: te.min(te.abs(X[i, j] - c[k]), axis=k), name="Y")
    assert sketches(te.func([X, c, Y]), target)


@pytest.mark.parametrize(("terms", "counts"), [(1, [1, 2, 4, 8]), (12, [1, 2, 4]), (100, [1])])
def test_long_bodies_are_not_unrolled(terms: int, counts: list[int]) -> None:
    """LLVM takes long for them, and one copy has enough to do at once."""
    x = te.placeholder((8, 400), name="X")

    def element(i: Expr, j: Expr) -> Expr:
        return functools.reduce(lambda a, b: a * b, (te.exp(x[i, j] * n) for n in range(terms)))

    func = te.func([x, te.compute((8, 400), element)], name="f")
    sketch = first_sketch(func, processor("cpu -mcpu=znver4 -threads=1"))
    (step,) = (s for s in sketch.trace.steps if s.op == "sample_categorical")
    assert dict(step.arguments)["candidates"] == tuple(counts)

"""Builds without a record: odd, tiny and empty programs in every dtype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.autotune.search.candidates import ENUMERATED, Rowspace
from tilewright.autotune.search.search import Search, SearchConfig
from tilewright.autotune.search.unmeasured import default_trace, model_trace
from tilewright.schedule import Trace
from tilewright.schedule.find import blocks_in
from tilewright.target import CpuTarget, Target
from tilewright.tir.ir import For, ForKind, Func
from tilewright.tir.visit import walk

from .checking import arguments, expected, planned

CASES: list[tuple[str, dict[str, Any]]] = [
    ("matmul_func", {"n": 0, "m": 4, "k": 3}),
    ("matmul_func", {"n": 3, "m": 0, "k": 2}),
    ("matmul_func", {"n": 3, "m": 4, "k": 0}),
    ("matmul_func", {"n": 1, "m": 1, "k": 1}),
    ("matmul_func", {"n": 7, "m": 1, "k": 129}),
    ("matmul_func", {"n": 5, "m": 19, "k": 7, "dtype": "bfloat16"}),
    ("matmul_func", {"n": 5, "m": 19, "k": 7, "dtype": "float16"}),
    ("matmul_func", {"n": 5, "m": 19, "k": 7, "dtype": "float64"}),
    ("int8_matmul_func", {"n": 1, "m": 1, "k": 1}),
    ("add_relu_func", {"n": 0}),
    ("add_relu_func", {"n": 1}),
    ("softmax_func", {"n": 0, "m": 5}),
    ("softmax_func", {"n": 1, "m": 1}),
    ("softmax_func", {"n": 2, "m": 17}),
    ("softmax_func", {"n": 3, "m": 19, "dtype": "bfloat16"}),
    ("layer_norm_func", {"n": 0, "m": 4}),
    ("layer_norm_func", {"n": 1, "m": 1}),
    ("layer_norm_func", {"n": 3, "m": 19, "dtype": "float16"}),
    ("transpose_func", {"n": 0, "m": 3}),
    ("transpose_func", {"n": 1, "m": 33}),
    ("reduction_func", {"n": 0, "m": 3}),
    ("reduction_func", {"n": 3, "m": 0}),
    ("reduction_func", {"n": 1, "m": 1, "axis": 0}),
    ("conv2d_func", {"c": 1, "h": 1, "w": 1, "o": 1}),
    ("conv2d_func", {"c": 3, "h": 7, "w": 5, "o": 13, "dilation": 2, "padding": 2}),
    ("conv2d_func", {"c": 4, "h": 7, "w": 5, "o": 6, "groups": 2}),
    ("conv2d_func", {"c": 1, "h": 8, "w": 8, "o": 4, "kernel": 1, "padding": 0, "dtype": "int8"}),
    ("depthwise_conv2d_func", {"c": 1, "h": 3, "w": 3}),
    ("pool2d_func", {"c": 1, "h": 2, "w": 2}),
    ("attention_func", {"batch": 1, "heads": 1, "sequence": 1, "dim": 1}),
    ("attention_func", {"batch": 2, "heads": 1, "sequence": 5, "dim": 3}),
]


@pytest.mark.part(3)
@pytest.mark.parametrize(("name", "options"), CASES)
def test_default_schedule(name: str, options: dict[str, Any]) -> None:
    func = getattr(ops, name)(**options)
    wanted, found = expected(func, 1), arguments(func, 1)
    module = tw.build(func, allow=("default",))
    assert module.origin.kind == "default"
    module(*found)
    tolerance = 2e-2 if "16" in options.get("dtype", "") else 2e-4
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(
            a.astype(np.float64), b.astype(np.float64), rtol=tolerance, atol=tolerance
        )


def several(products: int) -> te.Func:
    """Products of small matrices, and one of padded 1 by 1 images, whose register tile is tiny."""
    params, results = [], []
    for n in range(products):
        a, b = te.placeholder((8, 8), name=f"a{n}"), te.placeholder((7, 8), name=f"b{n}")
        results.append(product_of(a, b, f"c{n}"))
        params += [a, b]
    x, w = te.placeholder((3, 1, 1), name="x"), te.placeholder((1, 3, 2, 1), name="w")

    def in_padding(c: te.Expr, i: te.Expr, j: te.Expr) -> te.Expr:
        inside = (i >= 2) & (i < 3) & (j >= 2) & (j < 3)
        return te.select(inside, x[c, i - 2, j - 2], 0.0)

    padded = te.compute((3, 5, 5), in_padding, name="p")
    c, i, j = te.reduce_axis(3, "c"), te.reduce_axis(2, "i"), te.reduce_axis(1, "j")
    image = te.compute(
        (1, 3, 5),
        lambda o, h, v: te.sum(padded[c, h + i * 2, v + j * 2] * w[o, c, i, j], axis=(c, i, j)),
        name="image",
    )
    return te.func([*params, x, w, *results, image], name="several")


def product_of(a: te.Tensor, b: te.Tensor, name: str) -> te.Tensor:
    k = te.reduce_axis(8, f"k_{name}")
    return te.compute((8, 7), lambda i, j: te.min(a[i, k] * b[j, k], axis=k), name=name)


def test_rows_are_found_for_many_nests_of_which_one_has_none_worth_measuring() -> None:
    func = several(5)
    search = Search(func, CpuTarget.parse("cpu -mcpu=x86-64-v3 -threads=2"))
    for sketch in search.sketches:
        space = Rowspace(sketch)
        rows = space.sample(np.random.default_rng(0), 50)
        assert space.size > ENUMERATED
        assert len(rows) == 50
        assert not space.check(rows).any()
        for row in rows[:2].tolist():
            sketch.trace.with_row(row).apply(func)


@pytest.mark.parametrize("way", ["default", "model"])
def test_many_nests_of_which_one_has_no_row_worth_measuring_are_built(way: str) -> None:
    func = several(5)
    wanted, found = expected(func, 1), arguments(func, 1)
    tw.build(func, "cpu -threads=2", allow=(way,))(*found)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def test_a_program_of_many_nests_has_sketches() -> None:
    """Each nest has variants: all combinations of them would fill the memory."""
    assert len(planned(several(60), CpuTarget.parse("cpu -mcpu=x86-64-v3 -threads=2"))) > 1


def test_a_program_for_which_no_row_is_legal_is_left_as_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Rowspace, "sample", lambda self, rng, count: np.empty((0, 0), np.int64))
    func = ops.matmul_func(4, 4, 4)
    assert default_trace(func, CpuTarget.parse("cpu -mcpu=x86-64-v3 -threads=2")) == Trace()
    assert "left as written" in caplog.text


def test_default_schedule_of_a_reduction_of_a_single_element() -> None:
    n = tw.te.scalar("float32", name="n")
    r, s = tw.te.reduce_axis(5, name="r"), tw.te.reduce_axis(1, name="s")
    top = tw.te.compute((), lambda: tw.te.max(n, axis=r), name="top")
    out = tw.te.compute((3, 2), lambda i, j: tw.te.min(top[()], axis=s), name="out")
    found = np.empty((3, 2), np.float32)
    tw.build(tw.te.func([n, out], name="single"), allow=("default",))(1.5, found)
    np.testing.assert_array_equal(found, np.full((3, 2), 1.5, np.float32))


@pytest.mark.parametrize("strides", [None, (26, 1), (31, 1)])
def test_windows_of_rows_with_strides_of_their_own(strides: tuple[int, int] | None) -> None:
    x = te.placeholder((33, 26), name="X", strides=strides)
    r, c = te.reduce_axis(2, "r"), te.reduce_axis(2, "c")
    y = te.compute((16, 13), lambda i, j: te.max(x[i * 2 + r, j * 2 + c], axis=(r, c)), name="Y")
    module = tw.build(te.func([x, y], name="pool"), target="cpu -threads=1", allow=("default",))
    given = np.random.default_rng(0).random((33, 31), np.float32)[:, :26]
    found = np.zeros((16, 13), np.float32)
    module(given if strides == (31, 1) else given.copy(), found)
    assert (found == given[:32].reshape(16, 2, 13, 2).max(axis=(1, 3))).all()


@pytest.mark.parametrize(
    "func", [ops.matmul_func(333, 250, 117), ops.softmax_func(300, 1000)], ids=["matmul", "softmax"]
)
def test_a_choice_is_hardly_slower_than_what_a_search_asks_for_first(func: Func) -> None:
    """It looks at fewer sketches, and draws other rows."""
    target = CpuTarget.parse("cpu -mcpu=cascadelake -threads=4")
    config = SearchConfig(random=0.0, temperature=0.0)
    for choose, model in ((model_trace, True), (default_trace, False)):
        search = Search(func, target, config=replace(config, model=model))
        (first,) = search.ask(1)
        estimate = search.target_model.estimate(choose(func, target).apply(func).func, target)
        rows = np.array([estimate.features, first.features], np.float32)
        chosen, asked = search.model.margin(rows)
        assert chosen <= asked + np.log2(1.05)


@pytest.mark.parametrize("choose", [model_trace, default_trace])
def test_loops_of_little_work_are_run_by_one_thread(choose: Callable[..., Trace]) -> None:
    """Teams are for loops that take longer than a team to begin. What is packed ahead of calls is
    none of these."""
    target = CpuTarget.parse("cpu -mcpu=cascadelake -threads=4")

    def teams(func: Func, target: Target = target) -> int:
        return sum(step.op == "parallel" for step in choose(func, target))

    assert teams(ops.add_relu_func(1 << 10)) == 0
    assert teams(ops.add_relu_func(1 << 22)) == 1
    assert teams(ops.matmul_func(4, 64, 64, constant_b=True)) == 1
    assert teams(ops.matmul_func(400, 640, 64, constant_b=True)) == 2
    one = CpuTarget.parse("cpu -mcpu=cascadelake -threads=1")
    assert teams(ops.add_relu_func(1 << 10), one) == 1


def test_a_small_loop_beside_a_large_one_has_no_team_either() -> None:
    a, b = te.placeholder((128, 128), name="a"), te.placeholder((128, 128), name="b")
    x = te.placeholder((100,), name="x")
    product, few = ops.matmul(a, b), te.compute((100,), lambda i: x[i] + 1.0, name="few")
    func = te.func([a, b, x, product, few], name="both")
    target = CpuTarget.parse("cpu -mcpu=cascadelake -threads=4")
    trace = model_trace(func, target)
    scheduled = trace.apply(func).func
    parallel = {
        region.buffer.name
        for loop in walk(scheduled.body)
        if type(loop) is For and loop.kind is ForKind.PARALLEL
        for block in blocks_in(loop.body)
        for region in block.writes
    }
    assert any("matmul" in name for name in parallel)
    assert not any("few" in name for name in parallel)

"""`winograd`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tilewright import ops
from tilewright.base.errors import ScheduleError
from tilewright.codegen.detect import resolve
from tilewright.codegen.lower import lower
from tilewright.schedule import Schedule
from tilewright.schedule.minimal_filtering import ALGORITHMS
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Binary, Func, Op, Select, Var
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify
from tilewright.tir.visit import walk

from .conftest import Golden
from .machinery import check_meaning, inputs, run


def conv(dtype: str = "float64", **options: Any) -> Func:
    sizes: dict[str, Any] = {"n": 1, "c": 2, "h": 4, "w": 4, "o": 3, "dtype": dtype}
    return ops.conv2d_func(**sizes | options)


def image(
    body: Callable[..., Any], *, window: int = 3, dtype: str = "float64", size: int = 6
) -> Func:
    """A sum over (c, ry, rx) of `body(X, W, y, x, c, ry, rx)`, of X (2, size, size)."""
    x = te.placeholder((2, size, size), dtype, name="X")
    w = te.placeholder((2, window, window), dtype, name="W")
    c, ry, rx = (te.reduce_axis(n, name=k) for n, k in ((2, "c"), (window, "ry"), (window, "rx")))
    out = size - window + 1
    y = te.compute(
        (out, out), lambda i, j: te.sum(body(x, w, i, j, c, ry, rx), axis=[c, ry, rx]), name="Y"
    )
    return te.func([x, w, y], name="image")


def plain(x: Any, w: Any, i: Any, j: Any, c: Any, ry: Any, rx: Any) -> Any:
    return x[c, i + ry, j + rx] * w[c, ry, rx]


def test_tiles_of_two(golden: Golden) -> None:
    golden("winograd/two", image(plain), lambda s: s.winograd(s.get_block("Y"), 2))


def test_tiles_of_four_that_do_not_divide(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        products = sch.winograd(sch.get_block("Y"), 4)[4]
        sch.fuse(*sch.get_loops(products)[:2])

    golden("winograd/four", conv(h=5, w=6), script)


@pytest.mark.parametrize("name", ["G", "Bt", "At"])
@pytest.mark.parametrize("tile", ALGORITHMS)
def test_tables_are_of_the_shapes_of_the_algorithm(tile: int, name: str) -> None:
    algorithm = ALGORITHMS[tile]
    wanted = {"G": (tile + 2, 3), "Bt": (tile + 2, tile + 2), "At": (tile, tile + 2)}[name]
    transform = dict(zip(("G", "Bt", "At"), algorithm, strict=True))[name]
    assert np.array(transform.rows).shape == wanted
    assert sorted(k for g in transform.groups for k in g) == list(range(wanted[1]))


@pytest.mark.parametrize("tile", ALGORITHMS)
def test_the_algorithm_is_exact_over_the_reals(tile: int) -> None:
    """Y = A^T [(G g) * (B^T d)] for each pair of unit vectors, which is bilinear in g and d."""
    g, bt, at = (np.array(t.rows) for t in ALGORITHMS[tile])
    for k in range(3):
        for n in range(tile + 2):
            found = at @ (g[:, k] * bt[:, n])
            wanted = [float(n == m + k) for m in range(tile)]
            np.testing.assert_allclose(found, wanted, atol=1e-15)


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(
    "options",
    [
        {"n": 2, "h": 7, "w": 9},
        {"h": 1, "w": 1},
        {"h": 3, "w": 11, "padding": (0, 1)},
        {"layout": "NHWC", "h": 6, "w": 5},
        {"groups": 2, "c": 4, "o": 4},
        {"groups": 3, "c": 3},
        {"bias": True, "epilogue": "relu", "h": 5},
    ],
)
def test_convolutions_keep_their_meaning(options: dict[str, Any], tile: int) -> None:
    func = conv(**options)
    sch = Schedule(func)
    block = sch.get_block("Y_sum" if "bias" in options else "Y")
    assert len(sch.winograd(block, tile)) == 6
    verify(sch.func)
    check_meaning(func, sch.func)


@pytest.mark.parametrize("tile", [2, 4])
def test_padding_by_a_guard(tile: int) -> None:
    func = conv(h=5, w=7)
    sch = Schedule(func)
    sch.compute_inline(sch.get_block("Y_pad"))
    sch.winograd(sch.get_block("Y"), tile)
    verify(sch.func)
    check_meaning(func, sch.func)


def test_any_order_of_factors_and_dimensions() -> None:
    func = image(lambda x, w, i, j, c, ry, rx: w[c, rx, ry] * x[c, rx + j, ry + i])
    sch = Schedule(func)
    sch.winograd(sch.get_block("Y"), 2)
    verify(sch.func)
    check_meaning(func, sch.func)


def test_a_factor_that_is_computed() -> None:
    func = image(lambda x, w, i, j, c, ry, rx: (x[c, i + ry, j + rx] * 2 + 1) * w[c, ry, rx])
    sch = Schedule(func)
    sch.winograd(sch.get_block("Y"), 4)
    check_meaning(func, sch.func)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("tile", "allowed"), [(2, 3e-6), (4, 3e-5)])
def test_narrow_floats(dtype: str, tile: int, allowed: float) -> None:
    """Sums are of float32 whatever the operands are; results are rounded to their dtype."""
    func = conv(dtype, c=8, h=7, w=6)
    sch = Schedule(func)
    sch.winograd(sch.get_block("Y" if dtype == "float32" else "Y_sum"), tile)
    expected, found = (run(f)["Y"].astype(np.float64) for f in (func, sch.func))
    step = {"float32": 0.0, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    assert np.max(np.abs(found - expected)) <= (allowed + step) * np.max(np.abs(expected))


def test_no_product_is_by_zero_or_one() -> None:
    sch = Schedule(conv())
    sch.winograd(sch.get_block("Y"), 4)
    constants = {
        side.value
        for n in walk(sch.func)
        if type(n) is Binary and n.op is Op.MUL and n.dtype == "float64"
        for side in (n.a, n.b)
        if hasattr(side, "value") and isinstance(side.value, float)
    }
    assert constants
    assert constants.isdisjoint({0.0, 1.0, -1.0})


def test_unrolled_transforms_are_sums_alone() -> None:
    """Nothing is chosen any more once the places in a tile are constants."""
    sch = Schedule(image(plain))
    block = sch.get_block("Y")
    labels = sch.winograd(block, 4)
    for label in labels:
        if label.name != "Y_tiles":
            i, j, *others = sch.get_loops(label)
            tiles = label.name.endswith("tiles")
            unrolled(sch, others if tiles else [j, *others], [i, j] if tiles else [i])
    (y, i), (x, j) = (sch.split(loop, factors=[None, 4]) for loop in sch.get_loops(block))
    unrolled(sch, [y, x], [i, j])
    lowered = lower(sch.func, resolve("cpu -threads=1"))
    assert not [n for n in walk(lowered) if type(n) is Select]


def unrolled(sch: Schedule, outer: Sequence[Var], inner: Sequence[Var]) -> None:
    sch.reorder(*outer, *inner)
    for loop in inner:
        sch.unroll(loop)


@pytest.mark.parametrize(
    ("func", "message"),
    [
        (conv(stride=2), "does not slide a window of 3 by 3"),
        (conv(dilation=2, padding=2), "does not slide a window of 3 by 3"),
        (conv(kernel=5, padding=2), "does not slide a window of 3 by 3"),
        (conv(kernel=1, padding=0), "does not slide a window of 3 by 3"),
        (
            image(lambda x, w, i, j, c, ry, rx: x[c, i + ry, j + rx] * w[c, ry, rx] * ry),
            "does not slide",
        ),
        (image(lambda x, w, i, j, c, ry, rx: x[c, i + rx, j + rx] * w[c, ry, rx]), "not slide"),
        (image(lambda x, w, i, j, c, ry, rx: x[c, i + ry, j + rx] * w[c, ry, i % 3]), "not slide"),
        (image(lambda x, w, i, j, c, ry, rx: x[c, i + ry, j + rx] + w[c, ry, rx]), "of products"),
        (image(plain, dtype="int32"), "sums int32; the transforms have fractions"),
    ],
)
def test_what_is_no_such_convolution(func: Func, message: str) -> None:
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match=message):
        sch.winograd(sch.get_block("Y"), 2)
    assert sch.func is func


def test_other_sizes_of_tiles() -> None:
    sch = Schedule(conv())
    with pytest.raises(ScheduleError):
        sch.winograd(sch.get_block("Y"), 3)


def test_what_is_no_sum() -> None:
    sch = Schedule(conv())
    with pytest.raises(ScheduleError):
        sch.winograd(sch.get_block("Y_pad"), 2)


@pytest.mark.parametrize("step", ["split", "parallel", "moved"])
def test_loops_that_are_scheduled(step: str) -> None:
    sch = Schedule(conv())
    block = sch.get_block("Y")
    loops = sch.get_loops(block)
    if step == "split":
        sch.split(loops[1], factors=[None, 2])
    elif step == "parallel":
        sch.parallel(loops[1])
    else:
        sch.compute_at(sch.get_block("Y_pad"), loops[0])
    with pytest.raises(ScheduleError):
        sch.winograd(block, 2)


def test_a_sum_that_starts_elsewhere() -> None:
    text = str(image(plain)).replace("Y[vi, vj] = 0.0", "Y[vi, vj] = 1.0")
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError):
        sch.winograd(sch.get_block("Y"), 2)


def test_what_is_no_number_stays_in_its_tile() -> None:
    func = image(plain, size=10)
    sch = Schedule(func)
    sch.winograd(sch.get_block("Y"), 4)
    found = []
    for f in (func, sch.func):
        arguments, outputs = inputs(f, 0)
        arguments[0][:, 1, 1] = np.nan
        interpret(f, *arguments)
        found.append(outputs["Y"])
    expected, got = found
    assert np.isnan(expected).sum() == 4
    assert np.isnan(got[:4, :4]).all()
    np.testing.assert_allclose(got[4:], expected[4:], rtol=1e-11)
    np.testing.assert_allclose(got[:, 4:], expected[:, 4:], rtol=1e-11)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("with T.init", "T.where(i < 3)\n            with T.init", "loops around block Y"),
        ("= Y[vi, vj] + X", "= T.maximum(Y[vi, vj], X", "sum of products"),
        ("Y[vi, vj] = 0.0", "Y[vi, vj] = X[0, vi, vj]", "starts with zero"),
    ],
)
def test_what_is_guarded_or_no_sum_from_zero(old: str, new: str, message: str) -> None:
    text = str(image(plain))
    assert old in text
    text = "\n".join(
        line.replace(old, new) + (")" if "maximum(" in line.replace(old, new) else "")
        for line in text.splitlines()
    )
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError, match=message):
        sch.winograd(sch.get_block("Y"), 2)


def test_larger_tiles_round_more() -> None:
    two = Schedule(ops.conv2d_func(1, 2, 4, 4, 2))
    assert (two.trace.inexact, two.trace.error_factor) == ((), 1.0)
    four = two.copy()
    for sch, tile in ((two, 2), (four, 4)):
        sch.winograd(sch.get_block("Y"), tile)
        assert sch.trace.inexact == ("winograd",)
    assert 1 < two.trace.error_factor < four.trace.error_factor

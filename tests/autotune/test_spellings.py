"""The same steps in another order have the same sketches, whose candidates compute the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilewright import ops
from tilewright.autotune.measure.numeric_check import check_outputs, tolerance_of
from tilewright.autotune.search.sketch import Sketch, sketches
from tilewright.tir import te
from tilewright.tir.ir import Func

from ..hosts import processor
from .checking import arguments, expected, run, sketches_named, some_rows
from .spellings import (
    ATTENTION,
    DIM,
    FUSED_ALONE,
    HEADS,
    KEYS,
    LAYER_NORM,
    LENGTH,
    MOMENTS,
    QUERIES,
    ROWS,
    SOFTMAX,
    layer_norm,
    rms_norm,
    softmax,
)

LONG = replace(processor("cpu -threads=2"), l1_bytes=1 << 12, l2_bytes=1 << 13)
"""A processor whose caches hold no whole row."""
BANDS = replace(processor("cpu -threads=2"), l2_bytes=1 << 18)
"""A processor whose second cache holds no band of whole rows."""


def check(func: Func, made: list[Sketch], count: int) -> None:
    """Run candidates of sketches, and compare with the program."""
    wanted, rng = expected(func, 1), np.random.default_rng(0)
    for sketch in made:
        for row in some_rows(sketch, rng, count):
            found = arguments(func, 1)
            run(sketch.trace.with_row(row.tolist()).apply(func).func, "cpu -threads=2", found)
            result = check_outputs(found[-1:], wanted[-1:], ["Y"], tolerance_of(func))
            assert result.passed, f"{sketch.generator} {row.tolist()}: {result.error}"


def generators(made: list[Sketch]) -> list[str]:
    return [sketch.generator for sketch in made]


@pytest.mark.part(3)
@pytest.mark.parametrize("options", SOFTMAX.values(), ids=SOFTMAX)
def test_softmax(options: dict[str, str]) -> None:
    func = softmax(**options)
    made = list(sketches(func, LONG))
    standard = sketches(ops.softmax_func(ROWS, LENGTH), LONG)
    assert generators(made) == generators(list(standard))
    check(func, made[:1], 2)


@pytest.mark.part(3)
@pytest.mark.parametrize("options", LAYER_NORM.values(), ids=LAYER_NORM)
def test_layer_norm(options: dict[str, str]) -> None:
    func = layer_norm(**options)
    made = list(sketches(func, LONG))
    standard = sketches(ops.layer_norm_func(ROWS, LENGTH), LONG)
    assert generators(made) == generators(list(standard))
    check(func, made[:1], 2)


@pytest.mark.parametrize("options", MOMENTS.values(), ids=MOMENTS)
def test_layer_norm_by_moments(options: dict[str, str]) -> None:
    """Neither statistic needs the other, which is what pieces are for."""
    func = layer_norm(**options)
    made = list(sketches(func, LONG))
    assert generators(made) == ["rows(prefetch=true)", "rows"]
    check(func, made, 1)


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_rms_norm(stored: bool, divided: bool) -> None:
    """One statistic of a row: there is nothing to find with it."""
    func = rms_norm(stored=stored, divided=divided)
    made = list(sketches(func, LONG))
    assert generators(made) == ["rows(prefetch=true)", "rows"]
    check(func, made[:1], 2)


def fused(func: Func) -> list[Sketch]:
    """The sketches that fuse an attention."""
    return list(sketches_named(func, BANDS, lambda name: "attention" in name))


@pytest.mark.part(3)
@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str) -> None:
    func = ATTENTION[name].func()
    q = te.placeholder((1, HEADS, QUERIES, DIM), "float32", name="Q")
    k, v = (te.placeholder((1, HEADS, KEYS, DIM), "float32", name=n) for n in "KV")
    standard = te.func([q, k, v, ops.attention(q, k, v, name="Y")])
    made = fused(func)
    assert generators(made) == generators(fused(standard))
    assert len(made) == 2
    number = list(ATTENTION).index(name)
    check(func, [made[number % len(made)]], 1)


@pytest.mark.parametrize("name", FUSED_ALONE)
def test_attention_with_exponentials_computed_twice(name: str) -> None:
    func = FUSED_ALONE[name].func()
    made = fused(func)
    assert generators(made) == ["fused_attention(pack=true)"]
    check(func, made, 1)

"""Constant operands that a schedule packs are packed ahead of the calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewright import build_library, ops, te
from tilewright.codegen.ahead import packed_ahead
from tilewright.codegen.build import compile_func, to_module
from tilewright.errors import ArgumentError
from tilewright.runtime import load
from tilewright.schedule import Schedule
from tilewright.tir.ir import Func

from .machinery import SERIAL


def matmul(n: int = 5, m: int = 19, k: int = 7, *, constant: bool = True) -> Func:
    return ops.matmul_func(n, m, k, constant_b=constant)


def packed(func: Func, layout: str = "BAb", factors: tuple[int, ...] = (8,)) -> Schedule:
    """The operand B packed, the copy in vectors where it has an inner part."""
    sch = Schedule(func)
    copy = sch.pack(sch.get_block(0), 1, layout, list(factors))
    if factors:
        sch.vectorize(sch.get_loops(copy)[-1])
    return sch


@pytest.mark.parametrize(
    ("layout", "factors", "shape"),
    [
        ("BAb", (8,), (3, 7, 8)),
        ("BAba", (8, 2), (3, 4, 8, 2)),
        ("BA", (), (19, 7)),
        ("BAb", (1,), (19, 7, 1)),
    ],
)
def test_the_kernel_takes_it_packed(
    layout: str, factors: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    module = to_module(compile_func(packed(matmul(), layout, factors).func, SERIAL))
    assert list(module.layouts) == ["B"]
    assert module.layouts["B"].startswith(layout)
    assert module.signature.arguments[1].shape == shape
    rng = np.random.default_rng(0)
    a, b = rng.random((5, 7), np.float32), rng.random((7, 19), np.float32)
    c = np.empty((5, 19), np.float32)
    module(a, module.pack("B", b), c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    with pytest.raises(ArgumentError, match=r"pass module.pack\('B', array\)"):
        module(a, b, c)


def test_other_operands_are_packed_in_each_call() -> None:
    module = to_module(compile_func(packed(matmul(constant=False)).func, SERIAL))
    assert module.layouts == {}
    assert module.signature.arguments[1].shape == (7, 19)


def test_an_operand_that_is_read_elsewhere_stays_as_it_is() -> None:
    w = te.placeholder((16,), "float32", name="W", constant=True)
    y = te.compute((16,), lambda i: w[i] + 1.0, name="Y")
    z = te.compute((16,), lambda i: y[i] * w[i], name="Z")
    sch = Schedule(te.func([w, z], name="twice"))
    sch.pack(sch.get_block("Z"), 1, "Aa", [4])
    assert not packed_ahead(sch.func)


def test_what_is_more_than_a_copy_is_computed_in_each_call() -> None:
    w = te.placeholder((16,), "float32", name="W", constant=True)
    y = te.compute((16,), lambda i: w[i] * 2.0, name="Y")
    x = te.placeholder((16,), "float32", name="X")
    z = te.compute((16,), lambda i: y[i] + x[i], name="Z")
    assert not packed_ahead(te.func([w, x, z], name="scaled"))


def test_a_library_says_how_its_operands_are_packed(tmp_path: Path) -> None:
    library = build_library(packed(matmul()), tmp_path / "m.so", SERIAL)
    assert "packed as BAb, b = 8" in library.files[2].read_text()
    module = load(library.files[0])
    assert module.layouts == {"B": "BAb, b = 8"}
    a, b, c = np.ones((5, 7), "f4"), np.ones((7, 19), "f4"), np.empty((5, 19), "f4")
    module(a, module.pack("B", b), c)
    np.testing.assert_array_equal(c, np.full((5, 19), 7, "f4"))

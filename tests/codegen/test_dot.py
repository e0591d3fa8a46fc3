"""Dot products of groups of lanes, with and without an instruction for them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilewright.base.errors import BuildError, IRError, VerifyError
from tilewright.codegen.build import compile_func
from tilewright.tir.ir import Dot, Func, Ramp, Store, const, dot, load
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from ..refusals import refused
from .machinery import SERIAL, check, random_arguments

PLAIN = "cpu -mcpu=x86-64-v3 -threads=1"
OLD = "cpu -mcpu=x86-64-v2 -threads=1"


def program(acc: str, x: str, y: str, lanes: int, group: int, *, shared: bool = True) -> Func:
    """C += the products of one group of X, or all of them, with Y."""
    wide = lanes * group
    count = group if shared else wide
    whole = f"C[T.ramp(0, 1, {lanes})]" if lanes > 1 else "C[0]"
    return parse(f"""
def f(X: T.Buffer(({count},), "{x}"), Y: T.Buffer(({wide},), "{y}"), C: T.Buffer(({lanes},), "{acc}")):
    T.inplace(C)
    {whole} = T.dot({whole}, X[T.ramp(0, 1, {count})], Y[T.ramp(0, 1, {wide})])
""")  # noqa: E501


@pytest.mark.grid
@pytest.mark.parametrize("target", [SERIAL, PLAIN, "cpu -mcpu=x86-64 -threads=1"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize(
    ("acc", "x", "y", "group"),
    [
        ("int32", "uint8", "int8", 4),
        ("int32", "int8", "uint8", 4),
        ("int32", "int8", "int8", 4),
        ("int32", "uint8", "uint8", 4),
        ("int32", "int16", "int16", 2),
        ("float32", "bfloat16", "bfloat16", 2),
        ("float64", "float32", "float32", 3),
        ("int64", "int32", "uint16", 2),
    ],
)
def test_values(
    acc: str, x: str, y: str, group: int, lanes: int, shared: bool, target: str
) -> None:
    func = program(acc, x, y, lanes, group, shared=shared)
    verify(func)
    check(func, target=target)


@pytest.mark.parametrize("target", [SERIAL, PLAIN])
@pytest.mark.parametrize("x", ["uint8", "int8", "int16"])
@pytest.mark.parametrize("y", ["uint8", "int8", "int16"])
def test_all_bits_of_the_factors_count(x: str, y: str, target: str) -> None:
    """Also where a sum of two products, each the largest there is, leaves 32 bits."""
    group = 2 if "int16" in (x, y) else 4
    func = program("int32", x, y, 16, group)
    for a, b in itertools.product(*([np.iinfo(t).min, np.iinfo(t).max] for t in (x, y))):
        arguments = [np.full(group, a, x), np.full(16 * group, b, y), np.zeros(16, np.int32)]
        check(func, arguments, target=target)


@pytest.mark.parametrize(
    ("acc", "x", "y", "group", "target", "instruction"),
    [
        ("int32", "uint8", "int8", 4, "cascadelake", "vpdpbusd"),
        ("int32", "int8", "uint8", 4, "cascadelake", "vpdpbusd"),
        ("int32", "uint8", "int8", 4, "alderlake", "vpdpbusd"),
        ("float32", "bfloat16", "bfloat16", 2, "cooperlake", "vdpbf16ps"),
        ("int32", "int8", "int8", 4, "cascadelake", "vpmaddwd"),
        ("int32", "uint8", "uint8", 4, "alderlake", "vpmaddwd"),
        ("int32", "uint8", "int8", 4, "haswell", "vpmaddwd"),
        ("int32", "int16", "int16", 2, "skylake-avx512", "vpmaddwd"),
    ],
)
def test_the_instruction_is_used_where_the_target_has_it(
    acc: str, x: str, y: str, group: int, target: str, instruction: str
) -> None:
    func = program(acc, x, y, 8 if target in ("alderlake", "haswell") else 16, group)
    assert instruction in check(func, target=f"cpu -mcpu={target} -threads=1").source("asm")
    assert instruction not in compile_func(func, OLD).source("asm")


def test_exact_floats_do_without_an_instruction_that_rounds_otherwise() -> None:
    func = program("float32", "bfloat16", "bfloat16", 16, 2)
    code = compile_func(func, "cpu -mcpu=cooperlake -threads=1", strict_fp=True)
    assert "vdpbf16ps" not in code.source("asm")
    check(func, random_arguments(func), strict_fp=True)


def test_no_vector_of_vectors() -> None:
    func = parse("""
def f(X: T.Buffer((4,), "uint8"), Y: T.Buffer((8, 4), "int8"), C: T.Buffer((8,), "int32")):
    for i in T.vectorized(8):
        C[i] = T.dot(T.int32(i), X[T.ramp(0, 1, 4)], Y[i, T.ramp(0, 1, 4)])
""")
    with pytest.raises(BuildError):
        compile_func(func, SERIAL)


def test_lanes_that_do_not_go_together() -> None:
    func = program("int32", "uint8", "int8", 16, 4)
    assert isinstance(func.body, Store)
    found = func.body.value
    assert isinstance(found, Dot)
    with pytest.raises(IRError):
        dot(found.acc, found.y, load(found.x.buffer, (Ramp(const(0), const(1), 3, "int64x3"),)))  # type: ignore[attr-defined]
    with pytest.raises(IRError):
        dot(load(found.x.buffer, (const(0),)), found.x, found.x)  # type: ignore[attr-defined]
    wrong = Dot(found.acc, found.x, found.acc, "int32x16")
    with refused(VerifyError, "uint8x4", "int32x16"):
        verify(Func("f", func.params, (), Store(func.body.buffer, func.body.indices, wrong)))

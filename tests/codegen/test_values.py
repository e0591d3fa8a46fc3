"""Values in compiled code: each operator, function and cast in each dtype, scalar and in vectors.

Inputs are chosen where things go wrong: NaN, infinities, zeros of both signs, denormals, limits.
"""

from __future__ import annotations

import operator
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.cpu.llvm_text import constant
from tilewright.codegen.detect import resolve
from tilewright.schedule import Schedule
from tilewright.schedule.find import blocks_in
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import FLOAT_FUNCTIONS, Func
from tilewright.tir.parser import parse

from ..emulator import Call, emulated
from ..emulator import run as emulate
from ..hosts import runs
from .machinery import Array, run, runnable

FLOATS = [d for d in dtypes.SCALARS if dtypes.is_float(d)]
INTEGERS = [d for d in dtypes.SCALARS if dtypes.is_integer(d)]
HERE, AVX2, SSE2, ARM = (
    "cpu -threads=1",
    "cpu -mcpu=x86-64-v3 -threads=1",
    "cpu -mcpu=x86-64 -threads=1",
    "cpu -mcpu=neoverse-n1 -threads=1",
)
FLOATS_ON_TARGETS = [
    *((dtype, HERE) for dtype in FLOATS),
    ("float32", AVX2),
    ("bfloat16", AVX2),
    ("float16", SSE2),
    *(pytest.param(dtype, ARM, marks=emulated) for dtype in ("float32", "float16", "bfloat16")),
]
VECTOR = 16

Function = Callable[..., Any]


def special(dtype: str) -> Array:
    """Values at the edges of a dtype."""
    number = dtypes.to_numpy(dtype)
    facts = dtypes.info(dtype)
    if facts.kind == "bool":
        return np.array([False, True])
    if facts.kind != "float":
        low, high = dtypes.int_limits(dtype)
        values = {low, low + 1, -1, 0, 1, 2, 7, high // 3, high - 1, high}
        return np.array(sorted(v for v in values if low <= v <= high), number)
    limits: Any = ml_dtypes.finfo(number)  # type: ignore[no-untyped-call]
    tiny, least, most = (float(x) for x in (limits.tiny, limits.smallest_subnormal, limits.max))
    plain = [0.0, 1.0, 2.5, 0.3, tiny, 3 * least, most, float("inf")]
    with np.errstate(all="ignore"):
        return np.array([s * v for s in (1, -1) for v in plain] + [float("nan")]).astype(number)


def pairs(dtype: str) -> tuple[Array, Array]:
    values = special(dtype)
    values = values[:: 1 + values.size // 14]
    left, right = zip(*product(values, values), strict=True)
    return np.array(left, values.dtype), np.array(right, values.dtype)


def program(fns: list[Function], *inputs: Array) -> Func:
    """One output for each function of the elements of the inputs."""
    tensors = [
        te.placeholder(x.shape, dtypes.from_numpy(x.dtype), name=f"x{k}")
        for k, x in enumerate(inputs)
    ]
    outputs = [
        te.compute(inputs[0].shape, lambda i, fn=fn: fn(*(t[i] for t in tensors)), name=f"y{k}")
        for k, fn in enumerate(fns)
    ]
    return te.func([*tensors, *outputs], name="values")


def vectorized(func: Func) -> Func:
    sch = Schedule(func)
    for block in list(blocks_in(func.body)):
        (loop,) = sch.get_loops(sch.get_block(block.label.name))
        sch.vectorize(sch.split(loop, [None, VECTOR])[1])
    return sch.func


def check(fns: list[Function], *inputs: Array, target: str, ulps: float = 0) -> None:
    func = program(fns, *inputs)
    outputs = [
        np.zeros(inputs[0].shape, dtypes.to_numpy(p.dtype)) for p in func.params[len(inputs) :]
    ]
    interpret(func, *inputs, *outputs)
    if target == ARM:
        compiled = compile_func(vectorized(func), target, strict_fp=True)
        arguments = [*inputs, *(np.zeros_like(x) for x in outputs)]
        with tempfile.TemporaryDirectory() as folder:
            (emulated_outputs,) = emulate([Call(compiled, arguments)], "neoverse-n1", Path(folder))
        for number, (x, y) in enumerate(zip(outputs, emulated_outputs, strict=True)):
            compare(x, y, ulps, f"function {number}", inputs)
        return
    for form in (func, vectorized(func)) if target == HERE else (vectorized(func),):
        compiled = runnable(form, compile_func(form, target, strict_fp=True), strict_fp=True)
        found = run(compiled, [*inputs, *outputs])
        for number, (x, y) in enumerate(zip(outputs, found[len(inputs) :], strict=True)):
            compare(x, y, ulps, f"function {number}", inputs)


def compare(expected: Array, found: Array, ulps: float, what: str, inputs: tuple[Any, ...]) -> None:
    """The same bits up to the payload of NaN, or within some units in the last place."""
    same = found.view(f"u{found.itemsize}") == expected.view(f"u{expected.itemsize}")
    if dtypes.is_float(dtypes.from_numpy(expected.dtype)):
        with np.errstate(invalid="ignore"):
            x, y = expected.astype(np.float64), found.astype(np.float64)
        same |= np.isnan(x) & np.isnan(y)
        if ulps:
            limits: Any = ml_dtypes.finfo(expected.dtype)  # type: ignore[no-untyped-call]
            with np.errstate(all="ignore"):
                unit = np.maximum(np.abs(x) * float(limits.eps), float(limits.smallest_subnormal))
                same |= np.abs(x - y) <= ulps * unit
    for k in np.nonzero(~same)[0][:3]:
        at = [x[k] for x in inputs]
        raise AssertionError(f"{what} of {at}: found {found[k]!r}, expected {expected[k]!r}")


@pytest.mark.parametrize(("dtype", "target"), FLOATS_ON_TARGETS)
def test_float_arithmetic(dtype: str, target: str) -> None:
    fns: list[Function] = [operator.add, operator.sub, operator.mul, operator.truediv]
    fns += [te.maximum, te.minimum, lambda a, b: te.maximum(a, 0.0)]
    fns += [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]
    fns += [lambda a, b: -a, lambda a, b: te.abs(b)]
    check(fns, *pairs(dtype), target=target)


def bit_patterns() -> Array:
    """float16 of each exponent and sign, with mantissas that round up, down and to even."""
    mantissas = [0, 1, 2, 0x155, 0x2AB, 0x3FF]
    bits = [s << 15 | e << 10 | m for s in (0, 1) for e in range(32) for m in mantissas]
    return np.array(bits, np.uint16).view(np.float16)


@pytest.mark.parametrize("target", [HERE, AVX2])
def test_float16_has_the_bits_of_float32_rounded(target: str) -> None:
    """In instructions of its own too, where this machine has them."""
    values = bit_patterns()
    left, right = np.repeat(values, values.size), np.tile(values, values.size)
    fns: list[Function] = [operator.add, operator.sub, operator.mul, operator.truediv]
    fns += [te.maximum, te.minimum]
    fns += [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]
    check(fns, left, right, target=target)
    fns = [te.sqrt, te.floor, te.ceil, te.trunc, te.round, te.abs, operator.neg]
    fns += [lambda a, to=to: te.cast(a, to) for to in ("float32", "float64", "int32", "bool")]
    check(fns, values, target=target)


@pytest.mark.parametrize(
    ("fn", "instruction"),
    [
        (operator.add, "vaddph"),
        (operator.sub, "vsubph"),
        (operator.mul, "vmulph"),
        (operator.truediv, "vdivph"),
        (operator.lt, "vcmpltph"),
        (te.maximum, "vmaxph"),
        (lambda a, b: te.sqrt(a) * b, "vsqrtph"),
        (lambda a, b: te.floor(a) * b, "vrndscaleph"),
    ],
)
def test_float16_is_computed_in_float32_without_instructions_for_it(
    fn: Function, instruction: str
) -> None:
    x = np.zeros(64, np.float16)
    func = vectorized(program([fn], x, x))
    own = compile_func(func, "cpu -mcpu=sapphirerapids -threads=1").source("asm")
    assert instruction in own
    assert "vcvtph2ps" not in own
    for mcpu in ("skylake-avx512", "x86-64-v3"):
        other = compile_func(func, f"cpu -mcpu={mcpu} -threads=1").source("asm")
        assert instruction not in other
        assert "vcvtph2ps" in other


def test_contraction_of_float16() -> None:
    x = np.zeros(64, np.float16)
    func = vectorized(program([lambda a, b: a * b + a], x, x))
    for target, strict_fp, fused in (
        ("sapphirerapids", False, True),
        ("sapphirerapids", True, False),
        ("skylake-avx512", False, False),
    ):
        compiled = compile_func(func, f"cpu -mcpu={target} -threads=1", strict_fp=strict_fp)
        assert ("vfmadd" in compiled.source("asm")) is fused


def test_a_product_of_float16_is_rounded_before_it_is_a_float32() -> None:
    x = np.zeros(64, np.float16)
    func = vectorized(
        program([lambda a, b: te.cast(a * b, "float32") + te.cast(a, "float32")], x, x)
    )
    code = compile_func(func, "cpu -mcpu=sapphirerapids -threads=1").source("asm")
    assert "vmulph" in code
    assert "vfmadd" not in code


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_float_division_floors(dtype: str) -> None:
    check([operator.floordiv, operator.mod], *pairs(dtype), target=HERE)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_arithmetic(dtype: str) -> None:
    fns: list[Function] = [operator.add, operator.sub, operator.mul]
    fns += [operator.and_, operator.or_, operator.xor, te.maximum, te.minimum]
    fns += [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]
    fns += [lambda a, b: -a, lambda a, b: te.abs(b), lambda a, b: ~a]
    fns += [lambda a, b: a << 3, lambda a, b: b >> 2]
    check(fns, *pairs(dtype), target=HERE)


@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_comparisons_of_different_signs_are_exact(dtype: str) -> None:
    near = np.array([*special("uint64"), *(2**53 + k for k in (0, 1, 2)), 127, 128], np.uint64)
    signed = np.concatenate([special(dtype), near.astype(dtypes.to_numpy(dtype))])
    a, b = np.repeat(signed, near.size), np.tile(near, signed.size)
    fns = [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]
    reverse: list[Function] = [lambda a, b, fn=fn: fn(b, a) for fn in fns]
    check([*fns, *reverse], a, b, target=HERE)


@pytest.mark.parametrize(
    ("dtype", "target"),
    [
        *((dtype, HERE) for dtype in INTEGERS),
        *(pytest.param(dtype, ARM, marks=emulated) for dtype in ("uint8", "int32")),
    ],
)
def test_shifts_by_any_count(dtype: str, target: str) -> None:
    values, bits = special(dtype), dtypes.info(dtype).bits
    counts = np.array([*special(dtype), bits - 1, bits, bits + 1, min(2 * bits, 127)], values.dtype)
    a, b = map(np.array, zip(*product(values, counts), strict=True))
    fns: list[Function] = [operator.lshift, operator.rshift]
    for constant_count in {int(c) for c in counts}:
        by = te.const(constant_count, dtype)
        fns += [lambda a, b, by=by: a << by, lambda a, b, by=by: a >> by]
    check(fns, a, b, target=target)


def test_shifts_whose_counts_are_bounded_have_no_guard() -> None:
    def code(value_range: tuple[int, int]) -> str:
        a = te.placeholder((4,), "int32", name="A")
        by = te.placeholder((4,), "int32", name="N", value_range=value_range)
        left = te.compute((4,), lambda i: a[i] << by[i], name="L")
        right = te.compute((4,), lambda i: a[i] >> (by[i] & 31) << i, name="R")
        return compile_func(te.func([a, by, left, right]), HERE).source("llvm")

    assert "select" not in code((0, 32))
    assert "select" in code((0, 33))


@pytest.mark.parametrize(
    ("dtype", "target"),
    [
        *((dtype, HERE) for dtype in INTEGERS),
        *(pytest.param(dtype, ARM, marks=emulated) for dtype in ("int8", "int64", "uint32")),
    ],
)
def test_integer_division_floors(dtype: str, target: str) -> None:
    fns: list[Function] = [
        lambda a, b: te.select(b != 0, a // b, 0),
        lambda a, b: te.select(b != 0, a % b, 0),
        lambda a, b: a // 7,
        lambda a, b: a % 8,
        lambda a, b: b // 4,
    ]
    if dtypes.info(dtype).kind == "int":
        fns += [lambda a, b: a // -3, lambda a, b: a % -5, lambda a, b: a // -1]
    check(fns, *pairs(dtype), target=target)


def test_bool_logic() -> None:
    fns: list[Function] = [operator.and_, operator.or_, operator.xor]
    fns += [te.maximum, te.minimum, operator.eq, lambda a, b: ~a]
    check(fns, *pairs("bool"), target=HERE)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        *((dtype, HERE) for dtype in dtypes.SCALARS),
        ("float32", AVX2),
        ("float64", SSE2),
        *(pytest.param(dtype, ARM, marks=emulated) for dtype in ("float64", "bfloat16", "int64")),
    ],
)
def test_casts(source: str, target: str) -> None:
    fns: list[Function] = [lambda a, d=d: te.cast(a, d) for d in dtypes.SCALARS if d != source]
    check(fns, special(source), target=target)


@pytest.mark.parametrize("target", [HERE, AVX2, SSE2])
@pytest.mark.parametrize("source", ["float32", "float64", "float16"])
def test_casts_saturate_at_the_limits_of_integers(source: str, target: str) -> None:
    number = dtypes.to_numpy(source).type
    for dtype in INTEGERS:
        low, high = dtypes.int_limits(dtype)
        with np.errstate(over="ignore"):
            edges = [number(x) for x in (low - 1, low, -1, 0, high, high + 1)]
            around = [np.nextafter(x, number(to)) for x in edges for to in (-np.inf, np.inf)]
            values = np.array([*edges, *around, low - 0.5, high + 0.5, np.inf, np.nan], source)
        check([lambda a, to=dtype: te.cast(a, to)], values, target=target)


def test_casts_of_vectors_to_integers_keep_them_in_vectors() -> None:
    func = vectorized(program([lambda a: te.cast(a, "int8")], np.zeros(64, np.float32)))
    code = compile_func(func, "cpu -mcpu=skylake-avx512 -threads=1").source("asm")
    assert "vcvttps2dq" in code
    assert "vcvttss2si" not in code


@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fn", "float8_e5m2", "bfloat16"])
def test_every_narrow_float_is_converted_both_ways(dtype: str) -> None:
    bits = 8 * dtypes.nbytes(dtype)
    values = np.arange(1 << bits, dtype=f"u{bits // 8}").view(dtypes.to_numpy(dtype))
    with np.errstate(all="ignore"):
        middles = values.astype(np.float32)
        near = np.nextafter(middles, np.float32(0))
    for target in (HERE, SSE2):
        func = vectorized(program([lambda a: te.cast(a, "float32")], values))
        (_, wide) = run(compile_func(func, target), [values, np.zeros(values.shape, "f4")])
        compare(middles, wide, 0, "widening", (values,))
        for source in (middles, near):
            func = vectorized(program([lambda a: te.cast(a, dtype)], source))
            narrow = np.zeros(values.shape, values.dtype)
            (_, narrow) = run(compile_func(func, target), [source, narrow])
            with np.errstate(all="ignore"):
                compare(source.astype(values.dtype), narrow, 0, "narrowing", (source,))


def test_float64_is_rounded_once_to_narrow_floats() -> None:
    middle = 1 + 2.0**-11
    values = np.array([middle, middle + 2.0**-40, middle - 2.0**-40, -middle - 2.0**-40], "f8")
    check([lambda a: te.cast(a, "float16")], values, target=AVX2)


@pytest.mark.parametrize(("dtype", "target"), FLOATS_ON_TARGETS)
def test_functions_at_special_values(dtype: str, target: str) -> None:
    names = [name for name, arity in FLOAT_FUNCTIONS.items() if arity == 1]
    fns: list[Function] = [getattr(te, name) for name in names]
    check(fns, special(dtype), target=target, ulps=4)


@pytest.mark.parametrize(("dtype", "target"), FLOATS_ON_TARGETS)
def test_functions_that_are_made_of_others_at_special_values(dtype: str, target: str) -> None:
    fns: list[Function] = [te.square, te.isnan, te.silu, te.gelu]
    fns += [lambda x: te.clip(x, -1, 2), lambda x: te.where(x > 1, x, 0.5)]
    check(fns, special(dtype), target=target, ulps=4)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_functions_of_two_at_special_values(dtype: str) -> None:
    check([te.pow, te.atan2, te.hypot], *pairs(dtype), target=HERE, ulps=4)


def test_contraction_is_the_callers_choice() -> None:
    x = np.array([1 + 2.0**-12], "f4")
    func = program([lambda a: a * a - 1.0], x)
    for strict_fp in (False, True):
        compiled = compile_func(func, AVX2, strict_fp=strict_fp)
        assert ("vfm" in compiled.source("asm")) is not strict_fp
        if runs(AVX2):
            (_, found) = run(compiled, [x, np.zeros(1, "f4")])
            exact = float(x[0]) ** 2 - 1
            assert (float(found[0]) == np.float32(exact)) is not strict_fp


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "int64", "bool"])
def test_scalars_at_their_limits(dtype: str) -> None:
    """Whatever the upper bits of the register are that a narrow number arrives in."""
    low, high = (0, 1) if dtype == "bool" else dtypes.int_limits(dtype)
    scalar = te.scalar(dtype, name="s")
    B = te.compute((1,), lambda i: te.cast(scalar, "int64"), name="B")
    module = to_module(compile_func(te.func([scalar, B]), resolve(HERE)))
    for value in {low, low + 1, -2 if low else 1, high - 1, high}:
        found = np.zeros(1, np.int64)
        module(bool(value) if dtype == "bool" else value, found)
        assert found[0] == value


@pytest.mark.parametrize("start", [3, 2**62 + 1, -(2**62) - 5, -(2**62) - 2 * 10**9, -(2**63)])
def test_masks_of_sums_that_wrap_around(start: int) -> None:
    """A lane reads only where the condition holds, whatever the difference of its sides is."""
    S, Y = te.scalar("int64", name="s"), te.placeholder((8,), name="Y")

    def value(i: Any) -> Any:
        at = S + te.cast(i, "int64")
        return te.select(at >= 2**62, Y[te.minimum(at, 7)], 0.0)

    func = vectorized(te.func([S, Y, te.compute((64,), value, name="B")]))
    y = np.arange(8, dtype="f4") + 1
    expected, found = np.zeros(64, "f4"), np.zeros(64, "f4")
    interpret(func, start, y, expected)
    to_module(compile_func(func, resolve(HERE)))(start, y, found)
    np.testing.assert_array_equal(found, expected)


def test_guards_that_wrap_around_end_no_loop() -> None:
    func = parse("""
@tw.script
def f(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in range(8):
        B[i] = 0
    for i in range(8):
        if i * 4611686018427387904 < 10:
            B[i] = A[i]
""")
    a, found = np.arange(1, 9, dtype=np.int32), np.zeros(8, np.int32)
    to_module(compile_func(func, resolve(HERE)))(a, found)
    assert found.tolist() == [1, 0, 3, 4, 5, 0, 7, 8]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_zeros_keep_their_signs(dtype: str) -> None:
    assert constant(0.0, dtype) != constant(-0.0, dtype)
    assert constant(-0.0, dtype) != constant(0.0, dtype)


def test_factors_of_an_index_wrap_around() -> None:
    func = vectorized(
        te.func([te.compute((64,), lambda i: te.cast(i, "int64") * 3000000000 * 4000000000)])
    )
    found = np.zeros(64, np.int64)
    to_module(compile_func(func, resolve(HERE)))(found)
    assert found[1] == 3000000000 * 4000000000 - 2**64


@pytest.mark.parametrize("start", [3, 2**63 - 10, -(2**63) + 3])
@pytest.mark.parametrize("op", [operator.floordiv, operator.mod])
def test_quotients_of_sums_that_wrap_around(op: Function, start: int) -> None:
    S = te.scalar("int64", name="s")

    def value(i: Any) -> Any:
        return op(S + te.cast(i, "int64"), 7) + op(S - te.cast(i, "int64"), 7)

    func = vectorized(te.func([S, te.compute((64,), value, name="B")]))
    expected, found = np.zeros(64, np.int64), np.zeros(64, np.int64)
    interpret(func, start, expected)
    to_module(compile_func(func, resolve(HERE)))(start, found)
    np.testing.assert_array_equal(found, expected)

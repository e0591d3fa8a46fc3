"""The meaning of expressions, element by element, by the interpreter."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

from tilewright import IRError, VerifyError
from tilewright.base import dtypes
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Const, Op, binary, call

from ..long import examples

Array = np.ndarray[Any, Any]

FLOATS = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
INTEGERS = [d for d in dtypes.SCALARS if dtypes.is_integer(d)]
NAN, INF = math.nan, math.inf

Function2 = Callable[[Any, Any], Any]
ARITHMETIC: list[Function2] = [operator.add, operator.sub, operator.mul]
LOGIC: list[Function2] = [operator.and_, operator.or_, operator.xor]
COMPARISONS: list[Function2] = [operator.lt, operator.ge, operator.eq]
ALL_COMPARISONS: list[Function2] = [*COMPARISONS, operator.le, operator.gt, operator.ne]


def array(values: list[Any], dtype: str) -> Array:
    return np.array(values).astype(dtypes.to_numpy(dtype))


def finfo(dtype: str) -> Any:
    return ml_dtypes.finfo(dtypes.to_numpy(dtype))  # type: ignore[no-untyped-call]


def evaluate(fn: Callable[..., te.Operand], *inputs: Array) -> Array:
    """`fn` of the elements at each position of vectors."""
    tensors = [
        te.placeholder(x.shape, dtypes.from_numpy(x.dtype), name=f"x{k}")
        for k, x in enumerate(inputs)
    ]
    result = te.compute(inputs[0].shape, lambda i: fn(*(t[i] for t in tensors)), name="result")
    out = np.zeros(inputs[0].shape, dtypes.to_numpy(result.dtype))
    interpret(te.func([*tensors, result]), *inputs, out)
    return out


def check(found: Array, wanted: list[Any]) -> None:
    np.testing.assert_array_equal(found.astype(np.float64), np.array(wanted, np.float64))


class TestIntegers:
    @pytest.mark.parametrize("dtype", INTEGERS)
    def test_arithmetic_wraps(self, dtype: str) -> None:
        low, high = dtypes.int_limits(dtype)
        x = np.array([low, high, 1], dtypes.to_numpy(dtype))
        y = np.array([1, 1, high], dtypes.to_numpy(dtype))
        for fn in ARITHMETIC:
            np.testing.assert_array_equal(evaluate(fn, x, y), fn(x, y))
        np.testing.assert_array_equal(evaluate(lambda a: -a, x), -x)
        np.testing.assert_array_equal(evaluate(te.abs, x), np.abs(x))
        np.testing.assert_array_equal(evaluate(lambda a: ~a, x), ~x)

    @settings(deadline=None, max_examples=examples(40))
    @given(data=st.data(), dtype=st.sampled_from(INTEGERS))
    def test_every_operator_is_numpys(self, data: st.DataObject, dtype: str) -> None:
        number = dtypes.to_numpy(dtype)
        x = data.draw(hnp.arrays(number, 5))
        y = data.draw(hnp.arrays(number, 5))
        with np.errstate(all="ignore"):
            for fn in [*ARITHMETIC, *LOGIC, *COMPARISONS]:
                np.testing.assert_array_equal(evaluate(fn, x, y), fn(x, y))
            np.testing.assert_array_equal(evaluate(te.maximum, x, y), np.maximum(x, y))
            np.testing.assert_array_equal(evaluate(te.minimum, x, y), np.minimum(x, y))
            z = np.where(y == 0, 1, y).astype(number)
            np.testing.assert_array_equal(evaluate(lambda a, b: a // b, x, z), x // z)
            np.testing.assert_array_equal(evaluate(lambda a, b: a % b, x, z), x % z)

    def test_division_and_remainder_floor(self) -> None:
        x, y = array([7, -7, 7, -7], "int32"), array([2, 2, -2, -2], "int32")
        check(evaluate(lambda a, b: a // b, x, y), [3, -4, -4, 3])
        check(evaluate(lambda a, b: a % b, x, y), [1, 1, -1, -1])

    def test_the_one_overflowing_division_wraps(self) -> None:
        x = array([-128], "int8")
        check(evaluate(lambda a: a // -1, x), [-128])
        check(evaluate(lambda a: a % -1, x), [0])

    def test_true_division_is_float64(self) -> None:
        out = evaluate(lambda a, b: a / b, array([1, -7], "int32"), array([3, 2], "int32"))
        assert out.dtype == np.float64
        check(out, [1 / 3, -3.5])

    @pytest.mark.parametrize("op", [Op.FLOORDIV, Op.MOD])
    def test_division_by_zero_is_refused(self, op: Op) -> None:
        with pytest.raises(VerifyError):
            evaluate(lambda a, b: binary(op, a, b), array([1], "int16"), array([0], "int16"))

    def test_a_guarded_division_is_not_evaluated(self) -> None:
        out = evaluate(
            lambda a, b: te.select(b != 0, a // b, -1), array([7, 7], "int8"), array([2, 0], "int8")
        )
        check(out, [3, -1])

    def test_shifts(self) -> None:
        x = array([-5, 64, 1], "int8")
        check(evaluate(lambda a: a << 1, x), [-10, -128, 2])
        check(evaluate(lambda a: a >> 1, x), [-3, 32, 0])
        check(evaluate(lambda a: a >> 1, array([200], "uint8")), [100])

    @pytest.mark.parametrize("dtype", INTEGERS)
    def test_shifts_by_any_count_are_those_of_numpy(self, dtype: str) -> None:
        low, high = dtypes.int_limits(dtype)
        bits = dtypes.info(dtype).bits
        counts = [c for c in (0, bits - 1, bits, 2 * bits, -1, low, high) if low <= c <= high]
        pairs = np.array(list(itertools.product((low, high, 1, 0), counts)), dtype)
        a, b = pairs.T
        for fn in (operator.lshift, operator.rshift):
            np.testing.assert_array_equal(evaluate(fn, a.copy(), b.copy()), fn(a, b))

    @pytest.mark.parametrize("dtype", [d for d in INTEGERS if d.startswith("int")])
    def test_comparisons_of_different_signs_are_exact(self, dtype: str) -> None:
        low, high = dtypes.int_limits(dtype)
        signed = [low, low + 1, -1, 0, 1, high - 1, high]
        unsigned = [0, 1, high - 1, high, high + 1, 2**64 - 1, *(2**53 + k for k in (0, 1, 2))]
        signed += [n for n in unsigned if n <= high] + [-(2**53) - 1] * (dtype == "int64")
        pairs = list(itertools.product(signed, unsigned))
        a = np.array([x for x, _ in pairs], dtypes.to_numpy(dtype))
        b = np.array([y for _, y in pairs], np.uint64)
        for fn in ALL_COMPARISONS:
            wanted = [fn(x, y) for x, y in pairs]
            assert evaluate(fn, a, b).tolist() == wanted
            assert evaluate(lambda y, x, fn=fn: fn(x, y), b, a).tolist() == wanted
        constant = te.const(2**53 + 1, "uint64")
        for fn in ALL_COMPARISONS:
            wanted = [fn(x, 2**53 + 1) for x in a.tolist()]
            assert evaluate(lambda x, fn=fn: fn(x + 0, constant), a).tolist() == wanted


class TestBool:
    def test_logic(self) -> None:
        x, y = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
        for fn in LOGIC:
            np.testing.assert_array_equal(evaluate(fn, x, y), fn(x, y))
        np.testing.assert_array_equal(evaluate(lambda a: ~a, x), ~x)
        np.testing.assert_array_equal(evaluate(te.maximum, x, y), x | y)
        np.testing.assert_array_equal(evaluate(te.minimum, x, y), x & y)

    def test_casts(self) -> None:
        check(evaluate(lambda a: a.astype("float32"), np.array([True, False])), [1, 0])
        check(evaluate(lambda a: a.astype("int8"), np.array([True, False])), [1, 0])
        out = evaluate(lambda a: a.astype("bool"), array([0.0, -0.0, 0.25, NAN, INF], "float32"))
        assert out.tolist() == [False, False, True, True, True]


class TestFloats:
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_every_operation_rounds(self, dtype: str) -> None:
        rng = np.random.default_rng(1)
        x = rng.uniform(-4, 4, 64).astype(dtypes.to_numpy(dtype))
        y = rng.uniform(0.5, 4, 64).astype(dtypes.to_numpy(dtype))
        wide = np.float64 if dtype == "float64" else np.float32
        for fn in [*ARITHMETIC, operator.truediv]:
            wanted = fn(x.astype(wide), y.astype(wide)).astype(x.dtype)
            np.testing.assert_array_equal(evaluate(fn, x, y), wanted)
        once = (x.astype(wide) * y.astype(wide)).astype(x.dtype)
        twice = (once.astype(wide) + y.astype(wide)).astype(x.dtype)
        np.testing.assert_array_equal(evaluate(lambda a, b: a * b + b, x, y), twice)

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_nan_and_zeros(self, dtype: str) -> None:
        x, y = array([NAN, 1, NAN, 2], dtype), array([1, NAN, NAN, 3], dtype)
        check(evaluate(te.maximum, x, y), [NAN, NAN, NAN, 3])
        check(evaluate(te.minimum, x, y), [NAN, NAN, NAN, 2])
        for fn, wanted in {
            Op.LT: [0, 0, 0, 1],
            Op.LE: [0, 0, 0, 1],
            Op.GT: [0, 0, 0, 0],
            Op.GE: [0, 0, 0, 0],
            Op.EQ: [0, 0, 0, 0],
            Op.NE: [1, 1, 1, 1],
        }.items():
            check(evaluate(lambda a, b, op=fn: binary(op, a, b), x, y), wanted)
        negative = evaluate(lambda a: -a, array([0.0], dtype))
        assert np.signbit(negative.astype(np.float32)).all()

    @pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
    def test_infinities(self, dtype: str) -> None:
        x, y = array([1, -1, 0, INF, INF], dtype), array([0, 0, 0, INF, 1], dtype)
        check(evaluate(lambda a, b: a / b, x, y), [INF, -INF, NAN, NAN, INF])
        check(evaluate(lambda a, b: a - b, x, y), [1, -1, 0, NAN, INF])
        check(evaluate(te.maximum, x, y), [1, 0, 0, INF, INF])
        big = array([float(finfo(dtype).max)], dtype)
        check(evaluate(lambda a: a + a, big), [INF])

    @pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
    def test_denormals_are_kept(self, dtype: str) -> None:
        tiny = finfo(dtype).smallest_subnormal
        x = np.array([tiny, tiny], dtypes.to_numpy(dtype))
        wanted = [float(tiny) * 2] * 2
        check(evaluate(lambda a: a + a, x), wanted)
        check(evaluate(lambda a: a * 3 - a, x), wanted)

    def test_float_division_and_remainder_floor(self) -> None:
        x, y = array([7, -7, 7.5, -7.5, 1], "float32"), array([2, 2, -2, -2, 0], "float32")
        check(evaluate(lambda a, b: a // b, x, y)[:4], [3, -4, -4, 3])
        check(evaluate(lambda a, b: a % b, x, y), [1, 1, -0.5, -1.5, NAN])

    def test_float8_without_infinities_overflows_to_nan(self) -> None:
        check(evaluate(lambda a: a * 2, array([448, -448, 224], "float8_e4m3fn")), [NAN, NAN, 448])
        check(evaluate(lambda a: a * 2, array([57344], "float8_e5m2")), [INF])


class TestCasts:
    @pytest.mark.parametrize("source", FLOATS)
    @pytest.mark.parametrize("target", INTEGERS)
    def test_floats_to_integers_truncate_and_saturate(self, source: str, target: str) -> None:
        low, high = dtypes.int_limits(target)
        x = array([NAN, INF, -INF, 1.75, -1.75, 448, -448], source)
        wanted = [
            0 if math.isnan(v) else min(max(int(v), low), high) if math.isfinite(v) else
            high if v > 0 else low
            for v in x.astype(np.float64).tolist()
        ]  # fmt: skip
        out = evaluate(lambda a: a.astype(target), x)
        assert out.tolist() == wanted

    def test_limits_of_64_bits_saturate_exactly(self) -> None:
        x = array([2.0**63, -(2.0**63), 2.0**64, 1e300, 2.0**62], "float64")
        wanted = [2**63 - 1, -(2**63), 2**63 - 1, 2**63 - 1, 2**62]
        assert evaluate(lambda a: a.astype("int64"), x).tolist() == wanted
        out = evaluate(lambda a: a.astype("uint64"), x)
        assert out.tolist() == [2**63, 0, 2**64 - 1, 2**64 - 1, 2**62]

    @pytest.mark.parametrize("target", INTEGERS)
    def test_integers_to_narrower_ones_wrap(self, target: str) -> None:
        x = np.array([300, -300, 2**40 + 5, -1], np.int64)
        wanted = x.astype(dtypes.to_numpy(target))
        np.testing.assert_array_equal(evaluate(lambda a: a.astype(target), x), wanted)

    def test_wide_integers_round_once(self) -> None:
        x = np.array([2**53 + 1, 2**24 + 1, 2**54 + 2**30 + 1, 2**62 + 2**38 + 1], np.int64)
        out = evaluate(lambda a: a.astype("float32"), x)
        np.testing.assert_array_equal(out, x.astype(np.float32))
        unsigned = np.array([2**64 - 1, 2**63 + 2**39 + 1], np.uint64)
        out = evaluate(lambda a: a.astype("float32"), unsigned)
        np.testing.assert_array_equal(out, unsigned.astype(np.float32))

    @pytest.mark.parametrize("target", FLOATS)
    def test_floats_to_floats_round_to_nearest_even(self, target: str) -> None:
        x = np.random.default_rng(2).uniform(-3, 3, 64).astype(np.float32)
        wanted = x.astype(dtypes.to_numpy(target))
        np.testing.assert_array_equal(evaluate(lambda a: a.astype(target), x), wanted)

    def test_ties_go_to_even(self) -> None:
        x = array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20], "float32")
        check(evaluate(lambda a: a.astype("bfloat16"), x), [1, 1 + 2**-6, 1 + 2**-7])

    @pytest.mark.parametrize("target", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
    @pytest.mark.parametrize("sign", [1, -1])
    def test_float64_is_rounded_once(self, target: str, sign: int) -> None:
        half = 2.0 ** -(dtypes.info(target).mantissa + 1)
        x = sign * np.array([1 + half, 1 + half + 2**-40, 1 + 3 * half - 2**-40, 1 + 3 * half])
        wanted = sign * np.array([1, 1 + 2 * half, 1 + 2 * half, 1 + 4 * half])
        check(evaluate(lambda a: a.astype(target), x), wanted.tolist())
        check(evaluate(lambda a: a.astype(target), np.array([NAN, 1e-60, 0.0])), [NAN, 0, 0])
        huge = evaluate(lambda a: a.astype(target), np.array([1e300, -INF])).astype(np.float64)
        assert not np.isfinite(huge).any()


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "exp": math.exp,
    "exp2": math.exp2,
    "log": math.log,
    "sqrt": math.sqrt,
    "rsqrt": lambda v: 1 / math.sqrt(v),
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "erf": math.erf,
    "expm1": math.expm1,
    "log1p": math.log1p,
    "cbrt": math.cbrt,
    "atan": math.atan,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "asinh": math.asinh,
    "sigmoid": lambda v: 1 / (1 + math.exp(-v)),
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": round,
}


class TestFunctions:
    @pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
    @pytest.mark.parametrize("fn", FUNCTIONS)
    def test_values_are_rounded_once(self, fn: str, dtype: str) -> None:
        x = array([0.25, 0.5, 1, 1.5, 2.75, 7.125], dtype)
        wanted = array([FUNCTIONS[fn](float(v)) for v in x], dtype)
        np.testing.assert_array_equal(evaluate(lambda a: call(fn, a), x), wanted)

    @pytest.mark.parametrize(
        ("fn", "values", "wanted"),
        [
            ("exp", [INF, -INF, NAN, 1000, -1000], [INF, 0, NAN, INF, 0]),
            ("exp2", [INF, -INF, NAN, 2000, -2000, -3], [INF, 0, NAN, INF, 0, 0.125]),
            ("log", [INF, 0, -1, NAN, 1], [INF, -INF, NAN, NAN, 0]),
            ("sqrt", [INF, 0, -1, NAN], [INF, 0, NAN, NAN]),
            ("rsqrt", [INF, 0, -0.0, -1, NAN], [0, INF, -INF, NAN, NAN]),
            ("sin", [INF, -INF, NAN, 0, -0.0], [NAN, NAN, NAN, 0, -0.0]),
            ("cos", [INF, -INF, NAN, 0, -0.0], [NAN, NAN, NAN, 1, 1]),
            ("tanh", [INF, -INF, NAN], [1, -1, NAN]),
            ("erf", [INF, -INF, NAN], [1, -1, NAN]),
            ("sigmoid", [INF, -INF, NAN, 1000, -1000], [1, 0, NAN, 1, 0]),
            ("floor", [INF, -INF, NAN, -0.5], [INF, -INF, NAN, -1]),
            ("ceil", [INF, -INF, NAN, -0.5], [INF, -INF, NAN, -0.0]),
            ("trunc", [INF, -INF, NAN, -1.5], [INF, -INF, NAN, -1]),
            ("round", [INF, -INF, NAN, -0.5, 2.5, -3.5], [INF, -INF, NAN, -0.0, 2, -4]),
            ("abs", [INF, -INF, NAN, -1.5], [INF, INF, NAN, 1.5]),
            ("expm1", [INF, -INF, NAN, 1000, -0.0], [INF, -1, NAN, INF, -0.0]),
            ("log1p", [INF, -1, -2, NAN, -0.0], [INF, -INF, NAN, NAN, -0.0]),
            ("cbrt", [INF, -INF, NAN, -8, -0.0], [INF, -INF, NAN, -2, -0.0]),
            ("asin", [2, -2, INF, NAN, -0.0], [NAN, NAN, NAN, NAN, -0.0]),
            ("acos", [2, -2, INF, NAN, 1], [NAN, NAN, NAN, NAN, 0]),
            ("sinh", [INF, -INF, NAN, 1000, -1000], [INF, -INF, NAN, INF, -INF]),
            ("cosh", [INF, -INF, NAN, 1000, -1000, 0], [INF, INF, NAN, INF, INF, 1]),
            ("asinh", [INF, -INF, NAN, -0.0], [INF, -INF, NAN, -0.0]),
            ("acosh", [INF, 0, -INF, NAN, 1], [INF, NAN, NAN, NAN, 0]),
            ("atanh", [1, -1, 2, NAN, -0.0], [INF, -INF, NAN, NAN, -0.0]),
        ],
    )
    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_edges(self, fn: str, values: list[float], wanted: list[float], dtype: str) -> None:
        check(evaluate(lambda a: call(fn, a), array(values, dtype)), wanted)

    def test_pow(self) -> None:
        x, y = array([2, -2, -2, 0, 4, 0], "float32"), array([3, 3, 0.5, -1, 0.5, 0], "float32")
        check(evaluate(te.pow, x, y), [8, -8, NAN, INF, 2, 1])
        check(evaluate(lambda a: a**2, x), [4, 4, 4, 0, 16, 0])

    def test_a_power_is_that_of_c(self) -> None:
        """numpy's of numbers is the square root for 0.5, which is another function at -inf."""
        x = array([-INF, -0.0, -INF, -0.0, -2, -1e300, 0, -INF], "float64")
        y = array([0.5, 0.5, -3, -3, 0.5, 3, -1, INF], "float64")
        check(evaluate(te.pow, x, y), [INF, 0, -0.0, -INF, NAN, -INF, INF, INF])

    @pytest.mark.parametrize("exponent", [-1, 0, 0.5, 1, 2, 2.0, -1.0])
    @pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
    def test_a_number_as_exponent_means_what_it_means_in_numpy(
        self, exponent: float, dtype: str
    ) -> None:
        x = array([-INF, INF, NAN, 0.0, -0.0, 4, 0.25, -3], dtype)
        with np.errstate(all="ignore"):
            check(evaluate(lambda a: a**exponent, x), (x**exponent).tolist())

    @pytest.mark.parametrize("fn", ["atan2", "hypot"])
    def test_functions_of_two(self, fn: str) -> None:
        values = np.array([0.0, -0.0, 1, -1, 3, INF, -INF, NAN])
        x, y = np.repeat(values, values.size), np.tile(values, values.size)
        function = {"atan2": np.arctan2, "hypot": np.hypot}[fn]
        found, wanted = evaluate(getattr(te, fn), x, y), function(x, y)
        np.testing.assert_allclose(found, wanted, rtol=4e-16)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted) & ~np.isnan(wanted))


def _silu(x: Array) -> Any:
    return x / (1 + np.exp(-x))


def _gelu(x: Array) -> Any:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x * math.sqrt(0.5)))


class TestFunctionsOfNumpy:
    """Functions that numpy and networks have, made of others here."""

    EDGES = (INF, -INF, NAN, 0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.4, 3.7, -9.25, 100.0)

    @pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
    @pytest.mark.parametrize(
        ("fn", "numpy"),
        [
            (te.round, np.round),
            (te.square, np.square),
            (te.isnan, np.isnan),
            (lambda x: te.where(x > 1, x, -1), lambda x: np.where(x > 1, x, -1)),
            (lambda x: te.clip(x, -1, 2.5), lambda x: np.clip(x, -1, 2.5)),
            (lambda x: te.clip(x, 2, 1), lambda x: np.clip(x, 2, 1)),
        ],
    )
    def test_they_have_the_bits_of_numpy(self, fn: Any, numpy: Any, dtype: str) -> None:
        x = array(list(self.EDGES), dtype)
        result = evaluate(fn, x)
        assert result.dtype == (np.bool_ if fn is te.isnan else x.dtype)
        with np.errstate(all="ignore"):
            wanted = numpy(x.astype(np.float64)).astype(result.dtype).astype(np.float64)
        found = result.astype(np.float64)
        np.testing.assert_array_equal(found, wanted)
        assert ((np.signbit(found) == np.signbit(wanted)) | np.isnan(wanted)).all()

    @pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
    @pytest.mark.parametrize(("fn", "formula"), [(te.silu, _silu), (te.gelu, _gelu)])
    def test_activations_are_rounded_once(self, fn: Any, formula: Any, dtype: str) -> None:
        x = array([INF, NAN, 0, 0.5, 1.5, -0.5, -1.5, -2.75, 3.75, 60, -30], dtype)
        result = evaluate(fn, x)
        assert result.dtype == x.dtype
        found, exact = result.astype(np.float64), x.astype(np.float64)
        with np.errstate(all="ignore"):
            wanted = formula(exact)
        # Steps in float32 and one rounding; near -30 gelu's factor is a difference of ones.
        unit = np.finfo("f8" if dtype == "float64" else "f4").eps
        steps = 4 * np.abs(exact) * unit + np.abs(wanted) * float(finfo(dtype).eps)
        finite = np.isfinite(wanted)
        assert (np.abs(found[finite] - wanted[finite]) <= steps[finite]).all(), (found, wanted)
        np.testing.assert_array_equal(found[~finite], wanted[~finite])

    def test_activations_with_parameters(self) -> None:
        x = array([-INF, -3, -0.5, 0, 2, INF], "float64")
        for fn, wanted in {
            lambda v: te.leaky_relu(v, 0.2): np.where(x > 0, x, 0.2 * x),
            lambda v: te.elu(v, 0.5): np.where(x > 0, x, 0.5 * np.expm1(x)),
            lambda v: te.celu(v, alpha=0.5): np.where(x > 0, x, 0.5 * np.expm1(x / 0.5)),
            lambda v: te.hardsigmoid(v, 0.2, 0.4): np.clip(0.2 * x + 0.4, 0, 1),
            lambda v: te.hardtanh(v, -2, 0.5): np.clip(x, -2, 0.5),
        }.items():
            np.testing.assert_allclose(evaluate(fn, x), wanted, rtol=4e-16)

    @pytest.mark.parametrize("dtype", ["int8", "uint64"])
    def test_integers(self, dtype: str) -> None:
        x = array([0, 1, 2, 5, 100], dtype)
        check(evaluate(te.square, x), np.square(x).tolist())
        check(evaluate(lambda v: te.clip(v, 1, 5), x), np.clip(x, 1, 5).tolist())
        check(evaluate(te.isnan, x), [0] * 5)
        for fn in (te.silu, te.gelu, te.round):
            with pytest.raises(IRError):
                evaluate(fn, x)


class TestPromotion:
    @pytest.mark.parametrize(
        ("a", "b", "wanted"),
        [
            ("int8", "uint8", "int16"),
            ("int64", "uint64", "float64"),
            ("int32", "float32", "float64"),
            ("int16", "float32", "float32"),
            ("float16", "float32", "float32"),
            ("bool", "int8", "int8"),
            ("bfloat16", "float32", "float32"),
        ],
    )
    def test_two_tensors(self, a: str, b: str, wanted: str) -> None:
        x, y = te.placeholder((1,), a, name="a"), te.placeholder((1,), b, name="b")
        assert (x[0] + y[0]).dtype == wanted
        assert te.maximum(y[0], x[0]).dtype == wanted
        assert te.select(x[0] == y[0], x[0], y[0]).dtype == wanted

    def test_dtypes_without_a_common_one(self) -> None:
        x = te.placeholder((1,), "float8_e4m3fn", name="x")
        y = te.placeholder((1,), "float8_e5m2", name="y")
        with pytest.raises(IRError):
            _ = x[0] + y[0]

    @pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
    def test_python_integers_are_weak(self, dtype: str) -> None:
        x = te.placeholder((1,), dtype, name="x")
        assert (x[0] + 1).dtype == dtype
        assert (2 * x[0]).dtype == dtype
        assert te.maximum(x[0], 0).dtype == dtype

    def test_python_floats_are_weak_beside_floats_only(self) -> None:
        for dtype in FLOATS:
            x = te.placeholder((1,), dtype, name="x")
            assert (x[0] * 0.5).dtype == dtype
            assert (0.5 - x[0]).dtype == dtype
        for dtype in INTEGERS:
            x = te.placeholder((1,), dtype, name="x")
            assert (x[0] * 0.5).dtype == "float64"
            assert (0.5 - x[0]).dtype == "float64"

    def test_numpy_scalars_are_strong(self) -> None:
        x = te.placeholder((1,), "float32", name="x")
        assert (x[0] * np.float64(0.5)).dtype == "float64"

    def test_casts_of_python_numbers_lose_nothing(self) -> None:
        assert evaluate(lambda a: a + te.cast(0.1, "float64"), np.zeros(1)) == 0.1
        x = np.zeros(1, np.int32)
        assert evaluate(lambda a: a + te.cast(1e10, "int32"), x) == 2**31 - 1

    def test_index_arithmetic_folds(self) -> None:
        assert isinstance(te.const(6) // 4 + 2, Const)

    def test_comparisons_give_bool(self) -> None:
        x = te.placeholder((1,), "int8", name="x")
        assert (x[0] < 1).dtype == "bool"


class TestSelect:
    def test_only_the_side_taken_is_evaluated(self) -> None:
        a = te.placeholder((3,), name="A")
        padded = te.compute(
            (5,), lambda i: te.select((i >= 1) & (i < 4), a[i - 1], 0.0), name="padded"
        )
        out = np.full(5, np.nan, np.float32)
        interpret(te.func([a, padded]), np.array([1, 2, 3], np.float32), out)
        assert out.tolist() == [0, 1, 2, 3, 0]

    def test_nan_is_no_reason_to_take_the_other_side(self) -> None:
        out = evaluate(lambda a: te.select(a > 0, a, -1.0), array([NAN, 2, -3], "float32"))
        check(out, [-1, 2, -1])

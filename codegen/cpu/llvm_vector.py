"""Operands with Python operators, so that numeric code for LLVM reads like formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...base import dtypes
from .llvm_polynomials import POLYNOMIALS
from .llvm_text import Builder, call, constant, value_type


class V(NamedTuple):
    """An operand of `dtype` (scalar or with lanes): a float, or the integers of its bits.

    Operators append instructions. A number on the right stands for itself in each lane.
    """

    b: Builder
    text: str
    dtype: str

    @property
    def scalar(self) -> str:
        return dtypes.info(self.dtype).scalar

    @property
    def mantissa(self) -> int:
        """Bits of the mantissa."""
        return dtypes.info(self.dtype).mantissa

    @property
    def bias(self) -> int:
        """The bias of the exponent."""
        return (1 << (dtypes.info(self.dtype).bits - dtypes.info(self.dtype).mantissa - 2)) - 1

    def like(self, number: float) -> V:
        """A constant of the same dtype."""
        return V(self.b, constant(number, self.dtype), self.dtype)

    # A `V` is a tuple too, for which some of these operators mean something else.

    def __add__(self, other: V | float) -> V:  # type: ignore[override]
        return self._apply("add", other)

    def __sub__(self, other: V | float) -> V:
        return self._apply("sub", other)

    def __mul__(self, other: V | float) -> V:  # type: ignore[override]
        return self._apply("mul", other)

    def __truediv__(self, other: V | float) -> V:
        return self._apply("div", other)

    def __neg__(self) -> V:
        return self._op(f"fneg {value_type(self.dtype)} {self.text}")

    def __and__(self, other: V) -> V:
        return self._op(f"and {value_type(self.dtype)} {self.text}, {other.text}")

    def __or__(self, other: V) -> V:
        return self._op(f"or {value_type(self.dtype)} {self.text}, {other.text}")

    def __lt__(self, other: V | float) -> V:  # type: ignore[override]
        return self._compare("olt", other)

    def __gt__(self, other: V | float) -> V:  # type: ignore[override]
        return self._compare("ogt", other)

    def equals(self, other: V | float) -> V:
        return self._compare("oeq", other)

    def differs(self, other: V | float) -> V:
        return self._compare("une", other)

    def is_nonzero(self) -> V:
        """Whether it is a number other than 0: NaN is none."""
        return self._compare("one", 0.0)

    def is_nan(self) -> V:
        return self._compare("uno", self)

    def abs(self) -> V:
        return self._intrinsic("llvm.fabs")

    def floor(self) -> V:
        return self._intrinsic("llvm.floor")

    def trunc(self) -> V:
        return self._intrinsic("llvm.trunc")

    def sqrt(self) -> V:
        return self._intrinsic("llvm.sqrt")

    def with_sign_of(self, other: V) -> V:
        return self._intrinsic("llvm.copysign", other)

    def shl(self, count: int) -> V:
        return self._op(f"shl {value_type(self.dtype)} {self.text}, {self.like(count).text}")

    def ashr(self, count: int) -> V:
        return self._op(f"ashr {value_type(self.dtype)} {self.text}, {self.like(count).text}")

    def lshr(self, count: int) -> V:
        return self._op(f"lshr {value_type(self.dtype)} {self.text}, {self.like(count).text}")

    def bits(self) -> V:
        """The bits of a float as an integer."""
        facts = dtypes.info(self.dtype)
        return self._cast("bitcast", dtypes.vector(f"int{facts.bits}", facts.lanes))

    def to_float(self, dtype: str) -> V:
        """An integer as a number of `dtype`."""
        return self._cast("sitofp", dtype)

    def to_integer(self, dtype: str) -> V:
        """A float within the limits of the integers of `dtype` as one, towards zero."""
        return self._cast("fptosi" if dtypes.info(dtype).kind == "int" else "fptoui", dtype)

    def extended(self) -> V:
        """A float32 as float64."""
        return self._cast("fpext", dtypes.vector("float64", dtypes.info(self.dtype).lanes))

    def truncated(self, dtype: str) -> V:
        """A float64 rounded to `dtype`."""
        return self._cast("fptrunc", dtype)

    def _apply(self, name: str, other: V | float) -> V:
        right = other if isinstance(other, V) else self.like(other)
        prefix = "f" if dtypes.is_float(self.dtype) else ""
        return self._op(f"{prefix}{name} {value_type(self.dtype)} {self.text}, {right.text}")

    def _compare(self, name: str, other: V | float) -> V:
        right = other if isinstance(other, V) else self.like(other)
        text = self.b.op(f"fcmp {name} {value_type(self.dtype)} {self.text}, {right.text}")
        return V(self.b, text, dtypes.vector("bool", dtypes.info(self.dtype).lanes))

    def _intrinsic(self, name: str, *others: V) -> V:
        texts = (self.text, *(o.text for o in others))
        return V(self.b, call(self.b, name, self.dtype, self.dtype, *texts), self.dtype)

    def _op(self, text: str) -> V:
        return V(self.b, self.b.op(text), self.dtype)

    def _cast(self, name: str, dtype: str) -> V:
        source, target = value_type(self.dtype), value_type(dtype)
        return V(self.b, self.b.op(f"{name} {source} {self.text} to {target}"), dtype)


def from_bits(bits: V, dtype: str) -> V:
    """The float with these bits."""
    return bits._cast("bitcast", dtype)


def where(condition: V, then: V, other: V) -> V:
    """`then` in the lanes in which the condition holds, else `other`."""
    t = value_type(then.dtype)
    text = (
        f"select {value_type(condition.dtype)} {condition.text}, {t} {then.text}, {t} {other.text}"
    )
    return V(then.b, then.b.op(text), then.dtype)


def fma(a: V, b: V, c: V) -> V:
    """a * b + c, rounded once where the target has an instruction for it."""
    name = "llvm.fma" if a.b.module.target.fma else "llvm.fmuladd"
    return V(a.b, call(a.b, name, a.dtype, a.dtype, a.text, b.text, c.text), a.dtype)


def fma_exact(a: V, b: V, c: V) -> V:
    """a * b + c, rounded once; a function of C's library where there is no instruction for it."""
    return V(a.b, call(a.b, "llvm.fma", a.dtype, a.dtype, a.text, b.text, c.text), a.dtype)


def polynomial(name: str, x: V, precision: str = "") -> V:
    """The polynomial `name` of x for results of `precision` (by default that of x), by Horner."""
    return _horner(POLYNOMIALS[name, precision or x.scalar], x)


def short_polynomial(name: str, x: V, square: V) -> V:
    """The same as even and odd terms, by Horner in x**2: results after half as many steps."""
    coefficients = POLYNOMIALS[name, x.scalar]
    return fma(_horner(coefficients[1::2], square), x, _horner(coefficients[::2], square))


def _horner(coefficients: Sequence[float], x: V) -> V:
    total = x.like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = fma(total, x, x.like(c))
    return total


def two_sum(a: V, b: V) -> tuple[V, V]:
    """a + b as the rounded sum and its error (Knuth)."""
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def two_product(a: V, b: V) -> tuple[V, V]:
    """a * b of float64 as the rounded product and its error; by halves without a multiply-add."""
    product = a * b
    if a.b.module.target.fma:
        return product, fma_exact(a, b, -product)
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    error = a_high * b_high - product + a_high * b_low + a_low * b_high
    return product, error + a_low * b_low


def _halves(x: V) -> tuple[V, V]:
    """A float64 as a sum of two numbers of 26 bits."""
    bits = x.bits()
    high = from_bits((bits + bits.like(2**26)) & bits.like(-(2**27)), x.dtype)
    return high, x - high

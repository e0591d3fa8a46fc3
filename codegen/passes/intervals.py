"""Intervals of integer expressions of any dtype, and whether their arithmetic wraps around."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from ...base import dtypes
from ...tir.ir import Binary, Broadcast, Call, Cast, Const, Expr, Load, Op, Ramp, Select, Var

Interval: TypeAlias = tuple[int, int]


class Intervals:
    """Inclusive ends of integer expressions, by those of their variables."""

    def __init__(self, ranges: Mapping[Var, Interval]) -> None:
        self.ranges = dict(ranges)
        self._known: dict[Expr, Interval] = {}

    def __call__(self, e: Expr) -> Interval:
        """The ends of what `e` is; those of its dtype where it may wrap around."""
        found = self._known.get(e)
        if found is None:
            limits = dtypes.int_limits(e.dtype)
            exact = self.exact(e)
            fits = exact is not None and limits[0] <= exact[0] and exact[1] <= limits[1]
            self._known[e] = found = exact if fits and exact is not None else limits
        return found

    def exact(self, e: Expr) -> Interval | None:
        """The ends of the result before it wraps around; `None` if they are not known."""
        match e:
            case Const(value=value):
                return int(value), int(value)
            case Var():
                return self.ranges.get(e)
            case Load(buffer=b) if b.value_range is not None:
                return b.value_range[0], b.value_range[1] - 1
            case Cast(value=v) if not dtypes.is_float(v.dtype):
                return self(v)
            case Broadcast(value=v):
                return self(v)
            case Ramp(base=base, stride=Const(value=step), lanes=lanes):
                (low, high), last = self(base), int(step) * (lanes - 1)
                return low + min(last, 0), high + max(last, 0)
            case Select(then=a, other=b):
                return _hull(self(a), self(b))
            case Call(fn="neg", args=(a,)):
                low, high = self(a)
                return -high, -low
            case Call(fn="abs", args=(a,)):
                low, high = self(a)
                return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(-low, high)
            case Binary():
                return self._binary(e.op, self(e.a), self(e.b))
            case _:
                return None

    def wraps(self, e: Expr) -> bool:
        """Whether integer arithmetic may leave its dtype."""
        exact, (low, high) = self.exact(e), dtypes.int_limits(e.dtype)
        return exact is None or exact[0] < low or exact[1] > high

    def may_shift_out(self, shift: Binary) -> bool:
        """Whether the count of a shift may be negative, or the width or more."""
        low, high = self(shift.b)
        return low < 0 or high >= dtypes.info(shift.dtype).bits

    def _binary(self, op: Op, a: Interval, b: Interval) -> Interval | None:
        match op:
            case Op.ADD:
                return a[0] + b[0], a[1] + b[1]
            case Op.SUB:
                return a[0] - b[1], a[1] - b[0]
            case Op.MUL:
                corners = [x * y for x in a for y in b]
                return min(corners), max(corners)
            case Op.FLOORDIV if b[0] > 0:
                corners = [x // y for x in a for y in b]
                return min(corners), max(corners)
            case Op.MOD if b[0] > 0:
                whole = b[0] == b[1] and a[0] // b[0] == a[1] // b[0]
                if whole:
                    return a[0] % b[0], a[1] % b[0]
                return 0, min(b[1] - 1, a[1]) if a[0] >= 0 else b[1] - 1
            case Op.MIN:
                return min(a[0], b[0]), min(a[1], b[1])
            case Op.MAX:
                return max(a[0], b[0]), max(a[1], b[1])
            case Op.AND if a[0] >= 0 or b[0] >= 0:
                ends = [x[1] for x in (a, b) if x[0] >= 0]
                return 0, min(ends)
            case Op.OR | Op.XOR if a[0] >= 0 and b[0] >= 0:
                return 0, (1 << max(a[1], b[1]).bit_length()) - 1
            case Op.SHR if b[0] >= 0:
                corners = [x >> y for x in a for y in b]
                return min(corners), max(corners)
            case _:
                return None


def _hull(a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), max(a[1], b[1])

"""Prove that conditions cannot hold together, whatever is in memory.

The conditions become one isl formula, in which integers of every dtype wrap around as they do in
the program. Equal expressions that no integer set describes (an element, a product, a comparison of
floats) are one unknown each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..base import dtypes
from . import affine
from .ir import COMPARISONS, Binary, Call, Cast, Const, Expr, Load, Op, Select, Var
from .polynomial import Ranges
from .structure import key_of, tree_size

LARGE = 32
"""Nodes of a condition that may take the library too long: it is asked about its surface first."""
DEPTHS = (2, 4)


def contradict(conditions: Sequence[Expr], ranges: Ranges) -> bool:
    """Whether `conditions`, which are scalar, are shown to be contradictory.

    `ranges` has inclusive bounds of variables. False if it is not known.
    """
    if any(type(c) is Const and not c.value for c in conditions):
        return True
    large = any(tree_size(c, {}) > LARGE for c in conditions)
    depths = (*DEPTHS, None) if large else (None,)
    return any(_shown(conditions, ranges, depth) for depth in depths)


def _shown(conditions: Sequence[Expr], ranges: Ranges, depth: int | None) -> bool:
    """`contradict`, with operands that are `depth` operations deep unknown."""
    formula = _Formula(ranges, depth)
    texts = [formula.condition(c) for c in conditions]
    return affine.unsatisfiable(formula.names, [*formula.facts, *texts])


def _places(dtype: str, count: int) -> int:
    """By how many places a shift of `dtype` by `count` moves bits."""
    bits = dtypes.info(dtype).bits
    return count if 0 <= count < bits else bits


class _Number(NamedTuple):
    """An integer in the notation of the library, and ends between which it lies."""

    text: str
    low: int
    high: int


class _Formula:
    """The unknowns of some expressions, and facts about them."""

    def __init__(self, ranges: Ranges, depth: int | None) -> None:
        self.names: list[str] = []
        self.facts: list[str] = []
        self._ranges = ranges
        self._known: dict[object, _Number] = {}
        self._left = depth

    def condition(self, e: Expr) -> str:
        """A bool expression as a formula."""
        match e:
            case Const(value=value):
                return "(0 = 0)" if value else "(0 = 1)"
            case Binary(op=op, a=a, b=b) if op in COMPARISONS and not dtypes.is_float(a.dtype):
                return self._compared(op, a, b)
            case Binary(op=Op.AND | Op.MIN, dtype="bool"):
                return f"({self.condition(e.a)} and {self.condition(e.b)})"
            case Binary(op=Op.OR | Op.MAX, dtype="bool"):
                return f"({self.condition(e.a)} or {self.condition(e.b)})"
            case Binary(op=Op.XOR, dtype="bool"):
                return self._compared(Op.NE, e.a, e.b)
            case Call(fn="not", args=(a,)):
                return f"(not {self.condition(a)})"
            case Cast(value=v) if not dtypes.is_float(v.dtype):
                return f"({self.integer(v).text} != 0)"
            case Select(cond=cond, then=then, other=other):
                taken = self._flag(cond).text
                then_text, other_text = self.condition(then), self.condition(other)
                return f"(({taken} = 1 and {then_text}) or ({taken} = 0 and {other_text}))"
            case _:
                return f"({self._unknown(e, 0, 1).text} = 1)"

    def _compared(self, op: Op, a: Expr, b: Expr) -> str:
        return f"({self.integer(a).text} {_COMPARED.get(op, op.value)} {self.integer(b).text})"

    def integer(self, e: Expr) -> _Number:
        """An expression of an integer dtype, or a bool as 0 and 1."""
        if type(e) is Const:
            return _Number(str(int(e.value)), int(e.value), int(e.value))
        if self._left is None:
            return self._computed(e)
        if self._left == 0:
            return self._unknown(e, *self._ends(e))
        self._left -= 1
        found = self._computed(e)
        self._left += 1
        return found

    def _computed(self, e: Expr) -> _Number:
        if dtypes.is_bool(e.dtype):
            return self._flag(e)
        match e:
            case Binary():
                return self._binary(e)
            case Call(fn="neg", args=(a,)):
                x = self.integer(a)
                return self._wrapped(e, f"(-{x.text})", -x.high, -x.low)
            case Call(fn="not", args=(a,)):
                x = self.integer(a)
                return self._wrapped(e, f"(-1 - {x.text})", -1 - x.high, -1 - x.low)
            case Call(fn="abs", args=(a,)):
                x = self.integer(a)
                name = self._named(a, x)
                return self._wrapped(e, f"max({name}, -{name})", 0, max(-x.low, x.high))
            case Cast(value=v) if not dtypes.is_float(v.dtype):
                return self._wrapped(e, *self.integer(v))
            case Select(cond=cond, then=then, other=other):
                return self._either(e, self._flag(cond), self.integer(then), self.integer(other))
            case _:
                return self._unknown(e, *self._ends(e))

    def _binary(self, e: Binary) -> _Number:
        a, b = self.integer(e.a), self.integer(e.b)
        x, y = a.text, b.text
        match e.op:
            case Op.ADD:
                return self._wrapped(e, f"({x} + {y})", a.low + b.low, a.high + b.high)
            case Op.SUB:
                return self._wrapped(e, f"({x} - {y})", a.low - b.high, a.high - b.low)
            case Op.MUL:
                ends = [p * q for p in (a.low, a.high) for q in (b.low, b.high)]
                if a.low == a.high or b.low == b.high:
                    by, other = (a.low, y) if a.low == a.high else (b.low, x)
                    return self._wrapped(e, f"({by} * {other})", min(ends), max(ends))
                limits = self._ends(e)
                fits = limits[0] <= min(ends) and max(ends) <= limits[1]
                return self._unknown(e, *((min(ends), max(ends)) if fits else limits))
            case Op.MIN | Op.MAX:
                choose = min if e.op is Op.MIN else max
                text = f"{e.op.value}({x}, {y})"
                return _Number(text, choose(a.low, b.low), choose(a.high, b.high))
            case Op.FLOORDIV if type(e.b) is Const and b.low != 0:
                text, n = (x, b.low) if b.low > 0 else (f"(-{x})", -b.low)
                ends = [a.low // b.low, a.high // b.low]
                return self._wrapped(e, f"floor({text} / {n})", min(ends), max(ends))
            case Op.MOD if type(e.b) is Const and b.low > 0:
                return _Number(f"({x} mod {b.low})", 0, b.low - 1)
            case Op.SHL if type(e.b) is Const:
                n = 1 << _places(e.dtype, b.low)
                return self._wrapped(e, f"({n} * {x})", a.low * n, a.high * n)
            case Op.SHR if type(e.b) is Const:
                n = 1 << _places(e.dtype, b.low)
                return _Number(f"floor({x} / {n})", a.low // n, a.high // n)
            case Op.AND if type(e.b) is Const and b.low >= 0 and b.low & (b.low + 1) == 0:
                return _Number(f"({x} mod {b.low + 1})", 0, b.low)
            case _:
                return self._described(e, a, b)

    def _described(self, e: Binary, a: _Number, b: _Number) -> _Number:
        """An unknown of which something is known by its operands."""
        found = self._unknown(e, *self._ends(e))
        t, x, y = found.text, self._named(e.a, a), self._named(e.b, b)
        match e.op:
            case Op.MOD:
                self._add(f"({y} <= 0 or (0 <= {t} and {t} < {y}))")
                self._add(f"({y} >= 0 or ({y} < {t} and {t} <= 0))")
            case Op.AND:
                for n in (n for n in (a, b) if n.low >= 0):
                    self._add(f"(0 <= {t} and {t} <= {n.text})")
            case Op.OR:
                some = f"({t} != 0 and ({x} != 0 or {y} != 0))"
                self._add(f"(({t} = 0 and {x} = 0 and {y} = 0) or {some})")
            case Op.XOR:
                self._add(f"(({t} = 0 and {x} = {y}) or ({t} != 0 and {x} != {y}))")
            case _:
                pass
        return found

    def _named(self, e: Expr, x: _Number) -> str:
        """A short text of `x`, the number of `e`, for formulas that mention it more than once."""
        found = self._unknown(e, x.low, x.high).text
        if found != x.text:
            self._add(f"({found} = {x.text})")
        return found

    def _either(self, e: Expr, taken: _Number, then: _Number, other: _Number) -> _Number:
        low, high = min(then.low, other.low), max(then.high, other.high)
        found = self._unknown(e, low, high)
        flag, t = taken.text, found.text
        self._add(f"(({flag} = 1 and {t} = {then.text}) or ({flag} = 0 and {t} = {other.text}))")
        return found

    def _flag(self, e: Expr) -> _Number:
        """A bool expression as 0 or 1."""
        found = self._unknown(e, 0, 1)
        text = self.condition(e)
        t = found.text
        if text != f"({t} = 1)":
            self._add(f"(({t} = 1 and {text}) or ({t} = 0 and not {text}))")
        return found

    def _wrapped(self, e: Expr, text: str, low: int, high: int) -> _Number:
        """The number `text`, between `low` and `high`, in the dtype of `e`."""
        least, most = dtypes.int_limits(dtypes.info(e.dtype).scalar)
        if least <= low and high <= most:
            return _Number(text, low, high)
        found = self._unknown(e, least, most)
        self._add(f"(({found.text} - {text}) mod {most - least + 1} = 0)")
        return found

    def _ends(self, e: Expr) -> tuple[int, int]:
        low, high = dtypes.int_limits(dtypes.info(e.dtype).scalar)
        if type(e) is Load and e.buffer.value_range is not None:
            first, end = e.buffer.value_range
            return max(low, first), min(high, end - 1)
        if type(e) is Var and e in self._ranges:
            ends = self._ranges[e]
            low = ends[0] if isinstance(ends[0], int) else low
            high = ends[1] if isinstance(ends[1], int) else high
        return low, high

    def _unknown(self, e: Expr, low: int, high: int) -> _Number:
        """The one unknown for expressions of one structure."""
        key = key_of(e)
        found = self._known.get(key)
        if found is None:
            name = f"v{len(self.names)}"
            self.names.append(name)
            self.facts.append(f"({low} <= {name} <= {high})")
            found = self._known[key] = _Number(name, low, high)
        return found

    def _add(self, fact: str) -> None:
        if fact not in self.facts:
            self.facts.append(fact)


_COMPARED = {Op.EQ: "="}

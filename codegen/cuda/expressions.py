"""Print expressions as CUDA C++.

Each text comes with the precedence of its outermost operator, and is put into parentheses where a
tighter one is needed. Integer arithmetic that may wrap around is done on unsigned integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...base import dtypes
from ...base.errors import BuildError
from ...tir import arithmetic
from ...tir.ir import (
    COMPARISONS,
    SHIFTS,
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Op,
    Select,
    Var,
    WarpShuffle,
)
from ..passes.intervals import Intervals
from .prelude import HEADERS, NARROW, TYPES, Names, converted

CONDITIONAL, OR, AND, EQUALITY, RELATION, SHIFT, SUM, PRODUCT, UNARY, ATOM = range(10)
_SYMBOLS: dict[Op, tuple[str, int]] = {
    Op.ADD: ("+", SUM),
    Op.SUB: ("-", SUM),
    Op.MUL: ("*", PRODUCT),
    Op.DIV: ("/", PRODUCT),
    Op.EQ: ("==", EQUALITY),
    Op.NE: ("!=", EQUALITY),
    Op.LT: ("<", RELATION),
    Op.LE: ("<=", RELATION),
    Op.GT: (">", RELATION),
    Op.GE: (">=", RELATION),
    Op.SHL: ("<<", SHIFT),
    Op.SHR: (">>", SHIFT),
}
_BITS = {Op.AND: "&", Op.OR: "|", Op.XOR: "^"}
_LOGIC = {Op.AND: ("&&", AND), Op.OR: ("||", OR), Op.XOR: ("!=", EQUALITY)}
_INTEGER_CALLS = {Op.FLOORDIV: "floor_div", Op.MOD: "floor_mod", Op.MIN: "min", Op.MAX: "max"}
_FLOAT_CALLS = {
    Op.FLOORDIV: "floor_div_float",
    Op.MOD: "floor_mod_float",
    Op.MIN: "nan_min",
    Op.MAX: "nan_max",
}
_C_NAMES = {"abs": "fabs", "round": "rint"}
"""Functions with another name in C, where `round` takes ties away from zero."""
_SHUFFLED = frozenset({"int32", "int64", "uint32", "uint64", "float16", "bfloat16", "float32",
                       "float64"})  # fmt: skip
Text = tuple[str, int]


class Expressions:
    """Prints expressions of one kernel, and notes the headers and functions that they need."""

    def __init__(self, names: Names, intervals: Intervals) -> None:
        self.names = names
        self.intervals = intervals
        self.headers: set[str] = set()
        self.functions: set[str] = set()

    def text(self, e: Expr, least: int = CONDITIONAL) -> str:
        """`e` as text whose outermost operator binds at least as tightly as `least`."""
        try:
            print_expr = _PRINTERS[type(e)]
        except KeyError:
            raise BuildError("{0} cannot be compiled for GPUs", type(e).__name__) from None
        text, precedence = print_expr(self, e)
        return text if precedence >= least else f"({text})"

    def element(self, buffer: Buffer, index: Expr) -> str:
        return f"{self.names.of(buffer)}[{self.text(index)}]"

    def type(self, dtype: str) -> str:
        """The type of a dtype."""
        header = HEADERS.get(dtype)
        if header is not None:
            self.headers.add(header)
        return TYPES[dtype]

    def converted(self, text: str, source: str, target: str) -> str:
        """A cast of an atom, by the functions that this takes."""
        self.type(source), self.type(target)
        result = converted(text, source, target)
        self.functions.update(
            name
            for name in ("saturate", "float8_to_float", "float_to_float8", "double_to_float8")
            if f"{name}<" in result
        )
        return result

    def called(self, name: str, *arguments: str) -> Text:
        self.functions.add(name)
        return f"{name}({', '.join(arguments)})", ATOM

    # Nodes

    def var(self, e: Var) -> Text:
        return self.names.of(e), ATOM

    def const(self, e: Const) -> Text:
        kind = dtypes.info(e.dtype).kind
        if kind == "bool":
            return ("true" if e.value else "false"), ATOM
        if kind == "float":
            return self.float_const(float(e.value), e.dtype)
        value = int(e.value)
        suffix = {"int64": "ll", "uint32": "u", "uint64": "ull"}.get(e.dtype, "")
        if value == dtypes.int_limits(e.dtype)[0] and e.dtype in ("int32", "int64"):
            return f"(-{-(value + 1)}{suffix} - 1)", ATOM
        text = f"{value}{suffix}"
        if e.dtype in ("int8", "int16", "uint8", "uint16"):
            return f"({TYPES[e.dtype]}){text}", UNARY
        return text, ATOM if value >= 0 else UNARY

    def float_const(self, value: float, dtype: str) -> Text:
        with np.errstate(over="ignore"):
            value = float(arithmetic.constant(value, dtype))  # beyond the dtype, infinite
        if dtype in NARROW:
            return self.rounded(self.float_const(value, "float32")[0], dtype), ATOM
        double = dtype == "float64"
        if math.isnan(value):
            text = (
                "__longlong_as_double(0x7ff8000000000000ll)"
                if double
                else ("__int_as_float(0x7fc00000)")
            )
            return text, ATOM
        if math.isinf(value):
            text = (
                "__longlong_as_double(0x7ff0000000000000ll)"
                if double
                else ("__int_as_float(0x7f800000)")
            )
            return (text, ATOM) if value > 0 else (f"-{text}", UNARY)
        text = repr(value) if double else str(np.float32(value))
        precedence = UNARY if text.startswith("-") else ATOM
        return (text if double else f"{text}f"), precedence

    def binary(self, e: Binary) -> Text:
        dtype = e.a.dtype
        facts = dtypes.info(dtype)
        if dtype in NARROW:
            return self.narrow_binary(e)
        if facts.kind == "bool":
            return self.bool_binary(e)
        if e.op in COMPARISONS:
            return self.infix(e.op, e.a, e.b)
        if facts.kind == "float":
            name = _FLOAT_CALLS.get(e.op)
            if name is not None:
                return self.called(name, self.text(e.a), self.text(e.b))
            return self.infix(e.op, e.a, e.b)
        return self.integer_binary(e)

    def infix(self, op: Op, a: Expr, b: Expr) -> Text:
        symbol, precedence = _SYMBOLS[op]
        return (
            f"{self.text(a, precedence)} {symbol} {self.text(b, precedence + 1)}",
            precedence,
        )

    def narrow_binary(self, e: Binary) -> Text:
        """Arithmetic of narrow floats: that of float32, rounded."""
        self.type(e.a.dtype)
        a, b = (self.as_float(x) for x in (e.a, e.b))
        name = _FLOAT_CALLS.get(e.op)
        if name is not None:
            result, precedence = self.called(name, a, b)
        else:
            symbol, precedence = _SYMBOLS[e.op]
            result = f"{a} {symbol} {b}"
        if e.op in COMPARISONS:
            return result, precedence
        return self.rounded(result, e.dtype), ATOM

    def as_float(self, e: Expr) -> str:
        """A narrow float as a float, by a call."""
        return self.converted(self.text(e), e.dtype, "float32")

    def rounded(self, text: str, dtype: str) -> str:
        """A float, whatever its text, as a narrow one."""
        return self.converted(text, "float32", dtype)

    def bool_binary(self, e: Binary) -> Text:
        if e.op in _LOGIC:
            symbol, precedence = _LOGIC[e.op]
        elif e.op in (Op.MIN, Op.MAX):  # both operands are evaluated: one may be a shuffle
            bits = self.text(e.a, UNARY), self.text(e.b, UNARY)
            return f"(bool)({bits[0]} {'&' if e.op is Op.MIN else '|'} {bits[1]})", UNARY
        else:
            return self.infix(e.op, e.a, e.b)
        left, right = self.text(e.a, precedence), self.text(e.b, precedence + 1)
        return f"{left} {symbol} {right}", precedence

    def integer_binary(self, e: Binary) -> Text:
        facts = dtypes.info(e.dtype)
        if e.op in _INTEGER_CALLS:
            return self.quotient_or_extremum(e)
        if e.op in _BITS:
            text = f"({self.text(e.a, UNARY)} {_BITS[e.op]} {self.text(e.b, UNARY)})"
            return (f"({TYPES[e.dtype]}){text}", UNARY) if facts.bits < 32 else (text, ATOM)
        if e.op in SHIFTS and self.intervals.may_shift_out(e):
            name = "shift_left" if e.op is Op.SHL else "shift_right"
            self.functions.add(name)
            return f"{name}<{TYPES[e.dtype]}>({self.text(e.a)}, {self.text(e.b)})", ATOM
        wraps = e.op is not Op.SHR and (e.op is Op.SHL or self.intervals.wraps(e))
        if facts.bits < 32:  # computed as int
            symbol, precedence = _SYMBOLS[e.op]
            a, b = self.text(e.a, precedence), self.text(e.b, precedence + 1)
            if wraps and e.op in (Op.MUL, Op.SHL):
                a = f"(unsigned int){self.text(e.a, UNARY)}"
            return f"({TYPES[e.dtype]})({a} {symbol} {b})", UNARY
        if not wraps or facts.kind == "uint":
            return self.infix(e.op, e.a, e.b)
        symbol, _ = _SYMBOLS[e.op]
        unsigned = f"unsigned {TYPES[e.dtype]}"
        a = f"({unsigned}){self.text(e.a, UNARY)}"
        b = self.text(e.b, UNARY) if e.op in SHIFTS else f"({unsigned}){self.text(e.b, UNARY)}"
        return f"({TYPES[e.dtype]})({a} {symbol} {b})", UNARY

    def quotient_or_extremum(self, e: Binary) -> Text:
        """`//` and `%`, those of C++ where nothing is negative, and `min` and `max`."""
        facts = dtypes.info(e.dtype)
        name = _INTEGER_CALLS[e.op]
        if e.op in (Op.FLOORDIV, Op.MOD):
            positive = self.intervals(e.a)[0] >= 0 and self.intervals(e.b)[0] >= 0
            if positive or facts.kind == "uint":
                symbol = "/" if e.op is Op.FLOORDIV else "%"
                return f"{self.text(e.a, PRODUCT)} {symbol} {self.text(e.b, UNARY)}", PRODUCT
            self.functions.add(name)
            return f"{name}<{TYPES[e.dtype]}>({self.text(e.a)}, {self.text(e.b)})", ATOM
        text = f"{name}({self.text(e.a)}, {self.text(e.b)})"
        return (f"({TYPES[e.dtype]}){text}", UNARY) if facts.bits < 32 else (text, ATOM)

    def call(self, e: Call) -> Text:
        facts = dtypes.info(e.dtype)
        if e.dtype in NARROW:
            result = self.float_call(e.fn, "float32", [self.as_float(a) for a in e.args])
            return self.rounded(result, e.dtype), ATOM
        if facts.kind == "float":
            if e.fn == "neg":
                return f"-{self.text(e.args[0], ATOM)}", UNARY
            return self.float_call(e.fn, e.dtype, [self.text(a) for a in e.args]), ATOM
        (a,) = e.args
        if e.fn == "not":
            if facts.kind == "bool":
                return f"!{self.text(a, UNARY)}", UNARY
            text = f"~{self.text(a, UNARY)}"
            return (f"({TYPES[e.dtype]})({text})", UNARY) if facts.bits < 32 else (text, UNARY)
        if e.fn == "neg":
            return self.negated(a)
        if facts.kind == "uint":
            return _PRINTERS[type(a)](self, a)
        self.functions.add("wrapping_abs")
        return f"wrapping_abs<{TYPES[e.dtype]}>({self.text(a)})", ATOM

    def negated(self, a: Expr) -> Text:
        facts = dtypes.info(a.dtype)
        if facts.bits < 32:
            return f"({TYPES[a.dtype]})(-{self.text(a, ATOM)})", UNARY
        if facts.kind == "uint":
            return f"0u - {self.text(a, PRODUCT)}", SUM
        if self.intervals(a)[0] > dtypes.int_limits(a.dtype)[0]:
            return f"-{self.text(a, ATOM)}", UNARY
        unsigned = f"unsigned {TYPES[a.dtype]}"
        return f"({TYPES[a.dtype]})(0u - ({unsigned}){self.text(a, UNARY)})", UNARY

    def float_call(self, fn: str, dtype: str, arguments: list[str]) -> str:
        if fn == "neg":
            return f"-({arguments[0]})"
        if fn == "sigmoid":
            return self.called("sigmoid", *arguments)[0]
        suffix = "f" if dtype == "float32" else ""
        return f"{_C_NAMES.get(fn, fn)}{suffix}({', '.join(arguments)})"

    def cast(self, e: Cast) -> Text:
        source = e.value.dtype
        from_float, to_float = map(dtypes.is_float, (source, e.dtype))
        calls = source in NARROW or (from_float and (e.dtype in NARROW or not to_float))
        inner = self.text(e.value, CONDITIONAL if calls else UNARY)
        return self.converted(inner, source, e.dtype), UNARY

    def select(self, e: Select) -> Text:
        cond, then = self.text(e.cond, OR), self.text(e.then, OR)
        return f"{cond} ? {then} : {self.text(e.other)}", CONDITIONAL

    def load(self, e: Load) -> Text:
        (index,) = e.indices
        self.type(e.dtype)
        return self.element(e.buffer, index), ATOM

    def warp_shuffle(self, e: WarpShuffle) -> Text:
        value = self.text(e.value)
        if e.dtype not in _SHUFFLED:
            text = f"__shfl_xor_sync(0xffffffffu, (int){self.text(e.value, UNARY)}, {e.xor})"
            return f"({self.type(e.dtype)}){text}", UNARY
        self.type(e.dtype)
        return f"__shfl_xor_sync(0xffffffffu, {value}, {e.xor})", ATOM


_PRINTERS: dict[type, Callable[[Expressions, Any], Text]] = {
    Var: Expressions.var,
    Const: Expressions.const,
    Binary: Expressions.binary,
    Call: Expressions.call,
    Cast: Expressions.cast,
    Select: Expressions.select,
    Load: Expressions.load,
    WarpShuffle: Expressions.warp_shuffle,
}

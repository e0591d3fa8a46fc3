"""Print expressions: Python operators with the fewest possible parentheses.

A constant prints bare if the text around it fixes its dtype (beside another operand, or as a stored
value) or if it is int64 or bool. Otherwise it names its dtype, as in `T.float32(0.5)`.

Programs and their parts in a line: what `repr` shows of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ..base import dtypes
from ..base.text import arguments, count, excerpt, in_lines
from .ir import (
    INDEX,
    Binary,
    Block,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Dim,
    Dot,
    Expr,
    For,
    Func,
    Iter,
    Load,
    Matmul,
    Op,
    Ramp,
    Reduce,
    Region,
    Select,
    Shuffle,
    Stmt,
    Var,
    WarpShuffle,
)
from .names import Names, identifier, literal, rounded
from .visit import nested

COMPARE, UNARY, ATOM = 1, 7, 8

PRECEDENCE = {
    Op.EQ: COMPARE, Op.NE: COMPARE, Op.LT: COMPARE, Op.LE: COMPARE, Op.GT: COMPARE, Op.GE: COMPARE,
    Op.OR: 2, Op.XOR: 3, Op.AND: 4, Op.SHL: 5, Op.SHR: 5, Op.ADD: 6, Op.SUB: 6,
    Op.MUL: 6.5, Op.DIV: 6.5, Op.FLOORDIV: 6.5, Op.MOD: 6.5,
}  # fmt: skip
"""How tightly infix operators bind, in Python's order; `min` and `max` are calls."""

CALLS = {Op.MIN: "T.minimum", Op.MAX: "T.maximum"}
PREFIX = {"neg": "-", "not": "~"}


class ExprPrinter:
    """Prints expressions under the names of `names`."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def text(self, expr: Expr, level: float = 0) -> str:
        """`expr` as text that may stand where operators of precedence `level` and up may."""
        text, precedence = self._print(expr)
        return f"({text})" if precedence < level else text

    def typed(self, expr: Expr, level: float = 0) -> str:
        """As `text`, with the dtype of a constant spelled out."""
        return typed_const(expr) if type(expr) is Const else self.text(expr, level)

    def weak(self, expr: Expr, dtype: str, level: float = 0) -> str:
        """As `text`, where a constant takes `dtype` from its surroundings."""
        if type(expr) is Const and expr.dtype == dtype and _has_bare_form(expr):
            return literal(expr.value, dtype)
        return self.text(expr, level)

    def pair(self, a: Expr, b: Expr, left: float = 0, right: float = 0) -> tuple[str, str]:
        """Two operands that settle each other's dtype."""
        if type(a) is Const:
            if type(b) is not Const:
                return self.weak(a, b.dtype, left), self.text(b, right)
            return self.typed(a), self.weak(b, a.dtype, right)
        return self.text(a, left), self.weak(b, a.dtype, right)

    def dim(self, dim: Dim) -> str:
        return str(dim) if isinstance(dim, int) else self.text(dim)

    def shape(self, dims: tuple[Dim, ...]) -> str:
        return (
            f"({self.dim(dims[0])},)" if len(dims) == 1 else f"({', '.join(map(self.dim, dims))})"
        )

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """`A[i, j]`; `A[()]` for an element of a buffer without dimensions."""
        inside = ", ".join([self.text(i) for i in indices]) or "()"
        return f"{self.names.of(buffer, buffer.name)}[{inside}]"

    def region(self, region: Region) -> str:
        """`A[i, 0:16]`: a point, or a slice from the lower bound to the lower bound plus extent."""
        inside = ", ".join([self._range(r.min, r.extent) for r in region.ranges]) or "()"
        return f"{self.names.of(region.buffer, region.buffer.name)}[{inside}]"

    def _range(self, low: Expr, extent: Dim) -> str:
        if type(extent) is int and extent == 1:
            return self.text(low)
        if type(low) is Const:
            if isinstance(extent, int) and 0 <= low.value + extent < 1 << 63:
                return f"{self.text(low)}:{int(low.value) + extent}"
            starts_with_zero = type(extent) is Binary and type(extent.a) is Const
            if low.value == 0 and not isinstance(extent, int) and not starts_with_zero:
                return f"0:{self.text(extent)}"
        add = PRECEDENCE[Op.ADD]
        length = str(extent) if isinstance(extent, int) else self.text(extent, add + 0.1)
        return f"{self.text(low)}:{self.text(low, add)} + {length}"

    def _print(self, expr: Expr) -> tuple[str, float]:
        if isinstance(expr, Var):  # the tensor-expression builder has variables of its own kind
            return self.names.of(expr, expr.name), ATOM
        return _PRINT[type(expr)](self, expr)

    def _const(self, e: Const) -> tuple[str, float]:
        if e.dtype == INDEX or e.dtype == "bool":
            return literal(e.value, e.dtype), ATOM
        return typed_const(e), ATOM

    def _binary(self, e: Binary) -> tuple[str, float]:
        if e.op in CALLS:
            a, b = self.pair(e.a, e.b)
            return f"{CALLS[e.op]}({a}, {b})", ATOM
        chain = [e]  # a loop over the left operands: sums can be long
        while type(chain[-1].a) is Binary and chain[-1].a.op not in CALLS:
            chain.append(chain[-1].a)
        text, inner = "", 0.0
        for n in reversed(chain):
            level = PRECEDENCE[n.op]
            above = level + 0.1
            left = above if level == COMPARE else level  # comparisons do not chain
            if n is chain[-1]:
                text, right = self.pair(n.a, n.b, left, above)
            else:
                text = f"({text})" if inner < left else text
                right = self.weak(n.b, n.a.dtype, above)
            text = f"{text} {n.op.value} {right}"
            inner = level
        return text, inner

    def _call(self, e: Call) -> tuple[str, float]:
        if e.fn in PREFIX and len(e.args) == 1:
            return PREFIX[e.fn] + self.typed(e.args[0], ATOM), UNARY
        if len(e.args) == 2:
            return f"T.{e.fn}({', '.join(self.pair(*e.args))})", ATOM
        return f"T.{e.fn}({', '.join([self.text(a) for a in e.args])})", ATOM

    def _cast(self, e: Cast) -> tuple[str, float]:
        return f"T.{e.dtype}({self.typed(e.value)})", ATOM

    def _select(self, e: Select) -> tuple[str, float]:
        then, other = self.pair(e.then, e.other)
        return f"T.select({self.text(e.cond)}, {then}, {other})", ATOM

    def _load(self, e: Load) -> tuple[str, float]:
        element = self.element(e.buffer, e.indices)
        options = access_options(e.buffer, e.indices, e.dtype)
        if e.mask is not None:
            options += f", mask={self.text(e.mask)}"
        return (f"T.load({element}{options})", ATOM) if options else (element, ATOM)

    def _fields(self, e: Any) -> tuple[str, float]:
        """A call with the fields of the node in order, but its dtype."""
        values = [getattr(e, name) for name in e.__slots__ if name != "dtype"]
        parts = [
            self.text(v) if isinstance(v, Expr) else str(v if isinstance(v, int) else list(v))
            for v in values
        ]
        return f"T.{type(e).__name__.lower()}({', '.join(parts)})", ATOM

    def _warp_shuffle(self, e: WarpShuffle) -> tuple[str, float]:
        return f"T.warp_shuffle({self.text(e.value)}, {e.xor})", ATOM

    def _reduce(self, e: Reduce) -> tuple[str, float]:
        values = ", ".join([self.text(v) for v in e.values])
        axes = ", ".join([self.names.of(a.var, a.var.name) for a in e.axes])
        index = f", index={e.index}" if len(e.values) > 1 else ""
        return f"te.{e.combiner}({values}, axis=({axes}){index})", ATOM


_PRINT: dict[type, Callable[[ExprPrinter, Any], tuple[str, float]]] = {
    Const: ExprPrinter._const,
    Binary: ExprPrinter._binary,
    Call: ExprPrinter._call,
    Cast: ExprPrinter._cast,
    Select: ExprPrinter._select,
    Load: ExprPrinter._load,
    Ramp: ExprPrinter._fields,
    Broadcast: ExprPrinter._fields,
    Dot: ExprPrinter._fields,
    Matmul: ExprPrinter._fields,
    Shuffle: ExprPrinter._fields,
    WarpShuffle: ExprPrinter._warp_shuffle,
    Reduce: ExprPrinter._reduce,
}


def typed_const(const: Const) -> str:
    """`T.float32(0.5)`."""
    return f"T.{const.dtype}({literal(const.value, const.dtype)})"


def access_options(buffer: Buffer, indices: tuple[Expr, ...], dtype: str) -> str:
    """The parts of an access that `A[i]` does not show: a dtype, or a narrower index dtype."""
    lanes = max((dtypes.info(i.dtype).lanes for i in indices), default=1)
    usual = dtype == dtypes.vector(buffer.dtype, lanes)
    if usual and all(dtypes.info(i.dtype).scalar == INDEX for i in indices):
        return ""
    return f', dtype="{dtype}"'


def _has_bare_form(const: Const) -> bool:
    facts = dtypes.info(const.dtype)
    if facts.lanes > 1:
        return False
    return facts.kind != "float" or math.isfinite(rounded(float(const.value), const.dtype))


MAX_NAME = 40
"""Characters of a name; what is longer ends in an ellipsis."""


def signature(func: Func) -> list[str]:
    """The parts of `matmul(A: float32[64, 64], n: int64)`: a program's name and parameters."""
    parts = [
        f"{shortened(p.name)}: {array_type(p) if isinstance(p, Buffer) else p.dtype}"
        for p in func.params
    ]
    return arguments(shortened(func.name), parts)


def summary(kind: str, func: Func, facts: Sequence[str]) -> str:
    """`<Func matmul(A: float32[64, 64]): 3 loops, 1 block; print it for the program>`, in lines."""
    *parts, last = signature(func)
    told = [*(f"{fact}," for fact in facts[:-1]), f"{facts[-1]};"]
    return in_lines([f"<{kind}", *parts, f"{last}:", *told, "print it for the program>"])


def func_summary(func: Func) -> str:
    """A program, and how many loops and blocks it has."""
    kinds = Counter[type]()
    stack: list[Stmt] = [func.body]
    while stack:
        stmt = stack.pop()
        kinds[type(stmt)] += 1
        stack += nested(stmt)
    return summary("Func", func, [count(kinds[For], "loop"), count(kinds[Block], "block")])


def stmt_summary(text: str) -> str:
    """The first line of a statement's text, and how many follow."""
    first, *rest = text.split("\n")
    return f"{first}  # and {count(len(rest), 'more line')}" if rest else first


def array_type(buffer: Buffer) -> str:
    """`float32[64, n]`."""
    return f"{buffer.dtype}[{', '.join(map(dim_text, buffer.shape))}]"


def buffer_summary(buffer: Buffer) -> str:
    """`<Buffer A: float32[64, 64]>`, with a scope that is not `global`."""
    scope = "" if buffer.scope == "global" else f" in {buffer.scope}"
    return f"<{type(buffer).__name__} {shortened(buffer.name)}: {array_type(buffer)}{scope}>"


def region_text(region: Region) -> str:
    """`A[i, 0:16]`."""
    return ExprPrinter(Names()).region(region)


def iter_text(it: Iter) -> str:
    """`vi = i_0 * 8 + i_1, spatial in 64`."""
    return f"{it.var!r} = {it.value!r}, {it.kind.value} in {dim_text(it.extent)}"


def dim_text(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) else repr(dim)


def shortened(name: str) -> str:
    """A name as it stands in the text of a program, no longer than people read."""
    return excerpt(identifier(name[: MAX_NAME + 1]), MAX_NAME)

"""Parse expressions of program text: from Python's syntax tree to nodes, without folding.

Numbers in the text are weak, as in tensor expressions: they take the dtype of the other operand.
Arithmetic on numbers alone is done at once. A number from the Python around a decorated function
folds as in tensor expressions: `i * n` is `i` where n is 1.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ..base import dtypes
from ..base.errors import IRError, ParseError
from ..base.hints import instead
from .bounds import variables
from .ir import (
    ARITHMETIC,
    COMPARISONS,
    FUNCTIONS,
    INDEX,
    ON_NUMBERS,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Dim,
    Expr,
    Load,
    Op,
    Ramp,
    Select,
    Var,
    as_dim,
    as_expr,
    binary,
    call,
    const,
    dot,
    load,
    matmul,
    shuffle,
    unify,
    warp_shuffle,
)
from .names import RESERVED
from .nests import largest, read_by
from .simplify import simplify
from .source import Source
from .visit import substitute, walk

T = TypeVar("T")

NAMESPACE = "T"
MAX_LANES = 1 << 16
MAX_NUMBER = 1 << 64
"""Integers in the text are smaller; so are all that arithmetic among numbers gives."""

OPERATORS: dict[type, Op] = {
    ast.Add: Op.ADD, ast.Sub: Op.SUB, ast.Mult: Op.MUL, ast.Div: Op.DIV, ast.FloorDiv: Op.FLOORDIV,
    ast.Mod: Op.MOD, ast.BitAnd: Op.AND, ast.BitOr: Op.OR, ast.BitXor: Op.XOR, ast.LShift: Op.SHL,
    ast.RShift: Op.SHR, ast.Eq: Op.EQ, ast.NotEq: Op.NE, ast.Lt: Op.LT, ast.LtE: Op.LE,
    ast.Gt: Op.GT, ast.GtE: Op.GE,
}  # fmt: skip
HINTS: dict[type, str] = {
    ast.BoolOp: "combine conditions with & and |, each in parentheses; both sides are evaluated",
    ast.Not: "write ~condition",
    ast.IfExp: "write T.select(condition, a, b)",
    ast.List: "a program has numbers and buffers only",
    ast.Attribute: "only names, and what T offers, are known here",
}


class Number(NamedTuple):
    """A Python number; `outside` if it comes from the Python around a decorated function."""

    value: int | float
    outside: bool = False


Value: TypeAlias = Expr | Number


class ExprParser:
    """Parses expressions. `names` are in scope; `outside` finds names of the surrounding Python.

    `shifted` are the variables of loops whose names stand for another value, `ranges` those of the
    variables of loops and blocks, `lets` the values of others. `decisions` are open.
    """

    def __init__(
        self, source: Source, names: Mapping[str, Any], outside: Callable[[str], Any]
    ) -> None:
        self.source = source
        self.names: dict[str, Any] = dict(names)
        self.outside = outside
        self.shifted: set[Expr] = set()
        self.ranges: dict[Var, tuple[Dim, Dim]] = {}
        self.lets: dict[Var, Expr] = {}
        self.decisions: set[Var] = set()

    # -- names

    def bind(self, node: ast.AST, name: str, thing: Any) -> None:
        """Put a name into scope. A name in scope is never bound again."""
        if name in RESERVED:
            raise self.source.error(node, "{0} has a meaning of its own; use another name", name)
        if name in self.names:
            raise self.source.error(
                node, "{0} is bound already; a name is bound once in its scope", name,
                hint=self.change_hint(name),
            )  # fmt: skip
        self.names[name] = thing

    def change_hint(self, name: str) -> str:
        """How a program changes what it calls `name`."""
        thing = self.names.get(name)
        if isinstance(thing, Buffer):
            first = ", ".join("0" * len(thing.shape)) or "()"
            return f"store into an element: {name}[{first}] = value"
        dtype = thing.dtype if isinstance(thing, Expr) else "float32"
        added = "y" if name == "x" else "x"
        return (
            f'what changes is an element of a buffer: {name} = T.alloc((1,), "{dtype}") at the '
            f"top of the function, then {name}[0] = {name}[0] + {added}"
        )

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A scope: names bound inside end with it."""
        before = len(self.names)
        yield
        for name in list(self.names)[before:]:
            del self.names[name]

    def lookup(self, node: ast.Name) -> Any:
        if node.id in self.names:
            return self.names[node.id]
        try:
            return self.outside(node.id)
        except KeyError:
            near = difflib.get_close_matches(node.id, self.names, 1)
            raise self.source.error(
                node, "{0} is not known here", node.id,
                hint=f"{near[0]} is in scope" if near else None,
            ) from None  # fmt: skip

    def buffer(self, node: ast.AST) -> Buffer:
        thing = self.lookup(node) if isinstance(node, ast.Name) else None
        if isinstance(thing, Buffer):
            return thing
        raise self.wrong(node, "a buffer")

    def wrong(self, node: ast.AST, expected: str, hint: str | None = None) -> ParseError:
        """The error for anything other than `expected`."""
        return self.source.error(
            node, "found {0}, expected {1}", self.source.show(node), expected, hint=hint
        )

    # -- values

    def expr(self, node: ast.AST, dtype: str | None = None) -> Expr:
        """An expression; a number becomes a constant of `dtype`, or of int64, float32 or bool."""
        value = self.value(node)
        if isinstance(value, Number):
            return self.checked(node, lambda: as_expr(value.value, dtype))
        return value

    def condition(self, node: ast.AST) -> Expr:
        expr = self.expr(node)
        if not dtypes.is_bool(expr.dtype):
            raise self.source.error(
                node, "found a value of {0}, expected a condition (bool)", expr.dtype,
                hint="compare it with something",
            )  # fmt: skip
        return expr

    def dim(self, node: ast.AST) -> Dim:
        """An extent: an integer that is not negative, or an int64 expression."""
        value = self.value(node)
        if isinstance(value, Number):
            if type(value.value) is not int or not 0 <= value.value < 1 << 63:
                raise self.wrong(node, "an extent (an integer, not negative, below 2**63)")
            return value.value
        if value.dtype != INDEX:
            raise self.source.error(node, "an extent has dtype int64, found {0}", value.dtype)
        return as_dim(value)

    def resolved(self, e: Expr) -> Expr:
        """`e` with the values of variables that are bound to one in their place."""
        while (new := substitute(e, self.lets)) is not e:
            e = new
        return e

    def most(self, node: ast.AST, extent: Dim) -> Dim:
        """The largest value of an extent over the loops around it."""
        if isinstance(extent, int):
            return extent
        if self.decisions.issuperset(variables(extent)) and not read_by(extent):
            return extent
        most = largest(self.resolved(extent), self.ranges)
        if most is None:
            raise self.source.error(
                node, "the extent {0} has no known largest value; expected an integer, or an "
                "expression of the loops around it", self.source.show(node),
                hint="sizes are numbers when a program is made; loop up to the largest one, under "
                "a condition that ends it, such as if j < n",
            )  # fmt: skip
        return most

    def integer(self, node: ast.AST) -> int:
        value = self.value(node)
        if not isinstance(value, Number) or type(value.value) is not int:
            raise self.wrong(node, "an integer")
        return value.value

    def checked(self, node: ast.AST, build: Callable[[], T]) -> T:
        """`build()`, with errors that point at `node`."""
        try:
            return build()
        except ParseError:
            raise
        except (IRError, OverflowError) as e:
            text = str(e)
            raise self.source.error(node, "{0}", text) from e

    def value(self, node: ast.AST) -> Value:
        match node:
            case ast.Constant():
                return self._number(node, node.value, False)
            case ast.Name():
                thing = self.lookup(node)
                return thing if isinstance(thing, Expr) else self._number(node, thing, True)
            case ast.BinOp():
                return self._chain(node)
            case ast.Compare():
                if len(node.ops) > 1:
                    raise self.source.error(
                        node, "comparisons do not chain", hint="write (a < b) & (b < c)"
                    )
                op = OPERATORS.get(type(node.ops[0]))
                if op is None:
                    raise self.wrong(node, "one of == != < <= > >=")
                return self._operator(
                    node, op, self.value(node.left), self.value(node.comparators[0])
                )
            case ast.UnaryOp():
                return self._prefix(node)
            case ast.Subscript():
                buffer = self.buffer(node.value)
                indices = self.indices(node)
                return self.checked(node, lambda: load(buffer, indices))
            case ast.Call():
                return self._call(node)
            case _:
                kind: type = type(node)
                raise self.wrong(node, "an expression", HINTS.get(kind))

    def indices(self, node: ast.Subscript) -> tuple[Expr, ...]:
        """The indices in the brackets of an access, integers of any width."""
        inside = node.slice
        items = inside.elts if isinstance(inside, ast.Tuple) else [inside]
        for item in items:
            if isinstance(item, ast.Slice):
                raise self.source.error(
                    node, "{0} is a slice; an access has one index per dimension",
                    self.source.show(node), hint="slices stand in T.reads and T.writes",
                )  # fmt: skip
        return tuple([self.folded(item) for item in items])

    def folded(self, node: ast.AST) -> Expr:
        """An index, in which what a range adds to its variable folds: `i - 1` of `range(1, n)`."""
        index = self.expr(node)
        return index if self.shifted.isdisjoint(walk(index)) else simplify(index)

    def access(self, node: ast.AST) -> tuple[Buffer, tuple[Expr, ...]]:
        """`A[i, j]` as the buffer and its indices, as they are."""
        if not isinstance(node, ast.Subscript):
            raise self.wrong(node, "an element such as A[i, j]")
        buffer, indices = self.buffer(node.value), self.indices(node)
        if len(indices) != len(buffer.shape):
            raise self.source.error(
                node, "{0} has {1} dimensions, found {2} indices",
                buffer.name, len(buffer.shape), len(indices),
            )  # fmt: skip
        if not all(dtypes.is_integer(i.dtype) for i in indices):
            raise self.source.error(node, "the indices of {0} must be integers", buffer.name)
        return buffer, indices

    def dtype(self, node: ast.AST) -> str:
        """The name of a dtype, quoted or from outside."""
        name = self.string(node, 'a dtype such as "float32"')
        return self._dtype(node, name)

    def string(self, node: ast.AST, expected: str) -> str:
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(node, ast.Name):
            text = self.lookup(node)
        if not isinstance(text, str):
            raise self.wrong(node, expected)
        return text

    # -- calls

    def namespaced(self, node: ast.AST) -> str | None:
        """The name after `T.`: `axis.spatial` for `T.axis.spatial`; `None` for anything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not parts or not isinstance(node, ast.Name):
            return None
        return ".".join(reversed(parts)) if node.id == NAMESPACE else None

    def arguments(
        self,
        node: ast.Call,
        count: int,
        *options: str,
        most: int | None = None,
        usage: str | None = None,
    ) -> tuple[list[ast.expr], dict[str, ast.expr]]:
        """The arguments of a call: `count` to `most` by position, and some `options` by keyword.

        `usage` shows right calls.
        """
        hint = None if usage is None else f"write {usage}"
        given = {k.arg or "**": k.value for k in node.keywords}
        unknown = [k for k in given if k not in options]
        if unknown or len(given) < len(node.keywords):
            name = unknown[0] if unknown else "an argument twice"
            expected = f"expected {', '.join(options)}" if options else "none is expected"
            raise self.source.error(
                node, "{0}: found {1} by keyword; {2}", self.source.show(node.func), name, expected,
                hint=hint,
            )  # fmt: skip
        for a in node.args:
            if isinstance(a, ast.Starred):
                raise self.wrong(a, "arguments one by one", hint)
        if not count <= len(node.args) <= (count if most is None else most):
            counts = f"{count} argument{'s' * (count != 1)}"
            raise self.source.error(
                node, "{0} takes {1} by position, found {2}", self.source.show(node.func),
                counts if most is None else f"{count} to {most} arguments", len(node.args),
                hint=hint,
            )  # fmt: skip
        return node.args, given

    def _call(self, node: ast.Call) -> Expr:
        name = self.namespaced(node.func)
        if name is None:
            raise self.wrong(node.func, "a function of T, such as T.exp")
        special = _SPECIAL.get(name)
        if special is not None:
            return special(self, node)
        if name in FUNCTIONS:
            args = self.arguments(node, FUNCTIONS[name])[0]
            exprs = self._together(node, *args) if len(args) == 2 else (self.expr(args[0]),)
            return self._function(node, name, *exprs)
        if dtypes.SCALARS.count(name.partition("x")[0]):
            return self._as(node, self._dtype(node.func, name), self.arguments(node, 1)[0][0])
        near = difflib.get_close_matches(name, [*_SPECIAL, *FUNCTIONS, *dtypes.SCALARS], 1)
        raise self.source.error(
            node, "T.{0} is not a function of values", name,
            hint=instead("T", name) or (f"did you mean T.{near[0]}?" if near else None),
        )  # fmt: skip

    def _as(self, node: ast.AST, dtype: str, argument: ast.AST) -> Expr:
        """`T.float32(x)`: a constant of a number, a cast of an expression."""
        facts = dtypes.info(dtype)
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            if facts.kind != "float" or argument.value not in ("nan", "inf", "-inf"):
                raise self.wrong(argument, 'a number, or "nan", "inf" or "-inf" of a float dtype')
            return const(float(argument.value), dtype)
        value = self.value(argument)
        if isinstance(value, Number):
            number = value.value
            return self.checked(argument, lambda: const(number, dtype))
        lanes = dtypes.info(value.dtype).lanes
        if facts.lanes not in (1, lanes):
            raise self.source.error(node, "a cast keeps the lanes: {0} to {1}", value.dtype, dtype)
        return Cast(value, dtypes.vector(dtype, lanes))

    def _cast(self, node: ast.Call) -> Expr:
        dtype, value = self.arguments(node, 2)[0]
        return self._as(node, self.dtype(dtype), value)

    def _extremum(self, node: ast.Call) -> Expr:
        op = Op.MIN if self.namespaced(node.func) == "minimum" else Op.MAX
        a, b = map(self.value, self.arguments(node, 2)[0])
        value = self._operator(node, op, a, b)
        return as_expr(value.value) if isinstance(value, Number) else value

    def _select(self, node: ast.Call) -> Expr:
        cond, *branches = self.arguments(node, 3)[0]
        condition = self.condition(cond)
        then, other = self._together(node, *branches)
        return Select(condition, then, other, then.dtype)

    def _load(self, node: ast.Call) -> Expr:
        (element,), options = self.arguments(node, 1, "dtype", "mask")
        buffer, indices = self.access(element)
        lanes = max((dtypes.info(i.dtype).lanes for i in indices), default=1)
        dtype = dtypes.vector(buffer.dtype, lanes)
        if "dtype" in options:
            dtype = self.dtype(options["dtype"])
        mask = self.condition(options["mask"]) if "mask" in options else None
        return Load(buffer, indices, dtype, mask)

    def _ramp(self, node: ast.Call) -> Expr:
        base, stride, lanes = self.arguments(node, 3)[0]
        first, step = self._together(node, base, stride)
        count = self._lanes(lanes)
        return Ramp(first, step, count, dtypes.vector(first.dtype, count))

    def _broadcast(self, node: ast.Call) -> Expr:
        value, lanes = self.arguments(node, 2)[0]
        expr, count = self.expr(value), self._lanes(lanes)
        return Broadcast(expr, count, dtypes.vector(expr.dtype, count))

    def _dot(self, node: ast.Call) -> Expr:
        acc, x, y = map(self.expr, self.arguments(node, 3)[0])
        return self.checked(node, lambda: dot(acc, x, y))

    def _matmul(self, node: ast.Call) -> Expr:
        *operands, rows, group = self.arguments(node, 5)[0]
        acc, x, y = map(self.expr, operands)
        shape = self.integer(rows), self.integer(group)
        return self.checked(node, lambda: matmul(acc, x, y, *shape))

    def _shuffle(self, node: ast.Call) -> Expr:
        a, b, lanes = self.arguments(node, 3)[0]
        if not isinstance(lanes, ast.List):
            raise self.wrong(lanes, "a list of lanes")
        order = tuple(self.integer(k) for k in lanes.elts)
        x, y = self.expr(a), self.expr(b)
        return self.checked(node, lambda: shuffle(x, y, order))

    def _warp_shuffle(self, node: ast.Call) -> Expr:
        value, xor = self.arguments(node, 2)[0]
        x, by = self.expr(value), self.integer(xor)
        return self.checked(node, lambda: warp_shuffle(x, by))

    # -- details

    def _number(self, node: ast.AST, value: Any, outside: bool) -> Number:
        if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0:
            value = value.item()
        if not isinstance(value, (int, float)):
            raise self.wrong(node, "a number or an expression")
        return self._bounded(node, Number(value, outside))

    def _bounded(self, node: ast.AST, number: Number) -> Number:
        if isinstance(number.value, int) and not -MAX_NUMBER < number.value < MAX_NUMBER:
            raise self.wrong(node, "integers of at most 64 bits")
        return number

    def _chain(self, node: ast.BinOp) -> Value:
        """Infix operators; a loop over left operands, because sums can be long."""
        chain = [node]
        while isinstance(chain[-1].left, ast.BinOp):
            chain.append(chain[-1].left)
        value = self.value(chain[-1].left)
        for n in reversed(chain):
            right = self.value(n.right)
            op = OPERATORS.get(type(n.op))
            if op is None:
                raise self.wrong(n, "one of + - * / // % & | ^ << >>", "T.pow(a, b) is the power")
            value = self._operator(n, op, value, right)
        return value

    def _operator(self, node: ast.AST, op: Op, a: Value, b: Value) -> Value:
        if isinstance(a, Number) and isinstance(b, Number):
            return self._on_numbers(node, op, a, b)
        folds = (isinstance(a, Number) and a.outside) or (isinstance(b, Number) and b.outside)
        x = a.value if isinstance(a, Number) else a
        y = b.value if isinstance(b, Number) else b
        if folds:
            return self.checked(node, lambda: binary(op, x, y))
        left, right = self.checked(node, lambda: unify(x, y))
        value = self.checked(node, lambda: binary(op, x, y))
        if left.dtype == INDEX and op is not Op.DIV:
            return Binary(op, left, right, "bool" if op in COMPARISONS else INDEX)
        return value

    def _on_numbers(self, node: ast.AST, op: Op, a: Number, b: Number) -> Number:
        if op not in ARITHMETIC:
            raise self.wrong(node, "an operator of arithmetic between two numbers")
        try:
            value = ON_NUMBERS[op](a.value, b.value)
        except (ZeroDivisionError, OverflowError) as e:
            raise self.source.error(node, "{0}: {1}", self.source.show(node), str(e)) from e
        return self._bounded(node, Number(value, a.outside or b.outside))

    def _prefix(self, node: ast.UnaryOp) -> Value:
        value = self.value(node.operand)
        if isinstance(node.op, ast.USub):
            if isinstance(value, Number):
                return Number(-value.value, value.outside)
            return self._function(node, "neg", value)
        if isinstance(node.op, ast.Invert) and not isinstance(value, Number):
            return self._function(node, "not", value)
        kind: type = type(node.op)
        raise self.wrong(node, "-x, or ~x of a condition or an integer", HINTS.get(kind))

    def _function(self, node: ast.AST, fn: str, *args: Expr) -> Expr:
        if not (fn == "neg" and args[0].dtype == INDEX):  # a constant would be folded
            self.checked(node, lambda: call(fn, *args))
        return Call(fn, args, args[0].dtype)

    def _together(self, node: ast.AST, *operands: ast.AST) -> tuple[Expr, Expr]:
        a, b = [v.value if isinstance(v, Number) else v for v in map(self.value, operands)]
        return self.checked(node, lambda: unify(a, b))

    def _lanes(self, node: ast.AST) -> int:
        lanes = self.integer(node)
        if not 1 <= lanes <= MAX_LANES:
            raise self.wrong(node, f"a number of lanes from 1 to {MAX_LANES}")
        return lanes

    def _dtype(self, node: ast.AST, name: str) -> str:
        if len(name) > 32 or self.checked(node, lambda: dtypes.info(name)).lanes > MAX_LANES:
            raise self.wrong(node, f"a dtype of at most {MAX_LANES} lanes")
        return name


_SPECIAL: dict[str, Callable[[ExprParser, ast.Call], Expr]] = {
    "minimum": ExprParser._extremum,
    "maximum": ExprParser._extremum,
    "select": ExprParser._select,
    "cast": ExprParser._cast,
    "load": ExprParser._load,
    "ramp": ExprParser._ramp,
    "broadcast": ExprParser._broadcast,
    "dot": ExprParser._dot,
    "matmul": ExprParser._matmul,
    "shuffle": ExprParser._shuffle,
    "warp_shuffle": ExprParser._warp_shuffle,
}

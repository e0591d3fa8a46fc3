"""Index maps, such as a change of layout, and their text form.

    lambda i, j: (i // 8, j, i % 8)

The text is parsed as an expression over the parameters, integers and named sizes. It is never
executed.
"""

from __future__ import annotations

import ast
import inspect
import operator
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..base.errors import IRError, ScheduleError
from ..tir.ir import Binary, Const, Dim, Expr, Op, Var, as_expr
from ..tir.visit import substitute

MAX_TEXT = 4096
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_PRECEDENCE = {Op.ADD: 1, Op.SUB: 1, Op.MUL: 2, Op.FLOORDIV: 2, Op.MOD: 2}


@dataclass(frozen=True, eq=False)
class IndexMap:
    """`outputs` are index expressions over `inputs` (and sizes that are decision variables)."""

    inputs: tuple[Var, ...]
    outputs: tuple[Expr, ...]

    @staticmethod
    def of(function: IndexMap | Callable[..., Any]) -> IndexMap:
        """The map that a Python function of index variables computes; a map as it is.

        Raises `ScheduleError` if it takes a variable number of arguments or returns no indices.
        """
        if isinstance(function, IndexMap):
            return function
        parameters = inspect.signature(function).parameters.values()
        if any(p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters):
            raise ScheduleError("an index map takes one named parameter per dimension")
        inputs = tuple(Var(p.name) for p in parameters)
        try:
            result = function(*inputs)
        except (IRError, TypeError) as error:
            raise ScheduleError("an index map is made of + - * // %: {0}", error) from error
        results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        try:
            return IndexMap(inputs, tuple(as_expr(r) for r in results))
        except IRError as error:
            raise ScheduleError("an index map returns indices, found {0!r}", result) from error

    def apply(self, indices: tuple[Expr | int, ...]) -> tuple[Expr, ...]:
        """The outputs at `indices`. Raises `ScheduleError` for a wrong number of them."""
        if len(indices) != len(self.inputs):
            raise ScheduleError(
                "the index map takes {0} indices, found {1}", len(self.inputs), len(indices)
            )
        values = {v: as_expr(i) for v, i in zip(self.inputs, indices, strict=True)}
        return tuple(substitute(o, values) for o in self.outputs)

    def text(self, name: Callable[[Var], str] = lambda v: v.name) -> str:
        """The map as a Python lambda; `name` names the variables in it that are no inputs."""
        names = _distinct(self.inputs)

        def var(v: Var) -> str:
            return names[v] if v in names else name(v)

        outputs = ", ".join(_text(o, var, 0) for o in self.outputs)
        comma = "," if len(self.outputs) == 1 else ""
        return f"lambda {', '.join(names.values())}: ({outputs}{comma})"

    def __repr__(self) -> str:
        return self.text()


def with_captured(function: Callable[..., Any], f: Callable[[Any], Any]) -> Callable[..., Any]:
    """`function` with `f` applied to the values that it captures: enclosing variables and globals.

    This includes values in tuples and lists. Callables other than plain functions are returned as
    they are.
    """
    if not isinstance(function, types.FunctionType):
        return function
    known = function.__globals__
    used = {n: _mapped(known[n], f) for n in function.__code__.co_names if n in known}
    cells = tuple(_mapped_cell(c, f) for c in function.__closure__ or ())
    code, name, defaults = function.__code__, function.__name__, function.__defaults__
    return types.FunctionType(code, {**known, **used}, name, defaults, cells)


def _mapped(value: Any, f: Callable[[Any], Any]) -> Any:
    if type(value) is tuple or type(value) is list:
        return type(value)([_mapped(v, f) for v in value])
    return f(value)


def _mapped_cell(cell: types.CellType, f: Callable[[Any], Any]) -> types.CellType:
    try:
        return types.CellType(_mapped(cell.cell_contents, f))
    except ValueError:  # a variable that has no value yet
        return cell


def parse_index_map(text: str, sizes: Mapping[str, Dim] | None = None) -> IndexMap:
    """The map in `text`; `sizes` are further names that it may use.

    Raises `ScheduleError` if the text is anything but a lambda over index arithmetic.
    """
    parameters, body = _lambda(text)
    inputs = tuple(Var(p) for p in parameters)
    names: dict[str, Any] = {**(sizes or {}), **dict(zip(parameters, inputs, strict=True))}
    parts = body.elts if isinstance(body, ast.Tuple) else [body]
    try:
        return IndexMap(inputs, tuple(as_expr(_expression(p, names, text)) for p in parts))
    except (IRError, RecursionError, ZeroDivisionError) as error:
        raise ScheduleError("not an index map: {0!r}", text) from error


@lru_cache(maxsize=256)
def _lambda(text: str) -> tuple[tuple[str, ...], ast.expr]:
    if len(text) > MAX_TEXT:
        raise ScheduleError("an index map of {0} characters; at most {1}", len(text), MAX_TEXT)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ScheduleError("not an index map: {0!r}", text) from error
    if not isinstance(tree, ast.Lambda):
        raise ScheduleError("an index map is a lambda, found {0!r}", text)
    a = tree.args
    if a.vararg or a.kwarg or a.kwonlyargs or a.defaults or a.posonlyargs:
        raise ScheduleError("an index map takes one named parameter per dimension: {0!r}", text)
    return tuple(x.arg for x in a.args), tree.body


def _expression(tree: ast.expr, names: Mapping[str, Any], text: str) -> Any:
    match tree:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.BinOp(left=a, op=op, right=b) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_expression(a, names, text), _expression(b, names, text))
        case ast.UnaryOp(op=ast.USub(), operand=a):
            return 0 - _expression(a, names, text)
        case _:
            raise ScheduleError(
                "{0} is not allowed in an index map: {1!r}", lambda: repr(ast.unparse(tree)), text
            )


def _distinct(inputs: tuple[Var, ...]) -> dict[Var, str]:
    return {v: v.name if v.name.isidentifier() else f"i{k}" for k, v in enumerate(inputs)}


def _text(e: Expr, name: Callable[[Var], str], outer: int) -> str:
    match e:
        case Var():
            return name(e)
        case Const():
            return str(e.value) if int(e.value) >= 0 else f"({e.value})"
        case Binary(op=op, a=a, b=b) if op in _PRECEDENCE:
            own = _PRECEDENCE[op]
            text = f"{_text(a, name, own)} {op.value} {_text(b, name, own + 1)}"
            return f"({text})" if own < outer else text
        case _:
            raise ScheduleError("an index map is made of + - * // %, found {0}", e)

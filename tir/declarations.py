"""Parse declarations in program text: parameters, buffers, loops, axes, regions, annotations."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..base import dtypes
from .equality import structural_equal
from .expr_parser import NAMESPACE, ExprParser, Number
from .ir import (
    INDEX,
    Annotations,
    Buffer,
    Dim,
    Expr,
    ForKind,
    Iter,
    IterKind,
    Op,
    Range,
    Region,
    Var,
    as_dim,
    as_expr,
    binary,
    const,
)
from .simplify import simplify
from .source import Source
from .visit import walk

REMAP = {kind.value[0].upper(): kind for kind in IterKind}
"""The letters of `T.axis.remap`."""
_RANGES = "{0}n{1}, {0}first, end{1} or {0}first, end, step{1}"
BUFFER_OPTIONS = ("strides", "scope", "constant", "value_range", "align", "swizzle")


class Header(NamedTuple):
    """The declarations of a function before its body."""

    annotations: Annotations
    inplace: tuple[Buffer, ...]
    allocs: tuple[Buffer, ...]


class Loop(NamedTuple):
    """A loop without its variable and body. Its name stands for `first` + variable * `step`.

    Where loops around it say how far it goes, it has the most iterations, up to `end`.
    """

    extent: Dim
    first: Dim = 0
    step: int = 1
    end: Expr | None = None
    kind: ForKind = ForKind.SERIAL
    dtype: str = INDEX
    thread: str | None = None
    annotations: Annotations = ()

    def value_of(self, var: Var) -> Expr:
        """What the name of the loop stands for."""
        if type(self.first) is int and (self.first, self.step) == (0, 1):
            return var
        if self.step < 0:
            return binary(Op.SUB, as_expr(self.first), binary(Op.MUL, var, -self.step))
        return binary(Op.ADD, binary(Op.MUL, var, self.step), self.first)

    def runs(self, var: Var) -> Expr | None:
        """The condition for an iteration to be one; `None` if all are."""
        if self.end is None:
            return None
        return binary(Op.LT if self.step > 0 else Op.GT, self.value_of(var), self.end)


class Declarations(ExprParser):
    """Parses declarations. `extents` are those of the loops in scope."""

    def __init__(
        self, source: Source, names: Mapping[str, Any], outside: Callable[[str], Any]
    ) -> None:
        super().__init__(source, names, outside)
        self.extents: dict[Var, Dim] = {}

    # -- functions

    def signature(self, node: ast.FunctionDef) -> tuple[Buffer | Var, ...]:
        """Binds parameters and decisions; returns the parameters."""
        args = node.args
        for odd in (*args.posonlyargs, args.vararg, args.kwarg):
            if odd is not None:
                raise self.source.error(odd, "a parameter is NAME: T.Buffer(..) or NAME: T.float32")
        for a in args.kwonlyargs:
            decision = Var(a.arg, self._decision(a))
            self.decisions.add(decision)
            self.bind(a, a.arg, decision)
        defaults: list[ast.expr | None] = [None] * (len(args.args) - len(args.defaults))
        params: list[Buffer | Var] = []
        for a, default in zip(args.args, [*defaults, *args.defaults], strict=True):
            params.append(self._param(a, default))
        for a, p in zip(args.args, params, strict=True):
            self.bind(a, a.arg, p)
        return tuple(params)

    def _decision(self, node: ast.arg) -> str:
        kind = node.annotation
        if isinstance(kind, ast.Call) and self.namespaced(kind.func) == "decision":
            return self.dtype(self.arguments(kind, 1)[0][0])
        if kind is None or self.namespaced(kind) != "decision":
            raise self.source.error(node, "{0} follows *; expected NAME: T.decision", node.arg)
        return INDEX

    def _param(self, node: ast.arg, default: ast.expr | None) -> Buffer | Var:
        kind = node.annotation
        name = None if kind is None else self.namespaced(kind)
        if name == "Buffer" and default is not None:
            kind, default = default, None
        if isinstance(kind, ast.Call) and default is None and self.is_call(kind, "Buffer"):
            return self.declared(node.arg, kind)
        if name in dtypes.SCALARS and default is None:
            return Var(node.arg, name)
        raise self.source.error(
            node, "the parameter {0} has no type; expected {0}: T.Buffer(shape, dtype) or "
            "{0}: T.float32", node.arg,
        )  # fmt: skip

    def header(self, node: ast.FunctionDef) -> tuple[list[ast.stmt], Header]:
        """The declarations at the top of a function, and the rest of its statements."""
        annotations: Annotations | None = None
        inplace: tuple[Buffer, ...] | None = None
        allocs: list[Buffer] = []
        rest = node.body
        if ast.get_docstring(node, clean=False) is not None:
            rest = rest[1:]
        for count, stmt in enumerate(rest):
            match stmt:
                case ast.Expr(value=ast.Call() as call) if (
                    self.is_call(call, "func_attr") and annotations is None
                ):
                    annotations = self.annotations(self.arguments(call, 1)[0][0])
                case ast.Expr(value=ast.Call() as call) if (
                    self.is_call(call, "inplace") and inplace is None
                ):
                    inplace = tuple([self.buffer(a) for a in call.args])
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if (
                    self.is_call(call, "alloc")
                ):
                    allocs.append(self.declared(name, call))
                    self.bind(stmt, name, allocs[-1])
                case _:
                    rest = rest[count:]
                    break
        else:
            rest = []
        return rest, Header(annotations or (), inplace or (), tuple(allocs))

    # -- buffers

    def declared(self, name: str, node: ast.Call) -> Buffer:
        """`T.Buffer(shape, dtype, ..)`, and others that take the same arguments."""
        (shape, dtype), options = self.arguments(node, 2, *BUFFER_OPTIONS)
        scalar = self.dtype(dtype)
        if dtypes.info(scalar).lanes > 1:
            raise self.source.error(dtype, "a buffer has a scalar dtype, found {0}", scalar)
        dims = tuple([self.dim(d) for d in self.items(shape, "a shape such as (16, 16)")])
        strides = value_range = None
        if "strides" in options:
            strides = self._integers(options["strides"], len(dims), "one stride per dimension")
        if "value_range" in options:
            low, high = self._integers(options["value_range"], 2, "a range (low, high)")
            value_range = low, high
        align: tuple[tuple[int, ...], ...] = ()
        if "align" in options:
            triples = self.items(options["align"], "triples (axis, factor, offset)")
            align = tuple([self._integers(t, 3, "an axis, a factor, an offset") for t in triples])
        swizzle: tuple[int, ...] | None = None
        if "swizzle" in options:
            expected = "two axes, a number of rows, a width"
            swizzle = self._integers(options["swizzle"], 4, expected)
        scope, constant = "global", False
        if "scope" in options:
            scope = self.string(options["scope"], "the name of a scope, in quotes")
        if "constant" in options:
            flag = options["constant"]
            if not isinstance(flag, ast.Constant) or not isinstance(flag.value, bool):
                raise self.wrong(flag, "True or False")
            constant = flag.value
        facts = (strides, scope, constant, value_range, align, swizzle)
        return Buffer(name, dims, scalar, *facts)  # type: ignore[arg-type]

    def items(self, node: ast.expr, expected: str) -> list[ast.expr]:
        """The parts of a tuple, given in the text or in the surrounding Python."""
        if isinstance(node, (ast.Tuple, ast.List)):
            return node.elts
        value = self.lookup(node) if isinstance(node, ast.Name) else None
        if not isinstance(value, (tuple, list)):
            raise self.wrong(node, expected)
        return [ast.copy_location(ast.Constant(v), node) for v in value]

    def _integers(self, node: ast.expr, count: int, expected: str) -> tuple[int, ...]:
        values = tuple([self.integer(i) for i in self.items(node, expected)])
        if len(values) != count:
            raise self.wrong(node, expected)
        return values

    # -- loops and blocks

    def loops(self, node: ast.expr) -> list[Loop]:
        """The loops after `in`."""
        if not isinstance(node, ast.Call):
            raise self.wrong(node, "range(n), T.grid(n, m) or T.parallel(n)")
        if isinstance(node.func, ast.Name) and node.func.id == "range":
            args = self.arguments(node, 1, most=3, usage=_RANGES.format("range(", ")"))[0]
            return [self._range_of(node, args)]
        name = self.namespaced(node.func)
        if name == "grid" and node.args:
            args = self.arguments(node, len(node.args))[0]
            for a in args:
                if isinstance(a, ast.Call) and ast.unparse(a.func) == "range":
                    raise self.wrong(
                        a, "an extent: the loops of T.grid begin at 0",
                        f"write nested loops, such as `for i in {self.source.show(a)}:`",
                    )  # fmt: skip
            return [self._range_of(node, [a]) for a in args]
        if name not in list(ForKind):
            raise self.wrong(node, f"range(n), T.grid(n, m) or one of T.{', T.'.join(ForKind)}")
        kind = ForKind(name)
        is_thread = kind is ForKind.THREAD
        count = 2 if is_thread else 1
        usage = _RANGES.format(f"T.{name}({'axis, ' if is_thread else ''}", ")")
        args, options = self.arguments(
            node, count, "dtype", "annotations", most=count + 2, usage=usage
        )
        thread = None
        if is_thread and not _is_none(args[0]):
            thread = self.string(args[0], 'a hardware axis such as "threadIdx.x"')
        loop = self._range_of(node, args[1:] if is_thread else args)
        dtype = self.dtype(options["dtype"]) if "dtype" in options else INDEX
        annotations = self.annotations(options["annotations"]) if "annotations" in options else ()
        return [loop._replace(kind=kind, dtype=dtype, thread=thread, annotations=annotations)]

    def _range_of(self, node: ast.Call, args: list[ast.expr]) -> Loop:
        """A serial loop over `n`, or over `first, end, step`."""
        if len(args) == 1:
            count = self.dim(args[0])
            most = self.most(args[0], count)
            return Loop(most, end=None if most is count else as_expr(count))
        first, end, step = [self._whole(node, a) for a in args] + [1] * (3 - len(args))
        if isinstance(step, Expr):
            raise self.wrong(args[2], "an integer")
        if step == 0:
            raise self.wrong(args[2], "a step other than 0")
        if isinstance(first, Expr) or isinstance(end, Expr):
            count = as_dim(simplify(-((as_expr(first) - end) // step)))
            most = self.most(node, count)
            varies = most is not count
            most = max(most, 0) if isinstance(most, int) else most
            return Loop(most, first, step, as_expr(end) if varies else None)
        extent = max(0, -((first - end) // step))
        if not (abs(first) < 1 << 62 and extent < 1 << 62 and extent * abs(step) < 1 << 62):
            raise self.wrong(node, "a range of int64")
        return Loop(extent, first, step)

    def _whole(self, loop: ast.Call, node: ast.expr) -> Dim:
        """An integer, or an int64 expression, that says where a loop begins or ends."""
        value = self.value(node)
        if isinstance(value, Number) and isinstance(value.value, int):
            return int(value.value)
        if isinstance(value, Number) or value.dtype != INDEX:
            raise self.wrong(
                loop, "integers", "write range(n), and add the first value to the index in the loop"
            )
        return as_dim(value)

    def axes(self, node: ast.Assign) -> list[Iter]:
        """`vi = T.axis.spatial(n, i)` or `vi, vr = T.axis.remap("SR", [i, r])`."""
        call = node.value
        assert isinstance(call, ast.Call)
        kind = (self.namespaced(call.func) or "").removeprefix("axis.")
        target = node.targets[0]
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        if len(node.targets) > 1 or not all(isinstance(n, ast.Name) for n in names):
            raise self.wrong(target, "names of iteration variables")
        idents = [n.id for n in names if isinstance(n, ast.Name)]
        if kind == "remap":
            iters = self._remap(call, idents)
        elif kind in list(IterKind):
            args, options = self.arguments(call, 2, "dtype")
            extent = self.most(args[0], self.dim(args[0]))
            value = self.resolved(self.folded(args[1]))
            dtype = self.dtype(options["dtype"]) if "dtype" in options else INDEX
            if len(idents) != 1:
                raise self.wrong(target, "one name")
            iters = [Iter(Var(idents[0], dtype), extent, IterKind(kind), value)]
        else:
            raise self.wrong(call, f"T.axis.remap or T.axis.{', T.axis.'.join(IterKind)}")
        for name, i in zip(idents, iters, strict=True):
            self.bind(node, name, i.var)
            self.ranges[i.var] = (0, i.extent - 1)
        return iters

    def _remap(self, call: ast.Call, names: list[str]) -> list[Iter]:
        kinds, loops = self.arguments(call, 2)[0]
        letters = self.string(kinds, 'a letter per axis, such as "SSR"')
        values = self.items(loops, "a list of loop variables")
        if not (len(names) == len(letters) == len(values)) or set(letters) - set(REMAP):
            raise self.wrong(
                call, f"{len(names)} letters of {''.join(REMAP)}, and as many loop variables"
            )
        iters: list[Iter] = []
        for name, letter, node in zip(names, letters, values, strict=True):
            loop = self.expr(node)
            extent = self.extents.get(loop) if isinstance(loop, Var) else None
            axis = f"write {name} = T.axis.{REMAP[letter]}(extent, {self.source.show(node)})"
            if any(e in self.shifted for e in walk(loop)):
                raise self.source.error(
                    node, "loop {0} does not begin at 0 with a step of 1, as T.axis.remap requires",
                    self.source.show(node),
                    hint=f"{axis}, where all values are smaller than the extent",
                )  # fmt: skip
            if extent is None:
                raise self.wrong(
                    node, "the variable of a loop around the block",
                    axis if not isinstance(loop, Var) else None,
                )  # fmt: skip
            iters.append(Iter(Var(name), extent, REMAP[letter], loop))
        return iters

    def context(self, node: ast.With) -> tuple[ast.Call, ast.Name | None]:
        """The call after `with`, and the name after `as`."""
        item = node.items[0]
        call, name = item.context_expr, item.optional_vars
        if len(node.items) > 1 or not isinstance(call, ast.Call):
            raise self.wrong(node, 'one of T.block("name"), T.init(), T.let(x) as y')
        if name is not None and not isinstance(name, ast.Name):
            raise self.wrong(name, "a name")
        return call, name

    def is_call(self, node: ast.AST, *names: str) -> bool:
        return isinstance(node, ast.Call) and self.namespaced(node.func) in names

    def is_axis(self, node: ast.AST) -> bool:
        name = self.namespaced(node.func) if isinstance(node, ast.Call) else None
        return name is not None and name.startswith("axis.")

    def region(self, node: ast.AST) -> Region:
        """`A[i, lo : lo + extent, :]`."""
        if not isinstance(node, ast.Subscript):
            raise self.wrong(node, "a region such as A[i, 0:16]")
        buffer = self.buffer(node.value)
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(items) != len(buffer.shape):
            raise self.source.error(
                node, "{0} has {1} dimensions, found {2} ranges",
                buffer.name, len(buffer.shape), len(items),
            )  # fmt: skip
        return Region(
            buffer,
            tuple([self._range(i, d) for i, d in zip(items, buffer.shape, strict=True)]),
        )

    def _range(self, node: ast.AST, dim: Dim) -> Range:
        if not isinstance(node, ast.Slice):
            return Range(self._index(node), 1)
        if node.step is not None or (node.lower is None) != (node.upper is None):
            raise self.wrong(node, "low : low + extent, or :")
        if node.lower is None or node.upper is None:
            return Range(const(0), dim)
        low, upper = self._index(node.lower), node.upper
        if (
            isinstance(upper, ast.BinOp)
            and isinstance(upper.op, ast.Add)
            and structural_equal(self.expr(upper.left), low)
        ):
            return Range(low, self.dim(upper.right))
        first, end = as_dim(low), self.dim(upper)
        if isinstance(first, int) and first == 0:
            return Range(low, end)
        if not isinstance(first, int) or not isinstance(end, int) or end < first:
            raise self.wrong(node, "low : low + extent, with low spelled the same twice")
        return Range(low, end - first)

    def _index(self, node: ast.AST) -> Expr:
        expr = self.expr(node)
        if expr.dtype != INDEX:
            raise self.source.error(node, "found an index of {0}, expected int64", expr.dtype)
        return expr

    # -- annotations

    def annotations(self, node: ast.expr) -> Annotations:
        """A dict display of JSON values."""
        value = self._json(node)
        if not isinstance(value, dict):
            raise self.wrong(node, 'a dict such as {"name": 1}')
        return tuple(sorted(value.items()))

    def _json(self, node: ast.AST) -> Any:
        match node:
            case ast.Constant(value=str() | int() | float() | None as value) if _finite(value):
                return value
            case ast.UnaryOp(
                op=ast.USub(), operand=ast.Constant(value=int() | float() as value)
            ) if _finite(value):
                return -value
            case ast.List():
                return [self._json(e) for e in node.elts]
            case ast.Name() if node.id not in self.names and node.id != NAMESPACE:
                value = self.lookup(node)
                if isinstance(value, (str, int, float)) and _finite(value):
                    return value
            case ast.Dict():
                pairs = {}
                for k, v in zip(node.keys, node.values, strict=True):
                    if not isinstance(k, ast.Constant) or not isinstance(k.value, str):
                        raise self.wrong(node, "names in quotes before each colon")
                    if k.value in pairs:
                        raise self.source.error(k, "{0} is given twice", k.value)
                    pairs[k.value] = self._json(v)
                return pairs
            case _:
                pass
        raise self.wrong(node, "a JSON value")


def _finite(value: object) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None

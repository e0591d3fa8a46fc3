"""Program text to programs: the inverse of `printer.py`. Nothing of the text is ever run.

    program    @tw.script
               def NAME(PARAM, .., *, NAME: T.decision, ..):    # a decision is a free variable
                   T.func_attr({JSON})                          # each of these where there is one
                   T.inplace(BUFFER, ..)                        # outputs that are read at entry
                   NAME = T.alloc(SHAPE, DTYPE, OPTION, ..)     # internal buffers
                   SUITE
    param      NAME: T.Buffer(SHAPE, DTYPE, OPTION, ..)   or   NAME: T.Buffer = T.Buffer(..)
               NAME: T.float32                                  # a scalar of any dtype
    option     strides=(..) | scope="shared" | constant=True | value_range=(low, high)
               | align=((axis, factor, offset), ..) | swizzle=(axis, by, rows, width)
    suite      one statement a line, or pass
    statement  for NAME in range(N):                            # serial loop
               for NAME in range(FIRST, END):                   # NAME stands for FIRST + a variable
               for NAME in range(FIRST, END, STEP):             # from 0 on; STEP is an integer
               for NAME, .. in T.grid(N, ..):                   # serial loops in each other
               for NAME in T.serial(N, dtype="int32", annotations={JSON}):
               for NAME in T.parallel(N) | T.vectorized(N) | T.unrolled(N):       # options as above
                                                                # or (FIRST, END, STEP), as range
               for NAME in T.thread("threadIdx.x", N):
               with T.block("NAME"):                            # a block; then, inside it,
                   NAME = T.axis.spatial(N, EXPR)               #   spatial | reduce | opaque
                   NAME, .. = T.axis.remap("SR", [LOOP, ..])    #   just loops, with their extents
                   T.where(COND)                                #   the predicate: see starts.py
                   T.reads(REGION, ..); T.writes(REGION, ..)    #   left out: see regions.py
                   T.block_attr({JSON})
                   with T.init(): SUITE
                   SUITE
               if COND: SUITE   elif COND: SUITE   else: SUITE
               BUFFER[EXPR, ..] = EXPR
               T.store(BUFFER[EXPR, ..], EXPR, mask=COND)       # indices as they are, lanes masked
               T.prefetch(BUFFER[EXPR, ..])                     # a hint, out of bounds or not
               T.barrier("block")                               # or "warp"
               NAME = EXPR                                      # binds it in the rest of the suite
               with T.let(EXPR) as NAME: SUITE                  # binds it in this suite
               NAME = T.scratch(SHAPE, DTYPE, OPTION, ..)       # a buffer in the rest of the suite
               with T.scratch(..) as NAME: SUITE
    region     BUFFER[EXPR, LOW : LOW + EXTENT, CONST : CONST, :]
    expr       NAME, numbers, BUFFER[EXPR, ..]   + - * / // %   & | ^ ~ << >>   == != < <= > >=
               T.float32(NUMBER | "nan" | "inf" | "-inf")       # a constant of any dtype
               T.float32(EXPR)   T.cast(DTYPE, EXPR)            # a cast
               T.minimum(a, b)  T.maximum(a, b)  T.select(COND, a, b)  T.exp(x) ..  T.pow(a, b)
               T.load(BUFFER[EXPR, ..], dtype=DTYPE, mask=COND) # indices as they are, lanes masked
               T.ramp(base, stride, lanes)  T.broadcast(x, lanes)  T.dot(acc, x, y)
               T.matmul(acc, x, y, ROWS, GROUP)  T.shuffle(a, b, [LANE, ..])
               T.warp_shuffle(x, XOR)

Names are bound once in their scope. In decorated functions numbers, strings and tuples may be names
from outside. N, FIRST and END are integers, or expressions of the loops around: such a loop has the
most iterations it may have, under a condition that ends it. Conditions and bindings around blocks
become parts of these: `nests.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..base import dtypes
from ..base.errors import ParseError
from .declarations import Declarations
from .ir import (
    Alloc,
    Barrier,
    BarrierScope,
    Block,
    Buffer,
    Expr,
    For,
    Func,
    If,
    Iter,
    Label,
    Prefetch,
    Stmt,
    Store,
    Var,
    seq,
    store,
)
from .nests import binding, conditional, holds_block, where
from .regions import infer_regions
from .source import Source, guarded, syntax_tree, too_deep
from .starts import with_guarded_updates
from .structure import conjuncts
from .visit import children

Outside = Callable[[str], Any]

MAX_DEPTH = 200
"""Of nodes in each other; Python's own limits are 100 levels of indentation and 200 of brackets."""
DIRECTIVES = ("where", "reads", "writes", "block_attr")
HINTS: dict[type, str] = {
    ast.AugAssign: "write A[i] = A[i] + x",
    ast.AnnAssign: "write x = T.int32(..)",
    ast.While: "loops are `for i in range(n)`",
    ast.Return: "outputs are parameters that are stored to",
    ast.FunctionDef: "a program is one function",
}


def parse(text: str) -> Func:
    """Returns the program of a text. Raises `ParseError`, which says where and why."""
    source = Source(text)
    module = syntax_tree(source)
    if len(module.body) != 1 or not isinstance(module.body[0], ast.FunctionDef):
        raise ParseError(
            "found {0} top-level statements, expected one function definition", len(module.body),
            hint='the text is "@tw.script" and "def name(..):"',
        )  # fmt: skip
    function = module.body[0]
    for decorator in function.decorator_list:
        if ast.unparse(decorator) not in ("tw.script", "script"):
            raise source.error(decorator, "found this decorator, expected @tw.script")
    nothing: dict[str, Any] = {}
    return parse_function(source, function, nothing.__getitem__)


def parse_function(source: Source, function: ast.FunctionDef, outside: Outside) -> Func:
    """The program of a function definition. `outside` finds names or raises `KeyError`."""
    parser = _Parser(source, {}, outside)
    func = guarded(source, lambda: parser.func(function))
    if parser.may_skip_inits and not function.args.kwonlyargs:  # sizes are known
        func = with_guarded_updates(func)
    _check_depth(source, func.body)
    return func


def _check_depth(source: Source, root: Stmt) -> None:
    """Refuse trees on which a recursive pass would run out of stack."""
    stack: list[tuple[Any, int]] = [(root, 1)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise too_deep(source, MAX_DEPTH)
        stack += [(child, depth + 1) for child in children(node)]


class _Parser(Declarations):
    """Parses statements; expressions and declarations come from the bases."""

    may_skip_inits = False
    """Whether a block with an init has a predicate."""

    def func(self, node: ast.FunctionDef) -> Func:
        params = self.signature(node)
        body, header = self.header(node)
        stmt = self.suite(body)
        return Func(node.name, params, header.allocs, stmt, header.inplace, header.annotations)

    def suite(self, nodes: list[ast.stmt]) -> Stmt:
        """Statements in order. What an assignment binds lives up to the end."""
        outer: list[tuple[list[Stmt], ast.stmt, Var | Buffer, Expr | None]] = []
        current: list[Stmt] = []
        with self.scope():
            for node in nodes:
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    thing, value = self._bound(node)
                    outer.append((current, node, thing, value))
                    current = []
                elif not isinstance(node, ast.Pass):
                    current.append(self.stmt(node))
        result = seq(*current)
        for before, node, thing, value in reversed(outer):
            result = seq(*before, self._binding(node, thing, value, result))
        return result

    def stmt(self, node: ast.stmt) -> Stmt:
        match node:
            case ast.For():
                return self._for(node)
            case ast.With():
                return self._with(node)
            case ast.If():
                cond = self.condition(node.test)
                then = self.suite(node.body)
                other = self.suite(node.orelse) if node.orelse else None
                return self._conditional(node.test, cond, then, other)
            case ast.Assign(targets=[ast.Subscript() as target]):
                return self._store(node, target)
            case ast.Expr(value=ast.Call() as call):
                return self._call_stmt(call)
            case ast.AugAssign(target=ast.Name(id=name)):
                raise self.wrong(node, "a statement", self.change_hint(name))
            case _:
                kind: type = type(node)
                raise self.wrong(node, "a statement", HINTS.get(kind))

    # -- statements

    def _conditional(self, node: ast.AST, cond: Expr, then: Stmt, other: Stmt | None) -> Stmt:
        # What a variable is bound to may read memory that is stored to before it is asked.
        told = self.resolved(cond) if holds_block(If(cond, then, other)) else cond
        made = self.checked(node, lambda: conditional(told, then, other, self.ranges))
        self.may_skip_inits |= type(made) is not If
        return made

    def _binding(self, node: ast.AST, thing: Var | Buffer, value: Expr | None, body: Stmt) -> Stmt:
        if isinstance(thing, Buffer):
            return Alloc(thing, body)
        assert value is not None
        return self.checked(node, lambda: binding(thing, value, body))

    def _bound(self, node: ast.Assign) -> tuple[Var | Buffer, Expr | None]:
        """`x = expr` or `B = T.scratch(..)`: the name and its value."""
        target = node.targets[0]
        assert isinstance(target, ast.Name)
        if len(node.targets) > 1:
            raise self.source.error(node, "one name is bound at a time")
        return self._binder(node, target, node.value)

    def _binder(
        self, node: ast.AST, target: ast.Name, value: ast.expr
    ) -> tuple[Var | Buffer, Expr | None]:
        call = self.namespaced(value.func) if isinstance(value, ast.Call) else None
        if call == "scratch":
            assert isinstance(value, ast.Call)
            buffer = self.declared(target.id, value)
            self.bind(node, target.id, buffer)
            return buffer, None
        if call is not None and (call == "alloc" or call.startswith("axis.")):
            where = "at the top of the function" if call == "alloc" else "at the top of a block"
            raise self.source.error(node, "T.{0} is allowed only {1}", call, where)
        expr = self.expr(value)
        var = Var(target.id, expr.dtype)
        self.bind(node, target.id, var)
        self.lets[var] = expr
        return var, expr

    def _store(self, node: ast.stmt, target: ast.Subscript) -> Stmt:
        assert isinstance(node, ast.Assign)
        buffer, indices = self.access(target)
        value = self.expr(node.value, buffer.dtype)
        if dtypes.info(value.dtype).scalar != buffer.dtype:
            raise self.source.error(
                node.value, "a value of {0} is stored to {1} of {2}",
                value.dtype, buffer.name, buffer.dtype, hint=f"write T.{buffer.dtype}(value)",
            )  # fmt: skip
        return self.checked(node, lambda: store(buffer, indices, value))

    def _call_stmt(self, node: ast.Call) -> Stmt:
        name = self.namespaced(node.func)
        if name == "prefetch":
            buffer, indices = self.access(self.arguments(node, 1)[0][0])
            return Prefetch(buffer, indices)
        if name == "barrier":
            scope = self.arguments(node, 1)[0][0]
            found = self.string(scope, "the threads that wait, in quotes")
            if found not in tuple(BarrierScope):
                raise self.wrong(scope, f"one of {', '.join(BarrierScope)}")
            return Barrier(BarrierScope(found))
        if name != "store":
            hint = None
            if name in DIRECTIVES:
                hint = f"T.{name} stands in a block, before the first statement of its body"
            elif name in ("func_attr", "inplace"):
                several = "T.inplace(X, Y)" if name == "inplace" else "T.func_attr({.., ..})"
                hint = f"T.{name} stands at the top of the function, once: {several}"
            raise self.wrong(node, "a statement", hint)
        (element, value), options = self.arguments(node, 2, "mask")
        buffer, indices = self.access(element)
        mask = self.condition(options["mask"]) if "mask" in options else None
        return Store(buffer, indices, self.expr(value, buffer.dtype), mask)

    def _for(self, node: ast.For) -> Stmt:
        if node.orelse:
            raise self.source.error(node.orelse[0], "a loop has no else")
        names = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        loops = self.loops(node.iter)
        if len(names) != len(loops):
            raise self.source.error(
                node.target, "found {0} names for {1} loops", len(names), len(loops)
            )
        variables: list[Var] = []
        with self.scope():
            for name, loop in zip(names, loops, strict=True):
                if not isinstance(name, ast.Name):
                    raise self.wrong(name, "the name of a loop variable")
                var = Var(name.id, loop.dtype)
                index = loop.value_of(var)
                self.bind(name, name.id, index)
                self.ranges[var] = (0, loop.extent - 1)
                if index is var:
                    self.extents[var] = loop.extent
                else:
                    self.shifted.add(var)
                variables.append(var)
            body = self.suite(node.body)
        for var, loop in reversed(list(zip(variables, loops, strict=True))):
            runs = loop.runs(var)
            if runs is not None:
                body = self._conditional(node.iter, runs, body, None)
            body = For(var, loop.extent, body, loop.kind, loop.thread, loop.annotations)
        return body

    def _with(self, node: ast.With) -> Stmt:
        call, target = self.context(node)
        name = self.namespaced(call.func)
        if name == "block" and target is None:
            label = self._block_name(self.arguments(call, 1)[0][0])
            with self.scope():
                return self._block(label, node.body)
        if name in ("let", "scratch") and target is not None:
            value = self.arguments(call, 1)[0][0] if name == "let" else call
            with self.scope():
                thing, bound = self._binder(node, target, value)
                return self._binding(node, thing, bound, self.suite(node.body))
        raise self.wrong(call, 'T.block("name"), T.let(value) as x, or T.scratch(..) as B')

    def _block_name(self, node: ast.expr) -> str:
        name = self.string(node, "the name of the block, in quotes")
        if not name.isprintable():
            raise self.wrong(node, "the name of a block, a line without control characters")
        return name

    def _block(self, label: str, nodes: list[ast.stmt]) -> Block:
        iters: list[Iter] = []
        directives: dict[str, Any] = {}
        init: Stmt | None = None
        body = 0
        for node in nodes:
            if isinstance(node, ast.Assign) and self.is_axis(node.value):
                iters += self.axes(node)
            elif isinstance(node, ast.Expr) and self.is_call(node.value, *DIRECTIVES):
                self._directive(node, directives)
            elif isinstance(node, ast.With) and self.is_call(node.items[0].context_expr, "init"):
                if init is not None:
                    raise self.source.error(node, "a block has one T.init")
                self.arguments(self.context(node)[0], 0)
                init = self.suite(node.body)
            else:
                break
            body += 1
        stmt = self.suite(nodes[body:])
        axes = tuple(iters)
        reads, writes = directives.get("reads"), directives.get("writes")
        if reads is None or writes is None:
            found = infer_regions(axes, stmt, init)
            reads = found[0] if reads is None else reads
            writes = found[1] if writes is None else writes
        predicate, annotations = directives.get("where"), directives.get("block_attr", ())
        block = Block(Label(label), axes, reads, writes, stmt, init, predicate, annotations)
        if predicate is None:
            return block
        self.may_skip_inits |= init is not None
        asked = conjuncts(self.resolved(predicate))
        plain = replace(block, predicate=None)
        return self.checked(nodes[0], lambda: where(plain, asked, self.ranges))

    def _directive(self, node: ast.Expr, into: dict[str, Any]) -> None:
        call = node.value
        assert isinstance(call, ast.Call)
        name = self.namespaced(call.func)
        assert name is not None
        if name in into:
            raise self.source.error(node, "T.{0} is given twice in the block", name)
        match name:
            case "where":
                into[name] = self.condition(self.arguments(call, 1)[0][0])
            case "block_attr":
                into[name] = self.annotations(self.arguments(call, 1)[0][0])
            case _:
                self.arguments(call, len(call.args))
                into[name] = tuple([self.region(a) for a in call.args])

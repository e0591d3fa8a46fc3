"""Print programs as Python-like script that `parser.parse` reads back to the same structure.

The grammar is in `parser.py`. Printing never fails on a well-built tree, verified or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from ..base.text import excerpt
from .equality import flat, structural_equal
from .expr_printer import ExprPrinter
from .ir import (
    INDEX,
    Alloc,
    Annotations,
    Barrier,
    Block,
    Buffer,
    Dim,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Iter,
    Label,
    Let,
    Prefetch,
    Seq,
    Stmt,
    Store,
    Var,
    as_expr,
)
from .names import Names, identifier, quoted
from .regions import element_regions, same_regions
from .visit import walk

Mark: TypeAlias = Var | Label | Stmt | None
MARK = "  # <-- here"
WIDTH = 100


class Line(NamedTuple):
    """A line of a program's text.

    `about` has what the line introduces: its statement, and the variables, the label of a block or
    the buffers that it declares.
    """

    text: str
    about: tuple[Any, ...] = ()

    @property
    def loop(self) -> For | None:
        """The loop that it begins."""
        return next((s for s in self.about if type(s) is For), None)

    @property
    def block(self) -> Block | None:
        """The block that it begins."""
        return next((s for s in self.about if type(s) is Block), None)


def expr_text(expr: Expr) -> str:
    """`expr` as Python-like text, under the names that its variables and buffers have."""
    return ExprPrinter(Names()).text(expr)


def stmt_text(stmt: Stmt, mark: Mark = None) -> str:
    """`stmt` as text without a last newline; variables and buffers not bound in it are free."""
    printer = _Printer(mark)
    printer.suite(stmt, 0)
    return printer.text()


def func_text(func: Func, mark: Mark = None) -> str:
    """`func` as a decorated Python function, which parses back; without a last newline.

    `mark` puts `# <-- here` behind the loop or iteration variable, the block, or the statement.
    """
    printer = _Printer(mark)
    printer.func(func)
    return printer.text()


class Listing(NamedTuple):
    """The lines of a program, and the names that they have for its variables and buffers."""

    lines: list[Line]
    names: Mapping[object, str]


def listing(func: Func, mark: Mark = None) -> Listing:
    """`func_text` by lines, each with what it introduces; every loop has a line of its own."""
    printer = _Printer(mark, grids=False)
    printer.func(func)
    return Listing(printer.lines, printer.names.given)


def loop_names(root: Func | Stmt) -> dict[Var, str]:
    """The names that the text of a program has for its loops; loops in each other have others."""
    printer = _Printer(None)
    if isinstance(root, Func):
        printer.func(root)
    else:
        printer.suite(root, 0)
    return printer.loops


def decisions(func: Func) -> tuple[Var, ...]:
    """The variables that nothing in `func` binds, in order of first use: open decisions."""
    bound: set[Var] = {p for p in func.params if type(p) is Var}
    seen: dict[Var, None] = {}

    def shape(buffer: Buffer) -> None:
        for d in buffer.shape:
            if isinstance(d, Expr):
                seen.update((v, None) for v in walk(d) if type(v) is Var)

    for b in (*func.params, *func.allocs):
        if type(b) is Buffer:
            shape(b)
    for n in walk(func):
        kind = type(n)
        if isinstance(n, Var):
            seen[n] = None
        elif kind is For or kind is Let:
            bound.add(n.var)
        elif kind is Block:
            bound.update(i.var for i in n.iters)
        elif kind is Alloc:
            shape(n.buffer)
    return tuple(v for v in seen if v not in bound)


class _Printer:
    """Appends lines; names live as long as the scope that the text has them in."""

    def __init__(self, mark: Mark, *, grids: bool = True) -> None:
        self.grids = grids
        self.names = Names()
        self.expr = ExprPrinter(self.names)
        self.mark = mark
        self.lines: list[Line] = []
        self.extents: dict[Var, Dim] = {}
        self.loops: dict[Var, str] = {}

    def text(self) -> str:
        return "\n".join([line.text for line in self.lines])

    def line(self, indent: int, text: str, *about: Any) -> None:
        marked = self.mark is not None and any(m is self.mark for m in about)
        self.lines.append(Line("    " * indent + text + MARK * marked, about))

    def func(self, func: Func) -> None:
        open_vars = decisions(func)
        for v in open_vars:
            self.names.bind(v, v.name)
        for p in func.params:
            self.names.bind(p, p.name)
        params: list[tuple[str, Buffer | Var | None]] = [
            (f"{self.names.of(p, p.name)}: {self._declared(p)}", p) for p in func.params
        ]
        if open_vars:
            params.append(("*", None))
        for v in open_vars:
            dtype = "" if v.dtype == INDEX else f'("{v.dtype}")'
            params.append((f"{self.names.of(v, v.name)}: T.decision{dtype}", v))
        self.line(0, "@tw.script")
        name = identifier(func.name, "func")
        head = f"def {name}({', '.join([text for text, _ in params])}):"
        if len(head) <= WIDTH:
            self.line(0, head, *(p for _, p in params if p is not None))
        else:
            self.line(0, f"def {name}(")
            for text, param in params:
                self.line(1, f"{text},", *(() if param is None else (param,)))
            self.line(0, "):")
        if func.annotations:
            self.line(1, f"T.func_attr({annotations_text(func.annotations)})")
        if func.inplace:
            self.line(1, f"T.inplace({', '.join(self.names.of(b, b.name) for b in func.inplace)})")
        for b in func.allocs:
            text = f"T.alloc{self._declaration(b)}"
            self.line(1, f"{self.names.bind(b, b.name)} = {text}", b)
        self.suite(func.body, 1)

    def suite(self, stmt: Stmt, indent: int) -> None:
        """`stmt` as an indented suite of its own."""
        before = len(self.lines)
        self.stmt(stmt, indent, True)
        if len(self.lines) == before:
            self.line(indent, "pass")

    def stmt(self, stmt: Stmt, indent: int, last: bool) -> None:
        """`stmt` into the suite at hand; `last` if nothing follows in that suite."""
        before = len(self.lines)
        scope: list[Var | Buffer] = []
        inner = stmt
        while True:
            match inner:
                case Seq():
                    stmts = flat(inner)
                    for s in stmts[:-1]:
                        self.stmt(s, indent, False)
                    if stmts:
                        inner = stmts[-1]
                        continue
                case Let() | Alloc():
                    thing = inner.var if isinstance(inner, Let) else inner.buffer
                    value = (
                        self.expr.text(inner.value)
                        if isinstance(inner, Let)
                        else f"T.scratch{self._declaration(inner.buffer)}"
                    )
                    name = self.names.bind(thing, thing.name)
                    scope.append(thing)
                    if last:
                        self.line(indent, f"{name} = {value}", inner, thing)
                        inner = inner.body
                        continue
                    let = f"T.let({value})" if isinstance(inner, Let) else value
                    self.line(indent, f"with {let} as {name}:", inner, thing)
                    self.suite(inner.body, indent + 1)
                case For():
                    self._for(inner, indent)
                case Block():
                    self._block(inner, indent)
                case If():
                    self._if(inner, indent)
                case Store():
                    self.line(indent, self._store(inner), inner)
                case Prefetch():
                    element = self.expr.element(inner.buffer, inner.indices)
                    self.line(indent, f"T.prefetch({element})", inner)
                case Barrier():
                    self.line(indent, f"T.barrier({quoted(inner.scope.value)})", inner)
                case _:
                    raise TypeError(f"no statement: {type(inner).__name__}")
            break
        if type(stmt) is Seq and stmt is self.mark and len(self.lines) > before:
            first = self.lines[before]
            self.lines[before] = first._replace(text=first.text + MARK, about=(*first.about, stmt))
        for thing in reversed(scope):
            self.names.release(thing)

    def _declared(self, param: Buffer | Var) -> str:
        if type(param) is Var:
            return f"T.{param.dtype}"
        assert type(param) is Buffer
        return f"T.Buffer{self._declaration(param)}"

    def _declaration(self, b: Buffer) -> str:
        parts = [self.expr.shape(b.shape), f'"{b.dtype}"']
        if b.strides is not None:
            parts.append(f"strides={self.expr.shape(b.strides)}")
        if b.scope != "global":
            parts.append(f"scope={quoted(b.scope)}")
        if b.constant:
            parts.append("constant=True")
        if b.value_range is not None:
            parts.append(f"value_range={b.value_range}")
        if b.align:
            parts.append(f"align={b.align}")
        if b.swizzle is not None:
            parts.append(f"swizzle={b.swizzle}")
        return f"({', '.join(parts)})"

    def _store(self, s: Store) -> str:
        element = self.expr.element(s.buffer, s.indices)
        narrow = any(not i.dtype.startswith(INDEX) for i in s.indices)
        if s.mask is None and not narrow:
            return f"{element} = {self.expr.weak(s.value, s.buffer.dtype)}"
        mask = "" if s.mask is None else f", mask={self.expr.text(s.mask)}"
        return f"T.store({element}, {self.expr.text(s.value)}{mask})"

    def _if(self, s: If, indent: int) -> None:
        self.line(indent, f"if {self.expr.text(s.cond)}:", s)
        self.suite(s.then, indent + 1)
        other = None if s.other is None else _alone(s.other)
        while type(other) is If:
            self.line(indent, f"elif {self.expr.text(other.cond)}:", other)
            self.suite(other.then, indent + 1)
            other = None if other.other is None else _alone(other.other)
        if other is not None:
            self.line(indent, "else:")
            self.suite(other, indent + 1)

    def _for(self, s: For, indent: int) -> None:
        nest = [s, *self._grid(s)]
        extents = [self.expr.dim(n.extent) for n in nest]
        for n in nest:
            self.extents[n.var] = n.extent
        self.loops.update((n.var, self.names.bind(n.var, n.var.name)) for n in nest)
        names = ", ".join([self.loops[n.var] for n in nest])
        if len(nest) > 1:
            loop = f"T.grid({', '.join(extents)})"
        else:
            loop = self._loop(s, extents[0])
        self.line(indent, f"for {names} in {loop}:", *nest, *(n.var for n in nest))
        self.suite(nest[-1].body, indent + 1)
        for n in nest:
            self.names.release(n.var)

    def _grid(self, s: For) -> Iterator[For]:
        """The loops inside `s` that go onto one line with it."""
        outer = {s.var}
        inner = _alone(s.body)
        while self.grids and _plain(s) and isinstance(inner, For) and _plain(inner):
            if inner is self.mark or inner.var is self.mark or inner.var in outer:
                return
            if not isinstance(inner.extent, int) and not outer.isdisjoint(walk(inner.extent)):
                return
            yield inner
            outer.add(inner.var)
            inner = _alone(inner.body)

    def _loop(self, s: For, extent: str) -> str:
        options = ""
        if s.var.dtype != INDEX:
            options += f', dtype="{s.var.dtype}"'
        if s.annotations:
            options += f", annotations={annotations_text(s.annotations)}"
        if s.kind is ForKind.SERIAL and not options:
            return f"range({extent})"
        if s.kind is ForKind.THREAD:
            extent = f"{None if s.thread is None else quoted(s.thread)}, {extent}"
        return f"T.{s.kind.value}({extent}{options})"

    def _block(self, s: Block, indent: int) -> None:
        name = excerpt(s.label.name, len(s.label.name))  # a parser takes no other
        self.line(indent, f"with T.block({quoted(name)}):", s, s.label)
        inside = indent + 1
        self._iters(s.iters, inside)
        if s.predicate is not None:
            self.line(inside, f"T.where({self.expr.text(s.predicate)})")
        reads, writes = element_regions(s.body, s.init) or (None, None)
        for name, declared, inferred in (("reads", s.reads, reads), ("writes", s.writes, writes)):
            if inferred is None or not same_regions(declared, inferred):
                self.line(inside, f"T.{name}({', '.join(map(self.expr.region, declared))})")
        if s.annotations:
            self.line(inside, f"T.block_attr({annotations_text(s.annotations)})")
        if s.init is not None:
            self.line(inside, "with T.init():")
            self.suite(s.init, inside + 1)
        self.suite(s.body, inside)
        for i in s.iters:
            self.names.release(i.var)

    def _iters(self, iters: tuple[Iter, ...], indent: int) -> None:
        values = [self.expr.text(i.value) for i in iters]  # outside the scope of the iterations
        extents = [self.expr.dim(i.extent) for i in iters]
        names = [self.names.bind(i.var, i.var.name) for i in iters]
        if len(iters) > 1 and all(self._is_loop(i) for i in iters):
            kinds = "".join(i.kind.value[0].upper() for i in iters)
            text = f'{", ".join(names)} = T.axis.remap("{kinds}", [{", ".join(values)}])'
            self.line(indent, text, *(i.var for i in iters))
            return
        for i, name, extent, value in zip(iters, names, extents, values, strict=True):
            dtype = "" if i.var.dtype == INDEX else f', dtype="{i.var.dtype}"'
            self.line(indent, f"{name} = T.axis.{i.kind.value}({extent}, {value}{dtype})", i.var)

    def _is_loop(self, i: Iter) -> bool:
        """Whether the iteration is just a loop around it, over the same extent."""
        if type(i.value) is not Var or i.var.dtype != INDEX:
            return False
        extent = self.extents.get(i.value)
        return extent is not None and structural_equal(as_expr(extent), as_expr(i.extent))


def _alone(s: Stmt) -> Stmt:
    """The statement itself where it is a sequence of just one."""
    stmts = flat(s)
    return stmts[0] if len(stmts) == 1 else s


def _plain(s: For) -> bool:
    return s.kind is ForKind.SERIAL and not s.annotations and s.var.dtype == INDEX


def annotations_text(annotations: Annotations) -> str:
    """Annotations as a Python dict display."""
    return "{" + ", ".join([f"{quoted(k)}: {json_text(v)}" for k, v in annotations]) + "}"


def json_text(value: Any) -> str:
    """A JSON value as a Python literal; other values by their `repr`."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(json_text, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join([f"{quoted(k)}: {json_text(v)}" for k, v in value.items()]) + "}"
    return repr(value)

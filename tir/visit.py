"""Traversal: `walk`, `rewrite_children` and `substitute`, by a table of functions per node type.

A rewrite that changes nothing returns the object it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar, overload

from .ir import (
    Alloc,
    Barrier,
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
    If,
    Iter,
    Let,
    Load,
    Matmul,
    Op,
    Prefetch,
    Ramp,
    Range,
    Reduce,
    Region,
    Select,
    Seq,
    Shuffle,
    Stmt,
    Store,
    Var,
    WarpShuffle,
    as_dim,
    binary,
)

T = TypeVar("T")
Rewriter = Callable[[Any], Any]
"""Takes a child (an expression, a statement or a buffer) and returns what to put in its place."""


def map_tuple(items: tuple[T, ...], f: Callable[[T], T]) -> tuple[T, ...]:
    """`f` over a tuple; the same tuple if nothing changed."""
    new = tuple([f(x) for x in items])
    for a, b in zip(items, new, strict=True):
        if a is not b:
            return new
    return items


def map_dim(dim: Dim, f: Rewriter) -> Dim:
    """`f` on a symbolic dimension; an integer stays, a constant result becomes an integer."""
    return dim if type(dim) is int else as_dim(f(dim))


def _binary(n: Binary, f: Rewriter) -> Expr:
    a, b = f(n.a), f(n.b)
    if a is n.a and b is n.b:
        return n
    return binary(n.op, a, b) if n.op is not Op.DIV else Binary(n.op, a, b, n.dtype)


def _call(n: Call, f: Rewriter) -> Expr:
    args = map_tuple(n.args, f)
    return n if args is n.args else Call(n.fn, args, n.dtype)


def _cast(n: Cast, f: Rewriter) -> Expr:
    value = f(n.value)
    return n if value is n.value else Cast(value, n.dtype)


def _select(n: Select, f: Rewriter) -> Expr:
    cond, then, other = f(n.cond), f(n.then), f(n.other)
    if cond is n.cond and then is n.then and other is n.other:
        return n
    return Select(cond, then, other, n.dtype)


def _load(n: Load, f: Rewriter) -> Expr:
    buffer, indices = f(n.buffer), map_tuple(n.indices, f)
    mask = None if n.mask is None else f(n.mask)
    if buffer is n.buffer and indices is n.indices and mask is n.mask:
        return n
    return Load(buffer, indices, n.dtype, mask)


def _ramp(n: Ramp, f: Rewriter) -> Expr:
    base, stride = f(n.base), f(n.stride)
    if base is n.base and stride is n.stride:
        return n
    return Ramp(base, stride, n.lanes, n.dtype)


def _broadcast(n: Broadcast, f: Rewriter) -> Expr:
    value = f(n.value)
    return n if value is n.value else Broadcast(value, n.lanes, n.dtype)


def _dot(n: Dot, f: Rewriter) -> Expr:
    acc, x, y = f(n.acc), f(n.x), f(n.y)
    return n if acc is n.acc and x is n.x and y is n.y else Dot(acc, x, y, n.dtype)


def _matmul(n: Matmul, f: Rewriter) -> Expr:
    acc, x, y = f(n.acc), f(n.x), f(n.y)
    if acc is n.acc and x is n.x and y is n.y:
        return n
    return Matmul(acc, x, y, n.rows, n.group, n.dtype)


def _shuffle(n: Shuffle, f: Rewriter) -> Expr:
    a, b = f(n.a), f(n.b)
    return n if a is n.a and b is n.b else Shuffle(a, b, n.order, n.dtype)


def _warp_shuffle(n: WarpShuffle, f: Rewriter) -> Expr:
    value = f(n.value)
    return n if value is n.value else WarpShuffle(value, n.xor, n.dtype)


def _reduce(n: Reduce, f: Rewriter) -> Expr:
    values = map_tuple(n.values, f)
    axes = map_tuple(n.axes, lambda i: map_iter(i, f))
    if values is n.values and axes is n.axes:
        return n
    return Reduce(n.combiner, values, axes, n.index, n.dtype)


def map_iter(n: Iter, f: Rewriter) -> Iter:
    extent, value = map_dim(n.extent, f), f(n.value)
    if extent is n.extent and value is n.value:
        return n
    return Iter(n.var, extent, n.kind, value)


def map_region(n: Region, f: Rewriter) -> Region:
    def map_range(r: Range) -> Range:
        low, extent = f(r.min), map_dim(r.extent, f)
        return r if low is r.min and extent is r.extent else Range(low, extent)

    buffer, ranges = f(n.buffer), map_tuple(n.ranges, map_range)
    return n if buffer is n.buffer and ranges is n.ranges else Region(buffer, ranges)


def _store(n: Store, f: Rewriter) -> Stmt:
    buffer, indices, value = f(n.buffer), map_tuple(n.indices, f), f(n.value)
    mask = None if n.mask is None else f(n.mask)
    if buffer is n.buffer and indices is n.indices and value is n.value and mask is n.mask:
        return n
    return Store(buffer, indices, value, mask)


def _prefetch(n: Prefetch, f: Rewriter) -> Stmt:
    buffer, indices = f(n.buffer), map_tuple(n.indices, f)
    return n if buffer is n.buffer and indices is n.indices else Prefetch(buffer, indices)


def _for(n: For, f: Rewriter) -> Stmt:
    extent, body = map_dim(n.extent, f), f(n.body)
    if extent is n.extent and body is n.body:
        return n
    return with_body(n, body, extent=extent)


def _block(n: Block, f: Rewriter) -> Stmt:
    iters = map_tuple(n.iters, lambda i: map_iter(i, f))
    reads = map_tuple(n.reads, lambda r: map_region(r, f))
    writes = map_tuple(n.writes, lambda r: map_region(r, f))
    body = f(n.body)
    init = None if n.init is None else f(n.init)
    predicate = None if n.predicate is None else f(n.predicate)
    if (
        iters is n.iters
        and reads is n.reads
        and writes is n.writes
        and body is n.body
        and init is n.init
        and predicate is n.predicate
    ):
        return n
    return Block(n.label, iters, reads, writes, body, init, predicate, n.annotations)


def _seq(n: Seq, f: Rewriter) -> Stmt:
    stmts = map_tuple(n.stmts, f)
    return n if stmts is n.stmts else Seq(stmts)


def _if(n: If, f: Rewriter) -> Stmt:
    cond, then = f(n.cond), f(n.then)
    other = None if n.other is None else f(n.other)
    if cond is n.cond and then is n.then and other is n.other:
        return n
    return If(cond, then, other)


def _let(n: Let, f: Rewriter) -> Stmt:
    value, body = f(n.value), f(n.body)
    return n if value is n.value and body is n.body else Let(n.var, value, body)


def _alloc(n: Alloc, f: Rewriter) -> Stmt:
    buffer, body = f(n.buffer), f(n.body)
    return n if buffer is n.buffer and body is n.body else Alloc(buffer, body)


def _leaf(n: T, _f: Rewriter) -> T:
    return n


def _buffer(n: Buffer, f: Rewriter) -> Buffer:
    shape = map_tuple(n.shape, lambda d: map_dim(d, f))
    if shape is n.shape:
        return n
    return Buffer(n.name, shape, n.dtype, n.strides, n.scope, n.constant, n.value_range, n.align,
                  n.swizzle)  # fmt: skip


CHILDREN: dict[type, Callable[[Any, Rewriter], Any]] = {
    Var: _leaf,
    Const: _leaf,
    Binary: _binary,
    Call: _call,
    Cast: _cast,
    Select: _select,
    Load: _load,
    Ramp: _ramp,
    Broadcast: _broadcast,
    Dot: _dot,
    Matmul: _matmul,
    Shuffle: _shuffle,
    WarpShuffle: _warp_shuffle,
    Reduce: _reduce,
    Store: _store,
    Prefetch: _prefetch,
    Barrier: _leaf,
    For: _for,
    Block: _block,
    Seq: _seq,
    If: _if,
    Let: _let,
    Alloc: _alloc,
    Buffer: _leaf,
}
LEAVES = frozenset(kind for kind, rewrite in CHILDREN.items() if rewrite is _leaf)


@overload
def rewrite_children(n: Expr, f: Rewriter) -> Expr: ...
@overload
def rewrite_children(n: Stmt, f: Rewriter) -> Stmt: ...
@overload
def rewrite_children(n: Any, f: Rewriter) -> Any: ...
def rewrite_children(n: Any, f: Rewriter) -> Any:
    """`n` with `f` applied to each child: expressions, statements, and buffers that it names."""
    return CHILDREN[type(n)](n, f)


_LISTED: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    Binary: lambda n: (n.a, n.b),
    Cast: lambda n: (n.value,),
    Load: lambda n: (n.buffer, *n.indices) if n.mask is None else (n.buffer, *n.indices, n.mask),
    Ramp: lambda n: (n.base, n.stride),
    Broadcast: lambda n: (n.value,),
    Store: lambda n: (
        (n.buffer, *n.indices, n.value)
        if n.mask is None
        else (n.buffer, *n.indices, n.value, n.mask)
    ),
    For: lambda n: (n.body,) if type(n.extent) is int else (n.extent, n.body),
    Seq: lambda n: n.stmts,
    **dict.fromkeys(LEAVES, lambda _: ()),
}
"""The children of the nodes that there are most of: walks take less time than by `CHILDREN`."""


def children(n: Any) -> tuple[Any, ...]:
    """The children of a node, in the order in which `rewrite_children` meets them."""
    listed = _LISTED.get(type(n))
    if listed is not None:
        return listed(n)
    found: list[Any] = []

    def see(child: T) -> T:
        found.append(child)
        return child

    CHILDREN[type(n)](n, see)
    return tuple(found)


def walk(root: Any) -> Iterator[Any]:
    """All expressions, statements and buffers below `root` (a node or `Func`), parents first."""
    stack = [root.body if type(root) is Func else root]
    listed = _LISTED
    while stack:
        n = stack.pop()
        yield n
        below = listed.get(type(n))
        stack += (children(n) if below is None else below(n))[::-1]


def distinct(root: Any) -> Iterator[Any]:
    """The nodes of `walk`, each object once: copies of a loop's body share many."""
    seen: set[Any] = set()
    stack = [root.body if type(root) is Func else root]
    while stack:
        n = stack.pop()
        if n not in seen:
            seen.add(n)
            yield n
            stack.extend(reversed(children(n)))


def stored_buffers(root: Any) -> set[Buffer]:
    """The buffers that are stored to below `root`."""
    return {n.buffer for n in walk(root) if type(n) is Store}


def reads_from(root: Any, buffers: Collection[Buffer]) -> bool:
    """Whether an element of one of `buffers` is read below `root`."""
    return any(type(n) is Load and n.buffer in buffers for n in walk(root))


class ReadBuffers:
    """The buffers of which elements are read in statements and expressions.

    Those of a statement are found once, however many loops around it are asked about.
    """

    def __init__(self) -> None:
        self._found: dict[Any, frozenset[Buffer]] = {}

    def __call__(self, root: Expr | Stmt) -> frozenset[Buffer]:
        found = self._found.get(root)
        if found is None:
            if type(root) in _NESTED:
                below = (n for n in children(root) if not isinstance(n, Buffer))
                found = frozenset().union(*map(self, below))
            else:
                found = frozenset(n.buffer for n in walk(root) if type(n) is Load)
            self._found[root] = found
        return found


_NESTED: dict[type, Callable[[Any], tuple[Stmt, ...]]] = {
    For: lambda s: (s.body,),
    Seq: lambda s: s.stmts,
    If: lambda s: (s.then,) if s.other is None else (s.then, s.other),
    Let: lambda s: (s.body,),
    Alloc: lambda s: (s.body,),
}


def nested(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements directly below `stmt`; none below a block, which is a unit."""
    below = _NESTED.get(type(stmt))
    return () if below is None else below(stmt)


def with_body(loop: For, body: Stmt, var: Var | None = None, extent: Dim | None = None) -> For:
    """`loop` with another body, and where given another variable or extent."""
    return For(
        loop.var if var is None else var,
        loop.extent if extent is None else extent,
        body,
        loop.kind,
        loop.thread,
        loop.annotations,
    )


def with_func_body(func: Func, body: Stmt) -> Func:
    """`func` with another body; the same function if it is the same body."""
    if body is func.body:
        return func
    return Func(func.name, func.params, func.allocs, body, func.inplace, func.annotations)


class _Replacement:
    """Replaces free occurrences.

    A function inside a function that calls itself would be in a cycle with itself, and keep what it
    refers to until the collector comes.
    """

    __slots__ = ("_buffers", "_done", "_variables")

    def __init__(self, variables: Mapping[Any, Any], buffers: Mapping[Any, Any]) -> None:
        self._variables, self._buffers = variables, buffers
        self._done: dict[Expr, Expr] = {}

    def __call__(self, n: Any) -> Any:
        kind = type(n)
        if kind is Var:
            return self._variables.get(n, n)
        if kind is Binary:  # what expressions share is replaced once
            found = self._done.get(n)
            if found is None:
                found = self._done[n] = _binary(n, self)
            return found
        if kind is Buffer:
            return self._buffers.get(n, n)
        return n if kind is Const else CHILDREN[kind](n, self)


def substitute(root: T, mapping: Mapping[Any, Any]) -> T:
    """`root` with variables replaced by expressions and buffers by buffers.

    Only free occurrences are replaced; bound variables are unique objects, so nothing is captured.
    Returns the same object if nothing is replaced.
    """
    if not mapping:
        return root
    return _Replacement(mapping, mapping)(root)  # type: ignore[no-any-return]


def substitute_func(func: Func, mapping: Mapping[Any, Any]) -> Func:
    """`substitute` over the whole of a function, shapes of internal buffers included."""
    buffers: dict[Any, Any] = {k: v for k, v in mapping.items() if type(k) is Buffer}
    visit = _Replacement(mapping, buffers)
    for b in func.allocs:
        if b not in buffers:
            new = _buffer(b, visit)
            if new is not b:
                buffers[b] = new
    body = visit(func.body)
    allocs = map_tuple(func.allocs, lambda b: buffers.get(b, b))
    if body is func.body and allocs is func.allocs:
        return func
    return Func(func.name, func.params, allocs, body, func.inplace, func.annotations)

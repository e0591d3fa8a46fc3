"""Structural equality, and the digest that is the key of a program in the tuning database.

Both use one encoding of a program as a sequence of tokens. Variables and buffers are numbered by
position: parameters first, then each where it is bound (internal buffers: where first used). Names,
labels, the nesting of sequences and the order of `allocs` are not encoded; everything else is. A
change of the encoding orphans the records of every database: then, and only then, raise `VERSION`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from .. import dtypes
from .constants import rounded
from .ir import (
    Alloc,
    Annotations,
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
    Let,
    Load,
    Matmul,
    Node,
    Prefetch,
    Ramp,
    Reduce,
    Region,
    Select,
    Seq,
    Shuffle,
    Stmt,
    Store,
    Var,
)

VERSION = "tir 1"


def structural_equal(a: Node, b: Node, *, match_free: bool = False) -> bool:
    """Whether two expressions, statements or functions are equal up to names.

    Bound variables and buffers correspond by position. Free ones (except the decisions of a
    function) have to be the same objects; with `match_free` they correspond by position too.
    """
    return a is b or _tokens(a, match_free) == _tokens(b, match_free)


def structural_hash(func: Func) -> str:
    """The SHA-256 of `func`, in hexadecimal: equal for functions that are `structural_equal`.

    It is the same in every process, on every machine and in every version of Python.
    """
    return hashlib.sha256("\n".join(_tokens(func, True)).encode()).hexdigest()


def first_difference(a: Node, b: Node, *, match_free: bool = False) -> str | None:
    """Where two trees first differ, as text for people; `None` if they are equal."""
    left, right = _Traced(match_free), _Traced(match_free)
    left.root(a)
    right.root(b)
    if left.out == right.out:
        return None
    pairs = enumerate(zip(left.out, right.out, strict=False))
    at = next((k for k, (x, y) in pairs if x != y), min(len(left.out), len(right.out)))
    return f"{left.place(at)}\n  is different from\n{right.place(at)}"


def flat(s: Stmt) -> list[Stmt]:
    """The statements of a sequence, and of sequences in it, in order; others by themselves."""
    if not isinstance(s, Seq):
        return [s]
    found: list[Stmt] = []
    for x in s.stmts:
        found.extend(flat(x))
    return found


def _tokens(node: Node, match_free: bool) -> list[str]:
    encoder = Encoder(match_free)
    encoder.root(node)
    return encoder.out


class Encoder:
    """Appends tokens to `out`. Every node starts with its kind and has a known number of parts."""

    def __init__(self, match_free: bool) -> None:
        self.out: list[str] = []
        self.match_free = match_free
        self.numbers: dict[Var | Buffer, str] = {}
        self.count = 0
        self.pending: dict[Buffer, None] = {}
        self.node: Callable[[Any], None] = self.encode

    def root(self, node: Node) -> None:
        self.out.append(VERSION)
        self.match_free = self.match_free or type(node) is Func
        self.node(node)

    def encode(self, node: Any) -> None:
        encode = _ENCODE.get(type(node))
        if encode is None:
            assert isinstance(node, Var)
            self.out.append(self.numbers.get(node) or self.free(node))
        else:
            encode(self, node)

    def bind(self, thing: Var | Buffer) -> None:
        self.numbers[thing] = f"#{self.count}"
        self.count += 1

    def free(self, thing: Var | Buffer) -> str:
        """The token of something free at its first use; declares it if it goes by position."""
        if not self.match_free:
            return f"@{id(thing)}"
        self.out.append("free")
        if isinstance(thing, Var):
            self.out.append(thing.dtype)
        else:
            self.out.append("alloc" if thing in self.pending else "unknown")
            self.pending.pop(thing, None)
            self.declare(thing)
        self.bind(thing)
        return self.numbers[thing]

    def buffer(self, b: Buffer) -> None:
        self.out.append(self.numbers.get(b) or self.free(b))

    def declare(self, b: Buffer) -> None:
        self.out.append(f"buffer {len(b.shape)} {b.dtype} {json.dumps(b.scope)}")
        self.out.append(json.dumps([b.strides, b.constant, b.value_range]))
        if b.align:
            self.out.append(json.dumps(b.align))
        if b.swizzle is not None:
            self.out.append(json.dumps(["swizzle", *b.swizzle]))
        for d in b.shape:
            self.dim(d)

    def dim(self, dim: Dim) -> None:
        if type(dim) is int:
            self.out.append(str(dim))
        elif isinstance(dim, (int, Const)):
            self.out.append(str(int(dim if isinstance(dim, int) else dim.value)))
        else:
            self.node(dim)

    def annotations(self, annotations: Annotations) -> None:
        if not annotations:
            self.out.append("{}")
        else:
            self.out.append(json.dumps(dict(annotations), sort_keys=True, default=repr))

    def func(self, f: Func) -> None:
        self.out.append(f"func {len(f.params)}")
        for p in f.params:
            if isinstance(p, Var):
                self.out.append(f"scalar {p.dtype}")
            else:
                self.declare(p)
            self.bind(p)
        self.out.append(f"inplace {sorted(self.numbers.get(b, '') for b in f.inplace)}")
        self.annotations(f.annotations)
        self.pending = dict.fromkeys(f.allocs)
        self.node(f.body)
        if self.pending:  # unused buffers have no position but that of their own text
            start = len(self.out)
            unused = []
            for b in self.pending:
                self.declare(b)
                unused.append(" ".join(self.out[start:]))
                del self.out[start:]
            self.out.extend(sorted(unused))

    def binary(self, e: Binary) -> None:
        self.out.append(f"{e.op.value} {e.dtype}")
        self.node(e.a)
        self.node(e.b)

    def const(self, e: Const) -> None:
        dtype = e.dtype
        kind = dtypes.info(dtype).kind
        value = rounded(float(e.value), dtype).hex() if kind == "float" else str(int(e.value))
        self.out.append(f"const {dtype} {value}")

    def call(self, e: Call) -> None:
        self.out.append(f"call {e.fn} {len(e.args)} {e.dtype}")
        for a in e.args:
            self.node(a)

    def cast(self, e: Cast) -> None:
        self.out.append(f"cast {e.dtype}")
        self.node(e.value)

    def select(self, e: Select) -> None:
        self.out.append(f"select {e.dtype}")
        self.node(e.cond)
        self.node(e.then)
        self.node(e.other)

    def load(self, e: Load) -> None:
        self.out.append(f"load {len(e.indices)} {e.dtype}" + " mask" * (e.mask is not None))
        self.buffer(e.buffer)
        for i in e.indices:
            self.node(i)
        if e.mask is not None:
            self.node(e.mask)

    def ramp(self, e: Ramp) -> None:
        self.out.append(f"ramp {e.lanes} {e.dtype}")
        self.node(e.base)
        self.node(e.stride)

    def broadcast(self, e: Broadcast) -> None:
        self.out.append(f"broadcast {e.lanes} {e.dtype}")
        self.node(e.value)

    def dot(self, e: Dot) -> None:
        self.out.append(f"dot {e.dtype}")
        self.node(e.acc)
        self.node(e.x)
        self.node(e.y)

    def matmul(self, e: Matmul) -> None:
        self.out.append(f"matmul {e.rows} {e.group} {e.dtype}")
        self.node(e.acc)
        self.node(e.x)
        self.node(e.y)

    def shuffle(self, e: Shuffle) -> None:
        self.out.append(f"shuffle {e.dtype} {e.order}")
        self.node(e.a)
        self.node(e.b)

    def reduce(self, e: Reduce) -> None:
        self.out.append(f"reduce {e.combiner} {len(e.axes)} {len(e.values)} {e.index} {e.dtype}")
        for i in e.axes:
            self.out.append(f"{i.kind.value} {i.var.dtype}")
            self.dim(i.extent)
            self.bind(i.var)
        for v in e.values:
            self.node(v)

    def store(self, s: Store) -> None:
        self.out.append(f"store {len(s.indices)}" + " mask" * (s.mask is not None))
        self.buffer(s.buffer)
        for i in s.indices:
            self.node(i)
        self.node(s.value)
        if s.mask is not None:
            self.node(s.mask)

    def prefetch(self, s: Prefetch) -> None:
        self.out.append(f"prefetch {len(s.indices)}")
        self.buffer(s.buffer)
        for i in s.indices:
            self.node(i)

    def loop(self, s: For) -> None:
        thread = "" if s.thread is None else json.dumps(s.thread)
        self.out.append(f"for {s.kind.value} {s.var.dtype} {thread}")
        self.annotations(s.annotations)
        self.dim(s.extent)
        self.bind(s.var)
        self.node(s.body)

    def block(self, s: Block) -> None:
        self.out.append(
            f"block {len(s.iters)} {len(s.reads)} {len(s.writes)} "
            f"{int(s.init is not None)} {int(s.predicate is not None)}"
        )
        self.annotations(s.annotations)
        for i in s.iters:
            self.out.append(f"{i.kind.value} {i.var.dtype}")
            self.dim(i.extent)
            self.node(i.value)
        if s.predicate is not None:
            self.node(s.predicate)
        for i in s.iters:
            self.bind(i.var)
        for r in s.reads:
            self.region(r)
        for r in s.writes:
            self.region(r)
        if s.init is not None:
            self.node(s.init)
        self.node(s.body)

    def region(self, r: Region) -> None:
        self.out.append(f"region {len(r.ranges)}")
        self.buffer(r.buffer)
        for x in r.ranges:
            self.node(x.min)
            self.dim(x.extent)

    def seq(self, s: Seq) -> None:
        stmts = flat(s)
        if len(stmts) == 1:
            self.node(stmts[0])
            return
        self.out.append(f"seq {len(stmts)}")
        for x in stmts:
            self.node(x)

    def branch(self, s: If) -> None:
        self.out.append("if" + " else" * (s.other is not None))
        self.node(s.cond)
        self.node(s.then)
        if s.other is not None:
            self.node(s.other)

    def let(self, s: Let) -> None:
        self.out.append(f"let {s.var.dtype}")
        self.node(s.value)
        self.bind(s.var)
        self.node(s.body)

    def alloc(self, s: Alloc) -> None:
        self.out.append("alloc")
        self.declare(s.buffer)
        self.bind(s.buffer)
        self.node(s.body)


_ENCODE: dict[type, Callable[[Encoder, Any], None]] = {
    Func: Encoder.func,
    Const: Encoder.const,
    Binary: Encoder.binary,
    Call: Encoder.call,
    Cast: Encoder.cast,
    Select: Encoder.select,
    Load: Encoder.load,
    Ramp: Encoder.ramp,
    Broadcast: Encoder.broadcast,
    Dot: Encoder.dot,
    Matmul: Encoder.matmul,
    Shuffle: Encoder.shuffle,
    Reduce: Encoder.reduce,
    Store: Encoder.store,
    Prefetch: Encoder.prefetch,
    For: Encoder.loop,
    Block: Encoder.block,
    Seq: Encoder.seq,
    If: Encoder.branch,
    Let: Encoder.let,
    Alloc: Encoder.alloc,
}


class _Traced(Encoder):
    """An encoder that remembers which tokens came from which node."""

    def __init__(self, match_free: bool) -> None:
        super().__init__(match_free)
        self.spans: list[tuple[int, int, Any]] = []
        self.node = self._span

    def _span(self, node: Any) -> None:
        start = len(self.out)
        self.encode(node)
        self.spans.append((start, len(self.out), node))

    def place(self, at: int) -> str:
        """Token `at`, the innermost node around it, and the statement that holds that."""
        if at == len(self.out):
            return "the end"
        around = [(end - start, n) for start, end, n in self.spans if start <= at < end]
        around.sort(key=lambda pair: pair[0])
        nodes = [n for _, n in around]
        holder = next((n for n in nodes if not isinstance(n, Expr)), None)
        places = [f"`{_headline(n)}`" for n in dict.fromkeys([*nodes[:1], holder]) if n is not None]
        return " in ".join([self.out[at], *places])


def _headline(node: Any) -> str:
    lines = repr(node).splitlines()
    return lines[1] if type(node) is Func else lines[0]

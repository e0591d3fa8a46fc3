"""Structural equality, and the digest that is the key of a program in the tuning database.

Both use one encoding of a program as a sequence of tokens. Variables and buffers are numbered by
position: parameters first, then each where it is bound (internal buffers: where first used). Names,
labels, the nesting of sequences and the order of `allocs` are not encoded; everything else is. A
change of the encoding orphans the records of every database: then, and only then, raise `VERSION`.

The size-independent digest of a program: the same for one operator on any shapes.

It finds programs from which tuning results transfer. Programs of another structure, other dtypes or
another layout have another digest.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

from ..base import dtypes
from ..base.errors import IRError, depth_errors
from .ir import (
    Alloc,
    Annotations,
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
    For,
    Func,
    If,
    IterKind,
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
    WarpShuffle,
)
from .names import rounded
from .visit import rewrite_children, walk

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

    def root(self, node: Node) -> None:
        self.out.append(VERSION)
        self.match_free = self.match_free or type(node) is Func
        what = f"the program {node.name}" if type(node) is Func else "a part of a program"
        with depth_errors(IRError, what, "compared with others"):
            self.encode(node)

    def encode(self, node: Any) -> Any:
        """Append the tokens of `node`. Returns it, so that `rewrite_children` keeps it."""
        kind = type(node)
        head = _HEADS.get(kind)
        if head is not None:
            self.out.append(head(node))
            rewrite_children(node, self.encode)
        elif kind in _ENCODE:
            _ENCODE[kind](self, node)
        else:
            assert isinstance(node, (Var, Buffer))
            self.out.append(self.numbers.get(node) or self.free(node))
        return node

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
            self.encode(dim)

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
        self.encode(f.body)
        if self.pending:  # unused buffers have no position but that of their own text
            start = len(self.out)
            unused = []
            for b in self.pending:
                self.declare(b)
                unused.append(" ".join(self.out[start:]))
                del self.out[start:]
            self.out.extend(sorted(unused))

    def const(self, e: Const) -> None:
        dtype = e.dtype
        kind = dtypes.info(dtype).kind
        value = rounded(float(e.value), dtype).hex() if kind == "float" else str(int(e.value))
        self.out.append(f"const {dtype} {value}")

    def reduce(self, e: Reduce) -> None:
        self.out.append(f"reduce {e.combiner} {len(e.axes)} {len(e.values)} {e.index} {e.dtype}")
        for i in e.axes:
            self.out.append(f"{i.kind.value} {i.var.dtype}")
            self.dim(i.extent)
            self.bind(i.var)
        for v in e.values:
            self.encode(v)

    def loop(self, s: For) -> None:
        thread = "" if s.thread is None else json.dumps(s.thread)
        self.out.append(f"for {s.kind.value} {s.var.dtype} {thread}")
        self.annotations(s.annotations)
        self.dim(s.extent)
        self.bind(s.var)
        self.encode(s.body)

    def block(self, s: Block) -> None:
        self.out.append(
            f"block {len(s.iters)} {len(s.reads)} {len(s.writes)} "
            f"{int(s.init is not None)} {int(s.predicate is not None)}"
        )
        self.annotations(s.annotations)
        for i in s.iters:
            self.out.append(f"{i.kind.value} {i.var.dtype}")
            self.dim(i.extent)
            self.encode(i.value)
        if s.predicate is not None:
            self.encode(s.predicate)
        for i in s.iters:
            self.bind(i.var)
        for r in s.reads:
            self.region(r)
        for r in s.writes:
            self.region(r)
        if s.init is not None:
            self.encode(s.init)
        self.encode(s.body)

    def region(self, r: Region) -> None:
        self.out.append(f"region {len(r.ranges)}")
        self.encode(r.buffer)
        for x in r.ranges:
            self.encode(x.min)
            self.dim(x.extent)

    def seq(self, s: Seq) -> None:
        stmts = flat(s)
        if len(stmts) == 1:
            self.encode(stmts[0])
            return
        self.out.append(f"seq {len(stmts)}")
        for x in stmts:
            self.encode(x)

    def let(self, s: Let) -> None:
        self.out.append(f"let {s.var.dtype}")
        self.encode(s.value)
        self.bind(s.var)
        self.encode(s.body)

    def alloc(self, s: Alloc) -> None:
        self.out.append("alloc")
        self.declare(s.buffer)
        self.bind(s.buffer)
        self.encode(s.body)


_HEADS: dict[type, Callable[[Any], str]] = {
    Binary: lambda e: f"{e.op.value} {e.dtype}",
    Call: lambda e: f"call {e.fn} {len(e.args)} {e.dtype}",
    Cast: lambda e: f"cast {e.dtype}",
    Select: lambda e: f"select {e.dtype}",
    Load: lambda e: f"load {len(e.indices)} {e.dtype}" + " mask" * (e.mask is not None),
    Ramp: lambda e: f"ramp {e.lanes} {e.dtype}",
    Broadcast: lambda e: f"broadcast {e.lanes} {e.dtype}",
    Dot: lambda e: f"dot {e.dtype}",
    Matmul: lambda e: f"matmul {e.rows} {e.group} {e.dtype}",
    Shuffle: lambda e: f"shuffle {e.dtype} {e.order}",
    WarpShuffle: lambda e: f"warp_shuffle {e.dtype} {e.xor}",
    Store: lambda s: f"store {len(s.indices)}" + " mask" * (s.mask is not None),
    Prefetch: lambda s: f"prefetch {len(s.indices)}",
    Barrier: lambda s: f"barrier {s.scope.value}",
    If: lambda s: "if" + " else" * (s.other is not None),
}
"""The first token of nodes that are encoded as this token and their children."""
_ENCODE: dict[type, Callable[[Encoder, Any], None]] = {
    Func: Encoder.func,
    Const: Encoder.const,
    Reduce: Encoder.reduce,
    For: Encoder.loop,
    Block: Encoder.block,
    Seq: Encoder.seq,
    Let: Encoder.let,
    Alloc: Encoder.alloc,
}


FAMILY_VERSION = "family 1"
INDEX = "int64"
"""The dtype of index arithmetic."""


def family_hash(func: Func) -> str:
    """A SHA-256, in hexadecimal: equal for programs that differ only in names and sizes.

    Sizes are the extents of loops, iterations and regions; shapes; the integers of index arithmetic
    except 0 (from padding, strides and windows); value ranges of indices; and floats that represent
    the length of a reduction: the length, its root, and their reciprocals.
    """
    encoder = _Blind(func)
    encoder.root(func)
    return hashlib.sha256("\n".join([FAMILY_VERSION, *encoder.out]).encode()).hexdigest()


class _Blind(Encoder):
    """Writes `size` where a number is one."""

    def __init__(self, func: Func) -> None:
        super().__init__(match_free=True)
        self.lengths = _lengths(func)

    def encode(self, node: Any) -> Any:
        if type(node) is not Const:
            return super().encode(node)
        self.const(node)
        return node

    def const(self, e: Const) -> None:
        if e.dtype == INDEX:
            self.out.append("const 0" if e.value == 0 else "const size")
        elif dtypes.info(e.dtype).kind == "float" and self._is_length(e):
            self.out.append(f"const {e.dtype} length")
        else:
            super().const(e)

    def dim(self, dim: Dim) -> None:
        if isinstance(dim, (int, Const)):
            self.out.append("0" if (dim if isinstance(dim, int) else dim.value) == 0 else "size")
        else:
            self.encode(dim)

    def declare(self, b: Buffer) -> None:
        self.out.append(f"buffer {len(b.shape)} {b.dtype} {json.dumps(b.scope)}")
        order = b.strides and sorted(range(len(b.strides)), key=b.strides.__getitem__)
        self.out.append(json.dumps([order, b.constant, b.value_range is not None]))
        self.out.append(json.dumps([b.align, b.swizzle]))
        for d in b.shape:
            self.dim(d)

    def _is_length(self, e: Const) -> bool:
        value = rounded(float(e.value), e.dtype)
        return any(
            value == rounded(form, e.dtype)
            for n in self.lengths
            for form in (float(n), 1 / n, math.sqrt(n), 1 / math.sqrt(n))
        )


def _lengths(func: Func) -> set[int]:
    """How many elements the reductions of a program add up, over any of their axes."""
    found: set[int] = set()
    for block in walk(func.body):
        if type(block) is not Block:
            continue
        extents = [i.extent for i in block.iters if i.kind is IterKind.REDUCE]
        known = [n for n in extents if isinstance(n, int) and n > 1]
        for count in range(1, len(known) + 1):
            found |= {math.prod(some) for some in combinations(known, count)}
    return found

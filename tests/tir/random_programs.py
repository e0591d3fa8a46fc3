"""Random well-formed programs over every node, dtype and option, by a seed; meaning aside.

They are for what must hold of any program: text, equality, digests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from tilewright.base import dtypes
from tilewright.tir.ir import (
    BITWISE,
    COMPARISONS,
    FLOAT_FUNCTIONS,
    INDEX,
    SHIFTS,
    SUMS,
    WARP,
    Alloc,
    Annotations,
    Barrier,
    BarrierScope,
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
    ForKind,
    Func,
    If,
    Iter,
    IterKind,
    Label,
    Let,
    Load,
    Matmul,
    Op,
    Prefetch,
    Ramp,
    Range,
    Region,
    Select,
    Seq,
    Shuffle,
    Stmt,
    Store,
    Var,
    WarpShuffle,
)
from tilewright.tir.regions import element_regions

T = TypeVar("T")

NAMES = (
    "i", "i", "j", "A", "B", "i_1", "T", "tw", "range", "lambda", "None", "1st", "", "ü", "a b",
    "x.y", "_", "True", "A_1", "print", "float32", "match",
)  # fmt: skip
FLOATS = (
    0.0, -0.0, 1.0, 0.1, -2.5, 1e-3, 1e30, 1e300, 5e-324, 1e-45, 65504.0, 448.0, 1 / 3, 123456789.0,
    float("inf"), float("-inf"), float("nan"), 16777217.0,
)  # fmt: skip
TEXTS = ("", "a", 'b"c', "d\\e", "f\ng", "naïve", "\U0001f600", "\ud83d", "{0}", "T.init()")
SCALARS = ("float32", "int64", "int32", "bool", *dtypes.SCALARS)
INTEGERS = tuple(d for d in dtypes.SCALARS if dtypes.is_integer(d))
LANES = (1, 1, 1, 4, 16)


class Programs:
    """Draws programs; every draw advances one generator."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.vars: list[Var] = []
        self.buffers: list[Buffer] = []
        self.decisions = [Var(self.name()) for _ in range(self.below(3))]
        self.memory = True  # whether expressions may read it
        self.plain = False  # whether no block may follow

    def below(self, n: int) -> int:
        return int(self.rng.integers(n))

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def name(self) -> str:
        return self.pick(NAMES)

    # -- functions

    def func(self) -> Func:
        params: list[Buffer | Var] = [self.buffer() for _ in range(1 + self.below(3))]
        buffers = [p for p in params if isinstance(p, Buffer)]
        scalars = [Var(self.name(), self.pick(SCALARS)) for _ in range(self.below(3))]
        params = [params[i] for i in self.rng.permutation(len(params))]
        params += scalars
        allocs = [self.buffer() for _ in range(self.below(3))]
        self.buffers = [*buffers, *allocs]
        self.vars = [*scalars, *self.decisions]
        inplace = tuple(b for b in buffers if self.chance(20))
        body = self.stmt(4)
        return Func(self.name(), tuple(params), tuple(allocs), body, inplace, self.annotations())

    def buffer(self) -> Buffer:
        shape = tuple(self.dim() for _ in range(self.below(4)))
        dtype = self.pick(SCALARS)
        strides = tuple(self.below(100) for _ in shape) if self.chance(15) else None
        limits = (-self.below(9), 1 + self.below(1 << 40)) if self.chance(15) else None
        scope = self.pick(("global", "global", "shared", "register", *TEXTS))
        return Buffer(self.name(), shape, dtype, strides, scope, self.chance(15), limits)

    def dim(self) -> Dim:
        if self.decisions and self.chance(30):
            d = self.pick(self.decisions)
            return self.pick(
                (d, Binary(self.pick((Op.ADD, Op.FLOORDIV)), d, Const(7, INDEX), INDEX))
            )
        return self.pick((0, 1, 2, 16, 1021, 1 << 40))

    def annotations(self) -> Annotations:
        if not self.chance(15):
            return ()
        return tuple((k, self.json(2)) for k in sorted({self.pick(TEXTS) for _ in range(3)}))

    def json(self, depth: int) -> Any:
        kind = self.below(8 if depth else 6)
        if kind == 6:
            return [self.json(depth - 1) for _ in range(self.below(3))]
        if kind == 7:
            return {self.pick(TEXTS): self.json(depth - 1) for _ in range(self.below(3))}
        return self.pick((None, True, False, 0, -7, 1 << 70, 1.5, -0.0, -1e300, *TEXTS))

    # -- statements

    def stmt(self, depth: int) -> Stmt:
        vars_before, buffers_before = len(self.vars), len(self.buffers)
        if depth == 0 or self.chance(15):
            if self.chance(5):
                return Barrier(self.pick(tuple(BarrierScope)))
            return self.prefetch() if self.chance(10) else self.store()
        plain, kinds = self.plain, [self.loop, self.seq, self.branch, self.let, self.alloc]
        result = self.pick(kinds if plain else [*kinds, self.block])(depth - 1)
        self.plain = plain
        del self.vars[vars_before:], self.buffers[buffers_before:]
        return result

    def store(self) -> Stmt:
        buffer = self.pick(self.buffers)
        indices, lanes = self.indices(buffer, 2)
        dtype = dtypes.vector(buffer.dtype, lanes)
        mask = self.expr(dtypes.vector("bool", lanes), 1) if self.chance(15) else None
        return Store(buffer, indices, self.expr(dtype, 3), mask)

    def prefetch(self) -> Stmt:
        buffer = self.pick(self.buffers)
        return Prefetch(buffer, self.indices(buffer, 2)[0])

    def loop(self, depth: int) -> Stmt:
        extent = self.dim()
        kind = self.pick((ForKind.SERIAL, ForKind.SERIAL, ForKind.SERIAL, *ForKind))
        thread = self.pick(("threadIdx.x", None)) if kind is ForKind.THREAD else None
        var = Var(self.name(), "int32" if self.chance(10) else INDEX)
        self.vars.append(var)
        return For(var, extent, self.stmt(depth), kind, thread, self.annotations())

    def block(self, depth: int) -> Stmt:
        iters = tuple(
            Iter(
                Var(self.name(), "int32" if self.chance(10) else INDEX),
                self.dim(),
                self.pick(tuple(IterKind)),
                self.expr(INDEX, 2),
            )
            for _ in range(self.below(4))
        )
        self.memory = False
        predicate = self.expr("bool", 2) if self.chance(30) else None
        self.memory = True
        self.vars += [i.var for i in iters]
        reads = tuple(self.region() for _ in range(self.below(3)))
        writes = tuple(self.region() for _ in range(self.below(3)))
        init = self.stmt(min(depth, 1)) if self.chance(40) else None
        body = self.stmt(depth)
        if self.chance(30):  # the regions that text leaves out
            reads, writes = element_regions(body, init) or (reads, writes)
        label = Label(self.pick(TEXTS))
        return Block(label, iters, reads, writes, body, init, predicate, self.annotations())

    def region(self) -> Region:
        buffer = self.pick(self.buffers)
        return Region(buffer, tuple(Range(self.expr(INDEX, 2), self.dim()) for _ in buffer.shape))

    def seq(self, depth: int) -> Stmt:
        stmts = [self.stmt(depth) for _ in range(self.below(4))]
        if stmts and self.chance(20):
            stmts.append(stmts[0])
        return Seq(tuple(stmts))

    def branch(self, depth: int) -> Stmt:
        self.plain = True
        other = self.stmt(depth) if self.chance(50) else None
        return If(self.expr("bool", 2), self.stmt(depth), other)

    def let(self, depth: int) -> Stmt:
        dtype = dtypes.vector(self.pick(SCALARS), self.pick(LANES))
        value = self.expr(dtype, 2)
        var = Var(self.name(), dtype)
        self.vars.append(var)
        self.plain = True
        return Let(var, value, self.stmt(depth))

    def alloc(self, depth: int) -> Stmt:
        buffer = self.buffer()
        self.buffers.append(buffer)
        return Alloc(buffer, self.stmt(depth))

    # -- expressions

    def indices(self, buffer: Buffer, depth: int) -> tuple[tuple[Expr, ...], int]:
        """Indices, and the lanes of the access."""
        dtype = self.pick((INDEX, INDEX, INDEX, "int32"))
        indices = [self.expr(dtype, depth) for _ in buffer.shape]
        lanes = self.pick(LANES) if indices else 1
        if lanes > 1:
            k = self.below(len(indices))
            indices[k] = self.expr(dtypes.vector(dtype, lanes), depth)
        return tuple(indices), lanes

    def expr(self, dtype: str, depth: int) -> Expr:
        facts = dtypes.info(dtype)
        known = [v for v in self.vars if v.dtype == dtype]
        if known and self.chance(35):
            return self.pick(known)
        if depth == 0 or self.chance(10):
            if facts.lanes == 1:
                return self.const(dtype)
            return Broadcast(self.expr(facts.scalar, 0), facts.lanes, dtype)
        kinds = [self.binary, self.binary, self.select, self.cast, self.load, self.call]
        kinds.append(self.vector if facts.lanes > 1 else self.warp_shuffle)
        return self.pick(kinds)(dtype, depth - 1)

    def const(self, dtype: str) -> Const:
        kind = dtypes.info(dtype).kind
        if kind == "float":
            return Const(self.pick(FLOATS), dtype)
        if kind == "bool":
            return Const(self.chance(50), dtype)
        low, high = dtypes.int_limits(dtype)
        return Const(self.pick((0, 1, 2, 7, high, low, max(low, -3))), dtype)

    def binary(self, dtype: str, depth: int) -> Expr:
        facts = dtypes.info(dtype)
        if facts.kind == "bool" and self.chance(60):
            operand = dtypes.vector(self.pick(SCALARS), facts.lanes)
            op = self.pick(sorted(COMPARISONS))
            return Binary(op, self.expr(operand, depth), self.expr(operand, depth), dtype)
        ops = set(Op) - COMPARISONS - BITWISE - SHIFTS - {Op.DIV}
        if facts.kind == "bool":
            ops = {Op.MIN, Op.MAX, *BITWISE}
        elif facts.kind == "float":
            ops |= {Op.DIV}
        else:
            ops |= BITWISE | SHIFTS
        return Binary(
            self.pick(sorted(ops)), self.expr(dtype, depth), self.expr(dtype, depth), dtype
        )

    def select(self, dtype: str, depth: int) -> Expr:
        cond = self.expr("bool", depth)
        return Select(cond, self.expr(dtype, depth), self.expr(dtype, depth), dtype)

    def cast(self, dtype: str, depth: int) -> Expr:
        lanes = dtypes.info(dtype).lanes
        return Cast(self.expr(dtypes.vector(self.pick(SCALARS), lanes), depth), dtype)

    def load(self, dtype: str, depth: int) -> Expr:
        facts = dtypes.info(dtype)
        found = [b for b in self.buffers if b.dtype == facts.scalar]
        if not found or not self.memory:
            return self.binary(dtype, depth)
        buffer = self.pick(found)
        indices, lanes = self.indices(buffer, depth)
        mask = self.expr(dtypes.vector("bool", lanes), depth) if self.chance(15) else None
        load = Load(buffer, indices, dtypes.vector(buffer.dtype, lanes), mask)
        if lanes == facts.lanes:
            return load
        return Broadcast(load, facts.lanes, dtype) if lanes == 1 else self.binary(dtype, depth)

    def call(self, dtype: str, depth: int) -> Expr:
        kind = dtypes.info(dtype).kind
        fns = {"neg": 1, "abs": 1}
        if kind == "float":
            fns |= FLOAT_FUNCTIONS
        elif kind == "bool":
            fns = {"not": 1}
        else:
            fns["not"] = 1
        fn = self.pick(sorted(fns))
        return Call(fn, tuple(self.expr(dtype, depth) for _ in range(fns[fn])), dtype)

    def warp_shuffle(self, dtype: str, depth: int) -> Expr:
        return WarpShuffle(self.expr(dtype, depth), 1 + self.below(WARP - 1), dtype)

    def vector(self, dtype: str, depth: int) -> Expr:
        facts = dtypes.info(dtype)
        if facts.scalar in INTEGERS and self.chance(70):
            base, stride = self.expr(facts.scalar, depth), self.expr(facts.scalar, depth)
            return Ramp(base, stride, facts.lanes, dtype)
        if facts.scalar in SUMS and self.chance(50):
            acc, wide = self.expr(dtype, depth), dtypes.vector(facts.scalar, 4 * facts.lanes)
            few = dtypes.vector(facts.scalar, 4) if self.chance(50) else wide
            if self.chance(30):
                x, y = dtypes.vector(facts.scalar, 6), dtypes.vector(facts.scalar, 6 * facts.lanes)
                return Matmul(acc, self.expr(x, depth), self.expr(y, depth), 1, 2, dtype)
            return Dot(acc, self.expr(few, depth), self.expr(wide, depth), dtype)
        if self.chance(50):
            two = dtypes.vector(facts.scalar, 2)
            order = tuple(self.below(4) for _ in range(facts.lanes))
            return Shuffle(self.expr(two, depth), self.expr(two, depth), order, dtype)
        return Broadcast(self.expr(facts.scalar, depth), facts.lanes, dtype)


def random_func(seed: int) -> Func:
    """A program that depends on nothing but `seed`."""
    return Programs(seed).func()

"""Emit statements as LLVM instructions."""

from __future__ import annotations

from ...base.errors import BuildError
from ...tir.ir import Alloc, For, ForKind, If, Let, Prefetch, Seq, Store
from ...tir.visit import with_body
from .llvm_amx import store_rows
from .llvm_ends import Part, part
from .llvm_index import HERE, index, value
from .llvm_lanes import bits
from .llvm_load import prefetch, store
from .llvm_loop import STMT, loop, stmt
from .llvm_memory import allocate, release_slot
from .llvm_parallel import parallel
from .llvm_text import Builder


def _seq(b: Builder, s: Seq) -> None:
    for child in s.stmts:
        stmt(b, child)


def _if(b: Builder, s: If) -> None:
    then, end = b.new_block("then"), b.new_block("endif")
    other = end if s.other is None else b.new_block("else")
    b.branch(value(b, s.cond), then, other)
    b.start(then)
    stmt(b, s.then)
    b.jump(end)
    if s.other is not None:
        b.start(other)
        stmt(b, s.other)
        b.jump(end)
    b.start(end)


def _let(b: Builder, s: Let) -> None:
    if s.var.dtype == "int64":
        found = index(b, s.value)
        size = bits(b, s.value)
        if size is not None:
            b.module.bits[s.var] = size
        b.values[s.var] = (found.text, found.depth)
    else:
        b.values[s.var] = (value(b, s.value), HERE)
    stmt(b, s.body)


def _alloc(b: Builder, s: Alloc) -> None:
    in_slot = allocate(b, s.buffer)
    stmt(b, s.body)
    if in_slot:
        release_slot(b)


def _store(b: Builder, s: Store) -> None:
    if not store_rows(b, s):
        store(b, s)


def _for(b: Builder, s: For) -> None:
    if s.kind is ForKind.THREAD:
        raise BuildError(
            "sch.bind has bound the loop {0} to {1}, an axis of GPUs; the target is a processor",
            s.var.name,
            s.thread,
            hint="for the target cpu, sch.parallel(loop) and sch.vectorize(loop)",
        )
    if s.kind is ForKind.PARALLEL and not b.in_parallel and b.module.target.threads > 1:
        parallel(b, s)
        return
    assert isinstance(s.extent, int), "lowering takes concrete programs"
    if s.extent == 1:
        b.values[s.var], b.module.bits[s.var] = ("0", 0), 0
        stmt(b, s.body)
    elif s.extent > 1:
        some = part(s, b.module.intervals.ranges)
        if some is None:
            loop(b, s, "0", str(s.extent))
        else:
            _partly(b, s, some)


def _partly(b: Builder, s: For, some: Part) -> None:
    """The iterations of a loop that do something, of which there may be none."""
    begin, end = index(b, some.begin).text, index(b, some.end).text
    then, after = b.new_block("some"), b.new_block("none")
    b.branch(b.op(f"icmp slt i64 {begin}, {end}"), then, after)
    b.start(then)
    loop(b, with_body(s, some.body), begin, end)
    b.jump(after)
    b.start(after)


STMT.update(
    {Seq: _seq, If: _if, Let: _let, Alloc: _alloc, For: _for, Store: _store, Prefetch: prefetch}
)

"""Dispatch statements to their emitters, and emit serial loops."""

from __future__ import annotations

from ...tir.ir import For, Stmt, Store
from ..passes.rewrite import origin
from .llvm_text import Builder, Emitters, Level

STMT: Emitters[None] = Emitters("statements")
"""How to compile each type of statement; `llvm_stmt` fills it."""


def stmt(b: Builder, s: Stmt) -> None:
    """Append the instructions of `s`."""
    STMT[type(s)](b, s)
    if type(s) is Store:
        b.block.loads.pop(s.buffer, None)
        b.block.tiles.pop(s.buffer, None)


def loop(b: Builder, s: For, begin: str, end: str) -> None:
    """A loop over [begin, end), which is not empty."""
    number = b.module.loops.get(origin(s.var))
    body, after = b.block_of("loop", number), b.new_block("done")
    b.jump(body)
    before = b.block
    b.start(body)
    var, following = f"%{b.name(_clean(s.var.name))}", f"%{b.name('next')}"
    b.levels.append(Level(body, number))
    b.values[s.var] = (var, b.depth)
    assert isinstance(s.extent, int), "lowering takes concrete programs"
    b.module.bits[s.var] = s.extent.bit_length()
    place = len(body.lines)
    body.lines.append("")
    stmt(b, s.body)
    latch = b.block
    body.lines[place] = (
        f"{var} = phi i64 [ {begin}, %{before.label} ], [ {following}, %{latch.label} ]"
    )
    b.do(f"{following} = add nuw nsw i64 {var}, 1")
    b.branch(b.op(f"icmp slt i64 {following}, {end}"), body, after)
    b.levels.pop()
    b.start(after)


def _clean(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name) + "."

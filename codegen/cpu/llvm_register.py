"""Emit loads and stores of buffers that LLVM keeps in registers.

Each buffer is a stack slot of one scalar or vector that is only loaded and stored whole, so LLVM
promotes it to values. Within a basic block they are values from the start: the block loads and
stores a slot once. Lanes that a mask turns off hold unspecified values.
"""

from __future__ import annotations

from ...base import dtypes
from ...tir.ir import Buffer, Const, Expr, Load, Ramp, Store
from .llvm_index import value
from .llvm_text import Builder, lanes_of, shuffled, value_type


def load(b: Builder, e: Load) -> str:
    """The operand of a load: of the whole value, or of some of its lanes."""
    t, lanes = _whole(e.buffer)
    whole = _held(b, e.buffer, t)
    first, count = _part(e.indices[0])
    if count == lanes:
        return whole
    if count == 1:
        return b.op(f"extractelement {t} {whole}, i64 {first}")
    return b.op(shuffled(t, whole, "poison", range(first, first + count)))


def store(b: Builder, s: Store) -> None:
    """A store of the whole value or of some of its lanes."""
    t, lanes = _whole(s.buffer)
    first, count = _part(s.indices[0])
    text = value(b, s.value)
    if s.mask is not None:
        part = value_type(dtypes.vector(s.buffer.dtype, count))
        old = load(b, Load(s.buffer, s.indices, s.value.dtype))
        mask = f"{lanes_of('i1', count)} {value(b, s.mask)}"
        text = b.op(f"select {mask}, {part} {text}, {part} {old}")
    if count < lanes:
        whole = _held(b, s.buffer, t)
        if count == 1:
            scalar = value_type(s.buffer.dtype)
            text = b.op(f"insertelement {t} {whole}, {scalar} {text}, i64 {first}")
        else:
            part = value_type(dtypes.vector(s.buffer.dtype, count))
            spread = [k if k < count else -1 for k in range(lanes)]
            wide = b.op(shuffled(part, text, "poison", spread))
            inside = range(first, first + count)
            order = [lanes + k - first if k in inside else k for k in range(lanes)]
            text = b.op(shuffled(t, whole, wide, order))
    _, line = b.block.held.get(s.buffer, ("", None))
    if line is not None:
        b.block.lines[line] = ""
    b.block.held[s.buffer] = text, len(b.block.lines)
    b.do(f"store {t} {text}, ptr {b.pointers[s.buffer]}")


def _held(b: Builder, buffer: Buffer, t: str) -> str:
    """The operand that a register holds: what this block has loaded or stored last."""
    held = b.block.held.get(buffer)
    if held is None:
        held = b.block.held[buffer] = b.op(f"load {t}, ptr {b.pointers[buffer]}"), None
    return held[0]


def _whole(buffer: Buffer) -> tuple[str, int]:
    (lanes,) = buffer.shape
    assert isinstance(lanes, int)
    return value_type(dtypes.vector(buffer.dtype, lanes)), lanes


def _part(index: Expr) -> tuple[int, int]:
    """The first lane and the number of lanes of an access."""
    if type(index) is Const:
        return int(index.value), 1
    assert isinstance(index, Ramp)
    assert isinstance(index.base, Const)
    return int(index.base.value), index.lanes

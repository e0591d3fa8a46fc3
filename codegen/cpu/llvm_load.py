"""Emit loads and stores: addresses, contiguous and strided vectors, masks, gather and scatter.

Programs are flat here: an access has one index, an offset in elements. A `Ramp` of stride 1 is a
vector in memory. A stride up to `MAX_SHUFFLE_STRIDE` is shuffled out of a few vectors. One of
negative stride begins at its last lane, and is reversed. A `Broadcast` loads one element. Lanes
at known distances are stored one by one: no scatter is faster. Everything else is a gather or
scatter.

Emit loads and stores of buffers that LLVM keeps in registers.

Each buffer is a stack slot of one scalar or vector that is only loaded and stored whole, so LLVM
promotes it to values. Within a basic block they are values from the start: the block loads and
stores a slot once. Lanes that a mask turns off hold unspecified values.
"""

from __future__ import annotations

from typing import NamedTuple

from ...base import dtypes
from ...base.errors import BuildError
from ...tir.cpu_instructions import MAX_SHUFFLE_STRIDE
from ...tir.ir import Broadcast, Buffer, Const, Expr, Load, Prefetch, Ramp, Select, Store
from ...tir.lanes import spaced
from . import llvm_index, llvm_memory
from .llvm_index import emit, parts, value
from .llvm_text import Builder, calling, lanes_of, memory_type, shuffled, spread, value_type


def load(b: Builder, e: Load) -> str:
    """The operand of a load."""
    (offset,) = e.indices
    facts = dtypes.info(e.dtype)
    if e.buffer.scope == "register":
        return load_register(b, e)
    if facts.lanes == 1:
        return _scalar(b, e.buffer, offset, e.mask)
    if type(offset) is Broadcast:
        if e.mask is not None:
            return _shared(b, e, offset.value, e.mask)
        one = _scalar(b, e.buffer, offset.value, None)
        return spread(b, one, value_type(facts.scalar), facts.lanes)
    if type(offset) is Ramp and 0 < abs(_step(offset)) <= min(MAX_SHUFFLE_STRIDE, facts.lanes):
        text = _near(b, e, offset)
    else:
        text = _gather(b, e, offset)
    return _from_memory(b, text, e.dtype)


def store(b: Builder, s: Store) -> None:
    """The instructions of a store."""
    (offset,) = s.indices
    lanes = dtypes.info(offset.dtype).lanes
    dtype = dtypes.vector(s.buffer.dtype, lanes)
    if s.buffer.scope == "register":
        store_register(b, s)
        return
    text = value(b, s.value)
    if type(offset) is Ramp and abs(_step(offset)) == 1:
        _store_row(b, s, offset, text, dtype)
        return
    text = _to_memory(b, text, dtype)
    memory, align = memory_type(dtype), dtypes.nbytes(s.buffer.dtype)
    if lanes == 1:
        where = address(b, s.buffer, offset)
        plain = f"store {memory} {text}, ptr {where}, align {align}"
        if s.mask is None:
            b.do(plain)
            return
        then, end = b.new_block("then"), b.new_block("endif")
        b.branch(value(b, s.mask), then, end)
        b.start(then)
        b.do(plain)
        b.jump(end)
        b.start(end)
        return
    apart = spaced(offset) if s.mask is None else None
    if apart is not None:
        first, steps = apart
        for lane, step in enumerate(steps):
            one = b.op(f"extractelement {memory} {text}, i32 {lane}")
            where = address(b, s.buffer, first + step)
            b.do(f"store {memory_type(s.buffer.dtype)} {one}, ptr {where}, align {align}")
        return
    places = _places(b, s.buffer, offset, lanes, s.mask)
    name = f"llvm.masked.scatter.{suffix_of(memory, lanes)}.v{lanes}p0"
    b.do(calling(b, name, "void", (memory, text), *places))


def store_vector(b: Builder, buffer: Buffer, first: Expr, text: str, dtype: str) -> None:
    """Store the vector `text` of `dtype` in one piece, which begins at the offset `first`."""
    _store_whole(b, buffer, first, _to_memory(b, text, dtype), dtype)


def _store_row(b: Builder, s: Store, offset: Ramp, text: str, dtype: str) -> None:
    """Store lanes that lie side by side: all, or those that the mask enables."""
    text, first, lanes = _to_memory(b, text, dtype), _first(offset), offset.lanes
    memory, backward = memory_type(dtype), _step(offset) < 0
    if backward:
        text = _reversed(b, memory, text, lanes)
    if s.mask is None:
        _store_whole(b, s.buffer, first, text, dtype)
        return
    where, mask = address(b, s.buffer, first), _mask(b, s.mask, backward=backward)
    name = f"llvm.masked.store.{suffix_of(memory, lanes)}.p0"
    aligned = f"align {dtypes.nbytes(s.buffer.dtype)} {where}"
    b.do(calling(b, name, "void", (memory, text), ("ptr", aligned), (lanes_of("i1", lanes), mask)))


def _store_whole(b: Builder, buffer: Buffer, first: Expr, text: str, dtype: str) -> None:
    """The same of a vector as it is in memory."""
    where = address(b, buffer, first)
    if buffer in b.module.streamed:
        llvm_memory.store(b, dtype, text, where)
        return
    align = dtypes.nbytes(buffer.dtype)
    b.do(f"store {memory_type(dtype)} {text}, ptr {where}, align {align}")


def prefetch(b: Builder, s: Prefetch) -> None:
    """A prefetch instruction for a cache line; it never faults."""
    if s.buffer not in b.pointers:
        raise BuildError("{0} is prefetched and is held in registers", s.buffer.name)
    where = ("ptr", address(b, s.buffer, s.indices[0]))
    read_to_keep_data = ("i32", "0"), ("i32", "3"), ("i32", "1")
    b.do(calling(b, "llvm.prefetch.p0", "void", where, *read_to_keep_data))


def address(b: Builder, buffer: Buffer, offset: Expr) -> str:
    """A pointer to the element at a scalar offset."""
    part, constant = parts(b, offset)
    t, pointer, depth = memory_type(buffer.dtype), b.pointers[buffer], 0
    if part is not None:
        depth = part.depth
        pointer = emit(b, depth, f"getelementptr {t}, ptr {pointer}, i64 {part.text}")
    if constant:
        pointer = emit(b, depth, f"getelementptr {t}, ptr {pointer}, i64 {constant}")
    return pointer


class Rows(NamedTuple):
    """A matrix in memory: its start, and the elements from one row to the next."""

    buffer: Buffer
    first: Expr
    stride: int


def rows_of(buffer: Buffer, index: Expr, size: int) -> Rows | None:
    """The access `index` as a matrix with rows of `size` elements, if it is one."""
    found = spaced(index)
    if found is None:
        return None
    first, steps = found
    stride = steps[size] - steps[0] if len(steps) > size else size
    wanted = (k // size * stride + k % size + steps[0] for k in range(len(steps)))
    if len(steps) % size or any(a != b for a, b in zip(steps, wanted, strict=True)):
        return None
    return Rows(buffer, first + steps[0], stride)


def rows_in_memory(e: Expr, size: int) -> Rows | None:
    """A factor as a matrix in memory with rows of `size` elements, if it is one."""
    if type(e) is not Load or e.buffer.scope == "register" or e.mask is not None:
        return None
    return rows_of(e.buffer, e.indices[0], size)


def suffix_of(llvm: str, lanes: int) -> str:
    """How names of intrinsics spell the vector type `llvm`."""
    scalar = llvm.rpartition(" ")[2].rstrip(">")
    return f"v{lanes}{ {'float': 'f32', 'double': 'f64'}.get(scalar, scalar) }"


def _scalar(b: Builder, buffer: Buffer, offset: Expr, mask: Expr | None) -> str:
    if mask is not None:
        zero = Const(0.0 if dtypes.is_float(buffer.dtype) else 0, buffer.dtype)
        plain = Load(buffer, (offset,), buffer.dtype)
        return value(b, Select(mask, plain, zero, buffer.dtype))
    return _from_memory(b, _read(b, buffer, 1, address(b, buffer, offset)), buffer.dtype)


def _read(b: Builder, buffer: Buffer, lanes: int, where: str, mask: str | None = None) -> str:
    """The elements at an address as they are in memory: those that a mask enables, or all."""
    memory, align = memory_type(dtypes.vector(buffer.dtype, lanes)), dtypes.nbytes(buffer.dtype)
    if mask is None:
        facts = ", !invariant.load !0" if buffer in b.module.inputs else ""
        return b.op(f"load {memory}, ptr {where}, align {align}{facts}")
    name = f"llvm.masked.load.{suffix_of(memory, lanes)}.p0"
    aligned, enabled = ("ptr", f"align {align} {where}"), (lanes_of("i1", lanes), mask)
    return b.op(calling(b, name, memory, aligned, enabled, (memory, "zeroinitializer")))


def _shared(b: Builder, e: Load, offset: Expr, mask: Expr) -> str:
    """One element in all lanes; it is read only if a lane is enabled, else it may not exist."""
    facts, t = dtypes.info(e.dtype), value_type(e.dtype)
    bits = lanes_of("i1", facts.lanes)
    name = f"llvm.vector.reduce.or.v{facts.lanes}i1"
    wanted = b.op(calling(b, name, "i1", (bits, value(b, mask))))
    before, then, end = b.block, b.new_block("then"), b.new_block("shared")
    b.branch(wanted, then, end)
    b.start(then)
    text = spread(b, _scalar(b, e.buffer, offset, None), value_type(facts.scalar), facts.lanes)
    last = b.block
    b.jump(end)
    b.start(end)
    found = b.op(f"phi {t} [ {text}, %{last.label} ], [ zeroinitializer, %{before.label} ]")
    return b.op(f"select {bits} {value(b, mask)}, {t} {found}, {t} zeroinitializer")


def _step(offset: Ramp) -> int:
    """The elements from one lane to the next; 0 where they are not known."""
    return int(offset.stride.value) if type(offset.stride) is Const else 0


def _first(offset: Ramp) -> Expr:
    """The offset of the lane that comes first in memory."""
    step = _step(offset)
    return offset.base if step > 0 else offset.base + step * (offset.lanes - 1)


def _mask(b: Builder, mask: Expr, *, backward: bool) -> str:
    """A mask, by lanes in the order of memory."""
    text, lanes = value(b, mask), dtypes.info(mask.dtype).lanes
    return _reversed(b, lanes_of("i1", lanes), text, lanes) if backward else text


def _reversed(b: Builder, llvm: str, text: str, lanes: int) -> str:
    return b.op(shuffled(llvm, text, "poison", range(lanes)[::-1]))


def _near(b: Builder, e: Load, offset: Ramp) -> str:
    """Lanes that lie at short steps, as they are in memory."""
    step, first = _step(offset), _first(offset)
    mask = None if e.mask is None else _mask(b, e.mask, backward=step < 0)
    if abs(step) == 1:
        text = _read(b, e.buffer, offset.lanes, address(b, e.buffer, first), mask)
    else:
        text = _picked(b, e, first, abs(step), mask)
    return text if step > 0 else _reversed(b, memory_type(e.dtype), text, offset.lanes)


def _picked(b: Builder, e: Load, first: Expr, step: int, mask: str | None) -> str:
    """Every `step`-th element of `step` vectors from `first` on, the last of which ends with it."""
    memory, lanes = memory_type(e.dtype), dtypes.info(e.dtype).lanes
    starts = [k * lanes for k in range(step - 1)] + [(lanes - 1) * step + 1 - lanes]
    left, found = list(range(lanes)), ""
    for start in starts:
        here = [j for j in left if start <= j * step < start + lanes]
        left = [j for j in left if j not in here]
        where = address(b, e.buffer, first + start)
        if mask is None:
            part = _read(b, e.buffer, lanes, where)
        else:
            lane_of = {j * step - start: j for j in here}
            order = [lane_of.get(k, lanes) for k in range(lanes)]
            own = b.op(shuffled(lanes_of("i1", lanes), mask, "zeroinitializer", order))
            part = _read(b, e.buffer, lanes, where, own)
        chosen = {j: lanes + j * step - start for j in here}
        order = [chosen.get(j, -1 if j in left else j) for j in range(lanes)]
        found = b.op(shuffled(memory, found or "poison", part, order))
    return found


def _places(
    b: Builder, buffer: Buffer, offset: Expr, lanes: int, mask: Expr | None
) -> list[tuple[str, str]]:
    """A pointer for each lane, and which of them are enabled, as arguments.

    They are steps of 32 bits from one address where they are known to be so.
    """
    near = llvm_index.lanes(b, offset)
    if near is None:
        base, offsets = b.pointers[buffer], f"{lanes_of('i64', lanes)} {value(b, offset)}"
    else:
        base, offsets = address(b, buffer, near.base), f"{lanes_of('i32', lanes)} {near.offsets}"
    where = b.op(f"getelementptr {memory_type(buffer.dtype)}, ptr {base}, {offsets}")
    enabled = "splat (i1 true)" if mask is None else value(b, mask)
    aligned = f"align {dtypes.nbytes(buffer.dtype)} {where}"
    return [(lanes_of("ptr", lanes), aligned), (lanes_of("i1", lanes), enabled)]


def _gather(b: Builder, e: Load, offset: Expr) -> str:
    memory, lanes = memory_type(e.dtype), dtypes.info(e.dtype).lanes
    places = _places(b, e.buffer, offset, lanes, e.mask)
    name = f"llvm.masked.gather.{suffix_of(memory, lanes)}.v{lanes}p0"
    return b.op(calling(b, name, memory, *places, (memory, "zeroinitializer")))


def _from_memory(b: Builder, text: str, dtype: str) -> str:
    if not dtypes.is_bool(dtype):
        return text
    memory = memory_type(dtype)
    return b.op(f"icmp ne {memory} {text}, zeroinitializer")


def _to_memory(b: Builder, text: str, dtype: str) -> str:
    if not dtypes.is_bool(dtype):
        return text
    return b.op(f"zext {value_type(dtype)} {text} to {memory_type(dtype)}")


def load_register(b: Builder, e: Load) -> str:
    """The operand of a load: of the whole value, or of some of its lanes."""
    t, lanes = _whole(e.buffer)
    whole = _held(b, e.buffer, t)
    first, count = _part(e.indices[0])
    if count == lanes:
        return whole
    if count == 1:
        return b.op(f"extractelement {t} {whole}, i64 {first}")
    return b.op(shuffled(t, whole, "poison", range(first, first + count)))


def store_register(b: Builder, s: Store) -> None:
    """A store of the whole value or of some of its lanes."""
    t, lanes = _whole(s.buffer)
    first, count = _part(s.indices[0])
    text = value(b, s.value)
    if s.mask is not None:
        part = value_type(dtypes.vector(s.buffer.dtype, count))
        old = load_register(b, Load(s.buffer, s.indices, s.value.dtype))
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

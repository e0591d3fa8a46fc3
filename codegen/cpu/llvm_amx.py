"""Emit products of matrix tiles by AMX, which multiplies, loads and stores registers whole.

Intel, "Architecture Instruction Set Extensions Programming Reference", chapter 3. LLVM promotes a
stack slot that is only used as a tile to a tile register, and configures the unit. A copy from such
a slot to memory becomes a tile store.
"""

from __future__ import annotations

from ...base import dtypes
from ...tir.cpu_instructions import AMX
from ...tir.instruction import Instruction
from ...tir.ir import Dot, Expr, Load, Matmul, Store
from .llvm_index import value
from .llvm_load import Rows, address, rows_in_memory, rows_of, store_vector
from .llvm_text import Builder, calling, lanes_of, shuffled, value_type

_TILE = "x86_amx"
_SHAPE = ("i16", str(AMX.rows)), ("i16", str(AMX.row_bytes))
_PERMISSION = """\
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }]
  [{ i32, ptr, ptr } { i32 65535, ptr @tilewright.request_tiles, ptr null }]

declare i64 @syscall(i64, ...)

define internal void @tilewright.request_tiles() nounwind {
  %status = call i64 (i64, ...) @syscall(i64 158, i64 4131, i64 18)
  ret void
}"""
"""Code that a library runs when it is loaded: as `runtime.host.request_tiles`, without Python."""


def amx(b: Builder, e: Dot | Matmul, instruction: Instruction) -> str | None:
    """Emit a product of tiles; `None` if a factor is not in memory by rows."""
    x, y = _loaded(b, e.x), _loaded(b, e.y)
    if x is None or y is None or x == y:  # the instruction takes three registers that differ
        return None
    if type(e.acc) is Load and e.acc.buffer.scope == "register":
        b.tiles.add(e.acc.buffer)
    b.module.declare("tilewright.request_tiles", _PERMISSION)
    tiles = [(_TILE, t) for t in (_as_tile(b, value(b, e.acc), e.dtype), x, y)]
    result = b.op(calling(b, instruction.code, _TILE, *_SHAPE, _SHAPE[1], *tiles))
    return _as_vector(b, result, e.dtype)


def store_rows(b: Builder, s: Store) -> bool:
    """Emit the store of a matrix by rows; `False` if it is not one."""
    if dtypes.nbytes(s.value.dtype) <= AMX.row_bytes or s.buffer.scope == "register":
        return False
    size = AMX.row_bytes // dtypes.nbytes(s.buffer.dtype)
    to = rows_of(s.buffer, s.indices[0], size)
    if to is None or s.mask is not None:
        return False
    text, t = value(b, s.value), value_type(s.value.dtype)
    lanes = dtypes.info(s.value.dtype).lanes
    if type(s.value) is Load and s.value.buffer in b.tiles and lanes == AMX.rows * size:
        where = _place(b, to)
        tile = (_TILE, _as_tile(b, text, s.value.dtype))
        b.do(calling(b, "llvm.x86.tilestored64.internal", "void", *where, tile))
        return True
    for k in range(0, lanes, size):
        row = b.op(shuffled(t, text, "poison", range(k, k + size)))
        first = to.first + to.stride * (k // size)
        store_vector(b, s.buffer, first, row, dtypes.vector(s.buffer.dtype, size))
    return True


def _loaded(b: Builder, e: Expr) -> str | None:
    """A factor in memory as a tile, loaded once per block while its memory is unchanged."""
    lanes = dtypes.info(e.dtype).lanes // AMX.rows
    at = rows_in_memory(e, lanes)
    if at is None:
        return None
    text = calling(b, "llvm.x86.tileloadd64.internal", _TILE, *_place(b, at))
    known = b.block.tiles.setdefault(at.buffer, {})
    if text not in known:
        known[text] = b.op(text)
    return known[text]


def _place(b: Builder, at: Rows) -> list[tuple[str, str]]:
    """The arguments that say where a tile lies."""
    step = at.stride * dtypes.nbytes(at.buffer.dtype)
    return [*_SHAPE, ("ptr", address(b, at.buffer, at.first)), ("i64", str(step))]


_VALUES = lanes_of("i32", AMX.rows * AMX.row_bytes // 4)


def _as_tile(b: Builder, text: str, dtype: str) -> str:
    """The tile that has the bits of a vector."""
    if value_type(dtype) != _VALUES:
        text = b.op(f"bitcast {value_type(dtype)} {text} to {_VALUES}")
    return b.op(calling(b, "llvm.x86.cast.vector.to.tile.v256i32", _TILE, (_VALUES, text)))


def _as_vector(b: Builder, tile: str, dtype: str) -> str:
    text = b.op(calling(b, "llvm.x86.cast.tile.to.vector.v256i32", _VALUES, (_TILE, tile)))
    if value_type(dtype) == _VALUES:
        return text
    return b.op(f"bitcast {_VALUES} {text} to {value_type(dtype)}")

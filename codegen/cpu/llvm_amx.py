"""Emit products of matrix tiles by AMX, which multiplies, loads and stores registers whole.

Intel, "Architecture Instruction Set Extensions Programming Reference", chapter 3. LLVM promotes a
stack slot that is only used as a tile to a tile register, and configures the unit. A copy from such
a slot to memory becomes a tile store.
"""

from __future__ import annotations

from ... import dtypes
from ...tir.cpu_instructions import AMX
from ...tir.instruction import Instruction
from ...tir.ir import Dot, Expr, Load, Matmul, Store
from .llvm_index import value
from .llvm_load import address, store_vector
from .llvm_matrix import Rows, in_memory, rows_of
from .llvm_text import Builder, lanes_of, value_type

_SHAPE = f"i16 {AMX.rows}, i16 {AMX.row_bytes}"
_PERMISSION = """\
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }]
  [{ i32, ptr, ptr } { i32 65535, ptr @tilewright.request_tiles, ptr null }]

declare i64 @syscall(i64, ...)

define internal void @tilewright.request_tiles() nounwind {
  %status = call i64 (i64, ...) @syscall(i64 158, i64 4131, i64 18)
  ret void
}"""
"""What a library does when it is loaded: as `runtime.amx_permission`, without Python."""


def amx(b: Builder, e: Dot | Matmul, instruction: Instruction) -> str | None:
    """Emit a product of tiles; `None` if a factor is not in memory by rows."""
    x, y = _loaded(b, e.x), _loaded(b, e.y)
    if x is None or y is None or x == y:  # the instruction takes three registers that differ
        return None
    if type(e.acc) is Load and e.acc.buffer.scope == "register":
        b.tiles.add(e.acc.buffer)
    b.module.declare("tilewright.request_tiles", _PERMISSION)
    tiles = (_as_tile(b, value(b, e.acc), e.dtype), x, y)
    name = instruction.code
    b.module.declare(name, f"declare x86_amx @{name}(i16, i16, i16, x86_amx, x86_amx, x86_amx)")
    shape = f"{_SHAPE}, i16 {AMX.row_bytes}"
    result = b.op(f"call x86_amx @{name}({shape}, {', '.join(f'x86_amx {t}' for t in tiles)})")
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
        name = "llvm.x86.tilestored64.internal"
        b.module.declare(name, f"declare void @{name}(i16, i16, ptr, i64, x86_amx)")
        tile = _as_tile(b, text, s.value.dtype)
        b.do(f"call void @{name}({where}, x86_amx {tile})")
        return True
    for k in range(0, lanes, size):
        order = ", ".join(f"i32 {k + lane}" for lane in range(size))
        row = b.op(f"shufflevector {t} {text}, {t} poison, <{size} x i32> <{order}>")
        first = to.first + to.stride * (k // size)
        store_vector(b, s.buffer, first, row, dtypes.vector(s.buffer.dtype, size))
    return True


def _loaded(b: Builder, e: Expr) -> str | None:
    """A factor in memory as a tile, loaded once per block while its memory is unchanged."""
    lanes = dtypes.info(e.dtype).lanes // AMX.rows
    at = rows_of(e.buffer, e.indices[0], lanes) if in_memory(e) else None
    if at is None:
        return None
    name = "llvm.x86.tileloadd64.internal"
    b.module.declare(name, f"declare x86_amx @{name}(i16, i16, ptr, i64)")
    text = f"call x86_amx @{name}({_place(b, at)})"
    known = b.block.tiles.setdefault(at.buffer, {})
    if text not in known:
        known[text] = b.op(text)
    return known[text]


def _place(b: Builder, at: Rows) -> str:
    """The arguments that say where a tile lies."""
    step = at.stride * dtypes.nbytes(at.buffer.dtype)
    where = address(b, at.buffer, at.first)
    return f"{_SHAPE}, ptr {where}, i64 {step}"


_VALUES = lanes_of("i32", AMX.rows * AMX.row_bytes // 4)


def _as_tile(b: Builder, text: str, dtype: str) -> str:
    """The tile that has the bits of a vector."""
    if value_type(dtype) != _VALUES:
        text = b.op(f"bitcast {value_type(dtype)} {text} to {_VALUES}")
    name = "llvm.x86.cast.vector.to.tile.v256i32"
    b.module.declare(name, f"declare x86_amx @{name}({_VALUES})")
    return b.op(f"call x86_amx @{name}({_VALUES} {text})")


def _as_vector(b: Builder, tile: str, dtype: str) -> str:
    name = "llvm.x86.cast.tile.to.vector.v256i32"
    b.module.declare(name, f"declare {_VALUES} @{name}(x86_amx)")
    text = b.op(f"call {_VALUES} @{name}(x86_amx {tile})")
    if value_type(dtype) == _VALUES:
        return text
    return b.op(f"bitcast {_VALUES} {text} to {value_type(dtype)}")

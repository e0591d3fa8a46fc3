"""Products of matrix tiles: AMX instructions if the target has them, else dot products of rows.

AMX has eight registers of 16 rows of 64 bytes and multiplies, loads and stores them whole (Intel,
"Architecture Instruction Set Extensions Programming Reference", chapter 3). LLVM promotes a stack
slot that is only used as a tile to a tile register, and configures the unit. A copy from such a
slot to memory becomes a tile store.
"""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

from ... import dtypes
from ...target import Target
from ...tir.instruction import ROW_BYTES
from ...tir.ir import (
    INDEX,
    Buffer,
    Expr,
    For,
    Load,
    Matmul,
    Ramp,
    Store,
    Var,
    const,
    dot,
    load,
    matrices,
)
from ...tir.lanes import spaced
from .llvm_index import value
from .llvm_load import address, store_vector
from .llvm_loop import stmt
from .llvm_text import Builder, lanes_of, value_type

TILE_REGISTERS = 8
TILE_ROWS = 16
_ALIGNMENT = 64
_PRODUCTS: dict[tuple[str, ...], tuple[str, str]] = {
    ("int32", "uint8", "int8"): ("amx-int8", "tdpbusd"),
    ("int32", "int8", "uint8"): ("amx-int8", "tdpbsud"),
    ("int32", "int8", "int8"): ("amx-int8", "tdpbssd"),
    ("int32", "uint8", "uint8"): ("amx-int8", "tdpbuud"),
    ("float32", "bfloat16", "bfloat16"): ("amx-bf16", "tdpbf16ps"),
}
"""For the dtypes of the sums and factors the feature and its instruction."""
_PERMISSION = """\
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }]
  [{ i32, ptr, ptr } { i32 65535, ptr @tilewright.request_tiles, ptr null }]

declare i64 @syscall(i64, ...)

define internal void @tilewright.request_tiles() nounwind {
  %status = call i64 (i64, ...) @syscall(i64 158, i64 4131, i64 18)
  ret void
}"""
"""What a library does when it is loaded: as `runtime.tiles`, without Python."""


class _Rows(NamedTuple):
    """A matrix in memory: where it begins, and the elements from one of its rows to the next."""

    buffer: Buffer
    first: Expr
    stride: int


def matmul(b: Builder, e: Matmul) -> str:
    """The operand of a product of matrices."""
    kinds = tuple(dtypes.info(p.dtype).scalar for p in (e.acc, e.x, e.y))
    name = instruction(b.module.target, kinds) if _is_whole(e) else None
    if name is None or (dtypes.is_float(e.dtype) and not b.module.fast):
        return _by_rows(b, e)
    x, y = _loaded(b, e.x), _loaded(b, e.y)
    if x is None or y is None or x == y:  # the instruction takes three registers that differ
        return _by_rows(b, e)
    if type(e.acc) is Load and e.acc.buffer.scope == "register":
        b.tiles.add(e.acc.buffer)
    b.module.declare("tilewright.request_tiles", _PERMISSION)
    tiles = (_as_tile(b, value(b, e.acc), e.dtype), x, y)
    shape = f"i16 {TILE_ROWS}, i16 {ROW_BYTES}, i16 {ROW_BYTES}"
    name = f"llvm.x86.{name}.internal"
    b.module.declare(name, f"declare x86_amx @{name}(i16, i16, i16, x86_amx, x86_amx, x86_amx)")
    result = b.op(f"call x86_amx @{name}({shape}, {', '.join(f'x86_amx {t}' for t in tiles)})")
    return _as_vector(b, result, e.dtype)


def instruction(target: Target, kinds: tuple[str, ...]) -> str | None:
    """The instruction for a product of tiles; `None` where the target has none.

    `kinds` are the dtypes of the sums and the factors.
    """
    feature, name = _PRODUCTS.get(kinds, ("", None))
    return name if feature in target.features else None


def store_rows(b: Builder, s: Store) -> bool:
    """The instructions that store a matrix by rows; `False` where it does not lie in such."""
    size = ROW_BYTES // dtypes.nbytes(s.buffer.dtype)
    to = _rows(s.buffer, s.indices[0], size)
    if to is None or s.mask is not None:
        return False
    text, t = value(b, s.value), value_type(s.value.dtype)
    lanes = dtypes.info(s.value.dtype).lanes
    if type(s.value) is Load and s.value.buffer in b.tiles and lanes == TILE_ROWS * size:
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


def _rows(buffer: Buffer, index: Expr, size: int) -> _Rows | None:
    """What `index` takes of a buffer as a matrix with rows of `size` elements, if it is one."""
    found = spaced(index)
    if found is None:
        return None
    first, steps = found
    stride = steps[size] - steps[0] if len(steps) > size else size
    wanted = (k // size * stride + k % size + steps[0] for k in range(len(steps)))
    if len(steps) % size or any(a != b for a, b in zip(steps, wanted, strict=True)):
        return None
    return _Rows(buffer, first + steps[0], stride)


def _is_whole(e: Matmul) -> bool:
    """Whether the matrices are whole tiles."""
    group = ROW_BYTES // TILE_ROWS // dtypes.nbytes(dtypes.info(e.x.dtype).scalar)
    found = matrices(e.acc, e.x, e.y, e.rows, e.group), e.rows, e.group
    return found == ((TILE_ROWS, TILE_ROWS), TILE_ROWS, group)


def _loaded(b: Builder, e: Expr) -> str | None:
    """A factor in memory as a tile, loaded once in a block as long as that stays as it is."""
    lanes = dtypes.info(e.dtype).lanes // TILE_ROWS
    at = _rows(e.buffer, e.indices[0], lanes) if _in_memory(e) else None
    if at is None:
        return None
    name = "llvm.x86.tileloadd64.internal"
    b.module.declare(name, f"declare x86_amx @{name}(i16, i16, ptr, i64)")
    text = f"call x86_amx @{name}({_place(b, at)})"
    known = b.block.tiles.setdefault(at.buffer, {})
    if text not in known:
        known[text] = b.op(text)
    return known[text]


def _in_memory(e: Expr) -> TypeGuard[Load]:
    return type(e) is Load and e.buffer.scope != "register" and e.mask is None


def _place(b: Builder, at: _Rows) -> str:
    """The arguments that say where a tile lies."""
    step = at.stride * dtypes.nbytes(at.buffer.dtype)
    where = address(b, at.buffer, at.first)
    return f"i16 {TILE_ROWS}, i16 {ROW_BYTES}, ptr {where}, i64 {step}"


_VALUES = lanes_of("i32", 256)


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


def _by_rows(b: Builder, e: Matmul) -> str:
    """Loops over the rows and the steps, around a dot product each."""
    columns, depth = matrices(e.acc, e.x, e.y, e.rows, e.group) or (0, 0)
    total = _filled(b, e.acc)
    x, y = _matrix(b, e.x, depth * e.group), _matrix(b, e.y, columns * e.group)
    i, k = Var("row"), Var("step")
    sums = _lanes(i * columns, columns)
    product = dot(
        load(total, sums),
        load(x.buffer, _lanes(x.first + i * x.stride + k * e.group, e.group)),
        load(y.buffer, _lanes(y.first + k * y.stride, columns * e.group)),
    )
    stmt(b, For(i, e.rows, For(k, depth, Store(total, sums, product))))
    return b.op(f"load {value_type(e.dtype)}, ptr {b.pointers[total]}, align {_ALIGNMENT}")


def _matrix(b: Builder, e: Expr, size: int) -> _Rows:
    """A factor in memory, with rows of `size` elements."""
    found = _rows(e.buffer, e.indices[0], size) if _in_memory(e) else None
    return _Rows(_filled(b, e), const(0), size) if found is None else found


def _filled(b: Builder, e: Expr) -> Buffer:
    """A place on the stack that holds a vector."""
    facts, t = dtypes.info(e.dtype), value_type(e.dtype)
    buffer = Buffer("matrix", (facts.lanes,), facts.scalar)
    b.pointers[buffer] = b.alloca(t, 1, _ALIGNMENT)
    b.do(f"store {t} {value(b, e)}, ptr {b.pointers[buffer]}, align {_ALIGNMENT}")
    return buffer


def _lanes(first: Expr, count: int) -> tuple[Expr]:
    if count == 1:
        return (first,)
    return (Ramp(first, const(1), count, dtypes.vector(INDEX, count)),)

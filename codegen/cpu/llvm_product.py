"""Emit products: by the target's instruction if it has one, else as sums of lanes and of rows.

Emit products of matrix tiles by AMX, which multiplies, loads and stores registers whole.

Intel, "Architecture Instruction Set Extensions Programming Reference", chapter 3. LLVM promotes a
stack slot that is only used as a tile to a tile register, and configures the unit. A copy from such
a slot to memory becomes a tile store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ...base import dtypes
from ...base.errors import BuildError, similar
from ...tir.cpu_instructions import AMX
from ...tir.instruction import Instruction, product_of
from ...tir.instruction_set import instruction_for, instructions_of
from ...tir.ir import (
    Buffer,
    Dot,
    Expr,
    For,
    Load,
    Matmul,
    Store,
    Var,
    const,
    dot,
    load,
    matrices,
)
from ..passes.rewrite import adjacent
from .llvm_float import convert
from .llvm_index import value
from .llvm_load import Rows, address, rows_in_memory, rows_of, store_vector
from .llvm_loop import stmt
from .llvm_text import Builder, calling, lanes_of, shuffled, splat, spread, value_type

_ELEMENTS = {"bfloat16": "bfloat", "float16": "half"}
"""LLVM's own types, which have the bits that values of these dtypes are held as."""
_ALIGNMENT = 64
Emitter: TypeAlias = Callable[[Builder, Dot | Matmul, Instruction], str | None]
"""Returns the operand of a product by an instruction; `None` if its operands lie otherwise."""


def product(b: Builder, e: Dot | Matmul) -> str:
    """The operand of a dot product or of a product of matrices."""
    found = _by_instruction(b, e)
    if found is not None:
        return found
    return _summed(b, e) if isinstance(e, Dot) else _by_rows(b, e)


def _by_instruction(b: Builder, e: Dot | Matmul) -> str | None:
    if dtypes.is_float(e.dtype) and not b.module.fast:
        return None  # instructions add up in another order
    turned = (e, Dot(e.acc, e.y, e.x, e.dtype)) if isinstance(e, Dot) else (e,)
    ordered = instructions_of(b.module.target)
    fitting = []
    for form in turned:
        what = product_of(form)
        instruction = None if what is None else instruction_for(b.module.target, what)
        if instruction is not None:
            fitting.append((ordered.index(instruction), instruction, form))
    if not fitting:
        return None
    _, instruction, form = min(fitting, key=lambda found: found[0])
    operand = _emitter(instruction)(b, form, instruction)
    if operand is not None:
        b.module.instructions.add(instruction)
    return operand


def _emitter(instruction: Instruction) -> Emitter:
    key = instruction.unit.emitter
    emitter = EMITTERS.get(key)
    if emitter is None:
        raise BuildError(
            "instruction {0} is to be written by {1!r}; the emitters of processors are {2}",
            instruction.name, key, ", ".join(EMITTERS),
            hint=similar(key, EMITTERS),
        )  # fmt: skip
    return emitter


def _intrinsic(b: Builder, e: Dot | Matmul, instruction: Instruction) -> str:
    """A product as a call of the LLVM intrinsic of an instruction, on the operands as vectors."""
    acc, t = value(b, e.acc), value_type(e.dtype)
    return b.op(calling(b, instruction.code, t, (t, acc), *_factors(b, e, instruction)))


def _pairs(b: Builder, e: Dot | Matmul, instruction: Instruction) -> str:
    """A dot product by an intrinsic for products of pairs of 16-bit integers.

    Of four bytes to a sum, the even ones are one pair and the odd ones another: each half of a
    16-bit integer is widened where it is, and the sum does not depend on the order.
    """
    what, total, t = instruction.product, value(b, e.acc), value_type(e.dtype)
    assert what is not None
    pairs = lanes_of("i16", 2 * what.columns)
    factors = [_as(b, text, wide, pairs) for wide, text in _factors(b, e, instruction)]
    parts = [factors]
    if what.group == 4:
        split = (
            _bytes(b, text, d, pairs) for text, d in zip(factors, what.dtypes[1:], strict=True)
        )
        parts = [list(part) for part in zip(*split, strict=True)]
    for part in parts:
        sums = b.op(calling(b, instruction.code, t, *((pairs, text) for text in part)))
        total = b.op(f"add {t} {total}, {sums}")
    return total


def _bytes(b: Builder, text: str, dtype: str, t: str) -> tuple[str, str]:
    """The even and the odd bytes of a vector of 16-bit integers, as such integers."""
    high, low = splat("8", "int16"), splat("255", "int16")
    if dtype == "uint8":
        return b.op(f"and {t} {text}, {low}"), b.op(f"lshr {t} {text}, {high}")
    even = b.op(f"shl {t} {text}, {high}")
    return b.op(f"ashr {t} {even}, {high}"), b.op(f"ashr {t} {text}, {high}")


def _factors(b: Builder, e: Dot | Matmul, instruction: Instruction) -> list[tuple[str, str]]:
    """The types and the operands of the factors, as vectors of all that they multiply."""
    what = instruction.product
    assert what is not None
    operands = []
    for p in (e.x, e.y):
        scalar = dtypes.info(p.dtype).scalar
        element = _ELEMENTS.get(scalar, value_type(scalar))
        if isinstance(e, Dot):
            wide = lanes_of(element, what.columns * what.group)
            operands.append((wide, _repeated(b, p, what.columns, what.group, wide)))
        else:
            wide = lanes_of(element, dtypes.info(p.dtype).lanes)
            operands.append((wide, _as(b, value(b, p), value_type(p.dtype), wide)))
    return operands


def _repeated(b: Builder, e: Expr, lanes: int, group: int, wide: str) -> str:
    """A factor as a vector of all groups: a single group is moved as one number of its bits."""
    text, t = value(b, e), value_type(e.dtype)
    facts = dtypes.info(e.dtype)
    if facts.lanes < lanes * group:
        whole = f"i{facts.bits * group}"
        one = b.op(f"bitcast {t} {text} to {whole}")
        text, t = spread(b, one, whole, lanes), lanes_of(whole, lanes)
    return _as(b, text, t, wide)


def _as(b: Builder, text: str, t: str, wide: str) -> str:
    """An operand of type `t` as one of type `wide`, which has the same bits."""
    return text if t == wide else b.op(f"bitcast {t} {text} to {wide}")


def _summed(b: Builder, e: Dot) -> str:
    """The sum of products one lane of each group after the other."""
    t, lanes = value_type(e.dtype), dtypes.info(e.dtype).lanes
    group = max(dtypes.info(p.dtype).lanes for p in (e.x, e.y)) // lanes
    total = value(b, e.acc)
    factors = [(value(b, p), p.dtype) for p in (e.x, e.y)]
    fast = b.module.fast.rstrip()
    add, mul = (f"fadd {fast}", f"fmul {fast}") if dtypes.is_float(e.dtype) else ("add", "mul")
    for k in range(group):
        a, c = (
            convert(b, _picked(b, text, dtype, k, lanes, group), _of(dtype, lanes), e.dtype)
            for text, dtype in factors
        )
        total = b.op(f"{add} {t} {total}, {b.op(f'{mul} {t} {a}, {c}')}")
    return total


def _of(dtype: str, lanes: int) -> str:
    return dtypes.vector(dtypes.info(dtype).scalar, lanes)


def _picked(b: Builder, text: str, dtype: str, k: int, lanes: int, group: int) -> str:
    """Lane `k` of each group."""
    t, count = value_type(dtype), dtypes.info(dtype).lanes
    if count == 1:
        return text
    if lanes == 1:
        return b.op(f"extractelement {t} {text}, i64 {k}")
    order = [(group * lane + k) % count for lane in range(lanes)]
    return b.op(shuffled(t, text, "poison", order))


def _by_rows(b: Builder, e: Matmul) -> str:
    """Loops over the rows and the steps, around a dot product each."""
    columns, depth = matrices(e.acc, e.x, e.y, e.rows, e.group) or (0, 0)
    total = _filled(b, e.acc)
    x, y = _matrix(b, e.x, depth * e.group), _matrix(b, e.y, columns * e.group)
    i, k = Var("row"), Var("step")
    sums = (adjacent(i * columns, columns),)
    product = dot(
        load(total, sums),
        load(x.buffer, (adjacent(x.first + i * x.stride + k * e.group, e.group),)),
        load(y.buffer, (adjacent(y.first + k * y.stride, columns * e.group),)),
    )
    stmt(b, For(i, e.rows, For(k, depth, Store(total, sums, product))))
    return b.op(f"load {value_type(e.dtype)}, ptr {b.pointers[total]}, align {_ALIGNMENT}")


def _matrix(b: Builder, e: Expr, size: int) -> Rows:
    """A factor in memory, with rows of `size` elements."""
    found = rows_in_memory(e, size)
    return Rows(_filled(b, e), const(0), size) if found is None else found


def _filled(b: Builder, e: Expr) -> Buffer:
    """A place on the stack that holds a vector."""
    facts, t = dtypes.info(e.dtype), value_type(e.dtype)
    buffer = Buffer("matrix", (facts.lanes,), facts.scalar)
    b.pointers[buffer] = b.alloca(t, 1, _ALIGNMENT)
    b.do(f"store {t} {value(b, e)}, ptr {b.pointers[buffer]}, align {_ALIGNMENT}")
    return buffer


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


EMITTERS: dict[str, Emitter] = {"intrinsic": _intrinsic, "pairs": _pairs, "amx": amx}
"""By the key in the record of a unit."""

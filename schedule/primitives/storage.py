"""Storage of buffers: `set_scope`, `storage_align`, `stream`, `swizzle`."""

from __future__ import annotations

from dataclasses import replace as _replace

from ...tir.ir import STREAM, Buffer, Func, Label, Load
from ...tir.visit import distinct, substitute_func
from ..block_queries import require_not_prefetched
from ..buffer_choice import OutputIndex
from ..find import find_block
from ..primitive import primitive
from ..require import require
from .cached_copies import require_scope, written_at

MAX_FACTOR = 1 << 16


@primitive
def set_scope(
    fn: Func, block: Label, write_buffer_index: OutputIndex, storage_scope: str
) -> tuple[Func, None]:
    """Set the storage scope of a buffer that a block writes: global, shared, local or register.

        B = alloc((64,), "float32")   ->   B = alloc((64,), "float32", scope="local")

    The buffer must be internal to the function. On processors all scopes but `register` are plain
    memory, private to each thread if the iterations of a parallel loop share nothing. Indices of a
    buffer in registers must be constant once loops are unrolled and vectorized; otherwise the
    program does not compile.
    """
    old = written_at(find_block(fn, block), write_buffer_index)
    require_scope(storage_scope)
    require(
        old in fn.allocs,
        "{0} is a parameter of the function; it stays in global memory",
        old.name,
        at=block,
        hint="cache_write gives the block an internal buffer",
    )
    require(
        storage_scope != "register" or not old.align,
        "the strides of {0} are aligned; registers have none",
        old.name,
        at=block,
    )
    require(
        storage_scope != "register" or old.swizzle is None,
        "{0} has a swizzled layout; registers have none",
        old.name,
        at=block,
    )
    if old.scope == storage_scope:
        return fn, None
    if storage_scope == "register":
        require_not_prefetched(fn, {old})
    return substitute_func(fn, {old: _replace(old, scope=storage_scope)}), None


@primitive
def storage_align(
    fn: Func, block: Label, buffer_index: OutputIndex, axis: int, factor: int, offset: int
) -> tuple[Func, None]:
    """Pad a buffer that a block writes, so that a stride is a multiple of `factor` plus `offset`.

        B = alloc((64, 64), "float32")   ->   B = alloc((64, 64), "float32", align=((0, 32, 1),))

    `axis` is the dimension whose stride is padded (negative: from the end), not the last. Here rows
    are 65 elements apart, so that the elements of a column are in different banks or cache sets.
    The buffer must be internal to the function. When it shrinks, as to the part that one iteration
    of a loop needs, its strides are aligned anew.
    """
    old = _stored_at(fn, block, buffer_index, "strides")
    rank = len(old.shape)
    require(
        -rank <= axis < rank,
        "{0} has {1} dimensions; there is no axis {2}",
        old.name,
        rank,
        axis,
        at=block,
    )
    place = axis % rank
    require(
        place < rank - 1,
        "axis {0} is the last one of {1}, whose elements lie side by side",
        axis,
        old.name,
        at=block,
        hint="align the stride of an axis before it",
    )
    require(
        1 <= factor <= MAX_FACTOR,
        "the factor is {0}; expected 1 to {1}",
        factor,
        MAX_FACTOR,
        at=block,
    )
    require(
        0 <= offset < factor,
        "the offset is {0}; expected 0 to {1}, less than the factor",
        offset,
        factor - 1,
        at=block,
    )
    others = tuple(a for a in old.align if a[0] != place)
    new = _replace(old, align=tuple(sorted((*others, (place, factor, offset)))))
    return substitute_func(fn, {old: new}), None


@primitive
def stream(fn: Func, block: Label, write_buffer_index: OutputIndex) -> tuple[Func, None]:
    """Write a result of the function by non-temporal stores, which bypass the caches.

        def relu(A, C): ...   ->   def relu(A, C): T.func_attr({"stream": [1]}) ...

    For results that are too large to be in a cache when they are read: their lines need not be read
    before they are written. Whole vectors are stored so if their address is aligned to 16 bytes, as
    numpy's memory is (Intel, "64 and IA-32 Architectures Optimization Reference Manual", chapter
    9). The function must not read the result.
    """
    found = find_block(fn, block)
    result = written_at(found, write_buffer_index)
    place = next((n for n, p in enumerate(fn.params) if p is result), None)
    require(
        place is not None,
        "{0} is internal to the function, which reads it",
        result.name,
        at=block,
        hint="only results of the function are written past the caches",
    )
    require(
        not any(type(n) is Load and n.buffer is result for n in distinct(fn.body)),
        "the function reads {0}, and would have to fetch it from memory again",
        result.name,
        at=block,
        hint="cache_write gives a block that adds up an internal buffer",
    )
    notes = dict(fn.annotations)
    notes[STREAM] = sorted({*notes.get(STREAM, ()), place})
    return _replace(fn, annotations=tuple(sorted(notes.items()))), None


MAX_PLACES = 1 << 12
"""How many elements of a dimension are put in another order, at most."""


@primitive
def swizzle(
    fn: Func, block: Label, buffer_index: OutputIndex, axis: int, by: int, rows: int, width: int = 1
) -> tuple[Func, None]:
    """Permute the parts of each row of a buffer that a block writes, differently from row to row.

        B = alloc((64, 32), "float32")
          ->  B = alloc((64, 32), "float32", swizzle=(1, 0, 8, 4))   (axis=1, by=0, rows=8, width=4)

    Part p of `width` elements along `axis` is stored as part `p ^ (b % rows)`, where b is the index
    along `by` and `rows` is a power of two. Elements at the same index in `rows` neighbouring rows
    are then in as many banks or cache sets. No memory is lost if `rows * width` divides the
    dimension. Negative axes count from the end. Indices in the program do not change. The buffer
    must be internal to the function. Vectors along `axis` stay whole if they fit into a part.
    """
    old = _stored_at(fn, block, buffer_index, "layout")
    rank = len(old.shape)
    require(
        -rank <= axis < rank and -rank <= by < rank and axis % rank != by % rank,
        "axis {0} by axis {1}; expected two of the {2} dimensions of {3}",
        axis,
        by,
        rank,
        old.name,
        at=block,
    )
    require(
        rows >= 2 and rows & (rows - 1) == 0,
        "{0} rows; expected a power of two from 2 on",
        rows,
        at=block,
    )
    require(width >= 1, "parts of {0} elements; expected at least one", width, at=block)
    require(
        rows * width <= MAX_PLACES,
        "{0} rows in parts of {1} elements reorder {2} places; at most {3}",
        rows,
        width,
        rows * width,
        MAX_PLACES,
        at=block,
    )
    new = _replace(old, swizzle=(axis % rank, by % rank, rows, width))
    return substitute_func(fn, {old: new}), None


def _stored_at(fn: Func, block: Label, index: int, what: str) -> Buffer:
    """The `index`-th buffer that a block writes, in memory that the function may lay out.

    `what` says for errors what is to change.
    """
    buffer = written_at(find_block(fn, block), index)
    require(
        buffer in fn.allocs,
        "{0} is a parameter of the function, whose layout the caller knows",
        buffer.name,
        at=block,
        hint="cache_write gives the block an internal buffer",
    )
    require(
        buffer.strides is None,
        "{0} has strides of its own, {1}",
        buffer.name,
        buffer.strides,
        at=block,
    )
    require(
        buffer.scope != "register",
        "{0} lives in registers, which have no {1}",
        buffer.name,
        what,
        at=block,
    )
    return buffer

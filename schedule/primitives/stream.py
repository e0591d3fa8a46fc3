"""Non-temporal stores: `stream`."""

from __future__ import annotations

from dataclasses import replace as _replace

from ...tir.ir import STREAM, Func, Label, Load
from ...tir.visit import distinct
from ..find import find_block
from ..primitive import primitive
from ..require import require
from .cached_copies import region_at


@primitive
def stream(fn: Func, block: Label, write_buffer_index: int) -> tuple[Func, None]:
    """Write a result of the function by non-temporal stores, which bypass the caches.

        def relu(A, C): ...   ->   def relu(A, C): T.func_attr({"stream": [1]}) ...

    For results that are too large to be in a cache when they are read: their lines need not be read
    before they are written. Whole vectors are stored so if their address is aligned to 16 bytes, as
    numpy's memory is (Intel, "64 and IA-32 Architectures Optimization Reference Manual", chapter
    9). The function must not read the result.
    """
    found = find_block(fn, block)
    result = region_at(found, found.writes, write_buffer_index, "write")
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

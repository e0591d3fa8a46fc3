"""Arrays with a page beside them that nobody may touch, and a margin that must stay as it was.

An access beyond the end (or before the start) of such an array ends the process; what is written on
its other side is seen by `check`.
"""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np

from .attack.attempt import require

Array = np.ndarray[Any, Any]
_PAGE = mmap.PAGESIZE
_NO_ACCESS = 0
_CANARY = 0xA5
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


@dataclass(frozen=True)
class Guarded:
    """An array and the bytes around it."""

    array: Array
    before: Array
    after: Array

    def check(self, name: str) -> None:
        """Raise `Broken` where a byte beside the array was written."""
        for side, margin in (("before", self.before), ("after", self.after)):
            changed = int(np.count_nonzero(margin != _CANARY))
            require(changed == 0, f"{changed} bytes {side} {name} were written")


def guarded(
    source: Array, strides: tuple[int, ...] | None = None, *, at_end: bool = True
) -> Guarded:
    """A copy of `source` right before (or right after) a page that cannot be read or written.

    `strides` are in elements; by default the copy is compact.
    """
    steps = compact(source.shape) if strides is None else strides
    size = 0
    if source.size:
        size = sum((n - 1) * s for n, s in zip(source.shape, steps, strict=True)) + 1
        size *= source.itemsize
    inner = (size // _PAGE + 2) * _PAGE
    memory = mmap.mmap(-1, inner + 2 * _PAGE)
    arena = np.frombuffer(memory, np.uint8)
    for edge in (0, inner + _PAGE):
        status = _libc.mprotect(arena.ctypes.data + edge, _PAGE, _NO_ACCESS)
        require(status == 0, "mprotect failed")
    usable = arena[_PAGE : _PAGE + inner]
    usable[:] = _CANARY
    start = inner - size if at_end else 0
    window = usable[start : start + size] if size else usable[:0]
    array = np.ndarray(
        source.shape,
        source.dtype,
        buffer=memory,
        offset=_PAGE + start if source.size else _PAGE,
        strides=tuple(s * source.itemsize for s in steps),
    )
    array[...] = source
    after = usable[start + size :] if window.size else usable
    return Guarded(array, usable[:start] if window.size else usable[:0], after)


def compact(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a row-major array, in elements."""
    return tuple(int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape)))

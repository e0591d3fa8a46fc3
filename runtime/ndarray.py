"""The layout of numpy's array object in memory.

The layout is part of numpy's C interface (`PyArrayObject_fields` in ndarraytypes.h), and extensions
read the fields directly. It is compared once with what Python reports; nothing relies on it unless
both agree.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

_log = logging.getLogger(__name__)

HEADER = object.__basicsize__
TYPE = HEADER - 8
DATA, NDIM, DIMENSIONS, STRIDES, DESCR, FLAGS = (HEADER + n for n in (0, 8, 16, 24, 40, 48))
C_CONTIGUOUS = 0x0001
WRITEABLE = 0x0400

Array = np.ndarray[Any, Any]


@cache
def layout_is_known() -> bool:
    """Whether the fields are at their expected offsets; a mismatch is logged."""
    known = sys.implementation.name == "cpython" and ctypes.sizeof(ctypes.c_void_p) == 8
    known = known and all(_reads_back(array) for array in _probes())
    if not known:
        _log.warning("array objects of an unknown layout: calls take 10 us longer")
    return known


def address_reader() -> Callable[[Array], int]:
    """Returns a function from an array to the address of its first element."""
    if not layout_is_known():
        return _asked_address
    word = ctypes.c_uint64.from_address
    return lambda array: word(id(array) + DATA).value


def _asked_address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _probes() -> tuple[Array, ...]:
    read_only = np.zeros((3, 2), np.int16)
    read_only.flags.writeable = False
    return np.zeros((2, 3, 5), np.float32)[:, ::2, 1:], read_only, np.zeros((), np.float64)


def _reads_back(array: Array) -> bool:
    def word(address: int) -> int:
        return ctypes.c_int64.from_address(address).value

    def words(field: int) -> tuple[int, ...]:
        return tuple(word(word(base + field) + 8 * i) for i in range(array.ndim))

    base = id(array)
    if (
        np.ndarray.__basicsize__ < FLAGS + 4
        or word(base + TYPE) != id(np.ndarray)
        or ctypes.c_int32.from_address(base + NDIM).value != array.ndim
    ):
        return False
    flags = ctypes.c_int32.from_address(base + FLAGS).value
    return (
        word(base + DATA) == _asked_address(array)
        and words(DIMENSIONS) == array.shape
        and words(STRIDES) == array.strides
        and word(base + DESCR) == id(array.dtype)
        and bool(flags & C_CONTIGUOUS) == array.flags.c_contiguous
        and bool(flags & WRITEABLE) == array.flags.writeable
    )

"""The results of the unscheduled program, in memory that outlives a runner.

The memory is a file without a name that the tuning process holds and every runner inherits, so the
unscheduled program runs once in a session however many runners die. Once written it is only mapped
for reading: no candidate can spoil what it is judged by.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np

from ... import dtypes
from ...errors import TuningError
from ...runtime.signature import Signature
from .anonymous_file import unnamed_file

Array = np.ndarray[Any, Any]
_ALIGN = 64


def new_memory(signature: Signature) -> int:
    """A descriptor of memory for the outputs of a kernel; the caller closes it.

    Raises `TuningError` where the system has none.
    """
    try:
        fd = unnamed_file("tilewright-reference")
        try:
            os.ftruncate(fd, _size(signature))
        except BaseException:
            os.close(fd)
            raise
    except OSError as error:
        raise TuningError("no memory for the unscheduled program's results: {0}", error) from error
    return fd


def write_outputs(fd: int, signature: Signature, outputs: list[Array]) -> None:
    """Keep what the unscheduled program wrote."""
    for place, array in zip(_mapped(fd, signature, writable=True), outputs, strict=True):
        place[...] = array


def read_outputs(fd: int, signature: Signature) -> list[Array]:
    """The outputs of the unscheduled program, as arrays that cannot be written."""
    return _mapped(fd, signature, writable=False)


def _mapped(fd: int, signature: Signature, *, writable: bool) -> list[Array]:
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
    memory = mmap.mmap(fd, _size(signature), access=access)
    arrays, start = [], 0
    for argument in signature.arguments:
        if argument.written:
            dtype = dtypes.to_numpy(argument.dtype)
            arrays.append(np.ndarray(argument.shape, dtype, buffer=memory, offset=start))
            start += _rounded(argument.size * argument.itemsize)
    return arrays


def _size(signature: Signature) -> int:
    sizes = [_rounded(a.size * a.itemsize) for a in signature.arguments if a.written]
    return sum(sizes) + _ALIGN


def _rounded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN

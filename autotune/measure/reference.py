"""The results of the unscheduled program, in memory that outlives a runner.

Behind them is room for its results in wider arithmetic (`tir/widen.py`), which are computed only
if a candidate's deviate.

The memory is a file without a name that the tuning process holds and every runner inherits, so the
unscheduled program runs once in a session however many runners die. Once written it is only mapped
for reading: no candidate can spoil what it is judged by.

Files without a name: memory where the system has such files, else in the temporary folder.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

import numpy as np

from ...base import dtypes
from ...base.errors import TuningError, open_files_hint
from ...runtime.signature import Argument, Signature
from ...tir.widen import WIDEST

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
        raise TuningError(
            "no memory for the unscheduled program's results: {0}",
            error,
            hint=open_files_hint(error),
        ) from error
    return fd


def write_outputs(
    fd: int, signature: Signature, outputs: list[Array], *, wide: bool = False
) -> None:
    """Keep what the unscheduled program wrote, or its wider form."""
    places = _mapped(fd, signature, wide=wide, writable=True)
    for place, array in zip(places, outputs, strict=True):
        place[...] = array


def read_outputs(fd: int, signature: Signature, *, wide: bool = False) -> list[Array]:
    """The outputs of the unscheduled program, as arrays that cannot be written.

    Those of its wider form, if they were written, have float64 for all floats.
    """
    return _mapped(fd, signature, wide=wide, writable=False)


def _mapped(fd: int, signature: Signature, *, wide: bool, writable: bool) -> list[Array]:
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
    memory = mmap.mmap(fd, _size(signature), access=access)
    start = _bytes(signature, wide=False) if wide else 0
    arrays = []
    for argument in signature.arguments:
        if argument.written:
            dtype = dtypes.to_numpy(_dtype(argument, wide=wide))
            arrays.append(np.ndarray(argument.shape, dtype, buffer=memory, offset=start))
            start += _rounded(argument.size * dtype.itemsize)
    return arrays


def _size(signature: Signature) -> int:
    return _bytes(signature, wide=False) + _bytes(signature, wide=True) + _ALIGN


def _bytes(signature: Signature, *, wide: bool) -> int:
    return sum(
        _rounded(a.size * dtypes.nbytes(_dtype(a, wide=wide)))
        for a in signature.arguments
        if a.written
    )


def _dtype(argument: Argument, *, wide: bool) -> str:
    return WIDEST if wide and dtypes.is_float(argument.dtype) else argument.dtype


def _rounded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def unnamed_file(label: str) -> int:
    """A descriptor of a new, empty file, which the caller closes. Raises `OSError`.

    `label` is what the system shows of it.
    """
    if hasattr(os, "memfd_create"):
        try:
            return os.memfd_create(label)
        except OSError as error:  # a sandbox may refuse it
            if open_files_hint(error):  # no temporary file can be opened either
                raise
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())

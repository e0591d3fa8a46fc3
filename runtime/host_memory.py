"""The memory of this process: numpy arrays, and those of other libraries by DLPack.

An array's class is read by `type`, and its shape, strides and address by numpy: overrides of a
subclass and values of attributes are not believed.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np

from ..base import dtypes
from ..base.errors import ArgumentError
from . import dlpack
from .memory import AllBinder, Memory, OneBinder, View
from .signature import WORKSPACE_ALIGNMENT, Argument

Array = np.ndarray[Any, Any]
_ALL: Any = ctypes.c_char * (2**63 - 1)
"""Memory from an address on: numpy asks for a buffer that an array does not reach beyond."""


class HostMemory(Memory):
    """The memory of processors."""

    library: ClassVar[str] = "numpy"

    def view(self, value: Any, name: str) -> View:
        if is_array(value):
            # Plain arrays do without `numpy.ma`, which is loaded when it is first named.
            if type(value) is not np.ndarray and issubclass(type(value), np.ma.MaskedArray):
                raise ArgumentError(
                    "argument {0}: expected a plain array, found a masked array",
                    name,
                    hint=f"pass {name}.filled(...), or {name}.data if the mask may be ignored",
                )
            array = plain(value)
            pointer, read_only = array.__array_interface__["data"]
            return View(pointer, _dtype_text(array), array.shape, array.strides, read_only, value)
        return dlpack.view(value, name)

    def array(self, view: View) -> Array:
        shape, strides, before = view.shape, view.strides, 0
        if strides and min(strides) < 0:
            steps = zip(shape, strides, strict=True)
            before = sum((1 - n) * step for n, step in steps if n and step < 0)
        memory: Any = _ALL.from_address(view.pointer - before)
        array = np.ndarray(shape, dtypes.to_numpy(view.dtype), memory, before, strides)
        if view.owner is not None:
            memory.owner = view.owner
        if view.read_only:
            array.flags.writeable = False
        return array

    def read(self, view: View) -> Array:
        """The memory itself: the host computes in it."""
        return self.array(view)

    def allocate(self, size: int) -> Array:
        memory = np.empty(size + WORKSPACE_ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % WORKSPACE_ALIGNMENT
        return memory[start : start + size]

    def write(self, view: View, values: Any) -> None:
        self.array(view)[...] = values

    def synchronize(self, seconds: float | None = None) -> None:
        """Calls are done when they return."""

    def binder(self, argument: Argument, checked: OneBinder) -> OneBinder:
        """Objects that export exactly such a tensor need no view."""
        mask = argument.itemsize - 1
        match = dlpack.matcher(
            argument.dtype, argument.shape, argument.element_strides, argument.written
        )

        def bind(value: Any, owners: list[Any]) -> int:
            if not is_array(value):
                found = match(value)
                if found is not None and not found[0] & mask:
                    owners.append(found[1])
                    return found[0]
            return checked(value, owners)  # type: ignore[no-any-return]

        return bind

    def all_binder(self, arguments: Sequence[Argument], binders: Sequence[OneBinder]) -> AllBinder:
        """Arrays that match exactly are bound in the loop over all arguments: calls cost time."""
        wanted = [(bind, *_exact(a)) for bind, a in zip(binders, arguments, strict=True)]
        address, plain_array = address_reader(), np.ndarray

        def bind_all(values: Sequence[Any], owners: list[Any]) -> list[Any]:
            bound: list[Any] = []
            for value, (bind, dtype, shape, strides, mask, written) in zip(values, wanted):  # noqa: B905 - it costs time
                if (
                    type(value) is plain_array
                    and value.dtype is dtype
                    and value.shape == shape
                    and value.strides == strides
                    and not (written and not value.flags.writeable)
                    and not (pointer := address(value)) & mask
                ):
                    bound.append(pointer)
                else:
                    bound.append(bind(value, owners))
            return bound

        return bind_all

    def address_reader(self) -> Callable[[Any], int]:
        return address_reader()


def _exact(
    argument: Argument,
) -> tuple[np.dtype[Any] | None, tuple[int, ...], tuple[int, ...], int, bool]:
    """Dtype, shape, strides, misaligned bits of the address of a tensor, and if it is written.

    No array has the dtype of a scalar, nor those of `ml_dtypes`, which is not loaded for this.
    """
    known = argument.kind == "tensor" and argument.dtype not in dtypes.ML_DTYPES
    return (
        dtypes.to_numpy(argument.dtype) if known else None,
        argument.shape,
        tuple(n * argument.itemsize for n in argument.element_strides),
        argument.itemsize - 1,
        argument.written,
    )


HOST_MEMORY = HostMemory()


def is_array(value: object) -> bool:
    """Whether an object is an array of numpy, or of a subclass."""
    return issubclass(type(value), np.ndarray)


def plain(value: Any) -> Array:
    """The array as a plain `ndarray`, with numpy's own attributes."""
    array: Array = np.ndarray.view(value, np.ndarray)
    return array


def _dtype_text(array: Array) -> str:
    """The name of a dtype. Classes of records may be called anything, `float` with 32 bits too."""
    dtype = array.dtype
    if issubclass(dtype.type, np.void):
        return f"records of {dtype.itemsize} bytes"
    return dtype.name if dtype.isnative else f"{dtype.name} of foreign byte order"


# Keeping the memory of arrays that are freed, for programs that make new ones for each call.
#
# The C library hands larger pieces back to the system when they are freed, and whoever is given
# such memory again pays for each of its pages: an output of 4 MB that is made anew for each call
# costs 1,024 page faults. `keep_freed_memory` changes that for the whole process, so it is never
# called by this package itself: kernels need no memory but their workspaces, which are kept anyway
# (`workspace.py`).

KEPT_BYTES = 128 << 20
"""Freed memory at the end of a heap beyond which it is handed back."""
LARGEST_BYTES = 32 << 20
"""Larger pieces are handed back always; glibc allows no more."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> bool:
    """Let the C library keep what is freed, for all of this process. Returns whether it does.

    Where the environment has settings for it (`MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_`,
    `GLIBC_TUNABLES`) they stay, and so does a C library that has no `mallopt` (mallopt(3)).
    """
    if any(name in os.environ for name in _SETTINGS):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    wanted = {_M_TRIM_THRESHOLD: KEPT_BYTES, _M_MMAP_THRESHOLD: LARGEST_BYTES}
    return all(mallopt(option, size) == 1 for option, size in wanted.items())


# The layout of numpy's array object in memory.
#
# The layout is part of numpy's C interface (`PyArrayObject_fields` in ndarraytypes.h), and
# extensions read the fields directly. It is compared once with what Python reports; nothing relies
# on it unless both agree.

_log = logging.getLogger(__name__)

HEADER = object.__basicsize__
TYPE = HEADER - 8
DATA, NDIM, DIMENSIONS, STRIDES, DESCR, FLAGS = (HEADER + n for n in (0, 8, 16, 24, 40, 48))
C_CONTIGUOUS = 0x0001
WRITEABLE = 0x0400


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

"""Read arrays through DLPack's table of C functions: it takes a third of the time of a capsule.

A class has it as `__dlpack_c_exchange_api__`. Its functions describe an array without handing it
out, and name the stream on which its library works now. Arrays stay with the caller during a call.
Source: the DLPack specification, version 1.3 (dlpack.h, `DLPackExchangeAPI`).
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .dlpack import CODES, CUDA, TENSOR

_NAME = b"dlpack_exchange_api"
_MAJOR = 1
# Version (major, minor), older table, functions: allocate, export, import, describe, stream.
_TABLE = struct.Struct("=IIQQQQQQ")
# `TENSOR`, and as bytes what is in it between the address and the shape.
_KIND = struct.Struct("=iiiBBH")
_FIELDS = struct.Struct(f"=Q{_KIND.size}sQQQ")
_Describe = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
_Stream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)
_Description = ctypes.c_char * TENSOR.size
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_found: dict[type[Any], Exchange | None] = {}


class Exchange(NamedTuple):
    """The functions of a class of arrays. They raise what its library raises."""

    describe: Callable[[Any, Any], int]
    current_stream: Callable[[int, int, Any], int]

    def stream(self, ordinal: int) -> int:
        """The stream of a CUDA device on which the library works now."""
        handle = ctypes.c_void_p()
        if self.current_stream(CUDA, ordinal, ctypes.byref(handle)):
            raise RuntimeError("current_work_stream fails and says nothing")
        return handle.value or 0


def exchange_of(kind: type[Any]) -> Exchange | None:
    """The functions of a class; `None` if it has none that are known here."""
    try:
        return _found[kind]
    except KeyError:
        return _found.setdefault(kind, _read(kind))


def _read(kind: type[Any]) -> Exchange | None:
    try:
        address = _get_pointer(kind.__dlpack_c_exchange_api__, _NAME)
    except Exception:  # noqa: BLE001  the class's own code; `__dlpack__` remains
        return None
    table = _TABLE.unpack((ctypes.c_char * _TABLE.size).from_address(address))
    major, *_, describe, current_stream = table
    if major != _MAJOR or not describe or not current_stream:
        return None
    return Exchange(_Describe(describe), _Stream(current_stream))


def matcher(
    dtype: str, shape: Sequence[int], strides: Sequence[int], ordinal: int
) -> Callable[[Exchange, Any], int | None]:
    """Returns a function from an array to its address, on a CUDA device.

    The function returns `None` unless the array is exactly this tensor; `shape` and `strides` count
    elements. `dlpack.view` accepts more and explains the rest.
    """
    rank, (code, bits) = len(shape), CODES[dtype]
    words = f"={rank}q"
    sizes, steps = struct.pack(words, *shape), struct.pack(words, *strides)
    expected, unpack = _KIND.pack(CUDA, ordinal, rank, code, bits, 1), _FIELDS.unpack
    words_at = (ctypes.c_char * len(sizes)).from_address

    def match(exchange: Exchange, value: Any) -> int | None:
        description = _Description()
        try:
            if exchange.describe(value, description):
                return None
        except Exception:  # noqa: BLE001  the library's own code; `view` says what it raises
            return None
        data, kind, shape_at, strides_at, offset = unpack(description)
        if kind != expected or not data:
            return None
        if rank:
            if not (shape_at and strides_at):
                return None
            if words_at(shape_at).raw != sizes or words_at(strides_at).raw != steps:
                return None
        return data + offset  # type: ignore[no-any-return]

    return match

"""Read arrays through `__cuda_array_interface__`, and handles of streams of other libraries.

Source: the CUDA Array Interface, version 3, of Numba's documentation.
"""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..base import dtypes
from ..base.checked_json import show
from ..base.errors import ArgumentError
from .dlpack import CODES, CUDA, TENSOR, class_name, is_negative_view, no_export
from .memory import View
from .signature import MAX_DIMENSIONS

NAME = "__cuda_array_interface__"
_MAX_VERSION = 3
_BITS = 64
_PREFIXES = {"bool": "b", "int": "i", "uint": "u", "float": "f"}
_STREAMS = ("__cuda_stream__", "cuda_stream", "ptr", "handle")
"""The attributes that have the handle: of the protocol, of torch's, CuPy's and pycuda's streams."""
LEGACY = 1


def _typestr(dtype: str) -> str:
    size, kind = dtypes.nbytes(dtype), dtypes.info(dtype).kind
    if dtype in dtypes.ML_DTYPES:
        return f"<V{size}" if size > 1 else f"|V{size}"
    order = "|" if size == 1 else "<"
    return f"{order}{_PREFIXES[kind]}{size}"


TYPESTRS = {dtype: _typestr(dtype) for dtype in dtypes.SCALARS}
_DTYPES = {text: dtype for dtype, text in TYPESTRS.items() if dtype not in dtypes.ML_DTYPES}


class Interface(NamedTuple):
    """An array, and the handle of the stream that it is valid on; `None` if it says none."""

    view: View
    stream: int | None


def read_interface(value: Any, name: str) -> Interface:
    """The memory of an object with `__cuda_array_interface__`. Raises `ArgumentError`.

    On which device it is, it does not say.
    """
    try:
        fields = getattr(value, NAME)
    except Exception as error:
        raise no_export(value, name, error) from error
    try:
        return _interface(fields, value, name)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(
            "argument {0}: {1} of {2} is malformed: {3!r}", name, NAME, class_name(value), error
        ) from error


def _interface(fields: Mapping[str, Any], value: Any, name: str) -> Interface:
    version = operator.index(fields["version"])
    if version > _MAX_VERSION:
        raise ArgumentError(
            "argument {0}: exported by version {1} of {2}, known up to {3}",
            name,
            version,
            NAME,
            _MAX_VERSION,
        )
    if fields.get("mask") is not None:
        raise ArgumentError("argument {0}: expected a plain array, found a masked array", name)
    shape = _integers(fields["shape"])
    strides = fields.get("strides")
    steps = None if strides is None else _integers(strides)
    if len(shape) > MAX_DIMENSIONS or (steps is not None and len(steps) != len(shape)):
        raise ValueError(f"{len(shape)} dimensions, strides {show(steps)}")
    typestr = fields["typestr"]
    if not isinstance(typestr, str):
        raise TypeError(f"a typestr {show(typestr)}")
    address, read_only = fields["data"]
    pointer = operator.index(address)
    if min(shape, default=1) < 0 or pointer not in range(1 << _BITS):
        raise ValueError(f"shape {show(shape)} at {show(pointer)}")
    if not pointer and 0 not in shape:
        raise ArgumentError("argument {0}: exported with a null pointer to its elements", name)
    dtype = _DTYPES.get(typestr, f"typestr {show(typestr)}")
    view, stream = View(pointer, dtype, shape, steps, bool(read_only), value), fields.get("stream")
    if stream is None:
        return Interface(view, None)
    handle = operator.index(stream)
    if handle not in range(1 << _BITS):
        raise ValueError(f"stream {show(stream)}")
    return Interface(view, normal(handle))


def _integers(values: Any) -> tuple[int, ...]:
    return tuple(map(operator.index, values))


def normal(stream: int) -> int:
    """The handle of a stream, with 0 for the default stream."""
    return 0 if stream == LEGACY else stream


def stream_handle(stream: Any) -> int:
    """The handle of a stream: an integer, or an object of a library that says it.

    Raises `ArgumentError` for anything else.
    """
    try:
        handle: Any = stream
        if type(stream) is not int:
            for attribute in _STREAMS:
                found = getattr(stream, attribute, None)
                if found is not None:
                    handle = found()[1] if attribute == "__cuda_stream__" else found
                    break
        handle = operator.index(handle)
    except Exception as error:
        raise _stream_error(stream) from error
    if handle not in range(1 << _BITS):
        raise _stream_error(stream)
    return normal(handle)


def _stream_error(stream: Any) -> ArgumentError:
    return ArgumentError(
        "stream: expected a stream of CUDA, found {0}",
        class_name(stream),
        hint="pass a stream of torch, CuPy or pycuda, an object with __cuda_stream__, or a handle "
        "(0 is the default stream)",
    )


# Read arrays through DLPack's table of C functions: it takes a third of the time of a capsule.
#
# A class has it as `__dlpack_c_exchange_api__`. Its functions describe an array without handing it
# out, and name the stream on which its library works now. Arrays stay with the caller during a
# call. Source: the DLPack specification, version 1.3 (dlpack.h, `DLPackExchangeAPI`).

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
            if exchange.describe(value, description) or is_negative_view(value):
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

"""Read arrays through `__cuda_array_interface__`, and handles of streams of other libraries.

Source: the CUDA Array Interface, version 3, of Numba's documentation.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..base import dtypes
from ..base.checked_json import show
from ..base.errors import ArgumentError
from .dlpack import class_name, no_export
from .memory import View
from .signature import MAX_DIMENSIONS

NAME = "__cuda_array_interface__"
_MAX_VERSION = 3
_BITS = 64
_PREFIXES = {"bool": "b", "int": "i", "uint": "u", "float": "f"}
_STREAMS = ("__cuda_stream__", "cuda_stream", "ptr", "handle")
"""The attributes that have the handle: of the protocol, of torch's, CuPy's and pycuda's streams."""
LEGACY, PER_THREAD = 1, 2


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

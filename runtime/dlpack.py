"""Read arrays of other libraries through DLPack, without copying.

The capsule is read and never consumed. It is kept alive while a kernel runs, and releases its
tensor when it is dropped. The structure is read here because numpy's own import refuses bfloat16
and float8.

Objects may raise or return anything, which is refused. The description of the tensor is compared
with what the kernel takes. Whether there is memory at the address, only the exporter can know.
Source: the DLPack specification, versions 0 and 1 (dlpack.h).
"""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ..base.errors import ArgumentError
from .memory import View
from .signature import compact_strides

CPU, CUDA = 1, 2
LEGACY_STREAM = 1
"""The name of the default stream of CUDA to exporters."""
NO_STREAM = -1
"""For exporters that are to order no work."""
_DEVICES = {
    1: "cpu",
    2: "cuda",
    3: "cuda_host",
    4: "opencl",
    7: "vulkan",
    8: "metal",
    10: "rocm",
    11: "rocm_host",
    12: "ext_dev",
    13: "cuda_managed",
    14: "oneapi",
    15: "webgpu",
    16: "hexagon",
    17: "maia",
}
_EXAMPLES = {
    CPU: ", {0}.cpu() for instance",
    CUDA: ", torch.as_tensor({0}, device='cuda') for instance",
}
_MAX_MAJOR = 1
_READ_ONLY, _COPIED = 1, 2
_MAX_DIMENSIONS = 64


# DLTensor: data, device type and index, rank, type code, bits, lanes, shape, strides, byte offset.
TENSOR = struct.Struct("=QiiiBBHQQQ")
# What comes before it in DLManagedTensorVersioned: major, minor, context, deleter, flags.
VERSION = struct.Struct("=IIQQQ")
_BOTH = struct.Struct(VERSION.format + TENSOR.format[1:])

_DTYPES = {
    **{(0, bits): f"int{bits}" for bits in (8, 16, 32, 64)},
    **{(1, bits): f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{(2, bits): f"float{bits}" for bits in (16, 32, 64)},
    (4, 16): "bfloat16",
    (6, 8): "bool",
    (10, 8): "float8_e4m3fn",
    (12, 8): "float8_e5m2",
}

CODES = {name: code for code, name in _DTYPES.items()}

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_RANKS = [ctypes.c_int64 * rank for rank in range(_MAX_DIMENSIONS + 1)]
_HEAD = ctypes.c_char * VERSION.size
_BODY = ctypes.c_char * TENSOR.size
_WHOLE = ctypes.c_char * _BOTH.size


_Place: TypeAlias = tuple[int, int | None]
"""The type of a device, and its index unless any will do."""
Match = Callable[[Any], tuple[int, object] | None]


def matcher(
    dtype: str,
    shape: Sequence[int],
    strides: Sequence[int],
    written: bool,
    device: int = CPU,
) -> Match:
    """Returns a function from an object to its address and the owner of its memory.

    The function returns `None` unless the object exports exactly this tensor by the versioned
    protocol; `shape` and `strides` count elements. `view` accepts more and explains the rest; this
    fast path takes half the time.
    """
    rank = len(shape)
    words = f"={len(shape)}q"
    sizes, steps = struct.pack(words, *shape), struct.pack(words, *strides)
    kind, highest = (rank, *CODES[dtype], 1), _highest_address(dtype, shape, strides)
    words_at, whole_at = (ctypes.c_char * len(sizes)).from_address, _WHOLE.from_address
    unpack, version, refused = _BOTH.unpack, (_MAX_MAJOR, 0), _READ_ONLY | _COPIED if written else 0

    def match(value: Any) -> tuple[int, object] | None:
        try:
            if value.__dlpack_device__()[0] != device or is_negative_view(value):
                return None
            capsule = value.__dlpack__(max_version=version)
            address = _get_pointer(capsule, b"dltensor_versioned")
        except Exception:  # noqa: BLE001  the object's own code; `view` says what it raises
            return None
        found = unpack(whole_at(address))
        if found[8:12] != kind or found[0] > _MAX_MAJOR or found[4] & refused or found[6] != device:
            return None
        if rank and not (found[12] and found[13]):
            return None
        if words_at(found[12]).raw != sizes or words_at(found[13]).raw != steps:
            return None
        pointer = found[5] + found[14]
        return (pointer, capsule) if found[5] and pointer <= highest else None

    return match


def is_negative_view(value: Any) -> bool:
    """Whether an array of torch is the negative of what it exports: `z.conj().imag` is, and its
    export does not say so."""
    is_neg = getattr(value, "is_neg", None)
    return is_neg is not None and bool(is_neg())


def device_name(device: tuple[int, int]) -> str:
    return f"{_device_type(device[0])}:{device[1]}"


def _device_type(number: int) -> str:
    return _DEVICES.get(number, f"device type {number}")


def class_name(value: object) -> str:
    """The name of an object's class, independent of its metaclass."""
    return str(type.__dict__["__name__"].__get__(type(value)))


def view(
    value: Any,
    name: str,
    device: int = CPU,
    make: str = "numpy.asarray",
    *,
    index: int | None = None,
    stream: int | None = None,
) -> View:
    """The memory of an object with `__dlpack__`.

    `name` is the argument named in the `ArgumentError`, which is raised for an object without
    `__dlpack__`, for memory that is not on devices of the type `device` or not on that of the
    `index`, for an object that fails to export itself, and for an impossible tensor. `make` is the
    function that the hint names. `stream` is the one that the exporter orders its work before.
    """
    place = device, index
    try:
        exports = hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__")
    except Exception as error:
        raise no_export(value, name, error) from error
    if not exports:
        raise ArgumentError(
            "argument {0}: expected an array, found {1}",
            name,
            class_name(value),
            hint=f"pass {make}({name}), or anything with __dlpack__",
        )
    _check_device(_device(value, name), name, place)
    _check_computed(value, name)
    capsule = _export(value, name, {} if stream is None else {"stream": stream})
    try:
        address = _get_pointer(capsule, b"dltensor_versioned")
    except ValueError:
        return _unversioned(capsule, value, name, place)
    major, _, _, _, flags = VERSION.unpack(_HEAD.from_address(address))
    if major > _MAX_MAJOR:
        raise ArgumentError(
            "argument {0}: exported as DLPack {1}, known up to {2}", name, major, _MAX_MAJOR
        )
    found = _view(address + VERSION.size, bool(flags & _READ_ONLY), capsule, name, place)
    return found._replace(copied=bool(flags & _COPIED))


def _check_computed(value: Any, name: str) -> None:
    """Raise `ArgumentError` for an array whose memory does not have its numbers."""
    try:
        negative = is_negative_view(value)
    except Exception as error:
        raise no_export(value, name, error) from error
    if negative:
        raise ArgumentError(
            "argument {0}: expected an array, found the negative of one, not computed yet", name,
            hint=f"pass {name}.resolve_neg()",
        )  # fmt: skip


def _device(value: Any, name: str) -> tuple[int, int]:
    try:
        found = value.__dlpack_device__()
    except Exception as error:
        raise no_export(value, name, error) from error
    try:
        kind, index = found
        return operator.index(kind), operator.index(index)
    except Exception as error:
        raise ArgumentError(
            "argument {0}: expected two integers of __dlpack_device__ of {1}, found {2}",
            name,
            class_name(value),
            class_name(found),
            hint="the first is 1 for memory on the CPU",
        ) from error


def _check_device(found: tuple[int, int], name: str, place: _Place) -> None:
    device, index = place
    if found[0] != device or index not in (None, found[1]):
        wanted = "the CPU" if device == CPU else _device_type(device)
        example = _EXAMPLES.get(device, "").format(name)
        if index is not None:
            wanted = f"{wanted}:{index}"
        raise ArgumentError(
            "argument {0}: expected memory on {1}, found an array on {2}",
            name,
            wanted,
            lambda: device_name(found),
            hint=f"copy it to {wanted} first{example}",
        )


def _unversioned(capsule: object, value: object, name: str, place: _Place) -> View:
    try:
        address = _get_pointer(capsule, b"dltensor")
    except ValueError:
        raise ArgumentError(
            "argument {0}: __dlpack__ of {1} returns no tensor",
            name,
            class_name(value),
            hint="expected a capsule that nobody has taken the tensor of",
        ) from None
    return _view(address, False, capsule, name, place)


def _export(value: Any, name: str, options: dict[str, int]) -> object:
    try:
        try:
            return value.__dlpack__(max_version=(_MAX_MAJOR, 0), **options)
        except TypeError:  # an exporter of the unversioned protocol
            return value.__dlpack__(**options)
    except Exception as error:
        raise no_export(value, name, error) from error


def no_export(value: object, name: str, error: Exception) -> ArgumentError:
    """The error for an array whose own code raises one when it is to export its memory."""
    return ArgumentError(
        "argument {0}: {1} does not export its memory: {2}",
        name,
        class_name(value),
        lambda: _text_of(error),
    )


def _text_of(error: Exception) -> str:
    try:
        return str(error) or class_name(error)
    except Exception:  # noqa: BLE001
        return class_name(error)


def _view(address: int, read_only: bool, capsule: object, name: str, place: _Place) -> View:
    data, device, index, rank, code, bits, lanes, shape, strides, offset = TENSOR.unpack(
        _BODY.from_address(address)
    )
    _check_device((device, index), name, place)
    if not 0 <= rank <= _MAX_DIMENSIONS:
        raise ArgumentError("argument {0}: exported with {1} dimensions", name, rank)
    dtype = _DTYPES.get((code, bits)) if lanes == 1 else None
    if dtype is None:
        dtype = f"DLPack type {code} of {bits} bits and {lanes} lanes"
    if rank and not shape:
        raise ArgumentError("argument {0}: exported with {1} dimensions and no shape", name, rank)
    words, itemsize = _RANKS[rank], bits // 8
    extents = tuple(words.from_address(shape)[:]) if rank else ()
    steps = tuple(words.from_address(strides)[:]) if rank and strides else None
    if data == 0 and 0 not in extents:
        raise ArgumentError("argument {0}: exported with a null pointer to its elements", name)
    if dtype in CODES and data + offset > _highest_address(dtype, extents, steps):
        raise ArgumentError(
            "argument {0}: exported with elements beyond the last address: shape {1}, strides of "
            "{2} elements, at {3:#x} + {4}",
            name,
            extents,
            steps,
            data,
            offset,
        )
    return View(
        data + offset,
        dtype,
        extents,
        None if steps is None else tuple([n * itemsize for n in steps]),
        read_only,
        capsule,
    )


def _highest_address(dtype: str, shape: Sequence[int], strides: Sequence[int] | None) -> int:
    """The highest address at which a tensor may begin so that all its elements have addresses."""
    steps = compact_strides(tuple(shape)) if strides is None else strides
    reach = sum(abs((n - 1) * s) for n, s in zip(shape, steps, strict=True))
    itemsize = CODES[dtype][1] // 8
    return (1 << 64) - (1 if 0 in shape else (reach + 1) * itemsize)

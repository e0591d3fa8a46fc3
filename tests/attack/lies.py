"""Array objects that are not what they say: for each kind, a function of a true array."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from ..guard_pages import Array, guarded
from .attempt import Attempt
from .capsules import Exporter, Fields, Unversioned, fields_of

Lie = Callable[[Array, Attempt], Any]
BIG = (2**31, 2**62, 2**63 - 1, -1, -(2**63), 0)


class Overriding(np.ndarray[Any, Any]):
    """A subclass whose attributes are the class's own."""


def subclass(array: Array, attempt: Attempt) -> Any:
    """A smaller array whose `shape`, `strides`, `dtype`, ... are those of the true one."""
    small = array.reshape(-1)[:1].copy() if array.size and array.flags.c_contiguous else array[:0]
    told = {
        "shape": array.shape,
        "strides": array.strides,
        "dtype": array.dtype,
        "ndim": array.ndim,
        "size": array.size,
        "nbytes": array.nbytes,
        "flags": array.flags,
        "__array_interface__": array.__array_interface__,
        "data": array.data if array.dtype.name != "bfloat16" else None,
    }
    names = [n for n in told if attempt.chance(0.6)] or ["shape"]
    attempt.note(f"a subclass that overrides {names}")
    lying = type("Lying", (Overriding,), {n: _always(told[n]) for n in names})
    return small.view(lying)


def _always(value: Any) -> property:
    return property(lambda _: value)


def other_array(array: Array, attempt: Attempt) -> Any:
    """A true array of another dtype, shape, byte order, alignment, stride or class."""
    kind = attempt.pick(14)
    attempt.note(f"another array, {kind}")
    match kind:
        case 0:
            return array.astype(array.dtype.newbyteorder(">")) if array.itemsize > 1 else None
        case 1:
            flat = np.zeros(array.nbytes + 8, np.uint8)[1 : 1 + array.nbytes]
            shifted = flat.view(array.dtype).reshape(array.shape)
            shifted[...] = array
            return shifted
        case 2:
            return np.lib.stride_tricks.as_strided(array, strides=(0,) * array.ndim)
        case 3:
            return array[::-1] if array.ndim else array
        case 4:
            return array.reshape(*array.shape, 1) if array.flags.c_contiguous else array.T
        case 5:
            return np.ma.masked_array(array, False)
        case 6:
            return array.astype(object)
        case 7:
            return array.astype(np.float64)
        case 8:
            return array.view(Overriding)
        case 9:
            return np.stack([array, array], axis=-1)[..., 0]
        case 10:
            return array.astype([("x", array.dtype)]) if array.dtype.name != "bfloat16" else array
        case 11:
            return array[:-1] if array.ndim and len(array) else array
        case 12:
            copy = array.copy()
            copy.flags.writeable = False
            return copy
        case _:
            return np.asfortranarray(array)


def no_array(array: Array, attempt: Attempt) -> Any:
    """Something else altogether."""
    values: tuple[Any, ...] = (
        None, 1, 1.5, float("nan"), 2**5000, -(2**63), "text", b"bytes" * 99, [], [[1.0] * 24], {},
        object(), type, array.tobytes(), memoryview(array.tobytes()), np.float32(1), Ellipsis,
        ctypes.c_void_p(8), array.tolist(), iter(()), lambda: None, np.dtype("float32"), True,
    )  # fmt: skip
    value = attempt.choice(values)
    attempt.note(f"no array: {value!r:.80}")
    return value


def capsule(array: Array, attempt: Attempt) -> Any:
    """A DLPack tensor with one odd field, or a capsule that is none."""
    fields = fields_of(array)
    what, change = attempt.choice(_FIELDS)
    attempt.note(f"DLPack: {what}")
    change(fields, attempt)
    kind = Unversioned if attempt.chance(0.2) else Exporter
    if kind is Unversioned:
        fields.version, fields.name = None, b"dltensor"
    return kind(fields)


def exporter(array: Array, attempt: Attempt) -> Any:
    """An object whose `__dlpack__` or `__dlpack_device__` misbehaves."""
    fields = fields_of(array)
    devices: tuple[Any, ...] = (
        (1, 0), None, (), (1,), (1, 0, 0), "cpu", 1, (2**100, 0), (-1, 2**70), (1.0, 0), ("1", 0),
        (None, None), [1, 0], (2, 0), (b"\1", 0), {1: 0}, (True, False), np.array([1, 0]),
        lambda: _raise(ZeroDivisionError),
    )  # fmt: skip
    exports: tuple[Any, ...] = (
        None, 1, "x", b"dltensor", object(), fields.capsule, lambda **_: None,
        lambda **_: _raise(ValueError), lambda **_: _raise(MemoryError),
        lambda **_: _raise(KeyError),
    )  # fmt: skip
    device, given = attempt.choice(devices), attempt.choice(exports)
    attempt.note(f"device {device!r:.60}, __dlpack__ gives {given!r:.60}")
    return Exporter(fields, device, given)


def _raise(kind: type[Exception]) -> Any:
    raise kind("on purpose")


def _set(**values: Any) -> Callable[[Fields, Attempt], None]:
    def change(fields: Fields, attempt: Attempt) -> None:
        for name, value in values.items():
            setattr(fields, name, attempt.choice(value))

    return change


def _odd_shape(fields: Fields, attempt: Attempt) -> None:
    shape = list(fields.shape or (1,))
    shape[attempt.pick(len(shape))] = attempt.choice(BIG)
    fields.shape = tuple(shape)


def _odd_strides(fields: Fields, attempt: Attempt) -> None:
    strides = list(fields.strides or (1,))
    strides[attempt.pick(len(strides))] = attempt.choice(BIG)
    fields.strides = tuple(strides)


def _odd_offset(fields: Fields, attempt: Attempt) -> None:
    fields.offset = attempt.choice((1, 3)) if fields.bits > 8 else 0


_FIELDS: tuple[tuple[str, Callable[[Fields, Attempt], None]], ...] = (
    ("nothing odd", _set()),
    ("a null pointer", _set(data=(0,))),
    ("an odd rank", _set(rank=(-1, 0, 1, 3, 64, 65, 2**31 - 1))),
    ("no shape", _set(shape=(None,))),
    ("no strides", _set(strides=(None,))),
    ("an odd shape", _odd_shape),
    ("odd strides", _odd_strides),
    ("a type code", _set(code=(0, 1, 2, 3, 4, 5, 6, 7, 9, 14, 255))),
    ("bits", _set(bits=(0, 1, 4, 7, 8, 16, 64, 128, 255))),
    ("lanes", _set(lanes=(0, 2, 65535))),
    ("an offset out of alignment", _odd_offset),
    ("a device", _set(device=(0, 2, -1, 2**31 - 1))),
    ("a capsule's name", _set(name=(b"", b"used_dltensor", b"used_dltensor_versioned", b"x"))),
    ("a version", _set(version=((0, 0), (2, 0), (2**32 - 1, 0), (1, 99)))),
    ("flags", _set(flags=(1, 2, 4, 2**63))),
)


def index_out_of_range(array: Array, attempt: Attempt) -> Any:
    """Indices of which some are not below the end of their range, or are negative."""
    copy = guarded(array).array
    for _ in range(attempt.choice((1, 1, 3))):
        value = attempt.choice((-1, 40, 41, 2**30, -(2**31), 2**31 - 1))
        copy[attempt.pick(len(copy))] = value
    attempt.note(f"indices {copy.tolist()}")
    return copy


LIES: tuple[Lie, ...] = (subclass, other_array, no_array, capsule, capsule, exporter)

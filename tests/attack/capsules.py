"""DLPack exporters that say whatever they are told to."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

from tilewright.runtime.dlpack import TENSOR, VERSION

from ..guard_pages import Array

_CODES = {"i": 0, "u": 1, "f": 2, "b": 6, "V": 4}
_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


@dataclass
class Fields:
    """The fields of a DLPack tensor; `name` is the capsule's, `version` (major, minor) or none."""

    data: int
    rank: int
    code: int
    bits: int
    lanes: int
    shape: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    offset: int = 0
    device: int = 1
    index: int = 0
    name: bytes = b"dltensor_versioned"
    version: tuple[int, int] | None = (1, 0)
    flags: int = 0
    kept: list[Any] = field(default_factory=list)

    def capsule(self) -> object:
        """A capsule around the structure. The memory lives as long as this object."""
        body = TENSOR.pack(
            self.data % 2**64,
            self.device,
            self.index,
            self.rank,
            self.code,
            self.bits,
            self.lanes,
            self._words(self.shape),
            self._words(self.strides),
            self.offset % 2**64,
        )
        head = b""
        if self.version is not None:
            head = VERSION.pack(*self.version, 0, 0, self.flags)
        memory = ctypes.create_string_buffer(head + body + bytes(64))
        name = ctypes.create_string_buffer(self.name)
        self.kept += [memory, name]
        return _new(ctypes.addressof(memory), ctypes.cast(name, ctypes.c_char_p), None)

    def _words(self, values: tuple[int, ...] | None) -> int:
        if values is None:
            return 0
        words = (ctypes.c_int64 * (len(values) + 64))(*values)
        self.kept.append(words)
        return ctypes.addressof(words)


def fields_of(array: Array) -> Fields:
    """The structure that tells the truth about an array."""
    return Fields(
        array.__array_interface__["data"][0],
        array.ndim,
        4 if array.dtype.name == "bfloat16" else _CODES[array.dtype.kind],
        array.itemsize * 8,
        1,
        array.shape,
        tuple(s // array.itemsize for s in array.strides),
        kept=[array],
    )


class Exporter:
    """An object with `__dlpack__` and `__dlpack_device__`, which give `capsule` and `device`."""

    def __init__(self, fields: Fields, device: Any = (1, 0), capsule: Any = None) -> None:
        self.fields, self.device, self.given = fields, device, capsule

    def __dlpack_device__(self) -> Any:
        return self.device() if callable(self.device) else self.device

    def __dlpack__(self, **options: Any) -> Any:
        if callable(self.given):
            return self.given(**options)
        return self.fields.capsule() if self.given is None else self.given


class Unversioned(Exporter):
    """An exporter of the first protocol, which takes no options."""

    def __dlpack__(self) -> Any:  # type: ignore[override]
        return super().__dlpack__()

"""Arrays of other libraries on the driver of our own: by DLPack, its C functions, or CUDA's way."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tilewright.runtime import dlpack
from tilewright.runtime.cuda_interface import TYPESTRS
from tilewright.runtime.cuda_memory import DeviceArray

from ..attack.capsules import Fields

Array = np.ndarray[Any, Any]


class Foreign:
    """A device array of a library without an interface: what the others have in common."""

    def __init__(self, values: Array, ordinal: int = 0) -> None:
        self.own = DeviceArray.of(values, ordinal)
        self.view = self.own.view
        self.ordinal = ordinal

    def numpy(self) -> Array:
        return self.own.numpy()

    def changed(self, **changes: Any) -> Any:
        """The array with other fields of its view."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.view = self.view._replace(**changes)
        return other


class Exported(Foreign):
    """By DLPack's capsules; `streams` are those that it was asked to order its work before."""

    device = dlpack.CUDA

    def __init__(self, values: Array, ordinal: int = 0) -> None:
        super().__init__(values, ordinal)
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, self.ordinal

    def __dlpack__(self, *, stream: int | None = None, **_options: Any) -> object:
        self.streams.append(stream)
        self.fields = self.described()
        return self.fields.capsule()

    def described(self) -> Fields:
        view = self.view
        code, bits = dlpack.CODES[view.dtype]
        return Fields(
            data=view.pointer,
            rank=len(view.shape),
            code=code,
            bits=bits,
            lanes=1,
            shape=view.shape,
            strides=tuple(n * 8 // bits for n in view.byte_strides),
            device=self.device,
            index=self.ordinal,
            flags=int(view.read_only),
        )


class Interfaced(Foreign):
    """By the CUDA array interface; `stream` is the one that it says."""

    stream: int | None = None

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        view = self.view
        return {
            "shape": view.shape,
            "typestr": TYPESTRS[view.dtype],
            "data": (view.pointer, view.read_only),
            "strides": view.strides,
            "version": 3,
            "stream": self.stream,
        }


class Library:
    """A library whose arrays have DLPack's C functions; `stream` is where it works now."""

    def __init__(self) -> None:
        self.stream = 0
        self.described = 0
        library = self

        def describe(value: Any, out: int) -> int:
            library.described += 1
            fields = value.described()
            value.fields = fields
            shape, strides = fields._words(fields.shape), fields._words(fields.strides)
            packed = dlpack.TENSOR.pack(
                fields.data,
                fields.device,
                fields.index,
                fields.rank,
                fields.code,
                fields.bits,
                1,
                shape,
                strides,
                0,
            )
            ctypes.memmove(out, packed, len(packed))
            return 0

        def current_stream(device: int, ordinal: int, out: int) -> int:
            ctypes.c_void_p.from_address(out).value = library.stream or None
            return 0

        self.kept = (
            ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(describe),
            ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)(
                current_stream
            ),
        )
        addresses = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in self.kept]
        self.table = ctypes.create_string_buffer(
            dlpack.VERSION.pack(1, 3, 0, 0, 0)[:8]
            + b"".join(a.to_bytes(8, "little") for a in (0, 0, 0, 0, *addresses))
        )
        self.name = ctypes.create_string_buffer(b"dlpack_exchange_api")
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        name = ctypes.cast(self.name, ctypes.c_char_p)
        capsule = new(ctypes.addressof(self.table), name, None)
        self.Tensor = type("Tensor", (Exported,), {"__dlpack_c_exchange_api__": capsule})

    def array(self, values: Array) -> Any:
        return self.Tensor(values)

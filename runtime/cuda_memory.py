"""The memory of a CUDA device: arrays of torch, CuPy and pycuda, and arrays of our own."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, ClassVar

import numpy as np

from ..base import dtypes
from ..base.errors import ArgumentError, DeviceError, OutOfMemoryError
from . import dlpack
from .cuda_driver import Device, Place, driver
from .cuda_interface import NAME, TYPESTRS, Exchange, exchange_of, matcher, read_interface
from .host_memory import is_array
from .memory import ON_DEVICE, TORCH, ArrayLibrary, Memory, OneBinder, View
from .signature import Argument, compact_strides

ALIGNMENT = 16
"""Bytes: the widest access of a thread."""
ALLOCATION_ALIGNMENT = 256
"""Bytes: what the driver aligns memory to."""
_MAKE = "DeviceArray.of"


class Owners(list[Any]):
    """The owners of the arguments of a call on a stream.

    `exchanges` are the functions of the classes of arrays whose work is ordered before the call,
    and `producers` the streams that have to be.
    """

    __slots__ = ("exchanges", "producers", "stream")

    def __init__(self, stream: int) -> None:
        super().__init__()
        self.stream = stream
        self.exchanges: list[Exchange] = []
        self.producers: list[int] = []

    def comes_after(self, stream: int) -> None:
        """Have the call wait for what was submitted to a stream."""
        if stream != self.stream and stream not in self.producers:
            self.producers.append(stream)


class Allocation:
    """Memory of a device, freed when nobody holds this object."""

    def __init__(self, device: Device, size: int) -> None:
        """Raises `MemoryError`, as numpy does for memory of the host."""
        try:
            self.address = device.allocate(size) if size else 0
        except OutOfMemoryError as error:
            raise MemoryError(str(error)) from error
        self.size = size
        if size:
            finalizer = weakref.finalize(self, _free, device, self.address)
            finalizer.atexit = False  # the driver frees all of it then


def _free(device: Device, address: int) -> None:
    with suppress(DeviceError):  # a device that has failed has no memory to free
        device.free(address)


class DeviceArray:
    """An array of this package in the memory of a CUDA device.

    `of` copies an array of the host to the device, `numpy` copies it back. Other libraries take it
    without a copy, by `__cuda_array_interface__`: `torch.as_tensor(array)`, `cupy.asarray(array)`.
    """

    def __init__(self, view: View, memory: CudaMemory) -> None:
        self.view, self.memory = view, memory
        self.shape, self.dtype = view.shape, view.dtype

    @classmethod
    def of(cls, values: Any, ordinal: int | None = None) -> DeviceArray:
        """A copy of an array of the host, on a device or on the one that this thread uses.

        Raises `OutOfMemoryError`, and `TargetError` where there is no device.
        """
        source = np.ascontiguousarray(values).reshape(np.shape(values))
        memory = cuda_memory(driver().current() if ordinal is None else ordinal)
        argument = Argument("values", dtypes.from_numpy(source.dtype), source.shape)
        made: DeviceArray = memory.empty(argument)
        memory.write(made.view, source)
        return made

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy on the host, once all calls are done."""
        return self.memory.read(self.view)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<DeviceArray {self.shape} {self.dtype} on cuda:{self.memory.ordinal}>"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        view = self.view
        return {
            "shape": view.shape,
            "typestr": TYPESTRS[view.dtype],
            "data": (view.pointer, view.read_only),
            "strides": view.strides,
            "version": 3,
            "stream": None,
        }


class CudaMemory(Memory):
    """The memory of one device. What it reads and writes comes after all calls."""

    library: ClassVar[str] = "cupy"
    usual_offset: ClassVar[int] = 0

    def __init__(self, device: Device) -> None:
        self.device = device

    def library_of(self, value: object) -> ArrayLibrary:
        if isinstance(value, DeviceArray):
            return ON_DEVICE
        torch = type(value).__module__.partition(".")[0] == "torch"
        return TORCH if torch else super().library_of(value)

    @property
    def ordinal(self) -> int:
        return self.device.facts.ordinal

    def view(self, value: Any, name: str) -> View:
        return self.exported(value, name, None)

    def lent(self, value: Any, name: str, owners: list[Any]) -> View:
        return self.exported(value, name, owners if isinstance(owners, Owners) else None)

    def exported(self, value: Any, name: str, owners: Owners | None) -> View:
        """The memory of an array, ordered before a call if there is one."""
        if isinstance(value, DeviceArray):
            self._check_place(Place(value.memory.ordinal), name)
            return value.view
        if is_array(value):
            raise ArgumentError(
                "argument {0}: expected memory on cuda:{1}, found a numpy array on the host",
                name,
                self.ordinal,
                hint=f"pass torch.from_numpy({name}).cuda(), cupy.asarray({name}), or "
                f"{_MAKE}({name}) of tilewright.runtime, and copy results back",
            )
        if not _has(value, "__dlpack__") and _has(value, NAME):
            return self._interface(value, name, owners)
        stream = dlpack.NO_STREAM if owners is None else owners.stream or dlpack.LEGACY_STREAM
        exchange = exchange_of(type(value))
        if exchange is not None:
            stream = dlpack.NO_STREAM
            self._order(exchange, owners)
        found = dlpack.view(value, name, dlpack.CUDA, _MAKE, index=self.ordinal, stream=stream)
        return found._replace(owner=(value, found.owner))

    def _interface(self, value: Any, name: str, owners: Owners | None) -> View:
        view, stream = read_interface(value, name)
        if view.pointer:
            self._check_place(self.device.place_of(view.pointer), name)
        if stream is not None and owners is not None:
            owners.comes_after(stream)
        return view

    def _order(self, exchange: Exchange, owners: Owners | None) -> None:
        """Order the work of a library before a call."""
        if owners is not None and exchange not in owners.exchanges:
            owners.exchanges.append(exchange)
            owners.comes_after(exchange.stream(self.ordinal))

    def _check_place(self, place: Place | None, name: str) -> None:
        if place == (self.ordinal, True):
            return
        if place is None:
            found, hint = "memory of no device", "pass an array that is on the device"
        elif place.ordinal != self.ordinal:
            found = f"an array on cuda:{place.ordinal}"
            hint = (
                "copy it there, or load the kernel while the array's device is in use, after "
                f"torch.cuda.set_device({place.ordinal}) for instance"
            )
        else:
            found = "an array in another context of that device"
            hint = "import pycuda.autoprimaryctx in place of pycuda.autoinit"
        raise ArgumentError(
            "argument {0}: expected memory on cuda:{1}, found {2}",
            name,
            self.ordinal,
            found,
            hint=hint,
        )

    def array(self, view: View) -> DeviceArray:
        return DeviceArray(view, self)

    def free_bytes(self) -> int:
        return self.device.memory_info()[0]

    def allocate(self, size: int) -> DeviceArray:
        owner = Allocation(self.device, size)
        return DeviceArray(View(owner.address, "uint8", (size,), None, False, owner), self)

    def read(self, view: View) -> np.ndarray[Any, Any]:
        """A copy of the elements on the host."""
        return self._elements(view, self._read(view))

    def write(self, view: View, values: Any) -> None:
        compact = view.is_compact
        span = np.empty(self._span(view)[1], np.uint8) if compact else self._read(view)
        self._elements(view, span)[...] = values
        self.device.synchronize()
        if span.size:
            self.device.upload(view.pointer + self._span(view)[0], span)

    def copy_in(self, destination: View, source: np.ndarray[Any, Any]) -> None:
        if source.nbytes:
            self.device.upload(destination.pointer, source)

    def copy_out(self, destination: np.ndarray[Any, Any], source: View) -> None:
        if destination.nbytes:
            self.device.download(destination, source.pointer)

    def copy(self, destination: View, source: View) -> None:
        """On the default stream, on which calls are."""
        size = self._span(source)[1]
        if size:
            self.device.copy(destination.pointer, source.pointer, size, 0)

    def _read(self, view: View) -> np.ndarray[Any, Any]:
        """The bytes of the host that an array spans."""
        self.device.synchronize()
        low, size = self._span(view)
        span = np.empty(size, np.uint8)
        if size:
            self.device.download(span, view.pointer + low)
        return span

    @staticmethod
    def _span(view: View) -> tuple[int, int]:
        """The first byte of an array, counted from its address, and the number of bytes."""
        itemsize = dtypes.nbytes(view.dtype)
        if 0 in view.shape:
            return 0, 0
        reaches = [(n - 1) * s for n, s in zip(view.shape, view.byte_strides, strict=True)]
        low = sum(r for r in reaches if r < 0)
        return low, sum(r for r in reaches if r > 0) - low + itemsize

    def _elements(self, view: View, span: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.ndarray(
            view.shape,
            dtypes.to_numpy(view.dtype),
            span.data,
            -self._span(view)[0],
            view.byte_strides,
        )

    def synchronize(self, seconds: float | None = None) -> None:
        if seconds is None:
            self.device.synchronize()
        else:
            _synchronize_within(self.device, seconds)

    def alignment(self, argument: Argument) -> int:
        return max(ALIGNMENT, argument.itemsize)

    def binder(self, argument: Argument, checked: OneBinder) -> OneBinder:
        """Arrays that match exactly need no view."""
        dtype, shape, strides = argument.dtype, argument.shape, argument.element_strides
        match = matcher(dtype, shape, strides, self.ordinal)
        mask, ordinal = self.alignment(argument) - 1, self.ordinal
        compact = strides == compact_strides(shape)

        def bind(value: Any, owners: Any) -> int:
            if type(value) is DeviceArray:
                view = value.view
                if (
                    compact
                    and view.strides is None
                    and view.dtype == dtype
                    and view.shape == shape
                    and value.memory.ordinal == ordinal
                    and not view.pointer & mask
                    and not view.read_only
                ):
                    return view.pointer
            else:
                exchange = exchange_of(type(value))
                if exchange is not None:
                    pointer = match(exchange, value)
                    if pointer is not None and not pointer & mask:
                        if exchange not in owners.exchanges:
                            self._order(exchange, owners)
                        return pointer
            return checked(value, owners)  # type: ignore[no-any-return]

        return bind

    def address_reader(self) -> Callable[[Any], int]:
        return lambda array: array.view.pointer


def _synchronize_within(device: Device, seconds: float) -> None:
    """Wait in another thread, which waits on where the device is not done in time."""
    failures: list[Exception] = []

    def wait() -> None:
        try:
            device.synchronize()
        except DeviceError as error:
            failures.append(error)

    thread = threading.Thread(target=wait, name="synchronize", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise DeviceError(
            "a kernel on {0} still runs after {1} s",
            device.facts.name,
            seconds,
            hint="only the end of this process ends it, if it never ends by itself",
            sticky=True,
        )
    if failures:
        raise failures[0]


def _has(value: Any, attribute: str) -> bool:
    """Whether an object has an attribute, whose code may raise anything."""
    try:
        return hasattr(value, attribute)
    except Exception:  # noqa: BLE001
        return True  # who reads it says what it raises


def cuda_memory(ordinal: int) -> CudaMemory:
    """The memory of a device. Raises `TargetError` where there is none."""
    return _memory(driver().device(ordinal))


@cache
def _memory(device: Device) -> CudaMemory:
    return CudaMemory(device)

"""Calls of compiled functions on a CUDA device: check the arguments, then launch their kernels.

A call returns when its kernels are submitted to a stream. Beside the checks it fills a `_Pack`: a
slot of 8 bytes for each parameter of the entry point, and for each kernel an array of pointers to
the slots that it takes.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Sequence
from contextlib import suppress
from ctypes import addressof, c_uint64, c_void_p
from functools import cache
from typing import Any, ClassVar

from ..base.errors import DeviceError
from ..target.occupancy import occupancy
from .argument_checks import make_binder
from .cuda_driver import CAPTURED, Device, Function
from .cuda_interface import NAME, exchange_of, read_interface, stream_handle
from .cuda_launch import KernelLaunch
from .cuda_memory import CudaMemory, DeviceArray, Owners
from .cuda_workspace import StreamPool
from .ranges import make_range_check
from .signature import C_TYPES, Signature
from .workspace import workspace_binder

_SLOT = 8
_FORMATS = {
    "int8_t": "b",
    "int16_t": "h",
    "int32_t": "i",
    "int64_t": "q",
    "uint8_t": "B",
    "uint16_t": "H",
    "uint32_t": "I",
    "uint64_t": "Q",
    "float": "f",
    "double": "d",
}
_PLAIN_SHARED = 48 << 10
"""Shared memory of a block that a kernel need not be allowed to have."""


class LoadedImage:
    """The code of an image on a device, unloaded when nobody holds it."""

    def __init__(self, device: Device, image: bytes) -> None:
        self.device = device
        self.module = device.load(image)
        finalizer = weakref.finalize(self, _unload, device, self.module)
        finalizer.atexit = False  # the driver unloads all of it then

    def function(self, launch: KernelLaunch) -> Function:
        """The kernel of a launch. Raises `DeviceError` where the device cannot launch it so."""
        function = self.device.function(self.module, launch.symbol)
        facts, limits = self.device.facts, []
        if launch.threads > function.max_threads:
            limits.append(
                f"a block of {launch.threads} threads with {function.registers} registers each, "
                f"at most {function.max_threads} threads"
            )
        shared = function.shared_bytes + launch.shared_bytes
        if shared > facts.shared_bytes:
            limits.append(f"{shared} bytes of shared memory, at most {facts.shared_bytes} a block")
        if limits:
            raise DeviceError(
                "{0} cannot launch {1}: it has {2}",
                facts.name,
                launch.symbol,
                ", and ".join(limits),
                hint="build the kernel for this device, or with a schedule that takes less",
            )
        if shared > _PLAIN_SHARED:
            self.device.allow_shared(function, launch.shared_bytes)
        return function


def _unload(device: Device, module: int) -> None:
    with suppress(DeviceError):  # a device that has failed has no code to unload
        device.unload(module)


class _Pack:
    """The parameters of one call, in memory from which the driver copies them."""

    __slots__ = ("pointers", "slots")

    def __init__(self, count: int, kernels: Sequence[KernelLaunch]) -> None:
        self.slots = (c_uint64 * count)()
        first = addressof(self.slots)
        self.pointers = [
            (c_void_p * len(k.arguments))(*(first + _SLOT * n for n in k.arguments))
            for k in kernels
        ]


class CudaKernel:
    """A function of an image: its kernels on one device."""

    options: ClassVar[tuple[str, ...]] = ("workspace", "stream")

    def __init__(
        self,
        signature: Signature,
        kernels: Sequence[KernelLaunch],
        image: LoadedImage,
        memory: CudaMemory,
    ) -> None:
        self.signature, self.kernels = signature, tuple(kernels)
        self.memory, self.device, self.image = memory, memory.device, image
        self.functions = [image.function(launch) for launch in kernels]
        self.launch = self.device.launcher([*zip(self.functions, kernels, strict=True)])
        self.binder = make_binder(signature, memory)
        self.workspace_binder = workspace_binder(signature, memory)
        self.check_ranges = make_range_check(signature, memory)
        self.pool = stream_pool(self.device) if signature.workspace_bytes else None
        kinds = (
            "Q" if a.kind == "tensor" else _FORMATS[C_TYPES[a.dtype]] for a in signature.arguments
        )
        sizes = ((kind, _SLOT - struct.calcsize(f"={kind}")) for kind in kinds)
        self.fill = struct.Struct("=" + "".join(f"{k}{n}x" for k, n in sizes) + "Q").pack_into
        self._packs: list[_Pack] = []
        self._events: list[int] = []

    def __call__(self, *arguments: Any) -> None:
        self.call(arguments)

    def call(self, arguments: tuple[Any, ...], workspace: Any = None, stream: Any = None) -> None:
        owners = self._owners(arguments) if stream is None else Owners(stream_handle(stream))
        values, pointer = self._bound(arguments, workspace, owners)
        if pointer is None:
            self.submit(values, owners.stream)
        else:
            self.launch_with(values, owners.stream, pointer)

    def bind(
        self, arguments: tuple[Any, ...], workspace: Any = None, stream: Any = None
    ) -> CudaCall:
        owners = self._owners(arguments) if stream is None else Owners(stream_handle(stream))
        values, pointer = self._bound(arguments, workspace, owners)
        return CudaCall(self, values, owners.stream, pointer, owners)

    def _bound(
        self, arguments: tuple[Any, ...], workspace: Any, owners: Owners
    ) -> tuple[list[Any], int | None]:
        """The values of a call and the address of the caller's workspace, checked and ordered."""
        values, _ = self.binder(arguments, owners)
        if self.check_ranges is not None:
            self.check_ranges(values)
        pointer = None
        if workspace is not None:
            pointer = self.workspace_binder(workspace, values, owners)
        if owners.producers:
            self._order(owners)
        return values, pointer

    def submit(self, values: Sequence[Any], stream: int) -> None:
        """Submit a call whose values of a `value_range` were checked."""
        if self.pool is None:
            self.launch_with(values, stream, 0)
            return
        workspace = self.pool.take(self.signature, stream)
        try:
            self.launch_with(values, stream, workspace.memory.address, workspace.event)
        except DeviceError as error:
            if error.code in CAPTURED:
                raise self.pool.captured(self.signature) from error
            raise
        finally:
            self.pool.give_back(workspace)

    def pack(self, values: Sequence[Any], workspace: int) -> _Pack:
        """The parameters of a call in memory of their own."""
        pack = _Pack(len(self.signature.arguments) + 1, self.kernels)
        self.fill(pack.slots, 0, *values, workspace)
        return pack

    def launch_with(
        self, values: Sequence[Any], stream: int, workspace: int, event: int = 0
    ) -> None:
        """Submit a call that computes in the workspace at an address, in order by its `event`."""
        try:
            pack = self._packs.pop()  # atomic: each thread has its own
        except IndexError:
            pack = _Pack(len(self.signature.arguments) + 1, self.kernels)
        self.fill(pack.slots, 0, *values, workspace)
        self.launch(stream, pack.pointers, event)
        self._packs.append(pack)

    def _owners(self, arguments: Sequence[Any]) -> Owners:
        """The call's stream: that on which the library of the first array works that says one."""
        for value in arguments:
            exchange = exchange_of(type(value))
            if exchange is not None:
                owners = Owners(exchange.stream(self.memory.ordinal))
                owners.exchanges.append(exchange)
                return owners
            stream = _stream_of(value)
            if stream is not None:
                return Owners(stream)
        return Owners(0)

    def _order(self, owners: Owners) -> None:
        """Have a call come after what was submitted to the streams of its arguments."""
        for stream in owners.producers:
            try:
                event = self._events.pop()  # atomic: each thread has its own
            except IndexError:
                event = self.device.new_event()
            self.device.record(event, stream)
            self.device.wait(owners.stream, event)
            self._events.append(event)

    @property
    def resources(self) -> dict[str, dict[str, int | float]]:
        """What each kernel takes, by its symbol; see `Module.resources`."""
        facts, found = self.device.facts, {}
        for launch, function in zip(self.kernels, self.functions, strict=True):
            blocks = self.device.resident_blocks(function, launch.threads, launch.shared_bytes)
            told = launch.resources
            found[launch.symbol] = {
                "registers": function.registers,
                "local_bytes": function.local_bytes,
                **(
                    {}
                    if told is None
                    else {
                        "spill_store_bytes": told.spill_store_bytes,
                        "spill_load_bytes": told.spill_load_bytes,
                    }
                ),
                "shared_bytes": function.shared_bytes + launch.shared_bytes,
                "threads": launch.threads,
                "blocks": launch.grid[0] * launch.grid[1] * launch.grid[2],
                "blocks_per_sm": blocks,
                "occupancy": occupancy(blocks, launch.threads, facts.sm_threads),
            }
        return found


class CudaCall:
    """A call with arguments that were checked, on a stream.

    The timer submits it in its own way. `values` are the addresses and numbers that its kernels
    take, `workspace` is the address of the caller's, and `tensors` are addresses and bytes.
    """

    def __init__(
        self,
        kernel: CudaKernel,
        values: Sequence[Any],
        stream: int,
        workspace: int | None,
        owners: Any,
    ) -> None:
        self.kernel, self.values, self.stream = kernel, values, stream
        self.workspace, self._owners = workspace, owners
        prepared = workspace is not None or kernel.pool is None
        self._pack = kernel.pack(values, workspace or 0) if prepared else None

    def __call__(self) -> None:
        if self.kernel.check_ranges is not None:
            self.kernel.check_ranges(self.values)
        if self._pack is None:
            self.kernel.submit(self.values, self.stream)
        else:
            self.kernel.launch(self.stream, self._pack.pointers, 0)

    @property
    def tensors(self) -> list[tuple[int, int]]:
        given = zip(self.kernel.signature.arguments, self.values, strict=True)
        return [(value, a.span_bytes) for a, value in given if a.kind == "tensor"]

    def with_tensors(self, addresses: Sequence[int]) -> list[Any]:
        """The values with other addresses of the tensors."""
        pending, arguments = iter(addresses), self.kernel.signature.arguments
        given = zip(arguments, self.values, strict=True)
        return [next(pending) if a.kind == "tensor" else value for a, value in given]


@cache
def stream_pool(device: Device) -> StreamPool:
    """The workspaces of this process on a device."""
    return StreamPool(device)


def _stream_of(value: Any) -> int | None:
    """The stream that an array says it is valid on."""
    if type(value) is DeviceArray:
        return None
    try:
        fields = getattr(value, NAME, None)
        return None if fields is None else read_interface(value, "").stream
    except Exception:  # noqa: BLE001  the object's own code; the binder says what it raises
        return None

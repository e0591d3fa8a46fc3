"""What the runtime asks of the driver of CUDA devices.

`Driver` and `Device` are a protocol. That of a machine is `cuda_pycuda.py`, the one file that knows
pycuda and the driver's library. Tests put their own in its place by `use_driver`.

Contexts are the primary ones, which other libraries use too: their arrays and streams are valid
here. Handles are integers. Stream 0 is the default one, which waits for the other streams and they
for it, unless they were created as non-blocking. All functions may be called from any thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..base.errors import DeviceError, OutOfMemoryError, TilewrightError
from .cuda_launch import KernelLaunch

Launcher: TypeAlias = Callable[[int, Sequence[Any], int], None]
"""Launches kernels on a stream; for each there is an array of pointers to its parameters.

With an event other than 0, they wait for what it was recorded of, and it is recorded after them.
"""

OUT_OF_MEMORY = 2
BAD_IMAGE = frozenset({200, 209, 218, 222, 223, 300})
"""Images that are damaged, or for another architecture."""
CAPTURED = frozenset(range(900, 909))
"""What cannot go into a graph, on a stream whose work does."""
ILLEGAL_ADDRESS = 700
OUT_OF_RESOURCES = 701
LAUNCH_TIMEOUT = 702
"""A kernel ran longer than the system allows on a device with a display."""
_STICKY = {
    214: "an uncorrectable error of its memory",
    220: "an uncorrectable error of NVLink",
    226: "an error that ended the work of this process",
    ILLEGAL_ADDRESS: "an access to an illegal address",
    LAUNCH_TIMEOUT: "a kernel that ran longer than the system allows",
    709: "a context that was destroyed",
    710: "a failed assertion",
    714: "an error in a thread's stack",
    715: "an illegal instruction",
    716: "an access to an address that is not aligned",
    717: "an access to the wrong kind of memory",
    718: "an invalid program counter",
    719: "a kernel that failed",
}
_FAILED = "The kernel that failed is this one or an earlier one; compute-sanitizer finds the access"
_TOO_LONG = "Compute smaller sizes at a time, or use a device without a display: it has no limit"
_HINTS = {
    1: "a launch has wrong extents, or more shared memory than the device gives to a block",
    3: "a forked process cannot use the device of its parent: start processes by spawn",
    46: "another process may use it exclusively",
    OUT_OF_RESOURCES: "build the kernel with fewer threads in a block, or with fewer registers",
    802: "the system is still starting, or a service of it (nvidia-fabricmanager) does not run",
    803: "the driver was updated: restart the machine",
    804: "update the driver",
}


@dataclass(frozen=True)
class DeviceFacts:
    """What the driver says of a device. Sizes are in bytes.

    `shared_bytes` are of a block, `sm_shared_bytes` of a multiprocessor; so are the registers.
    """

    ordinal: int
    name: str
    capability: tuple[int, int]
    sms: int
    memory_bytes: int
    l2_bytes: int
    shared_bytes: int
    sm_shared_bytes: int
    block_registers: int
    sm_registers: int
    block_threads: int
    sm_threads: int
    pci_bus_id: str
    driver_version: tuple[int, int]

    @property
    def arch(self) -> str:
        """The architecture as compilers name it, `sm_90`."""
        return "sm_{}{}".format(*self.capability)


class Place(NamedTuple):
    """A device, and whether its memory is that of the primary context."""

    ordinal: int
    primary: bool = True


class Function(NamedTuple):
    """A kernel of a loaded image.

    `local_bytes` are of a thread: stack and spilled registers. `shared_bytes` are those that its
    code declares. `max_threads` of a block are possible with its registers.
    """

    handle: int
    symbol: str
    registers: int
    local_bytes: int
    shared_bytes: int
    max_threads: int


class Device(ABC):
    """One device.

    What fails raises `DeviceError`. That may be because of an earlier call, which failed meanwhile.
    """

    facts: DeviceFacts

    # Memory

    @abstractmethod
    def allocate(self, size: int) -> int:
        """The address of new memory, a multiple of 256. Raises `OutOfMemoryError`."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Free memory of `allocate`, once work that was submitted is done."""

    @abstractmethod
    def memory_info(self) -> tuple[int, int]:
        """The bytes that are free, and all."""

    @abstractmethod
    def upload(self, address: int, source: np.ndarray[Any, Any]) -> None:
        """Copy a compact array of the host to the device; done when it returns."""

    @abstractmethod
    def download(self, destination: np.ndarray[Any, Any], address: int) -> None:
        """Copy to a compact array of the host; done when it returns."""

    @abstractmethod
    def copy(self, destination: int, source: int, size: int, stream: int) -> None:
        """Copy within the device, on a stream."""

    @abstractmethod
    def fill(self, address: int, byte: int, size: int, stream: int) -> None:
        """Set bytes, on a stream."""

    @abstractmethod
    def place_of(self, address: int) -> Place | None:
        """Where the memory at an address is; `None` where no device has it."""

    # Code

    @abstractmethod
    def load(self, image: bytes) -> int:
        """Load a cubin; returns its module."""

    @abstractmethod
    def unload(self, module: int) -> None:
        """Unload a module, once none of its kernels runs."""

    @abstractmethod
    def function(self, module: int, symbol: str) -> Function:
        """A kernel of a module by its name."""

    @abstractmethod
    def allow_shared(self, function: Function, size: int) -> None:
        """Let launches of a kernel have so much dynamic shared memory."""

    @abstractmethod
    def resident_blocks(self, function: Function, threads: int, shared_bytes: int) -> int:
        """The number of blocks that a multiprocessor runs at once."""

    @abstractmethod
    def launcher(self, launches: Sequence[tuple[Function, KernelLaunch]]) -> Launcher:
        """A function that launches kernels one after the other."""

    # Streams, events and graphs

    @abstractmethod
    def new_stream(self) -> int:
        """A new stream, which does not wait for the default one."""

    @abstractmethod
    def free_stream(self, stream: int) -> None:
        """Free a stream of `new_stream`; what was submitted to it still runs."""

    @abstractmethod
    def synchronize_stream(self, stream: int) -> None:
        """Wait until all work of a stream is done."""

    @abstractmethod
    def is_capturing(self, stream: int) -> bool:
        """Whether what is submitted to a stream goes into a graph."""

    @abstractmethod
    def new_event(self, *, timed: bool = False) -> int:
        """A new event, done until it is recorded."""

    @abstractmethod
    def free_event(self, event: int) -> None:
        """Free an event of `new_event`."""

    @abstractmethod
    def record(self, event: int, stream: int) -> None:
        """Have the event be done when what was submitted to the stream so far is."""

    @abstractmethod
    def wait(self, stream: int, event: int) -> None:
        """Have later work of a stream wait for what the event was last recorded of."""

    @abstractmethod
    def is_done(self, event: int) -> bool:
        """Whether what an event was last recorded of is done."""

    @abstractmethod
    def seconds(self, start: int, end: int) -> float:
        """The seconds between two timed events that are done."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all work of the device is done that this process has submitted."""

    @abstractmethod
    def capture(self, stream: int, submit: Callable[[], object]) -> int:
        """A graph of what `submit` submits to a stream, which is not the default one."""

    @abstractmethod
    def replay(self, graph: int, stream: int) -> None:
        """Submit all of a graph to a stream."""

    @abstractmethod
    def free_graph(self, graph: int) -> None:
        """Free a graph of `capture`, once it is done."""


class Driver(ABC):
    """The devices of a machine."""

    @abstractmethod
    def device(self, ordinal: int) -> Device:
        """A device, always the same object for its ordinal.

        Raises `TargetError` where there is none, and `DeviceError` where it cannot be used.
        """

    @abstractmethod
    def current(self) -> int:
        """The ordinal of the device that this thread uses; 0 where it uses none yet."""

    @abstractmethod
    def facts(self) -> list[DeviceFacts]:
        """All devices. Raises `TargetError` where there are none."""


def driver_error(code: int, name: str, doing: str, *arguments: Any) -> TilewrightError:
    """The error for a number of the driver's other than 0, whose `name` is the driver's too.

    `doing` and `arguments` say what was asked for: `to copy {0} bytes`.
    """
    if code == OUT_OF_MEMORY:
        return OutOfMemoryError(
            f"the device has no memory left {doing}",
            *arguments,
            hint="free arrays (torch.cuda.empty_cache() for those of torch), or use smaller ones",
            code=code,
        )
    if code in _STICKY:
        return DeviceError(
            f"the device reports {_STICKY[code]}, asked {doing}: {name}",
            *arguments,
            hint="this process cannot use the device any more: start another one. "
            f"{_TOO_LONG if code == LAUNCH_TIMEOUT else _FAILED}",
            code=code,
            sticky=True,
        )
    return DeviceError(
        f"the device refuses {doing}: {name}", *arguments, hint=_HINTS.get(code), code=code
    )


_driver: list[Driver] = []


def driver() -> Driver:
    """The driver of this machine. Raises `TargetError` where there is none, or no pycuda."""
    if not _driver:
        from .cuda_pycuda import open_driver

        _driver.append(open_driver())
    return _driver[-1]


@contextmanager
def use_driver(other: Driver) -> Iterator[None]:
    """Have another driver in place of the machine's."""
    _driver.append(other)
    try:
        yield
    finally:
        _driver.pop()

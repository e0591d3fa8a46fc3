"""A driver of our own: memory of numpy, and launches that Python functions execute.

Work that is submitted waits: it runs when somebody waits for it, as late as a real device may run
it, and only what has to be done for that. Streams, events and the default stream order work as the
driver's documentation says. What is not ordered runs in the worst order. Times are those of a clock
of the device, which kernels advance.

Images are made of bytes and kernels by `DoubleDriver.provide`. Faults are planted in the kernels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_uint64, c_void_p
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import TargetError
from tilewright.runtime.cuda_driver import (
    ILLEGAL_ADDRESS,
    OUT_OF_MEMORY,
    OUT_OF_RESOURCES,
    Device,
    DeviceFacts,
    Driver,
    Function,
    Launcher,
    Place,
    driver_error,
)
from tilewright.runtime.cuda_launch import KernelLaunch

Array = np.ndarray[Any, Any]
AWAY = 1 << 56
"""Device addresses are so far from those of the host, which cannot use them."""
ALIGNMENT = 256
_CAPTURE_UNSUPPORTED = 900
NAMES = {
    1: "CUDA_ERROR_INVALID_VALUE",
    OUT_OF_MEMORY: "CUDA_ERROR_OUT_OF_MEMORY",
    200: "CUDA_ERROR_INVALID_IMAGE",
    209: "CUDA_ERROR_NO_BINARY_FOR_GPU",
    400: "CUDA_ERROR_INVALID_HANDLE",
    500: "CUDA_ERROR_NOT_FOUND",
    ILLEGAL_ADDRESS: "CUDA_ERROR_ILLEGAL_ADDRESS",
    OUT_OF_RESOURCES: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    _CAPTURE_UNSUPPORTED: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
}

H200 = DeviceFacts(
    ordinal=0,
    name="NVIDIA H200",
    capability=(9, 0),
    sms=132,
    memory_bytes=1 << 24,
    l2_bytes=1 << 16,
    shared_bytes=227 << 10,
    sm_shared_bytes=228 << 10,
    block_registers=65536,
    sm_registers=65536,
    block_threads=1024,
    sm_threads=2048,
    pci_bus_id="0000:8d:00.0",
    driver_version=(13, 0),
)
"""An H200 with little memory and a small cache."""


class Fault(Exception):
    """What a kernel raises that fails on the device, with the number of the driver's error."""

    def __init__(self, code: int = ILLEGAL_ADDRESS) -> None:
        self.code = code


@dataclass(frozen=True)
class Launched:
    """A launch as its kernel sees it; `words` are the 8 bytes of each parameter."""

    device: DoubleDevice
    symbol: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    words: tuple[int, ...]
    stream: int

    def array(self, position: int, dtype: str, shape: tuple[int, ...]) -> Array:
        """The memory at the address that a parameter is."""
        return self.device.array(self.words[position], dtype, shape)

    def number(self, position: int, dtype: str) -> Any:
        """A parameter that is a number."""
        return np.array([self.words[position]], np.uint64).view(dtypes.to_numpy(dtype))[0]


@dataclass
class DoubleKernel:
    """A kernel: the function that executes a launch of it, and what the driver says of it.

    A launch takes `seconds` of the device; an `endless` one is never done.
    """

    run: Callable[[Launched], object]
    registers: int = 32
    local_bytes: int = 0
    shared_bytes: int = 0
    max_threads: int = 1024
    seconds: float = 5e-6
    endless: bool = False


@dataclass
class Work:
    """Something that was submitted to a stream, after other work."""

    act: Callable[[], object]
    after: list[Work]
    seconds: float = 0.0
    endless: bool = False
    done: bool = False
    end: float = 0.0


@dataclass
class _Event:
    timed: bool
    work: Work | None = None


@dataclass
class _Stream:
    blocking: bool
    last: Work | None = None
    graph: list[Callable[[int], object]] | None = None


@dataclass
class _Image:
    kernels: Mapping[str, DoubleKernel]
    arch: str


@dataclass
class DoubleDriver(Driver):
    """`found` are the devices. `thread_uses` is the ordinal of the device of all threads."""

    found: Sequence[DeviceFacts] = (H200,)
    thread_uses: int = 0
    images: dict[bytes, _Image] = field(default_factory=dict)
    devices: dict[int, DoubleDevice] = field(default_factory=dict)

    def provide(
        self, image: bytes, kernels: Mapping[str, DoubleKernel], arch: str = "sm_90a"
    ) -> None:
        """Have an image load as these kernels by name."""
        self.images[image] = _Image(kernels, arch)

    def device(self, ordinal: int) -> DoubleDevice:
        if not 0 <= ordinal < len(self.found):
            raise TargetError("there is no device {0}", ordinal)
        if ordinal not in self.devices:
            self.devices[ordinal] = DoubleDevice(self, self.found[ordinal])
        return self.devices[ordinal]

    def current(self) -> int:
        return self.thread_uses

    def facts(self) -> list[DeviceFacts]:
        if not self.found:
            raise TargetError("there is no device of NVIDIA that this process may use")
        return list(self.found)


class DoubleDevice(Device):
    """`lost` is the number of the error after which nothing works any more.

    Endless kernels are done once `released` is set. `foreign` are addresses of memory in another
    context than the primary one.
    """

    def __init__(self, driver: DoubleDriver, facts: DeviceFacts) -> None:
        self.driver, self.facts = driver, facts
        self.memory: dict[int, Array] = {}
        self.taken = 0
        self.foreign: set[int] = set()
        self.lost = 0
        self.streams = {0: _Stream(blocking=True)}
        self.events: dict[int, _Event] = {}
        self.modules: dict[int, _Image] = {}
        self.functions: dict[int, DoubleKernel] = {}
        self.graphs: dict[int, list[Callable[[int], object]]] = {}
        self.shared: dict[int, int] = {}
        self.launches: list[Launched] = []
        self.clock = 0.0
        self.released = threading.Event()
        self._turn = threading.RLock()
        """Held by the thread that submits work, or runs a piece of it."""
        self._handles = count(0x1000 * (facts.ordinal + 1), 16)

    # Memory

    def allocate(self, size: int) -> int:
        self._check("to allocate {0} bytes", size)
        if self.taken + size > self.facts.memory_bytes:
            raise self._error(OUT_OF_MEMORY, "to allocate {0} bytes", size)
        whole = np.random.default_rng(size).integers(0, 256, size + ALIGNMENT, np.uint8)
        start = -whole.ctypes.data % ALIGNMENT
        memory = whole[start : start + size]
        address: int = memory.ctypes.data + AWAY
        self.memory[address] = memory
        self.taken += size
        return address

    def free(self, address: int) -> None:
        self.synchronize()
        self.taken -= self.memory.pop(address).size

    def memory_info(self) -> tuple[int, int]:
        return self.facts.memory_bytes - self.taken, self.facts.memory_bytes

    def upload(self, address: int, source: Array) -> None:
        self._check("to copy to the device")
        self.bytes_at(address, source.nbytes)[...] = source.reshape(-1).view(np.uint8)

    def download(self, destination: Array, address: int) -> None:
        self._check("to copy from the device")
        destination.reshape(-1).view(np.uint8)[...] = self.bytes_at(address, destination.nbytes)

    def copy(self, destination: int, source: int, size: int, stream: int) -> None:
        def act() -> None:
            self.bytes_at(destination, size)[...] = self.bytes_at(source, size)

        self._check("to copy")
        self._submit(stream, lambda s: self._queue(s, act))

    def fill(self, address: int, byte: int, size: int, stream: int) -> None:
        def act() -> None:
            self.bytes_at(address, size)[...] = byte

        self._check("to fill")
        self._submit(stream, lambda s: self._queue(s, act))

    def place_of(self, address: int) -> Place | None:
        for device in self.driver.devices.values():
            start = device._owner(address, 0)
            if start is not None:
                return Place(device.facts.ordinal, primary=start not in device.foreign)
        return None

    def bytes_at(self, address: int, size: int) -> Array:
        """The bytes at an address. Raises `Fault` where the device has none."""
        if not size:
            return np.empty(0, np.uint8)
        start = self._owner(address, size)
        if start is None:
            raise Fault(ILLEGAL_ADDRESS)
        return self.memory[start][address - start : address - start + size]

    def array(self, address: int, dtype: str, shape: tuple[int, ...]) -> Array:
        """The memory of a compact array."""
        size = int(np.prod(shape, dtype=np.int64)) * dtypes.nbytes(dtype)
        return self.bytes_at(address, size).view(dtypes.to_numpy(dtype)).reshape(shape)

    def _owner(self, address: int, size: int) -> int | None:
        return next(
            (s for s, m in self.memory.items() if s <= address and address + size <= s + m.size),
            None,
        )

    # Code

    def load(self, image: bytes) -> int:
        self._check("to load code")
        found = next(
            (i for given, i in self.driver.images.items() if image.startswith(given)), None
        )
        if found is None:
            raise self._error(200, "to load code")
        major, minor = self.facts.capability
        if not f"sm_{major}{minor}a".startswith(found.arch):
            raise self._error(209, "to load code")
        module = next(self._handles)
        self.modules[module] = found
        return module

    def unload(self, module: int) -> None:
        self.synchronize()
        del self.modules[module]

    def function(self, module: int, symbol: str) -> Function:
        self._check("to find {0}", symbol)
        kernel = self.modules[module].kernels.get(symbol)
        if kernel is None:
            raise self._error(500, "to find {0}", symbol)
        handle = next(self._handles)
        self.functions[handle] = kernel
        return Function(
            handle,
            symbol,
            kernel.registers,
            kernel.local_bytes,
            kernel.shared_bytes,
            kernel.max_threads,
        )

    def allow_shared(self, function: Function, size: int) -> None:
        if function.shared_bytes + size > self.facts.shared_bytes:
            raise self._error(1, "to give {0} {1} bytes", function.symbol, size)
        self.shared[function.handle] = size

    def resident_blocks(self, function: Function, threads: int, shared_bytes: int) -> int:
        shared = function.shared_bytes + shared_bytes + 1024
        return min(
            self.facts.sm_threads // threads,
            self.facts.sm_registers // (threads * function.registers),
            self.facts.sm_shared_bytes // shared,
            32,
        )

    def launcher(self, launches: Sequence[tuple[Function, KernelLaunch]]) -> Launcher:
        known = [
            (self.functions[function.handle], function, launch) for function, launch in launches
        ]

        def start(stream: int, parameters: Sequence[Any], event: int) -> None:
            if event:
                self.wait(stream, event)
            for (kernel, function, launch), pointers in zip(known, parameters, strict=True):
                self._launch(stream, kernel, function, launch, pointers)
            if event:
                self.record(event, stream)

        return start

    def _launch(
        self,
        stream: int,
        kernel: DoubleKernel,
        function: Function,
        launch: KernelLaunch,
        pointers: Any,
    ) -> None:
        self._check("to launch {0}", launch.symbol)
        if launch.threads > kernel.max_threads:
            raise self._error(OUT_OF_RESOURCES, "to launch {0}", launch.symbol)
        if launch.shared_bytes > max(self.shared.get(function.handle, 0), 48 << 10):
            raise self._error(1, "to launch {0}", launch.symbol)
        addresses = [
            c_void_p.from_buffer(pointers, 8 * n).value or 0 for n in range(len(launch.arguments))
        ]
        words = tuple(c_uint64.from_address(address).value for address in addresses)

        def queue(stream: int) -> None:
            seen = Launched(
                self, launch.symbol, launch.grid, launch.block, launch.shared_bytes, words, stream
            )
            self.launches.append(seen)
            self._queue(stream, lambda: kernel.run(seen), kernel.seconds, kernel.endless)

        self._submit(stream, queue)

    # Streams, events and graphs

    def new_stream(self) -> int:
        self._check("to make a stream")
        stream = next(self._handles)
        self.streams[stream] = _Stream(blocking=False)
        return stream

    def free_stream(self, stream: int) -> None:
        del self.streams[stream]

    def synchronize_stream(self, stream: int) -> None:
        self._check("to wait")
        self._run(self._stream(stream).last)

    def is_capturing(self, stream: int) -> bool:
        return self._stream(stream).graph is not None

    def new_event(self, *, timed: bool = False) -> int:
        self._check("to make an event")
        event = next(self._handles)
        self.events[event] = _Event(timed)
        return event

    def free_event(self, event: int) -> None:
        del self.events[event]

    def record(self, event: int, stream: int) -> None:
        self._check("to record an event")
        self.events[event].work = self._queue(stream, lambda: None)

    def wait(self, stream: int, event: int) -> None:
        self._check("to wait for an event")
        work = self.events[event].work
        if work is not None:
            self._queue(stream, lambda: None, after=[work])

    def is_done(self, event: int) -> bool:
        self._check("to ask for an event")
        if any(s.graph is not None for s in self.streams.values()):
            raise self._error(_CAPTURE_UNSUPPORTED, "to ask for an event")
        work = self.events[event].work
        return work is None or work.done

    def seconds(self, start: int, end: int) -> float:
        first, last = self.events[start], self.events[end]
        assert first.timed
        assert last.timed
        assert first.work is not None
        assert last.work is not None
        if not (first.work.done and last.work.done):
            raise self._error(600, "to read a time")
        return last.work.end - first.work.end

    def synchronize(self) -> None:
        self._check("to wait")
        for stream in self.streams.values():
            self._run(stream.last)

    def capture(self, stream: int, submit: Callable[[], object]) -> int:
        assert stream != 0
        self._check("to capture")
        graph = self._stream(stream).graph = []
        try:
            submit()
        finally:
            self._stream(stream).graph = None
        handle = next(self._handles)
        self.graphs[handle] = graph
        return handle

    def replay(self, graph: int, stream: int) -> None:
        for queue in self.graphs[graph]:
            queue(stream)

    def free_graph(self, graph: int) -> None:
        del self.graphs[graph]

    def _stream(self, stream: int) -> _Stream:
        if stream not in self.streams:
            raise self._error(400, "to use a stream")
        return self.streams[stream]

    def _submit(self, stream: int, queue: Callable[[int], object]) -> None:
        graph = self._stream(stream).graph
        if graph is None:
            queue(stream)
        else:
            graph.append(queue)

    def _queue(
        self,
        stream: int,
        act: Callable[[], object],
        seconds: float = 0.0,
        endless: bool = False,
        after: Sequence[Work] = (),
    ) -> Work:
        here = self._stream(stream)
        if here.graph is not None:
            raise self._error(_CAPTURE_UNSUPPORTED, "to capture")
        before = [here]
        if here.blocking:
            others = self.streams.values() if stream == 0 else [self.streams[0]]
            before += [other for other in others if other.blocking]
        with self._turn:
            earlier = [s.last for s in before if s.last is not None]
            here.last = work = Work(act, [*earlier, *after], seconds, endless)
        return work

    def _run(self, work: Work | None) -> None:
        """Run what a piece of work comes after, and it; other threads may run some of it."""
        pending = [] if work is None else [work]
        while pending:
            first = pending[-1]
            begins = all(w.done for w in first.after)
            if begins and first.endless and not self.released.wait(30):
                raise AssertionError("waited for a kernel that never ends")
            with self._turn:
                waiting = [w for w in first.after if not w.done]
                if first.done or waiting:
                    pending = pending[:-1] if first.done else [*pending, *waiting]
                    continue
                start = max([self.clock if not first.after else 0.0, *(w.end for w in first.after)])
                try:
                    first.act()
                except Fault as fault:
                    self.lost = fault.code
                first.end = start + first.seconds
                self.clock = max(self.clock, first.end)
                first.done, first.after = True, []
            self._check("to wait")

    def _check(self, doing: str, *arguments: Any) -> None:
        if self.lost:
            raise self._error(self.lost, doing, *arguments)

    def _error(self, code: int, doing: str, *arguments: Any) -> Exception:
        return driver_error(code, NAMES.get(code, "CUDA_ERROR_UNKNOWN"), doing, *arguments)

"""Timing on CUDA devices: by the device's own clock, on data that its caches do not have.

A sample is the time between two events around calls on a stream of the timer's. The device is kept
busy until the first call of a sample was submitted, so that it does not wait for the host. Short
kernels are replayed from a graph, because the host takes longer to launch one than the device to
run it. Calls take other copies of their arrays in turn, which fill the second-level cache twice.
Calls that are compared share all of this memory: one runs at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import repeat
from typing import NamedTuple, Unpack

from ..base.errors import DeviceError
from ..target import Target
from .cuda_driver import Device, driver
from .cuda_kernel import CudaCall, stream_pool
from .cuda_memory import ALLOCATION_ALIGNMENT, Allocation
from .memory import memory_for
from .timer import Sampler, Timer, Timing, TimingOptions, interleave_samples, time_samples

SHORT_SECONDS = 5e-5
"""Kernels of fewer seconds are replayed from graphs."""
_GRAPH_CALLS = 64
"""The calls of a graph, if its arrays have no more copies."""
_MAX_COPIES = 8192
_BUSY_BYTES = 32 << 20
"""To fill before a sample: the device takes longer for it than the host to submit a call."""


class CudaTimer(Timer):
    """Times bound calls (`CudaCall`), and functions that submit work to the default stream."""

    def time_calls(self, run: Callable[[], object], **options: Unpack[TimingOptions]) -> Timing:
        """Time calls of one kernel; see `time_samples`.

        With `before_sample` each sample is a single call after it, with the caller's own arrays.
        Raises `OutOfMemoryError` where the device has no memory for copies of the arrays.
        """
        copies = options.get("before_sample") is None
        with _samplers([run], copies=copies) as (sample,):
            return time_samples(sample, **options)

    def time_once(self, run: Callable[[], object]) -> float:
        with _samplers([run], copies=False) as (sample,):
            return sample(1, 0.0)

    def time_interleaved(
        self, runs: Sequence[Callable[[], object]], *, rounds: int, min_sample_seconds: float
    ) -> tuple[Timing, ...]:
        with _samplers(runs, copies=True) as samplers:
            return interleave_samples(
                samplers, rounds=rounds, min_sample_seconds=min_sample_seconds
            )

    def settle(self) -> None:
        """The host's threads do not disturb the device."""

    def flusher(self, target: Target) -> Callable[[], object]:
        del target  # the device that is here
        device = driver().device(driver().current())
        size = 2 * device.facts.l2_bytes
        with memory_for("no memory to flush the caches of {0}", device.facts.name):
            memory = Allocation(device, size)
        return lambda: device.fill(memory.address, 0, size, timing_stream(device))


@cache
def timing_stream(device: Device) -> int:
    """The stream of a device on which calls are timed."""
    return device.new_stream()


@contextmanager
def _samplers(runs: Sequence[Callable[[], object]], *, copies: bool) -> Iterator[list[Sampler]]:
    """What takes samples of each of several calls, once all that was submitted before is done."""
    with ExitStack() as stack:
        memories = dict[Device, _Memory]()
        for run in runs:
            device = _device_of(run)
            if device not in memories:
                device.synchronize()
                calls = [r for r in runs if isinstance(r, CudaCall) and r.kernel.device is device]
                memories[device] = stack.enter_context(_memory(device, calls))
        yield [stack.enter_context(_sampler(r, memories[_device_of(r)], copies)) for r in runs]


def _device_of(run: Callable[[], object]) -> Device:
    if isinstance(run, CudaCall):
        return run.kernel.device
    return driver().device(driver().current())


@contextmanager
def _sampler(run: Callable[[], object], memory: _Memory, copies: bool) -> Iterator[Sampler]:
    own = isinstance(run, CudaCall)
    with _clock(memory, timing_stream(memory.device) if own else 0) as clock:
        if not isinstance(run, CudaCall):
            yield lambda repeats, _: clock(lambda: _repeat(run, repeats)) / repeats
            return
        sampler = _CallSampler(clock, run, memory, copies=copies)
        try:
            yield sampler
        finally:
            sampler.close()


def _repeat(run: Callable[[], object], count: int) -> None:
    for _ in repeat(None, count):
        run()


class _Memory:
    """Memory of a device in which calls are timed one after the other.

    `busy` is filled before a sample. `workspace` is the address of the largest that they need.
    """

    def __init__(self, device: Device, busy: Allocation, workspace: int) -> None:
        self.device, self.busy, self.workspace = device, busy, workspace
        self._copies: dict[tuple[tuple[int, int], ...], list[list[int]]] = {}
        self._held: list[Allocation] = []

    def copies(self, call: CudaCall) -> list[list[int]]:
        """The addresses of the tensors of a call in each of the copies that fill the cache."""
        key = tuple(call.tensors)
        if key not in self._copies:
            self._copies[key] = self._copied(call)
        return self._copies[key]

    def _copied(self, call: CudaCall) -> list[list[int]]:
        """The copies are blocks of equal size, in which arrays are aligned as the caller's.

        The first is copied from these, the others from those before them.
        """
        device, stream = self.device, timing_stream(self.device)
        offsets, block = list[int](), 0
        for address, size in call.tensors:
            offsets.append(block + address % ALLOCATION_ALIGNMENT)
            block = _aligned(offsets[-1] + size)
        if not any(size for _, size in call.tensors):
            return []
        count = min(_MAX_COPIES, 2 * device.facts.l2_bytes // block)
        name, size = call.kernel.signature.name, count * block
        with memory_for("{0}: the device has no memory for {1} bytes to time it", name, size):
            memory = Allocation(device, size)
        self._held.append(memory)
        first = memory.address
        if count:
            for (source, size), offset in zip(call.tensors, offsets, strict=True):
                device.copy(first + offset, source, size, stream)
        done = 1
        while done < count:
            more = min(done, count - done)
            device.copy(first + done * block, first, more * block, stream)
            done += more
        return [[first + n * block + offset for offset in offsets] for n in range(count)]


@contextmanager
def _memory(device: Device, calls: Sequence[CudaCall]) -> Iterator[_Memory]:
    """The memory for calls on a device; their workspace is one of those of the process."""
    with memory_for("no memory to time kernels on {0}", device.facts.name):
        busy = Allocation(device, _BUSY_BYTES)
    needing = [
        c.kernel.signature for c in calls if c.workspace is None and c.kernel.pool is not None
    ]
    if not needing:
        yield _Memory(device, busy, 0)
        return
    pool = stream_pool(device)
    workspace = pool.take(max(needing, key=lambda s: s.workspace_bytes), timing_stream(device))
    try:
        device.wait(timing_stream(device), workspace.event)
        yield _Memory(device, busy, workspace.memory.address)
    finally:
        with suppress(DeviceError):  # a device that has failed has no later calls
            device.record(workspace.event, timing_stream(device))
        pool.give_back(workspace)


@contextmanager
def _clock(memory: _Memory, stream: int) -> Iterator[_Clock]:
    device = memory.device
    start, end = device.new_event(timed=True), device.new_event(timed=True)
    try:
        yield _Clock(device, stream, start, end, memory.busy)
    finally:
        device.free_event(start)
        device.free_event(end)


class _Clock(NamedTuple):
    """The device's clock, on a stream."""

    device: Device
    stream: int
    start: int
    end: int
    busy: Allocation

    def __call__(self, submit: Callable[[], object]) -> float:
        """The seconds that the device takes for what is submitted."""
        device = self.device
        device.fill(self.busy.address, 0, self.busy.size, self.stream)
        device.record(self.start, self.stream)
        submit()
        device.record(self.end, self.stream)
        device.synchronize_stream(self.stream)
        return device.seconds(self.start, self.end)


class _CallSampler:
    """Samples of a bound call, which takes the caller's arrays and copies of them in turn."""

    def __init__(self, clock: _Clock, call: CudaCall, memory: _Memory, *, copies: bool) -> None:
        self._clock, self._call, self._device = clock, call, clock.device
        self._workspace = memory.workspace if call.workspace is None else call.workspace
        others = memory.copies(call) if copies else []
        self._values = [call.values, *map(call.with_tensors, others)]
        self._next = 0
        self._seconds = math.inf
        self._graph: int | None = None
        self._graph_calls = len(self._values) * math.ceil(_GRAPH_CALLS / len(self._values))

    def __call__(self, repeats: int, most: float) -> float:
        """All calls of a sample are submitted at once: it does not end early."""
        del most
        if repeats > 1 and self._seconds < SHORT_SECONDS:
            replays = math.ceil(repeats / self._graph_calls)
            graph, device, stream = self._captured(), self._device, self._clock.stream
            seconds = self._clock(lambda: _repeat(lambda: device.replay(graph, stream), replays))
            self._seconds = seconds / (replays * self._graph_calls)
        else:
            self._seconds = self._clock(lambda: self._submit(repeats)) / repeats
        return self._seconds

    def close(self) -> None:
        if self._graph is not None:
            self._device.free_graph(self._graph)

    def _captured(self) -> int:
        if self._graph is None:
            count, stream = self._graph_calls, self._clock.stream
            self._graph = self._device.capture(stream, lambda: self._submit(count))
        return self._graph

    def _submit(self, count: int) -> None:
        kernel, stream, workspace = self._call.kernel, self._clock.stream, self._workspace
        for _ in range(count):
            kernel.launch_with(self._values[self._next], stream, workspace)
            self._next = (self._next + 1) % len(self._values)


def _aligned(size: int) -> int:
    return -(-size // ALLOCATION_ALIGNMENT) * ALLOCATION_ALIGNMENT

"""A part of a graph on a device: kernels that the host submits, and the memory they compute in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..base import dtypes
from .device_plan import HOST, DevicePlan, Wait
from .evidence import Evidence
from .memory import Memory, View, memory_for
from .module import Module, Origin
from .partition_plan import PartitionPlan

Array: TypeAlias = np.ndarray[Any, Any]


class Place(NamedTuple):
    """Memory at an offset of the argument of that number, or of the arena of the part if `None`.

    The arguments are the inputs of the part, its outputs, and its weights.
    """

    argument: int | None
    offset: int


class KernelStep(NamedTuple):
    """A kernel is submitted, with its arguments and its workspace at these places."""

    module: Module
    places: tuple[Place, ...]
    workspace: Place | None


class CopyStep(NamedTuple):
    """Bytes are copied within the device."""

    source: Place
    destination: Place
    bytes: int


@dataclass(frozen=True, eq=False)
class DevicePart:
    """The kernels of a part in order, for the device that has this `memory`.

    What they compute in, beside inputs, outputs and weights, is an arena of so many bytes. A wait
    that takes more than `timeout` seconds fails.
    """

    memory: Memory
    steps: tuple[KernelStep | CopyStep, ...]
    arena_bytes: int
    weights: Array
    told: Callable[[], Evidence]
    timeout: float | None = None

    @cached_property
    def evidence(self) -> Evidence:
        """What became of the nodes, as of a `Model`."""
        return self.told()

    @property
    def kernels(self) -> dict[str, Origin]:
        """Where the schedules of its kernels come from, by their names, as of a `Model`."""
        modules = [step.module for step in self.steps if isinstance(step, KernelStep)]
        return {module.signature.name: module.origin for module in modules}

    @cached_property
    def _weights(self) -> tuple[View, ...]:
        """The weights on the device, copied once; none where there are none."""
        if not self.weights.nbytes:
            return ()
        view = _allocated(self.memory, self.weights.nbytes)
        self.memory.copy_in(view, self.weights)
        return (view,)

    def bind(self, arguments: Sequence[View], arena: View) -> Callable[[], None]:
        """What submits the kernels, on inputs and outputs at these places of the device."""
        bases = (*arguments, *self._weights)

        def view(place: Place, dtype: str, shape: tuple[int, ...]) -> View:
            base = arena if place.argument is None else bases[place.argument]
            return View(base.pointer + place.offset, dtype, shape, None, False, base.owner)

        def array(place: Place, dtype: str, shape: tuple[int, ...]) -> Any:
            return self.memory.array(view(place, dtype, shape))

        calls: list[Callable[[], object]] = []
        for step in self.steps:
            if isinstance(step, CopyStep):
                both = [view(p, "uint8", (step.bytes,)) for p in (step.destination, step.source)]
                calls.append(partial(self.memory.copy, *both))
                continue
            signature, options = step.module.signature, dict[str, Any]()
            if step.workspace is not None:
                options["workspace"] = array(step.workspace, "uint8", (signature.workspace_bytes,))
            given = zip(step.places, signature.arguments, strict=True)
            arrays = [array(place, a.dtype, a.shape) for place, a in given]
            calls.append(step.module.bind(*arrays, **options))

        def submit() -> None:
            for call in calls:
                call()

        return submit


class DeviceCalls:
    """Calls of a plan. Each has arenas of its own, so that threads call at the same time."""

    def __init__(
        self, plan: DevicePlan, partition: PartitionPlan, parts: Mapping[int, DevicePart]
    ) -> None:
        """`parts` are those on devices, by their numbers."""
        self.plan = plan
        self._new = partial(Arenas, plan, partition, parts)
        self._free: list[Arenas] = []  # `pop` and `append` are atomic

    @contextmanager
    def arenas(self) -> Iterator[Arenas]:
        """Arenas for one call. Raises `OutOfMemoryError`."""
        try:
            found = self._free.pop()
        except IndexError:
            found = self._new()
        found.copied_bytes = found.waits = 0
        yield found
        # Those of a call that fails are not used again: they are freed once the device is done.
        self._free.append(found)


class Arenas:
    """Memory of devices for one call at a time, with the parts bound to it.

    `copied_bytes` and `waits` count what the call has done.
    """

    copied_bytes = waits = 0

    def __init__(
        self, plan: DevicePlan, partition: PartitionPlan, parts: Mapping[int, DevicePart]
    ) -> None:
        self._plan, self._types = plan, partition.values
        self._memories = {plan.devices[n]: part.memory for n, part in parts.items()}
        self._timeouts = {plan.devices[n]: part.timeout for n, part in parts.items()}
        self._views: dict[tuple[str, int], View] = {}
        arenas: dict[str, View] = {}
        for device, memory in self._memories.items():
            arena = plan.arenas[device]
            whole = arenas[device] = _allocated(memory, arena.bytes)
            for value, offset in arena.values.items():
                kind = self._types[value]
                self._views[device, value] = whole._replace(
                    pointer=whole.pointer + offset, dtype=kind.dtype, shape=kind.shape
                )
        self._bound: dict[int, Callable[[], None]] = {}
        for number, part in parts.items():
            own, device = partition.parts[number], plan.devices[number]
            offset = plan.arenas[device].parts.get(number, 0)
            self._bound[number] = part.bind(
                [self._views[device, value] for value in (*own.reads, *own.writes)],
                arenas[device]._replace(pointer=arenas[device].pointer + offset),
            )

    def _wait(self, device: str) -> None:
        self._memories[device].synchronize(self._timeouts[device])

    def submit(self, part: int, *, wait: bool) -> None:
        """Submit a part, and `wait` for it if asked to. Raises `DeviceError`."""
        self._bound[part]()
        if wait:
            self._wait(self._plan.devices[part])

    def take_before(self, part: int, held: dict[int, Array]) -> None:
        """Copy and wait as the plan does before a part, or at the end for the number of parts.

        `held` are the values on the host. Raises `DeviceError`.
        """
        for step in self._plan.before[part]:
            if isinstance(step, Wait):
                self._wait(step.device)
                self.waits += 1
                continue
            if step.source == HOST:
                view, array = self._views[step.destination, step.value], held[step.value]
                self._memories[step.destination].copy_in(view, array)
            else:
                kind = self._types[step.value]
                array = held[step.value] = np.empty(kind.shape, dtypes.to_numpy(kind.dtype))
                self._memories[step.source].copy_out(array, self._views[step.source, step.value])
            self.copied_bytes += array.nbytes


def _allocated(memory: Memory, size: int) -> View:
    """New memory of a device. Raises `OutOfMemoryError`."""
    with memory_for("no memory for {0} bytes on a device", size):
        return memory.view(memory.allocate(size), "arena")._replace(strides=None)

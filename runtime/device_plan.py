"""What a call does where devices run parts: it copies values, runs parts, and waits.

A part that a device runs returns once its kernels are submitted, so the host goes on meanwhile. It
waits before it copies from the memory of a device, or to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from .partition_plan import PartitionPlan

HOST = ""
"""The memory in which all providers compute that name no device."""


@dataclass(frozen=True)
class Run:
    """The part of that number runs, on values that are in the memory of its device."""

    part: int


@dataclass(frozen=True)
class Copy:
    """A value, by its number, is copied between the host and a device, which has no work then."""

    value: int
    source: str
    destination: str


@dataclass(frozen=True)
class Wait:
    """The host waits until a device has done all that was submitted."""

    device: str


Step: TypeAlias = Run | Copy | Wait


@dataclass(frozen=True)
class DeviceArena:
    """The memory of a device that a call takes: so many bytes, in which values and the arenas of
    parts are at these offsets, by their numbers."""

    bytes: int
    values: Mapping[int, int]
    parts: Mapping[int, int]


@dataclass(frozen=True)
class DevicePlan:
    """The devices of the parts, by name, the steps of a call, and the memory that it takes of each
    device."""

    devices: tuple[str, ...]
    steps: tuple[Step, ...]
    arenas: Mapping[str, DeviceArena]

    @cached_property
    def before(self) -> Mapping[int, Sequence[Copy | Wait]]:
        """The steps between parts, by the part that follows; those at the end by their number."""
        found: dict[int, list[Copy | Wait]] = {0: []}
        for step in self.steps:
            if isinstance(step, Run):
                found[step.part + 1] = []
            else:
                found[len(found) - 1].append(step)
        return found


def device_steps(plan: PartitionPlan, devices: Sequence[str]) -> Iterator[Step]:
    """The steps of a plan whose parts run on these devices, each value copied once to a memory."""
    places: dict[int, set[str]] = {n: {HOST} for n in (*range(len(plan.inputs)), *plan.constants)}
    busy = dict[str, None]()

    def copied(value: int, destination: str) -> Iterator[Step]:
        held = places[value]
        if destination in held:
            return
        if HOST not in (*held, destination):  # from one device to another
            yield from copied(value, HOST)
        source = HOST if HOST in held else min(held)
        device = source or destination
        if device in busy:
            del busy[device]
            yield Wait(device)
        yield Copy(value, source, destination)
        held.add(destination)

    for number, (part, device) in enumerate(zip(plan.parts, devices, strict=True)):
        for value in part.reads:
            yield from copied(value, device)
        yield Run(number)
        if device != HOST:
            busy[device] = None
        places.update((value, {device}) for value in part.writes)
    for _, value in plan.outputs:
        yield from copied(value, HOST)
    yield from map(Wait, busy)

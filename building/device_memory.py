"""The memory of devices that a call of a partitioned model takes: one arena each, by lifetimes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ..runtime.device_plan import HOST, Copy, DeviceArena, DevicePlan, Run, device_steps
from ..runtime.partition_plan import PartitionPlan
from .memory_plan import Block, plan

Key: TypeAlias = tuple[bool, int]
"""A value or, if true, a part; and its number."""


def device_plan(
    partition: PartitionPlan, devices: Sequence[str], arenas: Mapping[int, int]
) -> DevicePlan:
    """The plan of a call whose parts run on these devices.

    `arenas` has the bytes that parts on devices compute in, by their numbers.
    """
    steps = tuple(device_steps(partition, devices))
    blocks = defaultdict[str, dict[Key, Block]](dict)

    def used(device: str, value: int, step: int) -> None:
        if device != HOST:
            own, size = blocks[device], partition.values[value].bytes
            known = own.get((False, value))
            own[False, value] = Block(size, step if known is None else known.first, step)

    for number, step in enumerate(steps):
        if isinstance(step, Copy):
            used(step.source, step.value, number)
            used(step.destination, step.value, number)
        elif isinstance(step, Run):
            part, device = partition.parts[step.part], devices[step.part]
            for value in (*part.reads, *part.writes):
                used(device, value, number)
            if arenas.get(step.part):
                blocks[device][True, step.part] = Block(arenas[step.part], number, number)
    memory = {device: _arena(own) for device, own in blocks.items()}
    return DevicePlan(tuple(devices), steps, memory)


def _arena(blocks: Mapping[Key, Block]) -> DeviceArena:
    found = plan(blocks)
    values, parts = dict[int, int](), dict[int, int]()
    for (is_part, number), offset in found.offsets.items():
        (parts if is_part else values)[number] = offset
    return DeviceArena(found.bytes, values, parts)

"""The parts of a graph, each of which one provider runs, as a partition has them.

`partition.py` divides graphs. What a call of the parts does, and the evidence, follow from here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ..base.display import html
from ..runtime.device_plan import Copy, Wait, device_steps
from ..runtime.partition_evidence import (
    VERSION,
    CopyEvidence,
    DeviceEvidence,
    PartEvidence,
    PartitionEvidence,
    TransferEvidence,
)
from ..runtime.partition_plan import ArrayType, PartitionPlan, PartPlan
from ..tir.equality import structural_hash
from ..tir.ir import Func
from .ir import Constant, Graph, Node, Value
from .operator import operators_of
from .provider import Provider


@dataclass(frozen=True, eq=False)
class Part:
    """Nodes that one provider runs in a call, and why it does.

    The inputs and outputs of their graph are values of the whole graph.
    """

    provider: Provider
    graph: Graph
    why: str

    def __repr__(self) -> str:
        return f"<Part of {self.provider.name}: {len(self.graph.nodes)} nodes>"


@dataclass(frozen=True, eq=False)
class Partition:
    """The parts of a graph in the order in which they run."""

    graph: Graph
    parts: tuple[Part, ...]

    @cached_property
    def transfers(self) -> tuple[tuple[Value, int, int], ...]:
        """The values that cross, each with the numbers of the parts that compute and read it."""
        makers = {v: n for n, part in enumerate(self.parts) for v in part.graph.outputs.values()}
        return tuple(
            (value, makers[value], n)
            for n, part in enumerate(self.parts)
            for value in part.graph.inputs.values()
            if value in makers
        )

    @cached_property
    def numbers(self) -> Mapping[Value, int]:
        """The numbers that values have in the plan: inputs, what parts compute, constants."""
        found = {v: n for n, v in enumerate(self.graph.inputs.values())}
        made = (v for part in self.parts for v in part.graph.outputs.values())
        for value in (*made, *self.graph.outputs.values()):
            found.setdefault(value, len(found))
        return found

    @cached_property
    def plan(self) -> PartitionPlan:
        """What a call of the parts does."""
        graph, numbers = self.graph, self.numbers
        last = {v: n for n, part in enumerate(self.parts) for v in part.graph.inputs.values()}
        kept = {*graph.outputs.values(), *graph.inputs.values()}
        parts = [
            PartPlan(
                part.provider.name,
                tuple(numbers[v] for v in part.graph.inputs.values()),
                tuple(numbers[v] for v in part.graph.outputs.values()),
                tuple(numbers[v] for v, _, reader in self.transfers if reader == n),
                tuple(
                    numbers[v] for v in part.graph.inputs.values() if last[v] == n and v not in kept
                ),
            )
            for n, part in enumerate(self.parts)
        ]
        return PartitionPlan(
            graph.name,
            tuple(ArrayType(v.dtype, v.shape) for v in numbers),
            tuple(graph.inputs),
            tuple((name, numbers[v]) for name, v in graph.outputs.items()),
            tuple(n for v, n in numbers.items() if isinstance(v, Constant)),
            tuple(parts),
        )

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices of the parts."""
        return tuple(part.provider.device for part in self.parts)

    def kernels(self) -> Counter[Func]:
        """The programs of the kernels of all parts of Tilewright, and how often a call runs each;
        what tuning takes."""
        if all(part.provider.name == "tilewright" for part in self.parts):
            return Counter(self.graph.kernels())
        found = Counter[Func]()
        known: dict[str, Func] = {}
        for part in self.parts:
            if part.provider.name == "tilewright":
                for func, times in part.graph.kernels().items():
                    found[known.setdefault(structural_hash(func), func)] += times
        return found

    def evidence(self) -> PartitionEvidence:
        """Who runs what, why, and what crosses, as data."""
        parts = [
            PartEvidence(
                part.provider.name,
                tuple(map(label, part.graph.nodes)),
                part.why,
                tuple(str(v.type) for v in part.graph.inputs.values()),
                tuple(str(v.type) for v in part.graph.outputs.values()),
            )
            for part in self.parts
        ]
        crossing = [
            TransferEvidence(label(self.graph.producers[v]), str(v.type), v.type.bytes, source, end)
            for v, source, end in self.transfers
        ]
        devices = self._copied() if any(self.devices) else None
        return PartitionEvidence(VERSION, self.graph.name, tuple(parts), tuple(crossing), devices)

    def _copied(self) -> DeviceEvidence:
        """What a call copies to devices and from them, and how often it waits."""
        values = [*self.numbers]
        names = {value: name for name, value in self.graph.inputs.items()}
        copies, waits = list[CopyEvidence](), 0
        for step in device_steps(self.plan, self.devices):
            if isinstance(step, Copy):
                value = values[step.value]
                maker = self.graph.producers.get(value)
                name = names.get(value, "") if maker is None else label(maker)
                copies.append(
                    CopyEvidence(
                        name, str(value.type), value.type.bytes, step.source, step.destination
                    )
                )
            waits += isinstance(step, Wait)
        return DeviceEvidence(tuple(copies), waits)

    _repr_html_ = html

    def __str__(self) -> str:
        return str(self.evidence())

    def __repr__(self) -> str:
        return f"<Partition of {self.graph.name}: {len(self.parts)} parts; print it>"


def label(node: Node) -> str:
    """The operators that a node has, as one text."""
    return "+".join(operators_of(node))

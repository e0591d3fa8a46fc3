"""The evidence of a partition: who runs what, why, and what crosses between the parts.

It is data; `print` shows it on a screen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from ..base.checked_json import read
from ..base.display import html
from ..base.errors import ModelError
from ..base.text import aligned, count, format_bytes
from .evidence import Evidence, Natural

VERSION: Final = 1
"""Of the JSON form."""


@dataclass(frozen=True)
class PartEvidence:
    """A part: who runs it, its operators in order, why, and the types of what it reads and
    writes.

    `why` is empty where all nodes are there as their provider is preferred. `kernels` is the
    evidence of a part of Tilewright that was built.
    """

    provider: str
    operators: tuple[str, ...]
    why: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    kernels: Evidence | None = None


@dataclass(frozen=True)
class TransferEvidence:
    """A value that one part computes and another reads: who made it, its type and bytes, and the
    numbers of the parts."""

    operator: str
    type: str
    bytes: Natural
    source: Natural
    destination: Natural


@dataclass(frozen=True)
class CopyEvidence:
    """A value that a call copies between memories: the input or who made it, its type and bytes,
    from where and to where. The memory of the host has no name, that of a device its."""

    value: str
    type: str
    bytes: Natural
    source: str
    destination: str


@dataclass(frozen=True)
class DeviceEvidence:
    """What a call does as parts are on devices: what it copies, and how often it waits for one."""

    copies: tuple[CopyEvidence, ...]
    waits: Natural


@dataclass(frozen=True)
class PartitionEvidence:
    """The parts of a model in the order in which they run, and what crosses between them.

    `devices` is there where parts are on devices.
    """

    version: Literal[1]
    model: str
    parts: tuple[PartEvidence, ...]
    transfers: tuple[TransferEvidence, ...]
    devices: DeviceEvidence | None = None

    _repr_html_ = html

    @property
    def transfer_bytes(self) -> int:
        """The bytes that cross in a call."""
        return sum(transfer.bytes for transfer in self.transfers)

    @property
    def copied_bytes(self) -> int:
        """The bytes that a call copies to devices and from them."""
        return sum(copy.bytes for copy in self.devices.copies) if self.devices else 0

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """The operators that no kernel computes, each with who does."""
        return tuple(
            f"{operator} by {part.provider}"
            for part in self.parts
            if part.provider != "tilewright"
            for operator in dict.fromkeys(part.operators)
        )

    def validate(self) -> None:
        """Raise `ValueError` for numbers of parts that are not there."""
        if any(max(t.source, t.destination) >= len(self.parts) for t in self.transfers):
            raise ValueError(f"a value crosses beyond the last of {len(self.parts)} parts")

    def to_json(self) -> dict[str, Any]:
        """All of it as a JSON object: the fields by name."""
        data = asdict(self)
        if self.devices is None:  # as all versions read it
            del data["devices"]
        return data

    @staticmethod
    def from_json(data: object) -> PartitionEvidence:
        """The evidence of its JSON form. Raises `ModelError` for anything malformed."""
        return read(PartitionEvidence, data, "evidence", ModelError)

    def facts(self) -> dict[str, str]:
        """What is said of the whole, by name."""
        own = any(part.kernels is not None for part in self.parts)
        crossing = f"{count(len(self.transfers), 'value')}, {format_bytes(self.transfer_bytes)}"
        return {
            "model": f"{self.model} in {count(len(self.parts), 'part')}",
            "elsewhere": ", ".join(dict.fromkeys(self.elsewhere)) or "nothing",
            "crossing": crossing if self.transfers else "nothing",
            **self._copied(),
            **({"kernels": ", ".join(self._kernels())} if own else {}),
        }

    def _copied(self) -> dict[str, str]:
        if self.devices is None:
            return {}
        values, waits = count(len(self.devices.copies), "value"), count(self.devices.waits, "wait")
        return {"copied": f"{values}, {format_bytes(self.copied_bytes)}, {waits}"}

    def _kernels(self) -> Iterator[str]:
        """How many kernels have which schedules, and the memory beside inputs and outputs."""
        own = [part.kernels for part in self.parts if part.kernels is not None]
        schedules = Counter(kernel.schedule for part in own for kernel in part.kernels)
        yield from (f"{number} by {kind}" for kind, number in schedules.items())
        yield f"arena {format_bytes(sum(part.memory.arena_bytes for part in own))}"
        yield f"weights {format_bytes(sum(part.memory.weights_bytes for part in own))}"

    def table(self) -> tuple[Sequence[str], list[list[str]]]:
        """Columns and rows of the parts; for the marks of columns see `Evidence.table`."""
        return (">part", "provider", "~operators", "~why"), [
            [
                str(number),
                part.provider,
                ", ".join(
                    operator if times == 1 else f"{operator} {times}"
                    for operator, times in Counter(part.operators).most_common()
                ),
                part.why or "preferred",
            ]
            for number, part in enumerate(self.parts)
        ]

    def transfer_table(self) -> tuple[Sequence[str], list[list[str]]]:
        """Columns and rows of what crosses."""
        return ("crossing", "~of", "type", ">bytes"), [
            [f"{t.source} to {t.destination}", t.operator, t.type, format_bytes(t.bytes)]
            for t in self.transfers
        ]

    def copy_table(self) -> tuple[Sequence[str], list[list[str]]]:
        """Columns and rows of what is copied between memories."""
        copies = () if self.devices is None else self.devices.copies
        return ("copied", "~of", "type", ">bytes"), [
            [
                f"{c.source or 'host'} to {c.destination or 'host'}",
                c.value,
                c.type,
                format_bytes(c.bytes),
            ]
            for c in copies
        ]

    def tables(self) -> Iterator[tuple[Sequence[str], list[list[str]]]]:
        """The tables that have rows."""
        every = (self.table(), self.transfer_table(), self.copy_table())
        return (table for table in every if table[1])

    def __str__(self) -> str:
        lines = [f"{name:<9} {value}" for name, value in self.facts().items()]
        for columns, rows in self.tables():
            lines += ["", *aligned(columns, rows)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<PartitionEvidence of {self.model}: {count(len(self.parts), 'part')}>"


def evidence_from(data: object) -> Evidence | PartitionEvidence:
    """The evidence of a model of its JSON form, which that of several parts tells by its field.

    Raises `ModelError` for anything malformed.
    """
    if isinstance(data, dict) and "parts" in data:
        return PartitionEvidence.from_json(data)
    return Evidence.from_json(data)

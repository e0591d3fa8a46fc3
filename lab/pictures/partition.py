"""The picture of a partition: a lane for each provider, its parts in order, and what crosses."""

from __future__ import annotations

from collections.abc import Iterator

import htpy as h

from ...base.text import count, format_bytes
from ...graph.parts import Partition
from ...runtime.partition_evidence import PartitionEvidence
from ...runtime.partitioned import PartitionedModel
from .charts import figure, number, svg
from .model import evidence_view, table_of
from .page import text
from .tables import facts

_LANE, _HIGH = 46, 20
"""Pixels of a lane, and of a part in it."""
_NAME = 110
"""Pixels of the names of the providers, and characters of them,"""
_CHARACTERS = 16
_WIDE = 900
"""and of all parts, at most."""
_STEP = 64
"""Pixels of a part, at most."""


def partition_view(value: PartitionEvidence | PartitionedModel | Partition) -> h.Node:
    """The picture of any of these."""
    if isinstance(value, PartitionEvidence):
        told = value
    else:
        told = value.evidence if isinstance(value, PartitionedModel) else value.evidence()
    return h.section(".result")[
        facts({name: text(fact) for name, fact in told.facts().items()}),
        _lanes(told),
        _tables(told),
        [
            h.details[
                h.summary[text(f"Part {number}: the kernels of {part.provider}")],
                evidence_view(part.kernels),
            ]
            for number, part in enumerate(told.parts)
            if part.kernels is not None
        ],
    ]


def _tables(told: PartitionEvidence) -> Iterator[h.Node]:
    captions = ("What crosses from part to part", "What is copied between memories")
    for caption, (columns, rows) in zip(
        captions, (told.transfer_table(), told.copy_table()), strict=True
    ):
        if rows:
            yield table_of(caption, columns, rows)


def _lanes(told: PartitionEvidence) -> h.Node:
    providers = [*dict.fromkeys(part.provider for part in told.parts)]
    step = min(_STEP, _WIDE / max(len(told.parts), 1))
    lane = {name: _LANE * n for n, name in enumerate(providers)}

    def middle(part: int) -> tuple[float, float]:
        return _NAME + step * (part + 0.5), lane[told.parts[part].provider] + _LANE / 2

    drawn: list[h.Node] = []
    for crossing in told.transfers:
        (x, y), (end, low) = middle(crossing.source), middle(crossing.destination)
        # Where a part is on the way, the line goes around it.
        bend = y + (low - y) / 2 if y != low else y - _LANE / 2
        path = f"M{number(x)} {number(y)}Q{number((x + end) / 2)} {number(bend)} "
        what = f"{crossing.operator} {crossing.type}: {format_bytes(crossing.bytes)}"
        drawn.append(
            h.path(".line.strong", d=f"{path}{number(end)} {number(low)}")[h.title[text(what)]]
        )
    for n, part in enumerate(told.parts):
        x, y = middle(n)
        drawn.append(
            h.rect(
                ".bar", x=number(x - step / 2 + 2), y=number(y - _HIGH / 2), height=str(_HIGH),
                width=number(max(step - 4, 1)),
            )[h.title[text(f"part {n}: {', '.join(part.operators)}")]]
        )  # fmt: skip
    names = [
        h.text(x="0", y=number(lane[name] + _LANE / 2 + 4))[text(name[:_CHARACTERS])]
        for name in providers
    ]
    title = f"{count(len(told.parts), 'part')} of {count(len(providers), 'provider')}"
    columns, rows = told.table()
    return figure(
        title,
        svg(title, _LANE * len(providers), [drawn, names], _NAME + step * len(told.parts)),
        "From left to right are the parts in the order in which they run, each in the lane of its "
        "provider; lines are values that cross.",
        table=table_of("Parts", columns, rows),
        broad=True,
    )

"""Stages of pipelines: spatial blocks that read windows of each other."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.ir import INDEX, Binary, Block, Label
from ...tir.visit import walk
from .access_patterns import inputs_of, loads


def cheap_stages(members: Sequence[Block]) -> list[Label]:
    """The stages that take no more than a load and an operation or two."""
    return [
        b.label
        for b in members[:-1]
        if sum(loads(b, i.buffer) for i in inputs_of(b)) <= 1 and _operations(b) <= 2
    ]


def _operations(block: Block) -> int:
    return sum(type(n) is Binary and n.dtype != INDEX for n in walk(block.body))

"""Stages of pipelines: spatial blocks that read windows of each other."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.ir import Block, Label
from .access_patterns import inputs_of, loads
from .vectors import operations


def cheap_stages(members: Sequence[Block]) -> list[Label]:
    """The stages that take no more than a load and an operation or two."""
    return [
        b.label
        for b in members[:-1]
        if sum(loads(b, i.buffer) for i in inputs_of(b)) <= 1 and operations(b) <= 2
    ]

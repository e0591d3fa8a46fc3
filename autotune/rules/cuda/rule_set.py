"""The rules for GPUs."""

from __future__ import annotations

from ....schedule import Schedule
from ....tir.ir import Var
from ..rule import RuleSet
from .default import bind_rest


def _in_blocks(sch: Schedule, loop: Var) -> None:
    sch.bind(loop, "blockIdx.x")


RULES = RuleSet(map_outer=_in_blocks, rules=(), complete=bind_rest)

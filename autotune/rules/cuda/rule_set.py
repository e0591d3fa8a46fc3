"""The rules for GPUs."""

from __future__ import annotations

from ....schedule import Schedule
from ....tir.ir import Var
from ..rule import GroupKind, RuleSet, SketchRule
from .contraction import contraction_variants
from .default import bind_rest, default_variants
from .digits import separate_all_digits
from .elementwise import elementwise_variants, pipeline_variants
from .row_parts import online_variants
from .rows import rows_variants


def _in_blocks(sch: Schedule, loop: Var) -> None:
    sch.bind(loop, "blockIdx.x")


RULES = RuleSet(
    map_outer=_in_blocks,
    rules=(
        SketchRule("default", GroupKind.ORDERED, default_variants),
        SketchRule("contraction", GroupKind.CONTRACTION, contraction_variants),
        SketchRule("rows", GroupKind.ROWS, rows_variants),
        SketchRule("online_rows", GroupKind.ROWS, online_variants),
        SketchRule("pipeline", GroupKind.PIPELINE, pipeline_variants),
        SketchRule("elementwise", GroupKind.ELEMENTWISE, elementwise_variants),
    ),
    rewrites=(separate_all_digits,),
    complete=bind_rest,
)

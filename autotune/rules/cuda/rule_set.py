"""The rules for GPUs."""

from __future__ import annotations

import functools

from ....schedule import Schedule
from ....schedule.block_queries import has_reduction
from ....tir.ir import Var
from ..access_patterns import in_order
from ..canonicalise import is_plain
from ..common import succeeds
from ..digits import has_digits, separate_digits
from ..draft import Draft
from ..rule import GroupKind, RuleSet, SketchRule
from .contraction import contraction_variants
from .default import bind_rest, default_variants
from .elementwise import elementwise_variants, pipeline_variants
from .row_parts import online_variants
from .rows import rows_variants


def separate_all_digits(draft: Draft) -> Draft:
    """The draft with the digits apart of each block that is a contraction then, and was none."""
    for block in in_order(draft.func):
        if not (has_reduction(block) and is_plain(draft.func, block)):
            continue
        if not has_digits(block, contiguous=True):
            continue
        trial = draft.copy()
        sch = trial.schedule
        separate = functools.partial(separate_digits, contiguous=True)
        applied = succeeds(separate, sch, sch.get_block(block.label))
        if applied and draft.rules.is_contraction(trial.block(block.label)):
            draft = trial
    return draft


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

"""The rules for processors."""

from __future__ import annotations

from ....schedule import Schedule
from ....schedule.block_queries import has_reduction
from ..access_patterns import in_order
from ..canonicalise import is_plain
from ..channels import channels_last
from ..common import succeeds
from ..digits import has_digits, separate_digits
from ..draft import Draft
from ..register_tiles import fewest_registers
from ..rule import AlternativeRule, GroupKind, RuleSet, SketchRule
from .contraction import contraction_variants
from .dot_product import dot_product_variants
from .elementwise import elementwise_variants
from .flash_attention import flash_attention_variants
from .fused_attention import fused_attention_variants
from .long_rows import online_variants
from .ordered import ordered_variants
from .pipeline import pipeline_variants
from .rows import rows_variants
from .tile_unit import tile_unit_variants
from .vector_choices import runs_in_vectors, vector_variables
from .windows import copied_windows
from .winograd import winograd


def separate_all_digits(draft: Draft) -> Draft:
    """The draft with the digits apart of each contraction of which registers hold a tile then."""
    for block in in_order(draft.func):
        if not (has_reduction(block) and is_plain(draft.func, block) and has_digits(block)):
            continue
        trial = draft.copy()
        sch = trial.schedule
        if not succeeds(separate_digits, sch, sch.get_block(block.label)):
            continue
        apart = trial.block(block.label)
        choices = vector_variables(apart, draft.target.vector_bits)
        room = draft.target.vector_registers
        if any(fewest_registers(apart, v) < room for v in choices):
            draft = trial
    return draft


UNIT = SketchRule("tile_unit", GroupKind.CONTRACTION, tile_unit_variants)
DOT = SketchRule("dot_product", GroupKind.CONTRACTION, dot_product_variants)
RULES = RuleSet(
    map_outer=Schedule.parallel,
    rewrites=(separate_all_digits,),
    is_contraction=runs_in_vectors,
    rules=(
        SketchRule("ordered", GroupKind.ORDERED, ordered_variants),
        SketchRule("flash_attention", GroupKind.ATTENTION, flash_attention_variants),
        SketchRule("fused_attention", GroupKind.ATTENTION, fused_attention_variants),
        UNIT,
        DOT,
        SketchRule("contraction", GroupKind.CONTRACTION, contraction_variants),
        SketchRule("online", GroupKind.ROWS, online_variants),
        SketchRule("rows", GroupKind.ROWS, rows_variants),
        SketchRule("pipeline", GroupKind.PIPELINE, pipeline_variants),
        SketchRule("elementwise", GroupKind.ELEMENTWISE, elementwise_variants),
    ),
    instructions=(UNIT, DOT),
    alternatives=(
        AlternativeRule(winograd, exact=False),
        AlternativeRule(channels_last),
        AlternativeRule(copied_windows),
    ),
)

"""The rules for processors."""

from __future__ import annotations

from ....schedule import Schedule
from ..channels import channels_last
from ..rule import AlternativeRule, GroupKind, RuleSet, SketchRule
from .contraction import contraction_variants
from .digits import separate_all_digits
from .dot_product import dot_product_variants
from .elementwise import elementwise_variants
from .flash_attention import flash_attention_variants
from .fused_attention import fused_attention_variants
from .long_rows import online_variants
from .ordered import ordered_variants
from .pipeline import pipeline_variants
from .rows import rows_variants
from .tile_unit import tile_unit_variants
from .vector_choices import runs_in_vectors
from .windows import copied_windows
from .winograd import winograd

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

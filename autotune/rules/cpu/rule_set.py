"""The rules for processors."""

from __future__ import annotations

from ....schedule import Schedule
from ..rule import AlternativeRule, GroupKind, RuleSet
from .channels import channels_last
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
from .winograd import winograd

RULES = RuleSet(
    map_outer=Schedule.parallel,
    rewrites=(separate_all_digits,),
    is_contraction=runs_in_vectors,
    rules={
        GroupKind.ORDERED: (ordered_variants,),
        GroupKind.ATTENTION: (flash_attention_variants, fused_attention_variants),
        GroupKind.CONTRACTION: (tile_unit_variants, dot_product_variants, contraction_variants),
        GroupKind.ROWS: (online_variants, rows_variants),
        GroupKind.PIPELINE: (pipeline_variants,),
        GroupKind.ELEMENTWISE: (elementwise_variants,),
    },
    instructions=(tile_unit_variants, dot_product_variants),
    alternatives=(AlternativeRule(winograd, exact=False), AlternativeRule(channels_last)),
)

"""Contractions whose digits are taken apart, because vector registers hold a tile of them then."""

from __future__ import annotations

from ....schedule.block_queries import has_reduction
from ..access_patterns import in_order
from ..canonicalise import is_plain
from ..common import succeeds
from ..digits import has_digits, separate_digits
from ..draft import Draft
from ..register_tiles import fewest_registers
from .vector_choices import vector_variables


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

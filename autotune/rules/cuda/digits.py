"""Contractions whose digits are taken apart: then they are products of matrices in batches."""

from __future__ import annotations

import functools

from ....schedule.block_queries import has_reduction
from ..access_patterns import in_order
from ..canonicalise import is_plain
from ..common import succeeds
from ..digits import has_digits, separate_digits
from ..draft import Draft


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

"""The sketch rules, one file each, and how they are combined for a program."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ...schedule.find import loops_in
from ...target import Target
from ...tir.ir import Func
from ..sketch import Rule
from .groups import groups

MAX_SKETCHES = 12

__all__ = ["MAX_SKETCHES", "plans"]


def plans(func: Func, target: Target) -> Iterator[tuple[str, tuple[Rule, ...]]]:
    """The combinations of one variant for each group of blocks: a name, and rules to apply in turn.

    Combinations that begin alike begin with the same rules. A program with loops that never run is
    left as it is.
    """
    if any(loop.extent == 0 for loop in loops_in(func.body)):
        yield "nothing", ()
        return
    prepared, ways = groups(func, target)
    # What comes first in each group is the most promising; all groups get their turn to vary.
    orders = [
        [variants[n] for variants, n in zip(found, order, strict=True)]
        for found in ways
        for order in sorted(product(*(range(len(variants)) for variants in found)), key=sum)
    ]
    for choice in orders[:MAX_SKETCHES]:
        rules = (prepared, *(variant.apply for variant in choice))
        yield "+".join(variant.name for variant in choice), rules

"""The sketch rules, one file each, and how they are combined for a program."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ...schedule.find import loops_in
from ..sketch import Draft, Step
from ..structure import in_order
from .channels import channels_last
from .digits import separate_all_digits
from .groups import groups
from .nests import is_plain, needs_nests, separate_nests
from .variant import Variant
from .winograd import winograd_alternatives

MAX_SKETCHES = 12
MAX_OTHER = 4
"""Combinations of an alternative."""

__all__ = ["MAX_SKETCHES", "plans"]


def plans(
    original: Draft, *, algebra: bool = False
) -> Iterator[tuple[str, Draft, tuple[Step, ...]]]:
    """The combinations of one variant for each group of blocks: a name, a draft to start from, and
    the steps that make a sketch of it.

    With `algebra`, also those of programs that are the same over the reals alone. Combinations that
    begin alike begin with the same draft and steps. A program with loops that never run is left as
    it is, and one that was scheduled by hand may stay so; so do its blocks that cannot have plain
    nests.
    """
    if any(loop.extent == 0 for loop in loops_in(original.func.body)):
        yield "nothing", original, ()
        return
    by_hand = needs_nests(original.func)
    plain = original.copy()
    if by_hand:
        separate_nests(plain.schedule)
    plain = separate_all_digits(plain)
    kept = {b.label for b in in_order(plain.func) if not is_plain(plain.func, b)}
    others = [*winograd_alternatives(plain)] if algebra else []
    for other in (*others, *channels_last(plain)):
        start, ways = groups(other.draft, {*other.claimed, *kept})
        for name, steps in _combined(ways, MAX_OTHER):
            if other.wanted(name):
                yield f"{other.name}:{name}", start, (*other.before, *steps, *other.after)
    start, ways = groups(plain, kept)
    for name, steps in _combined(ways, MAX_SKETCHES):
        yield name, start, steps
    if by_hand:
        yield "written", original, ()


def _combined(ways: list[list[list[Variant]]], most: int) -> Iterator[tuple[str, tuple[Step, ...]]]:
    """At most so many combinations of a variant of each group, of all ways to part a program."""
    # The first variant of each group is the most promising; all groups get their turn to vary.
    orders = [
        [variants[n] for variants, n in zip(parted, order, strict=True)]
        for parted in ways
        for order in sorted(product(*(range(len(variants)) for variants in parted)), key=sum)
    ]
    for choice in orders[:most]:
        if choice:
            steps = tuple(step for variant in choice for step in variant.steps)
            yield "+".join(v.name for v in choice), steps

"""The sketch rules, one file each, and how they are combined for a program."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from ...schedule.find import loops_in
from ..sketch import Draft, RuleChoice, Step
from ..structure import in_order
from .canonicalise import is_plain, needs_nests, separate_nests
from .channels import channels_last
from .digits import separate_all_digits
from .fusion_groups import groups
from .variant import Variant
from .winograd import winograd_alternatives

MAX_SKETCHES = 12
MAX_OTHER = 4
"""Combinations of an alternative."""

__all__ = ["MAX_SKETCHES", "plans"]


class Plan(NamedTuple):
    """How a sketch is made: the draft to start from, and the steps to take.

    `choices` identify it, `name` is for people.
    """

    name: str
    choices: tuple[RuleChoice, ...]
    start: Draft
    steps: tuple[Step, ...] = ()


def plans(original: Draft, *, algebra: bool = False) -> Iterator[Plan]:
    """The combinations of one variant for each group of blocks.

    With `algebra`, also those of programs that are the same over the reals alone. Combinations that
    begin alike begin with the same draft and steps. A program with loops that never run is left as
    it is, and one that was scheduled by hand may stay so; so do its blocks that cannot have plain
    nests.
    """
    if any(loop.extent == 0 for loop in loops_in(original.func.body)):
        yield Plan("nothing", (RuleChoice("nothing"),), original)
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
        for variants in _combined(ways, MAX_OTHER):
            plan = _plan(start, variants)
            if other.wanted(plan.choices):
                yield Plan(
                    f"{other.name}:{plan.name}",
                    (other.choice, *plan.choices),
                    start,
                    (*other.before, *plan.steps, *other.after),
                )
    start, ways = groups(plain, kept)
    for variants in _combined(ways, MAX_SKETCHES):
        yield _plan(start, variants)
    if by_hand:
        yield Plan("written", (RuleChoice("written"),), original)


def _plan(start: Draft, variants: list[Variant]) -> Plan:
    """The plan that carries out a variant of each group in turn."""
    return Plan(
        "+".join(v.name for v in variants),
        tuple(v.choice for v in variants),
        start,
        tuple(step for v in variants for step in v.steps),
    )


def _combined(ways: list[list[list[Variant]]], most: int) -> Iterator[list[Variant]]:
    """At most so many combinations of a variant of each group, of all ways to part a program."""
    # The first variant of each group is the most promising; all groups get their turn to vary.
    orders = [
        [variants[n] for variants, n in zip(parted, order, strict=True)]
        for parted in ways
        for order in sorted(product(*(range(len(variants)) for variants in parted)), key=sum)
    ]
    yield from filter(None, orders[:most])

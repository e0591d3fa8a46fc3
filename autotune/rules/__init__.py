"""The sketch rules, one file each, and how they are combined for a program."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import product

from ...schedule import Schedule
from ...schedule.find import loops_in
from ...target import Target
from ...tir.ir import Func
from ..sketch import Draft, Rule
from ..structure import in_order
from .channels import channels_last
from .digits import separate_digits, with_digits
from .groups import Variant, groups
from .nests import is_plain, needs_nests, separate_nests
from .winograd import alternatives

MAX_SKETCHES = 12
MAX_OTHER = 4
"""Combinations of an alternative."""

__all__ = ["MAX_SKETCHES", "plans"]


def plans(
    func: Func, target: Target, *, algebra: bool = False
) -> Iterator[tuple[str, tuple[Rule, ...]]]:
    """The combinations of one variant for each group of blocks: a name, and rules to apply in turn.

    With `algebra`, also those of programs that are the same over the reals alone. Combinations that
    begin alike begin with the same rules. A program with loops that never run is left as it is, and
    one that was scheduled by hand may stay so; so do its blocks that cannot have plain nests.
    """
    if any(loop.extent == 0 for loop in loops_in(func.body)):
        yield "nothing", ()
        return
    names = {b.label: n for n, b in enumerate(in_order(func))}
    by_hand = needs_nests(func)
    start: tuple[Rule, ...] = (_separate,) if by_hand else ()
    if by_hand:
        plain = Schedule(func)
        made = separate_nests(plain)
        names |= {label: len(names) + n for n, label in enumerate(made)}
        func = plain.func
    labels = [b.label for b in in_order(func)]
    digits, func = with_digits(func, target)
    if digits:
        numbers = [names[labels[n]] for n in digits]
        start += (functools.partial(_separate_digits, numbers=numbers),)
    left = {b.label for b in in_order(func) if not is_plain(func, b)}
    others = [*alternatives(func, target, names)] if algebra else []
    for other in (*others, *channels_last(func, target, names)):
        prepared, ways = groups(other.func, target, other.names, {*other.taken, *left})
        for name, (first, *rest) in _combined(prepared, ways, MAX_OTHER):
            if other.wanted(name):
                rules = (*start, other.apply, first, *other.before, *rest, *other.after)
                yield f"{other.name}:{name}", rules
    for name, rules in _combined(*groups(func, target, names, left), MAX_SKETCHES):
        yield name, (*start, *rules)
    if by_hand:
        yield "written", ()


def _separate(draft: Draft) -> None:
    draft.made += separate_nests(draft.schedule)


def _separate_digits(draft: Draft, numbers: list[int]) -> None:
    for number in numbers:
        separate_digits(draft.schedule, draft.block(number))


def _combined(
    prepared: Rule, ways: list[list[list[Variant]]], most: int
) -> Iterator[tuple[str, tuple[Rule, ...]]]:
    """At most so many combinations of a variant of each group, of all ways to part a program."""
    # What comes first in each group is the most promising; all groups get their turn to vary.
    orders = [
        [variants[n] for variants, n in zip(found, order, strict=True)]
        for found in ways
        for order in sorted(product(*(range(len(variants)) for variants in found)), key=sum)
    ]
    for choice in orders[:most]:
        if not choice:
            continue
        rules = (rule for variant in choice for rule in variant.rules)
        yield "+".join(v.name for v in choice), (prepared, *rules)

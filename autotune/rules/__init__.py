"""The sketch rules, one file each, and how they are combined for a program."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ...schedule.find import loops_in
from ...target import Target
from ...tir.ir import Func
from ..sketch import Rule
from ..structure import in_order
from .groups import Variant, groups
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
    begin alike begin with the same rules. A program with loops that never run is left as it is.
    """
    if any(loop.extent == 0 for loop in loops_in(func.body)):
        yield "nothing", ()
        return
    for other in alternatives(func, target) if algebra else ():
        prepared, ways = groups(other.func, target, other.names, other.taken)
        for name, (first, *rest) in _combined(prepared, ways, MAX_OTHER):
            rules = (other.apply, first, *other.before, *rest, *other.after)
            yield f"{other.name}:{name}", rules
    names = {b.label: n for n, b in enumerate(in_order(func))}
    yield from _combined(*groups(func, target, names), MAX_SKETCHES)


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
        rules = (rule for variant in choice for rule in variant.rules)
        yield "+".join(v.name for v in choice), (prepared, *rules)

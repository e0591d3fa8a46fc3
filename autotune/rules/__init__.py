"""The sketch rules, one file each, and how they are combined for a program."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from ...tir.ir import Label
from .access_patterns import in_order
from .canonicalise import needs_nests
from .draft import Draft, RuleChoice, Step
from .fusion_groups import Partition, fusion_groups, never_runs, partition, prepared
from .rule import Group, GroupKind, Planned, SketchRule, planned
from .rule_sets import register_rules
from .user_rules import SKETCH_RULES

MAX_SKETCHES = 12
MAX_OTHER = 4
"""Combinations of an alternative."""

__all__ = ["MAX_SKETCHES", "fusion_groups", "plans", "register_rules"]


class SketchPlan(NamedTuple):
    """How a sketch is made: the draft to start from, and the steps to take.

    `choices` identify it, `name` is for people.
    """

    name: str
    choices: tuple[RuleChoice, ...]
    start: Draft
    steps: tuple[Step, ...] = ()


def plans(original: Draft, *, inexact: bool = False) -> Iterator[SketchPlan]:
    """The plans by the rules for the target, and then those by the rules that users registered."""
    yield from _plans_by_target(original, inexact=inexact)
    if SKETCH_RULES:
        yield from _plans_by_users(original, tuple(SKETCH_RULES.values()))


def _plans_by_target(original: Draft, *, inexact: bool) -> Iterator[SketchPlan]:
    """The combinations of one variant for each group of blocks.

    With `inexact`, also those of programs that are the same over the reals alone. Combinations that
    begin alike begin with the same draft and steps. A program with loops that never run is left as
    it is, and one that was scheduled by hand may stay so; so do its blocks that cannot have plain
    nests.
    """
    if never_runs(original.func):
        yield SketchPlan("nothing", (RuleChoice("nothing"),), original)
        return
    plain, kept = prepared(original)
    rules = original.rules.rules

    def variants_of(draft: Draft, group: Group) -> list[Planned]:
        return planned(rules, draft, group)

    alternatives = [rule.make for rule in original.rules.alternatives if rule.exact or inexact]
    for other in (other for make in alternatives for other in make(plain)):
        parted = partition(other.draft, kept, other.claimed)
        for variants in _combined(_ways(parted, variants_of), MAX_OTHER):
            plan = _plan(parted.draft, variants)
            if other.wanted(plan.choices):
                yield SketchPlan(
                    f"{other.name}:{plan.name}",
                    (other.choice, *plan.choices),
                    plan.start,
                    (*other.before, *plan.steps, *other.after),
                )
    parted = partition(plain, kept)
    for variants in _combined(_ways(parted, variants_of), MAX_SKETCHES):
        yield _plan(parted.draft, variants)
    if needs_nests(original.func):
        yield SketchPlan("written", (RuleChoice("written"),), original)


def _plans_by_users(original: Draft, rules: Sequence[SketchRule]) -> Iterator[SketchPlan]:
    """The combinations of variants with one of a user's rule at least.

    A group that users' rules have variants for takes one of those, any other one of the target's.
    """
    program = Group(GroupKind.PROGRAM, tuple(in_order(original.func)))
    for variant in planned(rules, original, program):
        yield _plan(original, [variant])
    if never_runs(original.func) or all(rule.kind is GroupKind.PROGRAM for rule in rules):
        return
    parted = partition(*prepared(original))
    by_users = {
        group: planned(rules, parted.draft, group) for groups in parted.ways for group in groups
    }

    def variants_of(draft: Draft, group: Group) -> list[Planned]:
        return by_users[group] or planned(draft.rules.rules, draft, group)

    ways = [groups for groups in parted.ways if any(by_users[group] for group in groups)]
    for variants in _combined(_ways(replace(parted, ways=ways), variants_of), MAX_SKETCHES):
        yield _plan(parted.draft, variants)


def _ways(
    parted: Partition, variants_of: Callable[[Draft, Group], list[Planned]]
) -> list[list[list[Planned]]]:
    """The variants of each group, for each way to part a program."""
    known: dict[Group, list[Planned]] = {}
    for groups in parted.ways:
        for group in groups:
            if group not in known:
                variants = variants_of(parted.draft, group)
                known[group] = [_with_views_inlined(v, group, parted.views) for v in variants]
    return [[known[group] for group in groups] for groups in parted.ways]


def _with_views_inlined(
    planned: Planned, group: Group, views: Mapping[Label, Sequence[Label]]
) -> Planned:
    """The variant, which ends with computing the views of its group inline.

    Other groups come after that: tiles of what they compute are no longer known to be whole.
    """
    inlined = [view for label in group.labels for view in views.get(label, ())]

    def inline_views(draft: Draft) -> None:
        for view in inlined:
            draft.schedule.compute_inline(view)

    if not inlined:
        return planned
    choice, variant = planned
    return Planned(choice, replace(variant, steps=(*variant.steps, inline_views)))


def _plan(start: Draft, variants: Sequence[Planned]) -> SketchPlan:
    """The plan that carries out a variant of each group in turn."""
    return SketchPlan(
        "+".join(v.name for _, v in variants),
        tuple(choice for choice, _ in variants),
        start,
        tuple(step for _, v in variants for step in v.steps),
    )


def _combined(ways: list[list[list[Planned]]], most: int) -> Iterator[list[Planned]]:
    """At most so many combinations of a variant of each group, of all ways to part a program."""
    combinations = (
        [variants[n] for variants, n in zip(parted, numbers, strict=True)]
        for parted in ways
        if all(parted)
        for numbers in _by_sum([len(variants) for variants in parted])
    )
    yield from filter(None, islice(combinations, most))


def _by_sum(lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Tuples of a number below each length, those with the least sum first, then in order.

    The first variant of each group is the most promising; all groups get their turn to vary. A
    program of many groups has too many combinations to list them all.
    """
    heap = [(0, (0,) * len(lengths))]
    while heap:
        total, numbers = heapq.heappop(heap)
        yield numbers
        last = max((place for place, n in enumerate(numbers) if n), default=0)
        for place in range(last, len(lengths)):
            if numbers[place] + 1 < lengths[place]:
                more = (*numbers[:place], numbers[place] + 1, *numbers[place + 1 :])
                heapq.heappush(heap, (total + 1, more))

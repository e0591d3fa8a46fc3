"""The sketch rules, one file each, and how they are combined for a program."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import NamedTuple

from ...tir.ir import Label
from .access_patterns import in_order
from .canonicalise import needs_nests
from .common import result_or_none
from .draft import Draft, Drafts, RuleChoice, Step, generator_of
from .fusion_groups import Partition, fusion_groups, never_runs, partition, prepared
from .rule import Alternative, Group, GroupKind, Planned, SketchRule, planned
from .rule_sets import register_rules
from .user_rules import SKETCH_RULES, LimitToTarget

MAX_SKETCHES = 12
MAX_OTHER = 4
"""Sketches of an alternative."""
MAX_ATTEMPTS = 48
"""Combinations of one way to part a program that are tried: those of many groups are too many."""

__all__ = ["MAX_SKETCHES", "completing", "fusion_groups", "plans", "register_rules"]


class SketchPlan(NamedTuple):
    """How a sketch is made: the draft to start from, and the steps to take.

    `choices` identify it, `name` is for people.
    """

    name: str
    choices: tuple[RuleChoice, ...]
    start: Draft
    steps: tuple[Step, ...] = ()


class PlanFamily(NamedTuple):
    """Plans, the most promising first; the first `most` of those that apply are searched."""

    plans: Iterator[SketchPlan]
    most: int


def plans(
    original: Draft, drafts: Drafts, only: Collection[str] | None = None, *, inexact: bool = False
) -> Iterator[PlanFamily]:
    """The plans by the rules for the target, and then those by the rules that users registered.

    The caller takes the steps of one plan after the other by `drafts`: later plans leave out
    variants that are refused. With `only`, the plans of these generators alone.
    """
    last = completing(original)
    families = _plans_by_target(original, drafts, only, inexact=inexact)
    yield from (_ending(family, last, only) for family in families)
    if SKETCH_RULES:
        families = _plans_by_users(original, drafts, only, tuple(SKETCH_RULES.values()))
        for family in families:
            plans, most = _ending(family, last, only)
            yield PlanFamily(map(_limited, plans), most)


def _ending(family: PlanFamily, last: tuple[Step, ...], only: Collection[str] | None) -> PlanFamily:
    """The plans of a family that are wanted, which end with the steps `last`."""
    wanted = (p for p in family.plans if only is None or generator_of(p.choices) in only)
    return family._replace(plans=(p._replace(steps=(*p.steps, *last)) for p in wanted))


def _limited(plan: SketchPlan) -> SketchPlan:
    """A plan of users' rules, which ends with the limits of the target."""
    return plan._replace(steps=(*plan.steps, LimitToTarget(plan.choices)))


def completing(draft: Draft) -> tuple[Step, ...]:
    """The steps with which each sketch for a target ends."""
    complete = draft.rules.complete
    return () if complete is None else (complete,)


def _plans_by_target(
    original: Draft, drafts: Drafts, only: Collection[str] | None, *, inexact: bool
) -> Iterator[PlanFamily]:
    """The combinations of one variant for each group of blocks.

    With `inexact`, also those of programs that are the same over the reals alone. Combinations that
    begin alike begin with the same draft and steps. A program with loops that never run is left as
    it is, and one that was scheduled by hand may stay so; so do its blocks that cannot have plain
    nests.
    """
    if never_runs(original.func):
        yield _single(SketchPlan("nothing", (RuleChoice("nothing"),), original))
        return
    if needs_nests(original.func):
        yield _single(SketchPlan("written", (RuleChoice("written"),), original))
    plain, kept = prepared(original)
    rules = original.rules.rules

    def variants_of(draft: Draft, group: Group) -> list[Planned]:
        return planned(rules, draft, group)

    alternatives = [rule.make for rule in original.rules.alternatives if rule.exact or inexact]
    for other in (other for make in alternatives for other in make(plain)):
        parted = partition(other.draft, kept, other.claimed)
        combinations = _Combinations(parted, drafts, only, tuple(other.before))
        yield PlanFamily(_by_alternative(other, combinations.plans(variants_of)), MAX_OTHER)
    combinations = _Combinations(partition(plain, kept), drafts, only)
    yield PlanFamily(combinations.plans(variants_of), MAX_SKETCHES)


def _by_alternative(other: Alternative, plans: Iterable[SketchPlan]) -> Iterator[SketchPlan]:
    """The plans of an alternative, which begin with its steps `before`."""
    for name, choices, start, steps in plans:
        if other.wanted(choices):
            chosen = (other.choice, *choices)
            yield SketchPlan(f"{other.name}:{name}", chosen, start, (*steps, *other.after))


def _plans_by_users(
    original: Draft, drafts: Drafts, only: Collection[str] | None, rules: Sequence[SketchRule]
) -> Iterator[PlanFamily]:
    """The combinations of variants with one of a user's rule at least.

    A group that users' rules have variants for takes one of those, any other one of the target's.
    """
    program = Group(GroupKind.PROGRAM, tuple(in_order(original.func)))
    for variant in planned(rules, original, program):
        yield _single(_plan(original, [variant]))
    if never_runs(original.func) or all(rule.kind is GroupKind.PROGRAM for rule in rules):
        return
    parted = partition(*prepared(original))
    by_users = {
        group: planned(rules, parted.draft, group) for groups in parted.ways for group in groups
    }

    def variants_of(draft: Draft, group: Group) -> list[Planned]:
        return by_users[group] or planned(draft.rules.rules, draft, group)

    ways = [groups for groups in parted.ways if any(by_users[group] for group in groups)]
    combinations = _Combinations(replace(parted, ways=ways), drafts, only)
    yield PlanFamily(combinations.plans(variants_of), MAX_SKETCHES)


def _single(plan: SketchPlan) -> PlanFamily:
    return PlanFamily(iter((plan,)), 1)


@dataclass(frozen=True)
class _Combinations:
    """The combinations of a variant of each group of a program, after the steps `before`."""

    parted: Partition
    drafts: Drafts
    only: Collection[str] | None
    before: tuple[Step, ...] = ()

    def plans(self, variants_of: Callable[[Draft, Group], list[Planned]]) -> Iterator[SketchPlan]:
        """The plans of all ways to part the program, of each way in turn."""
        draft, views, ways = self.parted.draft, self.parted.views, self.parted.ways
        known = {
            group: [
                _with_views_inlined(variant, group, views)
                for variant in variants_of(draft, group)
                if self._may_be_wanted(variant.choice)
            ]
            for group in dict.fromkeys(chain.from_iterable(ways))
        }
        turns = [self._of_way([known[group] for group in way]) for way in ways if way]
        return (p for plans in zip_longest(*turns) for p in plans if p is not None)

    def _may_be_wanted(self, choice: RuleChoice) -> bool:
        return self.only is None or any(str(choice) in generator for generator in self.only)

    def _of_way(self, groups: list[list[Planned]]) -> Iterator[SketchPlan]:
        """The plans of one way: at most `MAX_ATTEMPTS`.

        Where one was refused, its variants are tried alone, and those refused alone are left out.
        """
        seen = set[tuple[Planned, ...]]()
        combinations = _combined(groups)
        while len(seen) < MAX_ATTEMPTS and (variants := next(combinations, None)) is not None:
            if variants in seen:
                continue
            seen.add(variants)
            plan = _plan(self.parted.draft, variants, self.before)
            yield plan
            if self.drafts.refused(plan.start, plan.steps):
                refused = {v for v in variants if not self._applies(v)}
                groups = [[v for v in group if v not in refused] for group in groups]
                combinations = _combined(groups)

    def _applies(self, variant: Planned) -> bool:
        """Whether a variant applies to its group where no other one is scheduled."""
        plan = _plan(self.parted.draft, [variant], self.before)
        return result_or_none(self.drafts.after, plan.start, plan.steps) is not None


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


def _plan(start: Draft, variants: Sequence[Planned], before: tuple[Step, ...] = ()) -> SketchPlan:
    """The plan that carries out a variant of each group in turn, after the steps `before`."""
    return SketchPlan(
        "+".join(v.name for _, v in variants),
        tuple(choice for choice, _ in variants),
        start,
        (*before, *(step for _, v in variants for step in v.steps)),
    )


def _combined(groups: Sequence[Sequence[Planned]]) -> Iterator[tuple[Planned, ...]]:
    """The combinations of a variant of each group; none where a group has none."""
    for numbers in _by_sum([len(variants) for variants in groups]) if all(groups) else ():
        yield tuple(variants[n] for variants, n in zip(groups, numbers, strict=True))


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

"""Sketch rules: functions from a group of blocks to the variants of scheduling it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ...base.text import count
from ...schedule import Schedule
from ...tir.ir import Block, Label, Var
from .access_patterns import is_product
from .draft import Draft, Option, RuleChoice, Step


class GroupKind(Enum):
    """A kind of blocks that are scheduled together; each rule is for one kind."""

    PROGRAM = "all blocks of a program, as it is written"
    ORDERED = "iterations that run in their order alone"
    CONTRACTION = "a contraction, and the spatial block that follows it"
    ROWS = "a chain that shares its rows"
    ATTENTION = "two contractions with a chain of rows between them"
    PIPELINE = "spatial blocks that read windows of each other"
    ELEMENTWISE = "a spatial block"


@dataclass(frozen=True)
class Group:
    """Blocks that are scheduled together, in program order."""

    kind: GroupKind
    members: tuple[Block, ...]

    def __repr__(self) -> str:
        names = ", ".join(b.label.name for b in self.members)
        return f"<Group {names}: {self.kind.value}>"

    @property
    def labels(self) -> list[Label]:
        return [b.label for b in self.members]

    @property
    def anchor(self) -> Block:
        """The block whose loops are tiled, and which the others are computed for."""
        return self.members[0] if self.kind is GroupKind.CONTRACTION else self.members[-1]


@dataclass(frozen=True)
class Variant:
    """A way to schedule a group: the options that a rule decides on, and the steps, in turn.

    `name` is for people. Options identify the variant among those of its rule; what follows from
    the group alone is no option. Variants that begin alike share their first steps.
    """

    name: str
    steps: tuple[Step, ...]
    options: tuple[tuple[str, Option], ...] = ()

    def __repr__(self) -> str:
        return f"<Variant {RuleChoice(self.name, self.options)}: {count(len(self.steps), 'step')}>"

    @staticmethod
    def of(name: str, *steps: Step, **options: Option) -> Variant:
        return Variant(name, steps, tuple(sorted(options.items())))


Variants = Callable[[Draft, Group], Iterator[Variant]]
"""The variants of a group, the most promising first; none where the rule does not apply."""


@dataclass(frozen=True)
class SketchRule:
    """A rule: its `name` in records, the `kind` of groups that it is for, and its function.

    `variants` looks at a group in a draft and decides; it changes nothing. The steps of a variant
    change a copy of that draft, in which other groups may have been scheduled before.
    """

    name: str
    kind: GroupKind
    variants: Variants


class Planned(NamedTuple):
    """A variant with the rule that it is of."""

    choice: RuleChoice
    variant: Variant


def planned(rules: Iterable[SketchRule], draft: Draft, group: Group) -> list[Planned]:
    """The variants of a group by those of the rules that are for its kind, in their order."""
    return [
        Planned(RuleChoice(rule.name, variant.options), variant)
        for rule in rules
        if rule.kind is group.kind
        for variant in rule.variants(draft, group)
    ]


@dataclass(frozen=True)
class Alternative:
    """A draft that computes a program in another way.

    The blocks `claimed` are scheduled by steps of the alternative itself, `before` and `after`
    those of the other groups. `wanted` says by what was chosen for these which sketches count.
    """

    name: str
    choice: RuleChoice
    draft: Draft
    claimed: Collection[Label] = ()
    before: Sequence[Step] = ()
    after: Sequence[Step] = ()
    wanted: Callable[[Collection[RuleChoice]], bool] = lambda _: True


@dataclass(frozen=True)
class AlternativeRule:
    """A function that makes alternatives of a draft.

    Alternatives that are not `exact` compute the same over the reals alone.
    """

    make: Callable[[Draft], Iterator[Alternative]]
    exact: bool = True


@dataclass(frozen=True)
class RuleSet:
    """The rules for a kind of target, in the order in which they are tried.

    `map_outer` has the iterations of an outermost loop run at once, as the target does that.
    `rewrites` change a program with plain nests before its blocks are parted into groups.
    `is_contraction` says which reductions are contractions: by default products, which reuse both
    inputs. `instructions` are those of `rules` whose variants compute tiles of a contraction by an
    instruction.
    """

    map_outer: Callable[[Schedule, Var], None]
    rules: tuple[SketchRule, ...]
    rewrites: tuple[Callable[[Draft], Draft], ...] = ()
    is_contraction: Callable[[Block], bool] = is_product
    instructions: tuple[SketchRule, ...] = ()
    alternatives: tuple[AlternativeRule, ...] = ()
    complete: Step | None = None

    def has_instruction(self, draft: Draft, members: Sequence[Block]) -> bool:
        """Whether an instruction computes tiles of a contraction."""
        group = Group(GroupKind.CONTRACTION, tuple(members))
        return any(True for rule in self.instructions for _ in rule.variants(draft, group))

"""What a sketch rule is: a function from a group of blocks to variants of scheduling it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ...schedule import Schedule
from ...tir.ir import Block, Label, Var
from .access_patterns import is_product
from .draft import Draft, RuleChoice, Step


class GroupKind(Enum):
    """What the blocks of a group compute together."""

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

    @property
    def labels(self) -> list[Label]:
        return [b.label for b in self.members]

    @property
    def anchor(self) -> Block:
        """The block whose loops are tiled, and which the others are computed for."""
        return self.members[0] if self.kind is GroupKind.CONTRACTION else self.members[-1]


@dataclass(frozen=True)
class Variant:
    """What a rule decided for a group, and the steps that carry it out, in turn.

    `name` is for people. Variants that begin alike share their first steps.
    """

    choice: RuleChoice
    name: str
    steps: tuple[Step, ...]


Rule = Callable[[Draft, Group], Iterator[Variant]]
"""The variants of a group, the most promising first; none where the rule is not for it."""


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
    """The rules for a kind of target, each list in the order in which its rules are tried.

    `map_outer` has the iterations of an outermost loop run at once, as the target does that.
    `rules` has those for each kind of group. `rewrites` change a program with plain nests before
    its blocks are parted into groups. `is_contraction` says which reductions are contractions: by
    default products, which reuse both inputs. `instructions` are those for contractions whose
    variants compute tiles by an instruction.
    """

    map_outer: Callable[[Schedule, Var], None]
    rules: Mapping[GroupKind, tuple[Rule, ...]]
    rewrites: tuple[Callable[[Draft], Draft], ...] = ()
    is_contraction: Callable[[Block], bool] = is_product
    instructions: tuple[Rule, ...] = ()
    alternatives: tuple[AlternativeRule, ...] = ()

    def variants(self, draft: Draft, group: Group) -> list[Variant]:
        return [v for rule in self.rules.get(group.kind, ()) for v in rule(draft, group)]

    def has_instruction(self, draft: Draft, members: Sequence[Block]) -> bool:
        """Whether an instruction computes tiles of a contraction."""
        group = Group(GroupKind.CONTRACTION, tuple(members))
        return any(True for rule in self.instructions for _ in rule(draft, group))

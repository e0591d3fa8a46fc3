"""Other programs that a program may be computed by."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ...tir.ir import Label
from ..sketch import Draft, RuleChoice, Step


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

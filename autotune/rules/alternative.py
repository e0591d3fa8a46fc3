"""Other programs that a program may be computed by."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ...tir.ir import Label
from ..sketch import Draft, Step


@dataclass(frozen=True)
class Alternative:
    """A draft that computes a program in another way.

    The blocks `claimed` are scheduled by steps of the alternative itself, `before` and `after`
    those of the other groups. `wanted` says by its name which of its sketches count.
    """

    name: str
    draft: Draft
    claimed: Collection[Label] = ()
    before: Sequence[Step] = ()
    after: Sequence[Step] = ()
    wanted: Callable[[str], bool] = lambda _: True

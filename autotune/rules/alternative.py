"""Other programs that a program may be computed by."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from ...tir.ir import Func, Label
from ..sketch import Rule


@dataclass(frozen=True)
class Alternative:
    """A program in the place of the original one, and the rule that makes it.

    `names` are the numbers of its blocks, see `Draft.block`. The blocks `taken` are scheduled by
    rules of their own, `before` and `after` those of the other groups. Of its sketches those are
    `wanted` whose names say so.
    """

    name: str
    func: Func
    apply: Rule
    names: Mapping[Label, int]
    taken: Collection[Label] = ()
    before: list[Rule] = field(default_factory=list)
    after: list[Rule] = field(default_factory=list)
    wanted: Callable[[str], bool] = lambda _: True

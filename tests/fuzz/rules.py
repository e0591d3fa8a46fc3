"""The sketch rules take any program: they refuse parts of it, or schedule them."""

from __future__ import annotations

import logging

import numpy as np

from tilewright.autotune.model.cpu.estimate import Estimator
from tilewright.autotune.model.profile import profile
from tilewright.autotune.rules import fusion_groups
from tilewright.autotune.rules.fusion_groups import Fusion
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.sketch import sketches
from tilewright.schedule import Schedule, Step, Trace
from tilewright.schedule.find import blocks_in
from tilewright.target import CpuTarget
from tilewright.tir.ir import Func
from tilewright.tir.verify import verify

from ..schedule.machinery import check_compiled, check_meaning, check_random
from ..schedule.random_cases import MOST_VISITS, visits

TARGET = CpuTarget.named("cascadelake", threads=2)
FEW_STEPS = 5
"""A program after so many steps has more than the rules recognise than one after all."""
_log = logging.getLogger("tilewright")


def check_rules(sch: Schedule, *, compiled: bool) -> None:
    """The rules for the program that `sch` makes, and for the one after its first steps.

    Their candidates are interpreted, and `compiled` too.
    """
    steps = sch.trace.steps
    level = _log.level
    _log.setLevel(logging.ERROR)  # that no rule is for a program is no news here
    try:
        _check_programs(sch, steps, compiled=compiled)
    finally:
        _log.setLevel(level)


def _check_programs(sch: Schedule, steps: tuple[Step, ...], *, compiled: bool) -> None:
    if len(steps) > FEW_STEPS:
        first = Trace(steps[:FEW_STEPS]).apply(sch.original).func
        check_sketches(first, len(steps), compiled=compiled)
    check_sketches(sch.func, len(steps), compiled=compiled)


def check_sketches(func: Func, seed: int, *, compiled: bool = False) -> None:
    """Each block has one place, rules raise nothing, and a candidate computes what `func` does."""
    check_places(fusion_groups(func, TARGET))
    rng = np.random.default_rng(seed)
    created = sketches(func, TARGET, inexact=True)
    sketch = created[int(rng.integers(len(created)))]
    rows = Rowspace(sketch).sample(rng, 1)
    features = Estimator(profile(sketch.func, sketch.space.bounds), TARGET)(rows).features
    assert np.isfinite(features).all()
    for row in rows:
        candidate = sketch.trace.with_row(row.tolist()).apply(func).func
        verify(candidate)
        if visits(candidate.body) <= MOST_VISITS:
            check_random(check_meaning, func, candidate)
            if compiled:
                check_random(check_compiled, func, candidate)


def check_places(fusion: Fusion) -> None:
    """Each block is a member of one group, inlined in some, or kept."""
    members = [label for group in fusion.groups for label in group.members]
    inlined = {label for group in fusion.groups for label in group.inlined}
    assert len(set(members)) == len(members), "a block is a member of two groups"
    places = [set(members), inlined, set(fusion.kept)]
    blocks = [block.label for block in blocks_in(fusion.func.body)]
    assert set.union(*places) == set(blocks), "a block is nowhere"
    assert sum(map(len, places)) == len(blocks), "a block has two places"
    for group in fusion.groups:
        assert group.anchor in group.members
        assert [label for label in blocks if label in group.members] == list(group.members)

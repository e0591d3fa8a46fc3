"""Random cases: a program, the steps that are tried on it, and a tally of what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir.ir import Func

from . import random_stages as stages
from . import random_steps as steps
from .random_programs import a_program, a_program_of
from .random_stages import Pick, Stage
from .random_steps import STEPS, Step
from .random_targets import NoTarget


@dataclass(frozen=True)
class Theme:
    """Stages that make programs for steps which apply to few others."""

    stages: tuple[Stage, ...]
    steps: tuple[Step, ...]
    rank: int | None = None
    update: bool = False


THEMES = (
    Theme((stages.product_stage,), (steps.tensorize,), rank=2),
    Theme((stages.product_stage, stages.biased), (steps.pad_einsum, steps.tensorize), rank=2),
    Theme((stages.biased,), (steps.fuse_reduction_epilogue, steps.decompose_reduction)),
    Theme(
        (stages.map_stage, stages.stencil_stage, stages.window_stage), (steps.compute_at_and_roll,)
    ),
    Theme(
        (stages.map_stage, stages.two_reads, stages.turn_stage),
        (steps.fission, steps.pipeline, steps.double_buffer, steps.read_at),
    ),
    Theme((stages.map_stage, stages.reduce_stage), (steps.cache_inplace,), update=True),
    Theme((stages.pad_stage, stages.map_stage), (steps.decompose_padding,)),
    Theme(
        (stages.map_stage, stages.turn_stage, stages.two_reads),
        (steps.storage_align, steps.swizzle, steps.set_scope, steps.vectorize),
        rank=2,
    ),
    Theme(
        (stages.resize_stage, stages.flat_stage, stages.strided_stage, stages.gather_stage),
        (steps.cache_index, steps.reindex, steps.reindex_cache_read, steps.read_at),
    ),
    Theme(
        (stages.reduce_stage, stages.total_stage, stages.best_stage),
        (steps.rfactor, steps.split_reduction, steps.decompose_reduction),
        rank=2,
    ),
    Theme(
        (stages.map_stage, stages.mask_stage, stages.triangle_stage, stages.gather_stage),
        (steps.compute_inline, steps.reverse_compute_inline, steps.compute_at),
    ),
    Theme((stages.map_stage, stages.reduce_stage), (steps.sampled_split, steps.chosen_split)),
)


def a_case(pick: Pick) -> tuple[Func, Sequence[Step]]:
    """A program and steps for it; one in four is of a theme, whose steps are then a third."""
    if pick(4):
        return a_program(pick), STEPS
    theme = THEMES[pick(len(THEMES))]
    func = a_program_of(
        pick, theme.stages, 1 + pick(3), rank=theme.rank, update=theme.update or pick(8) == 0
    )
    return func, STEPS + theme.steps * (len(STEPS) // (2 * len(theme.steps)))


@dataclass(frozen=True)
class Tally:
    """How often each primitive was accepted, changing the program or not, and refused."""

    changes: Counter[str] = field(default_factory=Counter)
    queries: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)

    def update(self, other: Tally) -> None:
        """Add what another one counted."""
        self.changes.update(other.changes)
        self.queries.update(other.queries)
        self.refusals.update(other.refusals)


def apply_random_steps(
    sch: Schedule, pick: Pick, count: int, tally: Tally, choices: Sequence[Step] = STEPS
) -> list[ScheduleError]:
    """Try `count` of the steps `choices`. Gives the refusals."""
    refusals = []
    for _ in range(count):
        step = choices[pick(len(choices))]
        before = len(sch.trace)
        try:
            step(sch, pick)
        except ScheduleError as error:
            refusals.append(error)
            tally.refusals[error.primitive or "before any primitive"] += 1
        except NoTarget:
            pass
        programs = sch._history[before:]
        for s, old, new in zip(sch.trace.steps[before:], programs, programs[1:], strict=False):
            same = all(a is b for a, b in zip(old, new, strict=True))
            (tally.queries if same else tally.changes)[s.op] += 1
    return refusals

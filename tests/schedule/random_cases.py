"""Random cases: a program, the steps that are tried on it, and a tally of what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir.ir import Block, For, Func, Stmt
from tilewright.tir.visit import nested

from . import random_stages as stages
from . import random_steps as steps
from .random_conditions import with_conditions
from .random_extremes import EXTREMES
from .random_guards import guarded
from .random_programs import (
    DTYPES,
    a_program,
    a_program_of,
    with_plain_statements,
    with_shared_unit_loops,
    with_strides,
    with_updates,
)
from .random_rounds import a_program_of_rounds
from .random_stages import SIZES, Pick, Stage
from .random_steps import STEPS, Step
from .random_targets import NoTarget


@dataclass(frozen=True)
class Theme:
    """Stages that make programs for steps which apply to few others."""

    stages: tuple[Stage, ...]
    steps: tuple[Step, ...]
    rank: int | None = None
    update: bool = False
    count: int = 3
    """At most how many stages."""
    sizes: tuple[int, ...] = SIZES
    dtypes: tuple[str, ...] = DTYPES
    plain: bool = False
    """Whether most blocks are written as plain statements, and many update their input."""
    shared: bool = False
    """Whether iterations of blocks share loops of one iteration."""
    conditions: bool = False
    """Whether blocks run under conditions, of data or of loops."""
    guarded: bool = False
    """Whether there are conditions and ordered updates."""


THEMES = (
    Theme(
        (stages.product_stage, stages.outer_stage),
        (steps.tensorize,),
        rank=2,
        count=1,
        sizes=(2, 4, 8),
        dtypes=("int32", "float32"),
    ),
    Theme((stages.product_stage, stages.biased), (steps.pad_einsum, steps.tensorize), rank=2),
    Theme(
        (stages.filter_stage, stages.mirror_stage, stages.gather_stage),
        (steps.pad_einsum, steps.compute_inline, steps.pack),
        rank=1,
    ),
    Theme((stages.biased,), (steps.fuse_reduction_epilogue, steps.decompose_reduction)),
    *(
        Theme(
            (stages.map_stage, stages.stencil_stage, stages.window_stage, stages.mirror_stage),
            (steps.compute_at_and_roll, steps.rolling_buffer),
            rank=rank,
            sizes=(6, 7, 8),
        )
        for rank in (1, 2)
    ),
    Theme(
        (stages.map_stage, stages.two_reads, stages.turn_stage),
        (steps.fission, steps.pipeline, steps.double_buffer, steps.read_at),
    ),
    Theme((stages.map_stage, stages.reduce_stage), (steps.cache_inplace,), update=True),
    *(
        Theme(
            (stages.map_stage, stages.mirror_stage, stages.two_reads, stages.soft_stage),
            (
                steps.compute_at,
                steps.reverse_compute_at,
                steps.compute_inline,
                moved,
                steps.reverse_compute_inline,
                steps.distinguish_updates,
                steps.cache_read,
            ),
            rank=rank,
            update=True,
            dtypes=("int32", "float32"),
        )
        for rank in (1, 2)
        for moved in (steps.parallel, steps.fuse)
    ),
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
        (
            steps.rfactor,
            steps.split_reduction,
            steps.decompose_reduction,
            steps.locate_extremum,
        ),
        rank=2,
    ),
    Theme(
        (stages.reduce_stage, stages.total_stage, stages.product_stage, stages.map_stage),
        (steps.decompose_reduction, steps.merge_reduction, steps.select_terms, steps.fission),
        update=True,
    ),
    *(
        Theme(made, (*tried, steps.compute_inline), rank=2, dtypes=("float32", "float64"))
        for made, tried in (
            (
                (stages.soft_stage, stages.weighted_stage),
                (steps.online_softmax, steps.online_attention, steps.hoist_factor),
            ),
            ((stages.variance_stage, stages.map_stage), (steps.online_variance,)),
        )
    ),
    Theme(
        (stages.map_stage, stages.mask_stage, stages.triangle_stage, stages.gather_stage),
        (steps.compute_inline, steps.reverse_compute_inline, steps.compute_at),
    ),
    Theme(
        (*EXTREMES, stages.quotient_stage, stages.scaled_stage, stages.reduce_stage),
        (steps.vectorize, steps.partition, steps.compute_at, steps.compute_inline),
        sizes=(3, 4, 5, 8, 16),
        dtypes=("int64", "int64", "int32", "uint64", "uint8"),
    ),
    Theme(
        (stages.image_stage, stages.map_stage, stages.pad_stage),
        (steps.winograd, steps.compute_inline),
        rank=2,
        sizes=(4, 5, 6, 7, 8),
        dtypes=("float64",),
    ),
    *(
        Theme(
            (stages.product_stage, stages.biased, stages.map_stage, stages.two_reads),
            (steps.join_tile, steps.join_block, steps.join_layout, steps.parallel),
            rank=rank,
            sizes=(3, 4, 5, 7),
        )
        for rank in (2, 3)
    ),
    Theme((stages.map_stage, stages.reduce_stage), (steps.sampled_split, steps.chosen_split)),
    Theme(
        (stages.map_stage, stages.reduce_stage, stages.stencil_stage, stages.gather_stage),
        (
            steps.make_blocks,
            steps.fission,
            steps.merge,
            steps.distinguish_updates,
            steps.compute_at,
        ),
        plain=True,
    ),
    Theme(
        (stages.reduce_stage, stages.window_stage, stages.product_stage),
        (steps.expand_reduction, steps.decompose_reduction, steps.reindex, steps.rfactor),
        sizes=(1, 1, 2, 3),
        shared=True,
    ),
    *(
        Theme(
            (stages.reduce_stage, stages.total_stage, stages.product_stage, stages.map_stage),
            tried,
            rank=2,
            count=2,
            sizes=(2, 3, 4, 5),
            guarded=True,
        )
        for tried in (
            (steps.rfactor, steps.split_reduction, steps.decompose_reduction, steps.merge),
            (steps.split, steps.reorder, steps.fuse, steps.partition, steps.compute_at),
            (steps.compute_inline, steps.reverse_compute_inline, steps.cache_inplace),
        )
    ),
    *(
        Theme(made, tried, rank=rank, conditions=True)
        for rank in (1, 2)
        for made, tried in (
            (
                (stages.mask_stage, stages.triangle_stage, stages.map_stage, stages.two_reads),
                (
                    steps.cache_write,
                    steps.write_at,
                    steps.reindex,
                    steps.reindex_cache_write,
                    steps.compute_at,
                    steps.reverse_compute_at,
                    steps.merge,
                    steps.fission,
                    steps.fuse,
                    steps.split,
                    steps.reorder,
                ),
            ),
            (
                (
                    stages.reduce_stage,
                    stages.product_stage,
                    stages.triangle_stage,
                    stages.mask_stage,
                ),
                (
                    steps.rfactor,
                    steps.decompose_reduction,
                    steps.compute_inline,
                    steps.transform_layout,
                    steps.pipeline,
                    steps.double_buffer,
                    steps.cache_read,
                ),
            ),
        )
    ),
)


MOVES = (
    *(steps.cache_read, steps.cache_write, steps.merge, steps.fuse_reduction_epilogue),
    *(steps.compute_at, steps.reverse_compute_at),
    *(steps.compute_inline, steps.reverse_compute_inline, steps.rolling_buffer),
)
"""Steps after which blocks run in other iterations, with those that make blocks for them."""


def a_case(pick: Pick, about: Step | None = None) -> tuple[Func, Sequence[Step]]:
    """A program and steps for it; one in four is of a theme, whose steps are then a third.

    Where it is about one step, there are no others, and the theme is one of that step's.
    """
    themes = [t for t in THEMES if about is None or about in t.steps]
    if not themes or (about is None and pick(4)):
        if pick(6) == 0:
            tried = MOVES if pick(2) else STEPS + MOVES * (len(STEPS) // len(MOVES))
            return a_program_of_rounds(pick), tried if about is None else (about,)
        func = a_program(pick)
        if pick(8) == 0:
            func = with_shared_unit_loops(func, pick)
        elif pick(4) == 0:
            func = guarded(func, pick)
        elif pick(4) == 0:
            func = with_conditions(func, pick)
        if pick(6) == 0:
            func = with_strides(func, pick)
        return func, STEPS if about is None else (about,)
    theme = themes[pick(len(themes))]
    func = a_program_of(
        pick,
        theme.stages,
        1 + pick(theme.count),
        rank=theme.rank,
        update=theme.update or pick(8) == 0,
        sizes=theme.sizes,
        dtypes=theme.dtypes,
    )
    if theme.plain:
        func = with_plain_statements(with_updates(func, pick), pick)
    if theme.shared:
        func = with_shared_unit_loops(func, pick)
    if theme.guarded:
        func = guarded(func, pick)
    if theme.conditions:
        func = with_conditions(func, pick)
    if about is not None:
        return func, (about,)
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


class CrashError(Exception):
    """A step failed in a way that none may; `schedule` is what it was tried on."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.schedule = schedule


MOST_VISITS = 1 << 14
"""How often the blocks of a program may run altogether: interpreting it takes time."""


def apply_random_steps(
    sch: Schedule, pick: Pick, count: int, tally: Tally, choices: Sequence[Step] = STEPS
) -> tuple[Schedule, list[ScheduleError]]:
    """Try `count` of the steps `choices` on a copy of `sch`. Returns it and the refusals.

    Steps that make too large a program are left out.
    """
    refusals = []
    for _ in range(count):
        step = choices[pick(len(choices))]
        before, trial = len(sch.trace), sch.copy()
        try:
            step(trial, pick)
        except ScheduleError as error:
            refusals.append(error)
            tally.refusals[error.primitive or "before any primitive"] += 1
        except NoTarget:
            pass
        except Exception as error:
            raise CrashError(trial) from error
        if visits(trial.func.body) > MOST_VISITS:
            continue
        sch = trial
        programs = sch._history[before:]
        for s, old, new in zip(sch.trace.steps[before:], programs, programs[1:], strict=False):
            same = all(a is b for a, b in zip(old, new, strict=True))
            (tally.queries if same else tally.changes)[s.op] += 1
    return sch, refusals


def visits(stmt: Stmt) -> int:
    """How often the blocks in `stmt` run, predicates left aside."""
    times = max(stmt.extent, 0) if type(stmt) is For and isinstance(stmt.extent, int) else 1
    return times * sum(map(visits, nested(stmt))) if type(stmt) is not Block else 1

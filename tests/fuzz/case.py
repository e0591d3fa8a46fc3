"""One random program under random steps, and what must hold of it."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.errors import IRError, ScheduleError, TilewrightError
from tilewright.schedule import Schedule, Trace
from tilewright.schedule.require import Space
from tilewright.tir.initialised import wraps_around
from tilewright.tir.ir import Const, Func, const
from tilewright.tir.verify import verify
from tilewright.tir.visit import substitute

from ..schedule.machinery import (
    check_compiled,
    check_meaning,
    check_random,
    check_replays,
    verify_steps,
)
from ..schedule.random_cases import (
    MOST_VISITS,
    CrashError,
    Tally,
    a_case,
    apply_random_steps,
    visits,
)
from ..schedule.random_steps import Step
from .rules import check_rules

MOST_STEPS = 32
MOST_ROWS = 2
"""How many rows of decisions are drawn for a trace that leaves them open."""


@dataclass(frozen=True)
class Failure:
    """A failure (`kind` for short) when `trace` was applied to `func`, which gave `after`."""

    kind: str
    what: str
    func: Func
    trace: Trace
    after: Func | None
    compiled: bool


def run_case(
    seed: int, tally: Tally, *, compiled: bool, about: Step | None = None
) -> Failure | None:
    """Try the random schedule of `seed`, made of one step alone where it is about that."""
    rng = np.random.default_rng(seed)

    def pick(n: int) -> int:
        return int(rng.integers(n))

    func, steps = a_case(pick, about)
    sch = Schedule(func, seed=seed)
    try:
        count = 1 + pick(MOST_STEPS)
        sch, refusals = apply_random_steps(sch, pick, count, tally, steps)
        for refusal in refusals:
            require_readable(refusal)
    except CrashError as crash:
        sch, error = crash.schedule, crash.__cause__
        assert error is not None
        text = "".join(traceback.format_exception(error))
        return Failure(kind_of(error), text, sch.original, sch.trace, sch.func, compiled)
    except Exception as error:  # noqa: BLE001
        text = traceback.format_exc()
        return Failure(kind_of(error), text, sch.original, sch.trace, sch.func, compiled)
    return checked(sch, compiled=compiled)


def require_readable(refusal: ScheduleError) -> None:
    """Raise `AssertionError` where a refusal gives no reason of its own, or cannot be shown."""
    cause = refusal.__cause__
    assert not isinstance(cause, (IRError, RecursionError)), f"refused by accident: {cause!r}"
    assert str(refusal)


def checked(sch: Schedule, *, compiled: bool) -> Failure | None:
    """The failure of the checks of the program of `sch`, if one fails."""
    try:
        verify_steps(sch)
        check_random(check_meaning, sch.original, sch.func)
        check_replays(sch.original, sch)
        check_symbolic(sch)
        check_rules(sch, compiled=compiled)
        if compiled:
            check_random(check_compiled, sch.original, sch.func)
    except Exception as error:  # noqa: BLE001
        text = f"{type(error).__name__}: {error}"
        if not isinstance(error, (AssertionError, TilewrightError)):
            text = traceback.format_exc()
        return Failure(kind_of(error), text, sch.original, sch.trace, sch.func, compiled)
    return None


def check_symbolic(sch: Schedule) -> None:
    """With its decisions left open the trace is applied or refused for a reason of its own.

    What decisions its constraints then allow give programs that compute the same.
    """
    if not sch.trace.decisions or wraps_around(sch.original):  # its steps are verified one by one
        return
    try:
        opened = sch.trace.apply(sch.original, symbolic=True)
    except ScheduleError as refusal:
        require_readable(refusal)
        return
    space = opened.space
    assert space is not None
    rng = np.random.default_rng(len(sch.trace))
    for _ in range(MOST_ROWS):
        row = [int(rng.choice(values)) for values in space.values.values()]
        if not allows(space, row):
            continue
        func = opened.trace.with_row(row).apply(sch.original).func
        if visits(func.body) <= MOST_VISITS:
            verify(func)
            check_random(check_meaning, sch.original, func)


def allows(space: Space, row: Sequence[int]) -> bool:
    """Whether all constraints hold for a row of decisions."""
    values = {v: const(n) for v, n in zip(space.bounds, row, strict=True)}
    results = [substitute(c.condition, values) for c in space.constraints]
    return all(type(r) is Const and bool(r.value) for r in results)


def kind_of(error: BaseException) -> str:
    """The text that distinguishes failures: the type and the template of the message."""
    message = error.message if isinstance(error, TilewrightError) else ""
    return f"{type(error).__name__} {message}"

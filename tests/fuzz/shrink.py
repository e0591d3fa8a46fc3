"""Failing schedules made short: steps are left out as long as the failure stays of one kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule, Trace
from tilewright.schedule.step_arguments import Argument, Derived, Lambda, Record, Ref
from tilewright.schedule.trace import Step

from .case import Failure, checked, kind_of

Check: TypeAlias = Callable[[Schedule], Failure | None]


def shrunk(failure: Failure, check: Check | None = None) -> Failure:
    """`failure` with as few steps as it takes, tried one by one from the last to the first.

    `check` finds what is wrong with a schedule; by default that is `checked`.
    """
    find = partial(checked, compiled=failure.compiled) if check is None else check
    best = failure
    k = len(best.trace) - 1
    while k >= 0:
        shorter = without(best.trace.steps, k)
        again = None if shorter is None else _same_failure(best, Trace(shorter), find)
        if again is not None:
            best = again
            k = min(k, len(best.trace))
        k -= 1
    return best


def _same_failure(failure: Failure, trace: Trace, find: Check) -> Failure | None:
    try:
        sch = trace.apply(failure.func)
    except ScheduleError:
        return None
    except Exception as error:  # noqa: BLE001
        same = kind_of(error) == failure.kind
        return replace(failure, trace=trace, after=None) if same else None
    found = find(sch)
    return found if found is not None and found.kind == failure.kind else None


def without(steps: Sequence[Step], drop: int) -> tuple[Step, ...] | None:
    """The steps but for number `drop` and those that need what it makes."""
    new_index: dict[int, int] = {}
    kept: list[Step] = []
    count = made = 0
    for k, step in enumerate(steps):
        outputs = range(count, count + len(step.outputs))
        count += len(step.outputs)
        try:
            arguments = tuple((n, _renumbered(v, new_index)) for n, v in step.arguments)
        except KeyError:
            continue
        if k == drop:
            continue
        for old in outputs:
            new_index[old] = made
            made += 1
        kept.append(replace(step, arguments=arguments))
    return tuple(kept) if len(kept) < len(steps) else None


def _renumbered(value: Argument, index: dict[int, int]) -> Argument:
    """An argument with its references renumbered. Raises `KeyError` for one that is gone."""
    match value:
        case Ref():
            return Ref(value.kind, index[value.index])
        case Derived():
            return Derived(value.op, tuple(_renumbered(a, index) for a in value.args))
        case tuple():
            return tuple(_renumbered(v, index) for v in value)
        case Record():
            return Record(tuple((k, _renumbered(v, index)) for k, v in value.items))
        case Lambda():
            return value
        case _:
            return value

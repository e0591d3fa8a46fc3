"""Parallel loops of so little work that a team of threads takes longer to begin than it saves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...schedule import Trace
from ...target import CpuTarget, Target
from ...tir.ir import Func
from ..model.profile import profile
from ..model.target_model import TargetModel

LONG = 64
"""A program that takes so many times as long as a team to begin is left as it is."""


def without_small_teams(func: Func, trace: Trace, target: Target, model: TargetModel) -> Trace:
    """The trace without the `parallel` steps that the estimate says cost more than they save.

    `target` is resolved, and `trace` leaves no decision open. A step saves what the program takes
    longer without it, both without the time to begin teams; it costs that time once. Those that
    save nothing are kept: they are not part of calls.
    """
    steps = [step for step in trace if step.op == "parallel"]
    if not steps or not isinstance(target, CpuTarget) or target.threads == 1:
        return trace
    free = replace(target, rates=target.rates._replace(fork=0.0))

    def seconds(trace: Trace) -> float:
        scheduled = trace.apply(func).func
        row = np.zeros((1, 0), np.int64)
        return float(model.estimator(profile(scheduled), free)(row).seconds[0])

    now = seconds(trace)
    for step in steps if now < LONG * target.rates.fork else ():
        alone = Trace(tuple(s for s in trace if s is not step))
        serial = seconds(alone)
        if 0.0 < serial - now <= target.rates.fork:
            trace, now = alone, serial
    return trace

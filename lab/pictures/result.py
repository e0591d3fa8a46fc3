"""The picture of a result of tuning: its gain, how it was found, and where the time went."""

from __future__ import annotations

import htpy as h

from ...autotune.result import BestResult, TuneResult
from ...base.durations import format_seconds
from ...base.text import count, format_si, short_id
from ...schedule import Trace
from ...tuning_db.gains import gains_text
from .bars import parts
from .page import text
from .trace import steps
from .trials import convergence, failures, finals, gains, lead, predictions, remarks

_SPENT = {
    "search": "search",
    "model": "cost model",
    "build": "builds",
    "run": "runs",
    "waiting": "waiting",
    "other": "other",
    "earlier": "earlier calls",
}
"""The names of the parts of `Spent`."""


def view(value: TuneResult | BestResult) -> h.Node:
    """The picture of a result, or of the best schedule that it found."""
    return _best(value) if isinstance(value, BestResult) else _result(value)


def _result(result: TuneResult) -> h.Node:
    if result.kernels:
        return h.section(".result")[
            h.h3[text(result.workload)],
            lead(result.lines[0]),
            map(_result, result.kernels.values()),
        ]
    best, (head, *lines) = result.best, result.lines
    spent = [(name, getattr(result.spent, part)) for part, name in _SPENT.items()]
    return h.section(".result")[
        h.h3[text(result.workload)],
        h.p(".soft")[text(f"{result.target}, session {short_id(result.session)}")],
        lead(head, _rate(result.flops, best.seconds) if best is not None else None),
        [remarks(line, kind="bad" if line in result.warnings else "") for line in lines],
        h.div(".grid")[
            convergence(result.history, result.finals),
            predictions(result.history),
            h.div[gains(result.gains), failures(result.history)],
            parts("Where the time went", spent, format_seconds),
        ],
        finals(result.finals),
        trace(best.trace, best.generator) if best is not None else None,
    ]


def _best(best: BestResult) -> h.Node:
    origin = f"schedule {short_id(best.schedule_id)}, measured by session {short_id(best.session)}"
    return h.section(".result")[
        lead(str(best.time), origin),
        remarks(gains_text(best.gains, explained=True)),
        finals(best.comparison),
        trace(best.trace, best.generator),
    ]


def trace(found: Trace, generator: str) -> h.Element:
    """The steps of a schedule, folded."""
    made = f" by {generator}" if generator else ""
    return h.details[
        h.summary[text(f"The schedule: {count(len(found), 'step')}{made}")],
        steps(found),
    ]


def _rate(flops: int, seconds: float) -> str | None:
    return format_si(flops / seconds, "FLOP/s") if flops and seconds > 0 else None

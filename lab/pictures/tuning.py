"""The pictures of sessions: at work (the best so far, predictions, calm), and of their results.

The same for a run of this process and for one that is read from a database.
"""

from __future__ import annotations

from datetime import UTC, datetime

import htpy as h

from ...autotune.result import BestResult, TuneResult
from ...autotune.session.events import Trial
from ...autotune.show.picture import HasPictures, Moment, Picture, Pictures
from ...base.durations import format_seconds
from ...base.text import count, format_si, short_id
from ...schedule import Trace
from ...tuning_db.gains import gains_text
from .bars import parts
from .page import text
from .trace import steps
from .trials import convergence, failures, finals, gains, lead, predictions, remarks

_PREPARED = "Tuning has not begun yet: the program is prepared."
_STAYS = "show the run again for a new one"
_RESUME = (
    "If the process that tunes has ended since, its measurements are in the database: tw.open_run "
    "shows them, and resume=True with the same target and budget continues the session."
)
_MOST = 400
"""Trials that are drawn: a drawing takes a few milliseconds of the process that tunes."""


def view(value: Pictures | HasPictures) -> h.Node:
    """The programs of a run, each with its charts, and what is said of the run as a whole.

    Until the run has ended, the picture says when it was drawn: a front end may keep it for ever.
    """
    pictures = value if isinstance(value, Pictures) else value.pictures
    shown = [_picture(picture) for picture in pictures.pictures.values()]
    over = pictures.ended
    return h.section(".live", aria_label="progress of tuning")[
        shown or (None if over else h.p[_PREPARED]),
        remarks(pictures.error, kind="bad"),
        None if over else remarks(_of_moment(value), kind="soft"),
    ]


def _of_moment(value: Pictures | HasPictures) -> str:
    """When a picture is drawn, whether it stays so, and how to go on without its process."""
    drawn = f"This picture is of {datetime.now(UTC):%Y-%m-%d %H:%M:%S} (UTC)"
    if not isinstance(value, Pictures):
        why = value.why if isinstance(value, Moment) else _STAYS
        drawn = f"{drawn}, and stays as it is: {why}"
    return f"{drawn}. {_RESUME}"


def _picture(picture: Picture) -> h.Node:
    started = picture.started
    total, done = picture.progress
    tried, note = _drawn(picture)
    return h.section(".result")[
        h.h3[text(started.workload)],
        h.p(".soft")[text(started.target)],
        lead(picture.rate, picture.trial, f"{picture.elapsed:.0f} s"),
        h.progress(
            max=f"{total:g}", value=f"{min(done, total):g}", aria_label="used of the budget"
        ),
        h.p[h.strong["Now: "], text(picture.doing)],
        h.p(class_="soft" if picture.is_calm else "bad")["Machine: ", text(picture.calm)]
        if picture.calm
        else None,
        h.div(".grid")[
            convergence(tried, picture.comparison),
            predictions(tried),
            failures(picture.trials),
        ],
        h.p(".soft")[note] if note else None,
        finals(picture.comparison),
        remarks(*picture.conclusions),
    ]


def _drawn(picture: Picture) -> tuple[list[Trial], str | None]:
    """The trials that are drawn, and a remark where they are not all: all records are."""
    trials = picture.trials
    stride = -(-len(trials) // _MOST) or 1
    tried = [t for n, t in enumerate(trials) if t.record or n % stride == 0 or n == len(trials) - 1]
    note = None if stride == 1 else f"Of {len(trials):,} trials, 1 in {stride} is drawn."
    return tried, note


# The picture of a result of tuning: its gain, how it was found, and where the time went.

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


def result_view(value: TuneResult | BestResult) -> h.Node:
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

"""The picture of sessions at work: the best so far, predictions, what is being done, and calm.

The same for a run of this process and for one that is read from a database.
"""

from __future__ import annotations

from datetime import UTC, datetime

import htpy as h

from ...autotune.session.events import Trial
from ...autotune.show.picture import HasPictures, Moment, Picture, Pictures
from .page import text
from .trials import convergence, failures, finals, lead, predictions, remarks

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

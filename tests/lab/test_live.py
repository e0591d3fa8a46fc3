"""The picture of sessions at work."""

from __future__ import annotations

from dataclasses import replace

import html5lib
import pytest

from tilewright.autotune.session.events import Ended, Final, Started, Trial
from tilewright.autotune.show.picture import Pictures
from tilewright.base.durations import MeasuredTime
from tilewright.base.errors import BuildError
from tilewright.lab.pictures.views import html_of
from tilewright.tuning_db import ComparedSchedule, Outcome, Verdict

HOSTILE = '<script>alert("x")</script>\x00\x1b[2J'


def pictures(trials: int, workload: str = "matmul", programs: int = 1) -> Pictures:
    shown = Pictures()
    for program in range(programs):
        shown.add(
            Started(
                "0" * 64, workload, "cpu", trials, None, 0, 0, 10, None, programs, program=program
            )
        )
    for n in range(1, trials + 1):
        failed = n % 5 == 0
        best = 1e-3 + 1e-2 / n
        shown.add(
            Trial(
                number=n,
                outcome=Outcome.CRASH if failed else Outcome.OK,
                seconds=None if failed else best,
                best_seconds=best,
                record=n == 1,
                error=HOSTILE if failed else None,
                schedule="ab" * 32,
                elapsed=float(n),
                predicted=1.1 * best,
            )
        )
    return shown


def parsed(value: object) -> str:
    text = html_of(value)
    html5lib.HTMLParser(strict=True).parseFragment(text)
    return text


@pytest.mark.parametrize("trials", [0, 1, 30])
def test_it_is_valid_html_with_nothing_hostile(trials: int) -> None:
    text = parsed(pictures(trials, HOSTILE))
    assert "<script" not in text
    assert "\x1b" not in text
    assert 'aria-label="used of the budget"' in text
    assert ("crash" in text) is (trials > 4)


def test_a_run_that_has_not_begun() -> None:
    waiting = Pictures()
    assert "has not begun yet" in parsed(waiting)
    waiting.fail(BuildError("no"))
    assert "has not begun yet" not in parsed(waiting)
    assert "BuildError: no" in parsed(waiting)


def test_of_very_many_trials_some_are_drawn() -> None:
    text = parsed(pictures(5000))
    assert "Of 5,000 trials, 1 in 13 is drawn." in text
    assert len(text) < 60_000


def test_each_program_has_its_picture_and_the_run_its_error() -> None:
    shown = pictures(3, programs=2)
    shown.add(Ended("done", False, 3, MeasuredTime(1e-3), 3.0, noise="Something else was running."))
    shown.error = "ZeroDivisionError: of the callback"
    text = parsed(shown)
    assert text.count("<h3>matmul</h3>") == 2
    for fact in ("Something else was running.", str(shown.error)):
        assert fact in text


def test_the_point_of_the_finals_is_their_time_where_another_session_has_the_best() -> None:
    shown = pictures(3)
    shown.add(Final((ComparedSchedule("ab" * 32, 2.1e-3, 20, 1.0, None, Verdict.FASTEST),), 3.5))
    assert "finals: 2.1 ms" in parsed(shown)
    best = MeasuredTime(1e-3)
    shown.add(Ended("done", False, 3, best, 4.0, best_session="9" * 64, own_seconds=2.1e-3))
    text = parsed(shown)
    assert "best 1 ms" in text
    assert "finals: 2.1 ms" in text
    assert "finals: 1 ms" not in text


def test_programs_may_begin_while_others_are_shown() -> None:
    shown = pictures(1, programs=2)
    for number, _ in enumerate(shown.pictures.values(), start=7):
        shown.add(replace(shown.pictures[0].started, program=number))
    assert sorted(shown.pictures) == [0, 1, 7, 8]


def test_the_chart_begins_at_the_first_trial() -> None:
    text = html_of(pictures(4))
    late = Pictures()
    for picture in pictures(4).pictures.values():
        late.add(picture.started)
        for trial in picture.trials:
            late.add(replace(trial, elapsed=trial.elapsed + 30))
    assert "seconds since the first trial" in text
    assert _chart(html_of(late)) == _chart(text), "measuring the machine tries nothing"


def _chart(text: str) -> str:
    """The first drawing."""
    return text[text.index("<svg") : text.index("</svg>")]

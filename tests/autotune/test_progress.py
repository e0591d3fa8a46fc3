"""Progress by itself: which display is taken, what it shows, and that its failures harm nothing."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from tilewright import TuningDatabase, tune
from tilewright.autotune.result import TuneResult
from tilewright.autotune.session.events import Batch, Drift, Ended, Event, Started, Trial, Waiting
from tilewright.autotune.show.display import LiveDisplay, sparkline
from tilewright.autotune.show.picture import Picture
from tilewright.autotune.show.progress import SafeDisplay
from tilewright.base.durations import MeasuredTime
from tilewright.tuning_db import Outcome

from .children import QUICK
from .kernels import matmul
from .recorded import Play, ok

pytestmark = pytest.mark.usefixtures("given_machine", "remembered_choices", "sketched")
STARTED = Started("0" * 64, "matmul A:float32[4,4]", "cpu", 4, None, 0, 0, 2_000_000, None)


def trial(number: int, seconds: float, predicted: float | None = None) -> Trial:
    return Trial(
        number=number,
        outcome=Outcome.OK,
        seconds=seconds,
        best_seconds=seconds,
        record=True,
        error=None,
        schedule="ab" * 32,
        elapsed=float(number),
        predicted=predicted,
    )


def run(db: TuningDatabase, callback: Callable[[Event], object] | None = None) -> TuneResult:
    return tune(matmul(), "cpu -threads=1", database=db, trials=4, callback=callback, config=QUICK)


def test_lines_are_printed_where_there_is_no_terminal(
    db: TuningDatabase, play: Play, capsys: pytest.CaptureFixture[str]
) -> None:
    play(ok(3.0), ok(2.0))
    run(db)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0].startswith("tuning matmul A:float32[")
    assert lines[1].startswith("trial 1/4: best 3 s")
    assert lines[-1].endswith("all 4 trials are done")


def test_progress_can_be_turned_off(
    db: TuningDatabase, play: Play, capsys: pytest.CaptureFixture[str]
) -> None:
    play(ok(3.0))
    tune(matmul(), "cpu -threads=1", database=db, trials=4, config=QUICK, progress=False)
    assert capsys.readouterr() == ("", "")


def test_a_callback_is_called_besides(
    db: TuningDatabase, play: Play, capsys: pytest.CaptureFixture[str]
) -> None:
    play(ok(3.0))
    events: list[Event] = []
    run(db, events.append)
    assert isinstance(events[-1], Ended)
    assert "all 4 trials are done" in capsys.readouterr().err


class Broken:
    """A display that fails at the first trial."""

    def __enter__(self) -> Broken:
        return self

    def __exit__(self, *_: object) -> None:
        raise AssertionError("one that failed is not used again")

    def __call__(self, event: Event) -> None:
        if isinstance(event, Trial):
            raise BrokenPipeError("the front end went away")


def test_a_display_that_fails_is_off_and_no_measurement_is_lost(
    db: TuningDatabase,
    play: Play,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    play(ok(3.0), ok(2.0))
    monkeypatch.setattr(
        "tilewright.autotune.tune.progress_here", lambda *_, **__: SafeDisplay(Broken())
    )
    events: list[Event] = []
    result = run(db, events.append)
    assert result.trials == len(db.measurements()) == 4
    assert sum(isinstance(e, Trial) for e in events) == 4
    (told,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "display of progress failed and is off: BrokenPipeError" in told


@pytest.mark.parametrize("stream", [None, "closed"])
def test_a_standard_error_that_is_closed_harms_nothing(
    db: TuningDatabase, play: Play, monkeypatch: pytest.MonkeyPatch, stream: str | None
) -> None:
    closed = io.StringIO()
    closed.close()
    play(ok(3.0))
    monkeypatch.setattr(sys, "stderr", None if stream is None else closed)
    assert run(db).trials == 4
    assert len(db.measurements()) == 4


def test_an_exception_of_a_callback_ends_the_session_after_the_measurement(
    db: TuningDatabase, play: Play
) -> None:
    play(ok(3.0))

    def failing(event: Event) -> None:
        if isinstance(event, Trial):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(db, failing)
    assert len(db.measurements()) == 1


def terminal(width: int, encoding: str = "utf-8", *, colour: bool = False) -> Console:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    return Console(file=file, force_terminal=True, width=width, no_color=not colour)


def written(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.TextIOWrapper)
    file.flush()
    assert isinstance(file.buffer, io.BytesIO)
    return file.buffer.getvalue().decode(file.encoding)


BEST = MeasuredTime(1e-3)
EVENTS: list[Event] = [
    STARTED,
    Batch(1, 4, 0.5),
    Waiting("building", 0.8),
    trial(1, 2e-3, 1e-3),
    trial(2, 1e-3, 1e-3),
    Drift(1.02, 2.5),
    Ended("all 4 trials are done", False, 2, BEST, 5.2, noise="Something else was running."),
]


@pytest.mark.parametrize(("width", "encoding"), [(40, "utf-8"), (40, "ascii"), (120, "latin-1")])
def test_any_terminal_shows_all_of_it(width: int, encoding: str) -> None:
    console = terminal(width, encoding)
    with LiveDisplay(console) as display:
        for event in EVENTS:
            display(event)
    text = written(console)
    last = text[text.rindex("matmul") :]
    facts = (
        "trial 2/4",
        "best 1 ms, 2.0 GFLOP/s",
        "ok 2",
        "predictions are off",
        "all 4 trials are done",
        "Something else was running.",
    )
    for fact in facts:
        assert fact in " ".join(last.split()), fact


def test_bars_of_a_terminal_without_unicode() -> None:
    assert sparkline([8.0, 4.0, 2.0, 1.0], 10, "_.-=*#").isascii()
    console = terminal(80, "ascii")
    with LiveDisplay(console) as display:
        for event in EVENTS:
            display(event)
    assert "#" in written(console)


def test_hostile_names_do_not_reach_the_terminal() -> None:
    console = Console(file=(file := io.StringIO()), width=80)
    with LiveDisplay(console) as display:
        display(Started("0" * 64, "mat\x1b[2Jmul\x07", "cpu", 4, None, 0, 0, 0, None))
    assert "\x1b" not in file.getvalue()
    assert "\x07" not in file.getvalue()


def test_a_background_run_leaves_the_screen_to_the_user() -> None:
    console = Console(file=(file := io.StringIO()), width=80, force_terminal=True)
    with LiveDisplay(console, live=False) as display:
        display(STARTED)
    assert file.getvalue() == "tuning matmul A:float32[4,4] for cpu\n"


def test_the_picture_knows_predictions_and_calm() -> None:
    picture = Picture(STARTED)
    assert (picture.calm, picture.predicted) == (None, None)
    picture.add(trial(1, 2e-3, 1e-3))
    picture.add(trial(2, 2e-3))
    assert picture.predicted == "predictions are off by a factor of 2 (median)"
    picture.add(trial(3, 8e-1, 2e-3))
    picture.add(trial(4, 8e-1, 2e-3))
    assert picture.predicted == "predictions are off by a factor of 400 (median)"
    picture.add(Drift(68.0, 3.0))
    assert picture.calm == "noisy machine: times uncertain by up to 68x"
    picture.add(Drift(1.01, 4.0))
    assert picture.calm == "calm: the same code takes 1.01 times as long as at the start"
    for number in range(5, 8):
        picture.add(replace(trial(number, 8e-1), disturbed=True))
    assert not picture.is_calm
    assert picture.calm == "noisy machine: times uncertain by up to 2x"


def test_noise_is_said_once_in_lines_and_in_the_picture() -> None:
    """However often the machine drifts."""
    noise = "noisy machine: times uncertain by up to 68x; tune again when calm"
    events: list[Event] = [
        STARTED,
        *(Drift(ratio, 3.0) for ratio in (2.0, 68.0, 3.0)),
        trial(1, 2e-3),
    ]
    events.append(Ended("all 4 trials are done", False, 2, BEST, 5.2, noise=noise))
    picture = Picture(STARTED)
    lines = list[str | None]()
    for event in events:
        picture.add(event)
        lines.append(picture.line(event))
    assert "\n".join(filter(None, lines)).count("noisy machine") == 1
    assert picture.calm is None
    assert picture.conclusions.count(noise) == 1

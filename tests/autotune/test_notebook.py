"""Progress in a notebook: outputs of cells that are live, and what they show in the end."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

import pytest

from tilewright import TuningRun
from tilewright.autotune.result import BestResult
from tilewright.autotune.session import tuning_run
from tilewright.autotune.session.events import Callback, Ended, Event
from tilewright.autotune.show import progress
from tilewright.autotune.show.picture import Pictures
from tilewright.autotune.show.progress import NotebookDisplay, SafeDisplay
from tilewright.base.durations import MeasuredTime

from .test_progress import EVENTS, STARTED, trial

ENDED = Ended("all 4 trials are done", False, 4, MeasuredTime(1e-3), 4.0)


class Handle:
    def __init__(self) -> None:
        self.updates: list[str] = []

    def update(self, value: object) -> None:
        html: str = value._repr_html_()  # type: ignore[attr-defined]
        self.updates.append(html)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def in_cell(monkeypatch: pytest.MonkeyPatch) -> Handle:
    """The output of a notebook's cell."""
    display = pytest.importorskip("IPython.display")
    handle = Handle()
    monkeypatch.setattr(display, "display", lambda *_, **__: handle)
    return handle


def test_a_notebook_is_drawn_while_candidates_are_built(in_cell: Handle) -> None:
    clock = Clock()
    pictures = Pictures()
    display = NotebookDisplay(pictures, clock)
    drawn = []
    for event, now in zip(EVENTS, (0.1, 0.7, 0.8, 1.0, 1.1, 2.0, 2.1), strict=True):
        clock.now = now
        pictures.add(event)
        display(event)
        drawn.append(len(in_cell.updates))
    # Not at once after another, and not between trials; always at the end.
    assert drawn == [0, 1, 1, 1, 1, 2, 3]
    last = in_cell.updates[-1]
    for fact in ("matmul A:float32[4,4]", "best 1 ms", "trial 2/4", "all 4 trials are done"):
        assert fact in last
    assert "Best so far" in last
    assert "Predicted against measured" in last
    assert "Something else was running." in last


def test_trials_are_drawn_after_some_seconds(in_cell: Handle) -> None:
    clock = Clock()
    pictures = Pictures()
    display = NotebookDisplay(pictures, clock)
    for event, now in ((STARTED, 0.0), (trial(1, 1e-3), 2.9), (trial(2, 1e-3), 4.0)):
        clock.now = now
        pictures.add(event)
        display(event)
    assert len(in_cell.updates) == 1


def test_a_notebook_takes_its_display(monkeypatch: pytest.MonkeyPatch, in_cell: Handle) -> None:
    assert not progress.in_notebook()
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    pictures = Pictures()
    shown = progress.progress_here(pictures)
    for event in (STARTED, Ended("done", False, 0, None, 0.1)):
        pictures.add(event)
        shown(event)
    assert "matmul" in in_cell.updates[-1]


def test_a_run_that_fails_at_its_start_shows_the_error_and_no_beginning(in_cell: Handle) -> None:
    with pytest.raises(OSError, match="no space"), SafeDisplay(NotebookDisplay(Pictures())):
        raise OSError("no space left")
    assert "OSError: no space left" in in_cell.updates[-1]
    assert "has not begun yet" not in in_cell.updates[-1]


class Cells:
    """The outputs of cells, newest last; `making` is called while one is made."""

    def __init__(self) -> None:
        self.outputs: list[Handle] = []
        self.making: Callable[[], object] = lambda: None

    def __call__(self, value: object, **_: object) -> Handle:
        self.outputs.append(Handle())
        self.outputs[-1].update(value)
        self.making()
        return self.outputs[-1]

    @property
    def last(self) -> list[str]:
        """What is seen in each output."""
        return [output.updates[-1] for output in self.outputs]


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> Cells:
    cells = Cells()
    monkeypatch.setattr(pytest.importorskip("IPython.display"), "display", cells)
    monkeypatch.setattr(tuning_run, "in_notebook", lambda: True)
    return cells


class Steps:
    """The work of a run, told step by step which event comes next; `None` ends it."""

    def __init__(self) -> None:
        self._next = threading.Semaphore(0)
        self._did = threading.Semaphore(0)
        self._event: Event | BaseException | None = None

    def __call__(self, stop: object, see: Callback | None, tunings: object) -> int:
        del stop, tunings
        assert see is not None
        while True:
            assert self._next.acquire(timeout=60)
            if isinstance(self._event, BaseException):
                raise self._event
            if self._event is None:
                return 1
            see(self._event)
            self._did.release()

    def do(self, event: Event) -> None:
        self._event = event
        self._next.release()
        assert self._did.acquire(timeout=60)

    def end(self, error: BaseException | None = None) -> None:
        self._event = error
        self._next.release()


def begun(steps: Steps) -> TuningRun[int, BestResult | None]:
    run: TuningRun[int, BestResult | None] = TuningRun(steps, lambda _: None)
    steps.do(STARTED)
    return run


def ended(run: TuningRun[int, BestResult | None], steps: Steps) -> None:
    """End a run, and wait until all is drawn."""
    steps.end()
    assert run.result(60) == 1
    run._thread.join(60)


def test_a_run_that_ends_while_an_output_is_made_is_drawn_to_its_end(cells: Cells) -> None:
    steps = Steps()
    run = begun(steps)
    cells.making = lambda: steps.do(ENDED)
    run._ipython_display_()
    assert not run.done
    ended(run, steps)
    assert "all 4 trials are done" in cells.last[0]
    assert "This picture is of" not in cells.last[0], "it is of the end"


def test_the_newest_outputs_are_live_and_all_are_drawn_at_the_end(cells: Cells) -> None:
    steps = Steps()
    run = begun(steps)
    for _ in range(tuning_run._LIVE + 2):
        run._ipython_display_()
    resting = ["a newer one of the run is live" in shown for shown in cells.last]
    assert resting == [True, True, *[False] * tuning_run._LIVE]
    steps.do(ENDED)
    assert ["all 4 trials are done" in shown for shown in cells.last] == [not r for r in resting]
    ended(run, steps)
    assert all("all 4 trials are done" in shown for shown in cells.last)
    assert not any("stays as it is" in shown for shown in cells.last)


def test_a_stored_picture_says_of_when_it_is_and_how_to_go_on(cells: Cells) -> None:
    steps = Steps()
    run = begun(steps)
    run._ipython_display_()
    for shown in (cells.last[0], run._repr_html_()):
        assert re.search(r"This picture is of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(UTC\)", shown)
        assert "resume=True with the same target and budget continues the session" in shown
    assert "stays as it is" not in cells.last[0]
    assert "stays as it is: show the run again" in run._repr_html_()
    steps.end(ZeroDivisionError("of the callback"))
    with pytest.raises(ZeroDivisionError):
        run.result(60)
    run._thread.join(60)
    assert "ZeroDivisionError: of the callback" in cells.last[0]
    assert "This picture is of" not in cells.last[0]

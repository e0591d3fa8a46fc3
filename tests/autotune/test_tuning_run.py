"""Runs in the background: stopped, awaited, failed, and ended with their process."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tilewright import TuningDatabase, TuningError, TuningRun, open_run, tune
from tilewright.autotune.result import BestResult, TuneResult
from tilewright.autotune.session import tuning_job as tuning
from tilewright.autotune.session.events import Event, Trial
from tilewright.tuning_db import Session, SessionStatus

from ..refusals import refused
from .children import QUICK
from .kernels import matmul
from .recorded import Play, Recorded, ok
from .test_sessions import ROOT, lines, stragglers

pytestmark = pytest.mark.usefixtures("given_machine", "remembered_choices", "sketched")
One = TuningRun[TuneResult, BestResult | None]
LONG = 100_000


class Gate:
    """A callback that holds a session after a trial until it is opened."""

    def __init__(self, at: int = 2) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self._at = at

    def __call__(self, event: Event) -> None:
        if isinstance(event, Trial) and event.number == self._at:
            self.reached.set()
            assert self.opened.wait(60)


def start(db: TuningDatabase, gate: Gate, trials: int = 4) -> One:
    return tune(
        matmul(),
        "cpu -threads=1",
        database=db,
        trials=trials,
        callback=gate,
        config=QUICK,
        background=True,
    )


def test_a_run_has_its_best_and_its_result(db: TuningDatabase, play: Play) -> None:
    play(ok(3.0), ok(2.0))
    gate = Gate()
    run = start(db, gate)
    assert gate.reached.wait(60)
    assert not run.done
    assert run.best is not None
    assert run.best.seconds == 2.0
    assert [db.get(Session, id).status for id in run.sessions] == [SessionStatus.RUNNING]
    line = " ".join(repr(run).split())  # wrapped
    assert line.startswith("<TuningRun, running: matmul A:float32[")
    assert "trial 2/4, best 2 s, 0.0 GFLOP/s: timing" in line
    assert "trial 2/4" in run._repr_html_()
    formatters = pytest.importorskip("IPython.core.formatters")
    shown, _ = formatters.DisplayFormatter().format(run)  # no cell to update: the moment is shown
    assert "trial 2/4" in shown["text/html"]
    with pytest.raises(TimeoutError):
        run.result(timeout=0.01)
    gate.opened.set()
    result = run.result(60)
    assert result.trials == 4
    assert (result.best, run.best) == (result.best, result.best)
    assert " ".join(repr(run).split()).startswith("<TuningRun, ended: matmul")


def test_a_run_is_stopped_as_by_an_interrupt(db: TuningDatabase, play: Play) -> None:
    play(ok(3.0), ok(2.0))
    gate = Gate()
    run = start(db, gate, LONG)
    assert gate.reached.wait(60)
    run.stop()
    run.stop()
    gate.opened.set()
    result = run.result(60)
    assert result.interrupted
    assert result.best is not None
    assert "resume=True" in str(result.kept)
    assert [s.status for s in db.records(Session)] == [SessionStatus.INTERRUPTED]


def test_one_that_is_stopped_before_it_began_has_a_result(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = threading.Event()

    class Late(Recorded):
        def __enter__(self) -> Late:
            assert entered.wait(60)
            return self

    monkeypatch.setattr(tuning, "Measurer", Late([ok(1.0)]))
    run = start(db, Gate(), LONG)
    assert run.best is None
    both = tune([matmul(), matmul(8)], "cpu -threads=1", database=db, trials=4, background=True)
    assert both.best == [None, None]
    both.stop()
    assert run.sessions == []
    assert "tuning: starting" in repr(run)
    assert "has not begun yet" in run._repr_html_()
    run.stop()
    assert repr(run).startswith("<TuningRun, stopping:")
    entered.set()
    assert run.result(60).interrupted


def test_a_run_is_awaited_and_the_wait_can_be_cancelled(db: TuningDatabase, play: Play) -> None:
    play(ok(3.0), ok(2.0))
    gate = Gate()
    run = start(db, gate)

    async def wait() -> TuneResult:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_await(run), 0.05)
        assert not run.done
        gate.opened.set()
        return await run

    assert awaited(wait()).trials == 4


async def _await(run: One) -> TuneResult:
    return await run


def awaited(result: Coroutine[None, None, TuneResult]) -> TuneResult:
    """`result` of a loop in a thread of its own: that of the tests may have Playwright's."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(result)).result()


def test_what_a_run_raises_is_raised_and_logged(
    db: TuningDatabase, play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    play(ok(3.0))

    def failing(event: Event) -> None:
        if isinstance(event, Trial):
            raise ZeroDivisionError("of the callback")

    run = tune(
        matmul(),
        "cpu -threads=1",
        database=db,
        trials=4,
        callback=failing,
        config=QUICK,
        background=True,
    )
    with pytest.raises(ZeroDivisionError):
        run.result(60)
    with pytest.raises(ZeroDivisionError):
        awaited(_await(run))
    assert run.done
    (told,) = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert told == "tuning in the background failed: of the callback"
    assert "ZeroDivisionError: of the callback" in repr(run)
    assert "ZeroDivisionError: of the callback" in run._repr_html_()
    assert len(db.measurements()) == 1
    assert [s.status for s in db.records(Session)] == [SessionStatus.INTERRUPTED]


def test_nonsense_is_refused_at_once(db: TuningDatabase) -> None:
    with refused(TuningError, "trials", "0"):
        start(db, Gate(), 0).stop()


def test_several_programs_have_a_best_each(db: TuningDatabase, play: Play) -> None:
    play(ok(3.0))
    run = tune(
        [matmul(), matmul(8)],
        "cpu -threads=1",
        database=db,
        trials=4,
        config=QUICK,
        background=True,
    )
    results = run.result(60)
    assert [result.trials for result in results] == [2, 2]
    assert run.best == [result.best for result in results]
    assert len(run.sessions) == 2


def test_it_prints_lines_though_there_may_be_a_terminal(
    db: TuningDatabase, play: Play, capsys: pytest.CaptureFixture[str]
) -> None:
    play(ok(3.0))
    gate = Gate()
    gate.opened.set()
    start(db, gate).result(60)
    assert "trial 1/4: best 3 s" in capsys.readouterr().err


SCRIPT = """
import sys, time
import tilewright as tw
from tests.autotune.children import QUICK, matmul, say
db = tw.TuningDatabase(sys.argv[1])
run = tw.tune(
    matmul(), "cpu -threads=1", database=db, trials=100_000, callback=say, config=QUICK,
    background=True, progress=False,
)
if sys.argv[2] == "ends":
    while run.best is None:
        time.sleep(0.05)
    sys.exit()
time.sleep(600)
"""


def start_script(place: Path, then: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, str(place), then]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_a_killed_process_leaves_nobody_and_its_session_is_resumed(tmp_path: Path) -> None:
    place = tmp_path / "tuning.db"
    with start_script(place, "sleeps") as child:
        lines(child, "trial", 3)
        workers = psutil.Process(child.pid).children(recursive=True)
        child.kill()
    assert len(workers) == 2
    assert stragglers(workers) == []
    run = open_run(place)
    run.poll()
    assert run.done
    assert "resume=True" in str(run.how_to_go_on)
    with TuningDatabase(place) as db:
        assert [s.status for s in db.records(Session)] == [SessionStatus.RUNNING]
        (found,) = db.unfinished_sessions(run.session.workload, run.session.target)
        assert found.id == run.session.id


def test_a_process_that_exits_stops_its_run(tmp_path: Path) -> None:
    place = tmp_path / "tuning.db"
    with start_script(place, "ends") as child:
        lines(child, "trial", 1)
        workers = psutil.Process(child.pid).children(recursive=True)
        assert lines(child, "ended", 1) == ["interrupted"]
    assert child.returncode == 0
    assert stragglers(workers) == []
    with TuningDatabase(place) as db:
        assert [s.status for s in db.records(Session)] == [SessionStatus.INTERRUPTED]

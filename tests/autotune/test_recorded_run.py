"""Sessions that are shown from the database alone, and `tilewright watch`."""

from __future__ import annotations

import ast
import io
import itertools
import re
import shlex
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tilewright import DatabaseError, TuningDatabase, TuningError, open_run, tune
from tilewright.autotune.measure import machine
from tilewright.autotune.measure.measure_result import MeasureResult
from tilewright.autotune.records import target_record, workload_record
from tilewright.autotune.result import TuneResult
from tilewright.autotune.search.replay import Replays
from tilewright.autotune.session import tuning_job
from tilewright.autotune.session.budget import Meter
from tilewright.autotune.session.events import Drift, Ended, Event, Started, Trial, Waiting
from tilewright.autotune.show import recorded_run
from tilewright.autotune.show.display import LiveDisplay
from tilewright.autotune.show.recorded_run import RecordedRun
from tilewright.cli import main
from tilewright.cli.pages import follow
from tilewright.codegen.detect import resolve
from tilewright.tuning_db import Environment, Outcome, Session, SessionStatus

from ..refusals import refused
from .children import QUICK
from .kernels import matmul
from .recorded import Play, ok

pytestmark = pytest.mark.usefixtures("given_machine", "remembered_choices", "sketched")
ONE_THREAD = "cpu -threads=1"
CRASH = MeasureResult(Outcome.CRASH, error="running it: signal 11")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "tuning.db"


def finals(count: int, rounds: int) -> list[tuple[float, ...]]:
    return [tuple((n + 2) * 1e-3 * (1 + 0.01 * k) for k in range(rounds)) for n in range(count)]


def tuned(
    place: Path, callback: Callable[[Event], object] | None = None, trials: int = 6
) -> TuneResult:
    with TuningDatabase(place) as db:
        return tune(
            matmul(), ONE_THREAD, database=db, trials=trials, callback=callback, config=QUICK
        )


def test_a_finished_session_is_shown_as_it_was(place: Path, play: Play) -> None:
    play(ok(2e-3), CRASH, ok(2.1e-3), interleaved=finals)
    told: list[Event] = []
    result = tuned(place, told.append)
    assert result.best is not None
    assert result.finals

    run = open_run(place)
    events = run.poll()
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Ended)
    trials = [e for e in events if isinstance(e, Trial)]
    then = [e for e in told if isinstance(e, Trial)]
    for now, before in zip(trials, then, strict=True):
        assert (now.schedule, now.outcome, now.seconds, now.error) == (
            before.schedule,
            before.outcome,
            before.seconds,
            before.error,
        )
        assert now.predicted == pytest.approx(before.predicted)
    (picture,) = run.pictures.pictures.values()
    assert picture.rate.startswith(f"best {result.best.time}, ")
    assert picture.comparison[0].schedule == result.finals[0].schedule
    assert picture.doing == "finished"
    assert (run.done, run.running, run.how_to_go_on) == (True, False, None)
    assert run.best is not None
    assert run.best.schedule.id == result.best.schedule_id
    assert str(result.best.time) in run._repr_html_()
    first, second = repr(run).split("\n")[:2]
    assert first == f"<RecordedRun {run.session.id[:12]}, finished:"
    assert second.startswith("  matmul A:float32[")
    assert run.poll() == []


def test_a_running_session_is_polled(place: Path, play: Play) -> None:
    play(ok(2e-3), ok(1e-3))
    seen: list[list[Event]] = []

    def look(event: Event) -> None:
        if isinstance(event, Trial):
            if not runs:
                runs.append(open_run(place))
            seen.append(runs[0].poll())

    runs: list[RecordedRun] = []
    tuned(place, look)
    first, second, *_ = seen
    assert [type(e) for e in first] == [Started, Trial, Waiting]
    assert [type(e) for e in second] == [Trial, Waiting]
    assert runs[0].session.status is SessionStatus.RUNNING
    (last,) = [e for e in runs[0].poll() if isinstance(e, Ended)]
    assert last.reason == "finished"


def test_an_interrupted_session_says_how_to_go_on(place: Path, play: Play) -> None:
    play(ok(2e-3))

    def interrupt(event: Event) -> None:
        if isinstance(event, Trial) and event.number == 2:
            raise KeyboardInterrupt

    tuned(place, interrupt)
    run = open_run(str(place))
    assert run.done
    (picture,) = run.pictures.pictures.values()
    assert picture.doing == "interrupted"
    assert picture.kept == run.how_to_go_on
    assert picture.kept in picture.conclusions


@pytest.mark.parametrize("budget", [{"trials": 6}, {"seconds": 600.0}])
@pytest.mark.parametrize("way", ["python", "shell"])
def test_what_it_says_resumes_the_session(
    place: Path, play: Play, monkeypatch: pytest.MonkeyPatch, way: str, budget: dict[str, Any]
) -> None:
    """The target and the seed are not the defaults."""
    play(ok(2e-3))
    ticks = itertools.count(step=20.0)  # ten minutes of the session pass in 30 looks at its clock
    monkeypatch.setattr(tuning_job, "Meter", partial(Meter, clock=ticks.__next__))
    options: dict[str, Any] = {"seed": 3, "tolerance": 1e-3, "config": QUICK, "progress": False}

    def interrupt(event: Event) -> None:
        if isinstance(event, Trial) and event.number == 2:
            raise KeyboardInterrupt

    with TuningDatabase(place) as db:
        tune(matmul(), ONE_THREAD, database=db, callback=interrupt, **budget, **options)
    hint = str(open_run(str(place)).how_to_go_on)
    (told,) = re.finditer(r"(tw\.tune\(.*\)), or tilewright (.*)", hint)
    python, shell = told.groups()
    quick = partial(tune, config=QUICK)
    if way == "python":
        with TuningDatabase(place) as db:
            names = {"tw": SimpleNamespace(tune=quick), "func": matmul(), "db": db}
            eval(python, names)
    else:
        program = place.with_name("program.py")
        program.write_text("from tilewright.tests.autotune.kernels import matmul\n")
        command = shell.replace("FILE.py:FUNCTION", f"{program}:matmul")
        monkeypatch.setattr("tilewright.autotune.tune.tune", quick)
        monkeypatch.setattr("sys.argv", ["tilewright", *shlex.split(command)])
        with pytest.raises(SystemExit):
            main.main()
    with TuningDatabase(place) as db:
        (session,) = db.records(Session)
    assert session.status is SessionStatus.FINISHED
    assert "seed=3, tolerance=0.001" in python


def test_what_it_says_can_be_pasted(place: Path) -> None:
    """Names of a foreign database end no argument."""
    target = replace(target_record(resolve(ONE_THREAD)), text="cpu\" $(touch it) `touch it` ' \\")
    workload = workload_record(matmul())
    with TuningDatabase(place) as db:
        db.put(workload, target)
        session = db.start_session(
            workload.id, target.id, trials=4, seconds=None, seed=0, search={}, model={}
        )
        db.finish_session(session.id, SessionStatus.INTERRUPTED)
    hint = str(open_run(place).how_to_go_on)
    python, _, shell = hint.partition("tw.tune(")[2].partition(", or tilewright ")
    call = ast.parse(f"tw.tune({python}").body[0]
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    assert ast.literal_eval(call.value.args[1]) == target.text
    _, _, _, given, *rest = shlex.split(shell)
    assert given == target.text
    assert rest == ["--trials", "4", "--resume", "--db", str(place)]


@pytest.mark.parametrize("tolerance", [1e308, 0, -1, True, "0.1", [1e-3], 1 << 62])
def test_a_tolerance_that_is_none_is_left_out(place: Path, tolerance: Any) -> None:
    workload, target = workload_record(matmul()), target_record(resolve(ONE_THREAD))
    with TuningDatabase(place) as db:
        db.put(workload, target)
        search = {"tolerance": tolerance}
        session = db.start_session(
            workload.id, target.id, trials=4, seconds=None, seed=0, search=search, model={}
        )
        db.finish_session(session.id, SessionStatus.INTERRUPTED)
    run = open_run(place)
    assert run.poll()
    assert run.best is None
    assert "tolerance=" not in str(run.how_to_go_on)
    assert "--tolerance" not in str(run.how_to_go_on)


def test_a_session_whose_process_is_gone_is_over(place: Path, play: Play) -> None:
    play(ok(2e-3))
    tuned(place)
    with TuningDatabase(place) as db:
        (session,) = db.records(Session)
        late = session.heartbeat + timedelta(seconds=1)
        db.put(
            replace(session, status=SessionStatus.RUNNING, ended=None, heartbeat=late, pid=2**30)
        )
    run = open_run(place)
    (picture,) = run.pictures.pictures.values()
    assert run.done
    assert picture.doing.startswith(f"its process ({2**30} on ")
    assert "resume" in str(run.how_to_go_on)


def while_measuring(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Let something happen while a session measures its machine."""

    def described(*arguments: Any) -> Any:
        action()
        return machine.described(*arguments)

    monkeypatch.setattr(tuning_job, "described", described)


def test_a_session_is_there_while_its_machine_is_measured(
    place: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(ok(2e-3))
    runs: list[RecordedRun] = []
    events: list[Event] = []

    def look() -> None:
        runs.append(open_run(place))
        events.extend(runs[0].poll())

    while_measuring(monkeypatch, look)
    result = tuned(place)
    (run,) = runs
    started, waiting = events
    assert isinstance(started, Started)
    assert started.session == result.session
    assert isinstance(waiting, Waiting)
    assert waiting.what.startswith("measuring this machine and preparing the search on ")
    assert isinstance(run.poll()[-1], Ended)
    assert run.session.status is SessionStatus.FINISHED


def test_a_session_that_fails_before_its_first_trial_says_so(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise TuningError("no machine")

    while_measuring(monkeypatch, fail)
    with pytest.raises(TuningError, match="no machine"):
        tuned(place)
    (picture,) = open_run(place).pictures.pictures.values()
    assert picture.doing == "interrupted before its first trial"


def test_a_session_that_was_killed_before_its_first_trial_says_so_and_is_resumed(
    place: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = place.with_name("kept.db")

    def kill() -> None:
        if not kept.exists():
            with TuningDatabase(place) as db, TuningDatabase(kept) as copy:
                copy.merge(db)

    play(ok(2e-3))
    while_measuring(monkeypatch, kill)
    tuned(place)
    with TuningDatabase(kept) as db:
        (session,) = db.records(Session)
        late = session.heartbeat + timedelta(microseconds=1)
        db.put(replace(session, heartbeat=late, pid=2**30))
    run = open_run(kept)
    assert run.done
    (picture,) = run.pictures.pictures.values()
    gone = f"its process ({2**30} on {session.host}) is gone"
    assert picture.doing == f"{gone}; it was measuring this machine and preparing the search"
    with TuningDatabase(kept) as db:
        result = tune(matmul(), "cpu -threads=1", database=db, trials=6, resume=True, config=QUICK)
    assert (result.session, result.status) == (session.id, SessionStatus.FINISHED)


def test_nothing_is_pruned_while_a_session_begins(
    place: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prune(*arguments: Any, **options: Any) -> Any:
        with TuningDatabase(place) as db:
            db.prune()
        return Replays(*arguments, **options)

    play(ok(2e-3))
    monkeypatch.setattr(tuning_job, "Replays", prune)
    while_measuring(monkeypatch, lambda: TuningDatabase(place).prune())
    result = tuned(place)
    assert result.status is SessionStatus.FINISHED
    with TuningDatabase(place) as db:
        assert {m.environment for m in db.measurements()} == {e.id for e in db.records(Environment)}


def test_the_calm_of_the_machine_is_known_to_those_who_watch(place: Path, play: Play) -> None:
    play(ok(2e-3))
    result = tuned(place)
    running(place)
    run = open_run(place)
    (picture,) = run.pictures.pictures.values()
    assert picture.calm is None
    with TuningDatabase(place) as db:
        db.heartbeat(result.session, drift=68.0)
    assert [e.ratio for e in run.poll() if isinstance(e, Drift)] == [68.0]
    assert not picture.is_calm
    assert "uncertain by up to 68x" in str(picture.calm)
    assert not [e for e in run.poll() if isinstance(e, Drift)], "it is said once"


def test_whether_it_runs_is_asked_of_the_database(place: Path, play: Play) -> None:
    play(ok(2e-3))
    tuned(place)
    running(place)
    run = open_run(place)
    assert (run.running, run.done, run.how_to_go_on) == (True, False, None)
    assert repr(run).startswith(f"<RecordedRun {run.session.id[:12]}, running:\n  ")
    finish(place)
    assert (run.running, run.done) == (False, True), "without a poll"
    assert repr(run).startswith(f"<RecordedRun {run.session.id[:12]}, finished:\n  ")


def test_a_session_of_another_host_runs_while_its_heart_beats(
    place: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(ok(2e-3))
    tuned(place)
    now = datetime.now(UTC)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Clock:
            return cls.fromtimestamp(now.timestamp(), tz)

    def beat() -> None:
        with TuningDatabase(place) as db:
            (session,) = db.records(Session)
            status = SessionStatus.RUNNING
            db.put(replace(session, status=status, ended=None, heartbeat=now, host="elsewhere"))

    monkeypatch.setattr(recorded_run, "datetime", Clock)
    beat()
    run = open_run(place)
    (picture,) = run.pictures.pictures.values()
    before = picture.rate
    now += timedelta(seconds=61)
    assert run.done
    assert "resume" in str(run.how_to_go_on)
    assert isinstance(run.poll()[-1], Ended)
    assert run.poll() == [], "it is said once"
    assert repr(run).startswith(f"<RecordedRun {run.session.id[:12]}, not running:\n")
    assert (picture.ended, picture.kept is None) == (True, False)
    beat()
    assert (run.done, run.how_to_go_on) == (False, None)
    assert [type(event) for event in run.poll()] == [Waiting]
    assert repr(run).startswith(f"<RecordedRun {run.session.id[:12]}, running:\n")
    assert "gone" not in repr(run)
    assert (picture.ended, picture.kept, picture.rate) == (False, None, before)


def test_a_session_that_is_resumed_goes_on_where_it_is_shown(place: Path, play: Play) -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, Trial) and event.number == 2:
            raise KeyboardInterrupt

    play(ok(2e-3))
    tuned(place, interrupt)
    run = open_run(place)
    (picture,) = run.pictures.pictures.values()
    assert picture.doing == "interrupted"
    play(ok(1e-3))
    with TuningDatabase(place) as db:
        tune(matmul(), ONE_THREAD, database=db, trials=6, resume=True, config=QUICK)
    events = run.poll()
    assert [e.number for e in events if isinstance(e, Trial)] == [3, 4, 5, 6]
    assert isinstance(events[-1], Ended)
    assert (picture.doing, picture.kept) == ("finished", None)
    assert picture.rate.startswith("best 1 ms")
    assert repr(run) == repr(open_run(place))


def test_the_newest_session_is_opened_or_one_by_its_id(place: Path, play: Play) -> None:
    play(ok(2e-3))
    first, second = tuned(place), tuned(place)
    assert open_run(place).session.id == second.session
    assert open_run(place, first.session[:8]).session.id == first.session
    with TuningDatabase(place) as db:
        assert open_run(db).session.id == second.session
    with refused(DatabaseError, "session", "0123456789"):
        open_run(place, "0123456789")


def test_a_database_without_sessions_says_so(place: Path) -> None:
    TuningDatabase(place).close()
    with refused(DatabaseError, place):
        open_run(place)
    with refused(DatabaseError, place.with_name("other.db")):
        open_run(place.with_name("other.db"))


def test_a_mark_of_noise_is_shown(place: Path, play: Play) -> None:
    play(ok(2e-3))
    result = tuned(place)
    with TuningDatabase(place) as db:
        db.finish_session(result.session, noise="something else was running")
    (picture,) = open_run(place).pictures.pictures.values()
    assert "something else was running" in picture.conclusions


def test_reading_writes_nothing(place: Path, play: Play) -> None:
    play(ok(2e-3))
    tuned(place)
    before = place.read_bytes()
    open_run(place).poll()
    assert place.read_bytes() == before


# Watching


class Steps:
    """The pauses of a watcher: at each, something happens to the database."""

    def __init__(self, *actions: Callable[[], object]) -> None:
        self._actions: Iterator[Callable[[], object]] = iter(actions)

    def __call__(self) -> None:
        next(self._actions)()


def watched(place: Path, steps: Steps, session: str | None = None) -> list[str]:
    with LiveDisplay(Console(file=(file := io.StringIO()), width=200)) as display:
        follow(str(place), session, display, steps)
    return file.getvalue().splitlines()


def running(place: Path) -> None:
    """Let the session of a database run again."""
    with TuningDatabase(place) as db:
        (session,) = db.records(Session)
        db.finish_session(session.id, SessionStatus.INTERRUPTED)
        db.resume_session(session.id)


def finish(place: Path) -> None:
    with TuningDatabase(place) as db:
        (session,) = db.records(Session)
        db.finish_session(session.id)


def test_watching_ends_with_the_session(place: Path, play: Play) -> None:
    play(ok(2e-3), CRASH, ok(1e-3))
    tuned(place)
    running(place)
    lines = watched(place, Steps(lambda: None, lambda: finish(place)))
    assert lines[0].startswith("tuning matmul A:float32[16,16]")
    assert lines[1].startswith("trial 1/6: best 2 ms")
    assert lines[2].startswith("trial 2/6: crash: running it: signal 11")
    assert re.fullmatch(r"best 1 ms, .* trials in .* s: finished", lines[-1])
    assert sum(line.startswith("trial 1/6") for line in lines) == 1


def test_what_is_watched_before_the_first_session_is_waited_for(place: Path, play: Play) -> None:
    play(ok(2e-3))

    def create() -> None:
        TuningDatabase(place).close()

    steps = Steps(lambda: None, place.touch, create, lambda: None, lambda: tuned(place))
    lines = watched(place, steps)
    assert lines[:3] == [
        f"there is no tuning database at {place}; waiting for one, until Ctrl-C",
        f"database {place} is empty; expected a tuning database; waiting for one, until Ctrl-C",
        f"there is no session in {place} yet; waiting for one, until Ctrl-C",
    ]
    assert lines[3].startswith("tuning matmul A:float32[16,16]"), "each is said once"
    assert lines[-1].endswith(": finished")


def test_what_will_never_be_there_is_not_waited_for(place: Path) -> None:
    place.write_text("no database")
    with refused(DatabaseError, place):
        watched(place, Steps())
    with refused(DatabaseError, place.with_name("other.db")):
        watched(place.with_name("other.db"), Steps(), session="0123456789")


def test_a_database_that_is_deleted_and_replaced_is_waited_for(place: Path, play: Play) -> None:
    play(ok(2e-3))
    tuned(place)
    running(place)
    kept = place.with_name("kept.db")
    shutil.copy(place, kept)

    def delete() -> None:
        for file in place.parent.glob("tuning.db*"):
            file.unlink()

    def replace_it() -> None:
        shutil.copy(kept, place)
        finish(place)

    lines = watched(place, Steps(delete, lambda: None, replace_it))
    told = [line for line in lines if str(place) in line and "tuning matmul" not in line]
    assert "was deleted; waiting for a session in it" in told[0]
    assert "there is no tuning database at" in told[1]
    assert sum("there is no tuning database" in line for line in lines) == 1, "it is said once"
    assert lines[-1].endswith(": finished")


def test_a_database_that_is_locked_for_a_moment_is_read_later(
    place: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(ok(2e-3))
    tuned(place)
    running(place)
    get = TuningDatabase.get

    def locked(*_: object) -> None:
        raise DatabaseError("database {0} is locked", place)

    def unlock() -> None:
        monkeypatch.setattr(TuningDatabase, "get", get)
        finish(place)

    lock = partial(monkeypatch.setattr, TuningDatabase, "get", locked)
    lines = watched(place, Steps(lock, lambda: None, unlock))
    (told,) = [line for line in lines if "locked" in line]
    assert told.startswith("not readable now, trying again: database")
    assert lines[-1].endswith(": finished")


def test_a_writer_does_not_keep_a_watcher_waiting(place: Path, play: Play) -> None:
    play(ok(2e-3))
    tuned(place)
    with sqlite3.connect(place, isolation_level=None) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert watched(place, Steps())[-1].endswith(": finished")
        writer.execute("ROLLBACK")
    writer.close()


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_command_shows_it_once_at_any_width(
    place: Path,
    play: Play,
    columns: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    play(ok(2e-3), CRASH, ok(2.1e-3), interleaved=finals)
    result = tuned(place)
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", str(columns))
    assert command(monkeypatch, "watch", str(place), "--once") == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out, "it is no terminal"
    assert max(map(len, out.splitlines())) <= columns
    text = " ".join(out.split())
    assert result.best is not None
    assert f"best {result.best.time}" in text
    assert "finished" in text
    assert "crash 1" in text


def test_the_command_ends_with_the_session_and_leaves_at_ctrl_c(
    place: Path, play: Play, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play(ok(2e-3))
    result = tuned(place)
    assert command(monkeypatch, "watch", str(place), "--session", result.session[:8]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(": finished")
    running(place)

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    assert command(monkeypatch, "watch", str(place)) == 130
    assert "trial 1/6" in capsys.readouterr().out


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """The exit status of the command line."""
    monkeypatch.setattr("sys.argv", ["tilewright", *words])
    with pytest.raises(SystemExit) as left:
        main.main()
    return int(left.value.code or 0)

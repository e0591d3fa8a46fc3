"""Tuning sessions as they are: processes, kills, interrupts, two at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tilewright import TuningDatabase, TuningError, build, tune
from tilewright.autotune.measure.measure_result import BuildRequest, MeasureResult
from tilewright.autotune.measure.measurer import Measurer
from tilewright.autotune.measure.worker_pool import Built
from tilewright.autotune.search.search import Search
from tilewright.autotune.session import tuning_job as tuning
from tilewright.autotune.session.events import Event, Trial
from tilewright.tuning_db import Outcome, Session, SessionStatus

from ..refusals import refused
from .children import QUICK
from .kernels import affine, kernel, matmul

ROOT = Path(__file__).parents[2]
TRIALS = 10_000
SCRIPT = """
import tilewright as tw
from tests.autotune.children import QUICK, matmul, say
with tw.TuningDatabase({place!r}) as db:
    result = tw.tune(
        matmul(), "cpu -threads=1", database=db, trials={trials}, callback=say, config=QUICK
    )
print("best", result.best.seconds, result.status, flush=True)
"""


def start(place: Path, trials: int, seed: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.autotune.children", str(place), str(trials), str(seed)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def start_script(place: Path) -> subprocess.Popen[str]:
    """A program without a file and without `if __name__ == "__main__"`, as in a notebook."""
    command = [sys.executable, "-c", SCRIPT.format(place=str(place), trials=TRIALS)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def lines(child: subprocess.Popen[str], word: str, count: int) -> list[str]:
    """The lines of a child after `word`, the first `count` of them."""
    found: list[str] = []
    assert child.stdout is not None
    for line in child.stdout:
        first, _, rest = line.strip().partition(" ")
        if first == word:
            found.append(rest)
        if len(found) == count:
            return found
    raise AssertionError(f"the child said {word} {len(found)} times, expected {count}")


def stragglers(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Those of the processes that still live after two minutes."""
    _, alive = psutil.wait_procs(processes, timeout=120)
    return [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def stopping(event: Event) -> None:
    """A callback that ends a session early."""
    if isinstance(event, Trial) and event.number % 3 == 0:
        raise KeyboardInterrupt


def test_a_killed_session_loses_nothing_leaves_nobody_and_is_resumed(tmp_path: Path) -> None:
    place = tmp_path / "tuning.db"
    with start(place, TRIALS) as child:
        (session,) = lines(child, "session", 1)
        told = lines(child, "trial", 5)
        workers = psutil.Process(child.pid).children(recursive=True)
        child.kill()
    assert len(workers) == 2
    assert stragglers(workers) == []

    with TuningDatabase(place) as db:
        recorded = {m.schedule for m in db.measurements(session=session)}
        assert set(told) <= recorded
        done = len(recorded)
        assert [s.status for s in db.records(Session)] == [SessionStatus.RUNNING]
        result = tune(
            matmul(),
            "cpu -threads=1",
            database=db,
            trials=TRIALS,
            resume=True,
            callback=stopping,
            config=QUICK,
        )
        assert result.session == session
        assert 1 <= result.trials <= 3
        assert (done + result.trials) % 3 == 0
        assert len({m.schedule for m in db.measurements()}) == done + result.trials
        module = build(matmul(), "cpu -threads=1", database=db)
        assert module.origin.kind == "record"


def test_an_interrupt_ends_a_session_with_a_best_and_nobody_left(tmp_path: Path) -> None:
    place = tmp_path / "tuning.db"
    with start_script(place) as child:
        lines(child, "trial", 3)
        workers = psutil.Process(child.pid).children(recursive=True)
        child.send_signal(signal.SIGINT)
        assert lines(child, "ended", 1) == ["interrupted"]
        (best,) = lines(child, "best", 1)
    assert child.returncode == 0
    assert len(workers) == 2
    assert stragglers(workers) == []
    seconds, status = best.split()
    assert float(seconds) > 0
    assert status == "interrupted"
    with TuningDatabase(place) as db:
        assert [s.status for s in db.records(Session)] == [SessionStatus.INTERRUPTED]


def test_two_processes_tune_into_one_database_at_once(tmp_path: Path) -> None:
    place = tmp_path / "tuning.db"
    with start(place, 6, 0) as one, start(place, 6, 1) as other:
        told = [lines(child, "trial", 6) for child in (one, other)]
        assert [len(lines(child, "best", 1)) for child in (one, other)] == [1, 1]
    assert (one.returncode, other.returncode) == (0, 0)
    with TuningDatabase(place) as db:
        found = db.records(Session)
        assert [s.status for s in found] == [SessionStatus.FINISHED] * 2
        per_session = [{m.schedule for m in db.measurements(session=s.id)} for s in found]
        # In finals, a session also times what it did not choose as a candidate.
        assert all(any(set(schedules) <= s for s in per_session) for schedules in told)
        assert all(len(s) <= 6 + 2 for s in per_session)


class Faulty(Measurer):
    """Some of the candidates get other code than they were built to."""

    faults = ("null", "wrong", "hang", "right")

    def build(
        self, requests: Sequence[BuildRequest], meanwhile: Iterable[None] = ()
    ) -> list[Built | MeasureResult]:
        made = super().build(requests, meanwhile)
        return [kernel(kind) for kind, _ in zip(self.faults, made, strict=True)]


def test_a_session_records_each_fault_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "Measurer", Faulty)
    limits = {**vars(QUICK.measure), "run_timeout": 0.5, "run_grace": 0.5}
    config = type(QUICK)(**{**vars(QUICK), "batch": 4, "measure": type(QUICK.measure)(**limits)})
    db = TuningDatabase("sqlite://")
    before = psutil.Process().children()
    result = tune(affine(), "cpu -threads=1", database=db, trials=4, config=config)
    assert psutil.Process().children() == before
    assert result.outcomes == {
        Outcome.CRASH: 1,
        Outcome.OK: 1,
        Outcome.RUN_TIMEOUT: 1,
        Outcome.WRONG_RESULT: 1,
    }
    assert result.best is not None
    reasons = {m.outcome: str(m.error) for m in db.measurements() if m.outcome is not Outcome.OK}
    assert "SIGSEGV" in reasons[Outcome.CRASH]
    assert "not done within" in reasons[Outcome.RUN_TIMEOUT]
    assert "B[5] is 10000.0" in reasons[Outcome.WRONG_RESULT]


def test_a_session_of_wrong_results_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong(Faulty):
        faults = ("wrong", "wrong", "wrong", "right")

    monkeypatch.setattr(tuning, "Measurer", Wrong)
    config = replace(QUICK, batch=4)
    db = TuningDatabase("sqlite://")
    result = tune(affine(), "cpu -threads=1", database=db, trials=4, config=config)
    assert result.best is not None
    text = str(result.doubts)
    assert "3 of 4 candidates computed wrong results; the last: B[5] is 10000.0" in text
    assert "the program as written computes wrong results, and is no baseline: B[5]" in text
    assert text in str(result)
    assert text in caplog.text


def test_interrupted_before_the_first_trial(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Measurer, "measure", interrupted)
    db = TuningDatabase("sqlite://")
    result = tune(affine(), database=db, trials=4, config=QUICK, progress=False)
    assert result.interrupted
    assert str(result).startswith("nothing was measured in ")
    assert str(result).endswith(
        "interrupted\n0 trials are kept in memory; resume=True (--resume) with the same target "
        "and budget continues the session"
    )
    assert "nothing was measured" in repr(result)
    assert f"interrupted; {result.kept}" in caplog.text, "nothing shows it"


def test_programs_share_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    class Counted(Measurer):
        def build(
            self, requests: Sequence[BuildRequest], meanwhile: Iterable[None] = ()
        ) -> list[Built | MeasureResult]:
            started.extend(self.processes)
            return super().build(requests, meanwhile)

    monkeypatch.setattr(tuning, "Measurer", Counted)
    db = TuningDatabase("sqlite://")
    programs = [affine(), matmul(), affine(512)]
    limits = {**vars(QUICK.measure), "run_memory": 64 << 20}
    config = type(QUICK)(**{**vars(QUICK), "measure": type(QUICK.measure)(**limits)})
    before = psutil.Process().children()
    results = tune(programs, "cpu -threads=1", database=db, trials=12, config=config)
    assert psutil.Process().children() == before
    assert sum(r.trials for r in results) == 12
    assert all(r.best is not None for r in results)
    assert {o for r in results for o in r.outcomes} == {Outcome.OK}
    assert len(set(started)) == 2


def test_a_signal_that_ends_the_process_ends_the_session_first(tmp_path: Path) -> None:
    place = tmp_path / "tuning.db"
    with start_script(place) as child:
        told = lines(child, "trial", 2)
        workers = psutil.Process(child.pid).children(recursive=True)
        child.send_signal(signal.SIGTERM)
        assert lines(child, "ended", 1) == ["interrupted"]
    assert child.returncode == -signal.SIGTERM
    assert len(workers) == 2
    assert stragglers(workers) == []
    with TuningDatabase(place) as db:
        (session,) = db.records(Session)
        assert session.status is SessionStatus.INTERRUPTED
        assert set(told) <= {m.schedule for m in db.measurements(session=session.id)}
        assert build(matmul(), "cpu -threads=1", database=db).origin.kind == "record"


POOR = """
import errno, os, resource, tempfile
import tilewright as tw
from tests.autotune.children import QUICK, matmul, say
def refuse(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
for name in ("TemporaryFile", "NamedTemporaryFile", "mkstemp", "mkdtemp"):
    setattr(tempfile, name, refuse)
resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors}))
with tw.TuningDatabase({place!r}) as db:
    try:
        tw.tune(matmul(), "cpu -threads=1", database=db, trials=2, callback=say, config=QUICK)
    except tw.TuningError as error:
        print("refused", error, flush=True)
"""


@pytest.mark.parametrize(
    ("descriptors", "said"),
    [
        (64, "ended all 2 trials are done"),
        (14, "refused cannot start a worker process: [Errno 24] Too many open files"),
    ],
)
def test_few_descriptors_and_a_full_temporary_folder(
    tmp_path: Path, descriptors: int, said: str
) -> None:
    place = tmp_path / "tuning.db"
    command = [sys.executable, "-c", POOR.format(place=str(place), descriptors=descriptors)]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=600, check=False
    )
    assert done.returncode == 0
    assert said in done.stdout.splitlines()[-2:]
    with TuningDatabase(place) as db:
        assert SessionStatus.RUNNING not in [s.status for s in db.records(Session)]


def test_a_session_of_several_programs_that_does_not_come_to_its_start_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[object] = []

    def failing(*arguments: object, **options: object) -> Search:
        calls.append(arguments)
        if len(calls) == 2:
            raise TuningError("no search for {0}", "this one")
        return Search(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(tuning, "Search", failing)
    db = TuningDatabase("sqlite://")
    before = psutil.Process().children()
    with refused(TuningError, "this one"):
        tune([affine(), matmul()], "cpu -threads=1", database=db, trials=4, config=QUICK)
    assert psutil.Process().children() == before
    assert [s.status for s in db.records(Session)] == [SessionStatus.INTERRUPTED] * 2

"""Processes that may open few files: `tune` says so, and what to do."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tilewright import TuningDatabase, TuningError, tune
from tilewright.autotune.search.search import Search
from tilewright.autotune.session.events import Event, Trial
from tilewright.tuning_db.values import Session, SessionStatus

from .children import QUICK
from .kernels import matmul

ROOT = Path(__file__).parents[2]
HERE = "cpu -threads=1"

SCRIPT = """
import resource
import sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)
import tilewright as tw
try:
    tune, matmul = tw.tune, tw.ops.matmul_func
    from tests.autotune.children import QUICK
    func, place = matmul(32, 32, 32), sys.argv[1]
    options = {"database": place, "trials": 2, "progress": False, "config": QUICK}
    print(tune(func, "cpu -threads=1", **options).reason)
except tw.TilewrightError as error:
    print(type(error).__name__, error)
import psutil
print([child.cmdline() for child in psutil.Process().children(recursive=True)])
"""


@pytest.mark.part(2)
@pytest.mark.parametrize("limit", [6, 12, 20, 40])
def test_the_error_names_the_limit(tmp_path: Path, limit: int) -> None:
    place = tmp_path / "tuning.db"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, place, str(limit)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *said, stray = done.stdout.splitlines()
    assert stray == "[]"
    if limit == 40:
        assert said == ["all 2 trials are done"]
    if said != ["all 2 trials are done"]:
        assert said[0].partition(" ")[0] in ("TilewrightError", "DatabaseError", "TuningError")
        hint = f"raise the limit of {limit} open files: ulimit -n 1024"
        assert said[-1] == f"  hint: close files, or {hint}"
    if limit > 6:
        with TuningDatabase(place) as db:
            (session,) = db.records(Session)
            finished = said == ["all 2 trials are done"]
            assert (session.status is SessionStatus.FINISHED) == finished
            assert session.status is not SessionStatus.RUNNING


def lowest_free() -> int:
    """The descriptor that the next file would get."""
    free = os.dup(0)
    os.close(free)
    return free


def test_what_was_measured_before_is_kept(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = psutil.Process().children()
    told: list[str] = []

    def callback(event: Event) -> None:
        if isinstance(event, Trial):
            told.append(event.schedule)
            if len(told) == 2:
                workers = set(psutil.Process().children()) - set(before)
                resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free(), limits[1]))
                for worker in workers:
                    os.kill(worker.pid, signal.SIGKILL)

    with TuningDatabase(tmp_path / "tuning.db") as db:
        try:
            with pytest.raises(TuningError, match="cannot start a worker process: .*Too many open"):
                tune(matmul(), HERE, database=db, trials=8, callback=callback, config=QUICK)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        (session,) = db.records(Session)
        assert len(told) == 2
        assert {m.schedule for m in db.measurements(session=session.id)} == set(told)
        assert session.status is SessionStatus.INTERRUPTED
    assert psutil.Process().children() == before


def lacking(*_: object, **__: object) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_module_that_cannot_be_opened_is_an_error_of_tuning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Modules are imported where they are first used."""
    monkeypatch.setattr(Search, "_fit", lacking)
    with TuningDatabase("sqlite://") as db:
        with pytest.raises(TuningError, match=r"(?s)tuning failed: .*Too many .*ulimit -n"):
            tune(matmul(), HERE, database=db, trials=2, config=QUICK)
        (session,) = db.records(Session)
        assert session.status is SessionStatus.INTERRUPTED


def test_an_error_of_the_callback_is_its_own() -> None:
    with TuningDatabase("sqlite://") as db, pytest.raises(OSError, match="Too many open files"):
        tune(matmul(), HERE, database=db, trials=2, config=QUICK, callback=lacking)

"""A scheduler that is killed in the middle of a session, with its workers in processes of their
own: what was measured is kept, and a new scheduler continues the session."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.autotune.cluster import cluster as clusters
from tilewright.autotune.cluster import sentinels
from tilewright.autotune.config import TuneConfig
from tilewright.autotune.session.events import Trial
from tilewright.tuning_db import Measurement, Session, SessionStatus

from ..refusals import refused
from .cluster_of import HERE, QUICK
from .kernels import matmul

pytest.importorskip("distributed")
SECONDS = 120


@contextmanager
def farm(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """The address of a scheduler with a worker, and what kills the scheduler."""
    folder.mkdir()
    file = folder / "scheduler.json"
    commands = [
        ["scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)],
        ["worker", "--nthreads", "1", "--no-nanny", "--no-dashboard", "--resources", "tilewright=1",
         "--local-directory", str(folder), "--scheduler-file", str(file)],
    ]  # fmt: skip
    with (folder / "log").open("w") as log:
        processes = [
            subprocess.Popen([sys.executable, "-m", "dask", *words], stdout=log, stderr=log)
            for words in commands
        ]

        def kill() -> None:
            processes[0].send_signal(signal.SIGKILL)
            processes[0].wait(SECONDS)

        try:
            yield _address(file, folder / "log"), kill
        finally:
            for process in processes:
                process.kill()
                process.wait(SECONDS)


def _address(file: Path, log: Path) -> str:
    """That of a scheduler, once it has written its file and a worker is there."""
    from distributed import Client

    end = time.monotonic() + SECONDS
    while not file.exists() or not file.read_text().strip():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)
    address: str = json.loads(file.read_text())["address"]
    with Client(address, set_as_default=False, timeout=SECONDS) as client:
        client.wait_for_workers(1, timeout=SECONDS)
    return address


@pytest.mark.timeout(600)
def test_a_scheduler_that_is_killed_is_replaced(
    tmp_path: Path, sketched: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentinels, "SLOW", 1e9)  # this machine may be as noisy as it likes
    monkeypatch.setattr(clusters, "LOOK", 0.1)
    trials = 8
    options: dict[str, Any] = {
        "database": tmp_path / "team.db", "trials": trials, "progress": False,
        "config": TuneConfig(batch=1, final_seconds=0.05, measure=QUICK),
    }  # fmt: skip
    seen = list[int]()

    with farm(tmp_path / "first") as (address, kill):

        def note(event: object) -> None:
            if isinstance(event, Trial):
                seen.append(event.number)
                if len(seen) == 3:
                    kill()

        with refused(tw.ClusterError) as caught:
            tw.tune(matmul(), HERE, cluster=address, callback=note, **options)
    with tw.TuningDatabase(options["database"]) as database:
        before = [m for m in database.records(Measurement) if m.trial]
        (session,) = database.records(Session)
    assert len(before) == len(seen) >= 3
    assert session.status is SessionStatus.INTERRUPTED
    assert caught.value.detail is not None
    assert f"{len(before)} trials are kept" in caught.value.detail(False)

    with farm(tmp_path / "second") as (address, _):
        result = tw.tune(matmul(), HERE, cluster=address, resume=True, **options)
    assert result.best is not None
    with tw.TuningDatabase(options["database"]) as database:
        after = [m for m in database.records(Measurement) if m.trial]
        (again,) = database.records(Session)
    assert (again.id, again.status) == (session.id, SessionStatus.FINISHED)
    assert len(after) == trials
    assert {m.id for m in before} <= {m.id for m in after}
    assert len({m.schedule for m in after}) == trials

"""Tuning in the kernel of a notebook: shown in the cell, stopped, restarted."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tilewright import TuningDatabase
from tilewright.tuning_db import Session, SessionStatus

from ..autotune.test_sessions import stragglers

jupyter_client = pytest.importorskip("jupyter_client")
pytest.importorskip("ipykernel")
AT_WORK = r"trial [1-9]\d*/100000"
SETUP = """
import tilewright as tw
from tests.autotune.children import QUICK, matmul
db = tw.TuningDatabase({place!r})
options = dict(target="cpu -threads=1", database=db, config=QUICK)
"""


class CellError(AssertionError):
    """A cell raised; `traceback` is what its front end gets."""

    def __init__(self, traceback: list[str]) -> None:
        super().__init__("\n".join(traceback))
        self.traceback = traceback


class Kernel:
    """A kernel and what its cells showed: the last HTML of each display, and printed text."""

    def __init__(self, manager: Any, client: Any) -> None:
        self.manager = manager
        self.shown: dict[str, str] = {}
        self.printed = ""
        self._client = client

    def error(self, code: str) -> list[str]:
        """What a front end gets of the error of a cell, without colours."""
        with pytest.raises(CellError) as raised:
            self.run(code)
        return re.sub(r"\x1b\[[\d;]*m", "", "\n".join(raised.value.traceback)).split("\n")

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.manager.provisioner.process.pid)

    def send(self, kind: str, cell: str | None = None, **content: Any) -> str:
        """Send a message, of a cell with an id if there is one; returns the id of the message."""
        metadata = {} if cell is None else {"cellId": cell}
        message = self._client.session.msg(kind, content, metadata=metadata)
        self._client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def run(self, code: str, *, cell: str | None = None, until: str = "") -> None:
        """Run a cell to its end, or until the HTML of a display has a pattern."""
        id = self.send("execute_request", cell, code=code, silent=False, stop_on_error=False)
        while True:
            message = self._client.get_iopub_msg(timeout=300)
            kind, content = message["msg_type"], message["content"]
            if kind in ("display_data", "update_display_data"):
                name = content.get("transient", {}).get("display_id", "")
                self.shown[name] = content["data"].get("text/html", "")
                if until and re.search(until, self.shown[name]):
                    return
            elif kind == "stream":
                self.printed += content["text"]
            elif kind == "execute_result":
                self.printed += content["data"]["text/plain"]
            elif kind == "error":
                raise CellError(content["traceback"])
            elif kind == "status" and content["execution_state"] == "idle":
                mine = message["parent_header"].get("msg_id") == id
                if mine and not until:
                    return


@contextmanager
def started(root: Path) -> Iterator[tuple[Any, Any]]:
    """The manager and the client of a kernel of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(_search_path(root))}
    manager, client = jupyter_client.manager.start_new_kernel(cwd=str(root), env=environment)
    try:
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def used(root: Path) -> Iterator[tuple[Any, Any]]:
    with started(root) as started_once:
        yield started_once


def set_up(kernel: Kernel, tmp_path: Path) -> Kernel:
    kernel.run(SETUP.format(place=str(tmp_path / "tuning.db")))
    return kernel


@pytest.fixture
def fresh_kernel(root: Path, tmp_path: Path) -> Iterator[Kernel]:
    with started(root) as parts:
        yield set_up(Kernel(*parts), tmp_path)


@pytest.fixture
def kernel(used: tuple[Any, Any], tmp_path: Path) -> Kernel:
    """A kernel that other tests have used, without what they left."""
    Kernel(*used).run("%reset -f\n%xmode Context")
    return set_up(Kernel(*used), tmp_path)


def _search_path(root: Path) -> list[str]:
    return [str(root), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]


def statuses(tmp_path: Path) -> list[SessionStatus]:
    with TuningDatabase(tmp_path / "tuning.db") as db:
        return [s.status for s in db.records(Session)]


def test_a_cell_shows_its_progress_and_its_interrupt(kernel: Kernel, tmp_path: Path) -> None:
    kernel.run("result = tw.tune(matmul(), trials=100_000, **options)", until=AT_WORK)
    kernel.manager.interrupt_kernel()
    kernel.run("print(result.interrupted, result.best is not None)")
    assert "True True" in kernel.printed
    (shown,) = kernel.shown.values()
    assert "interrupted" in shown
    assert "Best so far" in shown
    assert statuses(tmp_path) == [SessionStatus.INTERRUPTED]


def test_the_result_takes_the_place_of_the_live_picture(kernel: Kernel) -> None:
    kernel.run("tw.tune(matmul(), trials=2, **options)")
    assert list(kernel.shown.values()) == [""]
    assert "<TuneResult of matmul" in kernel.printed
    kernel.run("result = tw.tune(matmul(), trials=4, **options)")
    assert "all 4 trials are done" in list(kernel.shown.values())[1], "nothing else shows it"


def test_a_run_in_the_background_updates_its_cell(kernel: Kernel, tmp_path: Path) -> None:
    kernel.run("run = tw.tune(matmul(), trials=100_000, background=True, **options)")
    kernel.run("print('busy', 6 * 7)")
    assert "busy 42" in kernel.printed
    kernel.run("", until=AT_WORK)
    kernel.run("run.stop(); result = await run; print(result.reason)")
    assert "interrupted" in kernel.printed
    assert len(kernel.shown) == 1
    assert statuses(tmp_path) == [SessionStatus.INTERRUPTED]


def test_a_run_that_is_shown_is_live(kernel: Kernel) -> None:
    kernel.run(
        "run = tw.tune(matmul(), trials=100_000, background=True, progress=False, **options)\nrun",
        until=AT_WORK,
    )
    kernel.run("run", until=AT_WORK)
    assert len(kernel.shown) == 2
    kernel.run("run.stop(); result = await run")
    assert all("interrupted" in shown for shown in kernel.shown.values())
    assert kernel.printed == "", "no picture of a moment beside it"
    kernel.run("run")
    assert kernel.printed.startswith("<TuningRun, ended")


def test_the_cell_that_starts_a_run_shows_it_once(kernel: Kernel) -> None:
    tune = "run = tw.tune(matmul(), trials=100_000, background=True, **options)\nrun"
    kernel.run(tune, until=AT_WORK)
    kernel.run("6 * 7")
    assert kernel.printed == "42", "the cell has ended, and had no second picture"
    assert len(kernel.shown) == 1
    kernel.run("run", until=AT_WORK)
    assert len(kernel.shown) == 2, "another cell has one of its own"
    kernel.run("run.stop(); result = await run")
    assert all("interrupted" in shown for shown in kernel.shown.values())


@pytest.mark.parametrize("now", [True, False])
def test_a_restart_leaves_no_process(fresh_kernel: Kernel, tmp_path: Path, now: bool) -> None:
    fresh_kernel.run("run = tw.tune(matmul(), trials=100_000, background=True, **options)")
    fresh_kernel.run("", until=AT_WORK)
    workers = fresh_kernel.process.children(recursive=True)
    assert len(workers) >= 2
    fresh_kernel.manager.restart_kernel(now=now)
    assert stragglers(workers) == []
    assert statuses(tmp_path) == [SessionStatus.RUNNING if now else SessionStatus.INTERRUPTED]


REFUSED = """
sch = tw.Schedule(matmul())
*_, k = sch.get_loops(sch.get_block(0))
def step():
    sch.vectorize(k)
"""
FROM = """
try:
    {0}
except Exception as error:
    raise {1} from error
"""


def test_the_message_of_an_error_stands_first(kernel: Kernel) -> None:
    kernel.run(REFUSED)
    shown = kernel.error("step()")
    assert shown[0].startswith("ScheduleError: loop r cannot be vectorized")
    assert shown[1].startswith("  hint: ")
    places = [n for n, line in enumerate(shown) if re.match(r"Cell In\[\d+\], line \d", line)]
    assert [shown[n + 1] for n in places] == ["    step()", "    sch.vectorize(k)"]
    assert "schedule.py" not in "\n".join(shown)
    kernel.run("import sys, traceback\nprint(traceback.extract_tb(sys.last_traceback)[-1].name)")
    assert kernel.printed == "require_concurrent\n", "%debug begins where it was raised"


def test_errors_that_others_were_raised_from_are_shown(kernel: Kernel) -> None:
    kernel.run(REFUSED)
    shown = "\n".join(kernel.error(FROM.format("1 / 0", "tw.ScheduleError('no')")))
    assert shown.startswith("ScheduleError: no\n")
    assert "Raised from:\n  ZeroDivisionError: division by zero" in shown
    others = "\n".join(kernel.error(FROM.format("step()", "ValueError('mine')")))
    assert "ScheduleError: loop r cannot be vectorized" in others
    assert "was the direct cause of the following exception" in others
    assert others.endswith("ValueError: mine")


def test_the_mode_of_tracebacks_is_the_users(kernel: Kernel) -> None:
    kernel.run(REFUSED)
    kernel.run("%xmode Verbose")
    assert "Traceback (most recent call last)" in kernel.error("step()")[1]
    assert "schedule.py" in "\n".join(kernel.error("%tb"))
    kernel.run("%xmode Minimal")
    assert not any("Cell In" in line for line in kernel.error("step()"))


OPEN = """
import threading, time, psutil
def opened():
    return tw.lab(matmul(), "cpu -threads=1", db)
def open_labs(expected):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        count = sum(t.name == "tilewright-lab" for t in threading.enumerate())
        if count == expected:
            break
    return count
def measure(lab):
    lab.bench.do({"do": "measure"})
    while not psutil.Process().children():
        time.sleep(0.01)
"""


def test_a_lab_ends_with_the_next_run_of_its_cell(fresh_kernel: Kernel, tmp_path: Path) -> None:
    fresh_kernel.run(OPEN)
    fresh_kernel.run("lab = first = opened()\nother = opened()", cell="a")
    fresh_kernel.run("lab", cell="b")
    fresh_kernel.run("third = opened()", cell="c")
    fresh_kernel.run("measure(first)\nprint(open_labs(3))")
    assert fresh_kernel.printed.endswith("at v0: as written3\n")
    fresh_kernel.run("lab = opened()", cell="a")
    fresh_kernel.run("print(open_labs(2), first.bench.measurements.run.says)")
    assert fresh_kernel.printed.endswith("\n2 cancelled\n")
    assert statuses(tmp_path) == [SessionStatus.INTERRUPTED]
    assert fresh_kernel.process.children(recursive=True) == []


def test_a_lab_ends_when_its_front_end_closes_it(fresh_kernel: Kernel, tmp_path: Path) -> None:
    fresh_kernel.run(f"{OPEN}\nlab = opened()\nmeasure(lab)\nprint(lab.model_id)")
    fresh_kernel.send("comm_close", comm_id=fresh_kernel.printed.strip(), data={})
    fresh_kernel.run("print(open_labs(0), lab.bench.measurements.run.says)\nlab")
    assert "\n0 cancelled\n" in fresh_kernel.printed
    assert fresh_kernel.printed.endswith("closed; at v0: as written")
    assert statuses(tmp_path) == [SessionStatus.INTERRUPTED]
    assert fresh_kernel.process.children(recursive=True) == []

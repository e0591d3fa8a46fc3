"""Kills at random moments: every finished measurement is there, nobody is left, resuming works."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tilewright import TuningDatabase, build
from tilewright.tuning_db import Measurement, Outcome, Session, SessionStatus

from ..autotune.children import QUICK
from ..autotune.kernels import matmul
from .attempt import Attack, Attempt, require

ROOT = Path(__file__).resolve().parents[2]
TRIALS = 16
_TARGET = "cpu -threads=1"
_PATIENCE = 120.0


def prepare(folder: Path) -> Attack:
    return attack


def attack(attempt: Attempt) -> str:
    place = attempt.folder / "tuning.db"
    victim = attempt.choice(("parent", "parent", "builder", "runner", "all workers"))
    number = attempt.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
    after = attempt.pick(TRIALS)
    pause = float(attempt.rng.random()) * 0.2
    attempt.note(f"{number.name} to {victim} {pause:.3f} s after trial {after}")
    told, family, status = session(place, attempt.pick(1000), victim, number, after, pause)
    left = [p for p in psutil.wait_procs(family, timeout=60)[1] if _lives(p)]
    require(not left, f"still there: {left}")
    check_measurements(place, told)
    if victim != "parent":
        require(status == 0, f"the session ended with status {status}")
    elif number == signal.SIGTERM:
        with TuningDatabase(place) as db:
            states = {s.status for s in db.records(Session)}
        require(SessionStatus.RUNNING not in states, "a terminated session is still `running`")
    resume(place)
    return f"{number.name} to {victim}"


def session(
    place: Path, seed: int, victim: str, number: signal.Signals, after: int, pause: float
) -> tuple[set[str], list[psutil.Process], int]:
    """Tune, and send a signal; returns the trials that were said to be recorded, all processes that
    there were, and the exit status."""
    command = [sys.executable, "-m", "tests.autotune.children", str(place), str(TRIALS), str(seed)]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    told: set[str] = set()
    try:
        said = _read(child, told, after)
        time.sleep(pause)
        family = _family(child.pid)
        for process in _victims(family, victim):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        rest = _read(child, told, 1 << 30)
        status = child.wait(_PATIENCE)
    finally:
        child.kill()
        child.communicate()
    require(victim == "parent" or status == 0, f"status {status}:\n{(said + rest)[-1500:]}")
    return told, family, status


def _read(child: subprocess.Popen[bytes], told: set[str], count: int) -> str:
    """Read until so many trials were told, or the end; returns the text."""
    assert child.stdout is not None
    text = ""
    end = time.monotonic() + _PATIENCE
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while len(told) < count:
            require(bool(selector.select(max(0.0, end - time.monotonic()))), "the session hangs")
            line = child.stdout.readline().decode(errors="replace")
            if not line:
                break
            text += line
            if line.startswith("trial ") and line.endswith("\n"):
                told.add(line.split()[1])
    return text


def _family(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _victims(family: list[psutil.Process], victim: str) -> list[psutil.Process]:
    if victim == "parent":
        return family[:1]
    if victim == "all workers":
        return family[1:]
    chosen = []
    for process in family[1:]:
        with suppress(psutil.NoSuchProcess):
            if process.cmdline()[-1:] == [victim]:
                chosen.append(process)
    return chosen


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def check_measurements(place: Path, told: set[str]) -> None:
    """What was told is there, and no schedule of a killed process was called a crash."""
    if not place.exists():
        require(not told, "there is no database")
        return
    with TuningDatabase(place) as db:
        found = db.records(Measurement)
        missing = told - {m.schedule for m in found}
        require(not missing, f"{len(missing)} trials were told and are not there")
        blamed = [m for m in found if m.outcome not in (Outcome.OK, Outcome.WRONG_RESULT)]
        texts = [f"{m.outcome}: {(m.error or '')[:300]}" for m in blamed]
        require(not blamed, f"innocent candidates: {texts}")


def resume(place: Path) -> None:
    """Finish the session, and build what it found."""
    from tilewright import tune

    with TuningDatabase(place) as db:
        func = matmul()
        result = tune(func, _TARGET, database=db, trials=TRIALS, resume=True, config=QUICK)
        schedules = {m.schedule for m in db.records(Measurement)}
        require(len(schedules) >= TRIALS, f"{len(schedules)} schedules after {TRIALS} trials")
        require(result.best is not None, "nothing is best")
        require(build(func, _TARGET, database=db).origin.kind == "record", "no record is built")
    require(len(psutil.Process(os.getpid()).children(recursive=True)) == 0, "workers are left")

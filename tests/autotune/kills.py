"""Sessions whose processes are killed at random moments.

    python -m tests.autotune.kills --rounds 1000 --seed 3

Each round kills the tuning process, a builder or the runner, by SIGKILL or SIGTERM. What must hold:
each measurement that was told is in the database, no process is left, no candidate is said to have
crashed, and the session goes on where it was.
"""

from __future__ import annotations

import argparse
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Self

import numpy as np
import psutil

from tilewright import TuningDatabase, build, tune
from tilewright.tuning_db import Outcome, Session, SessionStatus

from .children import QUICK, say
from .kernels import matmul

ROOT = Path(__file__).parents[2]
TRIALS = 10_000
PER_DATABASE = 20
"""Rounds after which another database is begun: a program has so many candidates."""
PATIENCE = 120.0
LONGEST_WAIT = 0.5
"""Seconds from a trial until a process is killed, at most."""
LONGEST_START = 1.5
"""Seconds from the start of a tuning process until it is killed, at most."""
EARLY = 0.25
"""The share of tuning processes that are killed as they start."""
VICTIMS = ("tuner", "builder", "runner")
SHARES = (0.2, 0.4, 0.4)


class Tuner:
    """A process that tunes and says each trial that is recorded.

    `session` is the one that it began or went on with, `told` are the schedules that it measured.
    """

    def __init__(self, place: Path) -> None:
        command = [sys.executable, "-m", "tests.autotune.kills", "--tune", str(place)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.session: str | None = None
        self.told: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def await_trial(self) -> None:
        """Wait until another trial is told."""
        known = len(self.told)
        while len(self.told) == known:
            line = self._lines.get(timeout=PATIENCE)
            assert line is not None, f"the session ended, status {self.process.wait()}"
            self._take(line)

    def finish(self) -> int:
        """Read all that it said; its status."""
        while (line := self._lines.get(timeout=PATIENCE)) is not None:
            self._take(line)
        return self.process.wait(timeout=PATIENCE)

    def kill_worker(self, role: str, number: signal.Signals) -> bool:
        """Whether there was a worker in that role to kill."""
        for process in offspring(self.process.pid):
            if process.cmdline()[-1:] == [role]:
                process.send_signal(number)
                return True
        return False

    def _take(self, line: str) -> None:
        match line.split():
            case ["session", session]:
                self.session = session
            case ["trial", schedule]:
                self.told.append(schedule)
            case _:
                pass

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)


def campaign(folder: Path, rounds: int, seed: int) -> Counter[str]:
    """Kill so many processes; how many of each kind. Raises `AssertionError`."""
    rng = np.random.default_rng(seed)
    killed: Counter[str] = Counter()
    while (left := rounds - killed.total()) > 0:
        place = folder / f"tuning{killed.total()}.db"
        killed += _kill_in_one_database(place, min(left, PER_DATABASE), rng)
    return killed


def _kill_in_one_database(place: Path, rounds: int, rng: np.random.Generator) -> Counter[str]:
    killed: Counter[str] = Counter()
    told: set[str] = set()
    while (left := rounds - killed.total()) > 0:
        with Tuner(place) as tuner:
            killed += (life := _live(tuner, left, rng))
            status = tuner.finish()
        told |= set(tuner.told)
        assert wait_for_none_of(tuner.process.pid), "processes are left"
        last = "SIGTERM" if life["tuner SIGTERM"] else "SIGKILL"
        assert status == -signal.Signals[last], f"status {status} after {last}"
        _check(place, told, _pairs(killed), tuner.session if last == "SIGTERM" else None)
    with Tuner(place) as tuner:
        tuner.await_trial()
        tuner.process.send_signal(signal.SIGTERM)
        assert tuner.finish() == -signal.SIGTERM
    _check(place, told | set(tuner.told), _pairs(killed), tuner.session)
    with TuningDatabase(place) as db:
        module = build(matmul(), "cpu -threads=1", database=db)
    assert module.origin.kind == "record", f"built from {module.origin}"
    return killed


def _live(tuner: Tuner, rounds: int, rng: np.random.Generator) -> Counter[str]:
    """Kill workers and at last the tuning process, at most so many in all."""
    killed: Counter[str] = Counter()
    if rng.random() < EARLY:
        time.sleep(LONGEST_START * rng.random())
        return killed + _kill(tuner, "tuner", rng)
    while True:
        tuner.await_trial()
        time.sleep(LONGEST_WAIT * rng.random())
        last = killed.total() == rounds - 1
        victim = "tuner" if last else VICTIMS[rng.choice(len(VICTIMS), p=SHARES)]
        killed += _kill(tuner, victim, rng)
        if victim == "tuner":
            return killed


def _kill(tuner: Tuner, victim: str, rng: np.random.Generator) -> Counter[str]:
    number = (signal.SIGKILL, signal.SIGTERM)[rng.integers(2)]
    if victim == "tuner":
        tuner.process.send_signal(number)
    elif not tuner.kill_worker(victim, number):
        return Counter()
    return Counter([f"{victim} {number.name}"])


def _pairs(killed: Counter[str]) -> int:
    """How many candidates at most had two workers of theirs killed, which is one too many."""
    return sum(n for what, n in killed.items() if not what.startswith("tuner")) // 2


def _check(place: Path, told: set[str], twice: int, ended: str | None) -> None:
    """Check the database against what was told; the session `ended` has ended as interrupted.

    At most `twice` candidates may be to blame for the deaths of two workers each.
    """
    if not place.exists():
        assert not told
        return
    with TuningDatabase(place) as db:
        sessions = db.records(Session)
        measurements = db.measurements()
    assert told <= {m.schedule for m in measurements}, "a measurement is lost"
    blamed = [m for m in measurements if m.outcome in (Outcome.CRASH, Outcome.OUT_OF_MEMORY)]
    once = [m.error for m in blamed if ", twice: " not in (m.error or "")]
    assert not once, once[0]
    assert len(blamed) <= twice, blamed[0].error
    assert len(sessions) <= 1, "a session was not resumed"
    if ended is not None:
        assert [(s.id, s.status) for s in sessions] == [(ended, SessionStatus.INTERRUPTED)]


def offspring(pid: int) -> list[psutil.Process]:
    """The workers of a tuning process that live, also after its end."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = f"--parent={pid}" in process.cmdline()
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue  # it has ended
    return found


def wait_for_none_of(pid: int) -> bool:
    """Whether the workers of a process that has ended end too."""
    for _ in range(600):
        if not offspring(pid):
            return True
        time.sleep(0.1)
    return False


def _tune(place: str) -> None:
    with TuningDatabase(place) as db:
        tune(
            matmul(),
            "cpu -threads=1",
            database=db,
            trials=TRIALS,
            resume=True,
            callback=say,
            config=QUICK,
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.autotune.kills")
    parser.add_argument("--rounds", type=int, default=100, help="processes to kill")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tune", metavar="DATABASE", help="be the process that is killed")
    options = parser.parse_args()
    if options.tune:
        _tune(options.tune)
        return
    with tempfile.TemporaryDirectory() as folder:
        killed = campaign(Path(folder), options.rounds, options.seed)
    for what, count in sorted(killed.items()):
        print(f"{count:6} {what}")


if __name__ == "__main__":
    main()

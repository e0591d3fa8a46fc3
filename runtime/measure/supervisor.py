"""Runs a pack: gives candidates to a process that measures them, and writes down what it says.

The process is started anew where a candidate ended it, blocked it, or lost its device.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from ...base.durations import format_ratio, format_seconds
from ...base.errors import ArtifactError, KernelError
from ...base.process import NO_NUMPY_THREADS
from ..timer import CALM_PAUSES, DISTURBED_FINALS, slowdown, turn_seconds
from .pack import Pack, read_pack
from .packed import Message
from .results import Results, ResultsFile, now, results_of

START_TIMEOUT = 60.0
_MAX_ROUNDS = 200
_PAUSE = 1.0
"""Seconds of a pause for a calm machine."""


class Ended(Exception):
    """The process that measures ended, or did not answer in time: the outcome and why."""

    def __init__(self, outcome: str, why: str) -> None:
        super().__init__(outcome, why)
        self.outcome, self.why = outcome, why


class Measuring(Protocol):
    """A process that measures (`PackedBench`)."""

    def ask(self, message: Message, seconds: float) -> Message:
        """The answer within `seconds`. Raises `Ended`, and `ArtifactError` for damaged files."""

    def stop(self) -> None:
        """End it."""


def measure(
    folder: Path,
    out: Path,
    *,
    seconds: float | None = None,
    start: Callable[[Path], Measuring] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
    tell: Callable[[str], object] = lambda _: None,
) -> Results:
    """Measure the candidates of a pack that have no result in `out` yet, then the best interleaved.

    After `seconds` no other candidate is begun. Raises `ArtifactError` for a pack or results that
    are damaged or do not belong together, and `KernelError` where the unscheduled program does not
    run.
    """
    pack = read_pack(folder)
    with results_of(out, pack) as file:
        session = _Session(pack, file, lambda: (start or Child)(folder), tell, sleep)
        try:
            session.run(None if seconds is None else clock() + seconds, clock)
        finally:
            session.stop()
        return file.results


class _Session:
    """A run of the command."""

    def __init__(
        self,
        pack: Pack,
        file: ResultsFile,
        start: Callable[[], Measuring],
        tell: Callable[[str], object],
        sleep: Callable[[float], object],
    ) -> None:
        self._pack, self._file, self._start, self._tell = pack, file, start, tell
        self._sleep = sleep
        self._process: Measuring | None = None
        self._run = len(file.results.runs)
        self._begun = False

    def run(self, end: float | None, clock: Callable[[], float]) -> None:
        results = self._file.results
        missing = results.missing
        count = len(missing)
        self._tell(f"{len(results.candidates)} candidates have results, {count} are left")
        for done, number in enumerate(missing, 1):
            if end is not None and clock() >= end:
                self._tell(f"the time is over; {count - done + 1} candidates are left")
                break
            line = self._candidate(number)
            self._file.append({"kind": "candidate", "run": self._run, "candidate": number, **line})
            self._tell(f"{done}/{count}: candidate {number}: {_shown(line)}")
        held = max((finals["run"] for finals in results.finals), default=-1)
        if any(line["run"] > held for line in results.candidates.values()):
            self._hold_finals()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _ready(self) -> Measuring:
        """The process that measures, after it has run the unscheduled program."""
        if self._process is None:
            self._process = self._start()
            limit = START_TIMEOUT + self._pack.limits.reference_timeout
            try:
                said = self._process.ask({"do": "begin"}, limit)
            except Ended as error:
                raise KernelError("the unscheduled program does not run: {0}", error.why) from error
            if "error" in said:
                raise KernelError("the unscheduled program does not run: {0}", said["error"])
            if not self._begun:
                self._begun = True
                self._file.append({"kind": "run", "number": self._run, "started": now(), **said})
        return self._process

    def _candidate(self, number: int) -> dict[str, Any]:
        """The result of a candidate. Wrong ones count if a new process has them too.

        A candidate that writes where it should not may spoil the next ones in its process.
        """
        said = self._asked(number)
        if said["outcome"] == "wrong_result":
            self.stop()
            said = self._asked(number)
            if said["outcome"] == "wrong_result":
                self.stop()
        return said

    def _asked(self, number: int) -> dict[str, Any]:
        process, limits = self._ready(), self._pack.limits
        best = next(iter(self._file.results.accepted.values()), None)
        stop_above = None if best is None else limits.slack * best
        message = {"do": "run", "candidate": number, "stop_above": stop_above}
        try:
            said = dict(process.ask(message, limits.run_timeout))
        except Ended as error:
            self.stop()
            return {"outcome": error.outcome, "error": error.why}
        if said.pop("unusable", False):
            self.stop()
        return said

    def _hold_finals(self) -> None:
        """Time the fastest interleaved; what fails in it is said and changes nothing."""
        limits, timed = self._pack.limits, self._file.results.accepted
        if len(timed) < 2:
            return
        fastest = min(timed.values())
        ranked = sorted(timed, key=lambda n: timed[n])
        near = [n for n in ranked if timed[n] <= limits.margin * fastest]
        chosen = (near if len(near) > 1 else ranked[:2])[: limits.finalists]
        once = sum(turn_seconds(timed[n], limits.sample_seconds) for n in chosen)
        rounds = min(_MAX_ROUNDS, max(limits.rounds, int(limits.final_seconds / once)))
        message = {"do": "finals", "candidates": chosen, "rounds": rounds}
        patience = START_TIMEOUT + limits.run_timeout + 10 * rounds * once
        rows = self._interleaved(message, patience)
        slower = 1.0 if rows is None else slowdown(rows, [timed[n] for n in chosen])
        if slower >= DISTURBED_FINALS:
            self._tell("something else is running; waiting to time the best interleaved again")
            self._sleep(CALM_PAUSES * _PAUSE)
            rows = self._interleaved(message, patience)
            slower = 1.0 if rows is None else slowdown(rows, [timed[n] for n in chosen])
        if rows is None:
            return
        if slower >= DISTURBED_FINALS:
            self._tell(
                f"the finals took {format_ratio(slower)} times as long as the candidates before "
                "them, twice; something else is running, and they are not written down. Run this "
                "command again when the machine is calm"
            )
            return
        samples = {str(n): row for n, row in zip(chosen, rows, strict=True) if row}
        self._file.append({"kind": "finals", "run": self._run, "samples": samples})
        left_out = len(chosen) - len(samples)
        note = f"; there was no memory for {left_out} more" if left_out else ""
        self._tell(f"the best {len(samples)} were timed interleaved, {rounds} rounds{note}")

    def _interleaved(self, message: Message, seconds: float) -> list[list[float]] | None:
        """The samples of each candidate; `None` where timing failed, which is said."""
        try:
            said = self._ready().ask(message, seconds)
        except (Ended, KernelError) as error:
            self.stop()
            said = {"error": error.why if isinstance(error, Ended) else str(error)}
        if "error" in said:
            self._tell(f"the best could not be timed interleaved: {said['error']}")
            return None
        rows: list[list[float]] = said["samples"]
        return rows


class Child:
    """The process that measures: `python -m tilewright.runtime.measure --bench FOLDER`."""

    def __init__(self, folder: Path) -> None:
        ours, theirs = os.pipe()
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    __package__,
                    "--bench",
                    str(folder),
                    "--replies",
                    str(theirs),
                    "--parent",
                    str(os.getpid()),
                ],
                stdin=subprocess.PIPE,
                pass_fds=(theirs,),
                env={**os.environ, **NO_NUMPY_THREADS},
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._replies = ours
        self._pending = b""

    def ask(self, message: Message, seconds: float) -> Message:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._death() from None
        end = time.monotonic() + seconds
        while b"\n" not in self._pending:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._replies], [], [], left)[0]:
                raise Ended("run_timeout", f"no result after {seconds:.3g} s")
            some = os.read(self._replies, 1 << 16)
            if not some:
                raise self._death()
            self._pending += some
        line, _, self._pending = self._pending.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "refused" in answer:
            raise ArtifactError("{0}", answer["refused"])
        return answer

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        os.close(self._replies)

    def _death(self) -> Ended:
        status = self._process.wait()
        if status >= 0:
            return Ended("crash", f"the process ended with status {status}")
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return Ended("crash", f"the process was ended by {name}")


def _shown(line: Message) -> str:
    if line["outcome"] == "ok":
        return format_seconds(line["seconds"])
    return f"{line['outcome']}: {str(line['error']).partition(chr(10))[0]}"

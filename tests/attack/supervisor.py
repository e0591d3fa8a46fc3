"""Tries in child processes: a crash or a hang costs the child, and is a failure of its try."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from .attempt import story
from .kinds import kind_of
from .report import Outcome

ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 300.0
_MOST_OUTPUT = 4000


def run_kind(kind: str, seed: int, tries: Iterable[int]) -> Iterator[Outcome]:
    """The outcomes of these tries, as they come."""
    child: Child | None = None
    try:
        for number in tries:
            child = child or Child(kind, seed)
            outcome = child.run(number)
            yield outcome
            if not child.alive:
                child.close()
                child = None
    finally:
        if child is not None:
            child.close()


class Child:
    """One process that makes tries of a kind, and the folder that it works in."""

    def __init__(self, kind: str, seed: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"tilewright-{kind}-"))
        self.alive = True
        self._silent = False
        self._limit = kind_of(kind).limit
        self._output = (self.folder / "output.txt").open("wb")
        name = [str(os.getpid()), kind, str(seed), str(self.folder)]
        environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(self.folder / "cache")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.attack.child", *name],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            start_new_session=True,
        )
        try:
            if self._answer(_START_SECONDS) is None:
                raise RuntimeError(f"cannot prepare {kind}: {self._end()}\n{self._printed()}")
        except BaseException:
            self.close()
            raise

    def run(self, number: int) -> Outcome:
        """Make a try."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n".encode())
        self._process.stdin.flush()
        answer = self._answer(self._limit)
        if answer is None:
            failure = f"{self._end()}\n{self._printed()}"
        elif "failure" in answer:
            failure = answer["failure"]
        else:
            return Outcome(number, answer["held"])
        return Outcome(number, "", failure, self._story(), self._keep())

    def close(self) -> None:
        """End the process and all that it started, and remove its folder."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self._output.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answer(self, seconds: float) -> dict[str, str] | None:
        """The next reply; none where the process ends or takes too long."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            self._silent = not selector.select(seconds)
            line = b"" if self._silent else self._process.stdout.readline()
        if not line.endswith(b"\n"):
            self.alive = False
            return None
        answer: dict[str, str] = json.loads(line)
        return answer

    def _end(self) -> str:
        """How the process ended: by itself, or by us because it took too long."""
        try:
            status = self._process.wait(0 if self._silent else 5)
        except subprocess.TimeoutExpired:
            return f"nothing after {self._limit:g} s"
        return f"the process ended with status {status}"

    def _printed(self) -> str:
        return (self.folder / "output.txt").read_text(errors="replace")[-_MOST_OUTPUT:]

    def _story(self) -> str:
        path = story(self.folder / "try")
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def _keep(self) -> str:
        """Move the files of a failure to a folder that stays."""
        source = self.folder / "try"
        if not source.is_dir() or not any(source.iterdir()):
            return ""
        kept = tempfile.mkdtemp(prefix="tilewright-failure-")
        shutil.move(source, kept)
        return f"{kept}/try"

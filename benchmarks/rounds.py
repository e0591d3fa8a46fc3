"""Comparing peers: each in a process of its own, with interleaved samples."""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .suite import Case

ROOT = Path(__file__).resolve().parent.parent


class Peer:
    """A worker process; `ask` waits for its answer.

    Between requests the process is stopped: thread pools spin for a while after their last call,
    at the cost of whoever runs next.
    """

    def __init__(
        self, name: str, threads: int, python: str, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        command = [python, "-m", f"{__package__}.worker", name, str(threads)]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            text=True,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request; a process that died gives none, which is a failure."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        self.process.send_signal(signal.SIGSTOP)
        if not line:
            return {"failed": f"the process ended with status {self.process.wait()}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):  # the process may have died with a request unread
            self.process.stdin.close()
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


@contextmanager
def peers(
    names: Sequence[str], threads: int, pythons: Mapping[str, str], environment: Mapping[str, str]
) -> Iterator[list[Peer]]:
    """Workers of the peers on so many threads."""
    with ExitStack() as stack:
        started = []
        for name in names:
            peer = Peer(name, threads, pythons[name], environment)
            stack.callback(peer.close)
            started.append(peer)
        yield started


@dataclass(frozen=True)
class Timed:
    """The times of a case with one peer, or its failure.

    `samples` are seconds of whole calls, one for each round, and `kernel_samples` of the calls with
    bound arguments. `failed` says why there are none; both are empty where a peer has no such case.
    """

    peer: str
    version: str = ""
    note: str = ""
    error: float | None = None
    samples: tuple[float, ...] = ()
    kernel_samples: tuple[float, ...] = ()
    failed: str | None = None

    @property
    def seconds(self) -> float | None:
        return statistics.median(self.samples) if self.samples else None

    @property
    def kernel_seconds(self) -> float | None:
        return statistics.median(self.kernel_samples) if self.kernel_samples else None


def compare(case: Case, workers: Sequence[Peer], rounds: int) -> list[Timed]:
    """Time a case with all workers, interleaved: one sample of each in every round."""
    ready = {peer.name: peer.ask(do="prepare", case=case.name) for peer in workers}
    running = [p for p in workers if "version" in ready[p.name]]
    whole: dict[str, list[float]] = {p.name: [] for p in running}
    kernel: dict[str, list[float]] = {p.name: [] for p in running if ready[p.name]["kernel"]}
    for number in range(rounds):
        for peer in running if number % 2 == 0 else reversed(running):
            _sample(peer, whole, ready, kernel=False)
            if peer.name in kernel:
                _sample(peer, kernel, ready, kernel=True)
    return [_timed(peer.name, ready[peer.name], whole, kernel) for peer in workers]


def _sample(
    peer: Peer, into: dict[str, list[float]], ready: dict[str, dict[str, Any]], *, kernel: bool
) -> None:
    if "failed" in ready[peer.name]:
        return
    answer = peer.ask(do="sample", kernel=kernel)
    if "failed" in answer:
        ready[peer.name] = answer
    else:
        into[peer.name].append(answer["seconds"])


def _timed(
    name: str,
    answer: dict[str, Any],
    whole: dict[str, list[float]],
    kernel: dict[str, list[float]],
) -> Timed:
    if "failed" in answer or "absent" in answer:
        return Timed(name, failed=answer.get("failed"))
    return Timed(
        name,
        answer["version"],
        answer["note"],
        answer["error"],
        tuple(whole[name]),
        tuple(kernel.get(name, ())),
    )


def ratio(slow: Sequence[float], fast: Sequence[float]) -> tuple[float, float]:
    """The ratio of two medians, and its spread: the median distance of the rounds' ratios from it.

    Ratios within one round share what the machine did in that round.
    """
    value = statistics.median(slow) / statistics.median(fast)
    rounds = [a / b for a, b in zip(slow, fast, strict=True)]
    return value, statistics.median(abs(r - value) for r in rounds)

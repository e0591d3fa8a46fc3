"""A process that runs one peer: `python -m benchmarks.worker PEER THREADS`.

It answers JSON lines with JSON lines, and takes a sample only when it is asked to: so that the
rounds of several peers interleave, each with the thread pools of its own library only. Whatever a
library prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

WARM_SECONDS = 5e-3
MAX_CALLS = 5000


def main() -> None:
    peer, threads = sys.argv[1], int(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    pin(threads)
    worker = Worker(peer, threads)
    for line in sys.stdin:
        print(json.dumps(worker.answer(json.loads(line))), file=answers, flush=True)


def pin(threads: int, *, processors: bool = True) -> None:
    """Leave the libraries no more processors than threads, and tell them so; before they load.

    Without `processors` they are only told: the process may move to one that is free.
    """
    if processors and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    for name in ("OMP", "OPENBLAS", "MKL", "NUMBA", "TVM", "HL"):
        os.environ[f"{name}_NUM_THREADS"] = str(threads)


class Worker:
    """One peer, with at most one case ready."""

    def __init__(self, peer: str, threads: int) -> None:
        self._threads = threads
        self._peer = peer
        self._call: Any = None

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request; a failure is one too."""
        try:
            if asked["do"] == "prepare":
                return self._prepare(asked["case"])
            return {"seconds": sample(self._call.kernel if asked["kernel"] else self._call.run)}
        except Exception as error:  # noqa: BLE001  a peer that fails must not end the comparison
            return {"failed": f"{type(error).__name__}: {error}"[:500]}

    def _prepare(self, name: str) -> dict[str, Any]:
        from . import suite

        self._call = None
        peer = import_module(f".peers.{self._peer}", __package__)
        case = suite.find(name)
        arrays = suite.inputs(case)
        call = peer.prepare(case, arrays, self._threads)
        if call is None:
            return {"absent": True}
        call.run()
        error = None
        if call.result is not None:
            error = suite.error(call.result(), suite.reference(case, arrays))
        self._call = call
        return {
            "version": str(peer.VERSION),
            "error": error,
            "kernel": call.kernel is not None,
            "note": call.note,
        }


def sample(run: Callable[[], Any], seconds: float = 0.02) -> float:
    """The median time of a call, warm, of as many calls as take about `seconds`."""
    clock = time.perf_counter
    end = clock() + WARM_SECONDS
    run()
    while clock() < end:
        run()
    times: list[float] = []
    end = clock() + seconds
    while len(times) < MAX_CALLS:
        began = clock()
        run()
        now = clock()
        times.append(now - began)
        if now >= end:
            break
    return statistics.median(times)


if __name__ == "__main__":
    main()

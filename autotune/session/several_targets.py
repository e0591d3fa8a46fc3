"""Several jobs at once: one for each target of a cluster, whose machines are others'.

Each runs in a thread, with a budget of its own. They share the database, the callback and the end.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace

from ..result import TuneResult
from .events import Callback, Event, Started
from .interrupts import Interrupts
from .session import Tuning
from .tuning_job import TuningJob

_LOOK = 0.1


def run_each(
    jobs: Sequence[TuningJob],
    callback: Callback,
    stop: threading.Event,
    tunings: Sequence[list[Tuning]],
) -> list[list[TuneResult]]:
    """Tune each until its budget is used up, or `stop` is set; their sessions go into `tunings`.

    Events have the numbers of all programs of all targets. What one job raises ends the others, and
    is raised once they have ended.
    """
    telling = threading.Lock()
    total = sum(len(job.programs) for job in jobs)

    def tell(first: int) -> Callback:
        def told(event: Event) -> None:
            numbered = replace(event, program=first + event.program)
            if isinstance(numbered, Started):
                workload = f"{numbered.workload} for {numbered.target}"
                numbered = replace(numbered, workload=workload, programs=total)
            with telling:
                callback(numbered)

        return told

    with ThreadPoolExecutor(len(jobs), "tilewright-tune") as pool, Interrupts(stop) as interrupts:
        futures, first = [], 0
        for job, own in zip(jobs, tunings, strict=True):
            futures.append(pool.submit(job.run, tell(first), stop, own))
            first += len(job.programs)
        try:
            while wait(futures, _LOOK, FIRST_EXCEPTION).not_done and not any(
                f.done() and f.exception() for f in futures
            ):
                interrupts.check()
        except KeyboardInterrupt:
            pass
        stop.set()  # unless all are done
        wait(futures)
    return [future.result() for future in futures]

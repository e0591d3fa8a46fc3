"""Builds in child processes, which leave their results in the caches on disk.

Python runs one thread of a process at a time, and so does the binding to LLVM: what is to be built
in parallel takes processes. Each takes 0.16 s of processor time to start.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ...target import Target
from ...tir.instruction_set import user_instructions
from ...tir.ir import Func
from ..search.remembered import Way
from .machine import with_rates
from .program_text import program_fields
from .protocol import Message
from .supervised_worker import describe
from .worker_process import Worker, turn

_log = logging.getLogger(__name__)
_PATIENCE = 600.0
_ASLEEP = 60.0
"""Seconds for which a child may sleep, because it was stopped, say: then its task is built here."""


@dataclass(frozen=True)
class Task:
    """A program to compile; its schedule is chosen first by `way`, unless that is `None`."""

    func: Func
    way: Way | None


def build_ahead(tasks: Sequence[Task], target: Target, jobs: int, *, strict_fp: bool) -> None:
    """Choose and compile in at most `jobs` child processes.

    A task that fails is logged: whoever builds that program next has the error. Raises
    `TuningError` where no process can be started.
    """
    waiting = deque(_request(task, target, strict_fp=strict_fp) for task in tasks)
    workers = list[Worker]()
    try:
        for _ in range(min(jobs, len(tasks))):
            workers.append(Worker(["compiler"], {}))
            workers[-1].send(waiting.popleft(), _PATIENCE, _ASLEEP)
        while busy := [w for w in workers if not w.dead and not w.idle]:
            for worker, event in turn(busy, lambda: None):
                if not isinstance(event, Message):
                    _log.warning("a build in a child process failed: %s", describe(event))
                elif "error" in event.fields:
                    _log.info("a build in a child process failed: %s", event.fields["error"])
                if waiting and not worker.dead:
                    worker.send(waiting.popleft(), _PATIENCE, _ASLEEP)
    finally:
        for worker in workers:
            worker.kill()


def _request(task: Task, target: Target, *, strict_fp: bool) -> Message:
    fields = program_fields(task.func, target if task.way is None else with_rates(target))
    if task.way is not None:  # rules may take any instruction
        homes = {i.home for i in user_instructions()}
        fields["modules"] += sorted(home for home in homes if home is not None)
    return Message({**fields, "do": "build", "way": task.way, "strict_fp": strict_fp})

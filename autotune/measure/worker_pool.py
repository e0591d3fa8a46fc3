"""The processes that build and run the candidates of one program or of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...codegen.detect import usable_processors
from ...codegen.generator import generator_for, outside_modules
from ...target import Target
from .measure_result import MeasureConfig
from .supervised_worker import Handshake, SupervisedWorker

ALONE = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Threads of numpy's libraries do not compete with the kernel that is timed."""


class WorkerPool:
    """Builders and a runner for one target.

    Builders first import `modules`: those that register primitives of the schedules.

    The measurer of a program lets them `take_up` its handshakes. They keep that program until
    another measurer does so.
    """

    def __init__(self, target: Target, config: MeasureConfig, modules: Sequence[str] = ()) -> None:
        self.modules = (*outside_modules(target), *modules)
        generator = generator_for(target)
        self.builders = [
            SupervisedWorker("builder", {**ALONE, **generator.environment(target, runs=False)})
            for _ in range(config.builders or max(1, usable_processors() - generator.on_device))
        ]
        environment = generator.environment(target, runs=True)
        self.runner = SupervisedWorker("runner", {**ALONE, **environment})

    @property
    def workers(self) -> list[SupervisedWorker]:
        """The runner's first."""
        return [self.runner, *self.builders]

    def open(
        self, builder: Callable[[], Sequence[Handshake]], runner: Callable[[], Sequence[Handshake]]
    ) -> None:
        """Start the processes with these handshakes, where none have started; they get ready."""
        for worker in self.workers:
            if not worker.opened:
                worker.take_up(runner if worker is self.runner else builder)
                worker.open()

    def close(self) -> None:
        """End all processes at once."""
        for worker in self.workers:
            worker.close()

"""The processes that build and run the candidates of one program or of several."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir

from ...base.errors import TuningError
from ...codegen.detect import usable_processors
from ...codegen.generator import generator_for, outside_modules
from ...target import Target
from .measure_result import MeasureConfig
from .supervised_worker import Handshake, SupervisedWorker


class WorkerPool:
    """Builders and a runner for one target.

    Builders first import `modules`: those that register primitives of the schedules.

    The measurer of a program lets them `take_up` its handshakes. They keep that program until
    another measurer does so.
    """

    def __init__(self, target: Target, config: MeasureConfig, modules: Sequence[str] = ()) -> None:
        self.modules = (*outside_modules(target), *modules)
        generator = generator_for(target)
        own = dict[str, str]()
        self._folder: Path | None = None
        if generator.on_device:  # what is ended leaves its compiler's files, which go with this
            self._folder = Path(gettempdir(), f"tilewright-{token_hex(16)}")
            own["TMPDIR"] = str(self._folder)
        self.builders = [
            SupervisedWorker("builder", {**own, **generator.environment(target, runs=False)})
            for _ in range(config.builders or max(1, usable_processors() - generator.on_device))
        ]
        environment = generator.environment(target, runs=True)
        self.runner = SupervisedWorker("runner", {**own, **environment})

    @property
    def workers(self) -> list[SupervisedWorker]:
        """The runner's first."""
        return [self.runner, *self.builders]

    def open(
        self, builder: Callable[[], Sequence[Handshake]], runner: Callable[[], Sequence[Handshake]]
    ) -> None:
        """Start the processes with these handshakes, where none have started; they get ready.

        Raises `TuningError` where none can start.
        """
        if self._folder is not None:
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)
            except OSError as error:
                raise TuningError(
                    "there is no folder for the files of compilers: {0}",
                    error,
                    hint="the variable TMPDIR names another folder for temporary files",
                ) from error
        for worker in self.workers:
            if not worker.opened:
                worker.take_up(runner if worker is self.runner else builder)
                worker.open()

    def close(self) -> None:
        """End all processes at once."""
        for worker in self.workers:
            worker.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

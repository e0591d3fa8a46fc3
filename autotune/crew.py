"""The processes that build and run candidates, of one program or of several in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..codegen.detect import usable_processors
from ..target import Target
from .measured import MeasureConfig
from .station import Station, Welcome

_QUIET = {
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_DYNAMIC": "false",
    "OMP_MAX_ACTIVE_LEVELS": "1",
}


class Crew:
    """Builders and a runner for one target. Builders import `modules` first.

    A program that is measured lets them `take_up` its welcomes; they keep it until the next does.
    """

    def __init__(self, target: Target, config: MeasureConfig, modules: Sequence[str] = ()) -> None:
        self.modules = tuple(modules)
        self.builders = [
            Station("builder", {**_QUIET, "OMP_NUM_THREADS": "1"})
            for _ in range(config.builders or usable_processors())
        ]
        self.runner = Station("runner", {**_QUIET, "OMP_NUM_THREADS": str(target.threads)})

    @property
    def stations(self) -> list[Station]:
        """The runner's first."""
        return [self.runner, *self.builders]

    def open(
        self, builder: Callable[[], Sequence[Welcome]], runner: Callable[[], Sequence[Welcome]]
    ) -> None:
        """Start the processes with these welcomes, where none have started; they get ready."""
        for station in self.stations:
            if not station.opened:
                station.take_up(runner if station is self.runner else builder)
                station.open()

    def close(self) -> None:
        """End all processes at once."""
        for station in self.stations:
            station.close()

"""The result of measuring a candidate, and the limits under which it is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...base.errors import TuningError
from ...codegen.compiled import Launch
from ...runtime.measure.comparison import CheckResult
from ...runtime.timer import TimingOptions
from ...schedule import Trace
from ...tuning_db.outcome import Outcome

MIB = 1 << 20


@dataclass(frozen=True)
class MeasureConfig:
    """How candidates are built, run and timed. Times are in seconds, sizes in bytes.

    `builders` is the number of processes that compile, by default one for each processor that may
    be used, but for one where kernels run on a device: that is the runner's. A candidate may take
    `build_timeout` to compile and `run_timeout` to load and time; once it is known how long builds
    take, at most `build_patience` times their median (and `build_grace` in any case); once there is
    a time to beat, a candidate gets at most `patience` times it (and `run_grace` in any case)
    before it counts as hanging. Its code may take `run_memory` beyond the arguments, by default
    half of the memory that may be used, and its compilation `build_memory`. On a device these are
    its workspaces and packed operands, by default half of the device's memory that the arguments
    leave free.

    A candidate is timed by `min_samples` to `max_samples` samples of at least `sample_seconds`
    within `timing_seconds`, and dropped early once it is slower than `slack` times the best. Short
    calls have 5 samples in any case, if `max_samples` allows them: see `time_samples`.

    `reference_timeout` is for the unscheduled program, which runs once. `start_timeout` is for a
    process to be ready.

    These limits are of processor time, all threads of a process together, since a busy machine may
    not let it run. A process that sleeps is given up after four times as long by the clock.
    """

    builders: int | None = None
    build_timeout: float = 20.0
    build_grace: float = 2.0
    build_patience: float = 10.0
    run_timeout: float = 20.0
    run_grace: float = 1.0
    patience: float = 100.0
    build_memory: int = 2048 * MIB
    run_memory: int | None = None
    min_samples: int = 3
    max_samples: int = 12
    sample_seconds: float = 1e-3
    timing_seconds: float = 0.07
    slack: float = 1.15
    reference_timeout: float = 300.0
    start_timeout: float = 60.0
    seed: int = 0

    def timing(self, best_seconds: float | None) -> TimingOptions:
        """How a candidate is timed where `best_seconds` is the time to beat."""
        return {
            "min_samples": self.min_samples,
            "max_samples": self.max_samples,
            "budget_seconds": self.timing_seconds,
            "min_sample_seconds": self.sample_seconds,
            "stop_above": None if best_seconds is None else self.slack * best_seconds,
        }

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name != "seed" and value is not None and not value > 0:
                raise TuningError("MeasureConfig.{0}: expected more than 0, found {1}", name, value)
        if self.slack < 1:
            raise TuningError(
                "MeasureConfig.slack: expected at least 1, found {0}: candidates that are faster "
                "than the best would be dropped",
                self.slack,
            )


class BuildRequest(NamedTuple):
    """A schedule to build: its trace as JSON text, and its `Trace.error_factor`."""

    trace: str
    error_factor: float = 1.0

    @staticmethod
    def of(trace: Trace) -> BuildRequest:
        return BuildRequest(trace.to_json(notes=False), trace.error_factor)


class Kernel(NamedTuple):
    """Compiled code of a candidate: its image and launches.

    `signature` is JSON, and may ask for packed operands; `None` is the program's. `error_factor` is
    that of the `BuildRequest`. `resources` are those of a `Measurement`. `target` is the text of
    what its code is for. Of one that a cluster measured no code is here, and the `request` is what
    its workers build again.
    """

    image: bytes
    launches: tuple[Launch, ...] = ()
    signature: str | None = None
    error_factor: float = 1.0
    resources: Mapping[str, Any] | None = None
    request: BuildRequest | None = None
    target: str | None = None

    def form(self) -> dict[str, Any]:
        """What it takes to run beside the image, as fields of a message."""
        launches = [launch.to_json() for launch in self.launches]
        return {"launches": launches, "signature": self.signature}

    def allows(self, check: CheckResult, tolerance: float | None) -> bool:
        """Whether its errors are accepted: an inexact schedule's must be within `tolerance`."""
        return self.error_factor == 1.0 or (tolerance is not None and check.max_error <= tolerance)


@dataclass(frozen=True)
class MeasureResult:
    """The outcome of one candidate.

    With the outcome `OK`, `seconds` is the median of `samples`, in seconds per call. Otherwise
    `seconds` is `None` and `error` the reason. `stopped` is set if timing was cut short because the
    candidate could not win. `check` is the result of its numeric check, if it had one; `kernel` its
    code, if it was built. `environment` is the record (id) of the machine that measured it, `None`
    for this one.
    """

    outcome: Outcome
    seconds: float | None = None
    samples: tuple[float, ...] = ()
    error: str | None = None
    stopped: bool = False
    check: CheckResult | None = None
    kernel: Kernel | None = None
    environment: str | None = None

    def accepted(self, tolerance: float | None) -> bool:
        """Whether it was checked and its errors are accepted (see `Kernel.allows`)."""
        assert self.kernel is not None, "what ran was built"
        return self.check is not None and self.kernel.allows(self.check, tolerance)

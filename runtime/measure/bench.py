"""The kernels of one program on this machine: run, checked and timed on the same arguments.

A session asks a runner for that (`autotune/measure/runner.py`), on this machine or another one, and
a pack the process of `packed.py`. Each is a process of its own, and is asked one thing at a time: a
candidate that ends or blocks it costs itself and this process, not the results.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from ...base.errors import BuildError, DeviceError, KernelError, OutOfMemoryError
from ...base.process import collected_later
from ..cuda_driver import LAUNCH_TIMEOUT
from ..inputs import Arguments, Array
from ..module import Module
from ..signature import Signature
from ..target_runtime import TargetRuntime
from ..timer import TimingOptions
from .comparison import CheckResult, Deviation, Exact, check_outputs, deviation
from .interleaved import time_loaded

Answer = dict[str, Any]
FAILURES = (KernelError, BuildError, MemoryError)
"""What a candidate may raise; `failure` says which outcome that is."""


class Bench:
    """The arguments of a program, and what kernels of it do with them.

    `tolerance` is the largest error that rounding explains. On a device, the workspaces and packed
    operands of a candidate may take `memory` bytes, by default half of what is free.
    """

    def __init__(
        self,
        runtime: TargetRuntime,
        arguments: Arguments,
        tolerance: float,
        memory: int | None = None,
    ) -> None:
        self.runtime, self.arguments, self.tolerance = runtime, arguments, tolerance
        free = runtime.memory.free_bytes()
        self.device_memory = None if free is None else memory or free // 2

    @property
    def signature(self) -> Signature:
        return self.arguments.signature

    def run_reference(self, module: Module) -> tuple[float, list[Array]]:
        """The seconds of the unscheduled program, and its results until something else runs."""
        values = self._values(module)

        def run() -> None:
            module(*values)
            module.synchronize()

        seconds = self.runtime.timer.time_once(run)
        return seconds, self.arguments.outputs

    def run_wide(self, wide: Module, expected: Sequence[Array]) -> Exact:
        """The results in wider arithmetic, and how far what is `expected` deviates from them."""
        arguments = self.arguments.converted(wide.signature)
        wide(*arguments.values)
        wide.synchronize()
        outputs = [a.copy() for a in arguments.outputs]
        found = [deviation(a, a, b) for a, b in zip(expected, outputs, strict=True)]
        return Exact(outputs, [Deviation(_finite(d.largest), _finite(d.rms)) for d in found])

    def check(
        self, module: Module, expected: Sequence[Array], exact: Exact | None, error_factor: float
    ) -> CheckResult:
        """Compare the results of a candidate with those of the unscheduled program."""
        self._require_memory(module)
        self.arguments.reset()
        module(*self._values(module))
        module.synchronize()
        names = [a.name for a in self.signature.arguments if a.written]
        results = self.arguments.outputs
        check = check_outputs(results, expected, names, self.tolerance, exact, error_factor)
        stray = self.arguments.stray_write()
        if stray is None:
            return check
        error = f"it wrote beside argument {stray}"
        return CheckResult(False, check.max_error, check.tolerance, error)

    def time(self, load: Callable[[], Module], options: TimingOptions) -> Answer:
        """The times of a candidate: the median, in seconds per call, and the samples."""
        began = time.perf_counter()
        call = self._call(load)
        with collected_later():
            timing = self.runtime.timer.time_calls(call, **options)
        return {
            "outcome": "ok",
            "samples": list(timing.samples),
            "seconds": timing.median,
            "stopped": timing.stopped,
            "took": time.perf_counter() - began,
        }

    def interleave(
        self, loads: Iterable[Callable[[], Module]], rounds: int, sample_seconds: float
    ) -> Answer:
        """The samples of several candidates, as `time_loaded` says."""
        with collected_later():
            samples = time_loaded(
                [partial(self._call, load) for load in loads],
                self.runtime.timer,
                rounds=rounds,
                min_sample_seconds=sample_seconds,
            )
        return {"samples": samples}

    def _call(self, load: Callable[[], Module]) -> Callable[[], None]:
        module = load()
        self._require_memory(module)
        return module.bind(*self._values(module))

    def _require_memory(self, module: Module) -> None:
        """Raise `OutOfMemoryError` for a candidate that takes too much of a device."""
        extra, limit = module.signature.extra_bytes, self.device_memory
        if limit is not None and extra > limit:
            raise OutOfMemoryError(
                "{0}: its workspaces and packed operands are {1} bytes; a candidate may take {2}",
                module.signature.name,
                extra,
                limit,
                hint="MeasureConfig.run_memory is the limit",
            )

    def _values(self, module: Module) -> list[Any]:
        """The arguments of a module, the constant ones packed as its signature says."""
        return [
            value if a.packing is None else module.pack(a.name, value)
            for a, value in zip(module.signature.arguments, self.arguments.values, strict=True)
        ]


def failure(error: Exception) -> Answer:
    """The outcome of a candidate that raised one of `FAILURES`, and why.

    With `unusable`, this process cannot use its device any more.
    """
    match error:
        case OutOfMemoryError():
            return failed("out_of_memory", error)
        case MemoryError():
            return failed("out_of_memory", "no memory to load or run it")
        case BuildError() | DeviceError(sticky=False):  # it is refused, or the device refuses it
            return failed("build_error", error)
        case DeviceError():
            late = error.code == LAUNCH_TIMEOUT
            return {**failed("run_timeout" if late else "crash", error), "unusable": True}
        case _:
            return failed("crash", error)


def failed(outcome: str, error: object) -> Answer:
    return {"outcome": outcome, "error": str(error)}


def _finite(error: float) -> float:
    return error if math.isfinite(error) else 0.0  # one that overflows is no measure of anything

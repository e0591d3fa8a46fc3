"""Measuring a row of `cuda.py`: tune, check against float64, time interleaved with PyTorch."""

from __future__ import annotations

import secrets
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

import tilewright as tw
from tilewright.autotune.config import TuneConfig
from tilewright.autotune.measure.numeric_check import largest_error, tolerance_of
from tilewright.autotune.records import target_record, workload_record
from tilewright.codegen.detect import resolve, usable_processors
from tilewright.runtime import DeviceArray
from tilewright.runtime.cuda_driver import driver
from tilewright.runtime.cuda_memory import CudaMemory, cuda_memory
from tilewright.runtime.target_runtime import runtime_for

from . import suite
from .cuda_limits import Limit
from .peers.tilewright import program
from .rounds import ratio
from .suite import Array, Case

OURS, ZERO = "tilewright", "zero"
"""This package: the best record, and the schedule that zero trials choose."""
PEERS = ("torch", "torch.compile")
SAMPLE_SECONDS = 2e-3
_BLOCK = 1 << 20
"""The elements of an input that a thread takes to float64 at once."""

Json = dict[str, Any]


class Bench(NamedTuple):
    """What rows are measured with. `torch` is the module, or why there is none."""

    target: str
    database: tw.TuningDatabase
    limits: Sequence[Limit]
    torch: Any
    trials: int
    rounds: int
    resume: bool
    config: TuneConfig | None


def find_torch() -> Any:
    """PyTorch, or a text that says why it cannot be compared with."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no CUDA device"
    torch.set_grad_enabled(False)
    torch.set_float32_matmul_precision("highest")  # no tf32
    return torch


def measured(case: Case, bench: Bench) -> Iterator[Json]:
    """The figures of a row, part by part, so that an exception leaves those before it."""
    func, seed = program(case), secrets.randbits(32)
    yield {"flops": case.flops, "bytes": case.bytes, "seed": seed}
    if bench.trials:
        yield {"tuning": tuned(func, bench)}
    modules = {
        OURS: tw.build(func, bench.target, bench.database),
        ZERO: tw.build(func, bench.target),
    }
    yield {"origins": {name: str(module.origin) for name, module in modules.items()}}
    arrays = normal(case, seed)
    memory = cuda_memory(driver().current())
    shape, dtype = case.arrays[-1]
    *given, out = (_on_device(a, memory, bench.torch) for a in (*arrays, np.zeros(shape, dtype)))
    results = {}
    for name, module in modules.items():
        module(*given, out)
        module.synchronize()
        results[name] = memory.read(memory.view(out, "out"))
    worst, tolerance = errors(case, arrays, results), tolerance_of(func)
    yield {"errors": worst, "tolerance": tolerance}
    for name, error in worst.items():
        if not error <= tolerance:
            raise ArithmeticError(
                f"{name} computes wrong results: error {error:.3g}, tolerance {tolerance:.3g}"
            )
    calls = {name: module.bind(*given, out) for name, module in modules.items()}
    others, missing = peer_calls(case, given, bench.torch)
    calls |= {**others, **{limit.name: limit.run for limit in bench.limits}}
    runtime = runtime_for(resolve(bench.target))
    timings = runtime.timer.time_interleaved(
        [*calls.values()], rounds=bench.rounds, min_sample_seconds=SAMPLE_SECONDS
    )
    samples = {name: t.samples for name, t in zip(calls, timings, strict=True)}
    yield {"device": runtime.conditions(), "missing": missing}
    yield figures(case, samples, bench.limits)


def tuned(func: tw.Func, bench: Bench) -> Json:
    """Tune a program; what the session did."""
    target = resolve(bench.target)
    begun = bench.database.unfinished_sessions(workload_record(func).id, target_record(target).id)
    began = monotonic()
    result = tw.tune(
        func,
        target,
        database=bench.database,
        trials=bench.trials,
        resume=bench.resume and bool(begun),
        config=bench.config,
    )
    if result.interrupted:
        raise KeyboardInterrupt
    seconds = monotonic() - began
    return {
        "trials": result.trials,
        "seconds": seconds,
        "trials_per_second": result.trials / seconds,
        "outcomes": {str(outcome): count for outcome, count in result.outcomes.items()},
        "last_error": result.error,
    }


def normal(case: Case, seed: int) -> list[Array]:
    """Normally distributed arguments."""
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal(shape, np.float32).astype(dtype, copy=False)
        for shape, dtype in case.arrays[:-1]
    ]


def _on_device(array: Array, memory: CudaMemory, torch: Any) -> Any:
    """A copy on the device: a tensor of torch where there is one."""
    if isinstance(torch, str):
        return DeviceArray.of(array)
    tensor = torch.empty(array.shape, dtype=getattr(torch, array.dtype.name), device="cuda")
    memory.write(memory.view(tensor, "tensor"), array)
    return tensor


def errors(case: Case, arrays: Sequence[Array], results: Mapping[str, Array]) -> dict[str, float]:
    """The largest error of each result against float64, in the measure of `numeric_check`.

    Rows are independent: threads compute blocks of them.
    """
    rows = arrays[0].shape[0]
    count = max(1, _BLOCK * rows // arrays[0].size)
    split = len(arrays) if case.op == "add_relu" else 1
    whole = [a.astype(np.float64) for a in arrays[split:]]

    def block(start: int) -> list[float]:
        part = slice(start, start + count)
        expected = suite.reference(
            case, [*(a[part].astype(np.float64) for a in arrays[:split]), *whole]
        )
        where = (slice(None), part) if case.op == "transpose" else (part,)
        return [largest_error(result[where], expected)[0] for result in results.values()]

    with ThreadPoolExecutor(usable_processors()) as pool:
        blocks = [*pool.map(block, range(0, rows, count))]
    return dict(zip(results, np.max(blocks, axis=0).tolist(), strict=True))


def peer_calls(
    case: Case, given: Sequence[Any], torch: Any
) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """The calls of PyTorch that work, and why the others do not."""
    if isinstance(torch, str):
        return {}, dict.fromkeys(PEERS, torch)
    from .peers.torch import function

    torch.compiler.reset()  # shapes of other rows are no reason to compile for all shapes
    eager = function(case)
    functions = dict(zip(PEERS, (eager, torch.compile(eager, dynamic=False)), strict=True))
    calls, missing = dict[str, Callable[[], Any]](), dict[str, str]()
    for name, called in functions.items():
        call = partial(called, *given)
        try:
            call()
            torch.cuda.synchronize()
        except Exception as error:  # noqa: BLE001  torch.compile may lack a compiler, say
            missing[name] = f"{type(error).__name__}: {error}"[:500]
        else:
            calls[name] = call
    return calls, missing


def figures(case: Case, samples: Mapping[str, Sequence[float]], limits: Sequence[Limit]) -> Json:
    """What the samples of a row say: one sample of each call in each round.

    `speed` is ours over that of each other call, with its spread. `shares` are our bytes or
    operations a second over those of the kernels that measure what the device allows.
    """
    ours = samples[OURS]
    seconds = {name: statistics.median(s) for name, s in samples.items()}
    work = {"copy": case.bytes, "fma": case.flops}
    shares = {
        limit.name: work[limit.name] / seconds[OURS] / (limit.work / seconds[limit.name])
        for limit in limits
        if work[limit.name]
    }
    compared = [name for name in (ZERO, *PEERS) if name in samples]
    speeds = {name: ratio(samples[name], ours) for name in compared}
    best = min((name for name in PEERS if name in seconds), key=seconds.__getitem__, default=None)
    return {
        "seconds": seconds,
        "rate": case.rate(seconds[OURS]),
        "limits": {limit.name: limit.work / seconds[limit.name] for limit in limits},
        "shares": shares,
        "speed": {name: {"ratio": r, "spread": s} for name, (r, s) in speeds.items()},
        "best_peer": best,
        "samples": {name: list(s) for name, s in samples.items()},
    }

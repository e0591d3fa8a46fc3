"""Modules of PyTorch beside its compiler: `python -m benchmarks.frameworks [NAMES] [--width 8]`.

Each module of `torch_modules.py` whose name has one of `NAMES` as a part is called without
gradients by PyTorch itself (eager), as compiled by Inductor, and as compiled by
`torch.compile(backend="tilewright")`, both with their default options. `--width` multiplies
channels and features: at 1 modules are small, and a call is mostly what is paid around kernels.

With `--train` a call is a step without an optimizer: forward, a loss of all outputs, and the
gradients of all parameters. With `--jax`, functions of `jax_modules.py` are called as jitted by
XLA and as built from their StableHLO.

A line says whether a module is captured whole, as one graph without a break; the largest error
beside float64, and eager's; the seconds until the first call has returned, ours and Inductor's,
with caches that are empty but for what earlier modules of this run have left there; the medians of
interleaved rounds, and the ratio of Inductor's time to ours: above 1 is faster. With one thread,
seconds are those of processors, which other work does not lengthen. A module that fails is a line
with its error, and the exit status is 1.

`--db` names a database that schedules are taken from; with `--tune` each graph is first tuned so
many seconds into it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from tilewright.base.durations import format_seconds
from tilewright.building import compile_all

from .rounds import ratio
from .worker import pin
from .zero import geometric

Call = Callable[[], Any]
Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    pin(options.threads, processors=options.jax)
    compile_all.jobs_by_default = lambda: options.threads
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(options.threads)
    peer = import_module(f".{'jax' if options.jax else 'torch'}_modules", __package__)
    chosen = {
        name: make
        for name, make in peer.MODULES.items()
        if not options.names or any(part in name for part in options.names)
    }
    if not chosen:
        print(f"nothing is named {' '.join(options.names)}", file=sys.stderr)
        return 2
    measured = _of_jax if options.jax else _of_torch
    rows = list[Row]()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TILEWRIGHT_CACHE_DIR"] = f"{cache}/tilewright"
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{cache}/inductor"
        warm_up = _warm_up_jax if options.jax else _warm_up
        warm_up(options.threads)
        for name, make in chosen.items():
            row: Row = {"name": name, "threads": options.threads, "width": options.width}
            try:
                row |= measured(make, options)
            except Exception as error:  # noqa: BLE001  # any failure is a line; the others go on
                row["error"] = f"{type(error).__name__}: {error}"
            rows.append(row)
            print(line(row), flush=True)
            if options.out is not None:
                with options.out.open("a") as out:
                    out.write(json.dumps(row) + "\n")
    print(summary(rows))
    return 1 if any("error" in row for row in rows) else 0


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="benchmarks.frameworks", description=__doc__)
    found.add_argument("names", nargs="*", help="parts of names; all without")
    found.add_argument("--threads", type=int, default=1)
    found.add_argument("--width", type=int, default=8, help="so many times the channels")
    found.add_argument("--rounds", type=int, default=31)
    found.add_argument("--db", help="the records that kernels are built from; none without")
    found.add_argument("--tune", type=float, help="tune each graph so many seconds, into --db")
    which = found.add_mutually_exclusive_group()
    which.add_argument("--train", action="store_true", help="steps with gradients")
    which.add_argument("--jax", action="store_true", help="functions of JAX, beside XLA")
    found.add_argument("--out", type=Path, help="a file that gets a line of JSON for each")
    return found


def _warm_up(threads: int) -> None:
    """Load both compilers, and what they compile or measure once for a machine."""
    import torch

    torch.set_num_threads(threads)
    for backend in ("inductor", "tilewright"):
        torch.compile(lambda x: torch.relu(x @ x) + 1, backend=backend)(torch.ones(3, 3))


def _warm_up_jax(threads: int) -> None:
    """As `_warm_up`, for XLA."""
    import jax

    import tilewright as tw

    function = jax.jit(lambda x: jax.numpy.tanh(x @ x) + 1)
    ones = jax.numpy.ones((3, 3))
    jax.block_until_ready(function(ones))
    tw.build(tw.import_stablehlo(jax.export.export(function)(ones)), f"cpu -threads={threads}")


def _of_torch(sample: Any, options: argparse.Namespace) -> Row:
    import torch

    import tilewright as tw

    torch.set_num_threads(options.threads)
    torch._dynamo.config.allow_rnn = True
    module, args = sample.seeded(options.width, train=options.train)
    settings = {"database": options.db, "threads": options.threads, "tune_seconds": options.tune}
    call = _step if options.train else _inference
    calls, seconds = [call(module, module, args)], list[float]()
    for backend in ("inductor", "tilewright"):
        torch._dynamo.reset()
        tw.torch_report(clear=True)
        given = settings if backend == "tilewright" else None
        calls.append(call(torch.compile(module, backend=backend, options=given), module, args))
        began = _clock(options.threads)
        calls[-1]()
        seconds.append(_clock(options.threads) - began)
    report = tw.torch_report()
    places = [graph.ran_on for graph in report.graphs if graph.ran_on != "not called"]
    results = [[t.detach().clone() for t in c()] for c in calls]
    row = _times(calls, ("eager", "inductor", "ours"), options)
    wide = [a.double() if a.is_floating_point() else a for a in args]
    exact = [t.numpy() for t in call(module.double(), module, wide)()]
    errors = [_error([t.numpy() for t in result], exact) for result in results]
    return row | {
        "whole": not report.breaks and places == ["tilewright"] * (1 + options.train),
        "graphs": len(places),
        "breaks": len(report.breaks),
        "errors": dict(zip(("eager", "inductor", "ours"), errors, strict=True)),
        "compile_seconds": dict(zip(("inductor", "ours"), seconds, strict=True)),
    }


def _inference(used: Any, _module: Any, args: Sequence[Any]) -> Call:
    import torch

    def call() -> Any:
        with torch.no_grad():
            return torch.utils._pytree.tree_leaves(used(*args))

    return call


def _step(used: Any, module: Any, args: Sequence[Any]) -> Call:
    """A call of a module, and the gradients of all its parameters."""
    import torch

    parameters = [p for p in module.parameters() if p.requires_grad]

    def call() -> Any:
        for parameter in parameters:
            parameter.grad = None
        found = torch.utils._pytree.tree_leaves(used(*args))
        sum(t.square().mean() for t in found if t.is_floating_point()).backward()
        return [p.grad for p in parameters if p.grad is not None]

    return call


def _of_jax(make: Callable[[int], Any], options: argparse.Namespace) -> Row:
    import jax
    import numpy as np

    import tilewright as tw

    function, args = make(options.width)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(args)]
    target = f"cpu -threads={options.threads}"
    began = _clock(options.threads)
    jitted = jax.jit(function)  # a call of its `lower(..).compile()` costs more
    jax.block_until_ready(jitted(*args))
    seconds = [_clock(options.threads) - began]
    began = _clock(options.threads)
    graph = tw.import_stablehlo(jax.export.export(jax.jit(function))(*args))
    if options.tune is not None:
        tw.tune(graph, target, database=options.db, seconds=options.tune, progress=False)
    built = tw.build(graph, target, options.db)
    seconds.append(_clock(options.threads) - began)
    device = jax.device_put(args)
    calls: list[Call] = [
        lambda: jax.block_until_ready(jitted(*device)),
        lambda: built(*leaves),
    ]
    results = [[np.asarray(leaf) for leaf in jax.tree.leaves(call())] for call in calls]
    row = _times(calls, ("xla", "ours"), options)
    exact = graph.reference(*leaves, dtype="float64")
    return row | {
        "whole": True,
        "errors": {n: _error(r, exact) for n, r in zip(("xla", "ours"), results, strict=True)},
        "compile_seconds": dict(zip(("xla", "ours"), seconds, strict=True)),
    }


def _clock(threads: int) -> float:
    """The time, of one thread the processor time of this process and of those it has started."""
    return time.perf_counter() if threads > 1 else sum(os.times()[:4])


def _times(calls: Sequence[Call], names: Sequence[str], options: argparse.Namespace) -> Row:
    """The medians of interleaved samples with their spreads, and the ratio of the last two."""
    from tilewright.runtime import time_interleaved
    from tilewright.runtime.timer import wait_for_threads

    several = options.threads > 1
    timings = time_interleaved(
        calls,
        rounds=options.rounds,
        clock=time.perf_counter if several else time.process_time,
        before_turn=wait_for_threads if several else None,
    )
    peer, own = timings[-2:]
    quotient, spread = ratio(peer.samples, own.samples)
    return {
        "seconds": {n: t.median for n, t in zip(names, timings, strict=True)},
        "spread": {n: t.spread for n, t in zip(names, timings, strict=True)},
        "ratio": quotient,
        "ratio_spread": spread,
    }


def _error(found: Sequence[Any], exact: Sequence[Any]) -> float:
    """The largest difference of floats, relative to the largest element of its output."""
    import numpy as np

    def one(a: Any, b: Any) -> float:
        scale = float(np.abs(b).max(initial=0)) or 1.0
        return float(np.abs(a.astype(np.float64) - b).max(initial=0)) / scale

    return max(one(a, b) for a, b in zip(found, exact, strict=True) if a.dtype.kind == "f")


def line(row: Row) -> str:
    """A row as a line of text."""
    name = f"{row['name']:22}"
    if "error" in row:
        return f"{name} {row['error'].splitlines()[0]}"
    peer, own = list(row["seconds"])[-2:]
    whole = "whole" if row["whole"] else f"{row['graphs']} graphs, {row['breaks']} breaks"
    errors = row["errors"]
    error = f"{errors['ours']:.1e} beside {errors[next(iter(errors))]:.1e}"
    compiled = row["compile_seconds"]
    times = "  ".join(
        f"{n} {format_seconds(t)} ±{row['spread'][n]:.0%}" for n, t in row["seconds"].items()
    )
    return (
        f"{name} {whole}; error {error}; compile {compiled[own]:.1f} s, {peer} "
        f"{compiled[peer]:.1f} s; {times}; ratio {row['ratio']:.2f} ±{row['ratio_spread']:.2f}"
    )


def summary(rows: Sequence[Row]) -> str:
    """Geometric means, and how many modules are whole."""
    run = [row for row in rows if "error" not in row]
    ratios = [row["ratio"] for row in run]
    compiled = [peer / own for row in run for peer, own in [tuple(row["compile_seconds"].values())]]
    return (
        f"{sum(row['whole'] for row in run)} of {len(rows)} whole, {len(rows) - len(run)} failed; "
        f"geometric means of ratios: calls {geometric(ratios):.3f}, "
        f"compile time {geometric(compiled):.2f}"
    )


if __name__ == "__main__":
    sys.exit(main())

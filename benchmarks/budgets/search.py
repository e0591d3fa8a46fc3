"""The search's work on candidates, on the processor and for GPUs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from tilewright import ops
from tilewright.autotune.model.base_model import SHIPPED, named
from tilewright.autotune.model.cost_model import CostModel
from tilewright.autotune.model.cpu.model import MODEL
from tilewright.autotune.model.profile import profile
from tilewright.autotune.model.target_model import model_for
from tilewright.autotune.search.candidates import Rowspace, decided
from tilewright.autotune.search.sketch import sketches
from tilewright.autotune.search.unmeasured import default_trace
from tilewright.base.errors import BuildError
from tilewright.codegen.build import compile_func
from tilewright.codegen.calling_convention import signature_of
from tilewright.codegen.cuda.generator import versions
from tilewright.codegen.cuda.kernels import emit as emit_cuda
from tilewright.codegen.detect import resolve
from tilewright.codegen.generator import Part
from tilewright.codegen.lower import lower
from tilewright.target import CudaTarget
from tilewright.tir.ir import Func

from .line import Line, Settings, median, with_children

ROWS = 20_000


def scoring(settings: Settings) -> Iterator[Line]:
    side = max(4, settings.size // 16)
    yield from _scoring("matmul", ops.matmul_func(settings.size, settings.size, settings.size))
    yield from _scoring("conv2d", ops.conv2d_func(1, side, side, side, side))


def _scoring(name: str, func: Func) -> Iterator[Line]:
    """A search's work on a candidate, over all sketches of a program, split by stage."""
    target, rng, clock = resolve("cpu"), np.random.default_rng(0), time.process_time
    base, count = named(SHIPPED, MODEL), 0
    stages = dict.fromkeys(("draw and check", "featurise", "score"), 0.0)
    for sketch in sketches(func, target):
        space = Rowspace(sketch)
        source = profile(sketch.func, sketch.space.bounds)
        model = CostModel(base=base)
        estimate = MODEL.estimator(source, target)
        width = 1 + len(sketch.variables)
        rows = space.sample(rng, 100)
        known = estimate(rows)
        columns = np.hstack([known.features, decided(0, rows, width)])
        model.fit(columns, known.seconds * rng.uniform(0.5, 2, len(rows)))
        times = [clock()]
        rows = space.sample(rng, ROWS)
        times.append(clock())
        features = np.hstack([estimate(rows).features, decided(0, rows, width)])
        times.append(clock())
        model.predict(features)
        times.append(clock())
        for stage, (began, ended) in zip(stages, pairwise(times), strict=True):
            stages[stage] += ended - began
        count += len(rows)
    each = {stage: seconds / max(count, 1) * 1e6 for stage, seconds in stages.items()}
    for stage, microseconds in each.items():
        yield Line(f"{stage} a candidate of {name}", None, microseconds, "us")
    yield Line(f"all of it ({count:,} candidates of {name})", 10, sum(each.values()), "us", "C")


CUDA = CudaTarget.named("sm_90a")


def gpu(settings: Settings) -> Iterator[Line]:
    """A search's work on a candidate, and builds of what is chosen without trials."""
    size, channels = settings.size, settings.size // 4
    matmul = ops.matmul_func(4 * size, 4 * size, 4 * size)
    conv2d = ops.conv2d_func(1, channels, 56, 56, channels)
    yield from _scoring_again("matmul", matmul)
    yield from _scoring_again("conv2d", conv2d)
    programs = {
        "matmul": matmul,
        "conv2d": conv2d,
        "softmax": ops.softmax_func(size, size),
        "row sums": ops.reduction_func("sum", size, size),
        "transposition": ops.transpose_func(size, size),
    }
    chosen = [default_trace(f, CUDA).apply(f).func for f in programs.values()]
    written = [median(partial(_cuda_text, f), settings.repeats) for f in chosen]
    what = f"lower {len(programs)} programs and write CUDA C++ (median)"
    yield Line(what, None, statistics.median(written) * 1e3, "ms", "Python")
    what = f"build {len(programs)} programs (median of processor seconds)"
    try:
        compiler = " ".join(*versions().items())
    except BuildError as error:
        yield Line(f"{what}: {str(error).splitlines()[0]}", 1.5, None, "s")
        return
    built = [with_children(partial(compile_func, f, CUDA)) for f in chosen]
    yield Line(f"{what}, {compiler}", 1.5, statistics.median(built), "s", "C")


def _cuda_text(func: Func) -> str:
    part = Part(lower(func, CUDA), signature_of(func))
    return emit_cuda([part], CUDA, strict_fp=False).text


def _scoring_again(name: str, func: Func) -> Iterator[Line]:
    """A search's work on a candidate of sketches for GPUs, whose spaces may be small.

    Children of the rows of each sketch are drawn and scored, as in rounds of a session, which meets
    most of them again. What is new takes longer, and all different rows are new once: a line of
    its own, and a part of the whole.
    """
    rng, clock = np.random.default_rng(0), time.process_time
    stages = dict.fromkeys(("draw and check", "featurise again", "score"), 0.0)
    made, different, first = sketches(func, CUDA), 0, 0.0
    for sketch in made:
        space = Rowspace(sketch)
        estimate = model_for(CUDA).estimator(profile(sketch.func, sketch.space.bounds), CUDA)
        model, width = CostModel(), 1 + len(sketch.variables)
        rows = space.sample(rng, ROWS)
        different += len(rows)
        began = clock()
        known = estimate(rows)
        first += clock() - began
        columns = np.hstack([known.features, decided(0, rows, width)])
        model.fit(columns, known.seconds * rng.uniform(0.5, 2, len(rows)))
        times = [clock()]
        space.mutate(rng, rows, ROWS)
        times.append(clock())
        again = rows[rng.integers(len(rows), size=ROWS)]
        features = np.hstack([estimate(again).features, decided(0, again, width)])
        times.append(clock())
        model.predict(features)
        times.append(clock())
        for stage, (start, end) in zip(stages, pairwise(times), strict=True):
            stages[stage] += end - start
    candidates = ROWS * len(made)
    each = {stage: seconds / candidates * 1e6 for stage, seconds in stages.items()}
    for stage, microseconds in each.items():
        yield Line(f"{stage} a candidate of {name} on a GPU", None, microseconds, "us")
    yield Line(f"featurise a new one, of {different:,}", None, first / different * 1e6, "us")
    what = f"all of it, {ROWS:,} candidates of each of {len(made)} sketches of {name} on a GPU"
    yield Line(what, 10, sum(each.values()) + first / candidates * 1e6, "us", "C")

"""The model of GPUs. No base model comes with it: none of their times is recorded yet.

The figures of a candidate on a GPU: registers, shared memory, and how many warps run.

What GPUs can build and launch, as `codegen/cuda/kernels.py` checks it of a program.

The least time that a program can take on a GPU: its roofline.

The larger of two times: that of its operations on floats at the rate of all SMs, a multiplication
and the addition of its product being one, and that of moving each argument once from or to memory
(Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ....base.errors import TuningError
from ....target import CudaTarget, Target
from ....target.cuda import WARP
from ....tir.ir import Buffer, Dim, ForKind, Func, ceildiv, product
from ...rules.common import nbytes
from ..profile import Profile, profile
from ..target_model import Features, Figure, Limit, Roofline, SampledFacts, TargetModel, shares
from .counts import operations_of, statement_of
from .estimate import FEATURES, VERSION, Estimator, multiplies
from .launches import Launch, launches_of
from .spans import Shapes

_NAMES: Mapping[str, type] = {"model": str, "sms": int, "l2_bytes": int}
"""What estimates rest on beside the architecture, which is in a target's text."""


class CudaFacts(SampledFacts):
    """The name of a device, its SMs and the bytes of its second level."""

    def of(self, target: Target) -> dict[str, Any]:
        gpu = CudaTarget.of(target)
        return {name: getattr(gpu, name) for name in _NAMES}

    def described(self, target: Target, facts: Mapping[str, Any]) -> CudaTarget:
        known = {name: x for name, x in facts.items() if name in _NAMES}
        for name, x in known.items():
            if type(x) is not _NAMES[name] or (isinstance(x, int) and x < 0):
                raise TuningError("expected facts of {0}: {1}={2!r:.80}", target, name, x)
        super().described(target, {n: x for n, x in facts.items() if n not in _NAMES})
        return replace(CudaTarget.of(target), **known)


def figures(features: Features, target: Target) -> tuple[Figure, ...]:
    """Of the launch that takes longest."""
    limits, share = CudaTarget.of(target).limits, shares(FEATURES, features)
    registers, shared = limits.thread_registers, limits.block_bytes
    return (
        Figure("registers", share["registers"] * registers, "a thread", registers),
        Figure("spilled", share["spilled"], "registers a thread"),
        Figure("shared memory", share["shared_bytes"] * shared, "bytes", shared),
        Figure("warps", share["warps"], "a block"),
        Figure("blocks of an SM", share["blocks_per_sm"], "blocks"),
        Figure("occupancy", share["occupancy"] * limits.sm_warps, "warps", limits.sm_warps),
        Figure("waves", share["waves"], "waves"),
    )


def limits(source: Profile, target: Target) -> Iterator[Limit]:
    allowed = CudaTarget.of(target).limits
    for visit in source.visits:
        for loop in visit.loops:
            if loop.kind is ForKind.PARALLEL:
                yield Limit("no loop is parallel, as those of processors are", False)
    for launch in launches_of(source):
        threads = product(launch.threads)
        yield Limit(
            "a block has no more threads than the device runs", threads <= allowed.block_threads
        )
        for unit, most in (("blockIdx", allowed.grid), ("threadIdx", allowed.block)):
            for axis, n in zip("xyz", most, strict=True):
                name = f"{unit}.{axis} has no more iterations than the device allows"
                yield Limit(name, launch.extents[f"{unit}.{axis}"] <= n)
        for size in _shared_bytes(launch):
            yield Limit("what a block shares fits its memory", size <= allowed.block_bytes)


def _shared_bytes(launch: Launch) -> list[Dim]:
    """The bytes of shared memory that are live in each statement of a launch."""
    shapes = Shapes(launch)
    order = {top: n for n, top in enumerate(dict.fromkeys(map(statement_of, launch.phases)))}
    live = {b: [order[statement_of(p)] for p, _ in shapes.uses[b]] for b in shapes.shared()}
    x, y, z = launch.threads
    collected = ceildiv(ceildiv(x, WARP) * y * z * 4, 16) * 16
    combined = [collected for phase in launch.phases if phase.collective]
    sizes = []
    for n in order.values():
        total = sum(combined, 0)
        for buffer, places in live.items():
            if min(places) <= n <= max(places):
                total = total + shapes.bytes(buffer)
        sizes.append(total)
    return sizes


def roofline(func: Func, target: Target) -> Roofline:
    """The roofline of a concrete program on a resolved target, which is a GPU."""
    gpu = CudaTarget.of(target)
    rates, sms = gpu.rates, gpu.sms or gpu.limits.sms
    cycles = 0.0
    for visit in profile(func).visits:
        count = float(np.prod([float(n) for n in visit.extents if isinstance(n, int)]))
        operations, functions = operations_of(visit.block.body)
        fused = visit.accumulates and multiplies(visit.block.body)
        rate = rates.float64 if visit.dtype == "float64" else rates.float32
        cycles += count * max((operations - fused) / rate, functions / rates.special)
    size = sum(nbytes(p) for p in func.params if isinstance(p, Buffer))
    return Roofline(cycles / (rates.hertz * sms), size / rates.memory)


MODEL = TargetModel(
    FEATURES, VERSION, Estimator, roofline, facts=CudaFacts(), figures=figures, limits=limits
)

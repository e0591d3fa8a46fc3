"""What GPUs can build and launch, as `codegen/cuda/emit.py` checks it of a program."""

from __future__ import annotations

from collections.abc import Iterator

from ....target import CudaTarget, Target
from ....target.cuda import WARP
from ....tir.ir import Dim, ForKind, ceildiv, product
from ..profile import Profile
from ..target_model import Limit
from .counts import statement_of
from .launches import Launch, launches_of
from .spans import Shapes


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

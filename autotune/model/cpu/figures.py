"""The figures of a candidate on a processor: registers, vectors, and what each cache holds."""

from __future__ import annotations

from ....target import CpuTarget, Target
from ..target_model import Features, Figure, shares
from .estimate import FEATURES


def figures(features: Features, target: Target) -> tuple[Figure, ...]:
    """Of the block that takes longest: its register tile, its vectors, and its working sets.

    Those are of an iteration of the loop above the straight code, which L1 should hold, and of an
    iteration of the outermost loop that is not parallel, for L2.
    """
    cpu, share = CpuTarget.of(target), shares(FEATURES, features)
    registers, width = cpu.vector_registers, cpu.vector_bits
    return (
        Figure("accumulators", share["accumulators"] * registers, "registers", registers),
        Figure("vectors", share["vectors"] * width, f"bits in registers of {width}"),
        Figure("unrolled", share["unrolled"], "copies"),
        Figure("register tile", share["tile_bytes"] * registers * width / 8, "bytes"),
        Figure("L1 working set", share["middle_bytes"] * cpu.l1_bytes, "bytes", cpu.l1_bytes),
        Figure("L2 working set", share["outer_bytes"] * cpu.l2_bytes, "bytes", cpu.l2_bytes),
        Figure("threads at work", share["balance"] * cpu.threads, "threads", cpu.threads),
    )

"""The figures of a candidate on a GPU: registers, shared memory, and how many warps run."""

from __future__ import annotations

from ....target import CudaTarget, Target
from ..target_model import Features, Figure, shares
from .estimate import FEATURES


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

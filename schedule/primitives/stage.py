"""Copies inside a loop: `read_at`, `write_at`."""

from __future__ import annotations

from ...tir.ir import Func, Label, Var
from ..find import find_block, find_loop, find_path
from ..primitive import primitive
from ..require import require
from .cached_copies import cache_read, cache_write
from .place import compute_at, reverse_compute_at


@primitive
def read_at(
    fn: Func, loop: Var, block: Label, read_buffer_index: int, storage_scope: str
) -> tuple[Func, Label]:
    """Let `block` read a copy of an input; each iteration of `loop` copies the part that it needs.

        for i:                                for i:
          for j: B[i, j] = A[i, j] * 2   ->     for ax0: A_local[i, ax0] = A[i, ax0]
                                                for j: B[i, j] = A_local[i, j] * 2

    This is `cache_read` and `compute_at` in one step. Returns the label of the copying block.
    """
    _require_inside(fn, loop, block)
    fn, copy = cache_read(fn, block, read_buffer_index, storage_scope)
    fn, _ = compute_at(fn, copy, loop)
    return fn, copy


@primitive
def write_at(
    fn: Func, loop: Var, block: Label, write_buffer_index: int, storage_scope: str
) -> tuple[Func, Label]:
    """Let `block` compute into an internal buffer, which each iteration of `loop` copies out.

        for i:                                for i:
          for j: B[i, j] = A[i, j] * 2   ->     for j: B_local[i, j] = A[i, j] * 2
                                                for ax0: B[i, ax0] = B_local[i, ax0]

    This is `cache_write` and `reverse_compute_at` in one step: each iteration of `loop` must finish
    what it computes. Returns the label of the copying block.
    """
    _require_inside(fn, loop, block)
    fn, copy = cache_write(fn, block, write_buffer_index, storage_scope)
    fn, _ = reverse_compute_at(fn, copy, loop)
    return fn, copy


def _require_inside(fn: Func, loop: Var, block: Label) -> None:
    find_block(fn, block)
    require(
        find_path(find_loop(fn, loop), block) is not None,
        "block {0} is not inside loop {1}",
        block.name,
        loop.name,
        at=block,
    )

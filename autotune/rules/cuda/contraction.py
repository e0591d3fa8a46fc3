"""Contractions: tiles of blocks and of threads, or a thread for each result."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence

from ....target.cuda import CudaTarget
from ....tir.ir import Block, Label
from ..access_patterns import extents, last_digits, reduced, spatial
from ..common import powers, sampled
from ..draft import Draft, Option
from ..rule import Group, Variant
from .block_tiles import VECTOR, decide_tile, schedule_product
from .by_thread import schedule_results
from .limits import device_limits
from .matmul_form import as_matmul, matmul_form

PART = 128
"""Steps of a part of a reduction, at least."""
MOST_PARTS = 64
FEW_RESULTS = 4096
"""Results of a multiprocessor, below which parts of the reduction are worth a second launch."""


def contraction_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """By tiles, where it is a product of matrices, or a thread for each result.

    Operands are copied in one stage or two. Where a device would have few tiles, these may be of
    parts of the reduction.
    """
    main, *following = group.members
    if matmul_form(main, *following) is not None:
        for split in (False, True) if _is_long(draft, main) else (False,):
            for stages in (1, 2):
                apply = functools.partial(
                    _schedule_tiled, labels=group.labels, split=split, stages=stages
                )
                options: dict[str, Option] = {"split": split, "stages": stages}
                chosen = {name: value for name, value in options.items() if value not in (False, 1)}
                name = "_".join(["tiled", *["split"] * split, *["pipelined"] * (stages > 1)])
                yield Variant.of(name, apply, tiled=True, **chosen)
    if spatial(main) and not last_digits(main):
        apply = functools.partial(schedule_results, labels=group.labels)
        yield Variant.of("by_thread", apply)
    yield Variant.of("default", default=True)


def _is_long(draft: Draft, main: Block) -> bool:
    """Whether tiles of the result are too few for the device, and the reduction is long."""
    sizes = extents(main)
    results = math.prod(sizes[v] for v in spatial(main))
    steps = math.prod(sizes[v] for v in reduced(main))
    return results < FEW_RESULTS * CudaTarget.of(draft.target).sms and steps >= 2 * PART


def _schedule_tiled(
    draft: Draft, labels: Sequence[Label], *, split: bool = False, stages: int = 1
) -> None:
    matmul = as_matmul(draft, labels, VECTOR)
    tile, parts = decide_tile(draft, matmul, stages), None
    if split:
        most = min(MOST_PARTS, matmul.sizes[-1] // PART)
        parts = sampled(draft.schedule, powers(most)[1:])
        grid = device_limits(draft).grid
        draft.limit("the parts fit a grid", parts * matmul.sizes[0] <= grid[2])
    schedule_product(draft, matmul, tile, parts)

"""Contractions: tiles of blocks and of threads, or a thread for each result."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from ....tir.ir import Label
from ..access_patterns import last_digits, spatial
from ..draft import Draft
from ..rule import Group, Variant
from .block_tiles import VECTOR, decide_tile, schedule_product
from .by_thread import schedule_results
from .matmul_form import as_matmul, matmul_form


def contraction_variants(_draft: Draft, group: Group) -> Iterator[Variant]:
    """By tiles, where it is a product of matrices, or a thread for each result."""
    main, *following = group.members
    if matmul_form(main, *following) is not None:
        apply = functools.partial(_schedule_tiled, labels=group.labels)
        yield Variant.of("tiled", apply, tiled=True)
    if spatial(main) and not last_digits(main):
        apply = functools.partial(schedule_results, labels=group.labels)
        yield Variant.of("by_thread", apply)
    yield Variant.of("default", default=True)


def _schedule_tiled(draft: Draft, labels: Sequence[Label]) -> None:
    matmul = as_matmul(draft, labels, VECTOR)
    schedule_product(draft, matmul, decide_tile(draft, matmul))

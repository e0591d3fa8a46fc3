"""What PyTorch writes in other operators before a program is translated, and what it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from .bags import bags_by_operators
from .table import TABLE

_DECOMPOSED = (
    "_addmm_activation.default",
    "dist.default",
    "rrelu_with_noise_backward.default",
    "tril_indices.default",
    "triu_indices.default",
)
"""Operators of core ATen that PyTorch can decompose too."""


def with_ours(decompositions: Mapping[Any, Any]) -> dict[Any, Any]:
    """PyTorch's decompositions with our own, and without those of operators that the table has."""
    import torch

    from . import operators  # noqa: F401  # registers all

    # Of an export this is a dictionary that has no elements before it is asked for its items.
    ours = dict(decompositions.items()) | bags_by_operators()
    for name in _DECOMPOSED:
        overload = attrgetter(name)(torch.ops.aten)
        ours[overload] = torch._decomp.decomposition_table[overload]
    return {o: d for o, d in ours.items() if str(o).removeprefix("aten.") not in TABLE}

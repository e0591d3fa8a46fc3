"""Bags of embeddings where gradients are asked for: by other operators of PyTorch.

PyTorch then calls an operator with more results, which its gradients read: the bag of each index,
the number of indices in each bag, and which index had the largest element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MEAN, LARGEST = 1, 2
"""Modes of bags; another is the sum."""


def bags_by_operators() -> dict[Any, Callable[..., Any]]:
    """Decompositions of bags with gradients, and of these gradients."""
    import torch

    aten = torch.ops.aten
    return {
        aten._embedding_bag.default: _bags,
        aten._embedding_bag_backward.default: _gradient,
        aten._embedding_bag_per_sample_weights_backward.default: _gradient_of_factors,
    }


def _bags(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """The bags, then of which bag each index is, how many each has, and its largest indices."""
    import torch

    found = torch.ops.aten._embedding_bag_forward_only(
        weight, indices, offsets, scale_grad_by_freq, mode, sparse,
        per_sample_weights, include_last_offset, padding_idx,
    )[0]  # fmt: skip
    starts, count = offsets[: found.shape[0]].long(), indices.shape[0]
    places = torch.arange(count)
    begun = starts.new_zeros(count + 1).index_add(0, starts, torch.ones_like(starts))
    bag = begun.cumsum(0)[:count] - 1
    kept = indices != padding_idx
    sizes = torch.zeros_like(starts).index_add(0, bag, kept.long())
    if mode != LARGEST or not count:
        return found, bag, sizes, torch.zeros_like(starts)
    rows, best = weight[indices], found[bag]
    largest = ((rows == best) | (rows.isnan() & best.isnan())) & kept[:, None]
    first = torch.where(largest, places[:, None], count - 1)
    ends = torch.full_like(found, count - 1, dtype=torch.long)
    first = ends.scatter_reduce(0, bag[:, None].expand_as(first), first, "amin")
    return found, bag, sizes, indices[first]


def _gradient(
    gradient: Any,
    indices: Any,
    _offsets: Any,
    bag: Any,
    sizes: Any,
    largest: Any,
    count: int,
    *options: Any,
) -> Any:
    """That of the table: each row is the sum of the gradients of the bags that it is in."""
    scale_grad_by_freq, mode, sparse, factors, *padding = options
    if sparse or scale_grad_by_freq:  # for which PyTorch takes the counts of other indices
        return NotImplemented
    zeros = gradient.new_zeros(count, gradient.shape[1])
    if not indices.shape[0] or not gradient.shape[0]:
        return zeros
    if mode == LARGEST:
        own = gradient.masked_fill((sizes == 0)[:, None], 0)
        return zeros.scatter_add(0, largest, own)
    if mode == MEAN:
        gradient = gradient / sizes.clamp(min=1)[:, None]
    rows = gradient[bag]
    if factors is not None:
        rows = rows * factors[:, None]
    left_out = indices == (padding[0] if padding else -1)
    return zeros.index_add(0, indices, rows.masked_fill(left_out[:, None], 0))


def _gradient_of_factors(
    gradient: Any,
    weight: Any,
    indices: Any,
    _offsets: Any,
    bag: Any,
    _mode: int,
    padding_idx: int = -1,
) -> Any:
    if not indices.shape[0]:
        return weight.new_zeros(0)
    found = (gradient[bag] * weight[indices]).sum(1)
    return found.masked_fill(indices == padding_idx, 0)

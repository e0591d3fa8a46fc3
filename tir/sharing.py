"""Strides that put more than one element of an array in one place."""

from __future__ import annotations

from collections.abc import Sequence

from . import affine

APART = "declare strides that keep its elements apart; what is only read may share memory"
"""The hint of an error about a written array."""


def may_share(shape: Sequence[int], strides: Sequence[int] | None) -> bool:
    """Whether two elements of an array have one place, or it takes too long to exclude it.

    They have if the places of two indices differ by nothing: `strides` times a difference in which
    not all is 0, and each part is smaller than its extent.
    """
    if strides is None or 0 in shape:
        return False
    dims = sorted((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1)
    reach = 0
    for step, extent in dims:
        if step <= reach:
            break
        reach += step * (extent - 1)
    else:
        return False  # each step is beyond all that the smaller ones reach
    names = [f"d{k}" for k in range(len(dims))]
    within = [f"{-n} < {d} < {n}" for d, (_, n) in zip(names, dims, strict=True)]
    place = " + ".join(f"{step} * {d}" for d, (step, _) in zip(names, dims, strict=True))
    some = " or ".join(f"{d} != 0" for d in names)
    return not affine.unsatisfiable(names, [*within, f"{place} = 0", f"({some})"])

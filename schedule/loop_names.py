"""Names of the loops that steps make, of the names of the program: for people alone.

Programs call the iteration variable of a loop `n` `vn`. What has no such name has a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from keyword import iskeyword

from ..tir.ir import Block

_LONGEST = 32
"""Characters of a name of joined names; of longer ones the first and the last remain."""
_FUSED = "_fused"


def iteration_names(block: Block) -> list[str | None]:
    """The names of the loops that a block was written for, `None` for those that have a number."""
    if not all(i.var.name.startswith("v") for i in block.iters):
        return [None] * len(block.iters)
    bare = [i.var.name[1:] for i in block.iters]
    return [name if name.isidentifier() and not iskeyword(name) else None for name in bare]


def loop_names(block: Block) -> list[str]:
    """Names of new loops, one for each iteration variable of a block."""
    return [name or f"ax{n}" for n, name in enumerate(iteration_names(block))]


def joined(names: Sequence[str]) -> str:
    """The name of what stands for several loops: `n_oc` of `n` and `oc`, each of them once."""
    parts = list(dict.fromkeys(name.removesuffix(_FUSED) for name in names))
    whole = "_".join(parts)
    return whole if len(whole) <= _LONGEST else f"{parts[0]}_to_{parts[-1]}"[:_LONGEST]


def fused_name(names: Sequence[str]) -> str:
    """The name of the loop that `fuse` makes of loops of these names."""
    return f"{joined(names)}{_FUSED}"


def mapped(block: Block, used: Sequence[Sequence[int]]) -> list[str]:
    """Names of new loops over maps of a block's iteration variables, each of these (numbers)."""
    given = iteration_names(block)
    parts = [[given[n] for n in numbers] for numbers in used]
    names = [
        joined([name for name in some if name is not None]) if some and all(some) else f"ax{k}"
        for k, some in enumerate(parts)
    ]
    return [
        f"{name}_{names[:k].count(name)}" if names.count(name) > 1 else name
        for k, name in enumerate(names)
    ]

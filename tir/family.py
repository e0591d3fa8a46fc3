"""The size-independent digest of a program: the same for one operator on any shapes.

It finds programs from which tuning results transfer. Programs of another structure, other dtypes or
another layout have another digest.
"""

from __future__ import annotations

import hashlib
import json
import math
from itertools import combinations
from typing import Any

from ..base import dtypes
from .constants import rounded
from .equality import Encoder
from .ir import Block, Buffer, Const, Dim, Func, IterKind
from .visit import walk

VERSION = "family 1"
INDEX = "int64"
"""The dtype of index arithmetic."""


def family_hash(func: Func) -> str:
    """A SHA-256, in hexadecimal: equal for programs that differ only in names and sizes.

    Sizes are the extents of loops, iterations and regions; shapes; the integers of index arithmetic
    except 0 (from padding, strides and windows); value ranges of indices; and floats that represent
    the length of a reduction: the length, its root, and their reciprocals.
    """
    encoder = _Blind(func)
    encoder.root(func)
    return hashlib.sha256("\n".join([VERSION, *encoder.out]).encode()).hexdigest()


class _Blind(Encoder):
    """Writes `size` where a number is one."""

    def __init__(self, func: Func) -> None:
        super().__init__(match_free=True)
        self.lengths = _lengths(func)

    def encode(self, node: Any) -> Any:
        if type(node) is not Const:
            return super().encode(node)
        self.const(node)
        return node

    def const(self, e: Const) -> None:
        if e.dtype == INDEX:
            self.out.append("const 0" if e.value == 0 else "const size")
        elif dtypes.info(e.dtype).kind == "float" and self._is_length(e):
            self.out.append(f"const {e.dtype} length")
        else:
            super().const(e)

    def dim(self, dim: Dim) -> None:
        if isinstance(dim, (int, Const)):
            self.out.append("0" if (dim if isinstance(dim, int) else dim.value) == 0 else "size")
        else:
            self.encode(dim)

    def declare(self, b: Buffer) -> None:
        self.out.append(f"buffer {len(b.shape)} {b.dtype} {json.dumps(b.scope)}")
        order = b.strides and sorted(range(len(b.strides)), key=b.strides.__getitem__)
        self.out.append(json.dumps([order, b.constant, b.value_range is not None]))
        self.out.append(json.dumps([b.align, b.swizzle]))
        for d in b.shape:
            self.dim(d)

    def _is_length(self, e: Const) -> bool:
        value = rounded(float(e.value), e.dtype)
        return any(
            value == rounded(form, e.dtype)
            for n in self.lengths
            for form in (float(n), 1 / n, math.sqrt(n), 1 / math.sqrt(n))
        )


def _lengths(func: Func) -> set[int]:
    """How many elements the reductions of a program add up, over any of their axes."""
    found: set[int] = set()
    for block in walk(func.body):
        if type(block) is not Block:
            continue
        extents = [i.extent for i in block.iters if i.kind is IterKind.REDUCE]
        known = [n for n in extents if isinstance(n, int) and n > 1]
        for count in range(1, len(known) + 1):
            found |= {math.prod(some) for some in combinations(known, count)}
    return found

"""The borders of numpy's `pad` as indices, each in the ways in which people write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.tir import te
from tilewright.tir.ir import Expr

Border = Callable[[Expr, int], Expr]
"""The index in a row of some elements, for one that may lie beyond its ends."""

BORDERS: Mapping[str, Mapping[str, Border]] = {
    "edge": {
        "least last": lambda e, n: te.minimum(te.maximum(e, 0), n - 1),
        "greatest last": lambda e, n: te.maximum(0, te.minimum(n - 1, e)),
        "clip": lambda e, n: te.clip(e, 0, n - 1),
        "conditions": lambda e, n: te.where(e < 0, 0, te.where(e >= n, n - 1, e)),
    },
    "reflect": {
        "conditions": lambda e, n: te.where(e < 0, -e, te.where(e >= n, 2 * (n - 1) - e, e)),
        "one condition": lambda e, n: te.where(
            (e < 0) | (e >= n), te.where(e < 0, -e, 2 * (n - 1) - e), e
        ),
        "absolute values": lambda e, n: n - 1 - te.abs(n - 1 - te.abs(e)),
        "absolute value and least": lambda e, n: te.minimum(te.abs(e), 2 * (n - 1) - te.abs(e)),
        "extrema": lambda e, n: te.maximum(-e, te.minimum(e, 2 * (n - 1) - e)),
        "triangles": lambda e, n: n - 1 - te.abs((e + 2 * (n - 1)) % (2 * (n - 1)) - (n - 1)),
    },
    "symmetric": {
        "conditions": lambda e, n: te.where(e < 0, -1 - e, te.where(e > n - 1, 2 * n - 1 - e, e)),
        "extrema": lambda e, n: te.minimum(te.maximum(e, -1 - e), 2 * n - 1 - e),
    },
    "wrap": {
        "remainder": lambda e, n: (e + n) % n,
        "conditions": lambda e, n: te.where((e >= 0) & (e < n), e, te.where(e < 0, e + n, e - n)),
    },
}
SPELLINGS = [(mode, spelling) for mode, spellings in BORDERS.items() for spelling in spellings]


def reach(mode: str, n: int) -> int:
    """How far an index may lie beyond the ends of a row of `n` elements."""
    return {"edge": 4, "reflect": n - 1, "symmetric": n, "wrap": n}[mode]

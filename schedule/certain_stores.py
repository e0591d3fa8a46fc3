"""Stores that a visit of a block makes for certain, under no condition in its body."""

from __future__ import annotations

from collections.abc import Mapping

from ..tir.ir import Block, Dim, Expr, For, If, Range, Region, Stmt, Store, Var
from ..tir.visit import nested, substitute
from .block_queries import domain, free_vars, reads_data
from .distinct import gapless
from .facts import last
from .require import certain


def always_writes(block: Block, region: Region) -> bool:
    """Whether a visit of a block, the first one of a reduction, stores to all of a region.

    It does not where the store is under a condition in the body, or in a loop that leaves gaps.
    """
    ranges = domain(block.iters)

    def fills(s: Store, loops: Mapping[Var, Dim], values: Mapping[Var, Expr]) -> bool:
        own = {**ranges, **{v: (0, last(n)) for v, n in loops.items()}}
        moved = set(loops)
        for r, e in zip(region.ranges, s.indices, strict=True):
            if certain(r.extent == 1):
                continue
            place = substitute(e, values)
            swept = gapless(Range(place, 1), loops, own)
            mine = free_vars(place) & loops.keys()
            if swept is None or not mine <= moved or not certain(swept.extent == r.extent):
                return False
            moved -= mine
        return True

    def visit(s: Stmt, loops: Mapping[Var, Dim], values: Mapping[Var, Expr]) -> bool:
        match s:
            case Store():
                return s.buffer is region.buffer and s.mask is None and fills(s, loops, values)
            case If():
                if s.other is None or reads_data(s.cond):  # no check can follow data
                    return False
                return all(visit(b, loops, values) for b in (s.then, s.other))
            case For():
                more = {**loops, s.var: s.extent}
                return certain(s.extent >= 1) and visit(s.body, more, values)
            case Block():
                inner = {**values, **{i.var: substitute(i.value, values) for i in s.iters}}
                parts = [p for p in (s.body, s.init) if p is not None]
                return s.predicate is None and any(visit(p, loops, inner) for p in parts)
            case _:
                return any(visit(b, loops, values) for b in nested(s))

    return any(visit(p, {}, {}) for p in (block.body, block.init) if p is not None)

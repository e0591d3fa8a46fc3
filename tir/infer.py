"""Infer the regions of blocks whose text does not declare them."""

from __future__ import annotations

from collections.abc import Sequence

from .equality import structural_equal
from .ir import (
    Alloc,
    Block,
    Dim,
    Expr,
    For,
    Iter,
    Let,
    Load,
    Range,
    Region,
    Seq,
    Stmt,
    Store,
    Var,
    as_expr,
    const,
)
from .regions import access_regions
from .visit import walk

Regions = tuple[Region, ...]


def element_regions(body: Stmt, init: Stmt | None) -> tuple[Regions, Regions] | None:
    """(reads, writes) of a body without loops or blocks: one region per distinct access, in order.

    An index that is read from a buffer, or bound in the body, covers the whole dimension. `None` if
    the body has loops or blocks. Program text relies on this rule: it is frozen.
    """
    nodes = [*walk(body), *(() if init is None else walk(init))]
    if any(isinstance(n, (Alloc, Block, For)) for n in nodes):
        return None
    local = {n.var for n in nodes if type(n) is Let}
    reads = _distinct([n for n in nodes if type(n) is Load], local)
    return reads, _distinct([n for n in nodes if type(n) is Store], local)


def infer_regions(
    iters: tuple[Iter, ...], body: Stmt, init: Stmt | None
) -> tuple[Regions, Regions]:
    """(reads, writes) of a block: of each access, or the hull per buffer where there are loops."""
    simple = element_regions(body, init)
    if simple is not None:
        return simple
    whole = body if init is None else Seq((body, init))
    ranges: dict[Var, tuple[Dim, Dim]] = {i.var: (0, i.extent - 1) for i in iters}
    return access_regions(whole, ranges=ranges)


def same_regions(a: Regions, b: Regions) -> bool:
    """Whether two lists of regions over the same variables are equal."""
    return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))


def _distinct(accesses: Sequence[Load | Store], local: set[Var]) -> Regions:
    regions: list[Region] = []
    for access in accesses:
        ranges = tuple(
            [_range(i, d, local) for i, d in zip(access.indices, access.buffer.shape, strict=False)]
        )
        region = Region(access.buffer, ranges)
        if not any(_same(region, r) for r in regions):
            regions.append(region)
    return tuple(regions)


def _range(index: Expr, dim: Dim, local: set[Var]) -> Range:
    if any(type(n) is Load or n in local for n in walk(index)):
        return Range(const(0), dim)
    return Range(index, 1)


def _same(a: Region, b: Region) -> bool:
    if a.buffer is not b.buffer or len(a.ranges) != len(b.ranges):
        return False
    return all(
        structural_equal(x.min, y.min) and structural_equal(as_expr(x.extent), as_expr(y.extent))
        for x, y in zip(a.ranges, b.ranges, strict=True)
    )

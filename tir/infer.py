"""Infer the regions of blocks whose text does not declare them."""

from __future__ import annotations

from collections.abc import Sequence

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
from .structure import key_of
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
    return list(map(region_key, a)) == list(map(region_key, b))


def _distinct(accesses: Sequence[Load | Store], local: set[Var]) -> Regions:
    regions: dict[object, Region] = {}
    for n in accesses:
        pairs = zip(n.indices, n.buffer.shape, strict=False)
        region = Region(n.buffer, tuple([_range(i, d, local) for i, d in pairs]))
        regions.setdefault(region_key(region), region)
    return tuple(regions.values())


def _range(index: Expr, dim: Dim, local: set[Var]) -> Range:
    if any(type(n) is Load or n in local for n in walk(index)):
        return Range(const(0), dim)
    return Range(index, 1)


def region_key(r: Region) -> object:
    """A key, equal for regions of one structure."""
    return r.buffer, tuple([(key_of(x.min), key_of(as_expr(x.extent))) for x in r.ranges])

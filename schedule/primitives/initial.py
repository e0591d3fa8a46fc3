"""Merging an init into its reduction: `merge_reduction`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as _replace
from itertools import permutations, takewhile
from typing import NamedTuple

from ...tir.ir import (
    Block,
    Buffer,
    Expr,
    For,
    Func,
    Iter,
    IterKind,
    Label,
    Op,
    Seq,
    Stmt,
    Store,
    Var,
    binary,
    const,
)
from ...tir.regions import infer_regions
from ...tir.structure import same
from ...tir.visit import substitute
from ..available import require_still_concurrent, within
from ..block_queries import (
    Ranges,
    feeding,
    has_reduction,
    loop_ranges,
    region_buffers,
    without_block,
)
from ..find import blocks_in, find_block, path_to, replace
from ..legality import require_visited_once
from ..loop_dependence import Finding, served, uses_of
from ..places import place_of
from ..primitive import primitive
from ..reduction_blocks import without_conditions
from ..require import certain, require
from ..written import written_box


@primitive
def merge_reduction(fn: Func, init: Label, block: Label) -> tuple[Func, None]:
    """Merge the block `init` into the reduction that starts from its values.

        for i: C[i] = 0                            for i, k:
        for i, k: C[i] = C[i] + A[i, k]     ->       with init: C[i] = 0
                                                     C[i] = C[i] + A[i, k]

    The inverse of `decompose_reduction`, and for programs that were written in this form. Both
    blocks store to the same elements of one buffer, at plain iteration variables and without
    predicates. No statement in between may touch these elements or change what `init` reads. The
    reduction must visit each element first with all its reduce variables at zero. The handle
    `block` stays with it.
    """
    first, guarded = find_block(fn, init), find_block(fn, block)
    # A condition in the body leaves out terms. The init runs for all elements.
    update = _replace(guarded, body=without_conditions(guarded.body)[1])
    mapping = _matched(first, update)
    assert isinstance(first.body, Store)
    buffer = first.body.buffer
    nests = _nests_of(replace(fn, guarded, update), first, update)
    _require_from_zero(first, update, nests)
    _require_same_elements(first, update, buffer, nests)
    _require_undisturbed(first, update, buffer, nests)
    start = substitute(first.body, mapping)
    reads, writes = infer_regions(guarded.iters, guarded.body, start)
    fn = replace(fn, guarded, _replace(guarded, init=start, reads=reads, writes=writes))
    fn = without_block(fn, init)
    require_still_concurrent(fn, (block,))
    return fn, None


def _matched(first: Block, update: Block) -> dict[Var, Expr]:
    """The iteration variables of `first`, as those of `update` that index the same element."""
    require(
        has_reduction(update) and all(i.kind is not IterKind.OPAQUE for i in update.iters),
        "block {0} must be a reduction, of spatial and reduce iterations",
        update.label,
    )
    require(update.init is None, "block {0} has an init already", update.label)
    require(
        first.init is None and all(i.kind is IterKind.SPATIAL for i in first.iters),
        "block {0} must be spatial, and store what a reduction starts from in its body",
        first.label,
    )
    start, sum_ = _store_of(first), _store_of(update)
    buffer = start.buffer
    require(
        sum_.buffer is buffer,
        "block {0} stores to {1}, block {2} to {3}; expected the same buffer",
        first.label,
        buffer.name,
        update.label.name,
        sum_.buffer.name,
    )
    require(
        buffer not in region_buffers(first.reads),
        "block {0} reads {1}, which it writes",
        first.label,
        buffer.name,
    )
    place_of(update, buffer)
    mapping: dict[Var, Expr] = {i.var: const(0) for i in first.iters}  # of those of one value
    mine, its = _plain(first, start.indices), _plain(update, sum_.indices)
    for e, f, i, j in zip(start.indices, sum_.indices, mine, its, strict=True):
        if i is None or j is None:
            require(
                same(e, f),
                "block {0} stores to {1} at index {2} and block {3} at index {4}",
                first.label,
                buffer.name,
                e,
                update.label.name,
                f,
            )
            continue
        require(
            i.extent == j.extent,
            "{0} of block {1} has {2} values and {3} of block {4} has {5}; expected as many",
            i.var.name,
            first.label,
            i.extent,
            j.var.name,
            update.label.name,
            j.extent,
        )
        mapping[i.var] = j.var
    return mapping


def _store_of(block: Block) -> Store:
    body = block.body
    require(type(body) is Store, "block {0} must store one value", block.label)
    assert isinstance(body, Store)
    return body


def _plain(block: Block, indices: Sequence[Expr]) -> list[Iter | None]:
    """The spatial iterations by index, `None` if it is none: all that take several values."""
    spatial = {i.var: i for i in block.iters if i.kind is IterKind.SPATIAL}
    found = [spatial.pop(e, None) if type(e) is Var else None for e in indices]
    require(
        all(certain(i.extent == 1) for i in spatial.values()),
        "block {0} must store at its plain iteration variables; {1} is none of its indices",
        block.label,
        lambda: ", ".join(v.name for v in spatial),
    )
    return found


class _Nests(NamedTuple):
    """Where two blocks are: the loops around both, those of each alone, and in the statements
    `parent` those from the one that has the first to the one that has the second.
    """

    shared: tuple[For, ...]
    of_first: tuple[For, ...]
    of_update: tuple[For, ...]
    parent: Seq
    span: tuple[Stmt, ...]

    @property
    def ranges(self) -> Ranges:
        return loop_ranges((*self.shared, *self.of_first, *self.of_update))


def _nests_of(fn: Func, first: Block, update: Block) -> _Nests:
    paths = [path_to(fn, b.label) for b in (first, update)]
    level = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(*paths, strict=False)))
    parent = paths[0][level - 1]
    start, end = (
        (n for p in paths for n, s in enumerate(parent.stmts) if s is p[level])
        if type(parent) is Seq
        else (0, 0)
    )
    require(
        start < end,
        "block {0} is not in a statement before the one with block {1}",
        first.label,
        update.label.name,
    )
    assert isinstance(parent, Seq)
    for block, path in zip((first, update), paths, strict=True):
        require(
            block.predicate is None and all(type(s) in (For, Seq) for s in path[level:-1]),
            "block {0} runs under a condition in its loops",
            block.label,
            hint="loop_partition cuts a loop where a guard fails",
        )
    shared, *own = (
        tuple([s for s in stmts if type(s) is For])
        for stmts in (paths[0][:level], *(p[level:] for p in paths))
    )
    return _Nests(shared, own[0], own[1], parent, parent.stmts[start : end + 1])


def _require_from_zero(first: Block, update: Block, nests: _Nests) -> None:
    """Require that `update` visits each element once with each value of its reduce variables, all
    of them zero first, in one iteration of the loops around both blocks.
    """
    spatial, reduce = feeding(update, IterKind.SPATIAL), feeding(update, IterKind.REDUCE)
    for s in nests.shared:
        require(
            s.var not in reduce,
            "loop {0} of the reduction is around block {1} too, which starts it again",
            s.var,
            first.label.name,
        )
    for s in nests.of_update:
        require(
            s.var not in reduce & spatial,
            "loop {0} is part of both the reduction and the elements",
            s.var,
        )
    require_visited_once(update, nests.of_update, nests.ranges)
    for s in (*nests.of_first, *nests.of_update):
        require(
            s.var in spatial | feeding(first) or s.extent >= 1,
            "loop {0} has no iteration: what is in it never runs",
            s.var,
        )
    start = {s.var: const(0) for s in nests.of_update if s.var in reduce}
    for i in update.iters:
        if i.kind is IterKind.REDUCE:
            require(
                binary(Op.EQ, substitute(i.value, start), const(0)),
                "the first value of {0} in block {1} is {2}; it must be 0, where an init runs",
                i.var.name,
                update.label,
                lambda i=i: substitute(i.value, start),
            )


def _require_same_elements(first: Block, update: Block, buffer: Buffer, nests: _Nests) -> None:
    """Require that the blocks store to the same elements, in one iteration of the loops around."""
    boxes = [
        written_box(b, buffer, {s.var: s.extent for s in loops}, nests.ranges)
        for b, loops in ((first, nests.of_first), (update, nests.of_update))
    ]
    uses = [[u for u in uses_of(b, buffer, nests.parent) if u.writes] for b in (first, update)]
    for (a, mine, box), (b, its, around) in permutations(
        zip((first, update), uses, boxes, strict=True)
    ):
        found = Finding(
            box is not None and around is not None and within(box, around, buffer, nests.ranges)
        )
        if not found.apart:
            found = served(mine, its, nests.shared)
        require(
            found.apart,
            "block {0} may store to elements of {1} that block {2} does not",
            a.label,
            buffer.name,
            b.label.name,
        )


def _require_undisturbed(first: Block, update: Block, buffer: Buffer, nests: _Nests) -> None:
    """Require that starting later does not affect statements in between or next to them."""
    needed = region_buffers(first.reads)
    for b in (b for s in nests.span for b in blocks_in(s) if b is not first and b is not update):
        require(
            buffer not in region_buffers((*b.reads, *b.writes)),
            "block {0} uses {1} where block {2} starts from it",
            b.label,
            buffer.name,
            update.label.name,
            hint="fission puts it behind the nest of the reduction",
        )
        written = region_buffers(b.writes) & needed
        require(
            not written,
            "block {0} writes {1}, which block {2} reads",
            b.label,
            lambda w=written: ", ".join(sorted(x.name for x in w)),
            first.label.name,
        )

"""Which blocks are inlined, which are scheduled together, and which variables count as one.

Spatial blocks that cost little are computed where they are read. What is left is taken apart into
groups, each with an anchor: a contraction with the spatial block that follows it, a chain that
shares its rows (softmax, layer_norm), a spatial block alone.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ...errors import ScheduleError
from ...schedule.blocks import has_reduction, region_buffers
from ...schedule.find import find_block
from ...tir.ir import Block, Func, Label, Var
from ..sketch import Draft
from ..structure import (
    consumers,
    divides,
    extents,
    has_guard,
    in_order,
    inputs_of,
    is_expensive,
    is_injective,
    is_near,
    is_ordered,
    reuses,
    vector_choices,
)
from .contraction import contraction_variants
from .dot_product import dot_variants
from .elementwise import elementwise_variants
from .flash_attention import key_variants
from .fused_attention import band_variants, find_band
from .joining import join
from .online import online_variants
from .ordered import ordered_variants
from .rows import row_dimensions, rows_variants
from .tile_unit import matrix_variants
from .variant import Variant


def groups(draft: Draft, kept: Collection[Label] = ()) -> tuple[Draft, list[list[list[Variant]]]]:
    """The prepared draft, and ways to part its program: the variants of each group of blocks.

    It is prepared by inlining, telling apart what a product reads of one buffer, and joining
    variables. Groups that make a band are one group in the first way. The blocks `kept` are left to
    the caller.
    """
    draft = _inline(draft.copy(), kept)
    draft, views = _tell_apart(draft, kept)
    taken = {*kept, *(copy for copies in views.values() for copy in copies)}
    parts: list[list[Label]] = []
    for block in reversed(in_order(draft.func)):
        if block.label not in taken:
            parts.append([m.label for m in _members(draft.func, block, taken)])
            taken |= set(parts[-1])
    draft = _join(draft, parts)
    members = [[draft.block(label) for label in labels] for labels in parts]
    single = [_with_views(_variants(draft, blocks), blocks, views) for blocks in members]
    banded = _banded(draft, members, single, views)
    return draft, [single] if banded is None else [banded, single]


Views = Mapping[Label, Sequence[Label]]
"""The copies that stand for what a block reads of one buffer at several places."""


def _with_views(variants: list[Variant], members: Sequence[Block], views: Views) -> list[Variant]:
    """Variants that end with computing the views of their members inline.

    Other groups come after that: tiles of what they compute are no longer known to be whole.
    """
    own = [view for b in members for view in views.get(b.label, ())]

    def inline_views(draft: Draft) -> None:
        for view in own:
            draft.schedule.compute_inline(view)

    return [replace(v, steps=(*v.steps, inline_views)) for v in variants] if own else variants


def _tell_apart(draft: Draft, kept: Collection[Label]) -> tuple[Draft, dict[Label, list[Label]]]:
    """The draft with inputs told apart of each block that is a contraction then; their copies."""
    views: dict[Label, list[Label]] = {}
    for block in in_order(draft.func):
        if block.label in kept or not has_reduction(block) or _is_contraction(block):
            continue
        for index in range(len(inputs_of(block))):
            trial = draft.copy()
            try:
                copies = trial.schedule.distinguish_reads(trial.handle(block.label), index)
            except ScheduleError:
                continue
            if _is_contraction(trial.block(block.label)):
                draft = trial
                views[block.label] = list(copies)
                break
    return draft, views


def _banded(
    draft: Draft, members: list[list[Block]], apart: list[list[Variant]], views: Views
) -> list[list[Variant]] | None:
    """The variants with those of a band in the place of its groups, where there is one."""
    contractions = [
        blocks[0] for blocks in members if len(blocks) == 1 and _is_contraction(blocks[0])
    ]
    for blocks in members:
        if _is_contraction(blocks[0]) or not any(has_reduction(b) for b in blocks):
            continue
        band = find_band(draft.func, blocks, contractions)
        if band is not None:
            labels = {b.label for b in band.members}
            rest = [v for b, v in zip(members, apart, strict=True) if b[0].label not in labels]
            variants = [*key_variants(draft, band), *band_variants(band)]
            return [_with_views(variants, band.members, views), *rest]
    return None


def _join(draft: Draft, parts: list[list[Label]]) -> Draft:
    """The draft with the variables of contractions joined."""
    before = draft.func
    for labels in parts:
        members = [find_block(before, label) for label in labels]
        if not _is_contraction(members[0]):
            continue
        # What instructions that add up products are given is padded, which asks for plain indices.
        if any(any(variants(draft, members)) for variants in (matrix_variants, dot_variants)):
            continue
        trial = draft.copy()
        try:
            join(trial.schedule, [trial.handle(label) for label in labels])
        except ScheduleError:
            continue
        if trial.func is not draft.func:
            draft = trial
    return draft


def _inline(draft: Draft, kept: Collection[Label]) -> Draft:
    """The draft with the blocks inlined that cost little where they are read."""
    for block in in_order(draft.func):
        readers = consumers(draft.func, block)
        if block.label in kept:
            continue
        if not (readers and is_injective(block) and _worth_inlining(block, readers)):
            continue
        trial = draft.copy()
        try:
            trial.schedule.compute_inline(trial.handle(block.label))
        except ScheduleError:
            continue
        draft = trial
    return draft


def _worth_inlining(block: Block, readers: list[Block]) -> bool:
    """Whether computing an element at each place where it is read costs little."""
    again = any(has_reduction(r) and reuses(r) for r in readers)
    if again and (has_guard(block) or is_expensive(block) or divides(block)):
        return False
    return not (is_expensive(block) and (len(readers) > 1 or any(map(has_reduction, readers))))


def _members(func: Func, block: Block, taken: set[Label]) -> list[Block]:
    """The group that a block is the last of, in program order."""
    if is_injective(block):
        free = {b.label: b for b in in_order(func) if b.label not in taken}
        reads = region_buffers(block.reads)
        producers = [b for b in free.values() if reads & region_buffers(b.writes)]
        for p in producers:
            if _is_contraction(p) and [c.label for c in consumers(func, p)] == [block.label]:
                return [p, block]
        chain = _chain(func, block, list(free.values()))
        if any(has_reduction(b) for b in chain):
            return chain
    return [block]


def _is_contraction(block: Block) -> bool:
    if not has_reduction(block):
        return False
    choices = vector_choices(block)
    if not choices:
        return False
    inputs = inputs_of(block)
    near = any(is_near(i, v) for i in inputs for v in choices)
    sizes = extents(block)
    wide = {i.var for i in block.iters if i.kind.value == "spatial" and sizes.get(i.var, 2) > 1}
    missing = sum(1 for i in inputs if wide - i.used)
    return near or missing >= 2


def _chain(func: Func, last: Block, free: list[Block]) -> list[Block]:
    """The blocks whose results reach `last` alone, row by row."""
    count = row_dimensions(func, last)
    if count is None:
        return [last]
    chain = [last]
    rows = {last.label: [i.var for i in last.iters][:count]}
    for b in reversed(free):
        readers = consumers(func, b)
        if (
            b.label not in rows
            and readers
            and all(r.label in rows for r in readers)
            and not (has_reduction(b) and _is_contraction(b))
            and region_buffers(b.writes) <= set(func.allocs)
            and (own := _rows_read(b, readers, rows)) is not None
        ):
            chain.append(b)
            rows[b.label] = own
    return chain[::-1]


def _rows_read(
    block: Block, readers: list[Block], rows: Mapping[Label, list[Var]]
) -> list[Var] | None:
    """The variables of a block for rows, each of which is read in one row alone, if there are."""
    found: list[Var] = []
    (write, *others) = block.writes
    for reader in readers:
        for region in reader.reads:
            if region.buffer is not write.buffer:
                continue
            indices = [r.min for r in region.ranges]
            at = [
                next((d for d, e in enumerate(indices) if e is v), None) for v in rows[reader.label]
            ]
            places = [write.ranges[d].min for d in at if d is not None]
            own = [e for e in places if type(e) is Var]
            if len(own) < len(at) or (found and any(map(operator.is_not, own, found))):
                return None
            found = own
    return None if others else found


def _variants(draft: Draft, members: list[Block]) -> list[Variant]:
    anchor = members[0] if _is_contraction(members[0]) else members[-1]
    if is_ordered(anchor):
        return list(ordered_variants(draft, members))
    if _is_contraction(anchor):
        return [
            *matrix_variants(draft, members),
            *dot_variants(draft, members),
            *contraction_variants(draft, members),
        ]
    if any(has_reduction(m) for m in members):
        return [*online_variants(draft, members), *rows_variants(draft, members)]
    return list(elementwise_variants(draft, members[-1]))

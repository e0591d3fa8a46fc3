"""Which blocks are inlined, which are scheduled together, and which variables count as one.

Spatial blocks that cost little are computed where they are read. What is left is taken apart into
groups, each with an anchor: a contraction with the spatial block that follows it, a chain that
shares its rows (softmax, layer_norm), a spatial block alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ...errors import ScheduleError
from ...schedule import Schedule
from ...schedule.blocks import has_reduction, region_buffers
from ...schedule.find import find_block
from ...schedule.primitives.distinguish import distinguish_reads
from ...schedule.primitives.inline import compute_inline
from ...target import Target
from ...tir.ir import Block, Func, Label, Var
from ..sketch import Draft, Rule
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
from .bands import band_variants, find_band
from .contraction import contraction_variants
from .dot import dot_variants
from .elementwise import elementwise_variants
from .joining import join
from .keys import key_variants
from .matrix import matrix_variants
from .online import online_variants
from .ordered import ordered_variants
from .rows import row_dimensions, rows_variants


@dataclass(frozen=True)
class Variant:
    """One way to schedule a group, by rules in turn. Variants that begin alike share the first."""

    name: str
    rules: tuple[Rule, ...]


def groups(
    func: Func,
    target: Target,
    names: Mapping[Label, int],
    taken: Collection[Label] = (),
) -> tuple[Callable[[Draft], None], list[list[list[Variant]]]]:
    """The step that prepares a program, and ways to part it: the variants of each group of blocks.

    It inlines, tells apart what a product reads of one buffer, and joins variables. Groups that
    make a band are one group in the first way. `names` are the numbers of blocks (`Draft.block`);
    those of `taken` are left to the caller.
    """
    inlined, left = _inline(func, taken)
    apart, views, left = _tell_apart(left, taken)
    taken = {*taken, *views}
    found: list[list[Label]] = []
    for block in reversed(in_order(left)):
        if block.label not in taken:
            found.append([m.label for m in _members(left, block, taken)])
            taken |= set(found[-1])
    joined, left = _join(left, found, target)

    def prepare(draft: Draft) -> None:
        sch = draft.schedule
        for label in inlined:
            sch.compute_inline(draft.block(names[label]))
        for label, index in apart:
            draft.views[names[label]] = sch.distinguish_reads(draft.block(names[label]), index)
        for labels in joined:
            join(sch, [draft.block(names[label]) for label in labels])

    members = [[find_block(left, label) for label in labels] for labels in found]
    positions = [[names[b.label] for b in blocks] for blocks in members]
    told = {names[label] for label, _ in apart}
    single = [
        _with_views(_variants(left, blocks, ns, target), [n for n in ns if n in told])
        for blocks, ns in zip(members, positions, strict=True)
    ]
    banded = _banded(left, members, single, names, told, target)
    return prepare, [single] if banded is None else [banded, single]


def _with_views(variants: list[Variant], told: Collection[int]) -> list[Variant]:
    """Variants that end with computing inline what was told apart for the blocks `told`.

    Other groups come after that: tiles of what they compute are no longer known to be whole.
    """

    def inline_views(draft: Draft) -> None:
        for number in told:
            for view in draft.views[number]:
                draft.schedule.compute_inline(view)

    return [Variant(v.name, (*v.rules, inline_views)) for v in variants] if told else variants


def _tell_apart(
    func: Func, kept: Collection[Label]
) -> tuple[list[tuple[Label, int]], list[Label], Func]:
    """Inputs to tell apart, each of a block that is a contraction then; the copies; the program."""
    done: list[tuple[Label, int]] = []
    views: list[Label] = []
    for block in in_order(func):
        if block.label in kept or not has_reduction(block) or _is_contraction(block):
            continue
        for index in range(len(inputs_of(block))):
            try:
                trial, copies = distinguish_reads(func, block.label, index)
            except ScheduleError:
                continue
            if _is_contraction(find_block(trial, block.label)):
                func = trial
                views += copies
                done.append((block.label, index))
                break
    return done, views, func


def _banded(
    func: Func,
    members: list[list[Block]],
    apart: list[list[Variant]],
    names: Mapping[Label, int],
    told: Collection[int],
    target: Target,
) -> list[list[Variant]] | None:
    """The variants with those of a band in the place of its groups, where there is one."""
    contractions = [
        blocks[0] for blocks in members if len(blocks) == 1 and _is_contraction(blocks[0])
    ]
    for blocks in members:
        if _is_contraction(blocks[0]) or not any(has_reduction(b) for b in blocks):
            continue
        band = find_band(func, blocks, contractions)
        if band is not None:
            labels = {b.label for b in band.members}
            rest = [v for b, v in zip(members, apart, strict=True) if b[0].label not in labels]
            positions = [names[b.label] for b in band.members]
            made = [*key_variants(func, band, positions, target), *band_variants(band, positions)]
            variants = [Variant(name, (rule,)) for name, rule in made]
            return [_with_views(variants, [n for n in positions if n in told]), *rest]
    return None


def _join(func: Func, found: list[list[Label]], target: Target) -> tuple[list[list[Label]], Func]:
    """The groups whose variables are joined, and the program with those joined."""
    sch = Schedule(func)
    names = {b.label: n for n, b in enumerate(in_order(func))}
    done: list[list[Label]] = []
    for labels in found:
        members = [find_block(func, label) for label in labels]
        if not _is_contraction(members[0]):
            continue
        # What instructions that add up products are given is padded, which asks for plain indices.
        if any(any(made(members, [], target)) for made in (matrix_variants, dot_variants)):
            continue
        trial = sch.copy()
        try:
            join(trial, [trial.get_block(names[label]) for label in labels])
        except ScheduleError:
            continue
        if trial.func is not sch.func:
            sch = trial
            done.append(labels)
    return done, sch.func


def _inline(func: Func, kept: Collection[Label]) -> tuple[list[Label], Func]:
    """The blocks to inline, and the program without them."""
    done: list[Label] = []
    for block in in_order(func):
        readers = consumers(func, block)
        if block.label in kept:
            continue
        if not (readers and is_injective(block) and _worth_inlining(block, readers)):
            continue
        try:
            func, _ = compute_inline(func, block.label)
        except ScheduleError:
            continue
        done.append(block.label)
    return done, func


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


def _variants(
    func: Func, members: list[Block], positions: list[int], target: Target
) -> list[Variant]:
    anchor = members[0] if _is_contraction(members[0]) else members[-1]
    if is_ordered(anchor):
        return [Variant(name, (rule,)) for name, rule in ordered_variants(positions[-1], target)]
    if _is_contraction(anchor):
        tiles = matrix_variants(members, positions, target)
        dots = dot_variants(members, positions, target)
        return [
            *(Variant(name, (rule,)) for name, rule in (*tiles, *dots)),
            *(Variant(*made) for made in contraction_variants(members, positions, target)),
        ]
    if any(has_reduction(m) for m in members):
        made = [
            *online_variants(func, members, positions, target),
            *rows_variants(func, members, positions, target),
        ]
    else:
        made = [*elementwise_variants(func, members[-1], positions[-1], target)]
    return [Variant(name, (rule,)) for name, rule in made]

"""Which blocks are inlined, which are scheduled together, and which variables count as one.

Spatial blocks that cost little are computed where they are read. What is left is taken apart into
groups, each with an anchor: a contraction with the spatial block that follows it, a chain that
shares its rows (softmax, layer_norm), a spatial block alone.

`fusion_groups` is that decision for a program and a target: what one kernel is worth being made of,
where a program of many operators is divided into kernels. The sketch rules make the same decision
for the blocks of one kernel (`partition`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from ...base.text import count
from ...codegen.detect import resolve
from ...schedule import Schedule
from ...schedule.block_queries import has_reduction, region_buffers
from ...schedule.find import blocks_in, loops_in, statements
from ...target import Target
from ...tir.ir import Block, Buffer, ForKind, Func, Label
from ...tir.structure import tree_depth
from ...tir.verify import verify
from .access_patterns import (
    consumers,
    divides,
    has_guard,
    in_order,
    inputs_of,
    is_bent_window,
    is_expensive,
    is_injective,
    is_ordered,
    is_window,
    loads,
    output_of,
    reduced,
    reuses,
    row_dimensions,
)
from .attention import find_attention, next_contraction
from .canonicalise import canonicalise, is_plain, needs_nests
from .common import result_or_none, succeeds
from .dataflow import Dataflow, dataflow
from .draft import Draft
from .joining import join
from .row_reads import reads_own_rows, rows_read
from .rule import Group, GroupKind
from .rule_sets import rules_for

MAX_DEPTH = 80
"""The depth of expressions from which inlining does not make deeper ones: passes recurse."""


@dataclass(frozen=True)
class FusionGroup:
    """Blocks that are computed together.

    `members`, in program order, share loops; the `anchor` is the one that decides how these are
    tiled. `inlined` are the blocks whose elements are computed where the members read them, again
    in each group that does.
    """

    kind: GroupKind
    anchor: Label
    members: tuple[Label, ...]
    inlined: tuple[Label, ...]

    def __repr__(self) -> str:
        names = ", ".join(label.name for label in self.members)
        inlined = ", ".join(label.name for label in self.inlined)
        return f"<FusionGroup {names}: {self.kind.value}{inlined and f'; {inlined} inlined'}>"


@dataclass(frozen=True)
class Fusion:
    """How a program is divided: `groups` in the order in which they can run.

    `func` is the program with a nest of loops for each block, which labels are of: that of the
    caller where it was written so. The blocks `kept` cannot be brought to that form, or never run,
    and stay as they are written.
    """

    func: Func
    groups: tuple[FusionGroup, ...]
    kept: tuple[Label, ...]

    def __repr__(self) -> str:
        kept = f", {count(len(self.kept), 'block')} kept" if self.kept else ""
        return f"<Fusion of {self.func.name}: {count(len(self.groups), 'group')}{kept}>"


def fusion_groups(func: Func, target: Target | str = "cpu") -> Fusion:
    """Decide which blocks of a program are computed together, without scheduling any of them.

    Cheap spatial blocks are inlined where they are read. A contraction takes the spatial block that
    alone reads it, rows take what shares them, and an attention is one group. Each block is a
    member of one group, inlined in some, or kept. The decision depends on no size of a cache; the
    target says which rules there are.

    Raises `VerifyError` for a program that breaks a rule, and `TargetError` for an invalid target
    and a kind of target that has no rules.
    """
    verify(func)
    resolved = resolve(target)
    rules_for(resolved)  # where there are none, there is no decision
    original = Draft(Schedule(func, symbolic=True), resolved)
    if never_runs(func):
        return Fusion(func, (), tuple(b.label for b in in_order(func)))
    plain, kept = prepared(original)
    groups = partition(plain, kept).ways[0]
    home = {label: n for n, group in enumerate(groups) for label in group.labels}
    readers = dict[Label, set[int]]()
    blocks = in_order(plain.func)
    for block in reversed(blocks):
        number = home.get(block.label)
        readers[block.label] = {number} if number is not None else set()
        if number is None and block.label not in kept:
            for reader in consumers(plain.func, block):
                readers[block.label] |= readers[reader.label]
    place = {block.label: n for n, block in enumerate(blocks)}
    inlined: list[list[Label]] = [[] for _ in groups]
    for block in blocks:
        for n in readers[block.label] if block.label not in home else ():
            inlined[n].append(block.label)
    fusion: list[FusionGroup] = []
    for n, group in enumerate(groups):
        # Blocks that hoisting factors made to fuse these are no blocks of the program.
        members = tuple(label for label in group.labels if label in place)
        anchor = group.anchor.label if group.anchor.label in place else members[-1]
        fusion.append(FusionGroup(group.kind, anchor, members, tuple(inlined[n])))
    fusion.sort(key=lambda group: place[group.members[-1]])
    rest = tuple(b.label for b in blocks if b.label in kept and b.label not in home)
    return Fusion(plain.func, tuple(fusion), rest)


def never_runs(func: Func) -> bool:
    """Whether a loop has no iterations; then no rule is for the program."""
    return any(loop.extent == 0 for loop in loops_in(func.body))


def prepared(original: Draft) -> tuple[Draft, set[Label]]:
    """The draft with a plain nest for each block, rewritten; the blocks that cannot have one."""
    plain = original.copy()
    if needs_nests(original.func):
        canonicalise(plain.schedule)
    for rewrite in original.rules.rewrites:
        plain = rewrite(plain)
    return plain, {b.label for b in in_order(plain.func) if not is_plain(plain.func, b)}


@dataclass(frozen=True)
class Partition:
    """A prepared draft whose blocks are in groups, in one way or several.

    `views` are copies that stand for what a block reads of one buffer at several places.
    """

    draft: Draft
    ways: list[list[Group]]
    views: Mapping[Label, Sequence[Label]]


def partition(draft: Draft, kept: Collection[Label], claimed: Collection[Label] = ()) -> Partition:
    """Part a program into groups of blocks that are scheduled together.

    It is prepared by inlining, expanding reductions over small windows, telling apart what a
    product reads of one buffer, and joining the variables of contractions that no instruction
    computes. The first partition merges each attention into one group; if need be, factors of the
    second product are hoisted for that. The blocks `claimed` are left to the caller; those `kept`
    stay as they are written.
    """
    left = {*kept, *claimed}
    draft = _expand(_inline(draft.copy(), left, kept), left, kept)
    draft, views = _tell_apart(draft, left)
    left |= {copy for copies in views.values() for copy in copies}
    grouped, groups = _grouped(draft, left)
    scans = [] if claimed else _scans(grouped, kept)
    attention = _with_attention(grouped, groups)
    hoisted = _hoist_statistics(draft, left, kept) if attention is None else None
    if hoisted is not None:
        other, parts = _grouped(hoisted, left)
        attention = _with_attention(other, parts)
        if attention is not None:
            grouped, groups = other, parts
    ways = [groups] if attention is None else [attention, groups]
    return Partition(grouped, [[*way, *scans] for way in ways], views)


def _grouped(draft: Draft, left: Collection[Label]) -> tuple[Draft, list[Group]]:
    """The groups of all blocks but those `left`, and the draft that their blocks are of."""
    assigned = set(left)
    parts: list[list[Label]] = []
    for block in reversed(in_order(draft.func)):
        if block.label not in assigned:
            parts.append([m.label for m in _members(draft, block, assigned)])
            assigned |= set(parts[-1])
    draft = _join(draft, parts)
    return draft, [_group(draft, labels) for labels in parts]


def _scans(draft: Draft, kept: Collection[Label]) -> list[Group]:
    """The nests in which blocks `kept` follow each other in an order of their own.

    They carry values to each other's next iterations, and so share all of their loops.
    """
    groups: list[Group] = []
    for nest in statements(draft.func.body):
        members = tuple(blocks_in(nest))
        if (
            len(members) > 1
            and any(map(is_ordered, members))
            and all(b.label in kept for b in members)
            and all(loop.kind is ForKind.SERIAL for loop in loops_in(nest))
        ):
            groups.append(Group(GroupKind.ORDERED, members))
    return groups


def _hoist_statistics(
    draft: Draft, left: Collection[Label], kept: Collection[Label]
) -> Draft | None:
    """The draft with sums multiplied by what their terms were, where that is computed before.

    `None` where no contraction reads a factor that the reduction does not move along.
    """
    hoisted = None
    params = set(draft.func.params)
    for block in in_order(draft.func):
        if block.label in left or not draft.rules.is_contraction(block):
            continue
        inner = set(reduced(block))
        factors = [i for i in inputs_of(block) if i.used.isdisjoint(inner)]
        if params.issuperset(i.buffer for i in factors):
            continue
        trial = (hoisted or draft).copy()
        sch = trial.schedule
        if succeeds(sch.hoist_factor, sch.get_block(block.label)):
            hoisted = trial
    return None if hoisted is None else _inline(hoisted, left, kept)


def _group(draft: Draft, labels: list[Label]) -> Group:
    members = [dataflow(draft.func).block(label) for label in labels]
    first, last = members[0], members[-1]
    contracts = draft.rules.is_contraction(first)
    kind = GroupKind.ELEMENTWISE
    if is_ordered(first if contracts else last):
        kind = GroupKind.ORDERED
    elif contracts:
        kind = GroupKind.CONTRACTION
    elif any(map(has_reduction, members)):
        kind = GroupKind.ROWS
    elif len(members) > 1:
        kind = GroupKind.PIPELINE
    return Group(kind, tuple(members))


def _tell_apart(draft: Draft, left: Collection[Label]) -> tuple[Draft, dict[Label, list[Label]]]:
    """The draft with inputs told apart of each block that is a contraction then; their copies.

    They are the inputs whose places move differently, or those read at several places if telling
    these apart is what makes the block a contraction.
    """
    views: dict[Label, list[Label]] = {}
    for block in in_order(draft.func):
        if block.label in left or not has_reduction(block):
            continue
        inputs = inputs_of(block)
        ways = [[i.buffer for i in inputs if not i.alike]]
        if not draft.rules.is_contraction(block):
            ways.append([i.buffer for i in inputs if loads(block, i.buffer) > 1])
        for buffers in ways:
            trial = draft.copy()
            copies = result_or_none(_distinguish, trial, block.label, buffers)
            if copies and draft.rules.is_contraction(trial.block(block.label)):
                draft = trial
                views[block.label] = copies
                break
    return draft, views


def _distinguish(draft: Draft, label: Label, buffers: Sequence[Buffer]) -> list[Label]:
    """Let a block read copies of `buffers` at each place but the first; returns their blocks."""
    copies: list[Label] = []
    for buffer in buffers:
        inputs = [i.buffer for i in inputs_of(draft.block(label))]
        index = next(n for n, b in enumerate(inputs) if b is buffer)
        copies += draft.schedule.distinguish_reads(draft.schedule.get_block(label), index)
    return copies


def _with_attention(draft: Draft, groups: list[Group]) -> list[Group] | None:
    """The groups with each attention in the place of its parts, where there is one."""
    contractions = [
        g for g in groups if g.kind is GroupKind.CONTRACTION and output_of(g.members[0]) is not None
    ]
    beginnings: dict[Label, list[Block]] = {}
    for group in contractions:
        first = group.members[0]
        second = next_contraction(draft, first) if len(group.members) == 1 else None
        if second is not None:
            beginnings.setdefault(second.label, []).append(first)
    fused: list[Group] = []
    claimed: set[Label] = set()
    for ending in contractions:
        for first in beginnings.get(ending.labels[0], ()):
            attention = find_attention(draft, first, ending.members)
            if attention is not None and claimed.isdisjoint(b.label for b in attention.members):
                fused.append(Group(GroupKind.ATTENTION, attention.members))
                claimed.update(b.label for b in attention.members)
    rest = [g for g in groups if claimed.isdisjoint(g.labels)]
    return [*fused, *rest] if fused else None


def _join(draft: Draft, parts: list[list[Label]]) -> Draft:
    """The draft with the variables of contractions joined."""
    flow = dataflow(draft.func)
    for labels in parts:
        members = [flow.block(label) for label in labels]
        if not draft.rules.is_contraction(members[0]):
            continue
        # What instructions that add up products are given is padded, which asks for plain indices.
        if draft.rules.has_instruction(draft, members):
            continue
        trial = draft.copy()
        sch = trial.schedule
        joined = succeeds(join, sch, [sch.get_block(label) for label in labels])
        if joined and trial.func is not draft.func:
            draft = trial
    return draft


def inlined(draft: Draft) -> Draft:
    """A prepared draft with the blocks inlined that cost little where they are read."""
    kept = {b.label for b in in_order(draft.func) if not is_plain(draft.func, b)}
    return _inline(draft, kept, kept)


def _inline(draft: Draft, left: Collection[Label], kept: Collection[Label]) -> Draft:
    """The draft with the blocks inlined that cost little where they are read.

    That changes no block in `kept`.
    """
    for block in in_order(draft.func):
        readers = consumers(draft.func, block)
        if block.label in left or any(r.label in kept for r in readers):
            continue
        if not (readers and is_injective(block) and _worth_inlining(block, readers)):
            continue
        if _depth(block) + max(map(_depth, readers)) > MAX_DEPTH:
            continue
        if is_window(block, readers) and not any(r.label in left for r in readers):
            continue  # rules for pipelines decide
        trial = draft.copy()
        sch = trial.schedule
        if succeeds(sch.compute_inline, sch.get_block(block.label)):
            draft = trial
    return draft


def _depth(block: Block) -> int:
    return tree_depth(block.body, {})


def _expand(draft: Draft, left: Collection[Label], kept: Collection[Label]) -> Draft:
    """The draft with small windows written out whose indices no vector can follow as they are."""
    before = draft
    for block in in_order(draft.func):
        if block.label in left or not is_bent_window(block) or draft.rules.is_contraction(block):
            continue
        trial = draft.copy()
        sch = trial.schedule
        if succeeds(sch.expand_reduction, sch.get_block(block.label)):
            draft = trial
    return draft if draft is before else _inline(draft, left, kept)


def _worth_inlining(block: Block, readers: list[Block]) -> bool:
    """Whether computing an element at each place where it is read costs little."""
    again = any(has_reduction(r) and reuses(r) for r in readers)
    if again and (has_guard(block) or is_expensive(block) or divides(block)):
        return False
    return not (is_expensive(block) and (len(readers) > 1 or any(map(has_reduction, readers))))


def _members(draft: Draft, block: Block, assigned: Collection[Label]) -> list[Block]:
    """The group that a block is the last of, in program order."""
    if not is_injective(block):
        return [block]
    flow = dataflow(draft.func)
    for p in flow.producers(block):
        if p.label in assigned or not draft.rules.is_contraction(p):
            continue
        if [c.label for c in flow.consumers(p)] == [block.label]:
            return [p, block]
    chain = _chain(draft, block, assigned)
    if any(map(has_reduction, chain)):
        return chain
    return _stages(flow, block, assigned)


def _stages(flow: Dataflow, last: Block, assigned: Collection[Label]) -> list[Block]:
    """The spatial blocks whose results reach `last` alone, and `last`, in program order.

    A block without iteration variables has no rows that others could share.
    """
    if not last.iters:
        return [last]
    rows = {last.label: [last.iters[0].var]}

    def joins(block: Block, readers: list[Block]) -> bool:
        variables = rows_read(block, readers, rows) or []
        rows[block.label] = variables
        return (
            is_injective(block)
            and bool(block.iters)
            and reads_own_rows(block, variables, last, rows[last.label])
        )

    return _reaching(flow, last, assigned, joins)


def _chain(draft: Draft, last: Block, assigned: Collection[Label]) -> list[Block]:
    """The blocks whose results reach `last` alone, row by row."""
    count = row_dimensions(draft.func, last)
    if count is None:
        return [last]
    rows = {last.label: [i.var for i in last.iters][:count]}

    def joins(block: Block, readers: list[Block]) -> bool:
        variables = rows_read(block, readers, rows)
        if variables is None or draft.rules.is_contraction(block):
            return False
        rows[block.label] = variables
        return reads_own_rows(block, variables, last, rows[last.label])

    return _reaching(dataflow(draft.func), last, assigned, joins)


def _reaching(
    flow: Dataflow,
    last: Block,
    assigned: Collection[Label],
    joins: Callable[[Block, list[Block]], bool],
) -> list[Block]:
    """The blocks whose results reach `last` alone, and `last`, in program order.

    They are internal, not `assigned`, and `joins` accepts them with their readers.
    """
    members = [last]
    joined, seen = {last.label}, {last.label}
    waiting: list[int] = []

    def look_above(block: Block) -> None:
        for p in flow.producers(block):
            # In reverse program order, so that all that read a block are decided before it.
            if p.label not in seen and flow.place[p.label] < flow.place[block.label]:
                seen.add(p.label)
                heappush(waiting, -flow.place[p.label])

    look_above(last)
    while waiting:
        block = flow.blocks[-heappop(waiting)]
        readers = flow.consumers(block)
        if (
            block.label not in assigned
            and joined.issuperset(r.label for r in readers)
            and region_buffers(block.writes) <= flow.internal
            and joins(block, readers)
        ):
            members.append(block)
            joined.add(block.label)
            look_above(block)
    return members[::-1]

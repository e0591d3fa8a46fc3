"""Dividing a program into those of several kernels, as `graph/groups.py` divides a graph.

A kernel has one product of two inputs at most, or one attention. Each has a schedule of its own, so
that what is chosen, measured and recorded of it does not depend on what is computed beside it. What
follows a product element by element stays in its kernel. What is computed before one, for it alone,
does so too, unless that needs sums of its own: these begin a kernel without a product, and what
reads them joins it, such as softmax and layer norm.

    H[i, j] = sum over k of X[i, k] * W[k, j]    main_0(X, W, b, G), which writes G
    G[i, j] = gelu(H[i, j] + b[j])
    Y[i, j] = sum over k of G[i, k] * V[k, j]    main_1(G, V, Y)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...codegen.generator import generator_for
from ...schedule import Schedule
from ...schedule.block_queries import has_reduction, region_buffers
from ...schedule.find import blocks_in, statements
from ...target import Target
from ...tir.ir import Block, Buffer, Func, Label, Stmt, Var, seq
from ...tir.verify import verify
from ...tir.visit import substitute, walk
from .access_patterns import inputs_of, is_injective, reduced
from .canonicalise import needs_nests
from .common import elements, result_or_none
from .dataflow import Dataflow, dataflow
from .draft import Draft, Drafts
from .fusion_groups import never_runs, partition, prepared
from .rule import Group, GroupKind, planned
from .user_rules import SKETCH_RULES

Operand = Buffer | Var


@dataclass(frozen=True)
class Piece:
    """The program of a kernel, and what its parameters are in the program that it is a piece of:
    parameters of that, or internal buffers, which one piece writes and others read."""

    func: Func
    operands: tuple[Operand, ...]


def pieces_of(func: Func, target: Target) -> tuple[Piece, ...]:
    """The kernels that a program becomes on a resolved target, in the order in which they run.

    There are none where it is a kernel itself: it has one product at most, was scheduled by hand,
    or a rule of the user applies to the whole, or the kind of target calls one kernel at a time.

    Raises `VerifyError` for a program that breaks a rule.
    """
    if not generator_for(target).joins or sum(map(_may_be_product, blocks_in(func.body))) < 2:
        return ()
    verify(func)
    if never_runs(func) or not _is_plain(func):
        return ()
    whole = Draft(Schedule(func, symbolic=True), target)
    anchors = _anchors(whole)
    if len(set(anchors.values())) < 2 or _has_rule(whole):
        return ()
    homes = _Homes(func, anchors).found()
    return _pieces(func, homes) if len(set(homes)) > 1 else ()


def _may_be_product(block: Block) -> bool:
    """Whether a block of a program that is not verified reduces what it reads of two buffers."""
    return (
        has_reduction(block) and len(region_buffers(block.reads) - region_buffers(block.writes)) > 1
    )


def _is_product(block: Block) -> bool:
    """Whether a block adds up what two inputs have along the variables that it reduces."""
    inner = set(reduced(block))
    return has_reduction(block) and sum(not inner.isdisjoint(i.used) for i in inputs_of(block)) > 1


def _is_plain(func: Func) -> bool:
    """Whether nothing is scheduled, and each block writes buffers that no other does."""
    flow = dataflow(func)
    written = Counter(b for block in flow.blocks for b in region_buffers(block.writes))
    return (
        not func.annotations
        and len(statements(func.body)) == len(flow.blocks)
        and not needs_nests(func)
        and set(written.values()) == {1}
        and all(b.scope == "global" and not b.align and not b.swizzle for b in func.allocs)
    )


def _has_rule(whole: Draft) -> bool:
    """Whether a rule of the user for programs applies to this one."""
    drafts, program = Drafts(), Group(GroupKind.PROGRAM, dataflow(whole.func).blocks)
    return any(
        result_or_none(drafts.after, whole, variant.steps) is not None
        for _, variant in planned(SKETCH_RULES.values(), whole, program)
    )


def _anchors(whole: Draft) -> dict[Label, int]:
    """The place of the last block of its product or attention, for each block of one."""
    flow = dataflow(whole.func)
    draft, kept = prepared(whole)
    found: dict[Label, int] = {}
    for group in partition(draft, kept).ways[0]:
        labels: list[Label] = []
        if group.kind is GroupKind.ATTENTION:
            labels = [label for label in group.labels if label in flow.place]
        elif group.kind is GroupKind.CONTRACTION and group.anchor.label in flow.place:
            labels = [group.anchor.label]
        if any(_is_product(flow.block(label)) for label in labels):
            found.update(dict.fromkeys(labels, max(flow.place[label] for label in labels)))
    return found


class _Homes:
    """The kernel of each block, by the place of its last anchor, or of its first block."""

    def __init__(self, func: Func, anchors: Mapping[Label, int]) -> None:
        self.flow: Dataflow = dataflow(func)
        self.anchors = anchors
        self.kernels = set(anchors.values())
        self.homes: dict[int, int] = {}
        self.above: dict[int, int] = {}
        """The last kernel that what precedes a block is in, where there is one."""
        self.ahead = {p for p in func.params if isinstance(p, Buffer) and p.constant}
        """What is known ahead of calls."""

    def found(self) -> list[int]:
        """The homes of the blocks in their order; all are one where kernels need each other."""
        blocks = self.flow.blocks
        for place, block in enumerate(blocks):
            self._place(place, block)
        for place in reversed(range(len(blocks))):
            if place not in self.homes:
                readers = [self.homes[n] for n in self._readers(place)]
                self.homes[place] = min(readers, default=self.above.get(place, place))
        homes = [self.homes[place] for place in range(len(blocks))]
        return homes if self._in_order(homes) else [0] * len(homes)

    def _place(self, place: int, block: Block) -> None:
        """Find the home of a block, unless that is where it is read."""
        above = [self.homes.get(n, self.above.get(n)) for n in self._producers(place)]
        last = max((n for n in above if n is not None), default=None)
        if last is not None:
            self.above[place] = last
        if block.label in self.anchors:
            self.homes[place] = self.anchors[block.label]
        elif region_buffers(block.reads) <= self.ahead | region_buffers(block.writes):
            self.ahead |= region_buffers(block.writes)
        elif last is not None and last not in self.kernels:
            self.homes[place] = last
        elif not is_injective(block):
            self.homes[place] = place
        elif last is not None and _size(block) == _size(self.flow.blocks[last]):
            self.homes[place] = last

    def _producers(self, place: int) -> list[int]:
        """The places of the blocks before this one that write what it reads."""
        producers = self.flow.producers(self.flow.blocks[place])
        return [n for p in producers if (n := self.flow.place[p.label]) < place]

    def _readers(self, place: int) -> list[int]:
        consumers = self.flow.consumers(self.flow.blocks[place])
        return [n for c in consumers if (n := self.flow.place[c.label]) > place]

    def _in_order(self, homes: Sequence[int]) -> bool:
        """Whether kernels in the order of their homes find what they read, and not overwritten."""
        return all(
            (homes[place] <= homes[n]) if n > place else (homes[n] <= homes[place])
            for place, block in enumerate(self.flow.blocks)
            for n in (self.flow.place[c.label] for c in self.flow.consumers(block))
        )


def _size(block: Block) -> int:
    """Elements of what a block writes."""
    return max(map(elements, region_buffers(block.writes)))


def _pieces(func: Func, homes: Sequence[int]) -> tuple[Piece, ...]:
    parts: dict[int, list[Stmt]] = {home: [] for home in sorted(set(homes))}
    for home, nest in zip(homes, statements(func.body), strict=True):
        parts[home].append(nest)
    used = [set(filter(_is_operand, walk(seq(*nests)))) for nests in parts.values()]
    count = Counter(operand for each in used for operand in each)
    # Each kernel would take it in a form of its own.
    shared = {
        p: replace(p, constant=False)
        for p in func.params
        if isinstance(p, Buffer) and p.constant and count[p] > 1
    }
    flow = dataflow(func)
    makers = {b: homes[n] for n, x in enumerate(flow.blocks) for b in region_buffers(x.writes)}
    pieces: list[Piece] = []
    for number, (home, own) in enumerate(zip(parts, used, strict=True)):
        between = [b for b in func.allocs if b in own and count[b] > 1]
        operands = (
            *(b for b in between if makers[b] != home),
            *(p for p in func.params if p in own),
            *(b for b in between if makers[b] == home),
        )
        body = substitute(seq(*parts[home]), shared)
        pieces.append(
            Piece(
                Func(
                    f"{func.name}_{number}",
                    tuple(shared.get(o, o) if isinstance(o, Buffer) else o for o in operands),
                    tuple(b for b in func.allocs if b in own and count[b] == 1),
                    body,
                    tuple(b for b in func.inplace if makers.get(b) == home),
                ),
                operands,
            )
        )
    return tuple(pieces)


def _is_operand(node: object) -> bool:
    return isinstance(node, Buffer | Var)

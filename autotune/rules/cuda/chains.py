"""Facts of chains that share their rows: which variables number rows, and what lies along them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....schedule.block_queries import buffers_in_order, has_reduction, region_buffers
from ....schedule.require import require_some
from ....tir.ir import Block, Buffer, Func, Label, Var
from ..access_patterns import extents, reduced, spatial
from ..draft import Draft
from ..row_reads import rows_read


@dataclass(frozen=True)
class Chain:
    """Blocks in program order, the last of which is their root; `rows` has the variables of each
    block that number rows."""

    members: tuple[Block, ...]
    rows: dict[Label, list[Var]]

    @property
    def root(self) -> Block:
        return self.members[-1]

    @property
    def count(self) -> int:
        """How many of the root's first variables number rows."""
        return len(self.rows[self.root.label])

    def beside(self, block: Block) -> list[Var]:
        """The spatial variables of a block within a row."""
        rows = set(self.rows[block.label])
        return [v for v in spatial(block) if v not in rows]

    def along(self, block: Block) -> list[Var]:
        """The variables of a block along a row: those it reduces where it has no others."""
        return self.beside(block) or reduced(block)

    def length(self, block: Block) -> int:
        """The elements along a row."""
        sizes = extents(block)
        return math.prod(sizes[v] for v in self.along(block))

    def reduces_rows(self, block: Block) -> bool:
        """Whether a block reduces each row to one element."""
        return has_reduction(block) and not self.beside(block)

    def readers(self, buffer: Buffer) -> list[Block]:
        return [b for b in self.members if buffer in region_buffers(b.reads)]

    def arrays(self, func: Func) -> list[Buffer]:
        """The internal buffers with elements along rows, in the order in which they are written."""
        return [
            buffer
            for b in self.members
            if self.beside(b)
            for buffer in buffers_in_order(b.writes)
            if buffer in func.allocs
        ]

    def follows(self, block: Block, buffer: Buffer) -> bool:
        """Whether a block uses a buffer element by element along its rows, in their order."""
        along, sizes = self.along(block), extents(block)
        rows = set(self.rows[block.label])
        for region in (*block.reads, *block.writes):
            if region.buffer is not buffer:
                continue
            places = [
                (r.min, n)
                for r, n in zip(region.ranges, buffer.shape, strict=True)
                if not (type(r.min) is Var and r.min in rows) and n != 1
            ]
            wide = [v for v in along if sizes[v] != 1]
            if len(places) != len(wide) or any(
                e is not v or n != sizes[v] for (e, n), v in zip(places, wide, strict=True)
            ):
                return False
        return True

    def held(self, buffer: Buffer) -> bool:
        """Whether each thread of a row can hold what it uses of a buffer."""
        users = [b for b in self.members if buffer in region_buffers((*b.reads, *b.writes))]
        return all(self.follows(b, buffer) for b in users)


def chain_of(members: Sequence[Block], count: int) -> Chain:
    """The chain of blocks, the first `count` variables of the last one being rows.

    Raises `ScheduleError` where those of another block are not known.
    """
    root = members[-1]
    rows = {root.label: [i.var for i in root.iters][:count]}
    for n in range(len(members) - 2, -1, -1):
        block = members[n]
        written = region_buffers(block.writes)
        readers = [b for b in members[n + 1 :] if written & region_buffers(b.reads)]
        variables = rows_read(block, readers, rows)
        rows[block.label] = require_some(variables, "the rows of {0} are not known", block.label)
    return Chain(tuple(members), rows)


def scheduled_chain(
    draft: Draft, labels: Sequence[Label], count: int, *, recomputed: bool
) -> Chain:
    """The chain of blocks that a rule schedules, the first `count` variables of the last one being
    rows.

    With `recomputed`, what is computed of elements is computed where it is read.
    """
    sch = draft.schedule
    labels = [sch.get_block(label) for label in labels]
    chain = chain_of([draft.block(label) for label in labels], count)
    if not recomputed:
        return chain
    for block in chain.members[:-1]:
        if chain.beside(block) and not has_reduction(block):
            sch.compute_inline(block.label)
            labels.remove(block.label)
    return chain_of([draft.block(label) for label in labels], count)

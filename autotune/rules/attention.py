"""Recognition of attention: two contractions, with a chain of rows between them.

    S[i, j] = sum over d of Q[i, d] * K[j, d]            the first contraction
    M[i] = max over j of S[i, j]                         the chain: row i of each of its blocks
    E[i, j] = exp(S[i, j] - M[i])                          needs row i of the others alone
    L[i] = sum over j of E[i, j]
    U[i, e] = sum over j of E[i, j] * V[j, e]            the second contraction
    Y[i, e] = U[i, e] / L[i]                             the block that follows it, if any

Blocks are told apart by what they read and reduce. Their order, the order of their variables, and
how many there are do not matter: rows may as well be divided by L before the second contraction,
masked or scaled anywhere, or not be exponentials at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from ...schedule.block_queries import region_buffers
from ...tir.ir import Block, Buffer, Label, Region, Var
from .access_patterns import (
    extents,
    inputs_of,
    is_injective,
    reduced,
    row_dimensions,
    spatial,
)
from .dataflow import Dataflow, dataflow
from .draft import Draft
from .rule import Group

MIN_ROWS = 16
"""Rows of a band, at least."""
Rows = tuple[Var | None, ...]
"""The variables of a block that number rows, in one order for all blocks; `None` where the block
has no variable for a dimension of size 1."""


@dataclass(frozen=True)
class Attention:
    """Two contractions, the chain between them, and the block that reads the second, if any.

    The second contraction reads what `weights`, a spatial block of the chain, computes. `rows` are
    the variables of each block that number the rows. A band is a stretch of rows along the one at
    `place`.
    """

    first: Block
    chain: tuple[Block, ...]
    weights: Block
    second: Block
    follow: Block | None
    rows: Mapping[Label, Rows]
    place: int

    @property
    def members(self) -> tuple[Block, ...]:
        """All blocks, in program order."""
        follow = () if self.follow is None else (self.follow,)
        return (self.first, *self.chain, self.second, *follow)

    @property
    def last(self) -> Block:
        """The block whose result is that of the attention."""
        return self.second if self.follow is None else self.follow

    @property
    def count(self) -> int:
        """How many variables number the rows."""
        return len(self.rows[self.weights.label])

    def row(self, block: Block) -> Var:
        """The variable along which a band is a stretch, in a contraction or the last block."""
        var = self.rows[block.label][self.place]
        assert var is not None
        return var

    def batch(self, block: Block) -> list[Var]:
        """The other variables that number rows, and those of one iteration before `row`."""
        sizes, order, row = extents(block), spatial(block), self.row(block)
        numbering = {v for v in self.rows[block.label] if v is not None}
        before = set(order[: next(n for n, v in enumerate(order) if v is row)])
        unit = {v for v in before if sizes[v] == 1}
        return [v for v in order if v is not row and v in numbering | unit]

    def before_weights(self, block: Block) -> bool:
        """Whether the weights need what a block of the chain computes."""
        return self.weights in downstream(self.chain, block)

    def has_elements(self, block: Block) -> bool:
        """Whether a block of the chain computes more than one element of a row."""
        return not set(spatial(block)) <= {*self.rows[block.label]}


def attention_of(draft: Draft, group: Group) -> Attention:
    """The attention that a group is."""
    first, *rest = group.members
    place = next(n for n, b in enumerate(rest) if draft.rules.is_contraction(b))
    attention = find_attention(draft, first, rest[place:])
    assert attention is not None, "that is what the group was made for"
    return attention


def find_attention(draft: Draft, first: Block, ending: Sequence[Block]) -> Attention | None:
    """The attention that begins with a contraction and ends with another, and its follower if any.

    What is computed on the way must be for this alone, by rows. `None` where there is none.
    """
    second, *others = ending
    follow = others[0] if others else None
    last = second if follow is None else follow
    func = draft.func
    chain = _chain(draft, first, second, follow)
    if chain is None:
        return None
    read = region_buffers(second.reads)
    weights = [b for b in chain if region_buffers(b.writes) & read]
    if len(weights) != 1 or not is_injective(weights[0]):
        return None
    count = row_dimensions(func, weights[0])
    rows = _rows(weights[0], count, (first, *chain, *ending)) if count else None
    if not count or rows is None or not _reduces_rows(weights[0], count, second):
        return None
    place = _banded(rows, weights[0], first, second, last)
    if place is None:
        return None
    return Attention(first, tuple(chain), weights[0], second, follow, rows, place)


def element_above(attention: Attention, block: Block, var: Var) -> Var | None:
    """The variable of the first contraction at which it writes what `block` reads at `var`.

    Blocks of the chain that lie between the two are followed. `None` where there is none.
    """
    writers = {b: w for w in (attention.first, *attention.chain) for b in region_buffers(w.writes)}
    for region in block.reads:
        writer = writers.get(region.buffer)
        if writer is None or writer is block:
            continue
        dimensions = [d for d, r in enumerate(region.ranges) if r.min is var]
        written = [writer.writes[0].ranges[d].min for d in dimensions]
        if len(written) == 1 and type(written[0]) is Var:
            if writer is attention.first:
                return written[0]
            above = element_above(attention, writer, written[0])
            if above is not None:
                return above
    return None


def downstream(blocks: Sequence[Block], block: Block) -> list[Block]:
    """Those of `blocks`, which are in program order, that need what `block` computes."""
    computed = region_buffers(block.writes)
    needing: list[Block] = []
    for b in blocks:
        if b.label is not block.label and region_buffers(b.reads) & computed:
            needing.append(b)
            computed |= region_buffers(b.writes)
    return needing


def next_contraction(draft: Draft, first: Block) -> Block | None:
    """The first contraction, in program order, that needs what `first` computes.

    No other one can be the second of an attention that begins with `first`: another would be in the
    chain, or need the result of the attention.
    """
    return next((b for b in _downstream(draft, first) if draft.rules.is_contraction(b)), None)


def _chain(draft: Draft, first: Block, second: Block, follow: Block | None) -> list[Block] | None:
    """The blocks that need what `first` computes, before `second` and `follow`, in program order.

    `None` where one of them is a contraction, where something else reads what `first` and they
    compute, or something other than `follow` what `second` does.
    """
    flow = dataflow(draft.func)
    ending = {second.label} if follow is None else {second.label, follow.label}
    if follow is not None and [r.label for r in flow.consumers(second)] != [follow.label]:
        return None
    if any(r.label in ending for r in flow.consumers(first)) or not _feeds(flow, first):
        return None
    chain: list[Block] = []
    for block in _downstream(draft, first, ending):
        if draft.rules.is_contraction(block) or not _feeds(flow, block):
            return None
        chain.append(block)
    return chain


def _feeds(flow: Dataflow, block: Block) -> bool:
    """Whether a block computes one thing, for other blocks alone."""
    internal = len(block.writes) == 1 and block.writes[0].buffer in flow.internal
    return internal and bool(flow.consumers(block))


def _downstream(draft: Draft, block: Block, end: Collection[Label] = ()) -> Iterator[Block]:
    """The blocks that need what `block` computes, not by way of `end`, in program order."""
    flow = dataflow(draft.func)
    seen = {block.label, *end}
    waiting: list[int] = []
    while True:
        for reader in flow.consumers(block):
            if reader.label not in seen:
                seen.add(reader.label)
                heappush(waiting, flow.place[reader.label])
        if not waiting:
            return
        block = flow.blocks[heappop(waiting)]
        yield block


def _rows(weights: Block, count: int, blocks: Sequence[Block]) -> dict[Label, Rows] | None:
    """The variables of each block that number rows; `None` where a block needs another row."""
    rows: dict[Label, Rows] = {weights.label: tuple(i.var for i in weights.iters[:count])}
    writers: dict[Buffer, Block] = {b.writes[0].buffer: b for b in blocks}
    reads = [
        (writers[region.buffer], reader, region)
        for reader in blocks
        for region in reader.reads
        if region.buffer in writers and writers[region.buffer] is not reader
    ]
    for _ in blocks:
        for writer, reader, region in reads:
            if writer.label in rows and reader.label not in rows:
                at = _across(rows[writer.label], writer, writer.writes[0], region)
                if at is not None:
                    rows[reader.label] = at
            elif reader.label in rows and writer.label not in rows:
                at = _across(rows[reader.label], reader, region, writer.writes[0])
                if at is not None:
                    rows[writer.label] = at
    if len(rows) < len(blocks):
        return None
    for writer, reader, region in reads:
        at = _across(rows[writer.label], writer, writer.writes[0], region)
        if at is None or not all(map(_agree, at, rows[reader.label])):
            return None
    spatially = all({*rows[b.label]} - {None} <= {*spatial(b)} for b in blocks)
    return rows if spatially else None


def _agree(a: Var | None, b: Var | None) -> bool:
    return a is None or b is None or a is b


def _across(rows: Rows, block: Block, here: Region, there: Region) -> Rows | None:
    """The variables that index a buffer `there` where `block` has its `rows` at `here`."""
    sizes = extents(block)
    variables: list[Var | None] = []
    for v in rows:
        places = [d for d, r in enumerate(here.ranges) if v is not None and r.min is v]
        index = there.ranges[places[0]].min if len(places) == 1 else None
        if type(index) is Var:
            variables.append(index)
        elif v is None or sizes[v] == 1:
            variables.append(None)
        else:
            return None
    return tuple(variables)


def _reduces_rows(weights: Block, count: int, second: Block) -> bool:
    """Whether the second contraction reduces the elements of a row of the weights."""
    inner = set(reduced(second))
    write = weights.writes[0]
    elements = {i.var for i in weights.iters[count:]}
    dimensions = [d for d, r in enumerate(write.ranges) if r.min in elements]
    return all(
        region.ranges[d].min in inner
        for region in second.reads
        if region.buffer is write.buffer
        for d in dimensions
    )


def _banded(
    rows: Mapping[Label, Rows], weights: Block, first: Block, second: Block, last: Block
) -> int | None:
    """Which of the variables of rows a band is along; `None` where none has enough rows.

    Other operands of the second contraction are best the same for all rows of a band.
    """
    sizes = extents(second)
    buffers = region_buffers(weights.writes)
    others = [i for i in inputs_of(second) if i.buffer not in buffers]
    places: list[tuple[bool, int]] = []
    for n, v in enumerate(rows[second.label]):
        known = v is not None and all(rows[b.label][n] is not None for b in (first, last))
        if v is not None and known and sizes[v] >= MIN_ROWS:
            places.append((all(v not in i.used for i in others), n))
    return max(places)[1] if places else None

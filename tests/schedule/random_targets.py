"""Arguments of random steps: blocks, loops, numbers; mostly of the kind that a step is for.

Sometimes they are of another kind, do not exist any more, or make no sense.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tilewright.schedule import Schedule
from tilewright.schedule.block_queries import readers_of, region_buffers
from tilewright.schedule.find import blocks_in, find_block, find_loop, loops_above
from tilewright.tir.ir import Block, Const, Dim, Label, Select, Seq, Store, Var

from .random_stages import Pick

T = TypeVar("T")

FACTORS = (1, 2, 3, 4, 5, 8)
WRONG_FACTORS = (0, -1, 1 << 13, 1 << 45)
SCOPES = ("global", "local", "shared", "register", "nowhere")


class NoTarget(Exception):
    """There is nothing in the program that a step could be tried on."""


def one_of(pick: Pick, choices: Sequence[T]) -> T:
    if not choices:
        raise NoTarget
    return choices[pick(len(choices))]


def sometimes(pick: Pick, often: int = 16) -> bool:
    return pick(often) == 0


def a_block(
    sch: Schedule, pick: Pick, fits: Callable[[Schedule, Block], bool] | None = None
) -> Label:
    """A block of the program, mostly one that `fits`; sometimes one that is gone."""
    if sometimes(pick, 48):
        return sch.get_block(pick(5))
    blocks = list(blocks_in(sch.func.body))
    if fits is not None and not sometimes(pick, 8):
        fitting = [b for b in blocks if fits(sch, b)]
        if not fitting and not sometimes(pick, 4):
            raise NoTarget
        blocks = fitting or blocks
    return referred(sch, one_of(pick, blocks).label)


def referred(sch: Schedule, label: Label) -> Label:
    """`label` as a handle of the schedule."""
    original = [b.label for b in blocks_in(sch.original.body)]
    return sch.get_block(original.index(label)) if label in original else label


def reduces(sch: Schedule, block: Block) -> bool:
    return block.init is not None


def is_internal(sch: Schedule, block: Block) -> bool:
    """Whether it writes an internal buffer."""
    return any(r.buffer in sch.func.allocs for r in block.writes)


def is_plane(sch: Schedule, block: Block) -> bool:
    """Whether it writes an internal buffer of several dimensions."""
    return any(r.buffer in sch.func.allocs and len(r.buffer.shape) > 1 for r in block.writes)


def is_inline(sch: Schedule, block: Block) -> bool:
    """Whether it stores one value to an internal buffer, and reduces nothing."""
    return block.init is None and type(block.body) is Store and is_internal(sch, block)


def updates(sch: Schedule, block: Block) -> bool:
    """Whether it changes what is there, and does not begin with an init."""
    written = {r.buffer for r in block.writes}
    return block.init is None and any(r.buffer in written for r in block.reads)


def shares_a_loop(sch: Schedule, block: Block) -> bool:
    """Whether a block that reads what it writes is in a loop around it."""
    around = {s.var for s in loops_above(sch.func, block.label)}
    readers = readers_of(sch.func, region_buffers(block.writes), but=block.label)
    return any(s.var in around for r in readers for s in loops_above(sch.func, r.label))


def pads(sch: Schedule, block: Block) -> bool:
    stored = block.body
    return (
        type(stored) is Store and type(stored.value) is Select and type(stored.value.other) is Const
    )


def computes_indices(sch: Schedule, block: Block) -> bool:
    return any(type(x.min) is not Var for r in block.reads for x in r.ranges)


def is_guarded(sch: Schedule, block: Block) -> bool:
    return block.predicate is not None


def of_rank(rank: int) -> Callable[[Schedule, Block], bool]:
    """Whether a block has so many iteration variables."""
    return lambda _, block: len(block.iters) == rank


def loops_of(
    sch: Schedule, pick: Pick, fits: Callable[[Schedule, Block], bool] | None = None
) -> list[Var]:
    return list(sch.get_loops(a_block(sch, pick, fits)))


def a_loop(sch: Schedule, pick: Pick, fits: Callable[[Schedule, Block], bool] | None = None) -> Var:
    """A loop around a block; sometimes one that an earlier step has used up."""
    loops = loops_of(sch, pick, fits)
    if sometimes(pick, 48):
        loops += [v for v in sch._outputs.values if type(v) is Var]
    if not loops:
        raise NoTarget
    return one_of(pick, loops)


def a_shared_loop(sch: Schedule, pick: Pick) -> Var:
    """A loop around several statements; if there is none yet, one that a copy is put into."""
    block = a_block(sch, pick)
    loops = [v for v in sch.get_loops(block) if type(find_loop(sch.func, v).body) is Seq]
    if loops and not sometimes(pick):
        return loops[-1]
    copy = sch.cache_read(block, an_input(sch, pick, block), "local")
    loop = one_of(pick, sch.get_loops(block) or [a_loop(sch, pick)])
    sch.compute_at(copy, loop)
    return loop


def a_factor(sch: Schedule, pick: Pick) -> Dim:
    """A size; sometimes one that is sampled, or makes no sense."""
    if sometimes(pick):
        return sch.sample_categorical(FACTORS)
    return one_of(pick, WRONG_FACTORS if sometimes(pick, 64) else FACTORS)


def an_input(sch: Schedule, pick: Pick, block: Label) -> int:
    """The number of a buffer that a block reads and does not write."""
    found = find_block(sch.func, block)
    written = {r.buffer for r in found.writes}
    return _a_number(pick, len({r.buffer for r in found.reads} - written))


def an_output(sch: Schedule, pick: Pick, block: Label) -> int:
    """The number of a buffer that a block writes."""
    return _a_number(pick, len({r.buffer for r in find_block(sch.func, block).writes}))


def _a_number(pick: Pick, count: int) -> int:
    return one_of(pick, (0, 1, 2, -1)) if count == 0 or sometimes(pick) else pick(count)


def a_scope(pick: Pick) -> str:
    return SCOPES[pick(2)] if not sometimes(pick) else one_of(pick, SCOPES)


def from_any(pick: Pick, choices: Sequence[Any]) -> Any:
    """`one_of` for choices of no common type."""
    return choices[pick(len(choices))]

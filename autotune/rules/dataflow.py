"""Which blocks of a program read and write which buffers: an index, for questions asked often."""

from __future__ import annotations

from functools import lru_cache

from ...schedule.block_queries import region_buffers
from ...schedule.find import blocks_in
from ...tir.ir import Block, Buffer, Func, Label


class Dataflow:
    """The blocks of a program in order, their places in it, and the users of each buffer.

    `internal` are the buffers that are no parameters.
    """

    def __init__(self, func: Func) -> None:
        self.blocks = tuple(blocks_in(func.body))
        self.place: dict[Label, int] = {b.label: n for n, b in enumerate(self.blocks)}
        self.internal = frozenset(func.allocs)
        self._readers: dict[Buffer, list[int]] = {}
        self._writers: dict[Buffer, list[int]] = {}
        for n, block in enumerate(self.blocks):
            for buffer in region_buffers(block.reads):
                self._readers.setdefault(buffer, []).append(n)
            for buffer in region_buffers(block.writes):
                self._writers.setdefault(buffer, []).append(n)

    def block(self, label: Label) -> Block:
        """The block with a label that is in the program."""
        return self.blocks[self.place[label]]

    def writers(self, buffer: Buffer) -> list[Block]:
        """The blocks that write a buffer, in program order."""
        return [self.blocks[n] for n in self._writers.get(buffer, ())]

    def consumers(self, block: Block) -> list[Block]:
        """The other blocks that read what a block writes, in program order."""
        return self._others(block, self._readers, region_buffers(block.writes))

    def producers(self, block: Block) -> list[Block]:
        """The other blocks that write what a block reads, in program order."""
        return self._others(block, self._writers, region_buffers(block.reads))

    def _others(
        self, block: Block, users: dict[Buffer, list[int]], buffers: set[Buffer]
    ) -> list[Block]:
        places = sorted({n for b in buffers for n in users.get(b, ())})
        return [self.blocks[n] for n in places if self.blocks[n].label is not block.label]


@lru_cache(maxsize=4)
def dataflow(func: Func) -> Dataflow:
    """The index of a program; that of the last few programs is kept."""
    return Dataflow(func)

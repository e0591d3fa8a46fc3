"""The argmax of long rows: their maximum, and the first place that has it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ....schedule import Schedule
from ....schedule.primitives.locate import is_extremum
from ....tir.ir import Block, Label
from ....tir.updates import match_updates
from ..access_patterns import extents, inputs_of, outputs_of, reduced
from ..draft import Draft
from ..vectors import lanes_for

LEAST = 256
"""Rows of fewer elements are searched as they are."""
UNROLLED = 2
"""The vectors of a step, which a piece is a multiple of."""


def pieces_searched(draft: Draft, members: Sequence[Block]) -> dict[Label, int | None]:
    """The blocks that are an argmax or argmin along memory, each with the size of its pieces.

    That is `None` where a row is one piece. There are none where no vector fits into a row.
    """
    found: dict[Label, int | None] = {}
    for block in members:
        matched = match_updates(block)
        if matched is None or [is_extremum(u) for u in matched.updates] != [True]:
            continue
        last = reduced(block)[-1]
        if any(i.strides.get(last, 1) != 1 for i in inputs_of(block)):
            continue
        length = extents(block)[last]
        lanes = lanes_for(draft.target.vector_bits, outputs_of(block)[1].buffer.dtype, length)
        if lanes > 1:
            found[block.label] = _piece(length, lanes) if length >= LEAST else None
    return found


def _piece(length: int, lanes: int) -> int:
    """A size of pieces: about eight times as many elements as there would be pieces of that size.

    The maximum of a piece takes about as long as to look at so many elements. Of sizes near that,
    the one with which the fewest elements are read twice.
    """
    wanted = 8 * math.sqrt(length)
    step = UNROLLED * lanes
    sizes = [n for n in range(step, length, step) if 2 / 3 <= n / wanted <= 3 / 2] or [step]
    return min(sizes, key=lambda n: (-(-length // n) * n, abs(math.log(n / wanted))))


def search(
    sch: Schedule, labels: Sequence[Label], searched: Mapping[Label, int | None]
) -> list[Label]:
    """Compute the blocks `searched` from their extreme values. Returns all blocks in order."""
    found: list[Label] = []
    for label in labels:
        if label in searched:
            found += sch.locate_extremum(sch.get_block(label), searched[label])
        found.append(label)
    return found

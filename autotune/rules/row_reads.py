"""In which rows of each other blocks read what they write.

Stages of pipelines: spatial blocks that read windows of each other.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

from ...tir.ir import Block, Label, Var
from .access_patterns import inputs_of, loads
from .common import operations


def rows_read(
    block: Block, readers: list[Block], rows: Mapping[Label, list[Var]]
) -> list[Var] | None:
    """The variables of a block for rows, each of which is read in one row alone, if there are."""
    row_variables: list[Var] = []
    written = {write.buffer: write for write in block.writes}
    if len(written) < len(block.writes):
        return None
    for reader in readers:
        for region in reader.reads:
            write = written.get(region.buffer)
            if write is None:
                continue
            indices = [r.min for r in region.ranges]
            at = [
                next((d for d, e in enumerate(indices) if e is v), None) for v in rows[reader.label]
            ]
            places = [write.ranges[d].min for d in at if d is not None]
            variables = [e for e in places if type(e) is Var]
            if len(variables) < len(at) or (
                row_variables and any(map(operator.is_not, variables, row_variables))
            ):
                return None
            row_variables = variables
    return row_variables


def reads_own_rows(
    block: Block, variables: Sequence[Var], last: Block, rows: Sequence[Var]
) -> bool:
    """Whether `block` reads what `last` overwrites, if it does, only in the row it computes.

    `variables` number the rows of `block`, `rows` those of `last`.
    """
    for write in last.writes:
        indices = [r.min for r in write.ranges]
        at = [next((d for d, e in enumerate(indices) if e is v), None) for v in rows]
        for region in block.reads:
            if region.buffer is not write.buffer:
                continue
            read = [None if d is None else region.ranges[d].min for d in at]
            if len(read) != len(variables) or any(map(operator.is_not, read, variables)):
                return False
    return True


def cheap_stages(members: Sequence[Block]) -> list[Label]:
    """The stages that take no more than a load and an operation or two."""
    return [
        b.label
        for b in members[:-1]
        if sum(loads(b, i.buffer) for i in inputs_of(b)) <= 1 and operations(b) <= 2
    ]

"""Functions and branches, which are written out, and loops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ....graph.builder import Builder
from ....graph.ir import Value
from ...control import chosen, repeated
from ..table import TABLE, Op, hlo


@hlo("func.call", lifts=True)
def call(_b: Builder, op: Op) -> list[Value]:
    return op.program.function(op.attribute("callee"), op.operands, lifted=op.lifted)


@hlo("composite", lifts=True)
def composite(b: Builder, op: Op) -> Value | list[Value]:
    """An operation that the table has, else what it is decomposed into."""
    name = op.attribute("name")
    own = TABLE.get(name)
    if own is not None and (own.lifts or not op.lifted):
        found = own.translate(b, op)
        return found if isinstance(found, Value) else list(found)
    return op.program.function(op.attribute("decomposition"), op.operands, lifted=op.lifted)


@hlo("while")
def loop(b: Builder, op: Op) -> Sequence[Value]:
    """As often as known numbers say, such as those that `scan` and `fori_loop` count."""
    return repeated(b, op.program.apart, op.body, partial(op.body, place=1), op.operands)


@hlo("case", "if")
def branch(b: Builder, op: Op) -> Sequence[Value]:
    """The branch that is known to be taken; else all are computed, and one is chosen."""
    branches = [partial(op.body, (), k) for k in range(len(op.raw.regions))]
    if op.name == "if":
        return chosen(b, [op[0]], branches)
    places = range(len(branches) - 1)
    return chosen(b, [b.add("equal", op[0], b.constant(k, op[0].dtype)) for k in places], branches)


@hlo(
    "custom_call @Sharding", "custom_call @SPMDFullToShardShape",
    "custom_call @SPMDShardToFullShape", "optimization_barrier", "sdy.sharding_constraint",
)  # fmt: skip
def same(_b: Builder, op: Op) -> list[Value]:
    """What says where values lie, or when they are computed, changes nothing."""
    return list(op.operands)

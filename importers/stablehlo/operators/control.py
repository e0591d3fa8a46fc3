"""Functions and branches, which are written out, and loops."""

from __future__ import annotations

from collections.abc import Sequence

from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.ir import Constant, Value
from ...rolling import StepBuilder, Traced, rolled
from ...translation import UntranslatedError
from ...unsupported import Reason, Unsupported
from ..table import TABLE, Op, hlo

_MOST = 1024
"""Iterations of a loop that is written out."""


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
def loop(b: Builder, op: Op) -> list[Value]:
    """As often as known numbers say, such as those that `scan` and `fori_loop` count.

    One of many nodes becomes a loop of the graph, any other is written out.
    """

    def trace(step: StepBuilder, states: Sequence[Value]) -> Traced | None:
        try:
            with op.program.apart(step):
                (going,) = op.body(states)
                return going, op.body(states, 1)
        except (UntranslatedError, Unsupported, ModelError):  # told where it is written out
            return None

    found = rolled(b, trace, op.operands, None)
    if found is not None:
        return found
    state = list(op.operands)
    for _ in range(_MOST + 1):
        (going,) = op.body(state)
        if not isinstance(going, Constant):
            raise Unsupported(Reason.DATA_DEPENDENT, "the condition of a loop")
        if not going.data.item():
            return state
        state = op.body(state, 1)
    raise Unsupported(Reason.OPERATOR, f"a loop of more than {_MOST} iterations")


@hlo("case", "if")
def branch(b: Builder, op: Op) -> list[Value]:
    """The branch that is known to be taken; else all are computed, and one is chosen."""
    count = len(op.raw.regions)
    known = op.known(0)
    if known is not None:
        place = int(known.item())
        if op.name == "if":
            return op.body((), 0 if place else 1)
        return op.body((), place if 0 <= place < count else count - 1)
    results = [op.body((), k) for k in range(count)]
    if op.name == "if":
        chosen = [op[0]]
    else:
        chosen = [b.add("equal", op[0], b.constant(k, op[0].dtype)) for k in range(count - 1)]
    last = results[-1]
    for condition, own in zip(reversed(chosen), reversed(results[:-1]), strict=True):
        last = [b.add("where", condition, x, y) for x, y in zip(own, last, strict=True)]
    return last


@hlo(
    "custom_call @Sharding", "custom_call @SPMDFullToShardShape",
    "custom_call @SPMDShardToFullShape", "optimization_barrier", "sdy.sharding_constraint",
)  # fmt: skip
def same(_b: Builder, op: Op) -> list[Value]:
    """What says where values lie, or when they are computed, changes nothing."""
    return list(op.operands)

"""Functions and branches, which are written out, and loops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ....graph.builder import Builder
from ....graph.compose.complex import Complex
from ....graph.ir import Value
from ...control import chosen, repeated
from ..module import is_complex
from ..table import TABLE, Op, Tensor, hlo


@hlo("func.call", lifts=True)
def call(_b: Builder, op: Op) -> list[Tensor]:
    return op.program.function(op.attribute("callee"), op.given, lifted=op.lifted)


@hlo("composite", lifts=True)
def composite(b: Builder, op: Op) -> Tensor | Sequence[Tensor]:
    """An operation that the table has, else what it is decomposed into."""
    name = op.attribute("name")
    own = TABLE.get(name)
    if own is not None and (own.lifts or not op.lifted):
        return own.translate(b, op)
    return decomposed(b, op)


def decomposed(_b: Builder, op: Op) -> Sequence[Tensor]:
    return op.program.function(op.attribute("decomposition"), op.given, lifted=op.lifted)


def _flat(values: Sequence[Tensor]) -> list[Value]:
    """Values as graphs have them: parts of complex ones."""
    return [part for x in values for part in (x.parts if isinstance(x, Complex) else (x,))]


def _results(op: Op, flat: Sequence[Value]) -> list[Tensor]:
    """The inverse of `_flat` for values of the types of the results."""
    left = iter(flat)
    return [
        Complex(next(left), next(left)) if is_complex(result.type) else next(left)
        for result in op.raw.results
    ]


@hlo("while")
def loop(b: Builder, op: Op) -> Sequence[Tensor]:
    """As often as known numbers say, such as those that `scan` and `fori_loop` count."""

    def body(place: int, values: Sequence[Value]) -> list[Value]:
        return _flat(op.body(_results(op, values), place))

    parts = partial(body, 0), partial(body, 1)
    return _results(op, repeated(b, op.program.apart, *parts, _flat(op.given)))


@hlo("case", "if")
def branch(b: Builder, op: Op) -> Sequence[Tensor]:
    """The branch that is known to be taken; else all are computed, and one is chosen."""

    def body(place: int) -> list[Value]:
        return _flat(op.body((), place))

    branches = [partial(body, k) for k in range(len(op.raw.regions))]
    places = range(len(branches) - 1)
    here = (
        [op[0]]
        if op.name == "if"
        else [b.add("equal", op[0], b.constant(k, op[0].dtype)) for k in places]
    )
    return _results(op, chosen(b, here, branches))


@hlo(
    "custom_call @Sharding", "custom_call @SPMDFullToShardShape",
    "custom_call @SPMDShardToFullShape", "optimization_barrier", "sdy.sharding_constraint",
)  # fmt: skip
def same(_b: Builder, op: Op) -> Sequence[Tensor]:
    """What says where values lie, or when they are computed, changes nothing."""
    return op.given

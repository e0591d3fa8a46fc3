"""Loops and branches, as front ends have them.

What is known is followed: a loop of few nodes is written out, of many becomes a loop of the graph,
and of branches the one that is taken is translated. A branch that data decide is a choice among
results: all branches are computed, so none may do what is an error where it is not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

from ..base.errors import ModelError
from ..graph.builder import Builder
from ..graph.compose.basics import row, stacked
from ..graph.ir import Constant, Value
from ..graph.limits import open_limits
from ..graph.operator import Kind, find
from .rolling import StepBuilder, Traced, rolled
from .translation import UntranslatedError
from .unsupported import Reason, Unsupported

MOST_WRITTEN = 1024
"""Iterations of a loop that is written out."""

Body: TypeAlias = "Callable[[Sequence[Value]], Sequence[Value]]"
"""Translates a part of a program, of these values of its arguments."""

Apart: TypeAlias = "Callable[[Builder], AbstractContextManager[None]]"
"""Within it, bodies are translated into another builder, see `Translation.apart`."""


def repeated(
    b: Builder, apart: Apart, condition: Body, body: Body, states: Sequence[Value]
) -> Sequence[Value]:
    """The states after a loop that goes on as long as a condition of them holds.

    Raises `Unsupported` where data decide that, and for more than `MOST_WRITTEN` steps of a loop
    that is none of the graph.
    """

    def step(given: Sequence[Value]) -> Traced:
        (going,) = condition(given)
        return going, list(body(given))

    found = rolled(b, lambda inner, given: _traced(inner, apart, step, given), states)
    if found is not None:
        return found
    for _ in range(MOST_WRITTEN + 1):
        (going,) = condition(states)
        if not isinstance(going, Constant):
            raise Unsupported(Reason.DATA_DEPENDENT, "the condition of a loop")
        if not going.data.item():
            return states
        states = body(states)
    raise Unsupported(Reason.OPERATOR, f"a loop of more than {MOST_WRITTEN} iterations")


def scanned(
    b: Builder, apart: Apart, body: Body, states: Sequence[Value], rows: Sequence[Value]
) -> list[Value]:
    """The states after a step for each row of some values, and what the steps compute beside.

    A body takes the states, then a row of each value, along its first dimension; it returns the
    states, then what is stacked. Raises `ModelError` if the numbers of rows differ, `Unsupported`
    for none, and for more than `MOST_WRITTEN` of a loop that is none of the graph.
    """
    counts = {value.shape[0] for value in rows}
    if len(counts) != 1:
        raise ModelError("{0} inputs of a scan have {1} steps", len(rows), sorted(counts))
    (count,) = counts

    def step(inner: StepBuilder, given: Sequence[Value]) -> Traced | None:
        own = [inner.sliced(value) for value in rows]
        return _traced(inner, apart, lambda s: (None, list(body([*s, *own]))), given)

    found = rolled(b, step, states, count) if count else None
    if found is not None:
        return found
    if not 0 < count <= MOST_WRITTEN:
        raise Unsupported(Reason.OPERATOR, f"a scan of {count} steps, of at most {MOST_WRITTEN}")
    stacks: list[list[Value]] = []
    for place in range(count):
        made = body([*states, *(row(b, value, 0, place) for value in rows)])
        states, own = made[: len(states)], made[len(states) :]
        stacks = stacks or [[] for _ in own]
        for values, value in zip(stacks, own, strict=True):
            values.append(value)
    return [*states, *(stacked(b, values, 0) for values in stacks)]


def _traced(
    inner: StepBuilder,
    apart: Apart,
    step: Callable[[Sequence[Value]], Traced],
    states: Sequence[Value],
) -> Traced | None:
    """A step in a builder of its own, if it can be translated."""
    try:
        with apart(inner):
            return step(states)
    except (UntranslatedError, Unsupported, ModelError):  # told where it is written out
        return None


def chosen(
    b: Builder, conditions: Sequence[Value], branches: Sequence[Callable[[], Sequence[Value]]]
) -> Sequence[Value]:
    """The results of the first branch whose condition holds; the last branch has none.

    If that is known no other branch is translated, else all are computed. Raises `Unsupported` if
    one of these has an index that data may lead out of its limits, a demand, or a node of another
    program, which may fail where it is not taken, and if the types of their results differ.
    """
    last = len(branches) - 1
    for place, condition in enumerate(conditions):
        if not isinstance(condition, Constant):
            break
        if condition.data.item():
            return branches[place]()
    else:
        return branches[last]()
    before, demands = set(b.producers), len(b.demands)
    results = [list(branch()) for branch in branches]
    _check_total(b, before, [value for made in results for value in made])
    for demand in list(b.demands)[demands:]:
        raise Unsupported(
            Reason.DATA_DEPENDENT,
            f"a branch in which {demand.by} may fail: call it before the branch, "
            "or a function that returns numbers of failures instead",
        )
    found = results[last]
    for condition, made in zip(reversed(conditions), reversed(results[:last]), strict=True):
        if [value.type for value in made] != [value.type for value in found]:
            raise Unsupported(Reason.DATA_DEPENDENT, "the types of the results of a branch")
        found = [b.add("where", condition, x, y) for x, y in zip(made, found, strict=True)]
    return found


def _check_total(b: Builder, before: set[Value], results: Sequence[Value]) -> None:
    graph = b.graph({f"y{n}": value for n, value in enumerate(results)})
    unsafe = {*open_limits(graph)}
    unsafe |= {node for node in graph.nodes if find(node.operator).kind is Kind.FOREIGN}
    for node in graph.nodes:
        if node in unsafe and before.isdisjoint(node.outputs):
            raise Unsupported(
                Reason.DATA_DEPENDENT, f"a branch with {node.operator}, which may fail"
            )

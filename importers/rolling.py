"""Loops of formats that become loops of a graph: their body is translated once.

A body is traced: its operations are translated into a `StepBuilder`, for which the states are
values that nothing computes. What is known of the number of a step, such as counters and places
computed from these, is known for all steps at once. So rows that a step reads at its place, and
those it writes there, are recognised: they are sliced and stacked, and no step copies the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ..graph.builder import Builder
from ..graph.ir import Constant, TensorType, Value
from ..graph.limits import open_limits
from ..graph.operator import Array, Kind, find
from ..graph.text import MAX_WRITTEN

MOST_STEPS = 1 << 17
"""Iterations that are counted."""
WRITTEN_NODES = 1024
"""A loop that makes no more nodes than that is written out: its nodes may be joined with others."""


@dataclass(frozen=True)
class _Update:
    """A state is written along an axis, at the place of each step: these rows."""

    state: Value
    row: Value
    axis: int
    places: Array


class StepBuilder(Builder):
    """The body of a loop in the making, within a graph that is in the making.

    `known` are scalars of each step, such as counters.
    """

    def __init__(self, outer: Builder, count: int, known: Mapping[Value, Array]) -> None:
        super().__init__("step", outer.rules)
        self.outer = outer
        self.count = count
        self.states: set[Value] = set()
        self.whole: set[Value] = set()
        """States of which no rows are recognised."""
        self.rows: dict[Value, Value] = {}
        """What is sliced, by its rows."""
        self.updates: dict[Value, _Update] = {}
        """By the values that stand for the states after them."""
        self._known = dict(known)

    def has(self, value: object) -> bool:
        """Whether it is a value of the body, or of the graph around, which the body may read."""
        own = isinstance(value, Value) and value in {*self.states, *self.rows, *self.updates}
        return own or super().has(value) or self.outer.has(value)

    def known(self, value: Value) -> Array | None:
        """A number in all steps, if it is computed of what is known of them alone."""
        if isinstance(value, Constant):
            one = value.type.size == 1
            return np.broadcast_to(value.data.reshape(()), (self.count,)) if one else None
        if value not in self._known:
            node = self.producers.get(value)
            if node is None or value.type.size != 1 or len(node.outputs) > 1:
                return None
            given = [self.known(operand) for operand in node.inputs]
            arrays = [array for array in given if array is not None]
            record = find(node.operator)
            if len(arrays) < len(given):
                return None
            if record.kind is Kind.VIEW:
                self._known[value] = arrays[0]
            elif record.kind is Kind.POINTWISE:
                with np.errstate(all="ignore"):
                    (found,) = record.evaluate(arrays, node.attributes)
                self._known[value] = np.broadcast_to(found, (self.count,))
            else:
                return None
        return self._known[value]

    def row(self, x: Value, starts: Sequence[Value], sizes: Sequence[int]) -> Value | None:
        """A part of `x` that is one row of it in each step, if it is known which."""
        axes = [d for d, size in enumerate(sizes) if size < x.shape[d]]
        inside = x in self.producers or x in self.states or x in self.rows or x in self.updates
        if inside or len(axes) != 1:
            return None
        (axis,) = axes
        places = self._places(starts[axis], x.shape[axis] - 1)
        if sizes[axis] != 1 or places is None:
            return None
        b = self.outer
        rows = x if _is_order(places, x.shape[axis]) else b.add(
            "take", x, b.constant(places, "int64"), axis=axis
        )  # fmt: skip
        row = self.sliced(moved(b, rows, axis, 0))
        return self.add("reshape", row, shape=tuple(sizes))

    def sliced(self, rows: Value) -> Value:
        """The row of each step of a value of the graph around."""
        row = next((own for own, whole in self.rows.items() if whole is rows), None)
        if row is None:
            row = Value(TensorType(rows.dtype, rows.shape[1:]))
            self.rows[row] = rows
        return row

    def update(self, x: Value, own: Value, starts: Sequence[Value]) -> Value | None:
        """A state with another row at a place, if all rows of it are written so, each once."""
        axes = [d for d in range(x.type.rank) if own.shape[d] < x.shape[d]]
        if x not in self.states or x in self.whole or len(axes) != 1:
            return None
        (axis,) = axes
        places = self._places(starts[axis], x.shape[axis] - 1)
        if places is None or own.shape[axis] != 1:
            return None
        if not np.array_equal(np.sort(places), np.arange(x.shape[axis])):
            return None
        shape = tuple(extent for d, extent in enumerate(x.shape) if d != axis)
        after = Value(x.type)
        row = self.add("reshape", own, shape=shape)
        self.updates[after] = _Update(x, row, axis, places)
        return after

    def stack(self, update: _Update, rows: Value) -> Value:
        """A state after all steps, of the rows of each."""
        b = self.outer
        if not _is_order(update.places, len(update.places)):
            order = np.argsort(update.places)
            rows = b.add("take", rows, b.constant(order, "int64"), axis=0)
        return moved(b, rows, 0, update.axis)

    def _places(self, start: Value, last: int) -> Array | None:
        known = self.known(start)
        return None if known is None else np.clip(known.astype(np.int64), 0, last)

    def looped(
        self, states: Sequence[Value], initial: Sequence[Value], results: Sequence[Value]
    ) -> tuple[Value, ...] | None:
        """The states after all steps, and the stacked results that come after the states.

        `None` for a body that no loop may have, see `graph/operators/loop.py`.
        """
        made = self.graph({f"y{n}": value for n, value in enumerate(results)})
        body = Builder("step")
        new: dict[Value, Value] = {}
        given = list[Value]()
        used = [*(v for node in made.nodes for v in node.inputs), *results]
        rows = {row: whole for row, whole in self.rows.items() if row in used}
        for value in (*states, *rows):
            new[value] = body.input(f"x{len(new)}", value.type)
        for value in used:
            if value in new or value in self.producers:
                continue
            if isinstance(value, Constant) and _is_written(value):
                new[value] = body.constant(value.data)
            else:
                new[value] = body.input(f"x{len(new)}", value.type)
                given.append(value)
        for node in made.nodes:
            outputs = body.copy(node, [new[value] for value in node.inputs])
            new.update(zip(node.outputs, outputs, strict=True))
        step = body.graph({f"y{n}": new[value] for n, value in enumerate(results)})
        foreign = any(find(n.operator).kind is Kind.FOREIGN for n in step.nodes)
        if self.demands or open_limits(step) or foreign:
            return None
        return self.outer.add_all(
            "loop", *initial, *rows.values(), *given,
            body=str(step), count=self.count, carried=len(states), sliced=len(rows),
        )  # fmt: skip


def _is_written(value: Constant) -> bool:
    """Whether the text of a graph has its elements."""
    return value.type.size <= MAX_WRITTEN and not np.isnan(value.data.astype(np.float64)).any()


def _is_order(places: Array, extent: int) -> bool:
    return np.array_equal(places, np.arange(extent))


def moved(b: Builder, x: Value, source: int, destination: int) -> Value:
    """`x` with an axis elsewhere."""
    axes = [d for d in range(x.type.rank) if d != source]
    axes.insert(destination, source)
    return x if source == destination else b.add("transpose", x, axes=tuple(axes))


Traced: TypeAlias = "tuple[Value | None, list[Value]]"
"""The condition of another step, and the states after a step, then what is stacked."""
Trace: TypeAlias = Callable[[StepBuilder, Sequence[Value]], "Traced | None"]
"""Translates a body into a builder, of its states. `None` if it cannot be translated so."""


def rolled(
    outer: Builder,
    trace: Trace,
    initial: Sequence[Value],
    most: int | None = None,
    *,
    until: bool = False,
) -> list[Value] | None:
    """The states after a loop, and what is stacked, of which the body is translated once.

    It ends before a step for which the condition does not hold, with `until` after it, or after
    `most` steps. `None` where it is better written out, or the number of steps is not known.
    """
    found = _counted(outer, trace, initial, most, until=until)
    if found is None:
        return None
    count, constant, counters = found
    whole = set[int]()
    while True:
        known, states = dict[Value, Array](), list[Value]()
        b = StepBuilder(outer, count, known)
        for n, value in enumerate(initial):
            if n in counters:
                numbers = _numbers(value, counters[n], count)
                states.append(b.sliced(outer.constant(numbers, value.dtype)))
                b._known[states[-1]] = numbers
            else:
                states.append(value if n in constant else Value(value.type))
        own = [n for n in range(len(initial)) if n not in counters and n not in constant]
        b.states = {states[n] for n in own}
        b.whole = {states[n] for n in whole}
        traced = trace(b, states)
        if traced is None:
            return None
        _, made = traced
        stacked = {
            n: b.updates[made[n]] for n in own
            if made[n] in b.updates and b.updates[made[n]].state is states[n]
        }  # fmt: skip
        rows = [update.row for update in stacked.values()]
        carried = [n for n in own if n not in stacked]
        results = [*(made[n] for n in carried), *rows, *made[len(initial) :]]
        used = _used(b, results)
        wrong = {n for n in own if n not in whole and states[n] in used and n in stacked}
        wrong |= {states.index(u.state) for after, u in b.updates.items() if after in used}
        if not wrong:
            break
        whole |= wrong
    looped = b.looped([states[n] for n in carried], [initial[n] for n in carried], results)
    if looped is None:
        return None
    final = dict(zip(carried, looped, strict=False))
    rest = looped[len(carried) :]
    final |= {n: b.stack(u, r) for (n, u), r in zip(stacked.items(), rest, strict=False)}
    for n, step in counters.items():
        final[n] = outer.constant(_numbers(initial[n], step, count + 1)[-1], initial[n].dtype)
    states_after = [final.get(n, value) for n, value in enumerate(initial)]
    return [*states_after, *rest[len(stacked) :]]


def _used(b: StepBuilder, results: Sequence[Value]) -> set[Value]:
    graph = b.graph({f"y{n}": value for n, value in enumerate(results)})
    return {*results, *(value for node in graph.nodes for value in node.inputs)}


def _counted(
    outer: Builder, trace: Trace, initial: Sequence[Value], most: int | None, *, until: bool
) -> tuple[int, set[int], dict[int, Constant]] | None:
    """How many steps there are, which states stay as they are, and what is added to counters."""
    trial = StepBuilder(outer, MOST_STEPS + 1, {})
    states = [Value(value.type) for value in initial]
    trial.states = trial.whole = set(states)
    traced = trace(trial, states)
    if traced is None:
        return None
    going, made = traced
    if any(value.type != after.type for value, after in zip(states, made, strict=False)):
        return None  # a list that grows, as a tensor
    constant = {n for n, value in enumerate(states) if made[n] is value}
    counters = {
        n: step for n, value in enumerate(states)
        if isinstance(initial[n], Constant)
        and (step := _step(trial, value, made[n])) is not None
    }  # fmt: skip
    nodes = len(trial.producers)
    count = MOST_STEPS + 1 if most is None else min(most, MOST_STEPS + 1)
    if going is not None:
        for n, step in counters.items():
            trial._known[states[n]] = _numbers(initial[n], step, trial.count)
        for n in constant:
            if isinstance(initial[n], Constant) and initial[n].type.size == 1:
                value = initial[n].data.reshape(())  # type: ignore[attr-defined]
                trial._known[states[n]] = np.broadcast_to(value, (trial.count,))
        holds = trial.known(going)
        if holds is None:
            return None
        ends = np.flatnonzero(~holds.astype(bool))
        count = min(count, int(ends[0]) + until if len(ends) else count)
    if not 0 < count <= MOST_STEPS or count * nodes <= WRITTEN_NODES:
        return None
    return count, constant, counters


def _step(b: StepBuilder, state: Value, after: Value) -> Constant | None:
    """What is added to a state in each step, if it counts."""
    node = b.producer(after, "add")
    if node is None or state.shape or state.dtype not in ("int32", "int64"):
        return None
    others = [value for value in node.inputs if value is not state]
    return others[0] if len(others) == 1 and isinstance(others[0], Constant) else None


def _numbers(first: Value, step: Constant, count: int) -> Array:
    """A counter before each of so many steps; it wraps around."""
    assert isinstance(first, Constant)
    own = first.data.reshape(())
    numbers: Array = own + np.arange(count) * int(step.data.item())
    return numbers.astype(own.dtype)

"""Which sketch a recorded trace is like, and the rows of it that are nearest to the trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import combinations
from typing import Any

import numpy as np

from ...schedule import Trace
from ...schedule.step_arguments import Derived, Ref
from ..model.cost_model import Floats
from .candidates import Rows, Rowspace
from .sketch import Sketch

ALIKE = 0.6
"""The share of steps that a record has in common with a sketch, at least."""
NEAREST = 4
"""Rows that stand in for one that is refused."""
OPEN = 256
"""Rows that are tried where decisions have no counterpart in the record."""


def like(trace: Trace, generator: str, available: Sequence[Sketch]) -> int | None:
    """The sketch of the same generator, else the one whose steps are most like those of a trace.

    One of the same generator whose steps are not alike is of a rule that has changed since.
    """
    best: tuple[bool, float, int] | None = None
    for place, sketch in enumerate(available):
        alike = _matcher(trace, sketch.trace).ratio()
        rank = (sketch.generator == generator, alike, -place)
        if alike >= ALIKE and (best is None or rank > best):
            best = rank
    return None if best is None else -best[2]


def counterparts(trace: Trace, sketch: Trace) -> list[int | None]:
    """The trace's value of each decision of a sketch; `None` where it has no counterpart."""
    given: dict[int, tuple[int | None, ...]] = {}
    for a, b, size in _matcher(trace, sketch).get_matching_blocks():
        given |= {b + n: trace.steps[a + n].decision for n in range(size)}
    return [
        value
        for k, decision in sketch.decisions.items()
        for value in given.get(k, (None,) * len(decision))
    ]


def _matcher(trace: Trace, other: Trace) -> SequenceMatcher[Any]:
    return SequenceMatcher(None, _tokens(trace), _tokens(other), autojunk=False)


SIZED = {
    "split": "factors",
    "tile": "factors",
    "prefetch": "offset",
    "transform_block_layout": "index_map",
    "transform_layout": "index_map",
}
"""Arguments that are sizes, in steps that sample nothing."""


def _tokens(trace: Trace) -> list[tuple[Any, ...]]:
    """The steps without handles, decisions and sizes.

    Sampling steps are identified by where their results are used.
    """
    goes: dict[int, set[tuple[Any, ...]]] = {}
    for step in trace.steps:
        for name, value in step.arguments:
            for output, path in _outputs_in(value):
                goes.setdefault(output, set()).add((step.op, name, *path))
    tokens: list[tuple[Any, ...]] = []
    outputs_before = 0
    for step in trace.steps:
        if step.decision:
            outputs = range(outputs_before, outputs_before + len(step.outputs))
            tokens.append((step.op, *(frozenset(goes.get(n, ())) for n in outputs)))
        else:
            sized = SIZED.get(step.op)
            kept = tuple((n, None if n == sized else _blind(v)) for n, v in step.arguments)
            tokens.append((step.op, kept))
        outputs_before += len(step.outputs)
    return tokens


def _outputs_in(value: Any) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The outputs that an argument refers to, each with its place in lists and their lengths."""
    if type(value) is Ref:
        yield value.index, ()
    elif type(value) is Derived:
        yield from _outputs_in(value.args)
    elif isinstance(value, (list, tuple)):
        for n, part in enumerate(value):
            yield from ((output, (n, len(value), *path)) for output, path in _outputs_in(part))


def _blind(value: Any) -> Any:
    if type(value) is Ref:
        return value.kind
    if type(value) is Derived:
        return value.op, _blind(value.args)
    if isinstance(value, (list, tuple)):
        return tuple(_blind(v) for v in value)
    return value


def near(space: Rowspace, wanted: Sequence[int | None]) -> Rows:
    """Good rows that have the values wanted, or the nearest to them, the nearest first.

    `None` stands for any value. As few decisions as possible get other values, at most two.
    """
    choices = [
        values[::-1][:: -(-len(values) // OPEN)][::-1]
        if want is None
        else values[[int(np.argmin(_apart(values, want)))]]
        for values, want in zip(space.values, wanted, strict=True)
    ]
    start = _grid(choices)
    for count in range(3):
        base = start[:NEAREST] if count == 2 else start
        moved = combinations(range(len(space.values)), count)
        changed = (_with(base, {d: space.values[d] for d in decisions}) for decisions in moved)
        good = space.good(np.concatenate([start[:0], *changed]))
        if len(good):
            apart = np.zeros(len(good))
            for d, want in enumerate(wanted):
                if want is not None:
                    apart += _apart(good[:, d], want)
            return good[np.argsort(apart, kind="stable")[: NEAREST if count else OPEN]]
    return start[:0]


def _apart(values: Rows, wanted: int) -> Floats:
    apart: Floats = np.abs(np.log2((values + 1.0) / (wanted + 1.0)))
    return apart


def _grid(choices: Sequence[Rows]) -> Rows:
    """The combinations of choices, spread evenly where there are more than `OPEN`."""
    if not choices:
        return np.empty((1, 0), dtype=np.int64)
    grids = np.meshgrid(*choices, indexing="ij")
    rows = np.stack([g.ravel() for g in grids], axis=1)
    return rows[:: -(-len(rows) // OPEN)]


def _with(rows: Rows, moved: dict[int, Rows]) -> Rows:
    """Each row with each combination of other values of some decisions."""
    changes = _grid(list(moved.values()))
    changed = np.repeat(rows, len(changes), axis=0)
    changed[:, list(moved)] = np.tile(changes, (len(rows), 1))
    return changed

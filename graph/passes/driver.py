"""Running the passes one after the other, and comparing a graph with what a pass made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...base import dtypes
from ...base.errors import GuardError, ModelError, VerifyError
from ...tir.node import CHECK
from ..builder import Rules, rebuilt
from ..ir import Graph, TensorType
from ..operator import Array
from . import integers, movement, precision, rows, weights
from .rules import EPSILON

MAX_ROUNDS = 16
"""How often a graph is rebuilt by one pass, if its rules still answer."""


@dataclass(frozen=True)
class Pass:
    """Rules that are applied until none answers.

    Outputs stay equal, or within `roundings` of the largest, by the narrowest float of the graph.
    """

    name: str
    rules: Rules
    roundings: int = 0

    def run(self, graph: Graph) -> tuple[Graph, Counter[str]]:
        """The graph with the rules applied, and how often each was; the same if none was."""
        counts = Counter[str]()
        for _ in range(MAX_ROUNDS):
            new, found = rebuilt(graph, {**movement.VIEWS, **self.rules})
            if not found and len(new.nodes) == len(graph.nodes):
                break
            graph = new
            counts += found
            if not found:
                break
        return graph, counts


PASSES = (
    Pass("integers", integers.RULES, roundings=16),
    Pass("algebra", movement.ALGEBRA),
    Pass("movement", movement.RULES),
    Pass("lookups", weights.LOOKUPS, roundings=256),
    Pass("activations", rows.ACTIVATIONS, roundings=16),
    Pass("rows", rows.RULES, roundings=16),
    Pass("attention", rows.ATTENTION, roundings=16),
    Pass("precision", precision.RULES, roundings=4),
    Pass("weights", weights.RULES, roundings=256),
)
"""All passes, in their order."""


@dataclass(frozen=True)
class Stage:
    """A graph after a pass, and how often each rule of it was applied."""

    name: str
    graph: Graph
    applied: Mapping[str, int]


def stages(graph: Graph) -> tuple[Stage, ...]:
    """The graph after each pass.

    With `TILEWRIGHT_CHECK=1` each is compared with the one before: see `compare`.
    """
    found = list[Stage]()
    for each in PASSES:
        new, counts = each.run(graph)
        if CHECK and new is not graph:
            compare(each, graph, new)
        graph = new
        found.append(Stage(each.name, graph, counts))
    return tuple(found)


_FLOAT64 = 1e-12
"""How much outputs may differ where all is computed in float64."""


def compare(by: Pass, before: Graph, after: Graph) -> None:
    """Raise `VerifyError` with the pass and its wrong rules if the graphs differ.

    Both are computed by their references in float64. Integers have to be equal.
    """
    name = _difference(before, after, by.roundings)
    if name is None:
        return
    wrong = list[str]()
    for rule in dict.fromkeys(rule for rules in by.rules.values() for rule in rules):
        only = {op: [rule] for op, rules in by.rules.items() if rule in rules}
        if _difference(before, rebuilt(before, only)[0], by.roundings) is not None:
            wrong.append(rule.__name__)
    raise VerifyError(
        "the pass {0} changes the output {1} by the rules {2}",
        by.name, name, ", ".join(wrong) or "together", rules=wrong,
    )  # fmt: skip


def _difference(before: Graph, after: Graph, roundings: int) -> str | None:
    """The first output that differs."""
    epsilon = max((EPSILON.get(v.dtype, 0) for v in before.values()), default=0)
    tolerance = max(roundings * epsilon, _FLOAT64)
    given = random_inputs(before)
    with np.errstate(all="ignore"):
        try:
            wanted = _run(before, given)
        except (GuardError, ModelError):  # 0 is an index wherever there is one
            given = [a if a.dtype.kind not in "iu" else np.zeros_like(a) for a in given]
            try:
                wanted = _run(before, given)
            except (GuardError, ModelError):
                # A mask has to have a number of elements, say, or ONNX's evaluator lacks a case.
                return None
        pairs = zip(wanted, _run(after, given), strict=True)
        for name, (a, b) in zip(before.outputs, pairs, strict=True):
            if a.dtype != b.dtype or a.shape != b.shape or not _close(a, b, tolerance):
                return name
    return None


def _run(graph: Graph, given: list[Array]) -> tuple[Array, ...]:
    return graph.reference(*given, dtype="float64")


def _close(a: Array, b: Array, tolerance: float) -> bool:
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    finite = np.abs(a[np.isfinite(a)])
    scale = float(finite.max()) if finite.size else 1.0
    return np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def random_inputs(graph: Graph) -> list[Array]:
    """Normally distributed floats, and integers 0 or 1, mostly valid indices and lengths."""
    rng = np.random.default_rng(0)
    return [_random(value.type, rng) for value in graph.inputs.values()]


def _random(type: TensorType, rng: np.random.Generator) -> Array:
    dtype = dtypes.to_numpy(type.dtype)
    if dtypes.is_float(type.dtype):
        return rng.standard_normal(type.shape).astype(dtype)
    return rng.integers(0, 2, type.shape).astype(dtype)

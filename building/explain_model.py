"""Where a build would take the schedule of each kernel of a graph from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..base.display import html
from ..base.text import count
from ..graph.ir import Graph
from ..runtime.module import Origin
from ..target import Target
from ..tuning_db import Explanation, TuningDatabase
from .choose import POLICIES, Choices, explained


@dataclass(frozen=True)
class ExplainedKernel:
    """A kernel of a graph: how often a call runs it, and where a build takes its schedule from.

    `lookup` says which records were considered. Where the schedule of `origin` fails when it is
    compiled, a build takes the next one.
    """

    name: str
    runs: int
    origin: Origin
    lookup: Explanation


@dataclass(frozen=True)
class GraphExplanation:
    """The kernels of a graph, those that are run most often first; `str()` lists them."""

    graph: str
    kernels: tuple[ExplainedKernel, ...]

    @property
    def summary(self) -> str:
        """How many kernels have a schedule of each kind: `3 kernels: 2 record, 1 model`."""
        return by_kind([kernel.origin for kernel in self.kernels])

    _repr_html_ = html

    def __str__(self) -> str:
        lines = [f"{k.name} ({k.runs}x): {k.origin}" for k in self.kernels]
        return "\n".join([f"{self.graph}, {self.summary}", *lines])

    def __repr__(self) -> str:
        return f"<GraphExplanation of {self.graph}, {self.summary}; print it>"


def explain_graph(
    graph: Graph, target: Target, database: TuningDatabase, tolerance: float | None
) -> GraphExplanation:
    """See `tw.explain`; the target is resolved."""
    found = [
        ExplainedKernel(
            func.name,
            runs,
            next(Choices(func, target, database, POLICIES, tolerance)).origin,
            explained(func, target, database, tolerance),
        )
        for func, runs in graph.kernels().items()
    ]
    return GraphExplanation(graph.name, tuple(sorted(found, key=lambda kernel: -kernel.runs)))


def by_kind(origins: list[Origin]) -> str:
    """`3 kernels: 2 record, 1 model`."""
    kinds = Counter(origin.kind for origin in origins)
    told = ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds, key=POLICIES.index))
    return f"{count(len(origins), 'kernel')}: {told}" if told else "no kernels"

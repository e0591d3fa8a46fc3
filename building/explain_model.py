"""Where a build would take the schedule of each kernel from, of a graph or of a program."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.display import html
from ..graph.parts import Partition
from ..runtime.module import Origin
from ..target import Target
from ..tir.ir import Func
from ..tuning_db import Explanation, TuningDatabase
from .build_program import Ways, pieces_of
from .choose import POLICIES, explained
from .origins import by_kind


@dataclass(frozen=True)
class ExplainedKernel:
    """A kernel: how often a call runs it, and where a build takes its schedule from.

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


@dataclass(frozen=True)
class ProgramExplanation(Explanation):
    """The explanation of a program that is built as several kernels: of these, and of the records
    of the program as one, which is built where they are better."""

    kernels: tuple[ExplainedKernel, ...] = ()

    def __str__(self) -> str:
        lines = [f"  {kernel.name}: {kernel.origin}" for kernel in self.kernels]
        together = by_kind([kernel.origin for kernel in self.kernels])
        return "\n".join([Explanation.__str__(self), f"built as {together}", *lines])


def explain_program(
    func: Func, target: Target, database: TuningDatabase, tolerance: float | None
) -> Explanation:
    """See `tw.explain`; the target is resolved."""
    whole = explained(func, target, database, tolerance)
    ways = Ways(target, database, POLICIES, tolerance)
    pieces = pieces_of(func, ways)
    if not pieces:
        return whole
    kernels = tuple(_explained(piece.func, 1, ways) for piece in pieces)
    return ProgramExplanation(**vars(whole), kernels=kernels)


def explain_graph(
    partition: Partition, target: Target, database: TuningDatabase, tolerance: float | None
) -> GraphExplanation:
    """See `tw.explain`; the target is resolved."""
    ways = Ways(target, database, POLICIES, tolerance)
    found = [_explained(func, runs, ways) for func, runs in partition.kernels().items()]
    return GraphExplanation(
        partition.graph.name, tuple(sorted(found, key=lambda kernel: -kernel.runs))
    )


def _explained(func: Func, runs: int, ways: Ways) -> ExplainedKernel:
    assert ways.database is not None
    lookup = explained(func, ways.target, ways.database, ways.tolerance)
    return ExplainedKernel(func.name, runs, next(ways.choices(func)).origin, lookup)

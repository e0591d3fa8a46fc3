"""Building a graph: its groups become kernels, and these one program with an entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..base.text import count
from ..codegen.build import to_module
from ..codegen.compiled import Compiled
from ..codegen.generator import generator_for
from ..codegen.sequence import joined
from ..graph.groups import divide
from ..graph.ir import Constant, Graph
from ..graph.lower import lowered_all
from ..runtime.model import Model
from ..runtime.module import Origin
from ..target import Target
from ..tuning_db import TuningDatabase
from .choose import POLICIES, Choice, Choices
from .compile_all import compile_all
from .model_steps import root, steps_of
from .weights import Weights


@dataclass(frozen=True)
class BuiltGraph:
    """The compiled program of a graph, and the choices of its kernels by their names."""

    compiled: Compiled
    choices: Mapping[str, Choice]

    @property
    def kernels(self) -> dict[str, Origin]:
        """Where the schedules of the kernels come from."""
        return {name: choice.origin for name, choice in self.choices.items()}

    @property
    def origin(self) -> Origin:
        """The least certain origin of a kernel, and how many are of each kind."""
        kinds = Counter(origin.kind for origin in self.kernels.values())
        if not kinds:
            return Origin("schedule", detail="without kernels")
        found = sorted(kinds, key=POLICIES.index)
        told = ", ".join(f"{kinds[kind]} {kind}" for kind in found)
        return Origin(found[-1], detail=f"of {count(kinds.total(), 'kernel')}: {told}")


def build_graph(
    graph: Graph, target: Target, database: TuningDatabase | None, allow: Sequence[str],
    *, jobs: int | None = None, strict_fp: bool = False, tolerance: float | None = None,
) -> Model:  # fmt: skip
    """Compile a graph for a resolved target and load it; see `tw.build`."""
    built = compile_graph(
        graph, target, database, allow, jobs=jobs, strict_fp=strict_fp, tolerance=tolerance
    )
    assert built.compiled.weights is not None
    return Model(to_module(built.compiled, built.origin), built.compiled.weights, built.kernels)


def compile_graph(
    graph: Graph,
    target: Target,
    database: TuningDatabase | None = None,
    allow: Sequence[str] = POLICIES,
    *,
    jobs: int | None = None,
    strict_fp: bool = False,
    tolerance: float | None = None,
) -> BuiltGraph:
    """Compile a graph for a resolved target; see `tw.build`."""
    groups = divide(graph)
    funcs = lowered_all(groups)
    distinct = {func.name: func for func in funcs}
    choices = [Choices(f, target, database, allow, tolerance) for f in distinct.values()]
    made = compile_all(choices, target, jobs=jobs, strict_fp=strict_fp)
    chosen = {name: choice for name, (choice, _) in zip(distinct, made, strict=True)}
    kernels: dict[str, Compiled] = {
        name: compiled for name, (_, compiled) in zip(distinct, made, strict=True)
    }
    called = [kernels[func.name] for func in funcs]
    weights = Weights()
    weights.take(groups, called)
    for value in graph.outputs.values():
        held = root(graph, value)
        if isinstance(held, Constant):
            weights.take_plain(held)
    name = generator_for(target).function_name(graph.name)
    plan = steps_of(graph, groups, called, weights, name)
    where = called[0].target if called else target
    compiled = joined(plan.signature, plan.steps, where)
    return BuiltGraph(replace(compiled, weights=weights.content()), chosen)

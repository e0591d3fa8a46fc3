"""Building a graph: its groups become kernels, and these one program with an entry."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..codegen.build import to_module
from ..codegen.compiled import Compiled
from ..codegen.sequence import joined
from ..graph.groups import divide
from ..graph.ir import Constant, Graph
from ..graph.lower import lowered_all
from ..runtime.model import Model
from ..runtime.module import Origin
from ..target import Target
from ..tuning_db import TuningDatabase
from .choose import POLICIES, Choices
from .compile_all import compile_all
from .model_steps import root, steps_of
from .weights import Weights


def build_graph(
    graph: Graph,
    target: Target,
    database: TuningDatabase | None = None,
    allow: Sequence[str] = POLICIES,
    *,
    jobs: int | None = None,
    strict_fp: bool = False,
    tolerance: float | None = None,
) -> Model:
    """Compile a graph for a resolved target; see `tw.build`."""
    groups = divide(graph)
    funcs = lowered_all(groups)
    distinct = {func.name: func for func in funcs}
    choices = [Choices(f, target, database, allow, tolerance) for f in distinct.values()]
    made = compile_all(choices, target, jobs=jobs, strict_fp=strict_fp)
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
    plan = steps_of(graph, groups, called, weights, _c_name(graph.name))
    where = called[0].target if called else target
    module = to_module(joined(plan.signature, plan.steps, where), Origin("schedule"))
    return Model(module, weights.content() if weights.bytes else None)


def _c_name(name: str) -> str:
    plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "model"
    return f"model_{plain}" if plain[0].isdigit() else plain

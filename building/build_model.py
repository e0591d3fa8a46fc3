"""Building a graph: its groups become kernels, and these one program with an entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..base.errors import BuildError, NotTunedError
from ..codegen.build import to_module
from ..codegen.compiled import Compiled
from ..codegen.generator import generator_for
from ..codegen.sequence import Address, Function, SequenceStep, Stamp, joined
from ..graph.groups import divide
from ..graph.ir import Constant, Graph, Value
from ..graph.loops import kernel_groups
from ..graph.lower import lowered_all
from ..runtime.model import Array, Model
from ..runtime.module import Origin
from ..runtime.profile import STAMP_BYTES, Instrumented, signatures
from ..target import Target
from ..tir.node import CHECK
from .build_program import Ways
from .choose import POLICIES, Choice
from .compile_all import compile_all
from .loops import loop_kernels, take_constants
from .model_cache import kept_model
from .model_evidence import BuiltEvidence, evidence_of
from .model_steps import Steps, poisoned, root, steps_of
from .origins import not_tuned, together
from .stages import Stages
from .weights import Weights

if TYPE_CHECKING:
    from ..tir.ir import Func
    from ..tuning_db import TuningDatabase
    from .lock_file import LockFile


@dataclass(frozen=True)
class BuiltGraph:
    """The compiled program of a graph, and the choices of its kernels by their names.

    `evidence` and `instrumented` are what models have, made when they are asked for. `stage` counts
    the seconds of the build. `functions` are those of the image, the entry first.
    """

    compiled: Compiled
    functions: tuple[Function, ...]
    choices: Mapping[str, Choice]
    evidence: BuiltEvidence
    instrumented: Callable[[], Instrumented]
    stage: Stages

    @property
    def kernels(self) -> dict[str, Origin]:
        """Where the schedules of the kernels come from."""
        return {name: choice.origin for name, choice in self.choices.items()}

    @property
    def origin(self) -> Origin:
        """The least certain origin of a kernel, and how many are of each kind."""
        return together(self.kernels.values())


def build_graph(
    graph: Graph, target: Target, database: TuningDatabase | None = None,
    allow: Sequence[str] = POLICIES, *, jobs: int | None = None, strict_fp: bool = False,
    tolerance: float | None = None, locked: LockFile | None = None, require_tuned: bool = False,
) -> Model:  # fmt: skip
    """Compile a graph for a resolved target and load it; see `tw.build`.

    One that was built before comes from the disk; see `model_cache.py`.
    """
    ways = Ways(target, database, allow, tolerance, strict_fp, locked, require_tuned)
    kept = kept_model(graph, ways)
    known = None if kept is None else kept.recalled()
    if known is not None:
        for value in graph.constants:
            value.check()
        return known
    with nullcontext() if kept is None else kept.watched():
        built = compile_graph(
            graph, target, database, allow, jobs=jobs, strict_fp=strict_fp, tolerance=tolerance,
            locked=locked, require_tuned=require_tuned, profiled=kept is not None,
            lowered=None if kept is None else kept.note,
        )  # fmt: skip
    if kept is not None:
        kept.keep(built)
    assert built.compiled.weights is not None
    with built.stage("link"):
        module = to_module(built.compiled, built.origin)
    return Model(
        module, built.compiled.weights, built.kernels, built.evidence, built.instrumented,
        guards=built.compiled.guards,
    )  # fmt: skip


def compile_graph(  # noqa: PLR0913 - each option of a build has a name
    graph: Graph,
    target: Target,
    database: TuningDatabase | None = None,
    allow: Sequence[str] = POLICIES,
    *,
    jobs: int | None = None,
    strict_fp: bool = False,
    tolerance: float | None = None,
    locked: LockFile | None = None,
    require_tuned: bool = False,
    profiled: bool = False,
    lowered: Callable[[Sequence[Func]], None] | None = None,
) -> BuiltGraph:
    """Compile a graph for a resolved target; see `tw.build`.

    The image of one that is `profiled` has the functions that a profile calls, as files need them.
    `lowered` is called with the programs of its kernels, before their schedules are chosen.
    """
    if not generator_for(target).joins:
        raise BuildError(
            "{0}: models are built for processors, found {1}", graph.name, target,
            hint='a device runs parts: tw.build(graph, "cpu", providers=["cuda", "tilewright"])',
        )  # fmt: skip
    ways = Ways(target, database, allow, tolerance, strict_fp, locked, require_tuned)
    found = kernels_and_steps(graph, ways, jobs=jobs, lowered=lowered)
    plan, stage = found.plan, found.stage
    with stage("link"):
        steps = tuple(poisoned(plan)) if CHECK else plan.steps
        beside = functions(plan) if profiled else ()
        compiled = replace(
            joined(plan.signature, steps, found.target, beside),
            weights=found.weights, profiled=len(plan.steps) if profiled else None,
        )  # fmt: skip
    return BuiltGraph(
        compiled,
        ((plan.signature, steps), *beside),
        found.choices,
        found.evidence,
        partial(instrumented, plan, found.target),
        stage,
    )


@dataclass(frozen=True)
class KernelsAndSteps:
    """The compiled kernels of a graph for a target, and the steps that call them.

    `choices` are those of the kernels by name; for the rest see `BuiltGraph`.
    """

    plan: Steps[Value]
    target: Target
    weights: Array
    choices: Mapping[str, Choice]
    evidence: BuiltEvidence
    stage: Stages


def kernels_and_steps(
    graph: Graph,
    ways: Ways,
    *,
    jobs: int | None = None,
    lowered: Callable[[Sequence[Func]], None] | None = None,
) -> KernelsAndSteps:
    """Divide a graph, and compile its kernels; for the parameters see `compile_graph`."""
    target, stage = ways.target, Stages()
    given = graph.constants
    with stage("optimize"):
        rewrites, graph = graph.rewrites(), graph.optimized()
    with stage("divide"):
        groups = divide(graph)
        often = dict(kernel_groups(groups))
        inner = [*often]
    with stage("lower"):
        funcs = lowered_all(inner)
    distinct = [*dict.fromkeys(funcs)]
    if lowered is not None:
        lowered(distinct)
    runs: Counter[Func] = Counter()
    for func, times in zip(funcs, often.values(), strict=True):
        runs[func] += times
    ways.check([(graph.name, runs)])
    choices = [*map(ways.choices, distinct)]
    try:
        made = compile_all(choices, target, jobs=jobs, strict_fp=ways.strict_fp, stage=stage)
    except NotTunedError as error:
        again = [*map(ways.choices, distinct)]
        raise not_tuned(graph.name, target, ways.allow, again, error) from error
    kernels = dict(zip(distinct, made, strict=True))
    called = {group: kernels[func] for group, func in zip(inner, funcs, strict=True)}
    codes = {group: kernel.compiled for group, kernel in called.items()}
    with stage("pack"):
        weights = Weights()
        weights.take(inner, list(codes.values()))
        take_constants(groups, weights)
        for value in graph.outputs.values():
            held = root(graph, value)
            if isinstance(held, Constant):
                weights.take_plain(held)
        content = weights.content()
        for value in given:
            value.check()
    with stage("link"):
        name = generator_for(target).function_name(graph.name)
        where = next((code.target for code in codes.values()), target)
        codes |= dict(loop_kernels(groups, codes, weights, where, name))
        plan = steps_of(graph, groups, [codes[group] for group in groups], weights, name)
    return KernelsAndSteps(
        plan,
        where,
        content,
        {func.name: kernel.choice for func, kernel in kernels.items()},
        evidence_of(graph, groups, called, codes, plan, weights, target, rewrites, stage.seconds),
        stage,
    )


def functions(plan: Steps[Any]) -> tuple[Function, Function]:
    """The functions that a profile calls: one with the time between its steps, and an empty one."""
    timed, empty = signatures(plan.signature, len(plan.steps))
    return (timed, tuple(_stamped(plan, Address(len(plan.signature.arguments))))), (empty, ())


def instrumented(plan: Steps[Any], target: Target) -> Instrumented:
    """The modules that a profile calls, of kernels that are compiled already."""
    timed, empty = (to_module(joined(*function, target)) for function in functions(plan))
    return Instrumented(timed, empty)


def _stamped(plan: Steps[Any], place: Address) -> Iterator[SequenceStep]:
    """The steps, each between two stamps, after two that tell what a stamp takes."""
    number = 0

    def stamp() -> Stamp:
        nonlocal number
        number += 1
        return Stamp(replace(place, offset=(number - 1) * STAMP_BYTES))

    yield stamp()
    yield stamp()
    for step in plan.steps:
        yield stamp()
        yield step
        yield stamp()

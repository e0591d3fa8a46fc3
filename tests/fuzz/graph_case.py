"""One random graph: its text, its reference and its program are checked; failures are shrunk."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np

from tilewright.base.errors import TilewrightError
from tilewright.graph import Graph
from tilewright.graph.ir import Node, Value

from ..graph.mutants import applied, mutant
from ..graph.random_graphs import GraphCase, a_graph, check_graph, check_onnx
from ..graph.rule_examples import EXAMPLES, parsed

RULE = "-" * 72
MUTANTS = 4
"""Changed examples of the rules of passes, for each seed."""


def run_graph_case(seed: int, *, compiled: bool) -> str | None:
    """What is wrong with the graph of a seed, as text, with as few nodes as it takes."""
    log = logging.getLogger("tilewright")
    level = log.level
    log.setLevel(logging.ERROR)  # that no rule is for a program is no news here
    try:
        case = a_graph(seed)
        problem = problem_of(case, compiled=compiled)
        if problem is None:
            return problem_of_rules(seed)
        small = shrunk(case, problem, compiled=compiled)
        last = problem_of(small, compiled=compiled) or problem
        return f"seed {seed}: {last}\n{RULE}\n{small.graph}{'=' * 72}"
    except Exception:  # noqa: BLE001  a reference that fails, say
        return f"seed {seed}: {traceback.format_exc()}"
    finally:
        log.setLevel(level)


@cache
def _examples() -> list[Graph]:
    return [parsed(inputs, nodes) for few in EXAMPLES.values() for inputs, nodes, _ in few]


def problem_of_rules(seed: int) -> str | None:
    """What passes make wrong of examples of their rules that are changed a little."""
    rng = np.random.default_rng(seed)
    for _ in range(MUTANTS):
        graph = mutant(_examples(), lambda n: int(rng.integers(n)))
        try:
            if graph is not None:
                applied(graph)
        except (AssertionError, TilewrightError) as error:
            return f"seed {seed}: {error}\n{RULE}\n{graph}{'=' * 72}"
    return None


def problem_of(case: GraphCase, *, compiled: bool) -> str | None:
    try:
        check_graph(case, compiled=compiled)
        check_onnx(case)
    except AssertionError as error:
        return str(error)
    except TilewrightError as error:
        return f"{type(error).__name__}: {error.message}: {error}"
    except Exception:  # noqa: BLE001
        return traceback.format_exc()
    return None


def shrunk(case: GraphCase, problem: str, *, compiled: bool) -> GraphCase:
    """The case with as few nodes as it takes for a problem that begins the same."""
    kind = problem.partition(":")[0]
    smaller = True
    while smaller:
        smaller = False
        for other in _smaller(case):
            found = problem_of(other, compiled=compiled)
            if found is not None and found.partition(":")[0] == kind:
                case, smaller = other, True
                break
    return case


def _smaller(case: GraphCase) -> Iterator[GraphCase]:
    """Cases with one output, with an output less, and with values given that a node computed."""
    outputs = dict(case.graph.outputs)
    if len(outputs) > 1:
        for name, value in outputs.items():
            yield _with(case, case.graph.nodes, {name: value})
        for name in outputs:
            yield _with(case, case.graph.nodes, {n: v for n, v in outputs.items() if n != name})
    for node in case.graph.nodes:
        left = tuple(other for other in case.graph.nodes if other is not node)
        kept = {n: v for n, v in outputs.items() if v not in node.outputs}
        if kept:
            yield _with(case, left, kept)


def _with(case: GraphCase, nodes: tuple[Node, ...], outputs: dict[str, Value]) -> GraphCase:
    """These nodes as far as the outputs need them; what they do not compute is given."""
    needed = set(outputs.values())
    kept: list[Node] = []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            kept.append(node)
    kept.reverse()
    made = {v for node in kept for v in node.outputs}
    names = {v: n for n, v in case.graph.inputs.items()}
    computed = {v for node in case.graph.nodes for v in node.outputs}
    inputs: dict[str, Value] = {}
    for value in dict.fromkeys([*(v for n in kept for v in n.inputs), *outputs.values()]):
        if value in names:
            inputs[names[value]] = value
        elif value in computed and value not in made:
            inputs[f"given{len(inputs)}"] = value
    return replace(
        case,
        graph=Graph(case.graph.name, inputs, tuple(kept), outputs),
        arguments={n: case.held[v].own for n, v in inputs.items()},
        wanted={n: case.held[v] for n, v in outputs.items()},
    )

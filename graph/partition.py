"""Partitions: which provider runs which nodes of a graph, and what crosses between its parts.

Each node goes to the first provider that can run it, or where the user places it. An island, nodes
of one provider between those of others, goes to a neighbour if its border costs more than it gains.
Parts are runs of one provider in an order of execution: as long as a node of the provider can run,
it does. So no part needs what another computes after it, and parts make no cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ..base.errors import BuildError, ProviderError, TilewrightError, UnsupportedError, similar
from ..runtime.time_limit import within
from .ir import Constant, Graph, Node, Value
from .operator import operators_of
from .parts import Part, Partition, label
from .provider import BYTES_PER_SECOND, Provider

T = TypeVar("T")

LESS_PREFERRED = 1.25
"""How much longer a provider is taken to need than one that is preferred to it."""


def partition(
    graph: Graph,
    providers: Sequence[Provider],
    placement: Mapping[str, str] | None = None,
    *,
    max_parts: int | None = None,
    max_transfer_bytes: int | None = None,
) -> Partition:
    """Divide a graph among providers, the preferred one first.

    `placement` has the names of providers by those of operators or nodes, of the graph or of the
    file it was read from. Raises `UnsupportedError` for nodes that no provider runs, with all of
    them and why, `BuildError` for a placement of what is not there or that the provider refuses,
    and for a partition beyond a limit, and `ProviderError` where a provider raises.
    """
    choice = _Choice(graph, providers)
    choice.place(placement or {})
    choice.prefer()
    choice.dissolve_islands()
    found = Partition(graph, tuple(_parts(choice, _runs(graph, choice.names))))
    told = found.evidence()
    for what, count, limit in (
        ("parts", len(told.parts), max_parts),
        ("bytes that cross", told.transfer_bytes, max_transfer_bytes),
    ):
        if limit is not None and count > limit:
            raise BuildError(
                "{0}: expected at most {1} {2}, found {3}\n{4}",
                graph.name, limit, what, count, told,
                hint="place neighbours with one provider, or raise the limit",
                found=count, limit=limit,
            )  # fmt: skip
    return found


def asked(provider: Provider, what: str, question: Callable[[], T], **data: Any) -> T:
    """The answer of a provider. Raises `ProviderError` with this data where it raises or hangs."""
    try:
        return within(provider.timeout, provider.name, what, question, **data)
    except TilewrightError:
        raise
    except Exception as error:  # whatever a provider raises
        raise ProviderError(
            "the provider {0} raises as it is asked {1}: {2}: {3}",
            provider.name, what, type(error).__name__, error, provider=provider.name, **data,
        ) from error  # fmt: skip


class _Choice:
    """Who runs each node, by name, and why."""

    def __init__(self, graph: Graph, providers: Sequence[Provider]) -> None:
        self.graph = graph
        self.providers = {provider.name: provider for provider in providers}
        self.names: dict[Node, str] = {}
        self.why: dict[Node, str] = {}
        self._placed: set[Node] = set()
        self._refusals: dict[tuple[Node, str], str | None] = {}

    def refusal(self, node: Node, name: str) -> str | None:
        """Why a provider does not run a node."""
        if (node, name) not in self._refusals:
            provider, operators = self.providers[name], label(node)
            ask = partial(provider.refusal, node)
            answer = asked(provider, f"whether it runs {operators}", ask, node=operators)
            if not isinstance(answer, str | None):
                raise ProviderError(
                    "the provider {0}: expected why it cannot run {1}, or None; found {2!r:.80}",
                    name, operators, answer, provider=name, node=operators,
                )  # fmt: skip
            self._refusals[node, name] = answer
        return self._refusals[node, name]

    def place(self, placement: Mapping[str, str]) -> None:
        """Give nodes to the providers that the user names."""
        known = _named(self.graph)
        for name, provider in placement.items():
            if provider not in self.providers:
                raise BuildError(
                    "placement of {0}: {1} is none of the providers, {2}",
                    name, provider, ", ".join(self.providers),
                    hint=similar(provider, self.providers),
                )  # fmt: skip
            if name not in known:
                raise BuildError(
                    "placement of {0}: {1} has no such operator or node", name, self.graph.name,
                    hint=similar(name, known),
                )  # fmt: skip
            for node in known[name]:
                refusal = self.refusal(node, provider)
                if refusal is not None:
                    raise BuildError(
                        "placement of {0}: {1} does not run it: {2}", name, provider, refusal,
                        provider=provider,
                    )  # fmt: skip
                self._give(node, provider, f"{name} is placed here")
                self._placed.add(node)

    def prefer(self) -> None:
        """Give each node that is not placed to the first provider that can run it."""
        refused: list[tuple[str, str, str, str]] = []
        for node in self.graph.nodes:
            if node in self._placed:
                continue
            refusals = list[str]()
            for name in self.providers:
                refusal = self.refusal(node, name)
                if refusal is None:
                    self._give(node, name, "; ".join(refusals))
                    break
                refusals.append(f"{name}: {refusal}")
            else:
                operators = label(node)
                refused.append((node.outputs[0].name, operators, "OPERATOR", "; ".join(refusals)))
        if refused:
            lines = dict.fromkeys(f"  {operator}: {why}" for _, operator, _, why in refused)
            raise UnsupportedError(
                "{0}: no provider runs {1} of its nodes:\n{2}",
                self.graph.name, len(refused), "\n".join(lines), reasons=refused,
                hint='name more of them: providers=["tilewright", "onnxruntime", "reference"]',
            )  # fmt: skip

    def dissolve_islands(self) -> None:
        """Give islands to a neighbour where that is cheaper, the smallest first."""
        while len(self.providers) > 1:
            islands = sorted(self._islands(), key=len)
            if not any(map(self._dissolved, islands)):
                return

    def _give(self, node: Node, name: str, why: str) -> None:
        self.names[node] = name
        self.why[node] = why

    def _islands(self) -> Iterator[list[Node]]:
        """Nodes of one provider that are connected."""
        seen: set[Node] = set()
        for start in self.graph.nodes:
            island, pending = list[Node](), [start]
            while pending:
                node = pending.pop()
                if node not in seen:
                    seen.add(node)
                    island.append(node)
                    same = (o for o in self._around(node) if self.names[o] == self.names[start])
                    pending += same
            if island:
                yield island

    def _around(self, node: Node) -> Iterator[Node]:
        """The nodes that compute what a node reads, and that read what it computes."""
        for value in node.inputs:
            if value in self.graph.producers:
                yield self.graph.producers[value]
        for value in node.outputs:
            yield from self.graph.consumers.get(value, ())

    def _dissolved(self, island: Sequence[Node]) -> bool:
        """Whether an island has gone to a neighbour."""
        inside = set(island)
        read = {v for node in island for v in node.inputs}
        made = {v for node in island for v in node.outputs}
        fed = any(v in self.graph.producers for v in read - made)
        feeds = any(r not in inside for v in made for r in self.graph.consumers.get(v, ()))
        if not (fed and feeds and self._placed.isdisjoint(island)):
            return False
        own = self.names[island[0]]
        here = self.providers[own].call_seconds + self._seconds(island, own)
        for other in dict.fromkeys(self.names[o] for node in island for o in self._around(node)):
            able = other != own and all(self.refusal(n, other) is None for n in island)
            if able and self._seconds(island, other) < here:
                for node in island:
                    self._give(node, other, f"as its neighbours: alone, {own} would take longer")
                return True
        return False

    def _seconds(self, island: Sequence[Node], name: str) -> float:
        """What the nodes of an island take a provider, and what then crosses their border."""
        provider, inside = self.providers[name], set(island)
        taken = sum(_node_seconds(provider, node) for node in island)

        def elsewhere(node: Node | None) -> bool:
            return node is not None and node not in inside and self.names[node] != name

        read = {v for node in island for v in node.inputs}
        border = {v for v in read if elsewhere(self.graph.producers.get(v))}
        made = {v for node in island for v in node.outputs}
        border |= {v for v in made if any(map(elsewhere, self.graph.consumers.get(v, ())))}
        rank = list(self.providers).index(name)
        crossing = sum(v.type.bytes for v in border) / BYTES_PER_SECOND
        return float(taken * LESS_PREFERRED**rank + crossing)


def _node_seconds(provider: Provider, node: Node) -> float:
    what, ask = f"what {label(node)} takes", partial(provider.seconds, node)
    return asked(provider, what, ask, node=label(node))


def _named(graph: Graph) -> dict[str, list[Node]]:
    """The nodes that a placement may name: by operator and by node, of the graph and its file.

    A node of a file may be several of the graph: those before the last are read by others of these
    alone.
    """
    owner: dict[Node, tuple[str, ...]] = {}
    for source in graph.sources:
        for value in source.outputs:
            if value is not None and value in graph.producers:
                owner.setdefault(graph.producers[value], (source.name, source.operator))
    kept = set(graph.outputs.values())
    found: dict[str, list[Node]] = {}
    for node in reversed(graph.nodes):
        if node not in owner:
            owners = {owner[r] for v in node.outputs for r in graph.consumers.get(v, ())}
            alone = len(owners) == 1 and kept.isdisjoint(node.outputs)
            owner[node] = owners.pop() if alone else ()
        for name in {node.operator, *operators_of(node), *owner[node]} - {""}:
            found.setdefault(name, []).append(node)
    return found


def _runs(graph: Graph, names: Mapping[Node, str]) -> list[list[Node]]:
    """Runs of nodes of one provider, in an order of execution: the fewest by who begins."""
    reads = {n: {graph.producers[v] for v in n.inputs if v in graph.producers} for n in graph.nodes}
    begin = dict.fromkeys(names[node] for node in graph.nodes if not reads[node])

    def runs_from(name: str | None) -> list[list[Node]]:
        waiting = {node: len(others) for node, others in reads.items()}
        ready: dict[str, list[Node]] = {one: [] for one in dict.fromkeys(names.values())}
        for node in graph.nodes:
            if not waiting[node]:
                ready[names[node]].append(node)
        runs: list[list[Node]] = []
        while name is not None:
            runs.append([])
            while ready[name]:
                node = ready[name].pop()
                runs[-1].append(node)
                for reader in {r for v in node.outputs for r in graph.consumers.get(v, ())}:
                    waiting[reader] -= 1
                    if not waiting[reader]:
                        ready[names[reader]].append(reader)
            name = next((one for one, nodes in ready.items() if nodes), None)
        return runs

    return min(map(runs_from, begin), key=len, default=[])


def _parts(choice: _Choice, runs: Sequence[Sequence[Node]]) -> Iterator[Part]:
    graph = choice.graph
    place = {node: n for n, node in enumerate(graph.nodes)}
    given = {value: name for name, value in graph.inputs.items()}
    kept = set(graph.outputs.values())

    def leaves(value: Value, inside: set[Node]) -> bool:
        return any(reader not in inside for reader in graph.consumers.get(value, ()))

    for number, run in enumerate(runs):
        nodes, inside = sorted(run, key=place.__getitem__), set(run)
        made = {value for node in nodes for value in node.outputs}
        read = dict.fromkeys(v for node in nodes for v in node.inputs)
        reads = [v for v in read if v not in made and not isinstance(v, Constant)]
        writes = [v for node in nodes for v in node.outputs if v in kept or leaves(v, inside)]
        own = Graph(
            f"{graph.name}_{number}",
            {given.get(v) or _distinct(f"value_{k}", graph.inputs): v for k, v in enumerate(reads)},
            tuple(nodes),
            {_distinct(f"result_{k}", graph.inputs): v for k, v in enumerate(writes)},
            tuple(s for s in graph.sources if not made.isdisjoint(s.outputs)),
        )
        why = "; ".join(dict.fromkeys(choice.why[node] for node in nodes if choice.why[node]))
        yield Part(choice.providers[choice.names[nodes[0]]], own, why)


def _distinct(name: str, taken: Mapping[str, object]) -> str:
    while name in taken:
        name += "_"
    return name

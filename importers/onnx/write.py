"""A graph as an ONNX model, at any step of the compiler: `Graph.to_onnx`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...base.errors import ModelError, UnsupportedError
from ...graph.ir import Constant, Graph, Node, TensorType, Value
from .table import Reason, Unsupported
from .writer import WRITERS, Writer, onnx_dtype


def to_onnx(graph: Graph) -> Any:
    """The `onnx.ModelProto` that computes what the graph's reference does, but for rounding.

    Inputs and outputs keep their names. Operators that ONNX lacks are written as formulas. Raises
    `UnsupportedError` with all nodes that cannot be written.
    """
    try:
        from onnx import helper
    except ImportError as error:
        raise ModelError("onnx is not installed", hint="pip install 'tilewright[onnx]'") from error
    from . import writers  # noqa: F401  # registers all

    writer = Writer([*graph.inputs, *graph.outputs], graph.producers)
    names = writer.names
    names.update({value: name for name, value in graph.inputs.items()})
    writer.dtypes.update({name: value.dtype for value, name in names.items()})
    wanted = _wanted(graph, names)
    problems: list[tuple[str, str, str]] = []
    described: list[Any] = []
    for node in graph.nodes:
        try:
            made = _written(writer, node, wanted)
        except Unsupported as problem:
            problems.append((node.operator, problem.reason.name, problem.detail))
            made = [writer.fresh(node.operator) for _ in node.outputs]
            writer.dtypes.update((n, o.dtype) for n, o in zip(made, node.outputs, strict=True))
        names.update(zip(node.outputs, made, strict=True))
        described += [_info(n, o.type) for n, o in zip(made, node.outputs, strict=True)]
    if problems:
        lines = (f"  {operator}: {detail}" for operator, _, detail in dict.fromkeys(problems))
        raise UnsupportedError(
            "{0} nodes cannot be written as ONNX:\n{1}", len(problems), "\n".join(lines),
            reasons=problems,
        )  # fmt: skip
    for name, value in graph.outputs.items():
        if wanted.get(value) != name:
            writer.nodes.append(helper.make_node("Identity", [writer.name(value)], [name]))
    nodes = _live(writer.nodes, graph.outputs)
    read = set(_read(nodes))
    known = {name for node in nodes for name in node.output}
    made_graph = helper.make_graph(
        nodes,
        graph.name or "graph",
        [_info(n, v.type) for n, v in graph.inputs.items()],
        [_info(n, v.type) for n, v in graph.outputs.items()],
        [held for held in writer.initializers if held.name in read],
        value_info=[v for v in described if v.name in known and v.name not in graph.outputs],
    )
    opsets = [helper.make_opsetid("", writer.opset)]
    version = helper.find_min_ir_version_for(opsets)
    return helper.make_model(
        made_graph, producer_name="tilewright", opset_imports=opsets, ir_version=version
    )


def _live(nodes: Sequence[Any], outputs: Iterable[str]) -> list[Any]:
    """The nodes that outputs need: a layer is written with what its operands are made of."""
    needed, found = set(outputs), list[Any]()
    for node in reversed(nodes):
        if not needed.isdisjoint(node.output):
            needed.update(_read([node]))
            found.append(node)
    return found[::-1]


def _read(nodes: Iterable[Any]) -> Iterator[str]:
    """The names of what nodes read, in bodies too."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            yield from _read(attribute.g.node)


def _wanted(graph: Graph, names: dict[Value, str]) -> dict[Value, str]:
    """The names of values that are outputs; of several, and of inputs, the others are copies."""
    found: dict[Value, str] = {}
    for name, value in graph.outputs.items():
        if value not in names and not isinstance(value, Constant):
            found.setdefault(value, name)
    return found


def _written(writer: Writer, node: Node, wanted: dict[Value, str]) -> Sequence[str]:
    """The names of a node's outputs; those that are wanted are given to what computes them."""
    from onnx import helper

    write = WRITERS.get(node.operator)
    if write is None:
        raise Unsupported(Reason.OPERATOR, "ONNX has no such operator")
    start = len(writer.nodes)
    made = write(writer, node, *map(writer.name, node.inputs))
    results = [made] if isinstance(made, str) else list(made)
    for place, (value, name) in enumerate(zip(node.outputs, results, strict=True)):
        own = wanted.get(value)
        assert writer.dtypes[name] == value.dtype, f"{node.operator}: {writer.dtypes[name]}"
        if own is None:
            continue
        producers = [n for n in writer.nodes[start:] if name in n.output]
        if producers and results.count(name) == 1:
            for other in writer.nodes[start:]:
                for held in (other.input, other.output):
                    held[:] = [own if n == name else n for n in held]
        else:
            writer.nodes.append(helper.make_node("Identity", [name], [own]))
        writer.dtypes[own] = value.dtype
        results[place] = own
    return results


def _info(name: str, type: TensorType) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, onnx_dtype(type.dtype), type.shape)

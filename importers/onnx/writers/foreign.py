"""Foreign nodes as ONNX: the nodes that they have, under names of their own."""

from __future__ import annotations

from typing import Any

from ....graph.ir import Node
from ...unsupported import Reason, Unsupported
from ..foreign import model_of, within
from ..writer import Writer, writes


@writes("foreign")
def foreign(w: Writer, node: Node, *inputs: str) -> list[str]:
    from onnx import compose, helper

    model = _converted(w, model_of(str(node.attributes["model"])))
    graph = compose.add_prefix_graph(model.graph, f"{w.fresh('foreign')}/")
    w.nodes += [
        helper.make_node("Identity", [given], [own.name])
        for given, own in zip(inputs, graph.input, strict=True)
    ]
    w.nodes += graph.node
    w.initializers += graph.initializer
    # Outputs get other names, and within bodies these are not looked for.
    names = [w.fresh("foreign") for _ in graph.output]
    w.nodes += [
        helper.make_node("Identity", [own.name], [name])
        for own, name in zip(graph.output, names, strict=True)
    ]
    w.dtypes.update({name: v.dtype for name, v in zip(names, node.outputs, strict=True)})
    return names


def _converted(w: Writer, model: Any) -> Any:
    """The model in the opset of the writer, which is raised where nodes are newer.

    Raises `Unsupported` for nodes that have changed since, and are not converted.
    """
    from onnx import defs, version_converter

    versions = {one.domain: one.version for one in model.opset_import}
    own = versions.pop("")
    for domain, version in versions.items():
        if w.domains.setdefault(domain, version) != version:
            raise Unsupported(Reason.VERSION, f"{domain} {version} and {w.domains[domain]}")
    names = {n.op_type for n in within(model.graph.node) if not n.domain}
    since = {name: defs.get_schema(name, own).since_version for name in names}
    opset = max(w.opset, *since.values()) if since else w.opset
    if all(defs.get_schema(name, opset).since_version == since[name] for name in names):
        w.opset = opset
        return model
    try:
        return version_converter.convert_version(model, w.opset)
    except Exception as error:  # of several kinds
        raise Unsupported(Reason.VERSION, f"opset {own}: {error}") from error

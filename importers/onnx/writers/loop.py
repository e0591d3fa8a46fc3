"""Loops as a Scan, whose body reads what is the same in all steps from around."""

from __future__ import annotations

from typing import Any

from ....graph.ir import Node, TensorType, Value
from ....graph.operators.loop import body_of
from ..writer import Writer, onnx_dtype, write_node, writes


@writes("loop")
def loop(w: Writer, node: Node, *given: str) -> tuple[str, ...]:
    from onnx import helper

    a: Any = node.attributes
    body, moving = body_of(a["body"]), a["carried"] + a["sliced"]
    inner = w.body()
    inner.producers, inner.names = body.producers, {}
    for place, value in enumerate(body.inputs.values()):
        inner.names[value] = given[place] if place >= moving else inner.fresh("step")
        inner.dtypes[inner.names[value]] = value.dtype
    for each in body.nodes:
        inner.names.update(zip(each.outputs, write_node(inner, each, {}), strict=True))
    seen = [(inner.names[value], value) for value in list(body.inputs.values())[:moving]]
    made = [(inner.add("Identity", inner.name(v)), v) for v in body.outputs.values()]
    rows = given[a["carried"] : moving]
    if not rows:  # a Scan counts its steps by what it scans
        rows = (w.integers(range(a["count"])),)
        seen.append((inner.fresh("number"), Value(TensorType("int64", ()))))
    step = helper.make_graph(
        inner.nodes, "step",
        *(
            [helper.make_tensor_value_info(n, onnx_dtype(v.dtype), v.shape) for n, v in values]
            for values in (seen, made)
        ),
    )  # fmt: skip
    found = w.add_of(
        len(made), "Scan", *given[: a["carried"]], *rows, body=step, num_scan_inputs=len(rows)
    )
    w.opset = max(w.opset, inner.opset)
    w.dtypes.update(zip(found, (v.dtype for v in body.outputs.values()), strict=True))
    return found

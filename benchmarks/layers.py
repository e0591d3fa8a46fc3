"""Layers of models beside onnxruntime: `python -m benchmarks.layers FOLDER [NAMES] [--threads 2]`.

A layer is a node of an ONNX model with products in it (`HEAVY`), with the elementwise nodes that
follow from its result alone. Each distinct one of the models of `benchmarks.models` is an ONNX
model of its own, with the values that its inputs have in the whole model. It is built without a
database, compared with its reference in float64, and timed in turns with onnxruntime, both with
their arguments bound beforehand. Those that matter come first: the time that the machine needs at
least (the roofline), times how often the model has the layer. Ratios are onnxruntime's time over
ours. `--trials` tunes each layer first.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import tilewright as tw
from tilewright.autotune.measure.machine import with_rates
from tilewright.autotune.model.target_model import model_for
from tilewright.codegen.detect import resolve
from tilewright.runtime import time_interleaved
from tilewright.runtime.timer import wait_for_threads

from . import models
from .peers.tilewright import target
from .zero import geometric

Array = np.ndarray[Any, Any]

HEAVY = {
    "Conv", "ConvTranspose", "Gemm", "GRU", "LSTM", "MatMul", "MatMulInteger", "QLinearConv",
}  # fmt: skip
ELEMENTWISE = {
    "Add", "Cast", "Clip", "Div", "Erf", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mul",
    "Pow", "Relu", "Sigmoid", "Sqrt", "Sub", "Tanh",
}  # fmt: skip

ROUNDING = 1e-5
"""The largest error, relative to the largest element, of sums that are rounded in another order."""


@dataclass
class Layer:
    """Nodes as a model, the values of its inputs, and how often they are in their model."""

    model: onnx.ModelProto
    feeds: dict[str, Array]
    count: int = 1

    @property
    def name(self) -> str:
        """The first operator with its shapes and attributes, and those that follow."""
        graph = self.model.graph
        first = graph.node[0]
        held = {i.name: tuple(i.dims) for i in graph.initializer}
        shapes = {**held, **{name: array.shape for name, array in self.feeds.items()}}
        operands = " ".join("x".join(map(str, shapes[i])) for i in first.input if i)
        facts = ",".join(_fact(a) for a in first.attribute if _tells(a))
        rest = "".join(f" {node.op_type}" for node in graph.node[1:])
        return f"{first.op_type} {operands} {facts}{rest}".replace("  ", " ").strip()


def _tells(attribute: Any) -> bool:
    return attribute.name in ("strides", "group", "dilations", "direction", "transB")


def _fact(attribute: Any) -> str:
    value = helper.get_attribute_value(attribute)
    shown = value.decode() if isinstance(value, bytes) else str(value).replace(" ", "")
    return f"{attribute.name}={shown}"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    chosen = [
        m for m in models.TABLE if not options.names or any(n in m.file for n in options.names)
    ]
    ratios: list[float] = []
    failed = 0
    for model in chosen:
        print(model.file, flush=True)
        found = layers(options.folder / model.file, model, model.shapes[0])
        for row in compared(found, options):
            failed += not row["right"]
            ratios.append(row["ratio"])
            print(line(row), flush=True)
    print(f"geometric mean {geometric(ratios):.3f} of {len(ratios)}, {failed} failed")
    return 1 if failed else 0


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="benchmarks.layers", description=__doc__)
    found.add_argument("folder", type=Path)
    found.add_argument("names", nargs="*", help="parts of file names; all without")
    found.add_argument("--only", help="layers with this in their names")
    found.add_argument("--threads", type=int, choices=(1, 2), default=1)
    found.add_argument("--rounds", type=int, default=9)
    found.add_argument("--most", type=int, default=12, help="layers of a model")
    found.add_argument("--trials", type=int, default=0)
    return found


def layers(path: Path, model: models.Model, shapes: models.Shapes) -> list[Layer]:
    """The distinct layers of a model at these values of its dims."""
    whole = onnx.load(path)
    graph = tw.import_onnx(path, shapes=shapes, constants=model.constants)
    values = _values(whole, models.inputs(graph, model), model.constants)
    found: dict[str, Layer] = {}
    for node in whole.graph.node:
        if node.op_type in HEAVY and all(name in values for name in node.output if name):
            layer = _layer(whole, [node, *_followers(whole, node, values)], values)
            key = f"{layer.name} {[a.dtype for a in layer.feeds.values()]}"
            if key in found:
                found[key].count += 1
            else:
                found[key] = layer
    return list(found.values())


def _values(
    whole: onnx.ModelProto, inputs: Mapping[str, Array], constants: Mapping[str, int]
) -> dict[str, Array]:
    """What all values of the model's main graph are for these inputs; constants among them."""
    shown = onnx.ModelProto()
    shown.CopyFrom(whole)
    outputs = {o.name for o in shown.graph.output}
    named = [n for node in shown.graph.node for n in node.output if n and n not in outputs]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in named)
    session = models.session(shown.SerializeToString(), 1)
    feeds = {**inputs, **{n: np.array(v, np.int64) for n, v in constants.items()}}
    taken = {i.name for i in session.get_inputs()}
    results = session.run(None, {n: a for n, a in feeds.items() if n in taken})
    held = {i.name: numpy_helper.to_array(i) for i in whole.graph.initializer}
    return {
        **held,
        **feeds,
        **dict(zip([o.name for o in shown.graph.output], results, strict=True)),
    }


def _followers(
    whole: onnx.ModelProto, node: onnx.NodeProto, values: Mapping[str, Array]
) -> list[onnx.NodeProto]:
    """The elementwise nodes after a node whose other operands are constants, up to one result."""
    held = _held(whole)
    made = {name for name in node.output if name}
    nodes: list[onnx.NodeProto] = []
    kept: list[onnx.NodeProto] = []
    shape = values[node.output[0]].shape
    for other in whole.graph.node:
        reads = [name for name in other.input if name and name not in held]
        if other.op_type not in ELEMENTWISE or not reads or not made.issuperset(reads):
            continue
        if values[other.output[0]].shape != shape:
            continue
        nodes.append(other)
        made.update(other.output)
        if len(_used_outside(whole, [node, *nodes])) == 1:
            kept = list(nodes)
    return kept


def _held(whole: onnx.ModelProto) -> dict[str, Any]:
    held: dict[str, Any] = {i.name: i for i in whole.graph.initializer}
    for node in whole.graph.node:
        if node.op_type == "Constant":
            held[node.output[0]] = node
    return held


def _used_outside(whole: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> list[str]:
    made = dict.fromkeys(name for node in nodes for name in node.output if name)
    own = {id(node) for node in nodes}
    read = {o.name for o in whole.graph.output}
    read.update(n for node in whole.graph.node if id(node) not in own for n in node.input)
    return [name for name in made if name in read]


def _layer(
    whole: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], values: Mapping[str, Array]
) -> Layer:
    held = _held(whole)
    made = {name for node in nodes for name in node.output}
    read = dict.fromkeys(n for node in nodes for n in node.input if n and n not in made)
    weights = [numpy_helper.from_array(values[n], n) for n in read if n in held]
    feeds = {n: np.ascontiguousarray(values[n]) for n in read if n not in held}

    def info(name: str) -> onnx.ValueInfoProto:
        array = values[name]
        return helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )

    graph = helper.make_graph(
        list(nodes),
        "layer",
        [info(name) for name in feeds],
        [info(name) for name in _used_outside(whole, nodes)],
        weights,
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=whole.opset_import)
    return Layer(model, feeds)


def compared(found: Sequence[Layer], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each layer that matters."""
    where = with_rates(resolve(target(options.threads)))
    rows: list[tuple[float, Layer, tw.Graph]] = []
    for layer in found:
        if options.only is None or options.only in layer.name:
            graph = tw.import_onnx(layer.model)
            least = sum(
                model_for(where).roofline(func, where).seconds * count
                for func, count in graph.kernels().items()
            )
            rows.append((least, layer, graph))
    rows.sort(key=lambda row: -row[0] * row[1].count)
    for least, layer, graph in rows[: options.most]:
        yield {"name": layer.name, "count": layer.count, "least": least} | _measured(
            layer, graph, options
        )


def _measured(layer: Layer, graph: tw.Graph, options: argparse.Namespace) -> dict[str, Any]:
    where = target(options.threads)
    with ExitStack() as stack:
        database = None
        if options.trials:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            database = stack.enter_context(tw.TuningDatabase(f"{folder}/t.db"))
            for func in graph.kernels():
                tw.tune(func, where, database=database, trials=options.trials)
        built = tw.build(graph, where, database)
    inputs = [layer.feeds[name] for name in graph.inputs]
    results = built(*inputs)  # first, while no other threads spin on the processors
    session = models.session(layer.model.SerializeToString(), options.threads)
    ours = results if isinstance(results, tuple) else (results,)
    theirs = session.run(None, layer.feeds)
    exact = graph.reference(*inputs, dtype="float64")
    errors = [models.error(each, exact) for each in (ours, theirs)]
    held = () if built.weights is None else (built.weights,)
    call = built.module.bind(*inputs, *(np.empty_like(r) for r in ours), *held)
    binding = session.io_binding()
    for name, array in layer.feeds.items():
        binding.bind_cpu_input(name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    timings = time_interleaved(
        [call, lambda: session.run_with_iobinding(binding)],
        rounds=options.rounds,
        clock=models.clock(options.threads),
        before_turn=wait_for_threads if options.threads > 1 else None,
    )
    medians = [t.median for t in timings]
    return {
        "kernels": len(graph.kernels()),
        "right": errors[0] <= max(2 * errors[1], ROUNDING),
        "our_seconds": medians[0],
        "their_seconds": medians[1],
        "ratio": medians[1] / medians[0],
    }


def line(row: Mapping[str, Any]) -> str:
    """A row as a line of text."""
    wrong = "" if row["right"] else " WRONG"
    kernels = "" if row["kernels"] == 1 else f" {row['kernels']} kernels"
    return (
        f"  {row['ratio']:5.2f}  {row['our_seconds'] * 1e6:9.1f} us"
        f"  {row['their_seconds'] * 1e6:9.1f} us  {row['least'] / row['our_seconds']:4.0%}"
        f"  {row['count']:3} x {row['name']}{kernels}{wrong}"
    )


if __name__ == "__main__":
    sys.exit(main())

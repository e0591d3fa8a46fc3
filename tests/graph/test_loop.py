"""Loops: a body that is a graph, compiled once and repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import ModelError
from tilewright.graph import Builder, Graph, TensorType
from tilewright.graph.ir import Value
from tilewright.graph.text import graph_text, parse_graph
from tilewright.importers import rolling

from ..graph.random_values import Array

TARGET = "cpu -threads=1"


def body(make: Callable[..., dict[str, Value]], *shapes: tuple[int, ...]) -> str:
    b = Builder("step")
    given = [b.input(f"x{n}", TensorType("float32", s)) for n, s in enumerate(shapes)]
    return str(b.graph(make(b, *given)))


def cell(b: Builder, h: Value, x: Value, w: Value) -> dict[str, Value]:
    after = b.add("tanh", b.add("add", b.add("matmul", h, w), x))
    return {"h": after, "y": b.add("multiply", after, b.constant(2.0, "float32"))}


STEPS = 50
CELL = body(cell, (3, 5), (3, 5), (5, 5))


def recurrent(*, constant: bool) -> Graph:
    """A cell in a loop, with weights that are a constant or an input."""
    b, rng = Builder("model"), np.random.default_rng(1)
    h = b.input("h", TensorType("float32", (3, 5)))
    x = b.input("x", TensorType("float32", (STEPS, 3, 5)))
    w: Value = b.input("w", TensorType("float32", (5, 5)))
    if constant:
        w = b.constant(rng.standard_normal((5, 5)) / 4, "float32")
    last, rows = b.add_all("loop", h, x, w, body=CELL, count=STEPS, carried=1, sliced=1)
    return b.graph({"last": last, "rows": b.add("relu", rows)})


def arguments(graph: Graph) -> list[Array]:
    rng = np.random.default_rng(0)
    return [(rng.standard_normal(v.shape) / 2).astype(v.dtype) for v in graph.inputs.values()]


def stepped(h: Array, x: Array, w: Array) -> list[Array]:
    rows = []
    for row in x:
        h = np.tanh(h @ w + row)
        rows.append(np.maximum(2 * h, 0))
    return [h, np.stack(rows)]


def close(found: Any, wanted: Any) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("constant", [False, True])
def test_a_recurrence(constant: bool) -> None:
    graph = recurrent(constant=constant)
    given = arguments(graph)
    weights = graph.constants[0].data if constant else given[2]
    wanted = stepped(given[0], given[1], weights)
    close(graph.reference(*given), wanted)
    assert {a.dtype for a in graph.reference(*given, dtype="float64")} == {np.dtype("float64")}
    model = tw.build(graph, TARGET)
    close(model(*given), wanted)
    # The body's kernels are those of the graph, run in each step; the model has one step for them.
    runs = Counter(graph.kernels().values())
    assert set(runs) == {1, STEPS}
    evidence = model.evidence
    assert len(evidence.groups) == 2
    (loop,) = [k for k in evidence.kernels if k.operators.startswith("loop of ")]
    assert f"{STEPS} steps of {runs[STEPS]} kernel" in loop.detail
    assert model.profile(*given).steps[0] > 0


def test_what_a_loop_says_of_itself_is_read_again() -> None:
    graph = recurrent(constant=True)
    again = parse_graph(graph_text(graph), {c.digest: c.data for c in graph.constants})
    assert again.digest == graph.digest


def test_states_that_change_places() -> None:
    """Each is what the other was before the step, also where neither is computed."""
    step = body(lambda b, x, y: {"x": y, "y": x}, (4,), (4,))
    b = Builder("model")
    given = [b.input(n, TensorType("float32", (4,))) for n in "xy"]
    graph = b.graph(
        dict(
            zip(
                "ab",
                b.add_all("loop", *given, body=step, count=3, carried=2, sliced=0),
                strict=True,
            )
        )
    )
    x, y = arguments(graph)
    close(tw.build(graph, TARGET)(x, y), [y, x])


def test_a_loop_in_a_loop() -> None:
    """The inner one reads rows of the outer one."""
    inner = body(
        lambda b, s, x, w: {"s": b.add("add", b.add("multiply", s, w), x)}, (4,), (4,), (4,)
    )

    def outer(b: Builder, s: Value, x: Value, w: Value) -> dict[str, Value]:
        (s,) = b.add_all("loop", s, x, w, body=inner, count=3, carried=1, sliced=1)
        return {"s": s, "y": b.add("negative", s)}

    step = body(outer, (4,), (3, 4), (4,))
    b = Builder("model")
    s, x, w = (
        b.input(n, TensorType("float32", e))
        for n, e in (("s", (4,)), ("x", (2, 3, 4)), ("w", (4,)))
    )
    made = b.add_all("loop", s, x, w, body=step, count=2, carried=1, sliced=1)
    graph = b.graph(dict(zip(("s", "y"), made, strict=True)))
    given = arguments(graph)
    wanted, rows = given[0], []
    for block in given[1]:
        for row in block:
            wanted = wanted * given[2] + row
        rows.append(-wanted)
    close(graph.reference(*given), [wanted, np.stack(rows)])
    close(tw.build(graph, TARGET)(*given), [wanted, np.stack(rows)])
    assert set(graph.kernels().values()) == {6, 2}


def test_an_artifact_has_its_loops(tmp_path: Path) -> None:
    graph = recurrent(constant=True)
    path = tmp_path / "model.so"
    tw.build_library(graph, path, "cpu -threads=2", allow=("default",))
    given = arguments(graph)
    close(tw.load(path)(*given), graph.reference(*given))


def test_a_loop_is_a_scan_of_onnx() -> None:
    ort = pytest.importorskip("onnxruntime")
    graph = recurrent(constant=True)
    given = arguments(graph)
    session = ort.InferenceSession(graph.to_onnx().SerializeToString())
    close(session.run(None, dict(zip(graph.inputs, given, strict=True))), graph.reference(*given))


def take(b: Builder, x: Value, table: Value) -> dict[str, Value]:
    return {"x": b.add("take", table, b.add("cast", x, dtype="int64"), axis=0)}


@pytest.mark.parametrize(
    "change",
    [
        {"count": STEPS - 1}, {"count": 0}, {"carried": 2}, {"sliced": 0}, {"sliced": -1},
        {"body": "graph"}, {"body": body(take, (3,), (9,))},
    ],
)  # fmt: skip
def test_loops_whose_body_does_not_fit_are_refused(change: dict[str, Any]) -> None:
    b = Builder("model")
    shapes = ((3, 5), (STEPS, 3, 5), (5, 5))
    given = [b.input(f"x{n}", TensorType("float32", s)) for n, s in enumerate(shapes)]
    whole = {"body": CELL, "count": STEPS, "carried": 1, "sliced": 1}
    assert len(b.add_all("loop", *given, **whole)) == 2
    with pytest.raises(ModelError):
        b.add_all("loop", *given, **{**whole, **change})


def test_indices_in_a_body_that_may_be_out_of_range_are_refused() -> None:
    b = Builder("model")
    x, table = (b.input(n, TensorType("float32", s)) for n, s in (("x", (3,)), ("t", (9,))))
    with pytest.raises(ModelError):
        b.add("loop", x, table, body=body(take, (3,), (9,)), count=4, carried=1, sliced=0)


def onnx_body(*, scan: bool) -> Any:
    """What adds a row or the number of the step to a state, halves it, and returns that twice."""
    from onnx import TensorProto, helper

    value, number = TensorProto.FLOAT, TensorProto.INT64
    inputs = [helper.make_tensor_value_info("s", value, (4,))]
    nodes, outputs = [], []
    if scan:
        inputs.append(helper.make_tensor_value_info("r", value, (4,)))
    else:
        inputs.insert(0, helper.make_tensor_value_info("c", TensorProto.BOOL, ()))
        inputs.insert(0, helper.make_tensor_value_info("n", number, ()))
        nodes.append(helper.make_node("Cast", ["n"], ["r"], to=value))
        nodes.append(helper.make_node("Less", ["n", "limit"], ["going"]))
        outputs.append(helper.make_tensor_value_info("going", TensorProto.BOOL, ()))
    nodes += [
        helper.make_node("Add", ["s", "r"], ["t"]),
        helper.make_node("Mul", ["t", "half"], ["after"]),
        helper.make_node("Identity", ["after"], ["y"]),
    ]
    outputs += [helper.make_tensor_value_info(name, value, (4,)) for name in ("after", "y")]
    return helper.make_graph(nodes, "step", inputs, outputs)


@pytest.mark.parametrize("scan", [False, True])
def test_loops_of_onnx(scan: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    monkeypatch.setattr(rolling, "WRITTEN_NODES", 8)
    count, value = 20, TensorProto.FLOAT
    given = {"s": np.ones(4, np.float32), "x": np.arange(80, dtype=np.float32).reshape(4, 20)}
    step = onnx_body(scan=scan)
    if scan:
        node = helper.make_node(
            "Scan", ["s", "x"], ["last", "ys"], body=step, num_scan_inputs=1,
            scan_input_axes=[1], scan_input_directions=[1], scan_output_directions=[1],
        )  # fmt: skip
    else:
        node = helper.make_node("Loop", ["", "", "s"], ["last", "ys"], body=step)
    shapes = {"s": (4,), "x": (4, count)} if scan else {"s": (4,)}
    constants = {"half": np.array(0.5, np.float32), "limit": np.array(count - 1)}
    model = helper.make_model(
        helper.make_graph(
            [node], "model",
            [helper.make_tensor_value_info(n, value, s) for n, s in shapes.items()],
            [helper.make_tensor_value_info(n, value, None) for n in ("last", "ys")],
            [numpy_helper.from_array(a, n) for n, a in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
    )  # fmt: skip
    graph = tw.import_onnx(model)
    assert "loop" in {node.operator for node in graph.nodes}
    state, rows = given["s"], []
    for n in range(count):
        state = (state + (given["x"][:, count - 1 - n] if scan else n)) * np.float32(0.5)
        rows.append(state)
    wanted = [state, np.stack(rows[::-1] if scan else rows)]
    close(graph.reference(*(given[name] for name in shapes)), wanted)


def test_a_state_that_grows_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists become tensors that get longer in each step: no loop of the graph has such a state."""
    pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    monkeypatch.setattr(rolling, "WRITTEN_NODES", 8)
    info = helper.make_tensor_value_info
    step = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["going"]),
            helper.make_node("Sin", ["x"], ["after"]),
            helper.make_node("Concat", ["s", "after"], ["longer"], axis=0),
        ],
        "step",
        [info("n", 7, ()), info("c", 9, ()), info("x", 1, (4,)), info("s", 1, None)],
        [info("going", 9, ()), info("after", 1, (4,)), info("longer", 1, None)],
    )
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Loop", ["count", "", "x", "x"], ["last", "all"], body=step)],
            "model",
            [info("x", TensorProto.FLOAT, (4,))],
            [info(name, TensorProto.FLOAT, None) for name in ("last", "all")],
            [numpy_helper.from_array(np.array(9), "count")],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
    )
    rows = [np.ones(4, np.float32)]
    for _ in range(9):
        rows.append(np.sin(rows[-1]))
    close(tw.import_onnx(model).reference(rows[0]), [rows[-1], np.concatenate(rows)])


def test_kernels_of_loops_are_counted_and_not_listed() -> None:
    """Regression: a lock of six million runs of a kernel took them one by one."""
    inner = body(lambda b, x: {"y": b.add("tanh", x)}, (4,))

    def outer(b: Builder, x: Value) -> dict[str, Value]:
        return {"y": b.add_all("loop", x, body=inner, count=3000, carried=1, sliced=0)[0]}

    b = Builder("long")
    x = b.input("x", TensorType("float32", (4,)))
    made = b.add_all("loop", x, body=body(outer, (4,)), count=2000, carried=1, sliced=0)
    graph = b.graph({"y": made[0]})
    assert len(tw.freeze(graph, TARGET).kernels) == 1
    with pytest.raises(tw.NotTunedError) as refused:
        tw.build(graph, TARGET, require_tuned=True)
    assert [one["runs"] for one in refused.value.data["missing"]] == [6_000_000]

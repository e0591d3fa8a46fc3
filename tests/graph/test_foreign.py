"""ONNX nodes that are kept as they are, and run by providers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import ModelError, UnsupportedError
from tilewright.graph import Graph
from tilewright.graph.ir import Node, Value
from tilewright.graph.operator import operators_of
from tilewright.graph.text import graph_text, parse_graph
from tilewright.graph.verify import verify
from tilewright.runtime.partitioned import PartitionedModel

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
TARGET = "cpu -threads=1"
RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 8)).astype(np.float32)


def model_of(
    nodes: Sequence[Any],
    outputs: Sequence[Any],
    inputs: Sequence[Any] = (info("x", FLOAT, [6, 8]),),
    opset: int = 17,
    **held: Any,
) -> Any:
    graph = onnx.helper.make_graph(
        list(nodes), "small", list(inputs), list(outputs),
        [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in held.items()],
    )  # fmt: skip
    opsets = [onnx.helper.make_opsetid("", opset)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def by_onnxruntime(model: Any, **given: Any) -> list[Any]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results: list[Any] = session.run(None, given)
    return results


def foreign_of(graph: Graph) -> list[tuple[str, ...]]:
    """The operators of the foreign nodes."""
    return [operators_of(n) for n in graph.nodes if n.operator == "foreign"]


def check(model: Any, kept: list[tuple[str, ...]], given: Any = None) -> PartitionedModel:
    """These nodes are kept, and the model computes what onnxruntime does of the whole."""
    arguments = {"x": X} if given is None else given
    with pytest.raises(UnsupportedError):
        tw.import_onnx(model)
    graph = tw.import_onnx(model, foreign=True)
    verify(graph)
    assert foreign_of(graph) == kept
    held = {c.digest: c.data for c in graph.constants}
    assert parse_graph(graph_text(graph), held).digest == graph.digest
    made: Any = tw.build(graph, TARGET, providers=["tilewright", "onnxruntime"])
    results = made(**arguments)
    results = results if isinstance(results, tuple) else (results,)
    for found, wanted in zip(results, by_onnxruntime(model, **arguments), strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    return made  # type: ignore[no-any-return]


def detector() -> Any:
    """Boxes and scores of a product each, and those that are selected."""
    rng = np.random.default_rng(1)
    held = {"w": rng.standard_normal((32, 4)), "c": rng.standard_normal((32, 3))}
    return model_of(
        [
            node("MatMul", ["x", "w"], ["places"]),
            node("Sigmoid", ["places"], ["boxes"]),
            node("MatMul", ["x", "c"], ["classes"]),
            node("Softmax", ["classes"], ["shares"], axis=-1),
            node("Transpose", ["shares"], ["scores"], perm=[0, 2, 1]),
            node("NonMaxSuppression", ["boxes", "scores", "most", "iou"], ["chosen"], name="nms"),
        ],
        [info("chosen", INT64, ["n", 3]), info("boxes", FLOAT, None)],
        [info("x", FLOAT, [1, 100, 32])],
        opset=11,  # of which a softmax is three nodes
        most=np.int64(10),
        iou=np.float32(0.5),
        **{name: array.astype(np.float32) for name, array in held.items()},
    )


def test_a_detector_in_two_parts() -> None:
    given = RNG.standard_normal((1, 100, 32)).astype(np.float32)
    model = check(detector(), [("NonMaxSuppression",)], {"x": given})
    evidence = model.evidence
    assert [part.provider for part in evidence.parts] == ["tilewright", "onnxruntime"]
    assert evidence.elsewhere == ("NonMaxSuppression by onnxruntime",)
    assert evidence.transfer_bytes == 100 * 4 * 4 + 3 * 100 * 4
    assert model.counts == {
        "runs": 1, "tilewright": 1, "onnxruntime": 1, "transferred_bytes": evidence.transfer_bytes,
    }  # fmt: skip
    assert model.outputs["chosen"].shape == (-1, 3)


@pytest.mark.parametrize("name", ["NonMaxSuppression", "nms", "foreign"])
def test_a_kept_node_is_placed_by_its_names(name: str) -> None:
    graph = tw.import_onnx(detector(), foreign=True)
    model: Any = tw.build(
        graph, TARGET, providers=["tilewright", "reference", "onnxruntime"],
        placement={name: "onnxruntime"},
    )  # fmt: skip
    assert [p.provider for p in model.evidence.parts] == ["tilewright", "onnxruntime"]
    assert name in model.evidence.parts[1].why


def test_a_node_of_the_file_is_placed_with_all_its_steps() -> None:
    graph = tw.import_onnx(detector(), foreign=True)
    model: Any = tw.build(
        graph, TARGET, providers=["tilewright", "onnxruntime"], placement={"Softmax": "onnxruntime"}
    )
    operators = {o for p in model.evidence.parts[1:] for o in p.operators}
    assert operators >= {"reshape", "softmax", "NonMaxSuppression"}
    assert "reshape" not in model.evidence.parts[0].operators


def test_what_reads_unknown_extents_is_kept_up_to_outputs() -> None:
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("NonZero", ["r"], ["places"]),
        node("Transpose", ["places"], ["rows"]),
        node("GatherND", ["r", "rows"], ["elements"]),
        node("Exp", ["r"], ["y"]),
    ]
    outputs = [info("elements", FLOAT, ["n"]), info("y", FLOAT, [6, 8]), info("rows", INT64, None)]
    model = check(model_of(nodes, outputs), [("NonZero", "Transpose", "GatherND")])
    assert [p.provider for p in model.evidence.parts] == ["tilewright", "onnxruntime"]


def test_types_that_are_known_again_leave() -> None:
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("Shape", ["places"], ["shape"]),
        node("Gather", ["shape", "one"], ["count"]),
        node("Cast", ["count"], ["number"], to=FLOAT),
        node("Mul", ["x", "number"], ["y"]),
    ]
    model = check(
        model_of(nodes, [info("y", FLOAT, [6, 8])], one=np.int64(1)),
        [("NonZero", "Shape")],
        {"x": np.maximum(X, 0)},
    )
    assert [p.provider for p in model.evidence.parts] == ["onnxruntime", "tilewright"]


def test_sequences_and_texts_stay_within() -> None:
    nodes = [
        node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=0),
        node("NonZero", ["x"], ["places"]),
        node("ReduceMax", ["places"], ["last"], keepdims=0),  # 7, of a column
        node("Mod", ["last", "six"], ["place"]),
        node("SequenceAt", ["rows", "place"], ["row"]),
        node("Concat", ["words", "words"], ["twice"], axis=0),
        node("Shape", ["twice"], ["count"]),
        node("Cast", ["count"], ["number"], to=FLOAT),
        node("Add", ["row", "number"], ["y"]),
    ]
    words = np.array(["One", "two"], dtype=object)
    model = model_of(nodes, [info("y", FLOAT, [8])], six=np.int64(6), words=words)
    kept = ("NonZero", "ReduceMax"), ("SequenceConstruct", "SequenceAt")
    check(model, [*kept, ("Constant", "Concat", "Shape")])


def test_a_branch_that_data_decide() -> None:
    """One of them reads at a place that is out of range where the other one is taken."""

    def branch(name: str, *nodes: Any) -> Any:
        return onnx.helper.make_graph(nodes, name, [], [info(name, FLOAT, [6, 8])])

    row = [node("Gather", ["h", "place"], ["row"]), node("Add", ["h", "row"], ["b"])]

    nodes = [
        node("Relu", ["x"], ["h"]),
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Greater", ["most", "limit"], ["large"]),
        node("Cast", ["most"], ["place"], to=INT64),
        node(
            "If",
            ["large"],
            ["z"],
            then_branch=branch("a", node("Tanh", ["h"], ["a"])),
            else_branch=branch("b", *row),
        ),
        node("Neg", ["z"], ["y"]),
    ]
    model = model_of(nodes, [info("y", FLOAT, [6, 8])], limit=np.float32(1))
    parts = ["tilewright", "onnxruntime", "tilewright"]
    for scale in (0.01, 100):
        made = check(model, [("If",)], {"x": X * np.float32(scale)})
        assert [p.provider for p in made.evidence.parts] == parts


def test_nodes_of_old_opsets_are_converted() -> None:
    nodes = [node("Relu", ["x"], ["h"]), node("Add", ["h", "c"], ["y"], broadcast=1)]
    model = model_of(nodes, [info("y", FLOAT, [6, 8])], opset=6, c=np.ones(8, np.float32))
    graph = tw.import_onnx(model, foreign=True)
    made: Any = tw.build(graph, TARGET, providers=["tilewright", "onnxruntime"])
    np.testing.assert_array_equal(made(X), np.maximum(X, 0) + 1)


def test_the_reference_runs_kept_nodes() -> None:
    nodes = [node("Tanh", ["x"], ["h"]), node("NonZero", ["h"], ["places"])]
    graph = tw.import_onnx(model_of(nodes, [info("places", INT64, [2, "n"])]), foreign=True)
    given = np.maximum(X, 0)
    wanted = np.stack(np.nonzero(np.tanh(given)))
    np.testing.assert_array_equal(graph.reference(given)[0], wanted)
    made: Any = tw.build(graph, TARGET, providers=["tilewright", "reference"])
    assert [p.provider for p in made.evidence.parts] == ["tilewright", "reference"]
    np.testing.assert_array_equal(made(given), wanted)


def test_it_is_written_as_onnx_again() -> None:
    given = RNG.standard_normal((1, 100, 32)).astype(np.float32)
    graph = tw.import_onnx(detector(), foreign=True)
    written = graph.to_onnx()
    onnx.checker.check_model(written, full_check=True)
    for found, wanted in zip(
        by_onnxruntime(written, x=given), by_onnxruntime(detector(), x=given), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    again = tw.import_onnx(written, foreign=True)
    assert foreign_of(again) == [("NonMaxSuppression", "Identity")]


def test_random_numbers_are_refused() -> None:
    model = model_of([node("RandomUniformLike", ["x"], ["y"])], [info("y", FLOAT, [6, 8])])
    with pytest.raises(UnsupportedError) as error:
        tw.import_onnx(model, foreign=True)
    ((_, operator, reason, _),) = error.value.data["reasons"]
    assert (operator, reason) == ("RandomUniformLike", "OPERATOR")


def test_outputs_that_are_no_tensors_are_refused() -> None:
    sequence = onnx.helper.make_tensor_sequence_value_info("y", FLOAT, None)
    nodes = [node("NonZero", ["x"], ["p"]), node("SequenceConstruct", ["p"], ["y"])]
    with pytest.raises(UnsupportedError) as error:
        tw.import_onnx(model_of(nodes, [sequence]), foreign=True)
    assert [reason for _, _, reason, _ in error.value.data["reasons"]] == ["TYPE"]


def test_an_operator_that_nobody_has() -> None:
    unknown = node("Nobody", ["x"], ["y"], domain="com.example")
    model = model_of([unknown], [info("y", FLOAT, [6, 8])])
    model.opset_import.append(onnx.helper.make_opsetid("com.example", 1))
    graph = tw.import_onnx(model, foreign=True)
    assert [str(v.type) for v in graph.outputs.values()] == ["float32[6, 8]"]  # as it is declared
    with pytest.raises(UnsupportedError) as error:
        tw.build(graph, TARGET, providers=["tilewright", "onnxruntime", "reference"])
    ((_, operator, _, why),) = error.value.data["reasons"]
    assert operator == "Nobody"
    assert [f"{name}: " in why for name in ("tilewright", "onnxruntime", "reference")] == [True] * 3


def test_artifacts_do_not_have_parts_of_others(tmp_path: Any) -> None:
    graph = tw.import_onnx(detector(), foreign=True)
    with pytest.raises(UnsupportedError):
        tw.build_library(graph, tmp_path / "detector.so", TARGET)
    assert not list(tmp_path.iterdir())


def test_no_node_reads_what_data_decide() -> None:
    graph = tw.import_onnx(detector(), foreign=True)
    chosen = graph.outputs["chosen"]
    reader = Node("negative", (chosen,), {}, (Value(chosen.type, "late"),))
    wrong = Graph("wrong", graph.inputs, (*graph.nodes, reader), {"late": reader.output})
    with pytest.raises(ModelError):
        verify(wrong)
    for text in ("graph g(x: float32[-1]) -> (x):\n  return x=x\n", "graph g() -> (x):\n"
                 "  const w0: float32[-1] = [1.0]\n  return x=w0\n"):  # fmt: skip
        with pytest.raises(ModelError):
            parse_graph(text)

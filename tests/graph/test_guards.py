"""Indices that data choose: one out of its range is an error that says where, and nothing else."""

from __future__ import annotations

import ctypes
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import ArtifactError, GuardError, ModelError
from tilewright.graph import Builder, Graph, TensorType, Value
from tilewright.graph.limits import open_limits
from tilewright.runtime.guards import FIRST_GUARD, Guard, check_guards

TARGET = "cpu -threads=1"
X = np.arange(20, dtype=np.float32).reshape(5, 4)
SETTINGS: dict[str, Any] = {"size": (1, 1), "samples": 1, "scale": 1.0, "half": True}

Case = tuple[str, list[Any], int, dict[str, Any]]
CASES: list[Case] = [
    ("take", [X, np.array([0, -5, 4])], 1, {"axis": 0}),
    ("take_along", [X, np.array([[0, -4, 3]], np.int32)], 1, {"axis": 1}),
    ("take_nd", [X, np.array([[0, -4], [4, 3]])], 1, {}),
    ("scatter", [X, np.array([[0, 4]]), X[:1, :2]], 1, {"axis": 0, "reduction": "add"}),
    ("scatter_nd", [X, np.array([[-5], [4]]), X[:2]], 1, {}),
    ("take", [X, np.array([0, 3, 4])], 1, {"axis": 0, "negative": False}),
    ("take_along", [X, np.array([[0, 1, 3]], np.int32)], 1, {"axis": 1, "negative": False}),
    ("take_nd", [X, np.array([[0, 1], [4, 3]])], 1, {"negative": False}),
    ("scatter", [X, np.array([[0, 4]]), X[:1, :2]], 1, {"axis": 0, "negative": False}),
    ("scatter_nd", [X, np.array([[3], [4]]), X[:2]], 1, {"negative": False}),
    ("roi_align", [np.ones((2, 1, 3, 3), np.float32), np.ones((2, 4), np.float32),
                   np.array([0, 1])], 2, SETTINGS),
    ("exchange_rows", [X[None, :2], np.array([[2, 1]], np.int32)], 1, {}),
    ("asserted", [X, np.array(0, np.int32)], 1, {}),
    ("asserted", [X, np.zeros((2, 3), np.int32)], 1, {}),
]  # fmt: skip


def built(graph: Graph) -> tw.Model:
    return tw.build(graph, TARGET, allow=("default",))


def graph_of(operator: str, operands: list[Any], attributes: dict[str, Any]) -> Graph:
    b = Builder("guarded")
    inputs = [b.input(f"x{k}", TensorType(str(a.dtype), a.shape)) for k, a in enumerate(operands)]
    return b.graph({"y": b.add(operator, *inputs, **attributes)})


@pytest.mark.parametrize(("operator", "operands", "place", "attributes"), CASES)
def test_an_index_out_of_its_range_is_an_error(
    operator: str, operands: list[Any], place: int, attributes: dict[str, Any]
) -> None:
    graph = graph_of(operator, operands, attributes)
    model = built(graph)
    (wanted,) = graph.reference(*operands)
    np.testing.assert_allclose(model(*operands), wanted, rtol=1e-6)
    indices = operands[place]
    at = tuple(e - 1 for e in indices.shape)
    counts = attributes.get("negative", operator not in ("roi_align", "exchange_rows"))
    below = () if counts else (-1,)
    for wrong in (99, -99, np.iinfo(indices.dtype).min, *below):
        odd = indices.copy()
        odd[at] = wrong
        given = [odd if k == place else a for k, a in enumerate(operands)]
        with pytest.raises(GuardError):
            graph.reference(*given)
        for call in (model, model.time, model.profile):
            with pytest.raises(GuardError) as caught:
                call(*given)
            data = caught.value.data
            assert (data["index"], data["place"], data["node"]) == (wrong, at, operator)
    np.testing.assert_allclose(model(*operands), wanted, rtol=1e-6)


def test_an_assertion_has_its_own_text() -> None:
    text = {"by": "the check", "broken": "{index} is wrong at {place}"}
    violations = np.array([[0, 0, 0], [0, -3, 5]], np.int32)
    graph = graph_of("asserted", [X[:2, :3], violations], text)
    with pytest.raises(GuardError) as caught:
        graph.reference(X[:2, :3], violations)
    assert caught.value.first_line.endswith("-3 is wrong at 4")
    model = built(graph)
    with pytest.raises(GuardError) as caught:
        model(X[:2, :3], violations)
    assert caught.value.first_line == "-3 is wrong at 4"
    assert (caught.value.data["node"], caught.value.data["place"]) == ("the check", (1, 1))
    (guard,) = model.guards
    assert guard.text == "the check: n is wrong at p"
    with pytest.raises(ModelError):
        b = Builder("known")
        b.add("asserted", b.input("x", TensorType("float32", ())), b.constant([2]), **text)


def test_a_call_with_addresses_says_which_index_it_was() -> None:
    operands = [X, np.array([1, 4])]
    model = built(graph_of("take", operands, {"axis": 0}))
    result = np.zeros((2, 4), np.float32)
    addresses = [array.ctypes.data for array in (*operands, result)]
    model.at(*addresses)
    np.testing.assert_array_equal(result, X[[1, 4]])
    operands[1][1] = 7
    with pytest.raises(GuardError) as caught:
        model.at(*addresses)
    assert (caught.value.data["index"], caught.value.data["place"]) == (7, (1,))


@pytest.mark.parametrize(("dtype", "extent"), [("uint8", 150), ("uint8", 5), ("uint16", 40000)])
def test_unsigned_indices(dtype: str, extent: int) -> None:
    model = built(graph_of("take", [np.arange(extent), np.zeros(2, dtype)], {"axis": 0}))
    assert model(np.arange(extent), np.array([0, extent - 1], dtype)).tolist() == [0, extent - 1]
    for wrong in (extent, np.iinfo(dtype).max):
        with pytest.raises(GuardError):
            model(np.arange(extent), np.array([0, wrong], dtype))


def shifted(b: Builder, value: Value, by: int) -> Value:
    moved: Value = b.add("add", value, b.constant(by, value.dtype))
    return moved


def test_indices_that_are_computed_are_reported() -> None:
    """They lie at one place of the arena, one after the other."""
    b = Builder("computed")
    x, i = b.input("x", TensorType("int64", (4,))), b.input("i", TensorType("int64", (3,)))
    first = b.add("take", x, shifted(b, i, 1), axis=0)
    second = b.add("take", x, shifted(b, first, 2), axis=0)
    graph = b.graph({"y": b.add("take", x, shifted(b, second, 3), axis=0)})
    model = built(graph)
    x_of, i_of = np.array([0, 1, -2, 2]), np.array([0, 1, 2])
    with pytest.raises(GuardError):
        graph.reference(x_of, i_of)
    with pytest.raises(GuardError) as caught:
        model(x_of, i_of)
    assert (caught.value.data["index"], caught.value.data["place"]) == (4, (2,))
    assert model(x_of * 0 - 1, i_of).tolist() == [-1, -1, -1]


@pytest.mark.parametrize("index", [-6, 5])
def test_an_index_that_is_known_is_refused_when_the_graph_is_made(index: int) -> None:
    b = Builder("known")
    with pytest.raises(ModelError):
        b.add("take", b.input("x", TensorType("float32", (5, 4))), b.constant([index]), axis=0)
    onnx = pytest.importorskip("onnx")
    make = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Gather", ["x", "i"], ["y"])], "g",
        [make("x", 1, (5, 4))], [make("y", 1, None)],
        [onnx.numpy_helper.from_array(np.array([index, index]), "i")],
    )  # fmt: skip
    with pytest.raises(ModelError):
        tw.import_onnx(onnx.helper.make_model(graph, ir_version=8))


def test_what_cannot_be_outside_is_not_compared() -> None:
    b = Builder("inside")
    x, i = b.input("x", TensorType("float32", (4, 4))), b.input("i", TensorType("uint8", (3,)))
    wide = b.add("cast", i, dtype="int64")
    kept = b.add("clip", wide, low=-4, high=3)
    table = b.constant(np.zeros(256, np.float32))
    parts = [
        b.add("take", x, b.add("argmax", x, axis=0), axis=0),
        b.add("take", x, b.add_all("top", x, axis=1, count=2)[1], axis=0),
        b.add("take", x, b.add("reshape", kept, shape=(3, 1)), axis=0),
        b.add("take", table, wide, axis=0),
        b.add("take", x, b.constant([3, -4]), axis=1),
    ]
    assert not open_limits(b.graph({f"y{k}": v for k, v in enumerate(parts)}))
    least = b.add("maximum", i, b.constant(2, "uint8"))
    small = b.add("minimum", b.constant([1, 3, 2], "uint8"), least)
    chosen = b.add("where", b.add("less", i, small), b.constant([0, 3, 1], "uint8"), small)
    moved = b.add("transpose", b.add("broadcast_to", chosen, shape=(2, 3)), axes=(1, 0))
    for negative, index, counted in (
        (False, moved, 0),
        (False, b.add("slice", moved, starts=(0, 0), steps=(1, 1), shape=(2, 2)), 0),
        (True, kept, 0),
        (False, kept, 1),
        (False, least, 1),
        (False, b.add("where", b.add("less", i, small), i, least), 1),
    ):
        taken = b.add("take", x, index, axis=0, negative=negative)
        assert len(open_limits(b.graph({"y": taken}))) == counted
    for low, high in ((-5, 3), (3, -100)):
        taken = b.add("take", x, b.add("clip", wide, low=low, high=high), axis=0)
        assert len(open_limits(b.graph({"y": taken}))) == 1


def test_lookups_that_become_one_keep_the_limits_of_both() -> None:
    b = Builder("lookups")
    i = b.input("i", TensorType("int64", (6,)))
    tables = [b.constant(np.arange(10, dtype=np.float32).reshape(5, 2) + k) for k in range(2)]
    first = b.add("take", tables[0], i, axis=0, negative=False)
    total = b.add("add", first, b.add("take", tables[1], i, axis=0))
    (node,) = b.graph({"y": total}).optimized().nodes
    assert (node.operator, node.attributes["negative"]) == ("take", False)


def test_names_of_the_file_are_told() -> None:
    onnx = pytest.importorskip("onnx")
    make = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Gather", ["x", "i"], ["y"], name="look")], "g",
        [make("x", 1, (5, 4)), make("i", 7, (3,))], [make("y", 1, None)],
    )  # fmt: skip
    model = built(tw.import_onnx(onnx.helper.make_model(graph, ir_version=8)))
    with pytest.raises(GuardError) as caught:
        model(X, np.array([0, 1, 7]))
    data = caught.value.data
    assert (data["node"], data["operand"], data["index"]) == ("Gather look", "indices", 7)
    assert (data["place"], data["least"], data["greatest"]) == ((2,), -5, 4)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
def test_a_library_has_its_guards(tmp_path: Path) -> None:
    b = Builder("looked")
    x, i = b.input("x", TensorType("float32", (5, 4))), b.input("i", TensorType("int64", (3,)))
    parts = [b.add("take", x, i, axis=0), b.add("take", x, shifted(b, i, 1), axis=0)]
    graph = b.graph({"y": parts[0], "z": parts[1]})
    path = tw.build_library(graph, tmp_path / "looked.so", TARGET, allow=("default",)).files[0]
    model = tw.load(path)
    with pytest.raises(GuardError) as caught:
        model(X, np.array([0, 1, 4]))
    assert caught.value.data["index"] == 5
    statuses = re.findall(r"Returns (\d+) if an index", path.with_suffix(".h").read_text())
    assert statuses == [str(FIRST_GUARD), str(FIRST_GUARD + 1)]
    function = ctypes.CDLL(str(path)).looked
    outputs = np.empty((2, 3, 4), np.float32)
    workspace, weights = model.module.workspace(), model.weights
    assert weights is None or weights.size
    held = [] if weights is None else [weights]
    for index, wanted in ((0, 0), (4, FIRST_GUARD + 1), (5, FIRST_GUARD)):
        given = [X, np.array([0, 1, index]), *outputs, *held, workspace]
        status = function(*(ctypes.c_void_p(a.ctypes.data) for a in given))
        assert status == wanted


def test_guards_of_other_memory_are_refused() -> None:
    signature = built(graph_of(*CASES[0][:2], CASES[0][3])).module.signature
    data = tw.runtime.signature.Argument("indices", "int64", (3,))
    check_guards(signature, [Guard("take", data, 1, 0, -5, 4)])
    for argument, offset in ((1, 8), (None, 0), (9, 0)):
        with pytest.raises(ArtifactError):
            check_guards(signature, [Guard("take", data, argument, offset, -5, 4)])

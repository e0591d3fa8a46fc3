"""Models that are damaged, contradictory or hostile: each is refused with its own kind of error."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import ArgumentError, ModelError, TilewrightError, UnsupportedError

from ..refusals import refused

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

TARGET = "cpu -threads=1"
FLOAT = 1
node = helper.make_node
RELU = node("Relu", ["x"], ["y"])
ADD = node("Add", ["x", "w"], ["y"])


def info(name: str, shape: Any, dtype: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def held(name: str, *elements: Any, dtype: Any = np.int64) -> Any:
    return numpy_helper.from_array(np.array(elements, dtype), name)


def model(nodes: list[Any], *constants: Any, x: Any = (2,), y: Any = None, opset: int = 17) -> Any:
    """A model from `x` to `y`, which are shapes, or whole descriptions."""
    inputs = [info("x", x) if isinstance(x, tuple) else x]
    outputs = [info("y", y) if y is None or isinstance(y, tuple) else y]
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def imported(proto: Any, **options: Any) -> Any:
    return tw.import_onnx(proto.SerializeToString(), **options)


def tensor(**fields: Any) -> Any:
    return TensorProto(**{"name": "w", "data_type": FLOAT, "dims": [2], **fields})


def changed(proto: Any, **lists: Any) -> Any:
    for name, value in lists.items():
        getattr(proto.graph, name).append(value)
    return proto


MALFORMED = {
    "output of another shape": model([RELU], y=(3,)),
    "output of another rank": model([RELU], y=(1, 2)),
    "output of another dtype": model([RELU], y=info("y", [2], 7)),
    "initializer of another shape": changed(model([ADD], held("w", 1, 2, dtype=np.float32)),
                                            input=info("w", [3])),
    "computed twice": model([RELU, node("Neg", ["x"], ["y"])]),
    "computed twice by one node": model([node("Split", ["x"], ["y", "y"], axis=0)], opset=11),
    "input computed": model([node("Neg", ["y"], ["x"]), RELU]),
    "initializers of one name": model([ADD], tensor(raw_data=bytes(8)), tensor(raw_data=bytes(8))),
    "inputs of one name": changed(model([RELU]), input=info("x", [3])),
    "outputs of one name": changed(model([RELU]), output=info("y", [2])),
    "cycle": model([node("Add", ["x", "b"], ["y"]), node("Relu", ["y"], ["b"])]),
    "value that is not there": model([node("Add", ["x", "w"], ["y"])]),
    "output that is not there": model([node("Relu", ["x"], ["z"])]),
    "short data": model([ADD], tensor(raw_data=bytes(3))),
    "long data": model([ADD], tensor(raw_data=bytes(16))),
    "short floats": model([ADD], tensor(float_data=[1])),
    "no data": model([ADD], tensor()),
    "negative dims": model([ADD], tensor(dims=[-2], raw_data=bytes(8))),
    "huge dims": model([ADD], tensor(dims=[2**62], raw_data=bytes(8))),
    "unknown dtype": model([ADD], tensor(data_type=77, raw_data=bytes(8))),
    "no dtype": model([ADD], tensor(data_type=0, raw_data=bytes(8))),
    "too few inputs": model([node("Add", ["x"], ["y"])]),
    "too many inputs": model([node("Relu", ["x", "x"], ["y"])]),
    "too many outputs": model([node("Relu", ["x"], ["y", "z"])]),
    "attribute of another type": model([node("Softmax", ["x"], ["y"], axis="a")]),
    "attribute missing": model([node("Cast", ["x"], ["y"])]),
    "axis": model([node("Softmax", ["x"], ["y"], axis=7)]),
    "axis of concat": model([node("Concat", ["x", "x"], ["y"], axis=4)]),
    "axis of sum": model([node("ReduceSum", ["x", "a"], ["y"])], held("a", 7)),
    "axis of gather": model([node("Gather", ["x", "a"], ["y"], axis=4)], held("a", 0)),
    "axis of flatten": model([node("Flatten", ["x"], ["y"], axis=4)]),
    "axis of layer norm": model([node("LayerNormalization", ["x", "x"], ["y"], axis=7)]),
    "axis of quantised": model(
        [node("DequantizeLinear", ["x", "w"], ["y"], axis=9)], held("w", 1, 1, dtype=np.float32),
        x=info("x", [2], 3),
    ),
    "axis of slice": model(
        [node("Slice", ["x", *"abc"], ["y"])], held("a", 0), held("b", 1), held("c", 5)
    ),
    "axis of crop": model(
        [node("CenterCropPad", ["x", "a"], ["y"], axes=[3])], held("a", 1), opset=18
    ),
    "axis of norm": model([node("LpNormalization", ["x"], ["y"], axis=-3)]),
    "axis of transform": model([node("DFT", ["x"], ["y"], axis=9)], x=(1, 4, 1)),
    "axis of old softmax": model([node("Softmax", ["x"], ["y"], axis=9)], opset=11),
    "axis of sums of nothing": model([node("CumSum", ["x", "a"], ["y"])],
                                     numpy_helper.from_array(np.array(0), "a"), x=()),
    "axis twice": model([node("Unsqueeze", ["x", "a"], ["y"])], held("a", 0, 0)),
    "axis of permutation from behind": model(
        [node("Transpose", ["x"], ["y"], perm=[-1, 0])], x=(2, 3)
    ),
    "parts of less than nothing": model([node("Split", ["x", "a"], ["y", "z"])], held("a", -1, 3)),
    "parts without an output": model([node("Split", ["x", "a"], ["y"])], held("a", 1, 1)),
    "a product with a larger sum": changed(
        model([node("Gemm", ["x", "x", "w"], ["y"])], x=(1, 1)), input=info("w", [5, 1])
    ),
    "attention without a scale": model(
        [node("Attention", ["x", "x", "x"], ["y"], scale=0.0)], x=(1, 1, 2, 2), opset=23
    ),
    "axis of squeeze": model([node("Squeeze", ["x", "a"], ["y"])], held("a", 7)),
    "step of 0": model([node("Slice", ["x", *"abaa"], ["y"])], held("a", 0), held("b", 2)),
    "stride of 0": model(
        [node("MaxPool", ["x"], ["y"], kernel_shape=[2], strides=[0])], x=(1, 1, 4)
    ),
    "stride beyond any array": model(
        [node("MaxPool", ["x"], ["y"], kernel_shape=[2], strides=[2**62])], x=(1, 1, 4)
    ),
    "window of another rank": model(
        [node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])], x=(1, 1, 4)
    ),
    "kernel of another shape than its weights": model(
        [node("Conv", ["x", "w"], ["y"], kernel_shape=[3])],
        numpy_helper.from_array(np.ones((1, 1, 2), np.float32), "w"), x=(1, 1, 4),
    ),
    "num_outputs of another number": model(
        [node("Split", ["x"], ["y"], num_outputs=10**9)], opset=18
    ),
    "dimensions that no array has": model([RELU], x=(1,) * 65),
    "a huge range": model(
        [node("Range", "abc", ["r"]), node("Relu", ["x"], ["y"])],
        *(numpy_helper.from_array(np.array(n), m) for m, n in {"a": 0, "b": 2**40, "c": 1}.items()),
    ),
    "a huge one-hot": model(
        [node("OneHot", ["i", "a", "w"], ["y"])], held("i", 0), held("a", 2**40),
        held("w", 0, 1, dtype=np.float32),
    ),
    "a negative one-hot": model(
        [node("OneHot", ["i", "a", "w"], ["y"])], held("i", 0), held("a", -3),
        held("w", 0, 1, dtype=np.float32),
    ),
    "a huge triangle": model([node("Trilu", ["x"], ["y"])], x=(2**40, 1)),
    "a huge identity": model([node("EyeLike", ["x"], ["y"])], x=(1, 2**40)),
    "a huge window": model([node("HannWindow", ["a"], ["w"]), RELU],
                           numpy_helper.from_array(np.array(2**40), "a")),
    "a window of less than nothing": model([node("HannWindow", ["a"], ["w"]), RELU],
                                           numpy_helper.from_array(np.array(-5), "a")),
    "resized to no array": model(
        [node("Resize", ["x", "", "", "a"], ["y"], mode="linear")], held("a", 2**40)
    ),
    "a huge transform": model(
        [node("DFT", ["x", "a"], ["y"])], numpy_helper.from_array(np.array(2**40), "a"), x=(1, 4, 1)
    ),
    "counts of huge windows": model(
        [node("AveragePool", ["x"], ["y"], kernel_shape=[2**30], pads=[2**30, 2**30])],
        x=(1, 1, 4),
    ),
    "padding to less than nothing": model([node("Pad", ["x", "a"], ["y"])], held("a", -9, 0)),
    "expanded to no array": model([node("Expand", ["x", "a"], ["y"])], held("a", 2**62, 2)),
    "expanded twice to no array": model(
        [node("Expand", ["x", "a"], ["y"])], held("a", 2**62, 2**62, 2)
    ),
    "tiled to no array": model([node("Tile", ["x", "a"], ["y"])], held("a", 2**62)),
    "input of no array": model([RELU], x=(2**62, 4)),
    "operands of two dtypes": changed(model([ADD]), input=info("w", [2], 7)),
    "conv of two dtypes": changed(
        model([node("Conv", ["x", "w"], ["y"])], x=(1, 1, 4)), input=info("w", [1, 1, 2], 11)
    ),
    "product of two dtypes": changed(
        model([node("MatMul", ["x", "w"], ["y"])], x=(2, 2)), input=info("w", [2, 2], 11)
    ),
    "norm with a scale of another dtype": changed(
        model([node("InstanceNormalization", ["x", "w", "w"], ["y"])], x=(1, 2, 4)),
        input=info("w", [2], 10),
    ),
    "joined of two dtypes": changed(
        model([node("Concat", ["x", "w"], ["y"], axis=0)]), input=info("w", [2], 11)
    ),
    "cell of two dtypes": changed(
        changed(
            model([node("RNN", ["x", "w", "r"], ["y"], hidden_size=2)], x=(1, 1, 2)),
            input=info("w", [1, 2, 2]),
        ),
        input=info("r", [1, 2, 2], 11),
    ),
    "indices that are floats": model([node("Gather", ["x", "x"], ["y"])]),
    "dtype that an operator does not take": model([node("Sigmoid", ["x"], ["y"])],
                                                  x=info("x", [2], 7)),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_models_are_refused(name: str) -> None:
    with pytest.raises(ModelError) as caught:
        imported(MALFORMED[name])
    assert not isinstance(caught.value, UnsupportedError)


STRINGS = numpy_helper.from_array(np.array(["a"], object), "w")
UNSUPPORTED = {
    "strings": (model([node("Identity", ["x"], ["y"])], x=info("x", [2], 8)), "DTYPE"),
    "complex numbers": (model([node("Identity", ["x"], ["y"])], x=info("x", [2], 14)), "DTYPE"),
    "what numpy lacks": (model([node("Identity", ["x"], ["y"])], x=info("x", [2], 22)), "DTYPE"),
    "strings held": (
        model([node("Identity", ["w"], ["y"])], STRINGS, y=info("y", [1], 8)), "DTYPE",
    ),
    "sequences": (
        model([node("SequenceLength", ["x"], ["y"])],
              x=helper.make_tensor_sequence_value_info("x", FLOAT, [2]), y=info("y", [], 7)),
        "TYPE",
    ),
    "sparse": (
        model([RELU], x=helper.make_value_info(
            "x", helper.make_sparse_tensor_type_proto(FLOAT, [2]))),
        "TYPE",
    ),
    "opset 99": (model([RELU], opset=99), "VERSION"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_not_supported_has_its_reason(name: str) -> None:
    proto, reason = UNSUPPORTED[name]
    with pytest.raises(UnsupportedError) as caught:
        imported(proto)
    assert reason in [found[2] for found in caught.value.data["reasons"]]


def looped(body: list[Any], results: list[Any], count: int) -> Any:
    """A model of a loop; its body has the iteration `i`, the condition `c` and a state `s`."""
    nodes = [node("Identity", ["c"], ["go"]), *body]
    flags = [info("i", [], 7), info("c", [], 9), info("s", None)]
    graph = helper.make_graph(nodes, "body", flags, [info("go", [], 9), *results])
    outputs = ["y", *(f"r{k}" for k in range(len(results) - 1))]
    n = numpy_helper.from_array(np.array(count), "n")
    return model([node("Loop", ["n", "", "x"], outputs, body=graph)], n)


def test_loops_are_written_out_up_to_a_number_of_iterations_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner = looped([node("Neg", ["s"], ["t"])], [info("t", None)], count=8).graph.node[0]
    inner.input[2], inner.output[0] = "s", "u"
    proto = looped([inner], [info("u", None)], count=8)
    assert len(imported(proto).nodes) == 64
    monkeypatch.setattr(tw.importers.onnx.model, "MAX_BODIES", 64)
    with pytest.raises(UnsupportedError):
        imported(proto)


def test_sequences_are_not_stacked() -> None:
    kind = helper.make_tensor_sequence_value_info("q", FLOAT, None)
    made = [node("Identity", ["s"], ["t"]), node("SequenceConstruct", ["s"], ["q"])]
    with pytest.raises(UnsupportedError) as caught:
        imported(looped(made, [info("t", None), kind], count=2))
    assert [found[2] for found in caught.value.data["reasons"]] == ["TYPE"]


def test_strings_that_nobody_reads_do_no_harm() -> None:
    assert len(imported(model([RELU], STRINGS)).nodes) == 1


@pytest.mark.parametrize(
    "shapes",
    [
        {"N": -1}, {"N": 1.5}, {"N": "a"}, {"N": True}, {"N": 2**62}, {"N": 2**70},
        {"x": [-1]}, {"x": [1.5]}, {"x": "a"}, {"x": [None]}, {"x": [1, 2]}, {"x": [3], "N": 1},
        {"x": [3], "z": [1]}, {"M": 1}, 3, [("N", 1)],
    ],
)  # fmt: skip
def test_wrong_shapes_are_refused(shapes: Any) -> None:
    proto = changed(model([node("Add", ["x", "z"], ["y"])], x=("N",)), input=info("z", ["N"]))
    with pytest.raises(ModelError):
        imported(proto, shapes=shapes)


class Raises:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError


@pytest.mark.parametrize(
    "given",
    [
        [1, 2, 3], [1.5, 2], [1000, 2], "a", [np.nan, 1], [[1], [1, 2]], None, [[1, 2]], Raises(),
        np.zeros(2, [("a", "i4")]),
    ],
)  # fmt: skip
def test_wrong_constants_are_refused(given: Any) -> None:
    proto = model([node("Neg", ["x"], ["y"])], x=info("x", [2], 3), y=info("y", [2], 3))
    with pytest.raises(ModelError):
        imported(proto, constants={"x": given})
    assert imported(proto, constants={"x": [1, 2]}).outputs["y"].data.tolist() == [-1, -2]


def test_models_that_are_cut_off_are_refused() -> None:
    whole = model([ADD], held("w", 1, 2, dtype=np.float32)).SerializeToString()
    for length in range(len(whole)):
        with pytest.raises(ModelError):
            tw.import_onnx(whole[:length])


def test_damaged_bytes_raise_nothing_else() -> None:
    whole = model([ADD], held("w", 1, 2, dtype=np.float32), x=("N",)).SerializeToString()
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] = rng.integers(256)
        with suppress(ModelError):
            tw.import_onnx(bytes(damaged), shapes={"N": 2})


@pytest.mark.parametrize(
    ("nodes", "x"),
    [
        ([RELU], (0,)),
        ([node("MatMul", ["x", "x"], ["y"])], (0, 0)),
        ([node("ReduceSum", ["x"], ["y"])], (0, 3)),
        ([node("Softmax", ["x"], ["y"], axis=0)], (0, 3)),
        ([node("Concat", ["x", "w"], ["y"], axis=0)], (2,)),
        ([node("Einsum", ["x", "x"], ["y"], equation="ij,kj->ik")], (0, 2)),
        ([node("GRU", ["x", "g", "r"], ["", "y"], hidden_size=2)], (2, 0, 3)),
    ],
)
def test_arrays_without_elements_are_right(nodes: Any, x: tuple[int, ...]) -> None:
    g, r = (held(n, *np.ones((1, 6, k)), dtype=np.float32) for n, k in (("g", 3), ("r", 2)))
    dims = tuple("abc"[n] for n in range(len(x)))
    proto = model(nodes, held("w", dtype=np.float32), g, r, x=dims)
    graph = imported(proto, shapes={"x": x})
    given = np.ones(x, np.float32)
    (wanted,) = graph.reference(given)
    np.testing.assert_array_equal(tw.build(graph, TARGET)(given), wanted)


@pytest.mark.parametrize("operator", ["Add", "Mul", "Max", "MatMul"])
def test_weights_that_are_no_numbers_go_through(operator: str) -> None:
    weights = np.array([[np.nan, 1], [np.inf, 0]], np.float32)
    proto = model(
        [node(operator, ["x", "w"], ["y"])], numpy_helper.from_array(weights, "w"), x=(2, 2)
    )
    graph = imported(proto)
    x = np.array([[1, -2], [0, 3]], np.float32)
    np.testing.assert_array_equal(tw.build(graph, TARGET)(x), graph.reference(x)[0])


@pytest.mark.parametrize("value", [1e300, -1e300, 3.0])
def test_the_logarithm_of_a_sum_of_large_exponentials(value: float) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.DOUBLE, [2])
    y = helper.make_tensor_value_info("y", TensorProto.DOUBLE, [1])
    reduced = helper.make_node("ReduceLogSumExp", ["x"], ["y"])
    opset = [helper.make_opsetid("", 18)]
    made = helper.make_model(helper.make_graph([reduced], "g", [x], [y]), opset_imports=opset)
    found = tw.build(imported(made), TARGET)(np.array([value, value]))
    np.testing.assert_allclose(found, [value + np.log(2)])


def written(folder: Path, location: str, **more: Any) -> Path:
    """A model in the folder, whose weights are said to be in another file."""
    proto = model([ADD], held("w", 1, 2, dtype=np.float32))
    weights = proto.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        weights.external_data.add(key=key, value=str(value))
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder: data in it, and ways out of it."""
    inside = tmp_path / "model"
    (inside / "in").mkdir(parents=True)
    data = np.array([10, 20, 30, 40], np.float32).tobytes()
    for path in (tmp_path / "secret", inside / "w.bin", inside / "in" / "w.bin"):
        path.write_bytes(data)
    (inside / "empty").touch()
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "up").symlink_to(tmp_path)
    (inside / "inner").symlink_to("w.bin")
    os.mkfifo(inside / "pipe")
    return inside


@pytest.mark.parametrize(
    ("location", "more", "wanted"),
    [
        ("w.bin", {}, [11, 21]),
        ("w.bin", {"offset": 8, "length": 8}, [31, 41]),
        ("in/w.bin", {}, [11, 21]),
        ("inner", {}, [11, 21]),
    ],
)
def test_external_data_are_read(
    folder: Path, location: str, more: Any, wanted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    for path in (written(folder, location, **more), "model.onnx"):
        assert tw.import_onnx(path).reference(np.ones(2, np.float32))[0].tolist() == wanted


@pytest.mark.parametrize("content", [b"", bytes(16)])
@pytest.mark.parametrize(
    "use",
    [
        lambda graph: tw.build(graph, TARGET),
        lambda graph: graph.reference(np.ones(2, np.float32)),
        tw.Graph.to_onnx,
        str,
    ],
    ids=["build", "reference", "to_onnx", "text"],
)
def test_external_data_that_change_before_they_are_read(
    folder: Path, content: bytes, use: Callable[[tw.Graph], object]
) -> None:
    graph = tw.import_onnx(written(folder, "w.bin"))
    (folder / "w.bin").write_bytes(content)
    with pytest.raises(ModelError):
        use(graph)


def test_external_data_that_are_removed_before_the_build(folder: Path) -> None:
    graph = tw.import_onnx(written(folder, "w.bin"))
    (folder / "w.bin").unlink()
    assert tw.build(graph, TARGET)(np.ones(2, np.float32)).tolist() == [11, 21]


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize(
    ("location", "more"),
    [
        ("../secret", {}), ("in/../../secret", {}), ("up/secret", {}), ("link", {}),
        ("/dev/zero", {}), ("nothing", {}), ("", {}), ("in", {}),
        ("empty", {}), ("pipe", {}), ("w.bin\0", {}),
        ("w.bin", {"offset": 14}), ("w.bin", {"offset": -4}), ("w.bin", {"offset": 2**70}),
        ("w.bin", {"offset": "a"}), ("w.bin", {"length": 4}), ("w.bin", {"length": 2**62}),
    ],
)  # fmt: skip
def test_external_data_stay_within_the_folder(
    folder: Path, location: str, more: Any, relative: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(folder, location, **more)
    monkeypatch.chdir(folder)
    with pytest.raises(ModelError):
        tw.import_onnx(path.name if relative else path)


def test_bytes_have_no_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = written(folder, "w.bin").read_bytes()
    monkeypatch.chdir(folder)
    with pytest.raises(ModelError):
        tw.import_onnx(content)


def test_a_pointer_in_the_place_of_a_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(ModelError) as refused:
        tw.import_onnx(path)
    assert str(path) in str(refused.value)
    assert "git lfs pull" in str(refused.value.hint)


@pytest.mark.parametrize("given", [3, None, "nothing.onnx", os.curdir, b"<html>"])
def test_what_is_no_model_is_refused(given: Any) -> None:
    with pytest.raises(ModelError):
        tw.import_onnx(given)


@pytest.mark.parametrize(
    "argument",
    [
        np.zeros(3, np.float32), np.zeros((1, 2), np.float32), np.zeros(2), np.zeros(2, np.int32),
        1.0, "a", None, [1.0, 2.0],
    ],
)  # fmt: skip
def test_calls_are_of_what_was_built(argument: Any) -> None:
    compiled = tw.build(imported(model([RELU])), TARGET)
    with pytest.raises(ArgumentError):
        compiled(argument)
    with pytest.raises(ArgumentError):
        compiled(x=argument)
    with pytest.raises(TilewrightError):
        compiled.into(np.zeros(2, np.float32), out=argument)


def test_two_names_of_one_size() -> None:
    """They may be different numbers only where an operator lets them, and at no call."""
    add = helper.make_node("Add", ["x", "z"], ["y"], name="the sum")
    inputs = [info("x", ["N", 3]), info("z", ["M", 3])]
    graph = helper.make_graph([add], "sizes", inputs, [info("y", ["N", 3])])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with refused(ModelError, "the sum"):
        imported(proto, shapes={"N": 4, "M": 5})
    assert imported(proto, shapes={"N": 4, "M": 1}).outputs["y"].shape == (4, 3)
    compiled = tw.build(imported(proto, shapes={"N": 4, "M": 4}), TARGET)
    with pytest.raises(ArgumentError):
        compiled(np.zeros((4, 3), np.float32), np.zeros((5, 3), np.float32))

"""Models end to end: from ONNX, or built here, to one compiled program."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import ArgumentError, ModelError, UnsupportedError
from tilewright.graph import Builder, Graph, TensorType
from tilewright.graph.groups import divide
from tilewright.graph.text import graph_text, parse_graph

onnx = pytest.importorskip("onnx")
TARGET = "cpu -threads=1"


def mlp() -> Graph:
    """Two products with activations, a residual, and softmax."""
    rng = np.random.default_rng(0)
    b = Builder("mlp")
    x = b.input("x", TensorType("float32", (4, 16)))
    w0, w1 = (b.constant(rng.standard_normal((16, 16)), "float32") for _ in range(2))
    h = b.add("matmul", x, w0)
    h = b.add("multiply", h, b.add("sigmoid", h))
    y = b.add("add", b.add("matmul", h, w1), x)
    return b.graph({"y": b.add("softmax", y, axis=1), "h": h})


def given(graph: Graph, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal(v.shape).astype(v.dtype)
        if v.dtype.startswith("float")
        else rng.integers(0, 4, v.shape).astype(v.dtype)
        for v in graph.inputs.values()
    ]


def test_a_graph_is_built_to_one_program() -> None:
    graph = mlp()
    model = tw.build(graph, TARGET)
    (x,) = given(graph)
    for found, wanted in zip(model(x), graph.reference(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert len(model.module.signature.symbols) == 1


def test_all_kernels_have_texts() -> None:
    graph = mlp()
    module = tw.build(graph, TARGET).module
    names = [func.name for func in graph.kernels()]
    for kind, form in (("tir", "def {0}("), ("llvm", "@{0}("), ("asm", "\n{0}:\n")):
        text = module.source(kind)
        assert all(form.format(name) in text for name in names)
    assert "\nmlp:\n" in module.source("asm")


def test_activations_and_residuals_join_the_product_that_they_follow() -> None:
    names = [group.name for group in divide(mlp())]
    assert names == ["matmul_sigmoid_multiply", "matmul_add", "softmax"]


def test_calls_take_names_and_write_where_they_are_told() -> None:
    graph = mlp()
    model = tw.build(graph, TARGET)
    (x,) = given(graph)
    y, h = np.empty((4, 16), np.float32), np.empty((4, 16), np.float32)
    model.into(x=x, out=(y, h))
    np.testing.assert_array_equal(y, model(x)[0])
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: model(x), range(64)):
            np.testing.assert_array_equal(found[0], y)


def test_calls_are_timed() -> None:
    graph = mlp()
    model = tw.build(graph, TARGET)
    (x,) = given(graph)
    assert model.time(x, max_samples=3).samples
    assert model.time(x=x, max_samples=3, budget_seconds=0.01).samples
    for wrong in ({"y": x}, {"x": x, "repeat": 3}, {}):
        with pytest.raises(ArgumentError):
            model.time(**wrong)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), {}),
        ((np.zeros((4, 16), np.float32),) * 2, {}),
        ((np.zeros((4, 15), np.float32),), {}),
        ((np.zeros((4, 16)),), {}),
        ((), {"z": 1}),
        ((np.zeros((4, 16), np.float32),), {"x": 1}),
    ],
)
def test_wrong_calls_are_refused(arguments: Any, named: Any) -> None:
    model = tw.build(mlp(), TARGET)
    with pytest.raises(ArgumentError):
        model(*arguments, **named)


NUMBERS = ("bool", "int8", "uint8", "int64", "float16", "bfloat16", "float32", "float64")


@pytest.fixture(scope="module")
def numbers() -> tw.Model:
    """A model that returns its inputs, one without dimensions for each dtype."""
    b = Builder("numbers")
    graph = b.graph({f"{name}_out": b.input(name, TensorType(name, ())) for name in NUMBERS})
    return tw.build(graph, TARGET)


def numbers_with(dtype: str, value: Any) -> dict[str, Any]:
    return {name: False if name == "bool" else 0 for name in NUMBERS} | {dtype: value}


@pytest.mark.parametrize(
    ("dtype", "value", "wanted"),
    [
        ("bool", True, 1),
        ("bool", np.True_, 1),
        ("int8", -128, -128),
        ("int64", np.int32(7), 7),
        ("int64", 2**63 - 1, 2**63 - 1),
        ("float16", 0.1, float(np.float16(0.1))),
        ("bfloat16", 3, 3.0),
        ("float32", np.float64(0.1), float(np.float32(0.1))),
        ("float32", float("inf"), float("inf")),
        ("float64", 1e300, 1e300),
        ("float32", np.array(2.5, np.float32), 2.5),
    ],
)
def test_numbers_are_inputs_without_dimensions(
    numbers: tw.Model, dtype: str, value: Any, wanted: Any
) -> None:
    found = dict(zip(NUMBERS, numbers(**numbers_with(dtype, value)), strict=True))
    assert found[dtype].item() == wanted
    assert all(array.item() == 0 for name, array in found.items() if name != dtype)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("bool", 1),
        ("int8", 300),
        ("uint8", -1),
        ("int64", 2.7),
        ("int64", 3.0),
        ("int64", float("nan")),
        ("int64", np.float64(16000.9)),
        ("int64", 2**70),
        ("float16", 1e6),
        ("float32", 1e300),
        ("float32", True),
        ("float64", 10**400),
        ("float32", "1"),
        ("float32", None),
        ("float32", np.array(2.5)),
        ("float32", [1.0]),
    ],
)
def test_numbers_that_are_not_of_the_dtype_are_refused(
    numbers: tw.Model, dtype: str, value: Any
) -> None:
    with pytest.raises(ArgumentError):
        numbers(**numbers_with(dtype, value))


@pytest.mark.parametrize("found", ["m.onnx", Path("m.onnx"), onnx.ModelProto()])
def test_a_model_that_is_not_imported_is_named(found: Any, tmp_path: Path) -> None:
    tune = partial(tw.tune, database=tmp_path / "t.db")
    calls: tuple[Callable[[Any], Any], ...] = (tw.build, tune, tw.Schedule)
    for call in calls:
        with pytest.raises(tw.TilewrightError) as caught:
            call(found)
        assert "tw.import_onnx" in str(caught.value)


def test_errors_of_arrays_say_what_to_do() -> None:
    graph = mlp()
    model = tw.build(graph, TARGET)
    for wrong in (np.zeros((4, 16)), np.zeros((5, 16), np.float32)):
        for call in (model, model.time, graph.reference):
            with pytest.raises(ArgumentError) as caught:
                call(wrong)
            assert caught.value.hint


class Elsewhere:
    """An array of a device."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError


@pytest.mark.parametrize(
    "array", [np.ma.masked_equal(np.eye(4, 16, dtype=np.float32), 1), Elsewhere()]
)
def test_arrays_that_a_kernel_refuses_are_no_inputs(array: Any) -> None:
    model = tw.build(mlp(), TARGET)
    with pytest.raises(ArgumentError):
        model(array)


def test_outputs_may_be_inputs_constants_views_and_each_other() -> None:
    b = Builder("same")
    x = b.input("x", TensorType("float32", (2, 3)))
    y = b.add("relu", x)
    held = b.constant(np.arange(6), "float32")
    view = b.add("reshape", y, shape=(6,))
    graph = b.graph({"a": x, "b": y, "c": y, "d": view, "e": held})
    model = tw.build(graph, TARGET)
    (x0,) = given(graph)
    for found, wanted in zip(model(x0), graph.reference(x0), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_texts_parse_back() -> None:
    graph = mlp()
    text = str(graph)
    again = tw.parse_graph(text, {c.digest: c.data for c in graph.constants})
    assert again.digest == graph.digest
    assert str(again) == text
    with pytest.raises(ModelError, match=graph.constants[0].digest):
        tw.parse_graph(text)


@pytest.mark.parametrize(
    "change",
    [
        ("%0: float32[4, 16]", "%0: float32[4, 15]"),
        ("matmul(x, w0", "matmul(x, w9"),
        ("sigmoid(%0)", "sigmoid(%7)"),
        ("softmax(%4, axis=1)", "softmax(%4)"),
        ("softmax(%4, axis=1)", "softmax(%4, axes=1)"),
        ("sigmoid", "sigmoidal"),
        ("float32[4, 16]) ->", "float31[4, 16]) ->"),
        ("%1: float32", "%0: float32"),
        ("return y=%5", "return y=%9"),
        ("graph mlp", "graf mlp"),
    ],
)
def test_damaged_texts_are_refused(change: tuple[str, str]) -> None:
    graph = mlp()
    text = graph_text(graph)
    assert change[0] in text
    with pytest.raises(ModelError):
        parse_graph(text.replace(*change), {c.digest: c.data for c in graph.constants})


def onnx_model(
    nodes: list[Any], inputs: dict[str, Any], outputs: list[str], *, opset: int = 17, **held: Any
) -> bytes:
    """A model of these nodes; inputs have shapes, and are float32."""
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in held.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return bytes(model.SerializeToString())


def node(operator: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return onnx.helper.make_node(operator, inputs, outputs, **attributes)


def test_what_exporters_compute_of_shapes_folds() -> None:
    model = onnx_model(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["n"]),
            node("Concat", ["n", "rest"], ["shape"], axis=0),
            node("Reshape", ["x", "shape"], ["y"]),
            node("Relu", ["y"], ["z"]),
        ],
        {"x": ["N", 3, 4]},
        ["z"],
        zero=np.array([0]),
        rest=np.array([-1]),
    )
    graph = tw.import_onnx(model, shapes={"N": 2})
    assert [n.operator for n in graph.nodes] == ["reshape", "relu"]
    assert graph.outputs["z"].shape == (2, 12)


def test_what_is_added_zero_times_is_not_seen() -> None:
    product = node("Gemm", ["a", "b", "c"], ["y"], beta=0.0)
    graph = tw.import_onnx(onnx_model([product], {"a": [2, 3], "b": [3, 2], "c": [2]}, ["y"]))
    a, b = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
    (found,) = graph.reference(a, b, np.array([np.nan, np.inf], np.float32))
    np.testing.assert_array_equal(found, a @ b)


def attention_model(rows: int, past: int = 0, **attributes: Any) -> bytes:
    q, k = [1, 2, rows, 4], [1, 2, past + rows, 4]
    inputs = {"q": q, "k": k, "v": k}
    if past:
        inputs = {"q": q, "k": q, "v": q, "pk": [1, 2, past, 4], "pv": [1, 2, past, 4]}
    names = [*inputs][:3] + ["", "pk", "pv"] * bool(past)
    outputs = ["y", "k2", "v2"] if past else ["y"]
    return onnx_model([node("Attention", names, outputs, **attributes)], inputs, ["y"], opset=24)


def lower(k: int, n: int) -> bytes:
    triangle = node("Trilu", ["x", "k"], ["y"], upper=0)
    return onnx_model([triangle], {"x": [n, n]}, ["y"], k=np.array(k))


SQUARES: dict[str, Callable[[int], bytes]] = {
    "causal": lambda n: attention_model(n, is_causal=1),
    "causal after others": lambda n: attention_model(n, 3, is_causal=1),
    "upper": lambda n: onnx_model([node("Trilu", ["x"], ["y"])], {"x": [n, n + 3]}, ["y"]),
    **{f"lower {k}": partial(lower, k) for k in (0, -2, 5, 2**62, -(2**62))},
    "identity": lambda n: onnx_model(
        [node("EyeLike", ["x"], ["i"], k=2), node("Add", ["x", "i"], ["y"])], {"x": [n, n]}, ["y"]
    ),
    "pad": lambda n: onnx_model(
        [node("Pad", ["x", "by", "z"], ["y"])], {"x": [n, n], "z": []}, ["y"], by=np.ones(4, int)
    ),
}


@pytest.mark.parametrize("kind", SQUARES)
def test_masks_of_long_sequences_are_computed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are no constants, which would grow with the square of the length."""
    from onnx.reference import ReferenceEvaluator

    long = tw.import_onnx(SQUARES[kind](3000))
    assert sum(constant.type.bytes for constant in long.constants) < 2**18
    model = SQUARES[kind](40)
    folded = tw.import_onnx(model)
    monkeypatch.setattr("tilewright.graph.builder.MAX_FOLDED_BYTES", 0)
    computed = tw.import_onnx(model)
    assert len(computed.nodes) > len(folded.nodes)
    inputs = given(folded)
    peer = ReferenceEvaluator(onnx.load_model_from_string(model))
    (wanted, *_) = peer.run(None, dict(zip(folded.inputs, inputs, strict=True)))
    for found in (folded.reference(*inputs)[0], tw.build(computed, "cpu -threads=1")(*inputs)):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_dims_without_a_value_are_listed() -> None:
    model = onnx_model([node("Relu", ["x"], ["y"])], {"x": ["N", "?", 4]}, ["y"])
    with pytest.raises(ModelError) as caught:
        tw.import_onnx(model)
    assert caught.value.data["dims"] == ["N", "x.1"]
    with pytest.raises(ModelError):
        tw.import_onnx(model, shapes={"N": 1, "M": 2})
    assert tw.import_onnx(model, shapes={"x": [1, 2, 4]}).inputs["x"].shape == (1, 2, 4)


def test_all_that_is_unsupported_is_listed() -> None:
    model = onnx_model(
        [
            node("NonZero", ["x"], ["a"]),
            node("Relu", ["a"], ["b"]),
            node("NoSuchOperator", ["b"], ["c"], domain="com.example"),
        ],
        {"x": [2]},
        ["c"],
    )
    with pytest.raises(UnsupportedError) as caught:
        tw.import_onnx(model)
    found = [(reason[1], reason[2]) for reason in caught.value.data["reasons"]]
    assert found == [("NonZero", "DATA_DEPENDENT"), ("NoSuchOperator", "DOMAIN")]


def test_inputs_that_decide_are_given_as_constants() -> None:
    nodes = [node("Cast", ["c"], ["kept"], to=onnx.TensorProto.BOOL)]
    nodes.append(node("Compress", ["x", "kept"], ["y"], axis=0))
    model = onnx_model(nodes, {"x": [3], "c": [3]}, ["y"])
    with pytest.raises(UnsupportedError):
        tw.import_onnx(model)
    graph = tw.import_onnx(model, constants={"c": [1.0, 0.0, 1.0]})
    x = np.array([1, -2, 3], np.float32)
    np.testing.assert_array_equal(tw.build(graph, TARGET)(x), x[::2])


@pytest.mark.parametrize("positive", [False, True])
def test_a_branch_that_data_decide_is_a_choice(positive: bool) -> None:
    from onnx import TensorProto, helper

    branches = {
        name: helper.make_graph(
            [node(operator, ["x"], [f"{name}_y"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)],
        )
        for name, operator in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    model = onnx_model(
        [node("Greater", ["c", "zero"], ["t"]), node("If", ["t"], ["y"], **branches)],
        {"x": [3], "c": []},
        ["y"],
        zero=np.float32(0),
    )
    x, c = np.array([1, -2, 3], np.float32), np.float32(1 if positive else -1)
    wanted = np.maximum(x, 0) if positive else -x
    np.testing.assert_array_equal(tw.build(tw.import_onnx(model), TARGET)(x, c), wanted)
    known = tw.import_onnx(model, constants={"c": c})
    assert [n.operator for n in known.nodes] == ["relu" if positive else "negative"]


@pytest.mark.parametrize("cut", [0, 1, 40, 200])
def test_damaged_files_are_refused(cut: int) -> None:
    model = onnx_model([node("Relu", ["x"], ["y"])], {"x": [2]}, ["y"])
    with pytest.raises(ModelError):
        tw.import_onnx(model[: min(cut, len(model) - 3)])


def test_cycles_and_missing_values_are_refused() -> None:
    for nodes in (
        [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])],
        [node("Add", ["x", "nothing"], ["b"])],
    ):
        with pytest.raises(ModelError):
            tw.import_onnx(onnx_model(nodes, {"x": [2]}, ["b"]))


def test_a_graph_is_tuned_kernel_by_kernel(tmp_path: Path) -> None:
    graph = mlp()
    assert sorted(graph.kernels().values()) == [1, 1, 1]
    results = tw.tune(graph, TARGET, database=tmp_path / "t.db", trials=6, progress=False)
    assert len(results) == 3
    model = tw.build(graph, TARGET, database=tmp_path / "t.db", allow=["record"])
    (x,) = given(graph)
    np.testing.assert_allclose(model(x)[0], graph.reference(x)[0], rtol=1e-5, atol=1e-6)


def test_equal_layers_share_a_kernel_and_numbers_are_part_of_it() -> None:
    b = Builder("layers")
    y = b.input("x", TensorType("float32", (4, 8)))
    rng = np.random.default_rng(0)
    for _ in range(3):
        h = b.add("matmul", y, b.constant(rng.standard_normal((8, 8)), "float32"))
        y = b.add("relu", b.add("minimum", h, b.constant(0.5, "float32")))
    graph = b.graph({"y": y})
    ((func, runs),) = graph.kernels().items()
    assert runs == 3
    assert "0.5" in str(func)
    (x,) = given(graph)
    np.testing.assert_allclose(tw.build(graph, TARGET)(x), graph.reference(x)[0], rtol=1e-5)


def test_operands_without_elements() -> None:
    b = Builder("empty")
    x = b.input("x", TensorType("float32", (2, 3)))
    none = b.constant(np.zeros((2, 0)), "float32")
    graph = b.graph({"y": b.add("concatenate", x, none, axis=1)})
    (x0,) = given(graph)
    np.testing.assert_array_equal(tw.build(graph, TARGET)(x0), x0)


def test_arguments_in_other_forms_are_bound() -> None:
    graph = mlp()
    model = tw.build(graph, TARGET)
    (x,) = given(graph)
    wanted = model(x)[0]
    wide = np.zeros((4, 32), np.float32)
    wide[:, ::2] = x
    for form in (np.asfortranarray(x), wide[:, ::2], x.view(np.matrix)):
        np.testing.assert_array_equal(model(form)[0], wanted)
        np.testing.assert_array_equal(model(x=form)[0], wanted)
    for wrong in (x.astype(">f4"), x.reshape(1, 4, 16), x[:, :8], x.astype(np.float64)):
        with pytest.raises(ArgumentError):
            model(wrong)


def test_outputs_that_are_named_as_inputs_have_names_of_their_own() -> None:
    b = Builder("names")
    x, other = (b.input(n, TensorType("float32", (3,))) for n in ("x", "x_out"))
    graph = b.graph({"x": b.add("relu", x), "y": other, "weights": b.add("exp", x)})
    model = tw.build(graph, TARGET)
    assert list(model.outputs) == ["x_out_out", "y", "weights_out"]
    found = model(*given(graph))
    for one, wanted in zip(found, graph.reference(*given(graph)), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-6)


def test_operands_with_a_default_may_be_left_out() -> None:
    b = Builder("attention")
    q = b.input("q", TensorType("float32", (2, 8, 4)))
    mask = b.input("mask", TensorType("float32", (8, 8)))
    assert b.add("attention", q, q, q, scale=0.5).shape == (2, 8, 4)
    assert b.add("attention", q, q, q, mask, scale=0.5).shape == (2, 8, 4)
    for wrong in ([q, q], [q, q, q, mask, mask]):
        with pytest.raises(ModelError):
            b.add("attention", *wrong, scale=0.5)


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("cuda -arch=sm_90a", {}),
        (TARGET, {"allow": ["bogus"]}),
        (TARGET, {"allow": "model"}),
        (TARGET, {"tolerance": 2.0}),
        (TARGET, {"trust_indices": True}),
    ],
)
def test_what_cannot_be_built_is_refused_before_any_work(
    target: str, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is no kernel."""
    monkeypatch.delattr("tilewright.building.build_model.divide")
    b = Builder("none")
    empty = b.graph({"y": b.input("x", TensorType("float32", (2,)))})
    for graph in (mlp(), empty):
        with pytest.raises(tw.BuildError):
            tw.build(graph, target, **options)


def test_nodes_that_the_inference_of_onnx_reads_otherwise() -> None:
    """Windows that begin behind the input, outputs without a name, a deprecated operator."""
    weights = np.ones((1, 8, 2), np.float32)
    nodes = [
        node("AveragePool", ["x"], ["pool"], kernel_shape=[1, 1], strides=[3, 3], ceil_mode=1),
        node("Split", ["x"], ["", "tail"], axis=3, num_outputs=2),
        node("LSTM", ["t", "w", "w"], ["", "", "cell"], hidden_size=2),
        node("GroupNormalization", ["x", "s", "s"], ["norm"], num_groups=2),
        node("ConvTranspose", ["x", "k"], ["same"], auto_pad="SAME_UPPER", strides=[2, 2]),
    ]
    inputs = {"x": [1, 2, 5, 4], "t": [3, 1, 2]}
    held = {"w": weights, "s": np.ones(2, np.float32), "k": np.ones((2, 1, 1, 1), np.float32)}
    outputs = ["pool", "tail", "cell", "norm", "same"]
    model = onnx_model(nodes, inputs, outputs, opset=18, **held)
    shapes = [(1, 2, 2, 2), (1, 2, 5, 2), (1, 1, 2), (1, 2, 5, 4), (1, 1, 9, 7)]
    assert [v.shape for v in tw.import_onnx(model).outputs.values()] == shapes


@pytest.mark.parametrize("right", [1, 2**31, 2**63 - 1])
def test_windows_without_an_end_leave_nothing_out(right: int) -> None:
    nodes = [node("Attention", ["q", "q", "q"], ["y"], right_window_size=right)]
    if "right_window_size" not in onnx.defs.get_schema("Attention").attributes:
        pytest.skip("attention of this version of onnx has no windows")
    opset = onnx.defs.onnx_opset_version()
    model = onnx_model(nodes, {"q": [1, 1, 4, 4]}, ["y"], opset=opset)
    q = np.random.default_rng(0).standard_normal((1, 1, 4, 4)).astype(np.float32)
    seen = np.arange(4) <= np.arange(4)[:, None] + min(right, 4)
    scores = np.where(seen, np.exp(q[0, 0] @ q[0, 0].T / 2), 0)
    wanted = scores / scores.sum(1, keepdims=True) @ q[0, 0]
    np.testing.assert_allclose(tw.import_onnx(model).reference(q)[0][0, 0], wanted, rtol=1e-5)

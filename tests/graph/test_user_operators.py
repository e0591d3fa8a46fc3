"""Operators from outside: their records are tried, and importers find them by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import T
from tilewright.base.errors import ModelError, UnsupportedError
from tilewright.graph import Builder, TensorType, Value
from tilewright.graph.operator import Limits
from tilewright.importers import rolling, user_operators

from ..refusals import refused

X = np.random.default_rng(0).standard_normal((4, 9)).astype(np.float32)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    before = [dict(table) for table in user_operators.TABLES]
    yield
    for table, entries in zip(user_operators.TABLES, before, strict=True):
        table.clear()
        table.update(entries)


def centred_arrays(x: Any, *, scale: float) -> Any:
    return (x - x.mean(-1, keepdims=True)) * scale


def centred_operator(
    kind: str = "rows", reference: Callable[..., Any] = centred_arrays, **names: Any
) -> Callable[..., Any]:
    @tw.graph_op(kind, reference=reference, **names)
    def centred(x: tw.te.Tensor, *, scale: float = 1.0) -> tw.te.Tensor:
        mean = tw.ops.mean(x, (x.ndim - 1,), keepdims=True)
        return tw.te.compute(x.extents, lambda *i: (x[i] - mean[(*i[:-1], 0)]) * scale)

    return centred


def gated_operator(**names: Any) -> None:
    @tw.imported_op(**names)
    def gated(b: Builder, x: Value, gate: Value) -> Value:
        return b.add("multiply", x, b.add("sigmoid", gate))


def own_model(*nodes: Any) -> Any:
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, X.shape) for n in "xy")
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.example", 1)]
    graph = helper.make_graph(list(nodes), "own", [x], [y])
    return helper.make_model(graph, opset_imports=opsets)


def own_node(name: str, inputs: list[str], output: str, **attributes: Any) -> Any:
    from onnx import helper

    return helper.make_node(name, inputs, [output], domain="com.example", **attributes)


def test_a_record_that_agrees_with_itself() -> None:
    assert tw.check_graph_op(centred_operator(), X, scale=2.0) < 1e-6
    assert tw.check_graph_op("centred", X.astype(np.float64)) < 1e-14
    assert tw.check_graph_op("take", X, np.array([3, 0, -1]), axis=0) == 0


@pytest.mark.parametrize(
    ("kind", "reference", "infer"),
    [
        ("rows", lambda x, *, scale: x * scale, None),
        ("rows", lambda x, *, scale: centred_arrays(x, scale=scale)[0], None),
        ("rows", centred_arrays, lambda x, *, scale: TensorType("float64", x.shape)),
        ("view", centred_arrays, None),
    ],
    ids=["values", "shape", "type", "kind"],
)
def test_a_record_that_contradicts_itself(kind: str, reference: Any, infer: Any) -> None:
    own = centred_operator(kind, reference, infer=infer)
    with refused(ModelError, "centred"):
        tw.check_graph_op(own, X, scale=2.0)


def identity(x: tw.te.Tensor) -> tw.te.Tensor:
    return tw.te.compute(x.extents, lambda *i: x[i])


def larger(x: tw.te.Tensor) -> tw.te.Tensor:
    return tw.te.compute((100, 9), lambda i, j: x[i % 4, j])


def fails(*_: Any, **__: Any) -> Any:
    raise RuntimeError("not today")


LIES: dict[str, dict[str, Any]] = {
    "larger than it says": {"lower": larger, "infer": lambda x: x},
    "fewer results": {"infer": lambda x: (x, x)},
    "another dtype": {"infer": lambda x: TensorType("int8", x.shape)},
    "no type": {"infer": lambda x: "float32"},
    "no extent": {"infer": lambda x: TensorType("float32", (4.5, 9))},  # type: ignore[arg-type]
    "no view": {"kind": "view", "lower": larger},
    "no tensor": {"lower": lambda x: X},
    "limits of nothing": {"limits": lambda x: [Limits(3, 0, 1)]},
    "limits of floats": {"limits": lambda x: [Limits(0, 0, 1)]},
    "its infer raises": {"infer": fails},
    "its lowering raises": {"lower": fails, "infer": lambda x: x},
    "its limits raise": {"limits": fails},
}


@pytest.mark.parametrize("lie", LIES)
def test_what_an_operator_says_is_checked_before_it_runs(lie: str) -> None:
    options = {"kind": "opaque", "lower": identity, **LIES[lie]}
    lower, kind = options.pop("lower"), options.pop("kind")

    @tw.graph_op(kind, reference=lambda x: x, **options)
    def own(x: tw.te.Tensor) -> tw.te.Tensor:
        result: tw.te.Tensor = lower(x)
        return result

    b = Builder("model")
    with refused(ModelError, "own"):
        made = b.add_all("own", b.input("x", TensorType("float32", X.shape)))
        tw.build(b.graph({f"y{n}": value for n, value in enumerate(made)}), "cpu -threads=1")


@pytest.mark.parametrize(
    "reference",
    [fails, lambda x: x[:2], lambda x: (x, x), lambda x: None, lambda x: np.add(x, 1, out=x)],
    ids=["raises", "shape", "count", "nothing", "writes"],
)
def test_what_a_reference_returns_is_checked(reference: Any) -> None:
    tw.graph_op(reference=reference)(identity)
    b = Builder("model")
    x = b.input("x", TensorType("float32", X.shape))
    graph = b.graph({"y": b.add("identity", x)})
    before = X.copy()
    with refused(ModelError, "identity"):
        graph.reference(X)
    with refused(ModelError, "identity"):
        b.add("identity", b.constant(X))
    assert np.array_equal(X, before)


def test_programs_with_other_parameters_are_refused() -> None:
    @tw.script
    def turned(Y: T.Buffer((4, 9), "float32"), X: T.Buffer((4, 9), "float32")):  # type: ignore[no-untyped-def, valid-type]
        for i, k in T.grid(4, 9):
            with T.block("Y"):
                vi = T.axis.spatial(4, i)
                vk = T.axis.spatial(9, k)
                Y[vi, vk] = X[vi, vk]

    @tw.graph_op("program", reference=lambda x: x, infer=lambda x: x)
    def own(x: TensorType) -> tw.Func:
        return turned

    b = Builder("model")
    graph = b.graph({"y": b.add("own", b.input("x", TensorType("float32", X.shape)))})
    with refused(ModelError, "own"):
        tw.build(graph, "cpu -threads=1")


def test_several_results_of_each_element() -> None:
    @tw.graph_op("pointwise", reference=lambda x: (x * 2, x + 1))
    def both(x: tw.te.Tensor) -> list[tw.te.Tensor]:
        return [
            tw.te.compute(x.extents, lambda i, j: x[i, j] * 2.0),
            tw.te.compute(x.extents, lambda i, j: x[i, j] + 1.0),
        ]

    b = Builder("model")
    x = b.input("x", TensorType("float32", (81,)))  # of one dimension: reshapes stay where they are
    twice, more = b.add_all("both", b.add("reshape", x, shape=(9, 9)))
    graph = b.graph({"y": b.add("add", twice, b.add("matmul", more, more))})
    given = np.linspace(-1, 1, 81, dtype=np.float32)
    built = tw.build(graph, "cpu -threads=1")
    np.testing.assert_allclose(built(given), graph.reference(given)[0], rtol=1e-5, atol=1e-5)


def test_values_of_another_graph_are_refused() -> None:
    pytest.importorskip("onnx")
    other = Builder("other").input("x", TensorType("float32", X.shape))
    tw.imported_op(onnx="com.example::Own")(lambda b, x: other)
    with refused(ModelError, other):
        tw.import_onnx(own_model(own_node("Own", ["x"], "y")))


def test_an_operator_in_a_loop_may_return_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    monkeypatch.setattr(rolling, "WRITTEN_NODES", 8)
    tw.imported_op(onnx="com.example::Own")(lambda b, x: x)
    info, kind = helper.make_tensor_value_info, TensorProto.FLOAT
    step = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["going"]),
            own_node("Own", ["s"], "same"),
            helper.make_node("Tanh", ["same"], ["after"]),
        ],
        "step",
        [info("n", 7, ()), info("c", 9, ()), info("s", kind, X.shape)],
        [info("going", 9, ()), info("after", kind, X.shape)],
    )
    model = own_model(helper.make_node("Loop", ["count", "", "x"], ["y"], body=step))
    model.graph.initializer.append(numpy_helper.from_array(np.array(20), "count"))
    assert [node.operator for node in tw.import_onnx(model).nodes] == ["loop"]


@pytest.mark.parametrize("tolerance", [-1, float("nan"), "x"])
def test_what_cannot_be_checked(tolerance: Any) -> None:
    with refused(ModelError):
        tw.check_graph_op("tanh", X, tolerance=tolerance)
    with refused(ModelError, "3"):
        tw.check_graph_op(3, X)  # type: ignore[arg-type]


def smoothed_arrays(x: Any, *, decay: float) -> Any:
    y = x.copy()
    for n in range(1, x.shape[1]):
        y[:, n] = decay * y[:, n - 1] + x[:, n]
    return y


def test_an_operator_that_is_a_program() -> None:
    pytest.importorskip("onnx")

    @tw.graph_op("program", reference=smoothed_arrays, infer=lambda x, *, decay: x,
                 onnx="com.example::Smoothed")  # fmt: skip
    def smoothed(x: TensorType, *, decay: float = 0.5) -> tw.Func:
        (rows, count), dtype = x.shape, x.dtype

        @tw.script
        def program(X: T.Buffer((rows, count), dtype), Y: T.Buffer((rows, count), dtype)):  # type: ignore[no-untyped-def, valid-type]
            for i, k in T.grid(rows, count):
                with T.block("Y"):
                    vi = T.axis.spatial(rows, i)
                    vk = T.axis.opaque(count, k)
                    Y[vi, vk] = X[vi, vk] + T.select(vk > 0, Y[vi, vk - 1] * decay, 0.0)

        return program

    assert tw.check_graph_op(smoothed, X, decay=0.75) < 1e-6
    graph = tw.import_onnx(own_model(own_node("Smoothed", ["x"], "y", decay=0.75)))
    built = tw.build(graph, "cpu -threads=1")(X)
    np.testing.assert_allclose(built, smoothed_arrays(X, decay=0.75), rtol=1e-5, atol=1e-6)
    with refused(ModelError):
        tw.graph_op("program", reference=smoothed_arrays)


def test_nodes_of_a_domain_of_the_user() -> None:
    pytest.importorskip("onnx")
    model = own_model(
        own_node("Centred", ["x"], "c", scale=2.0), own_node("Gated", ["c", "x", ""], "y")
    )
    with pytest.raises(UnsupportedError) as caught:
        tw.import_onnx(model)
    assert [reason for _, _, reason, _ in caught.value.data["reasons"]] == ["DOMAIN"] * 2
    centred_operator(onnx="com.example::Centred")
    gated_operator(onnx="com.example::Gated")
    graph = tw.import_onnx(model)
    assert [node.operator for node in graph.nodes] == ["centred", "sigmoid", "multiply"]
    built = tw.build(graph, "cpu -threads=1")
    assert len(built.evidence.kernels) == 1  # it is fused
    wanted = centred_arrays(X, scale=2.0) / (1 + np.exp(-X))
    np.testing.assert_allclose(built(X), wanted, rtol=1e-5, atol=1e-6)


def test_a_function_of_a_model_that_the_user_has_registered() -> None:
    """It is not inlined, neither where the model calls it nor in another function."""
    helper = pytest.importorskip("onnx").helper
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.example", 1)]

    def function(name: str, *nodes: Any) -> Any:
        return helper.make_function("com.example", name, ["x"], ["y"], nodes, opsets)

    model = own_model(
        helper.make_node("Own", ["x"], ["h"], domain="com.example"),
        helper.make_node("Twice", ["h"], ["y"], domain="com.example"),
    )
    inner = helper.make_node("Own", ["x"], ["h"], domain="com.example")
    model.functions.extend(
        [
            function("Own", helper.make_node("Relu", ["x"], ["y"])),
            function("Twice", inner, helper.make_node("Add", ["h", "h"], ["y"])),
        ]
    )
    plain = tw.import_onnx(model)
    assert [node.operator for node in plain.nodes] == ["relu", "relu", "add"]

    @tw.imported_op(onnx="com.example::Own")
    def own(b: Builder, x: Value) -> Value:
        return b.add("tanh", x)

    graph = tw.import_onnx(model)
    assert [node.operator for node in graph.nodes] == ["tanh", "tanh", "add"]
    np.testing.assert_allclose(graph.reference(X)[0], 2 * np.tanh(np.tanh(X)), rtol=1e-6)


def test_attributes_that_an_operator_does_not_have() -> None:
    pytest.importorskip("onnx")
    centred_operator(onnx="com.example::Centred")
    gated_operator(onnx="com.example::Gated")
    with refused(ModelError, "centred", "offset"):
        tw.import_onnx(own_model(own_node("Centred", ["x"], "y", offset=2.0)))
    with pytest.raises(UnsupportedError) as caught:
        tw.import_onnx(own_model(own_node("Gated", ["x", "x"], "y", offset=2.0)))
    assert [r[1:3] for r in caught.value.data["reasons"]] == [("Gated", "ATTRIBUTE")]


def test_operators_of_a_torch_library() -> None:
    torch = pytest.importorskip("torch")

    def centred(x: Any, mask: Any, scale: float) -> Any:
        return (x - x.mean(-1, keepdim=True)) * scale

    def halves(parts: Any) -> Any:
        return [p * 0.5 for p in parts]

    def total(parts: Any) -> Any:
        return sum(p for p in parts if p is not None)

    library = torch.library.Library("tilewright_test", "DEF")
    for schema, function in (
        ("centred(Tensor x, Tensor? mask, float scale) -> Tensor", centred),
        ("halves(Tensor[] parts) -> Tensor[]", halves),
        ("total(Tensor?[] parts) -> Tensor", total),
    ):
        library.define(schema)
        library.impl(schema.partition("(")[0], function, "CompositeExplicitAutograd")

    class Layer(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            own = torch.ops.tilewright_test
            first, second = own.halves([x, own.centred(x, None, scale=2.0)])
            (alone,) = own.halves([second.relu()])
            return own.total([first, None, alone])

    x = torch.from_numpy(X)
    program = torch.export.export(Layer(), (x,))
    with pytest.raises(UnsupportedError) as caught:
        tw.import_torch(program)
    assert {reason for _, _, reason, _ in caught.value.data["reasons"]} == {"DOMAIN"}

    @tw.imported_op(torch="tilewright_test::halves")
    def halves_of_values(b: Builder, *parts: Value) -> list[Value]:
        return [b.add("multiply", p, b.constant(0.5, p.dtype)) for p in parts]

    @tw.imported_op(torch="tilewright_test::total")
    def total_of_values(b: Builder, first: Value, second: Value) -> Value:
        return b.add("add", first, second)

    centred_operator(torch="tilewright_test::centred")
    built = tw.build(tw.import_torch(program), "cpu -threads=1")
    np.testing.assert_allclose(built(X), Layer()(x), rtol=1e-5, atol=1e-6)
    compiled = torch.compile(Layer(), backend="tilewright", fullgraph=True)
    np.testing.assert_allclose(compiled(x), Layer()(x), rtol=1e-5, atol=1e-6)
    tw.torch_report(clear=True)


def test_custom_calls_of_jax() -> None:
    jax = pytest.importorskip("jax")
    centred_operator(stablehlo="example_centred")

    def function(x: Any) -> Any:
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.numpy.tanh(jax.ffi.ffi_call("example_centred", like)(x, scale=np.float32(2)))

    unchecked = [jax.export.DisabledSafetyCheck.custom_call("example_centred")]
    program = jax.export.export(jax.jit(function), disabled_checks=unchecked)(X)
    built = tw.build(tw.import_stablehlo(program), "cpu -threads=1")
    wanted = np.tanh(centred_arrays(X, scale=2.0))
    np.testing.assert_allclose(built(X), wanted, rtol=1e-5, atol=1e-6)


def test_names_that_are_taken() -> None:
    centred_operator(onnx="com.example::Centred")
    centred_operator(onnx="com.example::Centred")  # defined again: it replaces the former one
    with refused(ModelError, "com.example::Centred"):
        gated_operator(onnx="com.example::Centred")
    for names in ({"onnx": "ai.onnx::Relu"}, {"torch": "aten::relu"}, {"stablehlo": "Sharding"}):
        with refused(ModelError, *names.values()):
            gated_operator(**names)
    with refused(ModelError):
        tw.graph_op(reference=centred_arrays)(lambda x: x)
    with refused(ModelError, "softmax"):
        tw.graph_op(reference=np.exp)(tw.ops.softmax)


def test_names_and_kinds_in_another_form() -> None:
    for names in ({"onnx": "Gated"}, {"torch": "gated.default"}, {"onnx": "::Gated"}):
        with refused(ModelError, *names, *names.values()):
            gated_operator(**names)
    with refused(ModelError, "row"):
        centred_operator("row")
    with refused(ModelError, "foreign"):
        centred_operator("foreign")

"""Graphs as ONNX models: read again they compute the same, and onnxruntime agrees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base import dtypes
from tilewright.base.errors import GuardError, ModelError, UnsupportedError
from tilewright.graph import Builder, Graph, TensorType
from tilewright.graph.operator import OPERATORS, Kind, Operator, register
from tilewright.graph.operators.fourier import twiddles

from . import random_operators as generated
from .random_values import Pool, Style

onnx = pytest.importorskip("onnx")

Array = np.ndarray[Any, Any]
_RNG = np.random.default_rng(0)
X = _RNG.standard_normal((2, 3, 4)).astype(np.float32)
IMAGE = _RNG.standard_normal((1, 4, 5, 6)).astype(np.float32)
INTEGERS = np.array([0, 1, 2, 3, 7, -1, -2, -3, 127, -128, 31, 64], np.int32)
BYTES = INTEGERS.astype(np.int8)
BITS = np.array([True, False, True])
SQUARE = {"strides": (2, 1), "before": (1, 0), "after": (0, 2), "dilations": (1, 1)}
POOL = {"kernel": (2, 3), **SQUARE}
FAR = {"kernel": (2, 2), **SQUARE, "before": (3, 0), "after": (0, 3), "dilations": (2, 1)}


def _pairs(values: Array) -> tuple[Array, Array]:
    return values[:, None].copy(), values[None].copy()


def _positive(x: Array) -> Array:
    return np.abs(x) + 1


def _cell(cell: str, *extra: str, **options: Any) -> tuple[str, list[Any], dict[str, Any]]:
    gates = {"rnn": 1, "gru": 3, "lstm": 4}[cell]
    shapes = {"bias": (5,), "cell": (2, 5), "peepholes": (15,)}
    given = [np.array([3, 1]) if e == "lengths" else _normal(*shapes[e]) for e in extra]
    names = {"rnn": ("tanh",), "gru": ("sigmoid", "tanh"), "lstm": ("sigmoid", "tanh", "tanh")}
    attributes = {"cell": cell, "given": extra, **options}
    attributes.setdefault("activations", tuple((n, 0.0, 0.0) for n in names[cell]))
    operands = [_normal(3, 2, gates * 5), _normal(1, 5, gates * 5), _normal(2, 5), *given]
    return "recurrence", operands, attributes


def _normal(*shape: int) -> Array:
    return (_RNG.standard_normal(shape) / 2).astype(np.float32)


def _loop(*, sliced: bool) -> tuple[str, list[Any], dict[str, Any]]:
    """A state to which a row, or what is the same in all steps, is added."""
    b = Builder("step")
    x, y = (b.input(name, TensorType("float32", (2, 5))) for name in "xy")
    body = b.graph({"x": b.add("tanh", b.add("add", x, y)), "y": x})
    given = [_normal(2, 5), _normal(3, 2, 5) if sliced else _normal(2, 5)]
    options = {"body": str(body), "count": 3, "carried": 1, "sliced": int(sliced)}
    return "loop", given, options


def _fourier(length: int, form: str, shape: tuple[int, ...], **more: Any) -> tuple[Any, ...]:
    factors = twiddles(length, form).astype(np.float32)
    return "fourier", [_normal(*shape), factors], {"length": length, "form": form, **more}


CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    _loop(sliced=False),
    _loop(sliced=True),
    *((name, [X], {}) for name in (
        "relu", "sigmoid", "softplus", "softsign", "mish", "gelu", "gelu_by_tanh", "negative",
        "abs", "exp", "tanh", "erf", "floor", "ceil", "sin", "cos", "tan", "sinh", "cosh", "asinh",
        "atan", "round", "sign", "is_nan",
    )),
    *((name, [_positive(X)], {}) for name in ("log", "sqrt", "acosh")),
    *((name, [np.tanh(X)], {}) for name in ("asin", "acos", "atanh")),
    *((name, [x], attributes) for x in (X, X.astype(np.float64)) for name, attributes in (
        ("elu", {"alpha": 0.7}), ("celu", {"alpha": 0.7}), ("leaky_relu", {"slope": 0.1}),
        ("selu", {"alpha": 1.6, "gamma": 1.05}), ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
        ("hard_swish", {"alpha": 1 / 6, "beta": 0.5}), ("swish", {"alpha": 1.7}),
        ("clip", {"low": -0.5, "high": 0.3}),
    )),
    ("clip", [BYTES], {"low": -3, "high": 5}),
    *((name, [*_pairs(values)], {}) for values in (INTEGERS, BYTES, INTEGERS.astype(np.uint8))
      for name in (
        "add", "subtract", "multiply", "maximum", "minimum", "divide", "remainder", "fmod",
        "equal", "less", "less_equal", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left",
        "shift_right", "power",
    )),
    *((name, [*_pairs(X.reshape(-1))], {}) for name in ("divide", "remainder", "fmod", "less")),
    ("power", [_positive(X), X], {}),
    *((name, [INTEGERS], {}) for name in ("negative", "abs", "sign", "bitwise_not")),
    ("negative", [INTEGERS.astype(np.uint8)], {}),
    *((name, [*_pairs(BITS)], {}) for name in ("logical_and", "logical_or", "logical_xor")),
    ("logical_not", [BITS], {}),
    ("where", [BITS[:, None], *_pairs(X[0, 0, :3])], {}),
    *(("cast", [np.array([0.5, -0.5, -7.9, 3e2, 3e9, -3e9, 1e30, np.nan, np.inf], np.float32)],
       {"dtype": dtype}) for dtype in ("int8", "uint8", "int32", "uint32", "int64", "uint64")),
    *(("cast", [X], {"dtype": dtype}) for dtype in ("bool", "float64", "float16", "bfloat16")),
    ("cast", [INTEGERS], {"dtype": "int8"}),
    ("rounded", [X], {"dtype": "float16"}),
    *(("quantize", [x * 200, z], {"dtype": d}) for x, z, d in (
        (X, np.array(7, np.uint8), "uint8"), (X, np.array([7, -3, 9, 0], np.int8), "int8"),
        (X.astype(np.float64), np.array([[7]], np.int8), "int8"),
        (X * 300, np.array(5, np.uint16), "uint16"),
    )),
    *(("dequantize", [x, z], {}) for x, z in (
        (BYTES, np.array(7, np.int8)), (INTEGERS.astype(np.uint8), np.array([[1], [2]], np.uint8)),
    )),
    ("dequantize", [BYTES], {}),
    ("bitcast", [X], {"source": "float32", "to": "int32"}),
    *((name, [X], {"axes": (0, 2), "keepdims": keep}) for keep in (False, True)
      for name in ("sum", "prod", "mean", "max", "min")),
    ("sum", [BYTES], {"axes": (0,)}),
    ("sum", [X], {"axes": ()}),
    *((name, [X], {"axis": 1, "keepdims": keep}) for keep in (False, True)
      for name in ("argmax", "argmin")),
    *((name, [X], {"axis": 1}) for name in ("softmax", "log_softmax")),
    ("top", [X], {"axis": 2, "count": 3}),
    ("top", [INTEGERS], {"axis": 0, "count": 3, "largest": False}),
    *(("normalize", [X], {"axis": 1, "epsilon": 1e-3, "centered": c}) for c in (False, True)),
    *(("accumulate", [x], {"axis": 0, "product": product, "exclusive": e, "reverse": not e})
      for x in (X, INTEGERS) for product in (False, True) for e in (False, True)),
    _fourier(6, "complex", (6, 2, 3)),
    _fourier(6, "complex", (6, 2, 3), inverse=True, scale=0.5),
    _fourier(6, "of_real", (6, 3)),
    _fourier(6, "to_real", (4, 2, 3), scale=1 / 6),
    ("windows", [X], {"axis": 1, "size": 2, "step": 1}),
    ("reshape", [X], {"shape": (4, 6)}),
    ("transpose", [X], {"axes": (2, 0, 1)}),
    ("broadcast_to", [X], {"shape": (2, 2, 3, 4)}),
    ("concatenate", [X, X[:, :1]], {"axis": 1}),
    ("slice", [X], {"starts": (1, 2, 3), "steps": (1, -1, -2), "shape": (1, 3, 2)}),
    ("slice", [X], {"starts": (0, 1, 0), "steps": (1, 0, 1), "shape": (2, 5, 0)}),
    *(("pad", [X], {"before": (1, 0, 2), "after": (0, 1, 3), "mode": mode, "value": 7.0})
      for mode in ("constant", "edge", "wrap")),
    ("pad", [X], {"before": (1, 0, 2), "after": (0, 1, 3), "mode": "reflect"}),
    ("take", [X, np.array([[0, -1], [2, 1]], np.int8)], {"axis": 1}),
    ("take_along", [X, np.zeros((2, 1, 4), np.int64) - 1], {"axis": 1}),
    ("take_nd", [X, np.array([[[1, 2]], [[0, -1]]])], {"batch": 1}),
    *(("scatter", [X, np.array([[[2, 0, 1, -1]]]), X[:1, :1]], {"axis": 2, "reduction": r})
      for r in ("none", "add", "mul", "max", "min")),
    ("scatter_nd", [X, np.array([[1, 2], [0, 0]]), X[0, :2]], {"reduction": "add"}),
    *((name, [X, *operands], {**attributes, "negative": False}) for name, operands, attributes in (
        ("take", [np.array(1, np.int8)], {"axis": 1}),
        ("take_along", [np.ones((2, 1, 4), np.uint8)], {"axis": 1}),
        ("take_nd", [np.array([[[1, 2]], [[0, 1]]])], {"batch": 1}),
        ("scatter", [np.array([[[2, 0, 1, 3]]]), X[:1, :1]], {"axis": 2}),
        ("scatter_nd", [np.array([[1, 2], [0, 0]]), X[0, :2]], {}),
    )),
    ("asserted", [X, np.array(0, np.int32)], {}),
    ("asserted", [X, np.zeros((2, 3), np.int32)], {}),
    ("resize_nearest", [X], {"scales": ((1, 0, 1), (3, 1, 6), (1, 0, 2)), "shape": (2, 6, 8)}),
    ("interleave", [IMAGE], {"factors": (2, 2), "starts": (0, 1), "shape": (10, 9)}),
    ("resample", [X, np.array([[0, 1], [1, -1]]), X[0, :2, :2]], {"axis": 1}),
    *(("grid_sample", [IMAGE, np.tanh(_normal(1, 3, 3, 2))], {"mode": m, "padding": p, "align": a})
      for m, p, a in (("linear", "zeros", True), ("nearest", "border", False),
                      ("cubic", "zeros", False))),
    *(("roi_align", [IMAGE, np.array([[0, 1, 3, 4], [1, 1, 2, 5]], np.float32), np.array([0, 0])],
       {"size": (2, 3), "samples": 2, "scale": 0.75, "half": half, "largest": False})
      for half in (False, True)),
    ("matmul", [X, X], {"transpose_b": True}),
    ("attention", [X, X, X], {"scale": 0.5}),
    ("attention", [X, X, X, _normal(X.shape[-2], X.shape[-2])], {"scale": 0.5}),
    ("matmul", [X[0], X[0]], {"transpose_a": True, "dtype": "float64"}),
    ("matmul", [*_pairs(BYTES)], {"dtype": "int32"}),
    ("matmul", [*_pairs(INTEGERS.astype(np.uint8))], {}),
    ("attention", [_normal(2, 3, 4), _normal(2, 5, 4), _normal(2, 5, 6), _normal(3, 5)],
     {"scale": 0.4}),
    *(("attention", [_normal(3, 3).astype(np.float16)] * 4, {"scale": 0.4, "dtype": d})
      for d in (None, "float32")),
    ("conv", [IMAGE, _normal(6, 2, 3, 2)], {**SQUARE, "groups": 2}),
    ("conv", [X, _normal(6, 3, 2)],
     {"strides": (1,), "before": (1,), "after": (0,), "dilations": (2,)}),
    ("conv", [np.uint8(9) + IMAGE.astype(np.uint8), np.full((2, 4, 2, 2), 255, np.uint8)],
     {**SQUARE, "dtype": "int32"}),
    ("conv", [np.uint8(9) + IMAGE.astype(np.uint8), np.full((4, 1, 2, 2), -300, np.int16)],
     {**SQUARE, "groups": 4, "dtype": "int32"}),
    *(("max_pool", [x], w) for x in (IMAGE, IMAGE.astype(np.int32)) for w in (POOL, FAR)),
    *(("sum_pool", [x], w) for x in (IMAGE, IMAGE.astype(np.int8)) for w in (POOL, FAR)),
    _cell("rnn", activations=(("leakyrelu", 0.3, 0.0),), clip=0.5),
    _cell("gru", "lengths"),
    _cell("gru", "bias", backwards=True),
    _cell("lstm", "cell", "peepholes", "lengths", backwards=True),
    _cell("lstm", activations=(("hardsigmoid", 0.3, 0.4), ("affine", 0.3, 0.1), ("tanh", 0, 0))),
]  # fmt: skip

_NO_KERNEL = [
    ("bitcast", "int32"),
    ("cast", "uint64"),
    ("conv", "int32"),
    *(("accumulate", d) for d in ("float32", "int32")),
]
_NO_KERNEL += [(name, "float64") for name in ("elu", "celu", "selu")]
"""What onnxruntime may have no kernels for: the newest opsets, and some dtypes of 64 bits."""


def _graph(name: str, operands: list[Array], attributes: dict[str, Any]) -> Graph:
    b = Builder("case")
    values = [
        b.input(f"x{n}", TensorType(dtypes.from_numpy(a.dtype), a.shape))
        for n, a in enumerate(operands)
    ]
    made = b.add_all(name, *values, **attributes)
    return b.graph({f"y{n}": value for n, value in enumerate(made)})


def _check(found: Array, wanted: Array, rounding: float) -> None:
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if wanted.dtype.kind in "biu":
        np.testing.assert_array_equal(found, wanted)
    else:
        np.testing.assert_allclose(
            found.astype(np.float64), wanted.astype(np.float64), rtol=rounding, atol=rounding
        )


@pytest.mark.parametrize(
    ("name", "operands", "attributes"), CASES, ids=[f"{n}-{c[0]}" for n, c in enumerate(CASES)]
)
def test_a_graph_written_as_onnx_computes_the_same(
    name: str, operands: list[Array], attributes: dict[str, Any]
) -> None:
    graph = _graph(name, operands, attributes)
    wanted = graph.reference(*operands)
    model = graph.to_onnx()
    onnx.checker.check_model(model, full_check=True)
    again = tw.import_onnx(model)
    assert list(again.inputs) == list(graph.inputs)
    for found, value in zip(again.reference(*operands), wanted, strict=True):
        _check(found, value, 1e-6 if value.dtype.itemsize > 2 else 2e-3)
    _compare_with_onnxruntime(name, model, graph, operands, wanted)


@pytest.mark.parametrize("name", ["take", "take_along", "take_nd", "scatter", "scatter_nd"])
def test_indices_below_0_that_do_not_count_are_out_of_range(name: str) -> None:
    cases = [c for c in CASES if c[0] == name and not c[2].get("negative", True)]
    ((_, (x, places, *updates), attributes),) = cases
    graph = _graph(name, [x, places.astype(np.int64), *updates], attributes)
    with pytest.raises(GuardError):
        tw.import_onnx(graph.to_onnx()).reference(x, places.astype(np.int64) * 0 - 1, *updates)


NOTHING = np.zeros((0, 3), np.float32)


@pytest.mark.parametrize(
    ("name", "operands", "attributes"),
    [
        ("relu", [NOTHING], {}),
        ("concatenate", [NOTHING, np.ones((2, 3), np.float32)], {"axis": 0}),
        ("reshape", [NOTHING], {"shape": (0, 5, 2)}),
        ("broadcast_to", [NOTHING], {"shape": (4, 0, 3)}),
        ("slice", [NOTHING], {"starts": (0, 1), "steps": (1, 1), "shape": (0, 2)}),
        ("sum", [NOTHING], {"axes": (0,)}),
        ("matmul", [NOTHING.T, NOTHING], {}),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_dim_of_0_is_read_again(
    name: str, operands: list[Array], attributes: dict[str, Any]
) -> None:
    """Of what others write it is an open dim."""
    graph = _graph(name, operands, attributes)
    model = graph.to_onnx()
    again = tw.import_onnx(model)
    assert [v.type for v in again.inputs.values()] == [v.type for v in graph.inputs.values()]
    for found, value in zip(again.reference(*operands), graph.reference(*operands), strict=True):
        _check(found, value, 0)
    model.producer_name = "another"
    with pytest.raises(ModelError):
        tw.import_onnx(model)


def _compare_with_onnxruntime(
    name: str, model: Any, graph: Graph, operands: list[Array], wanted: tuple[Array, ...]
) -> None:
    ort = pytest.importorskip("onnxruntime")
    if any(v.dtype in dtypes.ML_DTYPES for v in graph.values()):
        return
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(model.SerializeToString(), options)
    except Exception as error:
        if (name, graph.outputs["y0"].dtype) in _NO_KERNEL:
            pytest.skip(f"onnxruntime: {error}")
        raise
    results = session.run(None, dict(zip(graph.inputs, operands, strict=True)))
    for found, value in zip(results, wanted, strict=True):
        rounding = 2e-3 if value.dtype.itemsize < 4 else 1e-5
        _check(found, value, 2e-4 if name == "grid_sample" else rounding)


WITHOUT = {"lu", "exchange_rows", "cholesky", "solve_triangular"}
"""Operators that ONNX does not have."""


@pytest.mark.parametrize("name", sorted(generated.CASES.keys() - WITHOUT))
def test_generated_cases_are_written(name: str) -> None:
    rng = np.random.default_rng(0)
    written = 0
    for _ in range(100):
        if written == 4:
            break
        numbers = "edges" if name == "recurrence" else "normal"
        pool = Pool(lambda n: int(rng.integers(n)), Style(numbers, fresh=8))
        inputs, attributes = generated.CASES[name](pool)
        made = pool.add(name, *inputs, **attributes)
        graph = None if made is None else pool.graph(made)
        if graph is None or not graph.nodes:
            continue
        arguments = [pool.arguments[n] for n in graph.inputs]
        try:
            model = graph.to_onnx()
        except UnsupportedError:
            continue
        again = tw.import_onnx(model, shapes={n: v.shape for n, v in graph.inputs.items()})
        for found, value in zip(
            again.reference(*arguments), graph.reference(*arguments), strict=True
        ):
            _check(found, value, 1e-6 if value.dtype.itemsize > 2 else 2e-3)
        written += 1
    assert written


@pytest.mark.parametrize("cell", ["RNN", "GRU", "LSTM"])
def test_layers_stay_layers_and_keep_what_is_no_number(cell: str) -> None:
    helper, columns = onnx.helper, {"RNN": 1, "GRU": 3, "LSTM": 4}[cell] * 3
    x = _normal(4, 2, 5)
    x[1, 0, 2], x[2, 1, 0] = np.nan, np.inf
    held = {"w": _normal(2, columns, 5), "r": _normal(2, columns, 3), "b": _normal(2, 2 * columns)}
    both = [onnx.numpy_helper.from_array(a, n) for n, a in held.items()]
    options = {"linear_before_reset": 1} if cell == "GRU" else {}
    layer = helper.make_node(
        cell, ["x", *held], ["y", "h"], hidden_size=3, direction="bidirectional", **options
    )
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [layer], "layer", [info("x", 1, x.shape)], [info("y", 1, None), info("h", 1, None)], both
    )
    first = tw.import_onnx(helper.make_model(graph, ir_version=8))
    model = first.to_onnx()
    onnx.checker.check_model(model, full_check=True)
    written = {node.op_type for node in model.graph.node}
    assert cell in written
    assert not written & {"Scan", "MatMul"}
    again = tw.import_onnx(model)
    wanted = first.reference(x)
    assert np.isnan(wanted[0]).any()
    assert not np.isnan(wanted[0]).all()
    for found, value in zip(again.reference(x), wanted, strict=True):
        np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_what_is_no_number_for_one_gate_is_none_for_that_gate_alone(cell: str) -> None:
    name, operands, attributes = _cell(cell)
    operands[0][0, 0, 0], operands[0][0, 1, 1] = np.nan, -np.inf
    graph = _graph(name, operands, attributes)
    first, *_ = graph.reference(*operands)
    assert np.isnan(first[0]).sum() == 1
    model = graph.to_onnx()
    again = tw.import_onnx(model)
    for found, value in zip(again.reference(*operands), graph.reference(*operands), strict=True):
        _check(found, value, 1e-6)
    _compare_with_onnxruntime(name, model, graph, operands, graph.reference(*operands))


def test_every_operator_is_written() -> None:
    from tilewright.importers.onnx import writers  # noqa: F401
    from tilewright.importers.onnx.writer import WRITERS

    own = {n for n, o in OPERATORS.items() if o.source.__module__.startswith("tilewright.graph")}
    own |= {n for n, o in OPERATORS.items() if o.kind is Kind.POINTWISE and n in WRITERS}
    assert own - WITHOUT == own & set(WRITERS)
    assert set(WRITERS) - {case[0] for case in CASES} == {"foreign"}  # see `test_foreign.py`


def test_outputs_that_are_inputs_constants_or_the_same_have_their_names() -> None:
    b = Builder("names")
    x = b.input("relu_0", TensorType("float32", (2,)))
    y, c = b.add("relu", x), b.constant([1.0, 2], "float32")
    graph = b.graph({"a": y, "b": y, "c": c, "d": x, "constant_1": b.add("add", y, c)})
    model = graph.to_onnx()
    onnx.checker.check_model(model, full_check=True)
    again = tw.import_onnx(model)
    assert list(again.outputs) == ["a", "b", "c", "d", "constant_1"]
    for found, value in zip(
        again.reference(X[0, 0, :2]), graph.reference(X[0, 0, :2]), strict=True
    ):
        np.testing.assert_array_equal(found, value)


def test_an_output_of_the_name_of_its_input_is_that_input() -> None:
    """Regression: it was the output of an Identity, too, and no model names two values alike."""
    b = Builder("same")
    x = b.input("x", TensorType("float32", (3,)))
    given = np.ones(3, np.float32)
    model = b.graph({"x": x, "y": b.add("exp", x)}).to_onnx()
    onnx.checker.check_model(model)
    for found, wanted in zip(
        tw.import_onnx(model).reference(given), (given, np.exp(given)), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    with pytest.raises(UnsupportedError):
        b.graph({"x": b.add("exp", x)}).to_onnx()


def test_all_that_cannot_be_written_is_listed() -> None:
    name = "test_to_onnx_only_here"
    register(Operator(name, Kind.OPAQUE, abs, infer=lambda x: x, source=lambda x: x))
    try:
        b = Builder("two")
        x = b.input("x", TensorType("int64", (1, 2, 4)))
        window = {"kernel": (2,), "strides": (1,), "before": (0,), "after": (0,), "dilations": (1,)}
        graph = b.graph({"y": b.add("max_pool", b.add(name, x), **window)})
        with pytest.raises(UnsupportedError) as caught:
            graph.to_onnx()
        reasons = [(operator, reason) for operator, reason, _ in caught.value.data["reasons"]]
        assert reasons == [(name, "OPERATOR"), ("max_pool", "DTYPE")]
    finally:
        del OPERATORS[name]

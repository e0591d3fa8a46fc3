"""Passes: each rule fires on its own example, keeps what is computed, and comes to an end."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import tilewright as tw
from tilewright.base import dtypes
from tilewright.base.errors import VerifyError
from tilewright.graph import Builder, Graph, Node, TensorType, Value
from tilewright.graph.builder import Rules
from tilewright.graph.passes import PASSES, Pass, stages
from tilewright.graph.passes.driver import compare, random_inputs
from tilewright.graph.verify import verify

from ..long import examples
from .mutants import applied, mutant
from .rule_examples import EXAMPLES, parsed

CASES = [(rule, *one) for rule, examples in EXAMPLES.items() for one in examples]
RULES = {rule.__name__ for each in PASSES for rules in each.rules.values() for rule in rules}


def test_each_rule_has_an_example() -> None:
    assert set(EXAMPLES) == RULES


@pytest.mark.parametrize(("rule", "inputs", "nodes", "wanted"), CASES)
def test_rules_keep_what_is_computed(rule: str, inputs: str, nodes: str, wanted: str) -> None:
    graph = parsed(inputs, nodes)
    found = stages(graph)
    assert any(rule in stage.applied for stage in found)
    after = found[-1].graph
    verify(after)
    assert " ".join(node.operator for node in after.nodes) == wanted
    for each in PASSES:
        once, _ = each.run(graph)
        assert each.run(once)[0] is once
        if not each.roundings and "take" not in {node.operator for node in graph.nodes}:
            given = special(graph)
            for a, b in zip(graph.reference(*given), once.reference(*given), strict=True):
                assert a.tobytes() == b.tobytes()
        graph = once
    assert after.optimized().digest == after.digest


def special(graph: Graph) -> list[np.ndarray]:
    """Inputs with NaN, infinities, zeros of both signs and limits of integers."""
    given = random_inputs(graph)
    for array in given:
        flat = array.reshape(-1)
        if dtypes.is_float(dtypes.from_numpy(array.dtype)):
            odd = np.asarray([np.nan, np.inf, -np.inf, -0.0, 0.0], array.dtype)
        else:
            odd = np.asarray([np.iinfo(array.dtype).max, np.iinfo(array.dtype).min, 0])
        flat[: odd.size] = odd[: flat.size]
    return given


def test_changed_examples_keep_what_they_compute() -> None:
    graphs = [parsed(inputs, nodes) for _, inputs, nodes, _ in CASES]
    fired = Counter[str]()
    for seed in range(examples(4800)):
        rng = np.random.default_rng(seed)
        graph = mutant(graphs, lambda n, rng=rng: int(rng.integers(n)))  # type: ignore[misc]
        if graph is not None:
            fired.update(applied(graph))
    assert set(fired) == RULES


@pytest.mark.parametrize(
    ("inputs", "nodes"),
    [
        ("x: float32[4]", "const z: float32[] = 0.0; y: float32[4] = add(x, z)"),
        ("x: float32[4]", "const z: float32[] = 1; y: float32[4] = subtract(z, x)"),
        ("x: float32[4]",
         "const z: float32[2, 1] = [[1], [1]]; y: float32[2, 4] = multiply(x, z)"),
        ("x: uint8[5, 1]",  # no index says that there is none
         "const n: uint8[2] = [0, 1]; const w: float32[2, 2] = [[1, 2], [3, 4]];"
         "a: bool[5, 2] = equal(x, n); b: float32[5, 2] = cast(a, dtype='float32');"
         "y: float32[5, 2] = matmul(b, w)"),
        ("x: int32[5, 1]",  # 0 * inf is NaN
         "const n: int32[2] = [0, 1]; const w: float32[2, 2] = [[1, 2], [3, Infinity]];"
         "a: bool[5, 2] = equal(x, n); b: float32[5, 2] = cast(a, dtype='float32');"
         "y: float32[5, 2] = matmul(b, w)"),
        ("x: float32[3, 2]",  # the product would be infinite
         "const w: float32[2, 2] = [[1e30, 2], [3, 4]]; const s: float32[] = 1e30;"
         "a: float32[3, 2] = matmul(x, w); y: float32[3, 2] = multiply(a, s)"),
        ("x: float32[3, 2]",  # the factor is that of a row
         "const w: float32[2, 2] = [[1, 2], [3, 4]]; const s: float32[3, 1] = [[1], [2], [3]];"
         "a: float32[3, 2] = matmul(x, w); y: float32[3, 2] = multiply(a, s)"),
        ("x: float32[3, 8]",  # the sum of squares, not their mean
         "const c: float32[] = 1e-5; q: float32[3, 8] = multiply(x, x);"
         "v: float32[3, 1] = sum(q, axes=(1,), keepdims=True); e: float32[3, 1] = add(v, c);"
         "r: float32[3, 1] = sqrt(e); y: float32[3, 8] = divide(x, r)"),
        *[
            ("x: float32[3, 8]",  # x / (n / sqrt(..)), and what is no mean
             f"const c: float32[] = 1e-5; const n: float32[] = {n};"
             "q: float32[3, 8] = multiply(x, x);"
             f"v: float32[3, {k}] = mean(q, axes={axes}, keepdims=True);"
             f"e: float32[3, {k}] = add(v, c); r: float32[3, {k}] = sqrt(e);"
             f"i: float32[3, {k}] = divide(n, r); y: float32[3, 8] = {last}")
            for n, k, axes, last in (
                (1, 1, "(1,)", "divide(x, i)"), (7, 1, "(1,)", "divide(x, i)"),
                (7, 1, "(1,)", "multiply(x, i)"), (1, 8, "()", "multiply(x, i)"),
            )
        ],
        *[
            ("x: int64[4]",  # tables of other rows, or of other dimensions
             f"const a: float32[{a}] = {p}; const b: float32[{b}] = {q};"
             f"c: float32[{c}] = take(a, x, axis=0); d: float32[{d}] = take(b, x, axis=0);"
             "y: float32[4, 2] = add(c, d)")
            for a, b, c, d, p, q in (
                ("2, 2", "3, 2", "4, 2", "4, 2", [[1, 2], [3, 4]], [[1, 2], [3, 4], [5, 6]]),
                ("3, 2", "2, 1", "4, 2", "4, 1", [[1, 2], [3, 4], [5, 6]], [[1], [2]]),
            )
        ],
        ("x: int64[4]",
         "const a: float32[4, 1] = [[1], [2], [3], [4]]; const b: float32[4] = [1, 2, 3, 4];"
         "c: float32[4, 1] = take(a, x, axis=0); d: float32[4] = take(b, x, axis=0);"
         "y: float32[4, 4] = add(c, d)"),
        ("x: float32[2, 9]",  # an offset in which the sum would lose its digits
         "const o: float32[] = 1e6; const z: float32[] = 0; const t: float32[] = 6;"
         "a: float32[2, 9] = add(x, o); b: float32[2, 9] = maximum(z, a);"
         "c: float32[2, 9] = minimum(b, t); d: float32[2, 9] = multiply(x, c);"
         "y: float32[2, 9] = divide(d, t)"),
        ("x: float32[2, 9]",  # 6 divides what is cut off at 5
         "const o: float32[] = 3; const z: float32[] = 0; const t: float32[] = 5;"
         "const s: float32[] = 6; a: float32[2, 9] = add(x, o); b: float32[2, 9] = maximum(z, a);"
         "c: float32[2, 9] = minimum(b, t); d: float32[2, 9] = multiply(x, c);"
         "y: float32[2, 9] = divide(d, s)"),
        ("x: float32[2, 24]",  # the slice starts within a row
         "a: float32[2, 12] = slice(x, starts=(0, 5), steps=(1, 1), shape=(2, 12));"
         "b: float32[2, 4, 3] = reshape(a, shape=(2, 4, 3));"
         "y: float32[4, 2, 3] = transpose(b, axes=(1, 0, 2))"),
        ("x: float32[2, 24]",  # so do its rows
         "a: float32[2, 12] = slice(x, starts=(0, 0), steps=(1, 2), shape=(2, 12));"
         "b: float32[2, 4, 3] = reshape(a, shape=(2, 4, 3));"
         "y: float32[4, 2, 3] = transpose(b, axes=(1, 0, 2))"),
        *[
            (f"x: float32[{e}, 12]",  # a slice that turns or repeats its rows is no whole one
             f"a: float32[6, 12] = slice(x, starts=({s}, 0), steps=({t}, 1), shape=(6, 12));"
             "b: float32[2, 3, 12] = reshape(a, shape=(2, 3, 12));"
             "y: float32[12, 2, 3] = transpose(b, axes=(2, 0, 1))")
            for e, s, t in ((6, 5, -1), (6, 0, 0), (12, 0, 2), (12, 11, -2))
        ],
        ("x: float32[3, 2, 6]",  # the reshape joins what is sliced with what is not
         "a: float32[2, 2, 6] = slice(x, starts=(1, 0, 0), steps=(1, 1, 1), shape=(2, 2, 6));"
         "b: float32[4, 6] = reshape(a, shape=(4, 6));"
         "y: float32[6, 4] = transpose(b, axes=(1, 0))"),
        ("q: float32[2, 5, 4], k: float32[2, 6, 4], v: float32[2, 6, 3]",  # along the wrong axis
         "a: float32[2, 5, 6] = matmul(q, k, transpose_b=True);"
         "b: float32[2, 5, 6] = softmax(a, axis=1); y: float32[2, 5, 3] = matmul(b, v)"),
        ("q: float32[2, 5, 4], k: float32[2, 6, 4], v: float32[2, 6, 6]",  # weights are read again
         "a: float32[2, 5, 6] = matmul(q, k, transpose_b=True);"
         "b: float32[2, 5, 6] = softmax(a, axis=2); c: float32[2, 5, 6] = matmul(b, v);"
         "y: float32[2, 5, 6] = add(c, b)"),
    ],
)  # fmt: skip
def test_what_would_change_results_stays(inputs: str, nodes: str) -> None:
    graph = parsed(inputs, nodes)
    assert graph.optimized() is graph


def test_a_wrong_rule_is_named() -> None:
    def halved(_: Builder, node: Node) -> Value | None:
        return node.inputs[0]

    def right(b: Builder, node: Node) -> Value | None:
        value: Value = b.add("add", node.inputs[0], node.inputs[0])
        return value

    rules: Rules = {"add": [halved], "multiply": [right]}
    graph = parsed(
        "x: float32[4]",
        "const z: float32[] = 2; a: float32[4] = multiply(x, z); y: float32[4] = add(a, x)",
    )
    broken = Pass("broken", rules)
    with pytest.raises(VerifyError) as error:
        compare(broken, graph, broken.run(graph)[0])
    assert error.value.data["rules"] == ["halved"]


def test_a_build_runs_the_passes() -> None:
    b = Builder("late")
    x = b.input("x", TensorType("float32", (4, 6)))
    w = b.constant(np.ones((6, 6)), "float32")
    h = b.add("reshape", b.add("matmul", x, w), shape=(2, 12))
    graph = b.graph({"y": b.add("relu", h)})
    (kernel,) = graph.kernels()
    assert kernel.name.startswith("matmul_relu")
    model = tw.build(graph, "cpu -threads=1")
    given = random_inputs(graph)
    np.testing.assert_allclose(model(*given), graph.reference(*given)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_attention_is_one_kernel(dtype: str) -> None:
    b = Builder("attention")
    extents = {"q": 5, "k": 7, "v": 7}
    q, k, v = (b.input(n, TensorType(dtype, (2, 3, e, 8))) for n, e in extents.items())
    mask = b.constant(np.where(np.tri(5, 7, 2), 0, -np.inf), dtype)
    scores = b.add("multiply", b.add("matmul", q, k, transpose_b=True), b.constant(0.3, dtype))
    weights = b.add("softmax", b.add("add", scores, mask), axis=3)
    graph = b.graph({"y": b.add("matmul", weights, v)})
    (kernel,) = graph.kernels()
    assert kernel.name.startswith("attention")
    given = random_inputs(graph)
    (wanted,) = graph.reference(*given, dtype="float64")
    error = np.abs(tw.build(graph, "cpu -threads=1")(*given) - wanted).max()
    assert error < 4 * np.finfo(dtype).eps


@pytest.mark.parametrize(
    ("first", "operator", "second"), [(1e30, "multiply", 1e10), (3e38, "add", 3e38)]
)
def test_shifts_that_would_overflow_stay_apart(first: float, operator: str, second: float) -> None:
    b = Builder("g")
    x = b.input("x", TensorType("float32", (1, 1, 1, 1)))
    window = {"strides": (1, 1), "before": (0, 0), "after": (0, 0), "dilations": (1, 1)}
    product = b.add("conv", x, b.constant(np.ones((1, 1, 1, 1)), "float32"), groups=1, **window)
    shifted = b.add("add", product, b.constant(np.full((1, 1, 1), first), "float32"))
    made = b.add(operator, shifted, b.constant(np.full((1, 1, 1), second), "float32"))
    graph = b.graph({"y": made})
    given = np.full((1, 1, 1, 1), -first, np.float32)
    want = graph.reference(given)[0]
    assert np.isfinite(want).all()
    np.testing.assert_array_equal(graph.optimized().reference(given)[0], want)

"""Passes: each rule fires on its own example, keeps what is computed, and comes to an end."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import VerifyError
from tilewright.graph import Builder, Graph, Node, TensorType, Value
from tilewright.graph.builder import Rules
from tilewright.graph.passes import PASSES, Pass, stages
from tilewright.graph.passes.check import compare, random_inputs
from tilewright.graph.text import parse_graph
from tilewright.graph.verify import verify

EXAMPLES: dict[str, list[tuple[str, str, str]]] = {
    "without_neutral": [
        ("x: float32[4]", "const z: float32[] = -0.0; y: float32[4] = add(x, z)", ""),
        ("x: int32[4]", "const z: int32[] = 0; y: int32[4] = subtract(x, z)", ""),
        ("x: float32[4]", "const z: float32[1] = [1]; y: float32[4] = multiply(z, x)", ""),
        ("x: float32[4]", "const z: float32[] = -Infinity; y: float32[4] = maximum(x, z)", ""),
        ("x: uint8[4]", "const z: uint8[] = 255; y: uint8[4] = minimum(x, z)", ""),
    ],
    "reshape_of_reshape": [
        ("x: float32[4, 6]",
         "a: float32[24] = reshape(x, shape=(24,)); y: float32[8, 3] = reshape(a, shape=(8, 3))",
         "reshape"),
    ],
    "transpose_as_view": [
        ("x: float32[4, 1, 6]", "y: float32[1, 4, 6] = transpose(x, axes=(1, 0, 2))", "reshape"),
    ],
    "transpose_of_transpose": [
        ("x: float32[4, 5, 6]",
         "a: float32[6, 4, 5] = transpose(x, axes=(2, 0, 1));"
         "y: float32[4, 5, 6] = transpose(a, axes=(1, 2, 0))", ""),
        ("x: float32[4, 1, 6]",
         "a: float32[6, 4, 1] = transpose(x, axes=(2, 0, 1));"
         "b: float32[6, 1, 4, 1] = reshape(a, shape=(6, 1, 4, 1));"
         "y: float32[1, 4, 6, 1] = transpose(b, axes=(1, 2, 0, 3))", "reshape"),
        ("x: float32[2, 3, 4]",
         "a: float32[4, 2, 3] = transpose(x, axes=(2, 0, 1));"
         "b: float32[4, 1, 2, 3] = reshape(a, shape=(4, 1, 2, 3));"
         "y: float32[2, 1, 4, 3] = transpose(b, axes=(2, 1, 0, 3))", "transpose reshape"),
    ],
    "reshape_sinks": [
        ("x: float32[4, 6]",
         "const c: float32[3] = [1, 2, 3]; r: float32[4, 6] = exp(x);"
         "a: float32[4, 2, 3] = reshape(r, shape=(4, 2, 3)); b: float32[4, 2, 3] = cos(a);"
         "y: float32[4, 2, 3] = add(b, b)", "exp cos add reshape"),
        ("x: float32[4, 6]",
         "const c: float32[4, 1, 1] = [[[1]], [[2]], [[3]], [[4]]];"
         "a: float32[4, 2, 3] = reshape(x, shape=(4, 2, 3)); y: float32[4, 2, 3] = multiply(c, a)",
         "multiply reshape"),
    ],
}  # fmt: skip
"""Of each rule: inputs, nodes, and the operators that are left of them."""

CASES = [(rule, *one) for rule, examples in EXAMPLES.items() for one in examples]
RULES = {rule.__name__ for each in PASSES for rules in each.rules.values() for rule in rules}


def parsed(inputs: str, nodes: str) -> Graph:
    lines = [f"  {line.strip()}" for line in nodes.split(";")]
    return parse_graph("\n".join([f"graph g({inputs}) -> (y):", *lines, "  return y=y"]))


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
        if not each.tolerance:
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
        if array.dtype.kind == "f":
            odd = np.asarray([np.nan, np.inf, -np.inf, -0.0, 0.0], array.dtype)
        else:
            odd = np.asarray([np.iinfo(array.dtype).max, np.iinfo(array.dtype).min, 0])
        flat[: odd.size] = odd[: flat.size]
    return given


@pytest.mark.parametrize(
    "nodes",
    [
        "const z: float32[] = 0.0; y: float32[4] = add(x, z)",
        "const z: float32[] = 1; y: float32[4] = subtract(z, x)",
        "const z: float32[2, 1] = [[1], [1]]; y: float32[2, 4] = multiply(x, z)",
    ],
)  # fmt: skip
def test_what_is_not_exact_stays(nodes: str) -> None:
    graph = parsed("x: float32[4]", nodes)
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

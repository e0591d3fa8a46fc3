"""Programs that JAX exports as graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph.ir import Graph

jax: Any = pytest.importorskip("jax")
jnp: Any = pytest.importorskip("jax.numpy")

RNG = np.random.default_rng(0)


def array(*shape: int, dtype: str = "float32") -> Any:
    return RNG.normal(size=shape).astype(dtype)


def exported(function: Any, *args: Any) -> Any:
    return jax.export.export(jax.jit(function))(*args)


def check(function: Any, *args: Any, tolerance: float = 1e-5) -> Graph:
    """Compare the graph's reference with JAX."""
    graph = tw.import_stablehlo(exported(function, *args))
    found = graph.reference(*jax.tree_util.tree_leaves(args))
    wanted = jax.tree_util.tree_leaves(jax.jit(function)(*args))
    for own, other in zip(found, wanted, strict=True):
        expected = np.asarray(other)
        assert own.dtype == expected.dtype
        np.testing.assert_allclose(own, expected, rtol=tolerance, atol=tolerance)
    return graph


LAYERS = [{"w": array(8, 16), "b": array(16)}, {"w": array(16, 4), "b": array(4)}]


def mlp(layers: Any, x: Any) -> Any:
    *hidden, last = layers
    for layer in hidden:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return {"logits": x @ last["w"] + last["b"], "features": (x,)}


def test_an_exported_function_is_built_and_called() -> None:
    x = array(3, 8)
    graph = tw.import_stablehlo(exported(mlp, LAYERS, x))
    model = tw.build(graph, "cpu -threads=1")
    found = model(*jax.tree_util.tree_leaves((LAYERS, x)))
    wanted = jax.tree_util.tree_leaves(mlp(LAYERS, x))
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-5)


def test_names_and_places_are_kept() -> None:
    graph = check(mlp, LAYERS, array(3, 8))
    assert list(graph.inputs) == ["layers_0_b", "layers_0_w", "layers_1_b", "layers_1_w", "x"]
    assert list(graph.outputs) == ["features_0", "logits"]
    assert graph.name == "mlp"
    product = next(s for s in graph.sources if s.operator == "stablehlo.dot_general")
    line = mlp.__code__.co_firstlineno + 3
    assert product.name == f"jit(mlp)/dot_general test_stablehlo.py:{line}"


def test_text_bytecode_and_what_jax_exports_are_one_graph() -> None:
    program = exported(mlp, LAYERS, array(3, 8))
    graphs = [
        tw.import_stablehlo(given)
        for given in (program, program.mlir_module(), program.mlir_module_serialized)
    ]
    assert len({graph.digest for graph in graphs}) == 1


def test_arguments_that_are_not_used_are_inputs() -> None:
    graph = check(lambda x, y, z: x + z["b"], array(2), array(3), {"a": array(4), "b": array(2)})
    assert list(graph.inputs) == ["x", "arg1", "arg2_a", "z_b"]

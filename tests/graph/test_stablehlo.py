"""Programs that JAX exports as graphs."""

from __future__ import annotations

import hashlib
import logging
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp

import tilewright as tw
from tilewright.base.errors import ModelError, UnsupportedError
from tilewright.graph.builder import Builder
from tilewright.graph.compose.random_bits import philox, threefry
from tilewright.graph.groups import divide
from tilewright.graph.ir import Graph
from tilewright.graph.loops import nodes_of
from tilewright.importers import rolling

from .jax_cases import cases
from .jax_functions import tried_at_random, verdict

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


def module(body: str, type: str = "tensor<3xf32>") -> str:
    """The text of a module whose main function has an argument and a result of one type."""
    return f"module {{ func.func @main(%a: {type}) -> {type} {{\n{body}\n}} }}"


def reasons(program: Any) -> list[tuple[str, str, str]]:
    """What an import says that it lacks: the operation, the reason, the detail."""
    with pytest.raises(UnsupportedError) as caught:
        tw.import_stablehlo(program)
    return [tuple(reason[1:]) for reason in caught.value.data["reasons"]]


def test_all_that_is_not_supported_is_one_list() -> None:
    body = """
      %0 = stablehlo.custom_call @foo(%a) : (tensor<3xf32>) -> tensor<3xf32>
      %1 = stablehlo.custom_call @bar(%0) : (tensor<3xf32>) -> tensor<3xf32>
      %2 = "other.sum"(%1) : (tensor<3xf32>) -> tensor<3xf32>
      return %2 : tensor<3xf32>"""
    assert reasons(module(body)) == [
        ("custom_call @foo", "OPERATOR", "custom_call @foo"),
        ("custom_call @bar", "OPERATOR", "custom_call @bar"),
        ("other.sum", "DOMAIN", "other.sum"),
    ]


@pytest.mark.parametrize(
    ("type", "reason"),
    [
        ("tensor<3xi4>", "DTYPE"),
        ("tensor<3xf8E3M4>", "DTYPE"),
        ("tensor<?x3xf32>", "DATA_DEPENDENT"),
        ("tensor<*xf32>", "TYPE"),
        ("!stablehlo.token", "TYPE"),
        ("memref<3xf32>", "TYPE"),
    ],
)
def test_types_that_graphs_do_not_have_are_refused(type: str, reason: str) -> None:
    ((operation, found, detail),) = reasons(module(f"return %a : {type}", type))
    assert (operation, found) == ("input", reason)
    assert detail.startswith(type) or type.removeprefix("tensor<3x")[:-1] == detail


def test_open_dims_are_refused() -> None:
    (rows,) = jax.export.symbolic_shape("rows")
    argument = jax.ShapeDtypeStruct((rows, 3), np.float32)
    program = jax.export.export(jax.jit(jnp.sin))(argument)
    assert ("input", "DATA_DEPENDENT") in [reason[:2] for reason in reasons(program)]


def _carry(state: Any, x: Any) -> Any:
    after = jnp.tanh(state * 0.5 + x)
    return after, (after * 2, x.sum())


ROWS = 20
_written = jax.lax.dynamic_update_index_in_dim
LOOPS = {
    "scan": lambda h, x: jax.lax.scan(_carry, h, x),
    "scan_reversed": lambda h, x: jax.lax.scan(_carry, h, x, reverse=True),
    "counter": lambda h, _: jax.lax.fori_loop(3, ROWS, lambda k, v: v * 0.5 + k, h),
    "rows_read": lambda h, x: jax.lax.fori_loop(0, ROWS, lambda k, v: v + x[ROWS - 1 - k], h),
    "columns_read": lambda h, x: jax.lax.fori_loop(0, ROWS, lambda k, v: v + x.T[:, k], h),
    "columns_written": lambda h, x: jax.lax.fori_loop(
        0, ROWS, lambda k, v: _written(v, h * k, ROWS - 1 - k, 1), x.T
    ),
    "rows_written_and_read": lambda h, x: jax.lax.fori_loop(
        0, ROWS, lambda k, v: _written(v, v[0] * 0.5 + h, k, 0), x
    ),
    "rows_written_in_part": lambda h, x: jax.lax.fori_loop(
        0, ROWS - 1, lambda k, v: _written(v, h * k, k, 0), x
    ),
    "row_read_as_it_is_written": lambda h, x: jax.lax.fori_loop(
        0,
        ROWS,
        lambda k, v: (_written(v[0], h * k, k, 0), v[1] + _written(v[0], h * k, k, 0)[k]),
        (x, h),
    ),
    "swapped": lambda h, x: jax.lax.fori_loop(0, ROWS, lambda _, v: (v[1], v[0] + 1), (h, x[0])),
    "nested": lambda h, x: jax.lax.scan(
        lambda v, r: (jax.lax.fori_loop(0, 9, lambda k, u: u * 0.5 + k * r, v), r), h, x
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_of_many_nodes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are loops of the graph, and what all steps read or write row by row is not copied."""
    monkeypatch.setattr(rolling, "WRITTEN_NODES", 8)
    graph = check(LOOPS[name], array(4), array(ROWS, 4))
    assert [node.operator for node in graph.nodes].count("loop") == 1
    copied = any(node.operator == "scatter_nd" for node in nodes_of(graph))
    whole = ("rows_written_and_read", "rows_written_in_part", "row_read_as_it_is_written")
    assert copied == (name in whole)


def test_a_loop_of_a_thousand_steps_is_a_node() -> None:
    graph = check(lambda x: jax.lax.fori_loop(0, 5000, lambda k, v: v * 0.5 + k, x), array(3))
    assert [node.operator for node in graph.nodes] == ["loop"]


def test_loops_that_data_decide_or_that_are_long_are_refused() -> None:
    def until(last: int) -> Any:
        return lambda x: jax.lax.fori_loop(0, last, lambda _, v: v * 0.5, x)

    assert [r[:2] for r in reasons(exported(until(1 << 20), array(2)))] == [("while", "OPERATOR")]
    double = exported(lambda x: jax.lax.while_loop(lambda v: v < 9, lambda v: 2 * v, x), 1.0)
    assert [r[:2] for r in reasons(double)] == [("while", "DATA_DEPENDENT")]


@pytest.mark.parametrize(
    "program",
    [
        "garbage",
        "",
        b"",
        b"\xff\xfe",
        b"ML\xefR",
        None,
        jnp.sin,
        Path("model.mlir"),
        "module { func.func @f() { return }\n func.func @g() { return } }",
        "module { func.func @main() { return } }",
        "module { func.func private @main(tensor<3xf32>) -> tensor<3xf32> }",
        module(
            "%0 = call @main(%a) : (tensor<3xf32>) -> tensor<3xf32>\n return %0 : tensor<3xf32>"
        ),
        module("cf.br ^b(%a : tensor<3xf32>)\n^b(%x: tensor<3xf32>): return %x : tensor<3xf32>"),
        module("%0 = stablehlo.iota dim = 0 : tensor<900000000000xi8>\n return %a : tensor<3xf32>"),
        module("%0 = stablehlo.add %a, %a : tensor<4xf32>\n return %a : tensor<3xf32>"),
    ],
)
def test_what_is_no_program_is_refused(program: Any) -> None:
    with pytest.raises(ModelError) as caught:
        tw.import_stablehlo(program)
    assert not isinstance(caught.value, UnsupportedError)


def test_cut_and_newer_artifacts_are_refused() -> None:
    """Of what is damaged elsewhere the reader of jaxlib may crash: those are not tried."""
    data = exported(jnp.sin, array(3)).mlir_module_serialized
    major = data.index(b"StableHLO_v") + len(b"StableHLO_v")
    newer = data[:major] + b"9" + data[major + 1 :]
    for damaged in (data[: len(data) // 2], newer):
        with pytest.raises(ModelError):
            tw.import_stablehlo(damaged)


def test_a_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "sine.mlir"
    path.write_text(exported(jnp.sin, array(3)).mlir_module())
    with pytest.raises(ModelError) as caught:
        tw.import_stablehlo(str(path))
    assert "read_bytes" in str(caught.value.hint)
    assert len(tw.import_stablehlo(path.read_bytes()).nodes) == 1


def test_without_jax_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ModelError) as caught:
        tw.import_stablehlo("")
    assert "tilewright[jax]" in str(caught.value.hint)


def test_tensors_without_elements() -> None:
    none = np.zeros((0, 3), np.float32)
    check(lambda x: (x + 1, x.sum(0), x.max(1), x.T @ x, jnp.concatenate([x, x[:0]])), none)
    check(lambda x, y: (jnp.concatenate([x, y]), y.at[jnp.zeros(0, int)].add(x)), none, array(2, 3))
    check(lambda x: jnp.pad(x, 1), none)


def test_what_is_reduced_of_nothing() -> None:
    """Regression: any of nothing was True, and with it a determinant 0."""
    check(lambda x: (jnp.any(x, 1), jnp.all(x, 1)), np.zeros((2, 0), bool))
    check(jnp.linalg.det, array(3, 0, 0))
    check(
        lambda x: jax.lax.reduce(x, np.int32(6), jax.lax.bitwise_xor, (1,)),
        array(2, 0, dtype="int32"),
    )
    none = np.zeros((0, 5), np.complex64)
    joined = tw.import_stablehlo(exported(lambda z: jnp.concatenate([z, z]), none))
    assert [value.shape for value in joined.outputs.values()] == [(0, 5, 2)]


def test_narrow_floats() -> None:
    x = array(4, 5).astype(jnp.bfloat16)
    check(lambda v: nan_rows(v).astype(jnp.float32), x, tolerance=0.02)
    text = module("return %a : tensor<3xf8E4M3FN>", "tensor<3xf8E4M3FN>")
    assert tw.import_stablehlo(text).inputs["arg0"].dtype == "float8_e4m3fn"


def nan_rows(x: Any) -> Any:
    """With constants of bfloat16: numbers, infinities, whole tensors."""
    weights = jnp.asarray([1.5, -2, 0.25, jnp.inf, jnp.nan], jnp.bfloat16)
    return jnp.where(x > 0, x * jnp.bfloat16(1.5), weights) + jax.nn.softmax(x)


def test_a_program_for_several_platforms_is_that_for_processors() -> None:
    x = array(3)
    program = jax.export.export(jax.jit(jnp.sin), platforms=("cuda", "cpu"))(x)
    graph = tw.import_stablehlo(program)
    assert list(graph.inputs) == ["x"]
    np.testing.assert_allclose(graph.reference(x)[0], np.sin(x), rtol=1e-6)


def test_loops_fill_what_they_stack_at_once() -> None:
    graph = check(lambda x: jax.lax.scan(lambda c, a: (c + a, c * a), x[0], x), array(9, 4))
    assert sum(node.operator == "concatenate" for node in graph.nodes) == 1


def test_places_in_windows_that_overlap_and_equal_elements() -> None:
    x = np.float32(RNG.integers(0, 3, (1, 7, 6, 2)))

    def total(v: Any) -> Any:
        pooled = jax.lax.reduce_window(
            v, -jnp.inf, jax.lax.max, (1, 3, 2, 1), (1, 2, 1, 1), ((0, 0), (1, 1), (0, 1), (0, 0))
        )
        return (pooled * jnp.arange(float(pooled.size)).reshape(pooled.shape)).sum()

    check(jax.grad(total), x)


DRAWS: dict[str, Any] = {
    "uniform": lambda key: jax.random.uniform(key, (5, 7)),
    "uniform of few bits": lambda key: jax.random.uniform(key, (5,), jnp.bfloat16),
    "bernoulli": lambda key: jax.random.bernoulli(key, 0.3, (11,)),
    "integers": lambda key: jax.random.randint(key, (9,), -5, 17),
    "bits": lambda key: jax.random.bits(key, (7,), "uint8"),
    "split": lambda key: jax.random.key_data(jax.random.split(key, 3)),
    "fold_in": lambda key: jax.random.key_data(jax.random.fold_in(key, 7)),
    "permutation": lambda key: jax.random.permutation(key, 9),
    "unused": lambda key: jnp.ones(3),
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("generator", ["threefry2x32", "rbg"])
def test_random_numbers_are_those_of_jax_bit_for_bit(generator: str, name: str) -> None:
    key = jax.random.key(3 << 40 | 5, impl=generator)
    words, draw = np.asarray(jax.random.key_data(key)), DRAWS[name]
    graph = tw.import_stablehlo(exported(draw, key))
    (own,) = graph.reference(words)
    np.testing.assert_array_equal(own, jax.jit(draw)(key))
    if name in ("uniform", "split"):
        np.testing.assert_array_equal(tw.build(graph, "cpu -threads=1")(words), own)


def test_rounds_of_threefry_are_one_kernel() -> None:
    """Three more are of the key, and one of what the bits are as floats."""
    draw = DRAWS["uniform"]
    graph = tw.import_stablehlo(exported(draw, jax.random.key(3, impl="threefry2x32")))
    groups = divide(graph.optimized())
    assert len(groups) == 5
    assert max(len(group.nodes) for group in groups) > 100


def test_normal_numbers_are_as_exact_as_their_functions() -> None:
    keys = np.array([[1, 2], [3, 1 << 31]], np.uint32)  # of the older kind
    draw = jax.vmap(lambda key: jax.random.normal(key, (40,)))
    own = tw.build(tw.import_stablehlo(exported(draw, keys)), "cpu -threads=1")(keys)
    np.testing.assert_allclose(own, draw(keys), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("algorithm", jax.lax.RandomAlgorithm.__members__.values())
@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
def test_random_bits_and_the_next_state(algorithm: Any, dtype: str) -> None:
    for state in ([1, 2, 3, 4], [5, 6, (1 << 32) - 1, (1 << 32) - 1]):  # the counter overflows
        given = np.array(state, np.uint32)
        for shape in ((6,), (7,), (3, 5), (5, 3, 5), (3, 4, 6), (), (0,)):
            with jax.enable_x64(True):

                def draw(state: Any, shape: Any = shape) -> Any:
                    return jax.lax.rng_bit_generator(state, shape, dtype, algorithm)

                graph = tw.import_stablehlo(exported(draw, given))
                wanted = [np.asarray(value) for value in jax.jit(draw)(given)]
            for own, other in zip(graph.reference(given), wanted, strict=True):
                assert own.dtype == other.dtype
                np.testing.assert_array_equal(own, other)


def random_bits(algorithm: str, words: int, dtype: str = "ui32") -> tw.Graph:
    state, bits = f"tensor<{words}xui64>", f"tensor<4x{dtype}>"
    return tw.import_stablehlo(
        f"""func.func @main(%state: {state}) -> ({state}, {bits}) {{
          %0:2 = "stablehlo.rng_bit_generator"(%state) {{
            rng_algorithm = #stablehlo<rng_algorithm {algorithm}>
          }} : ({state}) -> ({state}, {bits})
          return %0#0, %0#1 : {state}, {bits} }}"""
    )


def test_a_state_of_three_words_has_a_counter_of_two() -> None:
    last = np.uint64((1 << 64) - 1)
    state, bits = random_bits("PHILOX", 3).reference(np.array([0, last, last], np.uint64))
    assert state.tolist() == [0, 0, 0]
    state, bits = random_bits("PHILOX", 3).reference(np.zeros(3, np.uint64))
    assert state.tolist() == [0, 1, 0]
    assert bits.tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    signed = random_bits("PHILOX", 3, "i32").reference(np.zeros(3, np.uint64))[1]
    np.testing.assert_array_equal(signed, bits.view(np.int32))
    for algorithm, words, dtype in (("THREE_FRY", 3, "ui32"), ("DEFAULT", 2, "f32")):
        with pytest.raises(UnsupportedError) as caught:
            random_bits(algorithm, words, dtype)
        assert [r[1] for r in caught.value.data["reasons"]] == ["rng_bit_generator"]


@pytest.mark.parametrize(
    ("generator", "counter", "key", "wanted"),
    [
        (philox, [0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (philox, [0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (threefry, [0] * 2, [0] * 2, "6b200159 99ba4efe"),
        (threefry, [0xFFFFFFFF] * 2, [0xFFFFFFFF] * 2, "1cb996fc bb002be7"),
        (threefry, [0x243F6A88, 0x85A308D3], [0x13198A2E, 0x03707344], "c4923a9c 483df7a0"),
    ],
)
def test_known_answers(generator: Any, counter: list[int], key: list[int], wanted: str) -> None:
    """Those that the authors of the generators publish."""
    b = Builder("answers")
    given = [[b.constant(word, "uint32") for word in words] for words in (counter, key)]
    found = [b.graph({"y": v}).reference()[0].item() for v in generator(b, *given)]
    assert " ".join(f"{word:08x}" for word in found) == wanted


def test_what_the_page_shows_runs() -> None:
    page = Path(tw.__file__).parent / "docs" / "models.md"
    (block,) = re.findall(r"```python jax\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, str(page), "exec"), names)
    wanted = names["layer"](names["params"], names["x"])["logits"]
    np.testing.assert_allclose(names["logits"], wanted, rtol=1e-5, atol=1e-5)


COMPILED = ("decoder_block", "convnet", "grad_max_pool", "grad_embedding", "two_indices")
REFERENCED = 20


def seed() -> int:
    """A number that the sources of the importer decide: others are tried where they change."""
    digest = hashlib.sha256()
    for path in sorted((Path(tw.__file__).parent / "importers" / "stablehlo").rglob("*.py")):
        digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:4])


def test_functions_are_right(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    known = cases()
    some = np.random.default_rng(seed()).permutation(sorted(known))[:REFERENCED]
    tried = [*((str(name), True) for name in some), *((name, False) for name in COMPILED)]
    for name, reference in tried:
        case = known[name]
        kind, why = verdict(case, reference=reference)
        wanted = "refused" if case.refused else "right"
        assert (kind, case.refused in why) == (wanted, True), f"{name}: {why}"


def test_random_operations_are_right() -> None:
    verdicts = dict(tried_at_random(16, seed()))
    assert {name: why for name, (kind, why) in verdicts.items() if kind != "right"} == {}
    assert len(verdicts) >= 12


def test_attention_whose_products_are_turned_is_one_kernel() -> None:
    """`einsum` has the values as the first operand of the second product."""

    def attention(w: Any, c: Any, x: Any) -> Any:
        q, k, v = ((x @ w[n] + c[n]).reshape(2, 6, 3, 4) for n in range(3))
        scores = jnp.einsum("nqhd,nkhd->nhqk", q, k) / 2
        return jnp.einsum("nhqk,nkhd->nqhd", jax.nn.softmax(scores), v)

    graph = check(attention, array(3, 5, 12), array(3, 12), array(2, 6, 5))
    names = [group.name for group in divide(graph.optimized())]
    assert [name for name in names if "attention" in name or "softmax" in name] == ["attention"]
    assert names.count("matmul_slice_add") == 3

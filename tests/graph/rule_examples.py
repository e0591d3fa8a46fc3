"""Graphs that the rules of passes are for."""

from __future__ import annotations

from tilewright.graph import Graph
from tilewright.graph.text import parse_graph

EXAMPLES: dict[str, list[tuple[str, str, str]]] = {
    "product_of_integers": [
        ("x: uint8[3, 4], w: int8[4, 2]",
         "const s: float32[] = 0.5; const t: float32[1, 2] = [[0.25, 3]]; const z: uint8[] = 7;"
         "a: float32[3, 4] = dequantize(x, z); b: float32[3, 4] = multiply(a, s);"
         "c: float32[4, 2] = dequantize(w); d: float32[4, 2] = multiply(t, c);"
         "y: float32[3, 2] = matmul(b, d)", "matmul cast sum multiply subtract cast multiply"),
    ],
    "convolution_of_integers": [
        ("x: uint8[1, 2, 5], w: int8[3, 2, 2]",
         "const s: float32[] = 0.5; const t: float32[3, 1, 1] = [[[0.25]], [[3]], [[1]]];"
         "a: float32[1, 2, 5] = dequantize(x); b: float32[1, 2, 5] = multiply(a, s);"
         "c: float32[3, 2, 2] = dequantize(w); d: float32[3, 2, 2] = multiply(t, c);"
         "y: float32[1, 3, 4] ="
         " conv(b, d, strides=(1,), before=(0,), after=(0,), dilations=(1,))",
         "conv cast multiply"),
    ],
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
    "concatenate_of_many": [
        ("x: float32[2, 2]",
         "a: float32[2, 2] = exp(x);"
         f"y: float32[2, 130] = concatenate({'x, ' * 32}{'a, ' * 32}x, axis=1)",
         "exp concatenate concatenate concatenate"),
    ],
    "concatenate_of_slices": [
        ("x: float32[4, 2, 3]",
         "a: float32[4, 1, 3] = slice(x, starts=(0, 0, 0), steps=(1, 1, 1), shape=(4, 1, 3));"
         "b: float32[4, 1, 3] = slice(x, starts=(0, 1, 0), steps=(1, 1, 1), shape=(4, 1, 3));"
         "c: float32[3, 4, 1] = transpose(a, axes=(2, 0, 1));"
         "d: float32[3, 4, 1] = transpose(b, axes=(2, 0, 1));"
         "y: float32[3, 4, 2] = concatenate(c, d, axis=2)", "transpose"),
    ],
    "slice_of_all": [
        ("x: float32[4, 1]",
         "y: float32[4, 1] = slice(x, starts=(0, 0), steps=(1, -1), shape=(4, 1))", ""),
    ],
    "broadcast_of_all": [
        ("x: float32[4, 1]", "y: float32[4, 1] = broadcast_to(x, shape=(4, 1))", ""),
    ],
    "slice_of_transpose": [
        ("x: float32[4, 3, 6]",
         "a: float32[6, 4, 3] = transpose(x, axes=(2, 0, 1)); y: float32[2, 3, 3] = slice(a,"
         " starts=(5, 1, 0), steps=(-3, 1, 1), shape=(2, 3, 3))", "slice transpose"),
    ],
    "transpose_of_split_slice": [
        ("x: float32[2, 24]",
         "a: float32[2, 12] = slice(x, starts=(0, 6), steps=(1, 1), shape=(2, 12));"
         "b: float32[2, 1, 4, 3] = reshape(a, shape=(2, 1, 4, 3));"
         "y: float32[1, 4, 2, 3] = transpose(b, axes=(1, 2, 0, 3))", "reshape slice transpose"),
    ],
    "transpose_of_product": [
        ("x: float32[2, 3, 5, 4], w: float32[3, 6, 4]",
         "a: float32[2, 3, 5, 6] = matmul(x, w, transpose_b=True);"
         "y: float32[2, 6, 3, 5] = transpose(a, axes=(0, 3, 1, 2))", "matmul transpose"),
        ("x: float32[2, 4, 5], w: float32[2, 6, 4]",
         "a: float32[2, 5, 6] = matmul(x, w, transpose_a=True, transpose_b=True);"
         "y: float32[2, 6, 5] = transpose(a, axes=(0, 2, 1))", "matmul"),
    ],
    "product_of_transposed": [
        ("x: float32[2, 5, 4], w: float32[3, 4]",
         "a: float32[4, 3] = transpose(w, axes=(1, 0)); y: float32[2, 5, 3] = matmul(x, a)",
         "matmul"),
        ("x: float32[2, 4, 5], w: float32[2, 4, 3]",
         "a: float32[2, 5, 4] = transpose(x, axes=(0, 2, 1));"
         "b: float32[2, 3, 4] = transpose(w, axes=(0, 2, 1));"
         "y: float32[2, 5, 3] = matmul(a, b, transpose_b=True)", "matmul"),
    ],
    "broadcast_is_implied": [
        ("x: float32[4, 6], c: float32[6]",
         "e: float32[4, 6] = exp(x);"
         "a: float32[4, 6] = broadcast_to(c, shape=(4, 6)); y: float32[4, 6] = add(a, e)",
         "exp add"),
        ("x: int32[1200, 300]",
         "const c: int32[] = 5; const d: int32[1] = [7];"
         "a: int32[1200, 300] = broadcast_to(c, shape=(1200, 300));"
         "b: int32[1200, 300] = broadcast_to(d, shape=(1200, 300));"
         "e: int32[1200, 300] = subtract(a, b); y: int32[1200, 300] = add(x, e)", "add"),
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
        ("x: float32[8, 3], c: float32[1, 3]",
         "a: float32[2, 4, 3] = reshape(x, shape=(2, 4, 3)); y: float32[2, 4, 3] = add(a, c)",
         "add reshape"),
    ],
    "one_hot_product": [
        ("x: int32[5, 1]",
         "const n: int32[3] = [0, 1, 2]; const w: float32[3, 2] = [[1, 2], [3, -0.0], [5, 6]];"
         "a: bool[5, 3] = equal(n, x); b: float32[5, 3] = cast(a, dtype='float32');"
         "y: float32[5, 2] = matmul(b, w)", "clip reshape take"),
    ],
    "pointwise_of_lookup": [
        ("x: int64[2, 3]",
         "const w: float32[3, 2] = [[1, 2], [3, 4], [5, 6]]; const c: float32[2] = [0.5, 0.25];"
         "a: float32[2, 3, 2] = take(w, x, axis=0); b: float32[2, 3, 2] = add(c, a);"
         "d: float32[2, 3, 2] = multiply(b, a); y: float32[2, 3, 2] = tanh(d)", "take"),
    ],
    "hard_swish": [
        ("x: float32[2, 9]",
         "const o: float32[] = 3; const z: float32[] = 0; const t: float32[] = 6;"
         "a: float32[2, 9] = add(x, o); b: float32[2, 9] = maximum(z, a);"
         "c: float32[2, 9] = minimum(b, t); d: float32[2, 9] = multiply(x, c);"
         "y: float32[2, 9] = divide(d, t)", "hard_swish"),
        ("x: float32[2, 9]",
         "const o: float32[] = 1; const z: float32[] = 0; const t: float32[] = 2;"
         "const h: float32[] = 0.5; a: float32[2, 9] = add(o, x);"
         "b: float32[2, 9] = minimum(t, a); c: float32[2, 9] = maximum(b, z);"
         "d: float32[2, 9] = multiply(h, c); y: float32[2, 9] = multiply(d, x)", "hard_swish"),
    ],
    "softmax": [
        ("x: float32[3, 4]",
         "a: float32[3] = max(x, axes=(1,)); m: float32[3, 1] = reshape(a, shape=(3, 1));"
         "d: float32[3, 4] = subtract(x, m); e: float32[3, 4] = exp(d);"
         "s: float32[3, 1] = sum(e, axes=(-1,), keepdims=True); y: float32[3, 4] = divide(e, s)",
         "softmax"),
    ],
    "normalize": [
        ("x: float32[3, 8]",
         "const c: float32[] = 1e-5; m: float32[3, 1] = mean(x, axes=(1,), keepdims=True);"
         "d: float32[3, 8] = subtract(x, m); q: float32[3, 8] = multiply(d, d);"
         "v: float32[3, 1] = mean(q, axes=(-1,), keepdims=True); e: float32[3, 1] = add(v, c);"
         "r: float32[3, 1] = sqrt(e); y: float32[3, 8] = divide(d, r)", "normalize"),
        ("x: float32[3, 2, 4]",
         "const c: float32[] = 1e-5; const one: float32[] = 1; const g: float32[4] = [1, 2, 3, 4];"
         "const n: float32[] = 0.125; const z: float32[] = 0;"
         "s: float32[3] = sum(x, axes=(1, 2)); m: float32[3] = multiply(s, n);"
         "k: float32[3, 1, 1] = reshape(m, shape=(3, 1, 1)); d: float32[3, 2, 4] = subtract(x, k);"
         "q: float32[3, 2, 4] = multiply(x, x); t: float32[3] = sum(q, axes=(1, 2));"
         "u: float32[3] = multiply(t, n); w: float32[3] = multiply(m, m);"
         "v: float32[3] = subtract(u, w); p: float32[3] = maximum(z, v); e: float32[3] = add(p, c);"
         "r: float32[3] = sqrt(e); i: float32[3] = divide(one, r);"
         "j: float32[3, 1, 1] = reshape(i, shape=(3, 1, 1)); h: float32[3, 1, 4] = multiply(j, g);"
         "y: float32[3, 2, 4] = multiply(d, h)", "normalize multiply"),
        ("x: float32[3, 8]",
         "const c: float32[] = 1e-5; const one: float32[] = 1; q: float32[3, 8] = multiply(x, x);"
         "v: float32[3, 1] = mean(q, axes=(1,), keepdims=True); e: float32[3, 1] = add(v, c);"
         "r: float32[3, 1] = sqrt(e); i: float32[3, 1] = divide(one, r);"
         "y: float32[3, 8] = multiply(x, i)", "normalize"),
        ("x: float32[3, 8]",  # x is a factor twice
         "const c: float32[] = 1e-5; const one: float32[] = 1; q: float32[3, 8] = multiply(x, x);"
         "v: float32[3, 1] = mean(q, axes=(1,), keepdims=True); e: float32[3, 1] = add(v, c);"
         "r: float32[3, 1] = sqrt(e); i: float32[3, 1] = divide(one, r);"
         "y: float32[3, 8] = multiply(q, i)", "normalize multiply"),
    ],
    "attention": [
        ("q: float32[1, 2, 5, 4], x: float32[1, 6, 2, 4], v: float32[1, 2, 6, 3], m: float32[5, 6]",
         "const c: float32[] = 0.5; k: float32[1, 2, 4, 6] = transpose(x, axes=(0, 2, 3, 1));"
         "a: float32[1, 2, 5, 6] = matmul(q, k); b: float32[1, 2, 5, 6] = multiply(a, c);"
         "d: float32[1, 2, 5, 6] = add(m, b); e: float32[1, 2, 5, 6] = softmax(d, axis=3);"
         "y: float32[1, 2, 5, 3] = matmul(e, v)", "transpose attention"),
        ("q: float32[2, 5, 4], k: float32[2, 6, 4], v: float32[2, 6, 3]",
         "const c: float32[] = 0.5; const d: float32[1] = [4];"
         "p: float32[2, 5, 4] = multiply(q, c);"
         "r: float32[2, 6, 4] = divide(k, d); a: float32[2, 5, 6] = matmul(p, r, transpose_b=True);"
         "b: float32[10, 6] = reshape(a, shape=(10, 6)); e: float32[10, 6] = softmax(b, axis=-1);"
         "f: float32[2, 5, 6] = reshape(e, shape=(2, 5, 6)); y: float32[2, 5, 3] = matmul(f, v)",
         "attention"),
    ],
    "blind_rows": [
        ("s: float32[2, 3, 5, 6], m: float32[2, 1, 5, 1], v: float32[6, 6, 4]",
         "const z: float32[] = 0; c: bool[2, 1, 5, 1] = less(m, z);"
         "w: float32[2, 3, 5, 6] = softmax(s, axis=3);"
         "e: float32[2, 3, 5, 6] = where(c, z, w);"
         "f: float32[6, 5, 6] = reshape(e, shape=(6, 5, 6)); y: float32[6, 5, 4] = matmul(f, v)",
         "less softmax reshape matmul reshape where reshape"),
    ],
    "in_float32": [
        ("x: float16[2, 3], z: float16[3]",
         "a: float16[2, 3] = exp(x); b: float16[2, 3] = multiply(a, z);"
         "c: float16[6] = reshape(b, shape=(6,)); y: float16[6] = sqrt(c)",
         "cast exp cast multiply sqrt rounded reshape"),
        ("x: bfloat16[2, 3]",
         "const w: bfloat16[3, 2] = [[1, 2], [3, 4], [5, 6]]; a: bfloat16[2, 2] = matmul(x, w);"
         "b: bfloat16[2, 2] = transpose(a, axes=(1, 0)); c: bool[2, 2] = less(b, a);"
         "y: bfloat16[2, 2] = where(c, a, b)",
         "matmul transpose less where rounded"),
        ("x: float16[4]",  # the model's own casts round
         "a: float16[4] = exp(x); b: float32[4] = cast(a, dtype='float32');"
         "c: float16[4] = cast(b, dtype='float16'); d: float16[4] = negative(c);"
         "y: float32[4] = cast(d, dtype='float32')",
         "cast exp cast cast negative"),
    ],
    "scale_into_weights": [
        ("x: float32[1, 2, 5]",
         "const w: float32[2, 2, 2] = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]];"
         "const s: float32[2, 1] = [[3], [4]]; const c: float32[1, 2, 1] = [[[0.1], [0.2]]];"
         "a: float32[1, 2, 4] = conv(x, w, strides=(1,), before=(0,), after=(0,), dilations=(1,));"
         "b: float32[1, 2, 4] = add(c, a); y: float32[1, 2, 4] = multiply(s, b)", "conv add"),
        ("x: float32[3, 2]",
         "const w: float32[4, 2] = [[1, 2], [3, 4], [5, 6], [7, 8]];"
         "const s: float32[4] = [1, 2, 3, 4];"
         "a: float32[3, 4] = matmul(x, w, transpose_b=True); y: float32[3, 4] = multiply(a, s)",
         "matmul"),
    ],
    "shift_of_shift": [
        ("x: float32[3, 2]",
         "const w: float32[2, 2] = [[1, 2], [3, 4]]; const c: float32[2] = [1, 2];"
         "const d: float32[] = 0.3; a: float32[3, 2] = matmul(x, w); b: float32[3, 2] = add(a, c);"
         "y: float32[3, 2] = add(d, b)", "matmul add"),
    ],
}  # fmt: skip
"""Of each rule: inputs, nodes, and the operators that are left of them."""


def parsed(inputs: str, nodes: str) -> Graph:
    lines = [f"  {line.strip()}" for line in nodes.split(";")]
    return parse_graph("\n".join([f"graph g({inputs}) -> (y):", *lines, "  return y=y"]))

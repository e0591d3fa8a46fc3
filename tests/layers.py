"""Programs of several products, as layers of networks are written by `te`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Buffer, Expr, Func, integers
from tilewright.tir.program import stages_of
from tilewright.tir.tensor import Tensor

ROWS, WIDTH, HIDDEN = 20, 16, 32
LAYERS: dict[str, Callable[[], Func]] = {}


def layer(make: Callable[[], Func]) -> Callable[[], Func]:
    LAYERS[make.__name__] = make
    return make


def operand(name: str, *shape: int, constant: bool = False) -> Tensor:
    return te.placeholder(shape, "float32", name=name, constant=constant)


def pointwise(name: str, f: Callable[..., Expr], *operands: Tensor) -> Tensor:
    return te.compute(operands[0].extents, lambda *i: f(*(o[i] for o in operands)), name=name)


def relu(name: str, x: Tensor) -> Tensor:
    return pointwise(name, lambda v: te.maximum(v, 0.0), x)


def product(name: str, a: Tensor, b: Tensor, *, transposed: bool = False) -> Tensor:
    """`a @ b`, or `a @ b.T`."""
    (rows, depth), columns = a.extents, b.extents[0 if transposed else 1]
    k = te.reduce_axis(depth, name="k")
    return te.compute(
        (rows, columns),
        lambda i, j: te.sum(a[i, k] * (b[j, k] if transposed else b[k, j]), axis=k),
        name=name,
    )


def sums(name: str, x: Tensor, f: Callable[[Expr, Expr], Expr]) -> Tensor:
    """The sum of a function of each element of a row, and its row's number."""
    k = te.reduce_axis(x.extents[1], name="k")
    return te.compute(x.extents[:1], lambda i: te.sum(f(x[i, k], i), axis=k), name=name)


def softmax(name: str, x: Tensor) -> Tensor:
    k = te.reduce_axis(x.extents[1], name="k")
    most = te.compute(x.extents[:1], lambda i: te.max(x[i, k], axis=k), name=f"{name}_max")
    power = te.compute(x.extents, lambda i, j: te.exp(x[i, j] - most[i]), name=f"{name}_exp")
    total = sums(f"{name}_sum", power, lambda v, _: v)
    return te.compute(x.extents, lambda i, j: power[i, j] / total[i], name=name)


def layer_norm(name: str, x: Tensor) -> Tensor:
    count = float(x.extents[1])
    total = sums(f"{name}_sum", x, lambda v, _: v)
    mean = pointwise(f"{name}_mean", lambda v: v / count, total)
    squares = sums(f"{name}_squares", x, lambda v, i: (v - mean[i]) * (v - mean[i]))
    return te.compute(
        x.extents,
        lambda i, j: (x[i, j] - mean[i]) / te.sqrt(squares[i] / count + 1e-5),
        name=name,
    )


def mlp(layers: int, *, constant: bool = True) -> Func:
    """Products with a bias and relu between them."""
    sizes = [WIDTH, *[HIDDEN] * (layers - 1), WIDTH]
    x = operand("X", ROWS, WIDTH)
    given = [x]
    for n, (depth, columns) in enumerate(pairwise(sizes)):
        w, b = operand(f"W{n}", depth, columns, constant=constant), operand(f"b{n}", columns)
        sum_ = product(f"M{n}", x, w)
        x = te.compute(sum_.extents, lambda i, j, s=sum_, b=b: s[i, j] + b[j], name=f"B{n}")
        x = relu(f"H{n}", x) if n + 1 < layers else x
        given += [w, b]
    return te.func([*given, x], name="mlp")


@layer
def two_layers() -> Func:
    return mlp(2)


@layer
def three_layers() -> Func:
    return mlp(3, constant=False)


def _block() -> tuple[list[Tensor], Tensor]:
    x, w, b = operand("X", ROWS, WIDTH), operand("W", WIDTH, HIDDEN), operand("b", HIDDEN)
    v = operand("V", HIDDEN, WIDTH, constant=True)
    h = product("M", layer_norm("N", x), w)
    g = te.compute(h.extents, lambda i, j: te.gelu(h[i, j] + b[j]), name="G")
    return [x, w, b, v], pointwise("Y", lambda p, q: p + q, product("P", g, v), x)


@layer
def block() -> Func:
    """A layer norm, a product with gelu, one back, and what went in added."""
    given, y = _block()
    return te.func([*given, y], name="block")


@layer
def inplace() -> Func:
    given, y = _block()
    return te.func(given, name="inplace", inplace={y: given[0]})


@layer
def softmax_between() -> Func:
    """No attention: what the softmax gives is an output too."""
    x, w, v = operand("X", ROWS, WIDTH), operand("W", WIDTH, HIDDEN), operand("V", HIDDEN, WIDTH)
    p = softmax("P", product("S", x, w))
    return te.func([x, w, v, p, product("Y", p, v)], name="softmax_between")


@layer
def self_attention() -> Func:
    x = operand("X", ROWS, WIDTH)
    weights = [operand(f"W{name}", WIDTH, WIDTH, constant=True) for name in "qkvo"]
    q, k, v = (product(n, x, w) for n, w in zip("QKV", weights, strict=False))
    scores = pointwise("E", lambda s: s * 0.25, product("S", q, k, transposed=True))
    y = product("Y", product("A", softmax("P", scores), v), weights[3])
    return te.func([x, *weights, y], name="self_attention")


@layer
def several_outputs() -> Func:
    x, w, v = operand("X", ROWS, WIDTH), operand("W", WIDTH, HIDDEN), operand("V", HIDDEN, WIDTH)
    h = product("H", x, w)
    r = relu("R", h)
    return te.func([x, w, v, h, r, product("Y", r, v)], name="several_outputs")


@layer
def one_weight() -> Func:
    """A constant operand of two products, which each would pack in its own way."""
    x, w = operand("X", ROWS, WIDTH), operand("W", WIDTH, WIDTH, constant=True)
    return te.func([x, w, product("Y", product("H", x, w), w)], name="one_weight")


@layer
def gated() -> Func:
    x, v = operand("X", ROWS, WIDTH), operand("V", HIDDEN, WIDTH)
    w, u = (operand(name, WIDTH, HIDDEN, constant=True) for name in "WU")
    g = pointwise("G", lambda a, b: a * te.sigmoid(a) * b, product("A", x, w), product("B", x, u))
    return te.func([x, w, u, v, product("Y", g, v)], name="gated")


@layer
def scalar() -> Func:
    x, w, v = operand("X", ROWS, WIDTH), operand("W", WIDTH, HIDDEN), operand("V", HIDDEN, WIDTH)
    slope, h = te.scalar("float32", name="slope"), product("H", x, w)
    r = pointwise("R", lambda a: te.select(a > 0.0, a, a * slope), h)
    return te.func([x, w, slope, v, product("Y", r, v)], name="scalar")


@layer
def known_ahead() -> Func:
    """What is computed of constants alone: a transpose, and sums of columns."""
    x, w = operand("X", ROWS, WIDTH), operand("W", HIDDEN, WIDTH, constant=True)
    v = operand("V", HIDDEN, WIDTH, constant=True)
    t = te.compute((WIDTH, HIDDEN), lambda i, j: w[j, i], name="T")
    k = te.reduce_axis(HIDDEN, name="k")
    c = te.compute((WIDTH,), lambda j: te.sum(v[k, j], axis=k), name="C")
    p = product("P", product("H", x, t), v)
    y = te.compute(p.extents, lambda i, j: p[i, j] - c[j], name="Y")
    return te.func([x, w, v, y], name="known_ahead")


@layer
def convolutions() -> Func:
    """Two, each with its padding."""
    x = operand("X", 4, 9, 9)
    given = [x]
    for n in range(2):
        w = operand(f"W{n}", 4, 4, 3, 3, constant=True)
        x = relu(f"R{n}", _convolution(n, x, w))
        given.append(w)
    return te.func([*given, x], name="convolutions")


def _convolution(n: int, x: Tensor, w: Tensor) -> Tensor:
    def padded(c: te.Axis, i: te.Axis, j: te.Axis) -> Expr:
        inside = (i >= 1) & (i < 10) & (j >= 1) & (j < 10)
        return te.select(inside, x[c, i - 1, j - 1], 0.0)

    pad = te.compute((4, 11, 11), padded, name=f"P{n}")
    c, p, q = (te.reduce_axis(extent, name=v) for v, extent in (("c", 4), ("p", 3), ("q", 3)))
    return te.compute(
        (4, 9, 9),
        lambda o, i, j: te.sum(pad[c, i + p, j + q] * w[o, c, p, q], axis=[c, p, q]),
        name=f"C{n}",
    )


def random_layers(rng: np.random.Generator) -> Func:
    """Products, sums of rows and pointwise stages of square tensors, wired at random."""
    size = 5
    given = [operand(f"X{n}", size, size, constant=rng.random() < 0.4) for n in range(4)]
    made: list[Tensor] = []
    for n in range(rng.integers(4, 13)):
        known = [*given, *made]
        a, b = (known[rng.integers(len(known))] for _ in range(2))
        made.append(_stage(f"T{n}", int(rng.integers(8)), a, b))
    outputs = [made[-1], *(t for t in made[:-1] if rng.random() < 0.2)]
    return te.func([*_used(outputs, given), *outputs], name="layers")


def _stage(name: str, kind: int, a: Tensor, b: Tensor) -> Tensor:
    if kind < 4:
        return product(name, a, b, transposed=kind == 3)
    if kind == 4:
        return relu(name, a)
    if kind == 5:
        size = a.extents[0]
        wide = te.compute((size, 2 * size), lambda i, j: a[i, j // 2], name=f"{name}_wide")
        return te.compute(b.extents, lambda i, j: b[i, j] - wide[i, 2 * j], name=name)
    if kind == 6:
        return te.compute(a.extents, lambda i, j: a[j, i], name=name)
    total = sums(f"{name}_sum", a, lambda v, _: v)
    return te.compute(b.extents, lambda i, j: b[i, j] - total[i], name=name)


def _used(outputs: list[Tensor], given: list[Tensor]) -> list[Tensor]:
    """Those of the tensors that the outputs need."""
    read = {t for s in stages_of([o.stage for o in outputs if o.stage]) for t in s.inputs}
    return [t for t in given if t in read]


def arguments(func: Func, seed: int = 0) -> list[Any]:
    """Arrays and numbers for a program."""
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal(integers(p.shape)).astype(np.float32) if isinstance(p, Buffer) else 0.25
        for p in func.params
    ]


def interpreted(func: Func, given: list[Any]) -> list[Any]:
    """The arguments after a run of the program by the interpreter."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
    interpret(func, *copies)
    return copies

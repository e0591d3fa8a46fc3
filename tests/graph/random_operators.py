"""For each operator a generator of cases: operands from a pool of values, and attributes.

Attributes that are floats are such that float32, in which ONNX has them, holds.

A record without one fails `test_every_operator.py`. Operands that a record refuses are no case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.graph import Builder, TensorType
from tilewright.graph.ir import Value
from tilewright.graph.operator import find
from tilewright.graph.operators.cells import ACTIVATIONS, GATES, tile_width
from tilewright.graph.operators.fourier import FORMS, twiddles

from .random_values import FLOATS, INTEGERS, SIGNED, Pool


class Call(NamedTuple):
    """What an operator is applied to."""

    inputs: Sequence[Value]
    attributes: dict[str, Any]


Generator = Callable[[Pool], Call]
find("add")  # all records are there
CASES: dict[str, Generator] = {}
NUMBERS = (*FLOATS, *INTEGERS)
ANY = (*NUMBERS, "bool")
GATHERED = ("float32", "int32", "int64", "bool", "float16", "uint8")


def case(*names: str) -> Callable[[Generator], Generator]:
    """Register the decorated generator for operators of these names."""

    def register(generator: Generator) -> Generator:
        for name in names:
            assert name not in CASES, f"{name} has two generators"
            CASES[name] = generator
        return generator

    return register


def numbers(p: Pool) -> Sequence[str]:
    """The dtypes of operands of arithmetic: mostly the graph's floats."""
    return (p.one_of(INTEGERS),) if p.chance(5) else p.style.floats


def anything(p: Pool) -> Sequence[str]:
    return (p.one_of(GATHERED),) if p.chance(4) else p.style.floats


# Pointwise.

_UNARY = "negative abs exp log sqrt tanh erf floor ceil sin cos tan asin acos atan sinh cosh asinh"
_UNARY += " acosh atanh round sign is_nan relu sigmoid softplus softsign mish elu celu gelu"
_UNARY += " gelu_by_tanh swish"
_INTEGER_TOO = {"negative", "abs", "sign", "relu"}
_BINARY = "add subtract multiply maximum minimum equal less less_equal divide remainder fmod power"


def _unary(name: str) -> None:
    @case(name)
    def unary(p: Pool) -> Call:
        own = numbers(p) if name in _INTEGER_TOO else p.style.floats
        x = p.value(SIGNED if name == "negative" and own[0][0] == "u" else own)
        alpha = {"alpha": p.one_of((0.5, 1.0, 1.75))} if name in ("elu", "celu", "swish") else {}
        return Call([x], alpha)


def _binary(name: str, dtypes: Callable[[Pool], Sequence[str]]) -> None:
    @case(name)
    def binary(p: Pool) -> Call:
        x = p.value(dtypes(p))
        if p.chance(8):
            return Call([x, x], {})
        other = p.broadcastable(x.dtype, x.shape)
        return Call([other, x] if p.chance(2) else [x, other], {})


for _name in _UNARY.split():
    _unary(_name)
for _name in _BINARY.split():
    _binary(_name, numbers)
for _name in ("logical_and", "logical_or", "logical_xor"):
    _binary(_name, lambda _: ("bool",))
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"):
    _binary(_name, lambda p: (p.one_of(INTEGERS),))


@case("logical_not")
def logical_not(p: Pool) -> Call:
    return Call([p.value(("bool",))], {})


@case("bitwise_not")
def bitwise_not(p: Pool) -> Call:
    return Call([p.value((p.one_of(INTEGERS),))], {})


@case("where")
def where(p: Pool) -> Call:
    x = p.value(anything(p))
    return Call([p.broadcastable("bool", x.shape), x, p.broadcastable(x.dtype, x.shape)], {})


@case("cast")
def cast(p: Pool) -> Call:
    return Call([p.value(ANY)], {"dtype": p.one_of((*ANY, *p.style.floats * 4))})


@case("rounded")
def rounded(p: Pool) -> Call:
    return Call([p.value(("float32",))], {"dtype": p.one_of(("float16", "bfloat16"))})


@case("quantize")
def quantize(p: Pool) -> Call:
    x, dtype = p.value(p.style.floats), p.one_of(("int8", "uint8", "int16", "uint16"))
    return Call([x, *_zero(p, dtype, x)], {"dtype": dtype})


@case("dequantize")
def dequantize(p: Pool) -> Call:
    x = p.value(("int8", "uint8", "int16", "uint16"))
    return Call([x, *_zero(p, x.dtype, x)], {})


def _zero(p: Pool, dtype: str, x: Value) -> list[Value]:
    return [p.broadcastable(dtype, x.shape)] if p.chance(2) else []


@case("clip")
def clip(p: Pool) -> Call:
    return Call([p.value(numbers(p))], {"low": p.pick(3), "high": 2 + p.pick(4)})


@case("selu")
def selu(p: Pool) -> Call:
    return Call([p.floats()], {"alpha": 1.625, "gamma": 1.0625})


@case("leaky_relu")
def leaky_relu(p: Pool) -> Call:
    return Call([p.floats()], {"slope": p.one_of((0.125, 0.0, -0.5))})


@case("hard_sigmoid", "hard_swish")
def hard(p: Pool) -> Call:
    return Call([p.floats()], {"alpha": p.one_of((0.25, 0.1875)), "beta": 0.5})


@case("bitcast")
def bitcast(p: Pool) -> Call:
    pairs = (("int32", "float32"), ("float32", "int32"), ("int8", "uint8"), ("uint8", "int8"))
    source, to = p.one_of((*pairs, ("int64", "uint64"), ("uint16", "float16")))
    return Call([p.value((source,))], {"source": source, "to": to})


# Movement.


def factored(p: Pool, size: int) -> tuple[int, ...]:
    """A shape of so many elements."""
    found: list[int] = []
    while size > 1 and len(found) < 3:
        divisors = [d for d in range(1, size + 1) if size % d == 0][:8]
        found.append(p.one_of(divisors))
        size //= found[-1]
    found.insert(p.pick(len(found) + 1), size)
    return tuple(found)


@case("reshape")
def reshape(p: Pool) -> Call:
    x = p.value(anything(p))
    return Call([x], {"shape": factored(p, x.type.size) if x.type.size else x.shape[::-1]})


def permutation(p: Pool, rank: int) -> list[int]:
    axes = list(range(rank))
    return [axes.pop(p.pick(len(axes))) for _ in range(rank)]


@case("transpose")
def transpose(p: Pool) -> Call:
    x = p.value(anything(p))
    return Call([x], {"axes": permutation(p, x.type.rank)})


@case("broadcast_to")
def broadcast_to(p: Pool) -> Call:
    x = p.value(anything(p))
    units = [p.extent() if e == 1 and x.type.size < 512 else e for e in x.shape]
    return Call([x], {"shape": [*p.shape(0, 1), *units] if x.type.size < 512 else units})


@case("concatenate")
def concatenate(p: Pool) -> Call:
    x = p.value(anything(p), low=1)
    axis = p.axis(x.type.rank)
    others = [x]
    for _ in range(p.pick(3)):
        shape = list(x.shape)
        shape[axis] = p.extent()
        others.append(x if p.chance(5) else p.of(x.dtype, shape))
    return Call(others, {"axis": axis})


@case("slice")
def slice_(p: Pool) -> Call:
    x = p.value(anything(p))
    starts, steps, shape = [], [], []
    for extent in x.shape:
        step = 1 if p.chance(2) else p.one_of((2, 3, -1, -2))
        count = p.pick(extent + 1) if p.chance(2) else extent
        most = -(-extent // abs(step))
        count = min(max(count, 0 if p.style.zeros else 1), most)
        room = max(extent - 1 - (count - 1) * abs(step), 0)
        first = p.pick(room + 1)
        starts.append(first if step > 0 else max(extent - 1 - first, 0))
        steps.append(step)
        shape.append(count)
    return Call([x], {"starts": starts, "steps": steps, "shape": shape})


@case("windows")
def windows(p: Pool) -> Call:
    x = p.value(anything(p), low=1)
    axis = p.pick(x.type.rank)
    size = p.pick(x.shape[axis] + 1)
    return Call([x], {"axis": axis, "size": size, "step": 1 + p.pick(3)})


@case("pad")
def pad(p: Pool) -> Call:
    x = p.value(anything(p))
    mode = p.one_of(("constant", "constant", "reflect", "edge", "wrap"))
    before, after = [], []
    for extent in x.shape:
        most = max(extent - 1, 0) if mode == "reflect" else 3 if extent or mode == "constant" else 0
        before.append(p.pick(min(most, 3) + 1) if p.chance(2) else 0)
        after.append(p.pick(min(most, 3) + 1) if p.chance(2) else 0)
    value = p.pick(2) if mode == "constant" else 0
    return Call([x], {"before": before, "after": after, "mode": mode, "value": value})


@case("resize_nearest")
def resize_nearest(p: Pool) -> Call:
    x = p.value(anything(p))
    scales, shape = [], []
    for extent in x.shape:
        m, d = p.one_of(((1, 1), (1, 2), (2, 3), (3, 2), (2, 1)))
        s = p.pick(d + 1)
        most = (extent * d - 1 - s) // m + 1
        scales.append((m, s, d))
        shape.append(max(min(most, 2 * extent), 0))
    return Call([x], {"scales": scales, "shape": shape})


@case("interleave")
def interleave(p: Pool) -> Call:
    rank = 1 + p.pick(2)
    factors = [1 + p.pick(3) for _ in range(rank)]
    count = factors[0] * (factors[1] if rank > 1 else 1)
    extents = p.shape(rank, rank)
    x = p.of(p.one_of(anything(p)), (1 + p.pick(2), count * (1 + p.pick(3)), *extents))
    starts = [p.pick(f) if e else 0 for f, e in zip(factors, extents, strict=True)]
    wide = [e * f - s for e, f, s in zip(extents, factors, starts, strict=True)]
    return Call([x], {"factors": factors, "starts": starts, "shape": [w - p.pick(2) if w > 1 else w
                                                                      for w in wide]})  # fmt: skip


# Indexing.


@case("take")
def take(p: Pool) -> Call:
    x = p.value(anything(p), low=1)
    axis, negative = p.pick(x.type.rank), p.chance(2)
    indices = p.indices(p.shape(0, 2), x.shape[axis], negative=negative)
    return Call([x, indices], {"axis": axis, "negative": negative})


def along(p: Pool, x: Value, axis: int) -> tuple[int, ...]:
    """A shape of places along an axis: elsewhere it may be less."""
    return tuple(
        p.extent() if d == axis else e - p.pick(2) if e > 1 else e for d, e in enumerate(x.shape)
    )


@case("take_along")
def take_along(p: Pool) -> Call:
    x = p.value(anything(p), low=1)
    axis, negative = p.pick(x.type.rank), p.chance(2)
    indices = p.indices(along(p, x, axis), x.shape[axis], negative=negative)
    return Call([x, indices], {"axis": axis, "negative": negative})


@case("take_nd")
def take_nd(p: Pool) -> Call:
    x = p.value(anything(p), low=1)
    batch = p.pick(min(x.type.rank, 2))
    depth = 1 + p.pick(x.type.rank - batch)
    shape = (*x.shape[:batch], *p.shape(0, 2), depth)
    least, negative = min(x.shape[batch : batch + depth]), p.chance(2)
    indices = p.indices(shape, least, negative=negative)
    return Call([x, indices], {"batch": batch, "negative": negative})


@case("scatter")
def scatter(p: Pool) -> Call:
    x = p.value(numbers(p), low=1)
    axis, negative = p.pick(x.type.rank), p.chance(2)
    shape = along(p, x, axis)
    indices = p.indices(shape, x.shape[axis], negative=negative)
    return Call(
        [x, indices, p.of(x.dtype, shape)],
        {"axis": axis, "reduction": reduction(p), "negative": negative},
    )


def reduction(p: Pool) -> str:
    return str(p.one_of(("none", "add", "mul", "max", "min")))


@case("scatter_nd")
def scatter_nd(p: Pool) -> Call:
    x = p.value(numbers(p), low=1)
    depth = 1 + p.pick(x.type.rank)
    lead = p.shape(0, 2)
    negative = p.chance(2)
    indices = p.indices((*lead, depth), min(x.shape[:depth]), negative=negative)
    updates = p.of(x.dtype, (*lead, *x.shape[depth:]))
    return Call([x, indices, updates], {"reduction": reduction(p), "negative": negative})


@case("grid_sample")
def grid_sample(p: Pool) -> Call:
    rank = 1 + p.pick(2)
    x = p.floats(rank + 2, rank + 2)
    shape = (x.shape[0], *p.shape(rank, rank), rank)
    mode = p.one_of(("nearest", "linear", "cubic"))
    padding = p.one_of(("zeros", "border", "reflection"))
    return Call([x, p.of(x.dtype, shape)], {"mode": mode, "padding": padding,
                                            "align": p.chance(2)})  # fmt: skip


@case("roi_align")
def roi_align(p: Pool) -> Call:
    x = p.floats(4, 4)
    count = 1 + p.pick(3)
    batches = p.indices((count,), x.shape[0], negative=False)
    return Call(
        [x, p.of(x.dtype, (count, 4)), batches],
        {
            "size": (1 + p.pick(3), 1 + p.pick(3)), "samples": 1 + p.pick(2),
            "scale": p.one_of((1.0, 0.5)), "half": p.chance(2), "largest": p.chance(3),
        },
    )  # fmt: skip


@case("asserted")
def asserted(p: Pool) -> Call:
    x = p.value(numbers(p))
    shape = tuple(1 + p.pick(3) for _ in range(p.pick(3)))
    texts = {"by": "a check", "broken": "{index} at {place}"} if p.chance(2) else {}
    return Call([x, p.indices(shape, 1, negative=False)], texts)


# Reductions and rows.


@case("sum", "prod", "mean", "max", "min")
def reduce(p: Pool) -> Call:
    x = p.value(numbers(p))
    axes = [a for a in range(x.type.rank) if p.chance(2)]
    if axes and p.chance(4):
        axes[-1] -= x.type.rank
    return Call([x], {"axes": axes, "keepdims": p.chance(2)})


@case("argmax", "argmin")
def arg(p: Pool) -> Call:
    x = p.value(numbers(p), low=1)
    return Call([x], {"axis": p.axis(x.type.rank), "keepdims": p.chance(2)})


@case("softmax", "log_softmax")
def softmax(p: Pool) -> Call:
    x = p.floats(low=1)
    return Call([x], {"axis": p.axis(x.type.rank)})


@case("top")
def top(p: Pool) -> Call:
    x = p.value(numbers(p), low=1)
    axis = p.pick(x.type.rank)
    return Call([x], {"axis": axis, "count": p.pick(x.shape[axis] + 1), "largest": p.chance(2)})


@case("normalize")
def normalize(p: Pool) -> Call:
    x = p.floats(low=1)
    return Call([x], {"axis": p.pick(x.type.rank), "epsilon": 2.0**-10, "centered": p.chance(2)})


# Contractions and windows.

PRODUCTS = (("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8"), ("int32", "int32"))


def multiplied(p: Pool, low: int, high: int) -> tuple[Value, str, dict[str, Any]]:
    """The first operand of a product, the dtype of the second, and the attribute for the result."""
    if p.chance(5):
        own, other = p.one_of(PRODUCTS)
        return p.value((own,), low, high), other, {"dtype": "int32"}
    x = p.floats(low, high)
    wide = {"dtype": "float32"} if x.dtype == "float16" and p.chance(3) else {}
    return x, x.dtype, wide


@case("matmul")
def matmul(p: Pool) -> Call:
    a, dtype, result = multiplied(p, 2, 4)
    left, right = p.chance(3), p.chance(3)
    depth = a.shape[-2] if left else a.shape[-1]
    lead = a.shape[:-2][p.pick(a.type.rank - 1) :]
    own = [1 if p.chance(4) else e for e in lead]
    last = [p.extent(), depth] if right else [depth, p.extent()]
    b = p.of(dtype, [*own, *last])
    return Call([a, b], {"transpose_a": left, "transpose_b": right, **result})


@case("attention")
def attention(p: Pool) -> Call:
    q = p.floats(low=2)
    *lead, rows, depth = q.shape
    columns = p.extent()
    k, v = (p.of(q.dtype, [*lead, columns, last]) for last in (depth, p.extent()))
    masks = [p.of(q.dtype, [rows, columns])] if p.chance(2) else []
    return Call([q, k, v, *masks], {"scale": 0.5})


class Slides(NamedTuple):
    kernel: list[int]
    strides: list[int]
    before: list[int]
    after: list[int]
    dilations: list[int]


def slides(p: Pool, extents: Sequence[int]) -> Slides:
    """Windows that fit into these extents."""
    found = Slides([], [], [], [], [])
    for extent in extents:
        kernel = 1 + p.pick(max(min(extent, 3), 1))
        before, after = (p.pick(kernel) if p.chance(2) else 0 for _ in range(2))
        room = extent + before + after
        most = max((room - 1) // (kernel - 1), 1) if kernel > 1 else 2
        found.kernel.append(kernel)
        found.strides.append(1 + p.pick(3) if p.chance(2) else 1)
        found.before.append(before)
        found.after.append(after)
        found.dilations.append(1 + p.pick(min(most, 2)))
    return found


@case("conv")
def conv(p: Pool) -> Call:
    rank = 1 + p.pick(3) if p.chance(3) else 2
    x, dtype, result = multiplied(p, rank + 2, rank + 2)
    channels = x.shape[1]
    groups = p.one_of([g for g in range(1, channels + 1) if channels % g == 0] or [1])
    groups = groups if p.chance(2) else 1
    own = slides(p, x.shape[2:])
    outputs = groups * (1 + p.pick(4))
    w = p.of(dtype, (outputs, channels // groups, *own.kernel))
    attributes = {k: v for k, v in own._asdict().items() if k != "kernel"}
    return Call([x, w], {**attributes, "groups": groups, **result})


@case("max_pool", "sum_pool")
def pool(p: Pool) -> Call:
    rank = 1 + p.pick(3) if p.chance(3) else 2
    x = p.value(numbers(p), rank + 2, rank + 2)
    return Call([x], slides(p, x.shape[2:])._asdict())


@case("resample")
def resample(p: Pool) -> Call:
    x = p.floats(low=1)
    axis = p.pick(x.type.rank)
    shape = (p.extent(), 1 + p.pick(6))
    places = p.indices(shape, x.shape[axis], negative=False)
    return Call([x, places, p.of(x.dtype, shape)], {"axis": axis})


# Scans.


@case("loop")
def loop(p: Pool) -> Call:
    """A state that is computed from it, a row and others, and what it was."""
    (dtype, *_), count = p.style.floats, 1 + p.pick(4)
    state = p.value((dtype,))
    row = p.of(dtype, (count, *state.shape))
    b = Builder("step")
    values = [b.input(f"x{n}", v.type) for n, v in enumerate((state, state))]
    if p.chance(2):
        given, sliced = [state, row], 1
    else:
        given, sliced = [state, state], 0
    total = b.add("add", *values)
    ends = {"y": b.add("tanh", b.add("multiply", total, b.constant(0.5, dtype)))}
    ends |= {"z": values[0]} if p.chance(2) else {"z": b.add("abs", total)}
    body = str(b.graph(ends))
    return Call(given, {"body": body, "count": count, "carried": 1, "sliced": sliced})


@case("accumulate")
def accumulate(p: Pool) -> Call:
    x = p.value(numbers(p), low=1)
    flags = {name: p.chance(3) for name in ("product", "exclusive", "reverse")}
    return Call([x], {"axis": p.axis(x.type.rank), **flags})


@case("fourier")
def fourier(p: Pool) -> Call:
    length = p.one_of((1, 2, 3, 6, 7, 8, 16, 18, 30, 40))
    form = "complex" if length % 2 else p.one_of(FORMS)
    lanes = p.one_of((1, 3, 17))
    dims = {"complex": (length, 2), "of_real": (length,), "to_real": (length // 2 + 1, 2)}
    dtype = p.one_of(p.style.floats)
    factors = p.constant(twiddles(length, form), dtype)
    inverse = form == "complex" and p.chance(2)
    attributes = {"length": length, "form": form, "inverse": inverse, "scale": p.one_of((1, 0.25))}
    return Call([p.new(TensorType(dtype, (*dims[form], lanes))), factors], attributes)


def matrices(p: Pool, *, rows: int) -> Value:
    """Those whose diagonal is large: they are far from singular."""
    dtype = p.one_of([d for d in p.style.floats if d in ("float32", "float64")] or ["float32"])
    small = np.tanh(np.nan_to_num(p.elements(TensorType(dtype, (p.extent(), rows, rows)))))
    return p.given(small + (2 * rows * np.eye(rows)).astype(small.dtype))


@case("lu", "cholesky")
def factors(p: Pool) -> Call:
    return Call([matrices(p, rows=p.extent())], {})


@case("exchange_rows")
def exchange_rows(p: Pool) -> Call:
    x = p.of(p.one_of(("float32", "float64")), (p.extent(), p.extent(), p.extent()))
    pivots = p.new(TensorType("int32", x.shape[:2]), low=1, high=x.shape[1] + 1)
    return Call([x, pivots], {"backwards": p.chance(2)})


@case("solve_triangular")
def solve_triangular(p: Pool) -> Call:
    rows = p.extent()
    a = matrices(p, rows=rows)
    y = p.of(a.dtype, (a.shape[0], rows, p.extent()))
    return Call([a, y], {"lower": p.chance(2), "unit": p.chance(2)})


@case("recurrence")
def recurrence(p: Pool) -> Call:
    cell = p.one_of(tuple(GATES))
    dtype = p.one_of(p.style.floats)
    n, hidden = p.one_of((1, 1, 2, 3, 5)), p.extent()
    columns = GATES[cell] * hidden
    width = tile_width(hidden, n) or columns
    x = p.of(dtype, (1 + p.pick(4), n, columns))
    r = p.of(dtype, (columns // width, hidden, width))
    h = p.of(dtype, (n, hidden))
    wanted: dict[str, tuple[int, ...]] = {"lengths": (n,)}
    wanted |= {"bias": (hidden,)} if cell == "gru" else {}
    wanted |= {"cell": (n, hidden), "peepholes": (3 * hidden,)} if cell == "lstm" else {}
    given = [name for name in wanted if p.chance(2)]
    others = [
        p.new(TensorType("int32", (n,)), 1, x.shape[0] + 1) if name == "lengths"
        else p.of(dtype, wanted[name])
        for name in given
    ]  # fmt: skip
    names = {"rnn": ("tanh",), "gru": ("sigmoid", "tanh"), "lstm": ("sigmoid", "tanh", "tanh")}
    acts = [p.one_of(tuple(ACTIVATIONS)) if p.chance(4) else name for name in names[cell]]
    return Call(
        [x, r, h, *others],
        {
            "cell": cell, "activations": [(a, 0.25, 0.5) for a in acts], "given": given,
            "clip": 0.75 if p.chance(3) else None, "backwards": p.chance(2),
            "input_forget": p.chance(3),
        },
    )  # fmt: skip


COMMON: tuple[str, ...] = (
    "add",
    "multiply",
    "matmul",
    "conv",
    "transpose",
    "reshape",
    "concatenate",
    "slice",
)
COMMON += ("softmax", "normalize", "relu", "sigmoid", "sum", "mean", "max_pool", "pad", "where")


CHAINED: tuple[str, ...] = (
    "add",
    "multiply",
    "subtract",
    "maximum",
    "relu",
    "sigmoid",
    "tanh",
    "abs",
    "negative",
)
CHAINED += ("where", "gelu", "hard_swish", "leaky_relu", "cast", "mish", "elu", "clip")


def call(p: Pool, *, chained: bool = False) -> tuple[str, Call]:
    """A random operator applied to values of the pool; in chains, more of what fuses."""
    names = COMMON if p.chance(2) else tuple(CASES)
    if chained and p.chance(2):
        names = CHAINED
    name = p.one_of(names)
    return name, CASES[name](p)

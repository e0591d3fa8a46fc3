"""Programs of every operator with odd shapes, their inputs, and what numpy computes of these."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tilewright import ops
from tilewright.base import dtypes
from tilewright.tir import te
from tilewright.tir.ir import Func

from . import test_attention, test_conv2d, test_pooling, test_softmax


class Case(NamedTuple):
    """A program, its inputs in the order of its parameters, and what its outputs shall be.

    `ulps` is the error that is allowed, in units of the last place of a number near one.
    """

    name: str
    func: Func
    inputs: tuple[Any, ...]
    wanted: tuple[Any, ...]
    ulps: float


def wide(x: Any) -> Any:
    return x.astype(np.float64)


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "exp": np.exp,
}
ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "add_relu": lambda a, b: np.maximum(a + b, 0),
}
FLOATS = ("float32", "float16", "bfloat16")
EDGES = ((0, 2), (1, 0), (3, 1))


class Cases:
    """Makes the cases; the inputs are the same each time."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.covered: set[str] = set()

    def make(self, shape: tuple[int, ...], dtype: str = "float32") -> Any:
        """Floats in [-2, 2), integers in [-100, 100) or [0, 100)."""
        if dtypes.is_float(dtype):
            return self.rng.uniform(-2, 2, shape).astype(dtypes.to_numpy(dtype))
        low = -100 if dtypes.info(dtype).kind == "int" else 0
        return self.rng.integers(low, 100, shape).astype(dtypes.to_numpy(dtype))

    def of(
        self,
        operator: str,
        inputs: list[Any],
        wanted: Any,
        *,
        ulps: float = 8,
        constant: int | None = None,
        **options: Any,
    ) -> Case:
        """An operator on placeholders, of which one may be constant."""
        self.covered.add(operator)
        tensors = [
            te.placeholder(
                x.shape, dtypes.from_numpy(x.dtype), name=f"x{k}", constant=k == constant
            )
            for k, x in enumerate(inputs)
        ]
        func = te.func([*tensors, getattr(ops, operator)(*tensors, name="y", **options)])
        return self.case(operator, func, inputs, wanted, ulps)

    def case(self, name: str, func: Func, inputs: list[Any], wanted: Any, ulps: float = 8) -> Case:
        kinds = "_".join(str(x.dtype) for x in inputs[:2])
        results = wanted if isinstance(wanted, tuple) else (wanted,)
        return Case(f"{name}_{kinds}", func, tuple(inputs), results, ulps)

    def program(
        self,
        operator: str,
        inputs: list[Any],
        wanted: Any,
        *sizes: Any,
        ulps: float = 8,
        **options: Any,
    ) -> Case:
        """A program of `ops` by its sizes and options."""
        self.covered.add(operator)
        return self.case(operator, getattr(ops, operator)(*sizes, **options), inputs, wanted, ulps)

    # -- groups

    def products(self) -> Iterator[Case]:
        n, m, k = 17, 21, 35
        for dtype in (*FLOATS, "float64"):
            a, b = self.make((n, k), dtype), self.make((k, m), dtype)
            few = 2 if dtype in ("float16", "bfloat16") else 64
            yield self.of("matmul", [a, b], wide(a) @ wide(b), ulps=few)
            yield self.of("matmul", [a, b], wide(a) @ wide(b), ulps=few, constant=1)
        a, b, bias = self.make((n, k)), self.make((m, k)), self.make((m,))
        yield self.program(
            "matmul_func", [a, b, bias], ACTIVATIONS["gelu"](wide(a) @ wide(b.T) + bias), n, m, k,
            ulps=64, transpose_b=True, bias=True, epilogue="gelu",
        )  # fmt: skip
        a, b = self.make((3, 5, 9)), self.make((3, 9, 7))
        yield self.of("matmul", [a, b], wide(a) @ wide(b), ulps=64)
        for left, right in (("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")):
            a, b = self.make((13, 50), left), self.make((50, 19), right)
            yield self.of("matmul", [a, b], wide(a) @ wide(b))
            yield self.of("matmul", [a, b], wide(a) @ wide(b), constant=1)
        a, b = self.make((13, 50), "uint8"), self.make((50, 19), "int8")
        yield self.program("int8_matmul_func", [a, b], wide(a) @ wide(b), 13, 19, 50)

    def convolutions(self) -> Iterator[Case]:
        n, c, h, w, o = 1, 4, 9, 11, 6
        edges = ((1, 1), (1, 1))
        for left, right in (*((d, d) for d in FLOATS), ("uint8", "int8")):
            x, k = self.make((n, c, h, w), left), self.make((o, c, 3, 3), right)
            few = 4 if left in ("float16", "bfloat16") else 64
            wanted = test_conv2d.reference(x, k, padding=edges)
            yield self.of("conv2d", [x, k], wanted, ulps=few, padding=1)
            yield self.of("conv2d", [x, k], wanted, ulps=few, padding=1, constant=1)
        x, k, bias = self.make((n, h, w, c)), self.make((3, 3, c, o)), self.make((o,))
        wanted = test_conv2d.reference(
            x.transpose(0, 3, 1, 2), k.transpose(3, 2, 0, 1), padding=edges, stride=(2, 2)
        ).transpose(0, 2, 3, 1)
        yield self.program(
            "conv2d_func", [x, k, bias], np.maximum(wanted + wide(bias), 0), n, c, h, w, o, 3, 2,
            ulps=64, layout="NHWC", bias=True, epilogue="relu",
        )  # fmt: skip
        x, k = self.make((n, c, h, w)), self.make((o, 2, 3, 3))
        wanted = test_conv2d.reference(x, k, groups=2)
        yield self.of("conv2d", [x, k], wanted, ulps=64, groups=2)
        x, k = self.make((n, c, h, w)), self.make((2 * c, 1, 3, 3))
        wanted = test_conv2d.reference(x, k, padding=edges, groups=c)
        yield self.of("depthwise_conv2d", [x, k], wanted, ulps=64, padding=1)
        yield self.program(
            "depthwise_conv2d_func",
            [x, k],
            wanted,
            n,
            c,
            h,
            w,
            ulps=64,
            multiplier=2,
            constant_w=True,
        )

    def rows(self) -> Iterator[Case]:
        for dtype in FLOATS:
            x = self.make((7, 133), dtype)
            yield self.of("softmax", [x], test_softmax.reference(x, 1))
            yield self.of("softmax", [x], test_softmax.reference(x, 0), axis=0)
            yield self.of("log_softmax", [x], np.log(test_softmax.reference(x, 1)), ulps=32)
            yield self.of("logsumexp", [x], np.log(np.exp(wide(x)).sum(0)), axis=0, ulps=32)
            gamma, beta = self.make((133,), dtype), self.make((133,), dtype)
            yield self.of("layer_norm", [x, gamma, beta], _normal(x, gamma, beta), ulps=32)
            q, k, v = (self.make((2, 3, 13, 12), dtype) for _ in range(3))
            scale = 12**-0.5
            few = 128 if dtype == "float32" else 4
            yield self.of(
                "attention", [q, k, v], test_attention.reference(q, k, v, scale), ulps=few
            )
        x, gamma, beta = (self.make(shape, "bfloat16") for shape in ((7, 133), (133,), (133,)))
        shares = test_softmax.reference(x, 1)
        yield self.program("softmax_func", [x], shares, 7, 133, "bfloat16")
        yield self.program("log_softmax_func", [x], np.log(shares), 7, 133, "bfloat16")
        wanted = np.log(np.exp(wide(x)).sum(1))
        yield self.program("logsumexp_func", [x], wanted, 7, 133, "bfloat16")
        yield self.program(
            "layer_norm_func",
            [x, gamma, beta],
            _normal(x, gamma, beta),
            7,
            133,
            "bfloat16",
            ulps=32,
        )
        q, k, v = (self.make((2, 3, 13, 12)) for _ in range(3))
        mask = np.where(np.tril(np.ones((13, 13), bool)), 0, -np.inf)
        wanted = test_attention.reference(q, k, v, 12**-0.5, mask)
        yield self.program("attention_func", [q, k, v], wanted, 2, 3, 13, 12, causal=True, ulps=128)

    def reductions(self) -> Iterator[Case]:
        kinds: dict[str, Any] = {k: getattr(np, k) for k in ("mean", "max", "min")}
        for dtype in (*FLOATS, "int8"):
            x = self.make((37, 29), dtype)
            for axis in (0, 1):
                for kind, function in kinds.items():
                    yield self.of(kind, [x], function(wide(x), axis), axis=axis, ulps=32)
                for kind in ("argmax", "argmin"):
                    yield self.of(kind, [x], getattr(np, kind)(wide(x), axis), axis=axis)
            yield self.of("sum", [x], wide(x).sum(1), axis=1, ulps=256)
        x = self.make((5, 19))
        yield self.of("prod", [x], wide(x).prod(1), axis=1, ulps=256)
        yield self.program("reduction_func", [x], wide(x).sum(0), "sum", 5, 19, 0, ulps=32)

    def windows(self) -> Iterator[Case]:
        sizes = (3, 3), (2, 2), (1, 1)
        for dtype in FLOATS:
            x = self.make((1, 5, 9, 11), dtype)
            for kind in ("max", "avg"):
                wanted = test_pooling.reference(x, kind, *sizes)
                yield self.of(f"{kind}_pool2d", [x], wanted, kernel=3, stride=2, padding=1)
            yield self.of("global_avg_pool2d", [x], wide(x).mean((2, 3), keepdims=True))
        x = self.make((1, 5, 9, 11), "bfloat16")
        wanted = test_pooling.reference(x, "avg", *sizes).transpose(0, 2, 3, 1)
        nhwc = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        yield self.program(
            "pool2d_func", [nhwc], wanted, "avg", 1, 5, 9, 11, dtype="bfloat16", layout="NHWC"
        )

    def moves(self) -> Iterator[Case]:
        for dtype in ("float32", "int8", "bfloat16"):
            a, b = self.make((7, 5, 3), dtype), self.make((7, 6, 3), dtype)
            yield self.of("reshape", [a], wide(a).reshape(15, 7), shape=(15, -1))
            yield self.of("pad", [a], np.pad(wide(a), EDGES), widths=EDGES)
            joined = np.concatenate([wide(a), wide(b)], 1)
            yield self.several("concatenate", [a, b], joined, axis=1)
            yield self.several("stack", [a, a], np.stack([wide(a), wide(a)], 1), axis=1)
        a, b = self.make((7, 5)), self.make((7, 3))
        joined = np.concatenate([a, b], 1)
        yield self.program("concatenate_func", [a, b], joined, 7, 5, 3)
        rows = self.rng.integers(0, 7, 11).astype(np.int32)
        yield self.program("take_func", [a, rows], a[rows], 11, 5, 7)
        yield self.program("one_hot_func", [rows], np.eye(7)[rows], 11, 7)
        yield self.of("one_hot", [rows], np.eye(7)[rows].T, depth=7, axis=0, dtype="int8")
        self.covered.add("take")
        x, r = te.placeholder((7, 5), name="x"), te.placeholder((11,), "int32", value_range=(0, 5))
        func = te.func([x, r, ops.take(x, r, 1, name="y")])
        yield self.case("take", func, [a, rows % 5], a[:, rows % 5])

    def several(self, operator: str, inputs: list[Any], wanted: Any, **options: Any) -> Case:
        """An operator that takes its tensors in a list."""
        self.covered.add(operator)
        tensors = [
            te.placeholder(x.shape, dtypes.from_numpy(x.dtype), name=f"x{k}")
            for k, x in enumerate(inputs)
        ]
        func = te.func([*tensors, getattr(ops, operator)(tensors, name="y", **options)])
        return self.case(operator, func, inputs, wanted)

    def elements(self) -> Iterator[Case]:
        for dtype in FLOATS:
            a, b = self.make((3, 67), dtype), self.make((3, 67), dtype)
            b[b == 0] = 1
            for operator, function in ELEMENTWISE.items():
                yield self.of(operator, [a, b], function(wide(a), wide(b)))
            for kind, function in ACTIVATIONS.items():
                yield self.of("activation", [a], function(wide(a)), kind=kind)
            yield self.of("bias_add", [a, b[0]], wide(a) + wide(b[0]))
        a = self.make((3, 67))
        for kind in ("relu", "gelu", "sigmoid", "tanh"):
            yield self.of(kind, [a], ACTIVATIONS[kind](wide(a)))
        x, y = self.make((1003,)), self.make((1003,))
        wanted = np.maximum(wide(x) + wide(y), 0)
        yield self.program("add_relu_func", [x, y], wanted, 1003)
        yield self.program("activation_func", [x], ACTIVATIONS["silu"](wide(x)), 1003, "silu")
        yield self._largest(x, y)
        for dtype in ("float32", "float16", "int8", "float64"):
            x = self.make((37, 53), dtype)
            yield self.of("transpose", [x], wide(x).T)
        yield self.program("transpose_func", [x], wide(x).T, 37, 53, "float64")

    def _largest(self, x: Any, y: Any) -> Case:
        self.covered.add("elementwise")
        tensors = [te.placeholder(x.shape, name=name) for name in "ab"]
        result = ops.elementwise(te.maximum, *tensors, name="y")
        return self.case("elementwise", te.func([*tensors, result]), [x, y], np.maximum(x, y))

    def others(self) -> Iterator[Case]:
        """Gathers, numbers that are passed by value, casts, guards, and a result in place."""
        table, rows = self.make((23, 19)), self.rng.integers(0, 23, 31).astype(np.int32)
        t = te.placeholder((23, 19), name="table")
        r = te.placeholder((31,), "int32", name="rows", value_range=(0, 23))
        y = te.compute((31, 19), lambda i, j: t[te.cast(r[i], "int64"), j] * 2.0, name="y")
        yield self.case("gather", te.func([t, r, y]), [table, rows], wide(table[rows]) * 2)
        for dtype in ("float32", "float16", "bfloat16", "float64", "int16", "uint64"):
            number, x = self.make((), dtype), self.make((45,), dtype)
            scale, a = te.scalar(dtype, name="scale"), te.placeholder((45,), dtype, name="a")
            y = te.compute((45,), lambda i, a=a, scale=scale: a[i] * scale, name="y")
            yield self.case("scaled", te.func([scale, a, y]), [number, x], wide(x) * wide(number))
        x = self.make((67,)) * 1000
        for dtype in ("int8", "uint8", "int32", "float16", "bfloat16"):
            a = te.placeholder((67,), name="a")
            y = te.compute((67,), lambda i, a=a, dtype=dtype: te.cast(a[i], dtype), name="y")
            limits = dtypes.is_integer(dtype)
            wanted = np.clip(np.trunc(x), *dtypes.int_limits(dtype)) if limits else wide(x)
            yield self.case(f"cast_{dtype}", te.func([a, y]), [x], wanted, 2e3)
        x, by = self.make((50,), "int32"), self.rng.integers(-2, 3, 50).astype(np.int32)
        a, b = (te.placeholder((50,), "int32", name=name) for name in "ab")
        y = te.compute((50,), lambda i: te.select(b[i] != 0, a[i] // b[i], a[i]), name="y")
        wanted = np.where(by == 0, x, x // np.where(by == 0, 1, by))
        yield self.case("guarded", te.func([a, b, y]), [x, by], wanted)
        x = self.make((67,))
        a = te.placeholder((67,), name="a")
        y = te.compute((67,), lambda i: a[i] * 2.0 + 1.0, name="y")
        yield self.case("inplace", te.func([a], inplace={y: a}), [x], wide(x) * 2 + 1)


def _normal(x: Any, gamma: Any, beta: Any) -> Any:
    x, gamma, beta = wide(x), wide(gamma), wide(beta)
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * gamma + beta


GROUPS = (
    *("products", "convolutions", "rows", "reductions", "windows", "moves", "elements", "others"),
)

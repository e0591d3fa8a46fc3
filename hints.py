"""What to write here for names that users of numpy, TVM, Triton and others know.

One table for each kind of thing that is asked for a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_VALUES = "mod(*arrays), with mod = tw.build(program): there is no value before"
_SAVED = 'tw.build_library(program, "kernel.so"), and tw.load("kernel.so") reads it'

_SOURCES = 'mod.source("tir"), "llvm" or "asm"; of a GPU "tir", "cuda" or "ptx"'

_OPS = "argmax argmin max mean min prod relu sigmoid softmax sum tanh gelu"

INSTEAD: Mapping[str, Mapping[str, str]] = {
    "te": {
        "absolute": "te.abs(x)",
        "all": "a & b, of conditions",
        "any": "a | b, of conditions",
        "around": "te.round(x)",
        "atan2": "a polynomial in y / x: there is no inverse tangent",
        "array": "te.placeholder(shape, dtype), an argument of the program",
        "clamp": "te.clip(x, low, high)",
        "concatenate": "te.select(i < n, A[i], B[i - n]), with n the rows of A",
        "create_prim_func": "te.func([X, Y], name=...)",
        "create_schedule": "tilewright.Schedule(func)",
        "div": "a / b",
        "dot": "te.sum(A[i, r] * B[r, j], axis=r) with r = te.reduce_axis(k)",
        "einsum": "te.compute(shape, lambda i, j: te.sum(A[i, r] * B[r, j], axis=r)) with "
        "r = te.reduce_axis(k); of matrices tilewright.ops.matmul(A, B)",
        "expm1": "te.exp(x) - 1",
        "extern": "te.compute, or loops of your own with tilewright.script",
        "fabs": "te.abs(x)",
        "fmax": "te.maximum(a, b)",
        "fmin": "te.minimum(a, b)",
        "floordiv": "a // b",
        "floormod": "a % b",
        "fmod": "a % b, which has the sign of b",
        "full": "te.compute(shape, lambda i, j: te.const(value, dtype))",
        "if_then_else": "te.select(condition, a, b)",
        "isfinite": 'te.abs(x) < float("inf")',
        "isinf": 'te.abs(x) == float("inf")',
        "log1p": "te.log(1 + x)",
        "log2": "te.log(x) * (1 / math.log(2))",
        "logical_and": "a & b",
        "logical_not": "~a",
        "logical_or": "a | b",
        "matmul": "tilewright.ops.matmul(a, b)",
        "mean": "te.sum(x, axis=r) / extent",
        "indexdiv": "a // b",
        "indexmod": "a % b",
        "leaky_relu": "te.select(x > 0, x, x * slope)",
        "mod": "a % b",
        "nearbyint": "te.round(x)",
        "ones": "te.compute(shape, lambda i, j: te.const(1, dtype))",
        "pad": "te.select(condition, X[i - 1], 0.0), which reads nothing where it is false",
        "power": "te.pow(x, y)",
        "relu": "te.maximum(x, 0.0)",
        "rint": "te.round(x)",
        "scan": "tilewright.script, with a loop that reads what its earlier iterations wrote",
        "sign": "te.select(x > 0, 1.0, te.select(x < 0, -1.0, x))",
        "softmax": "tilewright.ops.softmax(x)",
        "std": "te.sqrt of the variance: te.sum(te.square(x - mean[i]), axis=r) / extent",
        "softplus": "te.maximum(x, 0.0) + te.log(1 + te.exp(-te.abs(x)))",
        "size_var": "a number: sizes are known when a program is built",
        "tan": "te.sin(x) / te.cos(x)",
        "thread_axis": "sch.parallel(loop) or sch.bind(loop, axis), of a tw.Schedule",
        "var": "te.scalar(dtype, name) for a number of each call; "
        "the variance is te.sum(te.square(x - mean[i]), axis=r) / extent",
        "zeros": "te.compute(shape, lambda i, j: te.const(0, dtype))",
    },
    "func": {
        "args": "func.params",
        "script": "print(func), whose text tw.script(text) reads",
        "show": "print(func)",
    },
    "ops": {
        "conv1d": "ops.conv2d(X, W), of one row: X (n, c, 1, w) and W (o, c, 1, k)",
    },
    "script": {
        "clip": "T.minimum(T.maximum(x, low), high)",
        "gelu": "x * 0.5 * (T.erf(x * 0.7071067811865476) + 1.0)",
        "if_then_else": "T.select(condition, a, b)",
        "isnan": "x != x",
        "max": "T.maximum(a, b); over a loop, C[i] = T.maximum(C[i], x)",
        "min": "T.minimum(a, b); over a loop, C[i] = T.minimum(C[i], x)",
        "power": "T.pow(x, y)",
        "relu": "T.maximum(x, 0.0)",
        "silu": "x * T.sigmoid(x)",
        "square": "x * x",
        "sum": "a loop with C[i] = C[i] + x",
        "where": "T.select(condition, a, b)",
    },
    "tilewright": {
        "Database": 'tw.TuningDatabase("tuning.db")',
        "Tensor": "te.placeholder(shape, dtype, name=...), of `from tilewright import te`",
        "array": "a numpy array: modules are called with those",
        "autotune": "tw.tune(func, database=...)",
        "compile": "tw.build(func)",
        "cpu": 'the target as a text: "cpu -threads=1"',
        "create_schedule": "tw.Schedule(func)",
        "cuda": 'the target as a text: "cuda", or "cuda -arch=sm_90a" for an architecture',
        "device": 'the target as a text: tw.build(func, "cpu -threads=1")',
        "empty": "numpy.empty: modules are called with arrays of numpy",
        "gpu": 'the target as a text: "cuda", or "cuda -arch=sm_90a" for an architecture',
        "interpret": "interpret(func, *arrays), of `from tilewright.tir.interpreter import "
        "interpret`",
        "jit": "tw.build(func)",
        "lower": "tw.build(func); module.source('tir') is the lowered program",
        "nd": "numpy arrays, or DeviceArray.of(array), of tilewright.runtime, for a GPU",
        "ones": "numpy.ones: modules are called with arrays of numpy",
        "save": _SAVED,
        "zeros": "numpy.zeros: modules are called with arrays of numpy",
    },
    "tensor": {
        **{name: f"ops.{name}({{0}})" for name in _OPS.split()},
        "T": "ops.transpose({0}), or read it so: te.compute((n, m), lambda i, j: {0}[j, i])",
        "astype": "te.compute({0}.extents, lambda {1}: {0}[{1}].astype(dtype))",
        "flatten": "te.compute((n * m,), lambda i: {0}[i // m, i % m])",
        "item": _VALUES,
        "numpy": _VALUES,
        "op": "{0}.stage, which is None for a placeholder",
        "reshape": "te.compute((n, m), lambda i, j: {0}[i * m + j])",
        "size": "math.prod({0}.extents)",
        "tolist": _VALUES,
        "transpose": "ops.transpose({0}, axes), or read it so: te.compute((n, m), "
        "lambda i, j: {0}[j, i])",
    },
    "expression": {
        "T": "the indices in another order: X[j, i]",
        "clamp": "te.clip(x, low, high)",
        "item": _VALUES,
        "mean": "te.sum(x, axis=r) / extent",
        "shape": "X.extents, of the tensor: an expression is one element",
    },
    "schedule": {
        "apply": "trace.apply(func)",
        "blocks": "sch.get_block(name), for each name in print(sch.func)",
        "build": "tw.build(sch)",
        "compute_root": "nothing: a block has loops of its own until compute_at or compute_inline",
        "get": "sch.get_block(name)",
        "get_sref": "sch.get_block(name) and sch.get_loop(name)",
        "loops": "sch.get_loops(block), or sch.get_loop(name)",
        "lower": "tw.build(sch)",
        "mod": "sch.func; print(sch.func) shows it",
        "save": "sch.trace.to_json(), and tw.Trace.from_json(text).apply(func)",
        "script": "print(sch.func)",
        "show": "print(sch.func); print(sch.trace) shows the steps",
        "stages": "sch.get_block(name), for each name in print(sch.func)",
        "state": "sch.func",
        "unrolled": "sch.unroll(loop)",
        "vectorized": "sch.vectorize(loop)",
    },
    "module": {
        "benchmark": "mod.time(*arrays)",
        "entry_func": "mod(*arrays)",
        "evaluate": "mod.time(*arrays)",
        "export_library": _SAVED,
        "get_function": "mod(*arrays): a module is one kernel",
        "get_source": _SOURCES,
        "imported_modules": _SOURCES,
        "name": "mod.signature.name",
        "run": "mod(*arrays), the outputs among them",
        "save": _SAVED,
        "time_evaluator": "mod.time(*arrays), whose median is in seconds",
    },
}

_CUDA = 'write "cuda" for the GPU of this machine, or "cuda -arch=sm_90a" for an architecture'

KINDS: Mapping[str, str] = {
    "gpu": _CUDA,
    "llvm": "LLVM makes the code of `cpu`",
    "nvidia": _CUDA,
    "nvptx": _CUDA,
    "ptx": _CUDA,
}
"""What to write for kinds of targets that have other names elsewhere."""

OPTIONS: Mapping[str, str] = {
    "arch": "mcpu",
    "attr": "mattr",
    "cores": "threads",
    "cpu": "mcpu",
    "features": "mattr",
    "march": "mcpu",
    "num-cores": "threads",
    "num-threads": "threads",
    "target": "mtriple",
    "triple": "mtriple",
}
"""The options of targets by the names that they have elsewhere."""


def instead(kind: str, name: str, *words: str) -> str | None:
    """The hint of the table for a name that a `kind` of thing does not have.

    `words` are put in their places.
    """
    hint = INSTEAD[kind].get(name)
    return None if hint is None else f"write {hint.format(*words)}"


class MissingNameError(AttributeError):
    """The error for a `name` that is not there; `text` says so, as in "X has no attribute".

    `hint` is asked for when the text is read: imports and `hasattr` try names that are not there.
    """

    def __init__(self, text: str, name: str, hint: Callable[[], str | None]) -> None:
        super().__init__(f"{text} {name!r}", name=name)
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        return AttributeError, (str(self),)

    def __str__(self) -> str:
        hint = self.hint()
        return f"{self.args[0]}; {hint}" if hint else str(self.args[0])

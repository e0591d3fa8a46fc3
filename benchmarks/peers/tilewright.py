"""This package: the best recorded schedule, else the default one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import tilewright as tw
from tilewright import ops, te

from .. import suite
from ..pipelines import PIPELINES, Shape
from ..suite import Array, Case, Params, dtype_of
from .call import Call

VERSION = tw.__version__
DATABASE = "TILEWRIGHT_BENCHMARK_DB"
"""The environment variable that names the database."""


def prepare(case: Case, arrays: list[Array], threads: int) -> Call | None:
    """The call for a case."""
    with tw.TuningDatabase(os.environ[DATABASE], create=False) as database:
        module = tw.build(program(case), target(threads), database)
    note = "" if module.origin.kind == "record" else "not tuned"
    return call(module, case, arrays, note)


def call(module: tw.Module, case: Case, arrays: list[Array], note: str = "") -> Call:
    """The call of a module of a case."""
    out = suite.output(case)
    operands = packed(module, arrays)
    return Call(lambda: module(*operands, out), lambda: out, module.bind(*operands, out), note)


def packed(module: tw.Module, arrays: list[Array]) -> list[Any]:
    """The arrays, those that the module wants packed ahead of its calls in its layouts."""
    named = zip(module.signature.arguments, arrays, strict=False)
    return [module.pack(a.name, x) if a.name in module.layouts else x for a, x in named]


def target(threads: int) -> str:
    return f"cpu -threads={threads}"


def program(case: Case) -> tw.Func:
    """The program of a case."""
    return _PROGRAMS[case.op](case.params)


def _conv(p: Params) -> tw.Func:
    if p.get("groups", 1) > 1:
        return ops.depthwise_conv2d_func(
            1,
            p["c"],
            p["size"],
            p["size"],
            p["kernel"],
            p["stride"],
            p["padding"],
            constant_w=True,
        )
    return ops.conv2d_func(
        1,
        p["c"],
        p["size"],
        p["size"],
        p["o"],
        p["kernel"],
        p["stride"],
        p["padding"],
        bias=p.get("bias", False),
        epilogue=p.get("epilogue"),
        constant_w=True,
    )


def _matmul(p: Params) -> tw.Func:
    return ops.matmul_func(
        p["n"],
        p["m"],
        p["k"],
        batch=p.get("batch"),
        bias=p.get("bias", False),
        epilogue=p.get("epilogue"),
        constant_b=p.get("constant_b", False),
    )


def _pipeline(p: Params) -> tw.Func:
    pipeline = PIPELINES[p["pipeline"]]
    inputs = [
        te.placeholder(p["shape"], dtype, name=f"x{n}") for n, dtype in enumerate(pipeline.dtypes)
    ]
    return te.func([*inputs, pipeline.build(_Te(), p["shape"], *inputs)], name="pipeline")


class _Te:
    """The language of pipelines, in tensor expressions."""

    def stage(self, shape: Shape, formula: Callable[..., Any], name: str) -> te.Tensor:
        return te.compute(shape, formula, name=name)

    def number(self, value: float) -> te.Expr:
        return te.const(value, "float32")

    def clamp(self, index: Any, extent: int) -> te.Expr:
        return te.minimum(te.maximum(index, 0), extent - 1)

    def maximum(self, a: Any, b: Any) -> te.Expr:
        return te.maximum(a, b)

    def sqrt(self, x: Any) -> te.Expr:
        return te.sqrt(x)

    def abs(self, x: Any) -> te.Expr:
        return te.abs(x)

    def select(self, condition: Any, a: Any, b: Any) -> te.Expr:
        return te.select(condition, a, b)


_PROGRAMS: dict[str, Callable[[Params], tw.Func]] = {
    "matmul": _matmul,
    "conv2d": _conv,
    "softmax": lambda p: ops.softmax_func(p["n"], p["m"], dtype_of(p)),
    "layer_norm": lambda p: ops.layer_norm_func(p["n"], p["m"], dtype_of(p)),
    "add_relu": lambda p: ops.add_relu_func(p["n"], dtype_of(p)),
    "sum": lambda p: ops.reduction_func("sum", p["n"], p["m"], p["axis"], dtype_of(p)),
    "transpose": lambda p: ops.transpose_func(p["n"], p["m"], dtype_of(p)),
    "attention": lambda p: ops.attention_func(p["batch"], p["heads"], p["sequence"], p["dim"]),
    "int8_matmul": lambda p: ops.int8_matmul_func(p["n"], p["m"], p["k"]),
    "half_matmul": lambda p: ops.matmul_func(p["n"], p["m"], p["k"], p["dtype"]),
    "pipeline": _pipeline,
}

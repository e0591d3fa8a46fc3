"""PyTorch, eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from .. import suite
from ..suite import Array, Case, Params
from .call import Call, returning

VERSION = torch.__version__


def prepare(case: Case, arrays: list[Array], threads: int) -> Call | None:
    """The call for a case; `None` where an operand that is known ahead makes no difference."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    if case.params.get("constant_b"):
        return None
    tensors = [torch.from_numpy(a) for a in arrays]
    out = torch.from_numpy(suite.output(case))
    p = case.params
    plain = case.op == "matmul" and "epilogue" not in p
    if plain:
        return Call(lambda: torch.matmul(*tensors, out=out), out.numpy)
    if case.op == "add_relu":
        return Call(lambda: torch.relu_(torch.add(*tensors, out=out)), out.numpy)
    if case.op == "sum":
        return Call(lambda: torch.sum(tensors[0], p["axis"], out=out), out.numpy)
    if case.op == "transpose":
        return Call(lambda: out.copy_(tensors[0].T), out.numpy)
    if case.op == "int8_matmul":
        tensors[0] = tensors[0].to(torch.int8)  # values fit; the product takes equal dtypes
    fn = function(case)
    return returning(lambda: fn(*tensors), lambda c: c.numpy())


def function(case: Case) -> Callable[..., Any]:
    """The case as a function of tensors."""
    p = case.params
    return _FUNCTIONS[case.op](p)


def _matmul(p: Params) -> Callable[..., Any]:
    if p.get("epilogue") == "gelu":
        return lambda a, b, bias: F.gelu(torch.addmm(bias, a, b))
    return torch.matmul


def _conv(p: Params) -> Callable[..., Any]:
    options = {"stride": p["stride"], "padding": p["padding"], "groups": p.get("groups", 1)}
    if p.get("epilogue") == "relu":
        return lambda x, w, bias: torch.relu_(F.conv2d(x, w, bias, **options))
    return lambda x, w: F.conv2d(x, w, **options)


_FUNCTIONS: dict[str, Callable[[Params], Callable[..., Any]]] = {
    "matmul": _matmul,
    "conv2d": _conv,
    "softmax": lambda _: lambda x: torch.softmax(x, -1),
    "layer_norm": lambda _: lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b),
    "add_relu": lambda _: lambda a, b: torch.relu(a + b),
    "sum": lambda p: lambda x: torch.sum(x, p["axis"]),
    "transpose": lambda _: lambda x: x.T.contiguous(),
    "attention": lambda _: F.scaled_dot_product_attention,
    "int8_matmul": lambda _: torch._int_mm,
}

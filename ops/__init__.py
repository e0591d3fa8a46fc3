"""Operators on `te` tensors, and `<operator>_func` functions that return whole programs.

C = ops.matmul(A, B, bias=bias, epilogue="relu")        # a tensor of a larger program
func = ops.matmul_func(512, 512, 512)                   # a program of its own
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base.errors import similar
from ..base.hints import MissingNameError
from .attention import attention, attention_func
from .conv2d import conv2d, conv2d_func, depthwise_conv2d, depthwise_conv2d_func
from .elementwise import (
    ACTIVATIONS,
    activation,
    activation_func,
    add,
    add_relu,
    add_relu_func,
    bias_add,
    divide,
    elementwise,
    gelu,
    multiply,
    relu,
    sigmoid,
    subtract,
    tanh,
)
from .layer_norm import layer_norm, layer_norm_func
from .matmul import int8_matmul_func, matmul, matmul_func
from .pooling import avg_pool2d, global_avg_pool2d, max_pool2d, pool2d_func
from .rearrange import (
    concatenate,
    concatenate_func,
    one_hot,
    one_hot_func,
    pad,
    reshape,
    stack,
    take,
    take_func,
    transpose,
    transpose_func,
)
from .reductions import argmax, argmin, max, mean, min, prod, reduction_func, sum
from .softmax import (
    log_softmax,
    log_softmax_func,
    logsumexp,
    logsumexp_func,
    softmax,
    softmax_func,
)

__all__ = [
    "ACTIVATIONS",
    "activation",
    "activation_func",
    "add",
    "add_relu",
    "add_relu_func",
    "argmax",
    "argmin",
    "attention",
    "attention_func",
    "avg_pool2d",
    "bias_add",
    "concatenate",
    "concatenate_func",
    "conv2d",
    "conv2d_func",
    "depthwise_conv2d",
    "depthwise_conv2d_func",
    "divide",
    "elementwise",
    "gelu",
    "global_avg_pool2d",
    "int8_matmul_func",
    "layer_norm",
    "layer_norm_func",
    "log_softmax",
    "log_softmax_func",
    "logsumexp",
    "logsumexp_func",
    "matmul",
    "matmul_func",
    "max",
    "max_pool2d",
    "mean",
    "min",
    "multiply",
    "one_hot",
    "one_hot_func",
    "pad",
    "pool2d_func",
    "prod",
    "reduction_func",
    "relu",
    "reshape",
    "sigmoid",
    "softmax",
    "softmax_func",
    "stack",
    "subtract",
    "sum",
    "take",
    "take_func",
    "tanh",
    "transpose",
    "transpose_func",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        text = f"module {__name__!r} has no attribute"
        raise MissingNameError(text, name, lambda name: similar(name, __all__))

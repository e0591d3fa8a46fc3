"""Signals."""

from __future__ import annotations

from ....base import dtypes
from ....graph.builder import Builder
from ....graph.compose.basics import in_rank
from ....graph.compose.signal import cosine_window, dft, mel_matrix, stft
from ....graph.ir import Value
from ...unsupported import Reason, Unsupported
from ..table import OnnxNode, onnx_op
from .pointwise import dtype_of

_WINDOWS = {
    "HannWindow": (0.5, 0.5, 0.0),
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}
"""Factors of 1, -cos(t) and cos(2t)."""


@onnx_op(*_WINDOWS)
def window(b: Builder, node: OnnxNode) -> Value:
    periodic = bool(node.attribute("periodic", 1))
    values = cosine_window(int(node.number(0)), _WINDOWS[node.operator], periodic=periodic)
    return b.constant(values, dtype_of(node.attribute("output_datatype", 1)))


@onnx_op("MelWeightMatrix")
def mel_weight_matrix(b: Builder, node: OnnxNode) -> Value:
    bands, length, rate = (int(node.number(n)) for n in range(3))
    found = mel_matrix(bands, length, rate, node.number(3), node.number(4))
    return b.constant(found, dtype_of(node.attribute("output_datatype", 1)))


@onnx_op("DFT", since=17)
def dft_along_attribute(b: Builder, node: OnnxNode) -> Value:
    return _dft(b, node, node.attribute("axis", 1))


@onnx_op("DFT", since=20)
def dft_along_operand(b: Builder, node: OnnxNode) -> Value:
    return _dft(b, node, -2 if node.get(2) is None else int(node.number(2)))


def _dft(b: Builder, node: OnnxNode, axis: int) -> Value:
    length = None if node.get(1) is None else int(node.number(1))
    inverse, onesided = bool(node.attribute("inverse", 0)), bool(node.attribute("onesided", 0))
    axis = in_rank(axis, node[0].type.rank)
    return dft(b, node[0], axis, length, inverse=inverse, onesided=onesided)


@onnx_op("STFT", since=17)
def short_time_dft(b: Builder, node: OnnxNode) -> Value:
    x, step, given = node[0], int(node.number(1)), node.get(2)
    if not dtypes.is_float(x.dtype):
        raise Unsupported(Reason.DTYPE, x.dtype)
    length = int(node.number(3)) if given is None else given.type.size
    return stft(b, x, step, length, given, onesided=bool(node.attribute("onesided", 1)))

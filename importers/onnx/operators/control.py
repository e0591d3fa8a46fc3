"""Branches on what is known."""

from __future__ import annotations

from collections.abc import Sequence

from ....graph.builder import Builder
from ....graph.ir import Value
from ..table import OnnxNode, onnx_op


@onnx_op("If")
def branch(_b: Builder, node: OnnxNode) -> Sequence[Value]:
    condition = node.known(0)
    assert condition is not None
    assert node.body is not None
    chosen: tuple[Value, ...] = node.body("then_branch" if condition.item() else "else_branch")
    return chosen

"""Nodes of other programs in a graph, as they are: providers run them, and no kernel does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ...base.errors import IRError
from ..ir import TensorType
from ..operator import Array, Kind, Operator, register

_TYPE = re.compile(r"(\w+)\[(|-?\d+(?:, -?\d+)*)\]")


def _source(*_: Any, operators: Sequence[str], types: Sequence[str], model: str) -> None:
    """Operators of ONNX, the types of their outputs, and a model of these nodes as base64."""


def _infer(*_: TensorType, operators: Sequence[str], types: Sequence[str], model: str) -> Any:
    del operators, model
    found = list[TensorType]()
    for text in types:
        match = _TYPE.fullmatch(text)
        if match is None:
            raise IRError("{0!r:.80} is no type", text)
        extents = match[2].split(", ") if match[2] else ()
        found.append(TensorType(match[1], tuple(map(int, extents))))
    return tuple(found)


def _evaluate(*arrays: Array, operators: Sequence[str], types: Sequence[str], model: str) -> Any:
    del operators, types
    return foreign_module().evaluate(model, arrays)


def foreign_module() -> Any:
    """What reads the models of foreign nodes: `importers/onnx/foreign.py`."""
    return import_module("...importers.onnx.foreign", __package__)


register(Operator("foreign", Kind.FOREIGN, _evaluate, None, _infer, _source))

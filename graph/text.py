"""Graphs as text, which parses back.

    graph mlp(x: float32[1, 64]) -> (y):
      const w0: float32[64, 32] = sha256:5f2b...
      const w1: float32[] = 0.5
      %0: float32[1, 32] = matmul(x, w0, transpose_a=False, transpose_b=False)
      %1: float32[1, 32] = multiply(%0, w1)
      return y=%1

Small constants are written out; of others, and of NaN, which have bits of their own, there is the
digest, and whoever parses the text gives their elements. Names that are no identifiers are in
quotes.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..base import dtypes
from ..base.errors import ModelError, similar
from ..base.text import short_id
from .ir import Constant, Graph, Node, TensorType, Value, constant
from .operator import checked_name, checked_size, find
from .verify import verify

MAX_WRITTEN = 8
"""Elements of a constant that is written out."""


def graph_text(graph: Graph, *, own_names: bool = False) -> str:
    """The text of a graph.

    Values are numbered; with `own_names` they have their own, and constants those of their digests,
    so that texts of a graph before and after a pass can be compared.
    """
    names: dict[Value, str] = {v: _quoted(n) for n, v in graph.inputs.items()}
    inputs = ", ".join(f"{names[v]}: {v.type}" for v in graph.inputs.values())
    outputs = ", ".join(map(_quoted, graph.outputs))
    lines = [f"graph {_quoted(graph.name)}({inputs}) -> ({outputs}):"]
    for count, held in enumerate(graph.constants):
        names[held] = f"w_{short_id(held.digest)}" if own_names else f"w{count}"
        lines.append(f"  const {names[held]}: {held.type} = {_elements(held)}")
    number = 0
    for node in graph.nodes:
        for output in node.outputs:
            names[output] = _own(output) if own_names else f"%{number}"
            number += 1
        made = ", ".join(f"{names[o]}: {o.type}" for o in node.outputs)
        given = [names[v] for v in node.inputs]
        given += [f"{n}={_attribute(a)}" for n, a in node.attributes.items()]
        lines.append(f"  {made} = {node.operator}({', '.join(given)})")
    ends = ", ".join(f"{_quoted(n)}={names[v]}" for n, v in graph.outputs.items())
    lines.append(f"  return {ends}")
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else json.dumps(name)


def _own(value: Value) -> str:
    return value.name if re.fullmatch(r"%\d+", value.name, re.ASCII) else _quoted(value.name)


def _attribute(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_attribute, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, float) and not math.isfinite(value):
        return _NAN if math.isnan(value) else repr(value).replace("inf", "1e999")
    return repr(value)


def _elements(value: Constant) -> str:
    wide = value.data.astype(np.float64) if dtypes.is_float(value.dtype) else value.data
    if value.type.size > MAX_WRITTEN or np.isnan(wide).any():
        return f"sha256:{value.digest}"
    return json.dumps(wide.tolist())


_MAX_DIGITS = 19
"""Of an extent."""
_NAN = "(1e999 - 1e999)"
_NAME = r'(?:[A-Za-z_%]\w*|"(?:[^"\\]|\\.)*")'
_TYPE = r"(\w+)\[((?:-?\d+(?:, -?\d+)*)?)\]"
_ONE = rf"{_NAME}: \w+\[[-\d, ]*\]"
_HEAD = re.compile(
    rf"graph ({_NAME})\(((?:{_ONE}(?:, {_ONE})*)?)\) -> \(({_NAME}(?:, {_NAME})*)?\):"
)
_TYPED = re.compile(rf"({_NAME}): {_TYPE}")
_CONST = re.compile(rf"  const ({_NAME}): {_TYPE} = (.*)")
_NODE = re.compile(rf"  ({_ONE}(?:, {_ONE})*) = (\w+)\((.*)\)")
_PAIR = re.compile(rf"({_NAME})=({_NAME})")
_RETURN = re.compile(rf"  return (?:{_NAME}={_NAME}(?:, {_NAME}={_NAME})*)?")


def parse_graph(text: str, constants: Mapping[str, Any] | None = None) -> Graph:
    """The graph of a text, as `print(graph)` writes it. `constants` has the elements of large ones
    by their digests: `{c.digest: c.data for c in graph.constants}`.

    Raises `ModelError` for a text that is none of a graph, a constant that is missing, and for a
    graph that `verify` refuses.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    head = _HEAD.fullmatch(lines[0]) if lines else None
    if head is None or not _RETURN.fullmatch(lines[-1]):
        raise ModelError("the text is no graph: expected `graph name(...) -> (...):` to `return`")
    values: dict[str, Value] = {}
    inputs: dict[str, Value] = {}
    for name, type in _typed(head[2]):
        value = inputs[_plain(name)] = Value(type, _plain(name))
        _define(name, value, values)
    nodes: list[Node] = []
    for line in lines[1:-1]:
        if found := _CONST.fullmatch(line):
            name, dtype, shape, content = found.groups()
            held = _constant(name, _type(dtype, shape), content, constants or {})
            _define(name, held, values)
        elif found := _NODE.fullmatch(line):
            nodes.append(_node(found[1], found[2], found[3], values, line))
        else:
            raise ModelError("the line is none of a graph: {0!r:.120}", line)
    ends = [(_plain(n), _known(v, values, lines[-1])) for n, v in _PAIR.findall(lines[-1])]
    if [_plain(name) for name in re.findall(_NAME, head[3] or "")] != [name for name, _ in ends]:
        raise ModelError("{0!r:.120} has other outputs than {1!r:.120}", lines[0], lines[-1])
    if len(dict(ends)) < len(ends):
        raise ModelError("two outputs have one name: {0!r:.120}", lines[-1])
    graph = Graph(_plain(head[1]), inputs, tuple(nodes), dict(ends))
    verify(graph)
    return graph


def _typed(text: str, *, unknown: bool = False) -> Iterator[tuple[str, TensorType]]:
    for name, dtype, shape in _TYPED.findall(text):
        yield name, _type(dtype, shape, unknown=unknown)


def _define(name: str, value: Value, values: dict[str, Value]) -> None:
    if name in values:
        raise ModelError("two values are named {0}", name)
    values[name] = value


def _node(made: str, operator: str, given: str, values: dict[str, Value], line: str) -> Node:
    attributes: dict[str, Any] = {}
    try:
        call = ast.parse(f"f({_as_names(given)})", mode="eval").body
        if not isinstance(call, ast.Call):
            raise ValueError
        names = [str(ast.literal_eval(argument)) for argument in call.args]
        for keyword in call.keywords:
            if keyword.arg in attributes:
                raise ValueError
            attributes[str(keyword.arg)] = _literal(keyword.value)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ModelError("the line is none of a graph: {0!r:.120}", line) from error
    operands = [_known(name, values, line) for name in names]
    outputs = list[Value]()
    for name, type in _typed(made, unknown=True):
        outputs.append(Value(type, name))
        _define(name, outputs[-1], values)
    checked = find(operator).checked([v.type for v in operands], attributes)
    return Node(operator, tuple(operands), checked, tuple(outputs))


def _as_names(operands: str) -> str:
    """The operands with values as string literals, so that they parse as Python."""
    head = re.match(rf"(?:{_NAME}(?:, |$)(?!=))*", operands)
    length = head.end() if head else 0
    names = re.findall(_NAME, operands[:length])
    return ", ".join([*map(repr, names), *([operands[length:]] if operands[length:] else [])])


def _literal(node: ast.expr) -> Any:
    if ast.unparse(node) == ast.unparse(ast.parse(_NAN)):
        return float("nan")
    if isinstance(node, ast.Tuple):
        return tuple(map(_literal, node.elts))
    return ast.literal_eval(node)


def _known(name: str, values: Mapping[str, Value], line: str) -> Value:
    if name not in values:
        raise ModelError("nothing before computes {0}: {1!r:.120}", name, line)
    return values[name]


def _constant(name: str, type: TensorType, content: str, constants: Mapping[str, Any]) -> Constant:
    kind, _, digest = content.partition(":")
    if kind == "sha256":
        if digest not in constants:
            raise ModelError("the constant {0} ({1}) is not given", name, content, digest=digest)
        made = constant(constants[digest], name)
        if made.type != type or made.digest != digest:
            raise ModelError("the constant {0} is {1}, not {2}", name, made.type, type)
        return made
    try:
        given, wanted = json.loads(content), dtypes.to_numpy(type.dtype)
        data = np.array(given, np.float64 if dtypes.is_float(type.dtype) else wanted)
        exact = dtypes.is_float(type.dtype) or repr(data.tolist()) == repr(given)
        if not exact or (data.size and data.shape != type.shape):
            raise ValueError(f"{content} are no elements of {type}")
        return constant(data.astype(wanted).reshape(type.shape), name)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ModelError("the constant {0}: {1}", name, error) from error


def _plain(name: str) -> str:
    if not name.startswith('"'):
        return name
    try:
        return checked_name(str(json.loads(name)))
    except ValueError as error:
        raise ModelError("{0:.120} is no name", name) from error


def _type(dtype: str, shape: str, *, unknown: bool = False) -> TensorType:
    if dtype not in dtypes.SCALARS:
        raise ModelError("there is no dtype {0!r}", dtype, hint=similar(dtype, dtypes.SCALARS))
    if any(len(e) > _MAX_DIGITS for e in shape.split(", ")):
        raise ModelError("no array is {0}[{1:.120}]", dtype, shape)
    extents = tuple(int(e) for e in shape.split(", ") if e)
    return checked_size(TensorType(dtype, extents), unknown=unknown)

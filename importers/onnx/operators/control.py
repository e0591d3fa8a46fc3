"""Branches on what is known, and loops of a known count, whose bodies are written out."""

from __future__ import annotations

from collections.abc import Sequence

from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.ir import Constant, Value
from ..table import Items, OnnxNode, Operand, Reason, Unsupported, onnx_op
from .common import in_rank

_MOST = 1024
"""Iterations of a loop that is written out."""


@onnx_op("If")
def branch(_b: Builder, node: OnnxNode) -> Sequence[Operand]:
    condition = node.known(0)
    assert condition is not None
    assert node.body is not None
    chosen: tuple[Operand, ...] = node.body("then_branch" if condition.item() else "else_branch")
    return chosen


@onnx_op("Loop")
def loop(b: Builder, node: OnnxNode) -> Sequence[Operand]:
    """Count and conditions have to be known; what each iteration computes is stacked."""
    assert node.body is not None
    count = None if node.get(0) is None else int(node.number(0))
    going = node.get(1) is None or bool(node.number(1))
    state = [node.any(n) for n in range(2, len(node.inputs))]
    results: list[list[Value]] = [[] for _ in node.outputs[len(state) :]]
    step = 0
    while going and (count is None or step < count):
        if step == _MOST:
            raise Unsupported(Reason.OPERATOR, f"a Loop of more than {_MOST} iterations")
        first = [b.constant(step, "int64"), b.constant(True)]
        condition, *made = node.body("body", [*first, *state])
        if not isinstance(condition, Constant):
            raise Unsupported(Reason.DATA_DEPENDENT, "the condition of a Loop")
        going = bool(condition.data.item())
        state = made[: len(state)]
        for rows, value in zip(results, made[len(state) :], strict=True):
            rows.append(value)
        step += 1
    return [*state, *(stacked(b, rows, 0) for rows in results)]


@onnx_op("Scan", since=9)
def scan(b: Builder, node: OnnxNode) -> Sequence[Value]:
    count = node.attribute("num_scan_inputs")
    states = len(node.inputs) - count
    state = [node[n] for n in range(states)]
    rows = [node[n] for n in range(states, len(node.inputs))]
    results = len(node.outputs) - states
    axes = node.attribute("scan_input_axes") or (0,) * count
    backwards = node.attribute("scan_input_directions") or (0,) * count
    ahead = node.attribute("scan_output_directions") or (0,) * results
    places = node.attribute("scan_output_axes") or (0,) * results
    state, made = _scanned(b, node, state, rows, axes, backwards)
    turned = [
        list(reversed(values)) if front else values
        for values, front in zip(made, ahead, strict=True)
    ]
    return [*state, *(stacked(b, v, axis) for v, axis in zip(turned, places, strict=True))]


@onnx_op("Scan", since=8)
def scan_of_batch(b: Builder, node: OnnxNode) -> Sequence[Value]:
    """In opset 8 all operands have a batch in front, and sequences may have lengths."""
    if node.get(0) is not None:
        raise Unsupported(Reason.ATTRIBUTE, "lengths of sequences")
    count = node.attribute("num_scan_inputs")
    given = [node[n] for n in range(1, len(node.inputs))]
    states = len(given) - count
    backwards = node.attribute("directions") or (0,) * count
    found: list[list[Value]] = []
    for k in range(given[0].shape[0]):
        own = [row(b, value, 0, k) for value in given]
        state, made = _scanned(b, node, own[:states], own[states:], (0,) * count, backwards)
        found.append([*state, *(stacked(b, values, 0) for values in made)])
    return [stacked(b, list(values), 0) for values in zip(*found, strict=True)]


def _scanned(
    b: Builder,
    node: OnnxNode,
    state: list[Value],
    rows: Sequence[Value],
    axes: Sequence[int],
    backwards: Sequence[int],
) -> tuple[list[Value], list[list[Value]]]:
    """The last states, and what each step computes beside."""
    assert node.body is not None
    axes = [in_rank(axis, value.type.rank) for value, axis in zip(rows, axes, strict=True)]
    steps = {value.shape[axis] for value, axis in zip(rows, axes, strict=True)}
    if len(steps) != 1:
        raise ModelError("{0} inputs of a Scan have {1} steps", len(rows), sorted(steps))
    (count,) = steps
    if not 0 < count <= _MOST:
        raise Unsupported(Reason.OPERATOR, f"a Scan of {count} steps, of at most {_MOST}")
    rows_made: list[list[Value]] = []
    for step in range(count):
        seen = [
            row(b, value, axis, count - 1 - step if back else step)
            for value, axis, back in zip(rows, axes, backwards, strict=True)
        ]
        made = list(node.body("body", [*state, *seen]))
        state, made = made[: len(state)], made[len(state) :]
        rows_made = rows_made or [[] for _ in made]
        for values, value in zip(rows_made, made, strict=True):
            values.append(value)
    return state, rows_made


def row(b: Builder, x: Value, axis: int, place: int) -> Value:
    starts, shape = [0] * x.type.rank, list(x.shape)
    starts[axis], shape[axis] = place, 1
    part = b.add("slice", x, starts=tuple(starts), steps=(1,) * x.type.rank, shape=tuple(shape))
    value: Value = b.add("reshape", part, shape=x.shape[:axis] + x.shape[axis + 1 :])
    return value


def stacked(b: Builder, given: Sequence[Operand], axis: int) -> Value:
    """The values one after the other along a new axis."""
    if not given:
        raise Unsupported(Reason.DATA_DEPENDENT, "the shape of what no iteration computes")
    values = [value for value in given if not isinstance(value, Items)]
    if len(values) < len(given):
        raise Unsupported(Reason.TYPE, "sequences one after the other")
    shape = values[0].shape
    axis = in_rank(axis, len(shape) + 1)
    views = [b.add("reshape", v, shape=(*shape[:axis], 1, *shape[axis:])) for v in values]
    whole: Value = b.add("concatenate", *views, axis=axis) if len(views) > 1 else views[0]
    return whole


@onnx_op(
    "SequenceMap", "Optional", "StringConcat", "StringSplit", "StringNormalizer", "RegexFullMatch",
    "TfIdfVectorizer",
)  # fmt: skip
def of_other_types(_b: Builder, node: OnnxNode) -> Value:
    raise Unsupported(Reason.TYPE, node.operator)


@onnx_op("OptionalHasElement")
def has_element(b: Builder, node: OnnxNode) -> Value:
    return b.constant(node.get(0) is not None)


@onnx_op("OptionalGetElement")
def element(_b: Builder, node: OnnxNode) -> Value:
    """A tensor is the element of itself; there are no other optionals."""
    return node[0]

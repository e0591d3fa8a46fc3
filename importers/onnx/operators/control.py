"""What is known as a model is read: shapes, branches, how often loops run, sequences.

Loops of few nodes are written out; others become loops of the graph, if they have no sequences.

A sequence is the tuple of its values. Exporters write them for lists that loops fill, and for
splits into parts of one size.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.compose.basics import cast_to, in_rank, parts, reshaped, room, row, stacked
from ....graph.ir import Constant, Value
from ...control import MOST_WRITTEN, chosen, scanned
from ...rolling import StepBuilder, Traced, moved, rolled
from ...translation import UntranslatedError
from ...unsupported import Reason, Unsupported
from ..table import Items, OnnxNode, Operand, onnx_op
from .pointwise import dtype_of


@onnx_op("Shape")
def shape(b: Builder, node: OnnxNode) -> Value:
    extents = node[0].shape
    start, end = node.attribute("start", 0), node.attribute("end", None)
    return b.constant(np.array(extents[start:end], np.int64))


@onnx_op("Size")
def size(b: Builder, node: OnnxNode) -> Value:
    return b.constant(np.array(node[0].type.size, np.int64))


@onnx_op("Constant")
def constant(b: Builder, node: OnnxNode) -> Value:
    kinds = {"value_float": np.float32, "value_floats": np.float32}
    ((name, value),) = node.attributes.items()
    if name in ("value_string", "value_strings"):
        raise Unsupported(Reason.TYPE, name)
    if name == "value":
        return b.constant(value)
    return b.constant(np.asarray(value, kinds.get(name, np.int64)))


@onnx_op("ConstantOfShape")
def constant_of_shape(b: Builder, node: OnnxNode) -> Value:
    extents = node.integers(0) or ()
    fill = node.attribute("value", np.zeros(1, np.float32))
    return b.add("broadcast_to", b.constant(fill.reshape(())), shape=extents)


@onnx_op("Range")
def arange(b: Builder, node: OnnxNode) -> Value:
    start, stop, step = (node.number(n) for n in range(3))
    room(max((stop - start) / step, 0))
    return b.constant(np.arange(start, stop, step), node[0].dtype)


@onnx_op("EyeLike", since=9)
def eye(b: Builder, node: OnnxNode) -> Value:
    rows, columns = node[0].shape
    room(rows)
    room(columns)
    own, others = b.constant(np.arange(rows).reshape(rows, 1), "int64"), np.arange(columns)
    diagonal = b.constant(others - node.attribute("k", 0), "int64")
    wanted = node.attribute("dtype")
    dtype = node[0].dtype if wanted is None else dtype_of(wanted)
    return cast_to(b, b.add("equal", own, diagonal), dtype)


@onnx_op("If")
def branch(b: Builder, node: OnnxNode) -> Sequence[Operand]:
    """The branch that is known to be taken; else both are computed, and one is chosen."""

    def body(name: str) -> Sequence[Operand]:
        assert node.body is not None
        made: tuple[Operand, ...] = node.body(name)
        return made

    def tensors(name: str) -> list[Value]:
        made = [value for value in body(name) if not isinstance(value, Items)]
        if len(made) < len(node.outputs):
            raise Unsupported(Reason.DATA_DEPENDENT, "a sequence of an If")
        return made

    condition = reshaped(b, node[0], ())
    if isinstance(condition, Constant):
        return body("then_branch" if condition.data.item() else "else_branch")
    names = ("then_branch", "else_branch")
    return chosen(b, [condition], [partial(tensors, name) for name in names])


@onnx_op("Loop")
def loop(b: Builder, node: OnnxNode) -> Sequence[Operand]:
    """Count and conditions have to be known; what each iteration computes is stacked."""
    assert node.body is not None
    count = None if node.get(0) is None else int(node.number(0))
    going = node.get(1) is None or bool(node.number(1))
    state = [node.any(n) for n in range(2, len(node.inputs))]
    found = _rolled_loop(b, node, state, count) if going else None
    if found is not None:
        return found
    results: list[list[Value]] = [[] for _ in node.outputs[len(state) :]]
    step = 0
    while going and (count is None or step < count):
        if step == MOST_WRITTEN:
            raise Unsupported(Reason.OPERATOR, f"a Loop of more than {MOST_WRITTEN} iterations")
        first = [b.constant(step, "int64"), b.constant(True)]
        condition, *made = node.body("body", [*first, *state])
        if not isinstance(condition, Constant):
            raise Unsupported(Reason.DATA_DEPENDENT, "the condition of a Loop")
        going = bool(condition.data.item())
        state = made[: len(state)]
        for rows, value in zip(results, made[len(state) :], strict=True):
            rows.append(value)
        step += 1
    return [*state, *(_stacked(b, rows, 0) for rows in results)]


def _rolled_loop(
    b: Builder, node: OnnxNode, state: Sequence[Operand], count: int | None
) -> list[Value] | None:
    """What it returns if it is a loop of the graph; the number of the step is its first state."""

    def traced(step: StepBuilder, states: Sequence[Value]) -> Traced | None:
        number, *own = states
        made = _traced(step, node, [number, step.constant(True), *own])
        if made is None:
            return None
        going, *values = made
        always = isinstance(going, Constant) and bool(going.data.item())
        after = step.add("add", number, step.constant(1, "int64"))
        return None if always else going, [after, *values]

    tensors = [value for value in state if not isinstance(value, Items)]
    if len(tensors) < len(state):
        return None
    found = rolled(b, traced, [b.constant(0, "int64"), *tensors], count, until=True)
    return None if found is None else found[1:]


def _traced(step: StepBuilder, node: OnnxNode, given: Sequence[Value]) -> list[Value] | None:
    """What the body of a node computes, unless that is not supported or has sequences."""
    assert node.body is not None
    assert node.apart is not None
    try:
        with node.apart(step):
            made = node.body("body", given)
    except (UntranslatedError, Unsupported, ModelError):  # told where it is written out
        return None
    return None if any(isinstance(value, Items) for value in made) else list(made)


@onnx_op("Scan", since=9)
def scan(b: Builder, node: OnnxNode) -> Sequence[Value]:
    count = node.attribute("num_scan_inputs")
    states = len(node.inputs) - count
    results = len(node.outputs) - states
    axes = node.attribute("scan_input_axes") or (0,) * count
    backwards = node.attribute("scan_input_directions") or (0,) * count
    ahead = node.attribute("scan_output_directions") or (0,) * results
    places = node.attribute("scan_output_axes") or (0,) * results
    rows = [node[n] for n in range(states, len(node.inputs))]
    own = [
        _reversed(b, moved(b, value, axis, 0)) if back else moved(b, value, axis, 0)
        for value, back, axis in zip(rows, backwards, _from_front(axes, rows), strict=True)
    ]
    found = _scanned(b, node, [node[n] for n in range(states)], own)
    ends = [_reversed(b, v) if front else v for v, front in zip(found[states:], ahead, strict=True)]
    turned = zip(ends, _from_front(places, ends), strict=True)
    return [*found[:states], *(moved(b, value, 0, axis) for value, axis in turned)]


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
        rows = [
            _reversed(b, value) if back else value
            for value, back in zip(own[states:], backwards, strict=True)
        ]
        found.append(_scanned(b, node, own[:states], rows))
    return [_stacked(b, list(values), 0) for values in zip(*found, strict=True)]


def _from_front(axes: Sequence[int], values: Sequence[Value]) -> list[int]:
    return [in_rank(axis, value.type.rank) for axis, value in zip(axes, values, strict=True)]


def _reversed(b: Builder, rows: Value) -> Value:
    return b.add("take", rows, b.constant(np.arange(rows.shape[0])[::-1], "int64"), axis=0)


def _scanned(
    b: Builder, node: OnnxNode, states: Sequence[Value], rows: Sequence[Value]
) -> list[Value]:
    """The last states, and what each step computes beside."""
    assert node.apart is not None

    def body(given: Sequence[Value]) -> list[Value]:
        assert node.body is not None
        made = [value for value in node.body("body", given) if not isinstance(value, Items)]
        if len(made) < len(node.outputs):
            raise Unsupported(Reason.TYPE, "a sequence in a Scan")
        return made

    return scanned(b, node.apart, body, states, rows)


def _stacked(b: Builder, given: Sequence[Operand], axis: int) -> Value:
    """The values one after the other along a new axis."""
    if not given:
        raise Unsupported(Reason.DATA_DEPENDENT, "the shape of what no iteration computes")
    values = [value for value in given if not isinstance(value, Items)]
    if len(values) < len(given):
        raise Unsupported(Reason.TYPE, "sequences one after the other")
    return stacked(b, values, axis)


@onnx_op("SequenceEmpty")
def empty(_b: Builder, _node: OnnxNode) -> Items:
    return Items(())


@onnx_op("SequenceConstruct")
def construct(_b: Builder, node: OnnxNode) -> Items:
    return Items(tuple(node[k] for k in range(len(node.inputs))))


@onnx_op("SequenceInsert")
def insert(_b: Builder, node: OnnxNode) -> Items:
    """At the end, or before the element at a position; that of the last one is -1."""
    values = list(node.items(0))
    at_end = node.get(2) is None or int(node.number(2)) == len(values)
    values.insert(len(values) if at_end else _place(node, 2, len(values)), node[1])
    return Items(tuple(values))


@onnx_op("SequenceErase")
def erase(_b: Builder, node: OnnxNode) -> Items:
    values = list(node.items(0))
    del values[_place(node, 1, len(values))]
    return Items(tuple(values))


@onnx_op("SequenceAt")
def at(_b: Builder, node: OnnxNode) -> Value:
    values = node.items(0)
    return values[_place(node, 1, len(values))]


@onnx_op("SequenceLength")
def length(b: Builder, node: OnnxNode) -> Value:
    return b.constant(len(node.items(0)), "int64")


@onnx_op("ConcatFromSequence")
def joined(b: Builder, node: OnnxNode) -> Value:
    values, axis = node.items(0), node.attribute("axis", 0)
    if not values:
        raise ModelError("the sequence to be joined is empty")
    if node.attribute("new_axis", 0):
        return _stacked(b, values, in_rank(axis, values[0].type.rank + 1))
    return b.add("concatenate", *values, axis=in_rank(axis, values[0].type.rank))


@onnx_op("SplitToSequence")
def split(b: Builder, node: OnnxNode) -> Items:
    """Into parts of given lengths, of one length but the last, or of one element."""
    x = node[0]
    axis = in_rank(node.attribute("axis", 0), x.type.rank)
    extent, given = x.shape[axis], node.known(1)
    if given is None and not node.attribute("keepdims", 1):
        return Items(tuple(row(b, x, axis, place) for place in range(extent)))
    if given is None or given.ndim == 0:
        size = 1 if given is None else int(given)
        lengths = [min(size, extent - start) for start in range(0, extent, size)]
    else:
        lengths = [int(n) for n in given]
    if sum(lengths) != extent:
        raise ModelError("parts of {0} do not make {1} of {2}", lengths, extent, x)
    return Items(tuple(parts(b, x, axis, lengths)))


def _place(node: OnnxNode, operand: int, count: int) -> int:
    """A position among `count`; the last one where none is given."""
    if node.get(operand) is None:
        return count - 1
    place = int(node.number(operand))
    if not -count <= place < count:
        raise ModelError("position {0} of {1}", place, count)
    return place % count


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

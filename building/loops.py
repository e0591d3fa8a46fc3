"""Loops of a model: each is a function of its image that repeats the steps of its body."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..codegen.compiled import Compiled
from ..codegen.sequence import Address, Copy, Repeat, SequenceStep, joined
from ..graph.groups import Group
from ..graph.ir import Constant, Value
from ..graph.loops import Loop
from ..runtime.signature import Argument, Signature
from ..target import Target
from ..tir.node import CHECK
from .memory_plan import ALIGNMENT
from .model_steps import Steps, poisoned, root, steps_of
from .weights import Weights


def take_constants(groups: Sequence[Group], weights: Weights) -> None:
    """Take the constants that loops are given, and those that their bodies return."""
    for group in groups:
        loop = group.loop
        if loop is None:
            continue
        held = [*group.inputs, *(root(loop.body, v) for v in loop.body.outputs.values())]
        for value in held:
            if isinstance(value, Constant):
                weights.take_plain(value)
        take_constants(loop.groups, weights)


def loop_kernels(
    groups: Sequence[Group],
    kernels: Mapping[Group, Compiled],
    weights: Weights,
    target: Target,
    name: str,
) -> Iterator[tuple[Group, Compiled]]:
    """The functions of the loops among groups, whose kernels are given.

    Their arguments are the inputs and outputs of their groups, and the weights of the model as
    bytes, where there are any.
    """
    for number, group in enumerate(groups):
        loop = group.loop
        if loop is not None:
            own = f"{name}_loop{number}"
            known = {**kernels, **dict(loop_kernels(loop.groups, kernels, weights, target, own))}
            codes = [known[inner] for inner in loop.groups]
            yield group, _compiled(group, loop, codes, weights, target, own)


def _compiled(
    group: Group,
    loop: Loop,
    codes: Sequence[Compiled],
    weights: Weights,
    target: Target,
    name: str,
) -> Compiled:
    """The states of a step are in the outputs, and those after it in the workspace meanwhile."""
    plan = steps_of(loop.body, loop.groups, codes, weights, name)
    inputs, outputs = list(loop.body.inputs.values()), list(loop.body.outputs.values())
    carried, moving = loop.carried, loop.carried + loop.sliced
    first = len(group.inputs)
    weights_at = first + len(group.outputs)
    after, size = _places(outputs[:carried], plan)
    places = [
        *(Address(first + n) for n in range(carried)),
        *(Address(n) for n in range(carried, len(inputs))),
        *after,
        *(Address(first + n) for n in range(carried, len(outputs))),
        *([Address(weights_at)] if weights.bytes else []),
    ]
    strides = [0] * len(places)
    rows = [*range(carried, moving), *range(len(inputs) + carried, len(inputs) + len(outputs))]
    for place in rows:
        value = inputs[place] if place < moving else outputs[place - len(inputs)]
        strides[place] = value.type.bytes
    carry = [
        Copy(Address(len(inputs) + n), Address(n), value.type.bytes)
        for n, value in enumerate(outputs[:carried])
        if value.type.bytes
    ]
    body = tuple(poisoned(plan)) if CHECK else plan.steps
    steps: list[SequenceStep] = [
        Copy(Address(n), Address(first + n), value.type.bytes)
        for n, value in enumerate(group.inputs[:carried])
        if value.type.bytes
    ]
    steps.append(Repeat(loop.count, tuple(places), tuple(strides), Address(None), (*body, *carry)))
    signature = Signature(name, tuple(_arguments(group, plan)), size)
    return joined(signature, steps, target)


def _places(states: Sequence[Value], plan: Steps[Value]) -> tuple[list[Address], int]:
    """Where states are after a step, behind the arena of the body, and the bytes of it all."""
    found, end = list[Address](), plan.memory.bytes
    for value in states:
        end = -(-end // ALIGNMENT) * ALIGNMENT
        found.append(Address(None, end))
        end += value.type.bytes
    return found, end


def _arguments(group: Group, plan: Steps[Value]) -> Iterator[Argument]:
    for n, value in enumerate(group.inputs):
        yield Argument(f"x{n}", value.dtype, value.shape)
    for n, value in enumerate(group.outputs):
        yield Argument(f"y{n}", value.dtype, value.shape, role="out")
    yield from (argument for argument in plan.signature.arguments if argument.constant)

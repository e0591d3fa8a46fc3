"""Convolutions by units that add up channels: these last, as the units read and write them.

    for n, o, y, x, c, p, q: Y[n, o, y, x] += X[n, c, y + p, x + q] * W[o, c, p, q]

      ->  for n, y, x, o, p, q, c: Y[n, y, x, o] += X[n, y + p, x + q, c] * W[o, c, p, q]

The copy that pads the input writes it so, and what follows reads the sums so; where there is none,
one is made. A window's rows then lie in memory as rows of a matrix do, and W is packed.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator

from ...schedule import Schedule
from ...schedule.block_queries import has_reduction, readers_of
from ...schedule.find import find_block
from ...schedule.index_map import IndexMap
from ...tir.ir import Block, Label, Var
from .access_patterns import (
    Input,
    extents,
    in_order,
    inputs_of,
    is_injective,
    output_of,
    reduced,
    spatial,
)
from .canonicalise import is_plain
from .common import result_or_none
from .draft import Draft, RuleChoice
from .rule import Alternative, Group, GroupKind, planned


def channels_last(draft: Draft) -> Iterator[Alternative]:
    """The program with channels last where instructions can do the contraction then, not before."""
    copies: list[Label] = []
    for block in in_order(draft.func):
        plain = has_reduction(block) and is_plain(draft.func, block)
        if not plain or draft.rules.has_instruction(draft, [block]):
            continue
        trial = draft.copy()
        sch = trial.schedule
        created = result_or_none(_put_last, sch, sch.get_block(block.label))
        if created and draft.rules.has_instruction(trial, [trial.block(block.label)]):
            draft = trial
            copies.append(created[0])
    if copies:
        turns = [functools.partial(_turn, label=label) for label in copies]
        choice = RuleChoice("channels_last")
        units = {rule.name for rule in draft.rules.instructions}

        def uses_unit(choices: Collection[RuleChoice]) -> bool:
            return any(choice.rule in units for choice in choices)

        yield Alternative(choice.rule, choice, draft, copies, after=turns, wanted=uses_unit)


def _turn(draft: Draft, label: Label) -> None:
    """Schedule the copy that puts the channels of an input last, as the target's rules do first."""
    group = Group(GroupKind.ELEMENTWISE, (draft.block(label),))
    for _, variant in planned(draft.rules.rules, draft, group)[:1]:
        for step in variant.steps:
            step(draft)


def _put_last(sch: Schedule, label: Label) -> list[Label] | None:
    """Give a contraction its channels last, of what it sums up and of what it computes.

    Returns the copies that are made for it; `None` where it has no such channels.
    """
    block = find_block(sch.func, label)
    channels = _channels(block)
    if channels is None:
        return None
    index, channel_in, channel_out = channels
    order = [*(v for v in spatial(block) if v is not channel_out), channel_out]
    order += [*(v for v in reduced(block) if v is not channel_in), channel_in]
    source, out = inputs_of(block)[index], output_of(block)
    assert out is not None
    created = [_read_last(sch, label, index, source, channel_in)]
    if out.buffer not in sch.func.allocs:
        created.append(sch.cache_write(label, 0, "global"))
    sch.transform_layout(label, ("write", 0), _last(out, channel_out))
    sch.transform_block_layout(label, IndexMap(tuple(i.var for i in block.iters), tuple(order)))
    return created


def _read_last(sch: Schedule, label: Label, index: int, source: Input, channel_in: Var) -> Label:
    """Have a block read an input with channels last, from the block that copies it so.

    What pads the input reads that copy: rows of channels, which are padded as they are.
    """
    to_last = _last(source, channel_in)
    pads = _padding(sch, label, source, channel_in)
    if pads is None:
        copy = sch.cache_read(label, index, "global")
        sch.transform_layout(label, ("read", index), to_last)
    else:
        writer, channel = pads
        (read,) = inputs_of(find_block(sch.func, writer))
        copy = sch.cache_read(writer, 0, "global")
        sch.transform_layout(writer, ("read", 0), _last(read, channel))
        sch.transform_layout(label, ("read", index), to_last)
        _in_order_of_memory(sch, writer)
    _in_order_of_memory(sch, copy)
    return copy


def _padding(
    sch: Schedule, label: Label, source: Input, channel_in: Var
) -> tuple[Label, Var] | None:
    """The block that copies an input for this block alone, and its variable of the channels."""
    if source.buffer not in sch.func.allocs or len(readers_of(sch.func, {source.buffer})) > 1:
        return None
    for writer in sch.get_producers(label):
        block = find_block(sch.func, writer)
        out, inputs = output_of(block), inputs_of(block)
        if out is None or out.buffer is not source.buffer or not is_injective(block):
            continue
        channel = next((v for v, d in out.plain.items() if d == source.plain[channel_in]), None)
        if channel is None or len(inputs) != 1 or channel not in inputs[0].plain:
            continue
        if len(inputs[0].at.shape) == len(inputs[0].buffer.shape):
            return writer, channel
    return None


def _in_order_of_memory(sch: Schedule, label: Label) -> None:
    """Iterate over the elements that a block writes as they lie in memory."""
    block = find_block(sch.func, label)
    out = output_of(block)
    assert out is not None
    order = tuple(sorted(out.plain, key=out.plain.__getitem__))
    sch.transform_block_layout(label, IndexMap(tuple(i.var for i in block.iters), order))


def _channels(block: Block) -> tuple[int, Var, Var] | None:
    """The input to put the channels last of, these, which are summed up, and those computed.

    Where nothing else is summed up there are no windows: that is a product of matrices already.
    """
    inputs, out, sizes = inputs_of(block), output_of(block), extents(block)
    if out is None or len(inputs) != 2 or len(reduced(block)) < 2:
        return None
    if any(len(i.at.shape) != len(i.buffer.shape) for i in (*inputs, out)):
        return None
    for index, (source, other) in enumerate(zip(inputs, reversed(inputs), strict=True)):
        channel_in = [v for v in reduced(block) if v in source.plain and v in other.plain]
        channel_out = [v for v in spatial(block) if v not in source.used and v in other.plain]
        channel_out = [v for v in channel_out if v in out.plain]
        if channel_in and channel_out:
            return (
                index,
                max(channel_in, key=sizes.__getitem__),
                max(channel_out, key=sizes.__getitem__),
            )
    return None


def _last(access: Input, var: Var) -> IndexMap:
    """The layout with the dimension last that a variable indexes."""
    indices = [Var(f"d{d}") for d in range(len(access.at.shape))]
    order = [*indices]
    order.append(order.pop(access.plain[var]))
    return IndexMap(tuple(indices), tuple(order))

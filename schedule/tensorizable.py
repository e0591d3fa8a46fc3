"""Conditions under which a block may run as one instruction."""

from __future__ import annotations

from itertools import pairwise

from ..tir.instruction import KEY, Instruction
from ..tir.instruction_match import Mismatch, Operand, accesses, match, offsets
from ..tir.instruction_set import find_instruction
from ..tir.ir import Block, Buffer, Dim, ForKind, Func, product
from .block_queries import domain
from .find import blocks_in, loops_above
from .require import require, require_number, require_some


def instruction_of(block: Block) -> str | None:
    """The name of the instruction that a block runs as."""
    for key, name in block.annotations:
        if key == KEY:
            return str(name)
    return None


def instruction_modules(fn: Func) -> set[str]:
    """The modules that register the instructions of blocks, those of this package left out."""
    names = {instruction_of(block) for block in blocks_in(fn.body)}
    known = (find_instruction(name) for name in names if name is not None)
    return {i.home for i in known if i is not None and i.home is not None}


def require_instructions(fn: Func) -> None:
    """Require that blocks that run as instructions still match these."""
    for block in blocks_in(fn.body):
        name = instruction_of(block) if block.annotations else None
        if name is not None:
            instruction = require_some(
                find_instruction(name), "there is no instruction {0!r}", name, at=block.label
            )
            operands_of(fn, block, instruction)


def operands_of(fn: Func, block: Block, instruction: Instruction) -> dict[Buffer, Operand]:
    """The regions that `block` uses for the buffers of `instruction`; requires an exact match."""
    require(
        block.init is None,
        "block {0} has an init, which instruction {1} does not compute",
        block.label,
        instruction.name,
        hint="use decompose_reduction before tensorize",
    )
    for loop in loops_above(fn, block.label):
        require(
            loop.kind is not ForKind.VECTOR,
            "block {0} runs as instruction {1}, which cannot be in the vectorized loop {2}",
            block.label.name,
            instruction.name,
            loop.var,
        )
    found = match(block.body, instruction, domain(block.iters))
    if isinstance(found, Mismatch):
        reason, arguments = found
        shifted = reason.replace("{1}", "{3}").replace("{0}", "{2}")
        require(
            False,
            "block {0} is not what instruction {1} computes: " + shifted,
            block.label,
            instruction.name,
            *arguments,
        )
    assert not isinstance(found, Mismatch)
    for operand in found.values():
        require(
            operand.buffer.swizzle is None,
            "the layout of {0}, of which instruction {1} takes elements, is swizzled",
            operand.buffer.name,
            instruction.name,
            at=block.label,
        )
    return dict(found)


def require_contiguous(
    block: Block, instruction: Instruction, found: dict[Buffer, Operand]
) -> None:
    """Require that each vector of the implementation is one run of elements in memory."""
    for param, which in accesses(instruction):
        operand = found[param]
        strides = _strides(operand.buffer)
        steps: list[int] = []
        for step in operand.steps:
            total: Dim = 0
            for s, stride in zip(step, strides, strict=True):
                total = total + stride * s if s else total
            distance = require_number(
                total,
                "it is not known how far apart elements of {0} are that instruction {1} takes "
                "together",
                operand.buffer.name,
                instruction.name,
                at=block.label,
            )
            steps.append(distance)
        at = offsets(param, which, tuple(steps))
        require(
            at == list(range(at[0], at[0] + len(at))),
            "instruction {0} takes {1} elements as one vector, which lie {2} apart in {3}",
            instruction.name,
            len(at),
            lambda at=at: ", ".join(sorted({str(b - a) for a, b in pairwise(at)})),
            operand.buffer.name,
            at=block.label,
            hint="use pack to put what it takes together next to each other",
        )


def _strides(buffer: Buffer) -> list[Dim]:
    if buffer.strides is not None:
        return list(buffer.strides)
    return [product(buffer.shape[d + 1 :]) for d in range(len(buffer.shape))]

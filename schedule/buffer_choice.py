"""The buffers of a block that steps number, and what their names stand for.

Where a parameter has one of the types below, the name of a buffer, or the buffer itself, stands for
its number. A trace has the number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias

from ..base.errors import similar
from ..tir.ir import Block, Buffer, Func, Label
from .block_queries import buffers_in_order, region_buffers
from .find import find_block
from .require import require


class Numbered(NamedTuple):
    """The buffers of a block with the argument that stands for each; `verb` is what it does."""

    verb: str
    arguments: Callable[[Block], Mapping[Buffer, Any]]


def inputs_of(block: Block) -> list[Buffer]:
    """The buffers that a block reads and does not write."""
    written = region_buffers(block.writes)
    return [b for b in buffers_in_order(block.reads) if b not in written]


def outputs_of(block: Block) -> list[Buffer]:
    """The buffers that a block writes."""
    return buffers_in_order(block.writes)


def updates_of(block: Block) -> list[Buffer]:
    """The buffers that a block both reads and writes."""
    written = region_buffers(block.writes)
    return [b for b in buffers_in_order(block.reads) if b in written]


def _numbers(buffers: Sequence[Buffer]) -> dict[Buffer, int]:
    return {b: k for k, b in enumerate(buffers)}


def _accesses(block: Block) -> dict[Buffer, tuple[str, int]]:
    reads = {b: ("read", k) for b, k in _numbers(inputs_of(block)).items()}
    return reads | {b: ("write", k) for b, k in _numbers(outputs_of(block)).items()}


InputIndex: TypeAlias = Annotated[int, Numbered("reads", lambda b: _numbers(inputs_of(b)))]
OutputIndex: TypeAlias = Annotated[int, Numbered("writes", lambda b: _numbers(outputs_of(b)))]
UpdateIndex: TypeAlias = Annotated[int, Numbered("updates", lambda b: _numbers(updates_of(b)))]
BufferAccess: TypeAlias = Annotated[tuple[str, int], Numbered("reads and writes", _accesses)]


def argument_for(
    fn: Func, block: Label, numbered: Numbered, buffer: str | Buffer
) -> tuple[Func, Any]:
    """The argument that stands for a buffer of a block, or for the one of that name."""
    arguments = numbered.arguments(find_block(fn, block))
    name = buffer if isinstance(buffer, str) else buffer.name
    found = [b for b in arguments if b is buffer] or [b for b in arguments if b.name == name]
    names = [b.name for b in arguments]
    require(
        len(found) == 1,
        "block {0} {1} {2}; {3} of them is {4}",
        block,
        numbered.verb,
        ", ".join(names) or "no buffer",
        "none" if not found else f"more than one ({len(found)})",
        name,
        hint=lambda: similar(name, names),
        found=name,
        alternatives=names,
    )
    return fn, arguments[found[0]]

"""Queries: `work_on`, `get_block`, `get_loops`, `get_producers`, `get_consumers`."""

from __future__ import annotations

from collections.abc import Mapping

from ...base.errors import ScheduleError, similar
from ...tir.ir import For, Func, Label, Var
from ..block_queries import readers_of, region_buffers
from ..find import MAKE_BLOCKS, blocks_in, find_block, path_to
from ..primitive import primitive
from ..require import require


@primitive
def work_on(funcs: Mapping[str, Func], function: str | int) -> tuple[Func, None]:
    """Apply the following steps to another function, given by name or by position from 0.

        sch = Schedule({"a": f, "b": g})   ->   sch.work_on("b"): steps act on g

    For a schedule of several functions; it starts with the first. A handle belongs to one function
    and is valid while that function is worked on. Raises `ScheduleError` if there is no such
    function.
    """
    names = list(funcs)
    known = function in names if isinstance(function, str) else 0 <= function < len(names)
    require(
        known,
        "there is no function {0!r}; there are {1}",
        function,
        lambda: ", ".join(f"{name!r} ({k})" for k, name in enumerate(names)),
        found=function,
        alternatives=names,
        hint="Schedule({'a': f, 'b': g}) works on several" if len(names) == 1 else None,
    )
    return funcs[function if isinstance(function, str) else names[function]], None


@primitive
def get_block(fn: Func, block: str | int) -> tuple[Func, Label]:
    """Returns the block of that name, or at that position of the program as written, from 0.

    Steps do not move positions. A schedule also takes the label of a block of its program as
    written, and then returns that label.

    Raises `ScheduleError` if there is none, or if several have the name.
    """
    if isinstance(block, str):
        return block_named(fn, block)
    blocks = list(blocks_in(fn.body))
    if not blocks:
        raise ScheduleError(
            "there is no block {0}: positions are of the program as written, and {1} has no block",
            block,
            fn.name,
            hint=f"{MAKE_BLOCKS}: take these by name",
        )
    if not 0 <= block < len(blocks):
        raise ScheduleError(
            "there is no block {0}; the program as written has {1}, counted from 0",
            block,
            len(blocks),
            found=block,
            expected=f"0 to {len(blocks) - 1}",
        )
    return fn, blocks[block].label


def block_named(fn: Func, name: str) -> tuple[Func, Label]:
    """The block of that name in a program.

    Raises `ScheduleError` if there is none, or if several have the name.
    """
    names = [b.label.name for b in blocks_in(fn.body)]
    found = [b.label for b in blocks_in(fn.body) if b.label.name == name]
    require(
        len(found) > 0,
        "there is no block {0!r}; there are {1}",
        name,
        lambda: ", ".join(names) or "none",
        hint=lambda: similar(name, names) if names else MAKE_BLOCKS,
        found=name,
        alternatives=names,
        named=name,
    )
    require(
        len(found) == 1,
        "{0} blocks are called {1!r}",
        len(found),
        name,
        hint="give the position in the program as written, or take what a step returned",
    )
    return fn, found[0]


@primitive
def get_loops(fn: Func, block: Label) -> tuple[Func, tuple[Var, ...]]:
    """Returns the loops around a block, outermost first."""
    return fn, tuple([s.var for s in path_to(fn, block) if type(s) is For])


@primitive
def get_producers(fn: Func, block: Label) -> tuple[Func, tuple[Label, ...]]:
    """Returns the other blocks that write what a block reads, in program order."""
    wanted = region_buffers(find_block(fn, block).reads)
    return fn, tuple(
        b.label
        for b in blocks_in(fn.body)
        if b.label is not block and not wanted.isdisjoint(region_buffers(b.writes))
    )


@primitive
def get_consumers(fn: Func, block: Label) -> tuple[Func, tuple[Label, ...]]:
    """Returns the other blocks that read what a block writes, in program order."""
    written = region_buffers(find_block(fn, block).writes)
    return fn, tuple(b.label for b in readers_of(fn, written, but=block))

"""Remarks on loops that few threads of a launch run, as they are bound to none of its axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from ...tir.equality import flat
from ...tir.ir import Block, For, ForKind, Func, IterKind, Stmt, integers
from ...tir.visit import children, walk
from .launches import BLOCK_AXES, THREAD_AXES
from .rewrite import loops

_IN_ORDER = (ForKind.SERIAL, ForKind.UNROLL)


def idle_threads(func: Func) -> tuple[str, ...]:
    """What to bind in a scheduled program, so that no thread waits for another one's loops.

    A phase that lacks an axis runs where that is 0 (`phases.py`): right, but perhaps hundreds of
    times slower. A remark is for a block with loops that can be bound, as they are over spatial
    iteration variables. Reductions of what threads hold in part are not: all threads combine it
    (`collectives.py`).
    """
    return tuple(remark for stmt in flat(func.body) for remark in _of_launch(stmt))


def _of_launch(stmt: Stmt) -> Iterator[str]:
    extents = {f.thread: integers([f.extent])[0] for f in loops(stmt)}
    moving = {axis: n for axis in THREAD_AXES if (n := extents.get(axis, 1)) > 1}
    threads = prod(moving.values())
    for block, around in _blocks(stmt, ()):
        own = {f.thread for f in around}
        lacking = {axis: n for axis, n in moving.items() if axis not in own}
        free = [f for f in around if _may_be_bound(f, block, lacking)]
        if not lacking or not free:
            continue
        running = threads // prod(lacking.values())
        names = ", ".join(f.var.name for f in free)
        grid = [f.var.name for f in around if f.thread in BLOCK_AXES]
        where = f"the launch over {', '.join(grid)}" if grid else "its launch"
        yield (
            f"{block.label.name}: {running} of the {threads} threads of a block run its "
            f"{prod(integers(f.extent for f in free))} iterations of {names} in {where}, as these "
            f"loops are not bound to {' and '.join(lacking)}: {_step(free, lacking)}"
        )


def _blocks(n: object, around: tuple[For, ...]) -> Iterator[tuple[Block, tuple[For, ...]]]:
    """The blocks of a program, each with the loops around it from outside."""
    if type(n) is Block:
        yield n, around
        return
    inside = (*around, n) if type(n) is For else around
    for c in children(n):
        yield from _blocks(c, inside)


def _may_be_bound(f: For, block: Block, axes: Mapping[str, int]) -> bool:
    """Whether a loop around a block has it run in any order, and nothing in it bound to `axes`."""
    used = {i.kind for i in block.iters if any(n is f.var for n in walk(i.value))}
    return (
        f.kind in _IN_ORDER
        and f.extent not in (0, 1)
        and used == {IterKind.SPATIAL}
        and not any(inner.thread in axes for inner in loops(f.body))
    )


def _step(free: Sequence[For], lacking: Mapping[str, int]) -> str:
    """The calls that help, in Python."""
    names = [f.var.name for f in free]
    loop = names[0] if len(names) == 1 else f"sch.fuse({', '.join(names)})"
    threads = [axis.replace("threadIdx.", "t") for axis in lacking]
    factors = ", ".join(map(str, [None, *lacking.values()]))
    binds = "; ".join(f'sch.bind({t}, "{axis}")' for t, axis in zip(threads, lacking, strict=True))
    return f"_, {', '.join(threads)} = sch.split({loop}, factors=[{factors}]); {binds}"

"""Programs written by hand: brought to a nest for each block, a loop for each iteration variable.

    for k: for i: for j: C[i, j] += ..   ->   for i: for j: for k: C[i, j] += ..

    for i: { A[i] = ..; for j: B[i, j] = A[i] + .. }   ->   for i: A[i] = ..
                                                            for i: for j: B[i, j] = A[i] + ..

    for i: { A[i] = ..; A[i] = max(A[i], 0) }   ->   for i: A_before[i] = ..
                                                     for i: A[i] = max(A_before[i], 0)

    if M[i, k]: C[i] = C[i] + A[i, k]   ->   C[i] = C[i] + select(M[i, k], A[i, k], -0.0)

That is the form in which operators are defined and from which the other rules start. What the
primitives refuse stays as its author wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ...base.errors import ScheduleError
from ...schedule import Schedule
from ...schedule.block_queries import buffers_in_order, has_reduction, region_buffers, with_regions
from ...schedule.find import blocks_in, find_block, find_loop, path_to
from ...schedule.index_map import IndexMap
from ...tir.ir import (
    Block,
    For,
    ForKind,
    Func,
    If,
    IterKind,
    Label,
    Seq,
    Stmt,
    Store,
    Var,
)
from ...tir.visit import nested
from .access_patterns import in_order
from .common import result_or_none, succeeds

AGAIN = (ForKind.PARALLEL, ForKind.VECTOR, ForKind.UNROLL)
"""The kinds of loops whose iterations may run one after the other as well."""


def needs_nests(func: Func) -> bool:
    """Whether something is not in a block that is plain, or buffers are written more than once."""
    plain = all(is_plain(func, b) for b in in_order(func))
    parts = _inits(func) or _updates(func) or _guarded(func)
    return not plain or _has_statements(func.body) or bool(parts)


def canonicalise(sch: Schedule) -> tuple[Label, ...]:
    """Give each block a nest of its own, and each of its variables a loop, where that can be.

    Reduce variables come last. Prefetches get no nest. Returns the labels of the blocks that are
    made for statements in no block.
    """
    labels = [sch.get_block(n) for n, b in enumerate(in_order(sch.func)) if b.writes]
    created = result_or_none(sch.make_blocks) or ()
    labels += created
    _to_memory(sch, labels)
    for label in labels:
        if is_plain(sch.func, find_block(sch.func, label)):
            continue
        for loop in sch.get_loops(label):
            if find_loop(sch.func, loop).kind in AGAIN:
                with suppress(ScheduleError):
                    sch.serial(loop)
        _cut(sch, label)
    for label in labels:
        block = find_block(sch.func, label)
        if not is_plain(sch.func, block):
            variables = tuple(Var(f"i{n}") for n in range(len(block.iters)))
            ordered = tuple(variables[n] for n in _reduced_last(block))
            with suppress(ScheduleError):
                sch.transform_block_layout(label, IndexMap(variables, ordered))
    for init, label in _inits(sch.func):
        with suppress(ScheduleError):
            sch.merge_reduction(init, label)
    for label in _guarded(sch.func):
        with suppress(ScheduleError):
            sch.select_terms(label)
    for label in _updates(sch.func):
        with suppress(ScheduleError):
            sch.distinguish_updates(label, 0)
    return created


def _to_memory(sch: Schedule, labels: Sequence[Label]) -> None:
    """Move buffers from registers, which ask for loops that are unrolled, to memory."""
    for label in labels:
        for n, buffer in enumerate(buffers_in_order(find_block(sch.func, label).writes)):
            if buffer.scope == "register":
                with suppress(ScheduleError):
                    sch.set_scope(label, n, "global")


def _has_statements(stmt: Stmt) -> bool:
    return type(stmt) is Store or any(map(_has_statements, nested(stmt)))


def _cut(sch: Schedule, label: Label) -> None:
    """Cut the loops around a block, from the innermost one, where other statements share them."""
    loops = sch.get_loops(label)
    for n in reversed(range(len(loops))):
        if type(find_loop(sch.func, loops[n]).body) is Seq and succeeds(sch.fission, loops[n]):
            loops = sch.get_loops(label)


def is_plain(func: Func, block: Block) -> bool:
    """Whether a block computes something, alone in serial loops, one for each variable in order.

    Its reduce variables come last. What it reads is declared in the order of its body, by which
    steps number its inputs. A block that only prefetches computes nothing.
    """
    if not block.writes:
        return False
    if buffers_in_order(block.reads) != buffers_in_order(with_regions(block).reads):
        return False
    if _reduced_last(block) != list(range(len(block.iters))):
        return False
    loops = [s for s in path_to(func, block.label) if type(s) is For]
    return (
        len(loops) == len(block.iters)
        and all(
            s.var is i.value and s.kind is ForKind.SERIAL
            for s, i in zip(loops, block.iters, strict=True)
        )
        and (not loops or len(list(blocks_in(loops[0]))) == 1)
    )


def _reduced_last(block: Block) -> list[int]:
    """The numbers of a block's variables in their order, those that reduce after the others."""
    return sorted(range(len(block.iters)), key=lambda n: block.iters[n].kind is IterKind.REDUCE)


def _inits(func: Func) -> list[tuple[Label, Label]]:
    """Reductions that have no init, each behind the spatial block that writes its result before."""
    pairs: list[tuple[Label, Label]] = []
    blocks = in_order(func)
    for n, block in enumerate(blocks):
        if block.init is not None or not has_reduction(block):
            continue
        written = region_buffers(block.writes)
        before = [b for b in blocks[:n] if region_buffers(b.writes) & written]
        if before and not has_reduction(before[-1]):
            pairs.append((before[-1].label, block.label))
    return pairs


def _guarded(func: Func) -> list[Label]:
    """Reductions of which a condition leaves out terms."""
    return [b.label for b in in_order(func) if has_reduction(b) and type(b.body) is If]


def _updates(func: Func) -> list[Label]:
    """Spatial blocks that update what another block wrote before."""
    blocks = in_order(func)
    return [
        block.label
        for n, block in enumerate(blocks)
        if not has_reduction(block)
        and any(
            region_buffers(block.reads) & region_buffers(block.writes) & region_buffers(b.writes)
            for b in blocks[:n]
        )
    ]

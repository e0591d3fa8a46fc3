"""Runs of spatial variables that every access has side by side, taken as one variable.

    for o, y, x, c: Y[o, y, x] += X[c, y, x] * W[o, c]

      ->  for o, p, c: Y[o, p // 56, p % 56] += X[c, p // 56, p % 56] * W[o, c]

Vectors and register tiles then run on from row to row. It pays where a tile shares what does not
depend on the run, here W.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from ...schedule import Schedule
from ...schedule.find import find_block
from ...schedule.index_map import IndexMap
from ...tir.ir import Block, Const, Dim, Expr, Label, Load, Store, Var, as_expr
from ...tir.simplify import simplify
from ...tir.visit import substitute, walk
from .access_patterns import extents, inputs_of, output_of, outputs_of


def join(sch: Schedule, labels: Sequence[Label]) -> None:
    """Join runs of the variables of a contraction, and of the spatial block that reads it, if any.

    What is between the two is laid out flat. Variables of a single iteration go. Nothing is done
    where there are no runs. Raises `ScheduleError` where blocks share loops, or others read what is
    between them.
    """
    main, follow = labels[0], labels[1] if len(labels) > 1 else None
    block = find_block(sch.func, main)
    reader = None if follow is None else find_block(sch.func, follow)
    runs = _runs(block, reader)
    if not runs:
        return
    sch.transform_block_layout(main, _iterations(block, runs))
    if follow is not None and reader is not None:
        place = places(block, reader)
        reader_runs = [[place[v] for v in run] for run in runs]
        sch.transform_block_layout(follow, _iterations(reader, reader_runs))
        flatten(sch, main)


def flatten(sch: Schedule, label: Label) -> None:
    """Lay out what a block writes, internal buffers, by joined dimensions where they have some."""
    for n, out in enumerate(outputs_of(find_block(sch.func, label))):
        indices = tuple(Var(f"d{d}") for d in range(len(out.buffer.shape)))
        sizes = out.buffer.shape
        if len(out.at.dims) == len(sizes):
            continue
        flat = [
            _number([indices[d] for d in dims], [sizes[d] for d in dims])
            for dims, index in zip(out.at.dims, out.at.indices, strict=True)
            if type(index) is not Const
        ]
        sch.transform_layout(label, ("write", n), IndexMap(indices, tuple(flat)))


def _number(digits: Sequence[Var], sizes: Sequence[Dim]) -> Expr:
    """The number that digits of these sizes make."""
    number: Expr = digits[0]
    for digit, size in zip(digits[1:], sizes[1:], strict=True):
        number = number * as_expr(size) + digit
    return number


def _iterations(block: Block, runs: Sequence[Sequence[Var]]) -> IndexMap:
    """The block's iterations with each run as one, those of a single iteration left out."""
    sizes = extents(block)
    run_of = {v: run for run in runs for v in run}
    numbers: list[Expr] = []
    for i in block.iters:
        run = run_of.get(i.var, [i.var])
        if i.var is run[0] and i.extent != 1:
            numbers.append(_number(run, [sizes[v] for v in run]))
    return IndexMap(tuple(i.var for i in block.iters), tuple(numbers))


def _runs(block: Block, reader: Block | None) -> list[list[Var]]:
    """Runs of spatial variables to join, each in the order of the output's dimensions."""
    out = output_of(block)
    if out is None:
        return []
    sizes = extents(block)
    read_at = {} if reader is None else places(block, reader)
    order = sorted(out.plain, key=lambda v: out.plain[v])
    runs: list[list[Var]] = [[v] for v in order[:1]]
    for a, b in pairwise(order):
        adjacent = sizes[a] > 1 and sizes[b] > 1 and _adjoin(block, a, b)
        if adjacent and reader is not None:
            adjacent = a in read_at and b in read_at and _adjoin(reader, read_at[a], read_at[b])
        if adjacent:
            runs[-1].append(b)
        else:
            runs.append([b])
    inputs = inputs_of(block)
    return [r for r in runs if len(r) > 1 and any(r[0] not in i.used for i in inputs)]


def places(block: Block, reader: Block) -> dict[Var, Var]:
    """The variables at which `reader` reads what `block` writes, by those it is written at."""
    out = output_of(block)
    assert out is not None
    read = next((i for i in inputs_of(reader) if i.buffer is out.buffer), None)
    at = {} if read is None else {d: v for v, d in read.plain.items()}
    return {v: at[d] for v, d in out.plain.items() if d in at}


def _adjoin(block: Block, a: Var, b: Var) -> bool:
    """Whether wherever a block uses `a` or `b` they index adjacent dimensions, all of the second.

    Variables of a single iteration count as zero.
    """
    sizes = extents(block)
    zero: dict[Var, Expr] = {v: as_expr(0) for v, n in sizes.items() if n == 1}
    roots = [block.body] if block.init is None else [block.init, block.body]
    nodes = [n for root in roots for n in walk(root)]
    everywhere = Counter(n for n in nodes if type(n) is Var)
    seen: Counter[Var] = Counter()
    for n in nodes:
        if type(n) is not Load and type(n) is not Store:
            continue
        uses = Counter(v for e in n.indices for v in walk(e) if type(v) is Var)
        if uses[a] + uses[b] == 0:
            continue
        seen += uses
        indices = [simplify(substitute(e, zero)) for e in n.indices]
        fits = any(
            high is a and low is b and size == sizes[b]
            for (high, low), size in zip(pairwise(indices), n.buffer.shape[1:], strict=True)
        )
        if uses[a] != 1 or uses[b] != 1 or not fits or n.buffer.strides is not None:
            return False
    return seen[a] == everywhere[a] and seen[b] == everywhere[b]

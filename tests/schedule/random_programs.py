"""Random programs for schedules: one to four stages, driven by numbers that somebody picks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilewright.schedule.block_queries import has_reduction, nest, region_buffers
from tilewright.schedule.find import blocks_in, loops_above, loops_in, replace_stmt
from tilewright.tir import te
from tilewright.tir.ir import (
    Buffer,
    Expr,
    Func,
    Iter,
    IterKind,
    Range,
    Seq,
    Stmt,
    Store,
    Var,
    as_expr,
    seq,
)
from tilewright.tir.structure import same
from tilewright.tir.visit import stored_buffers, substitute, with_func_body

from .random_extremes import EXTREMES
from .random_stages import SIZES, STAGES, Draft, Pick, Stage, Tensor, a_size

DTYPES = (
    *("int32", "float32") * 6, *("int64",) * 3, "int8", "uint8", "int16", "uint32", "uint64",
    "float64", "float16", "bfloat16",
)  # fmt: skip


def a_program(pick: Pick) -> Func:
    """One to four stages, each reading the one before, and sometimes an earlier one too."""
    return a_program_of(pick, STAGES + EXTREMES, 1 + pick(4), update=pick(6) == 0)


def a_program_of(
    pick: Pick,
    stages: Sequence[Stage],
    count: int,
    *,
    rank: int | None = None,
    update: bool = False,
    sizes: tuple[int, ...] = SIZES,
    dtypes: Sequence[str] = DTYPES,
) -> Func:
    """`count` of the stages on an input of so many dimensions, 1 or 2 if that is left open.

    With `update` the result is one of the inputs, in its place.
    """
    draft = Draft(pick, sizes)
    dtype = dtypes[pick(len(dtypes))]
    shape = tuple(a_size(draft) for _ in range(1 + pick(2) if rank is None else rank))
    first = te.placeholder(shape, dtype, name="A")
    draft.params.append(first)
    tensors = [first]
    for k in range(count):
        made = stages[pick(len(stages))](tensors[-1], f"S{k}", draft)
        if pick(4) == 0:
            made = joined(made, tensors, f"J{k}", pick)
        if k < count - 1 and pick(5) == 0:
            draft.outputs.append(made)
        tensors.append(made)
    last: Any = tensors[-1]
    if update:
        # What earlier stages read, if one fits, or a buffer of its own.
        fitting = [
            p
            for p in draft.params
            if not isinstance(p, Var)
            and p.value_range is None  # what is stored may lie anywhere
            and (p.shape, p.dtype) == (last.shape, last.dtype)
        ]
        target = fitting[0] if fitting else te.placeholder(last.shape, last.dtype, name="IO")
        new: Any = te.compute(last.shape, lambda *i: last[i] - target[i], name="U")
        arguments = [*draft.params, *draft.outputs, *([] if fitting else [target])]
        return te.func(arguments, name="random", inplace={new: target})
    return te.func([*draft.params, *draft.outputs, last], name="random")


def joined(x: Tensor, tensors: list[Tensor], name: str, pick: Pick) -> Tensor:
    """`x` with an earlier tensor added that has at most as many dimensions, shifted within it."""
    fitting = [t for t in tensors if len(t.shape) <= len(x.shape) and 0 not in t.shape]
    if not fitting:
        return x
    other = fitting[pick(len(fitting))]

    def value(*i: Expr) -> Any:
        at = [j % n for j, n in zip(i[len(i) - len(other.shape) :], other.shape, strict=True)]
        return x[i] + other[tuple(at)]

    def whole(*i: Expr) -> Any:
        return x[i] + other[i[len(i) - len(other.shape) :]]

    fits = x.shape[len(x.shape) - len(other.shape) :] == other.shape
    return te.compute(x.shape, whole if fits else value, name=name)


def with_updates(func: Func, pick: Pick) -> Func:
    """`func` with results that are computed from one element of their own updated in place."""
    for block in list(blocks_in(func.body)):
        new, body = block.writes[0], func.body
        if has_reduction(block) or new.buffer in func.inplace:
            continue
        for old in func.allocs:
            alike = (old.shape, old.dtype) == (new.buffer.shape, new.buffer.dtype)
            users = [b for b in blocks_in(body) if old in region_buffers(b.reads)]
            reads = [r for r in block.reads if r.buffer is old]
            if not (alike and [b.label for b in users] == [block.label] and pick(4)):
                continue
            if all(map(same_range, (r for x in reads for r in x.ranges), new.ranges * len(reads))):
                allocs = tuple(b for b in func.allocs if b is not old)
                func = replace(func, body=substitute(body, {old: new.buffer}), allocs=allocs)
                break
    return func


def with_strides(func: Func, pick: Pick) -> Func:
    """`func` with other strides of some parameters; what is only read may share elements."""
    stored, new = stored_buffers(func.body), dict[Buffer, Buffer]()
    for p in func.params:
        if isinstance(p, Buffer) and p.shape and p.strides is None and pick(2):
            order = sorted(range(len(p.shape)), key=lambda _: pick(8))
            strides, step = [0] * len(order), 1 + pick(2)
            for axis in order:
                strides[axis] = step
                step = step * int(p.shape[axis]) + pick(2)  # type: ignore[arg-type]
            if p not in stored and pick(3) == 0:
                strides[pick(len(strides))] = pick(2)
            new[p] = replace(p, strides=tuple(strides))
    params = tuple([new.get(p, p) if isinstance(p, Buffer) else p for p in func.params])
    inplace = tuple([new.get(p, p) for p in func.inplace])
    return replace(func, params=params, inplace=inplace, body=substitute(func.body, new))


def same_range(a: Range, b: Range) -> bool:
    return same(as_expr(a.extent), as_expr(b.extent)) and same(as_expr(a.min), as_expr(b.min))


def with_plain_statements(func: Func, pick: Pick) -> Func:
    """`func` as people write it: most blocks as plain statements, inits before their loops."""
    body = func.body
    for top in body.stmts if isinstance(body, Seq) else (body,):
        loops = list(loops_in(top))
        block = next(blocks_in(top))
        if not isinstance(block.body, Store) or block.predicate is not None or pick(4) == 0:
            continue
        values = {i.var: i.value for i in block.iters}
        reduced = {i.value for i in block.iters if i.kind is IterKind.REDUCE}
        inner = [(s.var, s.extent) for s in loops if s.var in reduced]
        outer = [(s.var, s.extent) for s in loops if s.var not in reduced]
        stmt = nest(inner, substitute(block.body, values))
        if block.init is not None:
            stmt = seq(substitute(block.init, values), stmt)
        body = replace_stmt(body, top, nest(outer, stmt))
    return replace(func, body=body)


def with_shared_unit_loops(func: Func, pick: Pick) -> Func:
    """`func` with blocks in which several iterations are bound to one loop of one iteration.

    for i, k in 1: Y[i] += X[i, k], of `vi = i`, `vk = k`   ->   `vi = i + k`, `vk = k`

    The loop is one around the block, or a new one.
    """
    for block in list(blocks_in(func.body)):
        units = [s.var for s in loops_above(func, block.label) if s.extent == 1]
        new = Var("u")
        shared = units[pick(len(units))] if units and pick(4) else new
        iters = tuple(_bound_to(i, shared, pick) for i in block.iters)
        stmt: Stmt = replace(block, iters=iters)
        if shared is new:
            stmt = nest([(new, 1)], stmt)
        func = with_func_body(func, replace_stmt(func.body, block, stmt))
    return func


def _bound_to(i: Iter, unit: Var, pick: Pick) -> Iter:
    """An iteration that may use a loop of one iteration too."""
    if i.value is unit or pick(2):
        return i
    return replace(i, value=unit if i.extent == 1 else i.value + unit)

"""Random programs as people write them: conditions on blocks and updates, and ordered updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tilewright.base import dtypes
from tilewright.base.errors import ParseError, ScheduleError, VerifyError
from tilewright.schedule import Schedule
from tilewright.schedule.block_queries import feeding, has_reduction, with_regions
from tilewright.schedule.find import blocks_in, find_block, loops_above, replace_stmt
from tilewright.tir.ir import (
    Block,
    Buffer,
    Expr,
    Func,
    If,
    IterKind,
    Store,
    Var,
    as_expr,
    binary,
    const,
    load,
)
from tilewright.tir.ir import Op as O
from tilewright.tir.parser import parse
from tilewright.tir.printer import func_text
from tilewright.tir.structure import conjunction, conjuncts
from tilewright.tir.verify import verify
from tilewright.tir.visit import with_func_body

from .random_stages import Pick


def with_guards(func: Func, pick: Pick) -> Func:
    """`func` with conditions, or ordered updates, in some of its blocks; it may break a rule."""
    for number in range(len(list(blocks_in(func.body)))):
        if pick(3):
            func = _with_guard(func, number, pick)
    return func


def guarded(func: Func, pick: Pick) -> Func:
    """`with_guards`, but for those that break a rule."""
    for number in range(len(list(blocks_in(func.body)))):
        new = _with_guard(func, number, pick)
        func = new if is_verified(new) else func
    return func


def _with_guard(func: Func, number: int, pick: Pick) -> Func:
    """`func` as program text has it: there conditions in `T.where` may be of updates."""
    blocks = list(blocks_in(func.body))
    if number >= len(blocks):
        return func
    block = blocks[number]
    if has_reduction(block) and type(block.body) is Store and pick(3) == 0:
        new = _ordered(func, block, pick)
    else:
        new = PLACES[pick(len(PLACES))](func, block, pick)
    try:
        return parse(func_text(new))
    except ParseError:  # a condition on what is stored below it
        return func


def is_verified(func: Func) -> bool:
    try:
        verify(func)
    except VerifyError:
        return False
    return True


def _where(func: Func, block: Block, pick: Pick) -> Func:
    """A predicate of loops."""
    loops = [(s.var, s.extent) for s in loops_above(func, block.label)]
    func, condition = _condition(func, loops, pick)
    predicate = conjunction([*conjuncts(block.predicate), condition])
    return with_func_body(func, replace_stmt(func.body, block, replace(block, predicate=predicate)))


def _inside(func: Func, block: Block, pick: Pick) -> Func:
    """An `if` in the body."""
    func, condition = _condition(func, [(i.var, i.extent) for i in block.iters], pick)
    other = None if pick(3) or block.init is not None else block.body
    new = with_regions(replace(block, body=If(condition, block.body, other)))
    return with_func_body(func, replace_stmt(func.body, block, new))


def _around(func: Func, block: Block, pick: Pick) -> Func:
    """An `if` around the block."""
    loops = list(loops_above(func, block.label))
    if pick(3):  # mostly of elements: others are refused
        reduced = feeding(block, IterKind.REDUCE)
        loops = [s for s in loops if s.var not in reduced]
    func, condition = _condition(func, [(s.var, s.extent) for s in loops], pick)
    return with_func_body(func, replace_stmt(func.body, block, If(condition, block)))


def _loop_around(func: Func, block: Block, pick: Pick) -> Func:
    """An `if` in the middle of the loops around the block."""
    loops = loops_above(func, block.label)
    if not loops:
        return func
    depth = pick(len(loops))
    above = [(s.var, s.extent) for s in loops[:depth]]
    func, condition = _condition(func, above, pick)
    return with_func_body(func, replace_stmt(func.body, loops[depth], If(condition, loops[depth])))


PLACES: tuple[Callable[[Func, Block, Pick], Func], ...] = (
    _where, _where, _where, _inside, _inside, _around, _loop_around,
)  # fmt: skip
"""Where a condition may stand."""


def _condition(
    func: Func, variables: Sequence[tuple[Var, object]], pick: Pick
) -> tuple[Func, Expr]:
    """A condition on some variables, which may read a parameter of its own."""
    if not variables or pick(8) == 0:
        return func, binary(O.GE, const(pick(2)), const(0))
    at = [variables[pick(len(variables))] for _ in range(2)]
    (a, size), (b, _) = at
    number = pick(int(size) + 1) if isinstance(size, int) else 1
    kind = pick(7)
    if kind >= 4:
        return _of_data(func, [at[0]] if kind == 4 else list(variables), pick)
    conditions = (a >= number, a < number, binary(O.EQ, a % 2, const(pick(2))), a + pick(2) > b)
    return func, conditions[kind]


def _of_data(func: Func, variables: Sequence[tuple[Var, object]], pick: Pick) -> tuple[Func, Expr]:
    shape = tuple(n for _, n in variables)
    mask = Buffer(f"M{len(func.params)}", shape, ("int32", "float32", "bool")[pick(3)])  # type: ignore[arg-type]
    value = load(mask, tuple(v for v, _ in variables))
    condition = value if mask.dtype == "bool" else binary(O.GT, value, as_expr(0, mask.dtype))
    return replace(func, params=(*func.params, mask)), condition


def _ordered(func: Func, block: Block, pick: Pick) -> Func:
    """The reduction with an update whose order matters, mostly over axes that say so."""
    sch = Schedule(func)
    label = sch.get_block([b.label for b in blocks_in(func.body)].index(block.label))
    reduced = feeding(block, IterKind.REDUCE)
    first = next(v for v in sch.get_loops(label) if v in reduced)
    try:
        sch.decompose_reduction(label, first)
    except ScheduleError:  # under a condition, or with an ordered update already
        return func
    found = find_block(sch.func, label)
    store = found.body
    assert type(store) is Store
    old = load(store.buffer, store.indices)
    decayed: Expr = old // 2 if dtypes.is_integer(old.dtype) else old * 0.5
    kind = IterKind.OPAQUE if pick(4) else IterKind.REDUCE
    iters = tuple(replace(i, kind=kind) if i.kind is IterKind.REDUCE else i for i in found.iters)
    body = Store(store.buffer, store.indices, decayed + store.value)
    new = with_regions(replace(found, iters=iters, body=body))
    return with_func_body(sch.func, replace_stmt(sch.func.body, found, new))

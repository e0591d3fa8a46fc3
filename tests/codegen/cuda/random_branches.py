"""Branches and names in random programs for GPUs, which schedules make few of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import VerifyError
from tilewright.codegen.passes.blocks import blocks
from tilewright.codegen.passes.phases import bound
from tilewright.codegen.passes.rewrite import fresh, map_stmts, statements
from tilewright.tir.independence import Independence
from tilewright.tir.ir import (
    INDEX,
    Buffer,
    Expr,
    For,
    Func,
    If,
    Let,
    Op,
    Stmt,
    Var,
    binary,
    const,
    load,
)
from tilewright.tir.survey import Survey
from tilewright.tir.visit import stored_buffers, substitute, with_func_body

from ...schedule.random_stages import Pick

MOST_CHANGES = 3
_MOST_STATEMENTS = 200


def with_branches(func: Func, seed: int) -> Func:
    """`func` without blocks, some of whose statements stand in branches and below names.

    Both branches do the same. Conditions and names are of loops around them, of those over axes
    too, or of elements of inputs. Raises `BuildError` where it is not bound.
    """
    rng = np.random.default_rng([seed, 1])

    def pick(n: int) -> int:
        return int(rng.integers(n))

    func = blocks(bound(func))
    stored = stored_buffers(func)
    inputs = [
        p
        for p in func.params
        if isinstance(p, Buffer) and p not in stored and 0 not in p.shape
        and dtypes.info(p.dtype).kind in ("int", "uint", "float")
    ]  # fmt: skip
    for _ in range(1 + pick(MOST_CHANGES)):
        count = sum(1 for _ in statements(func.body))
        if count <= _MOST_STATEMENTS:
            body = _changed_at(func.body, pick(count), pick, inputs)
            new = with_func_body(func, body)
            func = new if _has_independent_loops(new) else func
    return func


def _has_independent_loops(func: Func) -> bool:
    """Not where two loops have a buffer that one had to itself, with a part for each iteration."""
    try:
        Independence(func, Survey(func)).check()
    except VerifyError:
        return False
    return True


def _changed_at(root: Stmt, number: int, pick: Pick, inputs: list[Buffer]) -> Stmt:
    """`root` with a branch or a name around the statement of this number."""
    chosen = list(statements(root))[number]
    done = False

    def visit(s: Stmt, around: tuple[Var, ...]) -> Stmt:
        nonlocal done
        if s is chosen and not done:
            done = True
            return CHANGES[pick(len(CHANGES))](s, around, pick, inputs)
        if isinstance(s, For | Let) and s.var.dtype == INDEX:
            around = (*around, s.var)
        return map_stmts(s, lambda c: visit(c, around))

    return visit(root, ())


def _branch(s: Stmt, around: tuple[Var, ...], pick: Pick, inputs: list[Buffer]) -> Stmt:
    value = _value(around, pick, inputs)
    return If(_low(value, pick), s, fresh(s))


def _named_branch(s: Stmt, around: tuple[Var, ...], pick: Pick, inputs: list[Buffer]) -> Stmt:
    value = _value(around, pick, inputs)
    name = Var("name", value.dtype)
    return Let(name, value, If(_low(name, pick), s, fresh(s)))


def _renamed(s: Stmt, around: tuple[Var, ...], pick: Pick, _: list[Buffer]) -> Stmt:
    """A loop around has another name in the statement."""
    if not around:
        return s
    var = around[pick(len(around))]
    name = Var("same", var.dtype)
    return Let(name, var, substitute(s, {var: name}))


def _low(value: Expr, pick: Pick) -> Expr:
    number = 1 + pick(4)
    limit = float(number) if dtypes.is_float(value.dtype) else number
    return binary(Op.LT, value, const(limit, value.dtype))


def _value(around: tuple[Var, ...], pick: Pick, inputs: list[Buffer]) -> Expr:
    """A number that some threads may have another value of than others."""
    if (inputs and not pick(4)) or not around:
        if not inputs:
            return const(pick(3))
        b = inputs[pick(len(inputs))]
        return load(b, tuple(const(0) for _ in b.shape))
    value: Expr = around[pick(len(around))]
    if not pick(3):
        value = value + around[pick(len(around))]
    return value % (2 + pick(4)) if pick(2) else value


Change = Callable[[Stmt, tuple[Var, ...], Pick, list[Buffer]], Stmt]
CHANGES: tuple[Change, ...] = (_branch, _branch, _named_branch, _renamed)

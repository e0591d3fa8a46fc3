"""Tensorization: `blockize`, `tensorize`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as _replace
from math import gcd

from ...base.errors import similar
from ...tir.instruction import KEY
from ...tir.instruction_set import find_instruction, instruction_names
from ...tir.ir import (
    Binary,
    Block,
    Dim,
    Expr,
    For,
    ForKind,
    Func,
    Iter,
    IterKind,
    Label,
    Op,
    Stmt,
    Var,
    const,
)
from ...tir.piecewise import linear
from ...tir.polynomial import Ranges
from ...tir.simplify import Simplifier, difference
from ...tir.structure import conjunction, conjuncts
from ...tir.visit import substitute
from ..block_queries import (
    feeding,
    free_vars,
    loop_ranges,
    nest_like,
    require_not_vectorized,
    with_regions,
)
from ..find import find_block, find_path, loop_path, path_to, rebuild
from ..places import with_indices
from ..primitive import primitive
from ..require import certain, require, require_some
from ..tensorizable import instruction_of, operands_of, require_contiguous
from .reduction import sole_block


@primitive
def blockize(fn: Func, loop: Var) -> tuple[Func, Label]:
    """Turn a loop and everything below it into one block; later steps see the tile as a unit.

        for i_0 in 4:                           for i_0 in 4:
          for i_1 in 4:                           vi = i_0
            vi = i_0 * 4 + i_1             ->     for i_1 in 4: B[vi * 4 + i_1] = A[vi * 4 + i_1]
            B[vi] = A[vi]

    The loop must be around one block, perfectly nested. The tile's loops must sweep whole, aligned
    parts of the block's iterations, of known sizes. Returns the block's label, which stays the
    same.
    """
    path, outermost = loop_path(fn, loop)
    block = sole_block(outermost)
    inner = [s for s in find_path(outermost, block.label) or () if type(s) is For]
    _require_loops(path, inner, block)
    every = [s for s in (*path[:-1], *inner) if type(s) is For]
    s = Simplifier(loop_ranges(every))
    sizes = {f.var: f.extent for f in inner}
    fed: set[Var] = set()
    iters: list[Iter] = []
    values: dict[Var, Expr] = {}
    for i in block.iters:
        used = free_vars(i.value) & sizes.keys()
        require(
            not used & fed,
            "loop {0} is part of several iterations of block {1}",
            lambda u=used & fed: ", ".join(sorted(v.name for v in u)),
            block.label,
        )
        fed |= used
        outer, values[i.var] = _divided(i, sizes, block, s)
        if outer is not None:
            iters.append(outer)
    for f in inner:
        require(
            f.var in fed or certain(f.extent == 1),
            "loop {0} is part of no iteration of block {1}",
            f.var,
            block.label.name,
        )
    conditions = [_outer_condition(c, sizes, block, s) for c in conjuncts(block.predicate)]
    init: Stmt | None = None
    if block.init is not None:
        spatial = feeding(block, IterKind.SPATIAL)
        renamed = {f.var: Var(f"{f.var.name}_init") for f in inner if f.var in spatial}
        init = substitute(_written(block.init, values, iters, s.ranges), renamed)
        init = nest_like([f for f in inner if f.var in renamed], init, renamed)
    body = nest_like(inner, _written(block.body, values, iters, s.ranges))
    unit = _replace(
        block, iters=tuple(iters), body=body, init=init, predicate=conjunction(conditions)
    )
    return rebuild(fn, path, with_regions(unit)), block.label


def _written(stmt: Stmt, values: Mapping[Var, Expr], iters: list[Iter], ranges: Ranges) -> Stmt:
    """`stmt` with the iteration variables at `values`, and new quotients simplified."""
    s = Simplifier({**ranges, **{i.var: (0, i.extent - 1) for i in iters}})
    written: Stmt = with_indices(substitute(stmt, values), s)
    return written


def _require_loops(path: tuple[Stmt, ...], inner: list[For], block: Block) -> None:
    for f in inner:
        require(
            f.kind in (ForKind.SERIAL, ForKind.UNROLL, ForKind.VECTOR),
            "loop {0} is {1}; a unit is run by one thread",
            f.var,
            f.kind.value,
        )
        require(
            isinstance(f.extent, int),
            "the extent of loop {0} is {1}; the size of a unit must be known",
            f.var,
            lambda f=f: repr(f.extent),
            hint="split by a number instead of a sampled one",
        )
        require(f.extent != 0, "loop {0} runs nothing", f.var)
    require_not_vectorized(path, block.label, "make the loop around it serial first")
    require(
        all(i.kind is not IterKind.OPAQUE for i in block.iters),
        "block {0} has opaque iteration variables, which must run in order",
        block.label,
    )


def _divided(
    i: Iter, sizes: Mapping[Var, Dim], block: Block, s: Simplifier
) -> tuple[Iter | None, Expr]:
    """The iteration over whole tiles, if there are several, and the value of `i` within a tile."""
    parts = linear(i.value, sizes, s.ranges)
    known = parts is not None and all(isinstance(c, int) for c in parts.coefficients.values())
    parts = require_some(
        parts if known else None,
        "iteration {0} of block {1} is {2}, no sum of multiples of the tile's loops",
        i.var.name,
        block.label,
        lambda: repr(i.value),
    )
    if not parts.coefficients:
        return i, i.var
    span = 1
    inside: Expr = const(0)
    for v, c in sorted(parts.coefficients.items(), key=lambda pair: int(pair[1])):  # type: ignore[arg-type]
        size = sizes[v]
        assert isinstance(size, int)
        require(
            c == span or size == 1,
            "iteration {0} of block {1} advances by {2} with loop {3}, over {4} of the other loops",
            i.var.name,
            block.label,
            c,
            v.name,
            span,
            hint="the tile's loops must sweep consecutive values",
        )
        inside = inside + v * c
        span *= size
    first = s.poly(parts.constant)
    require(
        all(c % span == 0 for c in first.values()),
        "tiles of {0} values of iteration {1} of block {2} start at {3}, no multiple of that",
        span,
        i.var.name,
        block.label,
        lambda: repr(parts.constant),
    )
    require(
        i.extent % span == 0,
        "a tile of {0} does not divide the {1} values of iteration {2} of block {3}",
        span,
        i.extent,
        i.var.name,
        block.label.name,
        at=block.label,
    )
    if not first and i.kind is IterKind.SPATIAL and certain(i.extent == span):
        return None, inside
    value = s.build({k: c // span for k, c in first.items()})
    outer = Var(i.var.name)
    return Iter(outer, i.extent // span, i.kind, value), outer * span + inside


def _outer_condition(c: Expr, sizes: Mapping[Var, Dim], block: Block, s: Simplifier) -> Expr:
    """A condition that holds for all of a tile or for nothing of it, in terms of the outer loops.

    `a + r < 0` is `a < 0` where `a` moves in steps that are larger than what `r` can reach.
    """
    if not free_vars(c) & sizes.keys():
        return c
    whole = s(substitute(c, {v: const(0) for v in sizes}))
    parts = None
    if type(c) is Binary and c.op in (Op.LT, Op.GE) and difference(s, c) is not None:
        parts = linear(c.a - c.b, sizes, s.ranges)
    reach = step = 0
    if parts is not None:
        step = gcd(*s.poly(parts.constant).values())
        for v, k in parts.coefficients.items():
            n = sizes[v]
            assert isinstance(n, int)
            reach += k * (n - 1) if isinstance(k, int) and k >= 0 else step
    require(
        reach < step,
        "block {0} runs only for a part of some tiles: where {1}",
        block.label,
        lambda: repr(c),
        hint="choose tiles that divide the extents",
    )
    return whole


@primitive
def tensorize(fn: Func, target: Var | Label, intrin: str) -> tuple[Func, None]:
    """Run a tile as an instruction. The tile is a loop with everything below it, or a block.

        tensorize(j_1, "dot_16x4_vnni"):
        for j_1 in 16: for k_1 in 4: C[..] += A[..] * B[..]   ->   C[..] += dot_16x4_vnni(A, B)

    The tile's loops and arithmetic must match the instruction's semantics, without an init. A block
    comes from `blockize`. Each vector operand must be contiguous in memory, as must each 64-byte
    row of a matrix. The program keeps the block's meaning; an annotation makes lowering emit the
    instruction. Instructions:

    - `dot_16x4_vnni`, `dot_8x4_vnni`, `dot_4x4_vnni`: uint8 times int8, added to int32
    - by products of pairs of 16-bit integers, for 16 columns `dot_16x4_u8s8`, `dot_16x4_s8u8`,
      `dot_16x4_u8u8`, `dot_16x4_s8s8` and `dot_16x2_s16s16`, for 8 `dot_8x4_u8s8` and so on
    - `dot_16x2_bf16`, `dot_8x2_bf16`, `dot_4x2_bf16`, `outer_4x16_fma`, `outer_4x8_fma`
    - tiles of 16 rows and columns and 64 steps: `matmul_u8s8_amx`, `matmul_s8u8_amx`,
      `matmul_s8s8_amx`, `matmul_u8u8_amx`; of 32 steps: `matmul_bf16_amx`
    - for the init of such a tile `zero_int32_amx`, `zero_float32_amx`, and from registers to memory
      `copy_int32_amx`, `copy_float32_amx`

    `tw.register_intrin` declares others.
    """
    known = require_some(
        find_instruction(intrin),
        "there is no instruction {0!r}; there are {1}",
        intrin,
        lambda: ", ".join(instruction_names()),
        at=target,
        hint=lambda: similar(intrin, instruction_names()),
        found=intrin,
        alternatives=instruction_names,
    )
    if isinstance(target, Label):
        label = target
    else:
        fn, label = blockize(fn, target)
    block = find_block(fn, label)
    old = instruction_of(block)
    require(
        old is None, "block {0} runs as instruction {1} already", label.name, old, at=block.label
    )
    require_contiguous(block, known, operands_of(fn, block, known))
    notes = tuple(sorted((*block.annotations, (KEY, intrin)), key=lambda pair: pair[0]))
    return rebuild(fn, path_to(fn, label), _replace(block, annotations=notes)), None

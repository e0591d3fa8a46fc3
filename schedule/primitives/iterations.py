"""Iteration variables of a block: `reorder_block_iter_var`, `transform_block_layout`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as _replace
from typing import Any

from ...base.errors import ScheduleError
from ...tir.ir import (
    INDEX,
    Binary,
    Block,
    Expr,
    For,
    Func,
    Iter,
    IterKind,
    Label,
    Load,
    Stmt,
    Var,
)
from ...tir.reductions import orders_visits
from ...tir.simplify import Simplifier
from ...tir.visit import rewrite_children, walk
from ..block_queries import free_vars, nest, with_regions
from ..digit_sums import Bijection, bijection, solve
from ..find import find_block, last_block, path_to, rebuild, replace
from ..index_map import IndexMap
from ..loop_names import mapped
from ..primitive import primitive
from ..rebind import rebound_value
from ..require import certain, require, require_number
from .loops import require_depth, require_serial, require_unmarked


@primitive
def reorder_block_iter_var(fn: Func, block: Label, new_order: Sequence[int]) -> tuple[Func, None]:
    """Reorder the iteration variables of a block.

        reorder_block_iter_var(block, (1, 0)):
        vi, vj = axis.remap("SS", [i, j])   ->   vj, vi = axis.remap("SS", [j, i])

    `new_order` lists their current positions. The order determines how `compute_at` and
    `reverse_compute_at` nest the loops that they create for the block, and the order of the indices
    of `transform_block_layout`. Existing loops do not change.
    """
    old = find_block(fn, block)
    require(
        sorted(new_order) == list(range(len(old.iters))),
        "{0} is not an order of the {1} iteration variables of block {2}; expected each of "
        "0 to {3} once",
        lambda: list(new_order),
        len(old.iters),
        block,
        len(old.iters) - 1,
    )
    iters = tuple(old.iters[k] for k in new_order)
    return replace(fn, old, _replace(old, iters=iters)), None


@primitive
def transform_block_layout(
    fn: Func, block: Label, index_map: IndexMap | Callable[..., Any]
) -> tuple[Func, tuple[Var, ...]]:
    """Give a block new iteration variables by an index map, and a new loop nest over them.

        transform_block_layout(block, lambda i, j: (i * 8 + j,)):
        for i in 4: for j in 8: B[i, j] = ..   ->   for i_j in 32: B[i_j // 8, i_j % 8] = ..

    The map takes the block's iteration variables and must be a bijection onto the new ones: it
    fuses indices (i * 8 + j), splits them (i // 4, i % 4) and permutes them. No result may mix
    spatial and reduce indices. The loops right above the block must run it once for each value of
    its iteration variables, without guards. The identity map turns a nest that was split and fused
    by hand into plain loops again. Returns the new loops.
    """
    path = path_to(fn, block)
    old = last_block(path)
    mapping = IndexMap.of(index_map)
    require(
        len(mapping.inputs) == len(old.iters),
        "the map takes {0} indices, block {1} has {2} iteration variables",
        len(mapping.inputs),
        block,
        len(old.iters),
    )
    require(
        not orders_visits(old),
        "the order of the reduce iterations of block {0} decides among equal values",
        block,
        hint="rfactor numbers its visits, which may then run in any order",
    )
    extents = _extents(old)
    loops = _own_loops(path, old)
    require_depth(len(path) - len(loops) + len(mapping.outputs), block)
    sizes = dict(zip(mapping.inputs, extents, strict=True))
    try:
        new = bijection(mapping, sizes)
    except ScheduleError as refusal:
        refusal.data.setdefault("at", block)
        raise
    kinds = _kinds(old, mapping, new)
    names = mapped(old, [_inputs_of(mapping, e) for e in mapping.outputs])
    # Those that have a number have it as ever: `v0` of the loop `ax0`.
    variables = tuple(Var(f"v{name.removeprefix('ax')}") for name in names)
    inverse = solve(mapping.outputs, sizes, variables).values
    values: dict[Var, Expr] = {
        i.var: inverse[v] for i, v in zip(old.iters, mapping.inputs, strict=True)
    }
    axes = tuple(map(Var, names))
    parts = zip(variables, new.extents, kinds, axes, strict=True)
    inside = _replace(old, iters=())
    ranges = {v: (0, n - 1) for v, n in zip(variables, new.extents, strict=True)}
    made = _replace(
        _rebound(inside, values, Simplifier(ranges)),
        iters=tuple(Iter(v, n, kind, axis) for v, n, kind, axis in parts),
    )
    stmt = nest(list(zip(axes, new.extents, strict=True)), with_regions(made))
    return rebuild(fn, path[: len(path) - len(loops)], stmt), axes


def _inputs_of(mapping: IndexMap, output: Expr) -> list[int]:
    """The numbers of the indices that a result of a map is of."""
    variables = {v for v in walk(output) if type(v) is Var}
    return [n for n, v in enumerate(mapping.inputs) if v in variables]


def _rebound(n: Any, values: Mapping[Var, Expr], s: Simplifier) -> Any:
    """`n` with variables replaced, and new quotients and remainders simplified.

    Indices of elements are, also in what is no index: a value may be of the dtype of indices.
    """

    def inside(child: Any) -> Any:
        return _rebound(child, values, s)

    def with_elements(e: Any) -> Any:
        return rewrite_children(e, inside if type(e) is Load else with_elements)

    if type(n) is Var or (type(n) is Binary and n.dtype == INDEX):
        return rebound_value(with_elements(n), values, s)
    return rewrite_children(n, inside)


def _extents(block: Block) -> list[int]:
    found = []
    for i in block.iters:
        extent = require_number(
            i.extent,
            "the iteration variable {0} of block {1} has the open extent {2}; expected a number",
            i.var.name,
            block.label,
            i.extent,
            hint="do this step before splits by sampled factors, or take the decisions first",
        )
        require(
            extent >= 1,
            "the iteration variable {0} of block {1} has no values",
            i.var.name,
            block.label,
        )
        require(
            i.kind is not IterKind.OPAQUE,
            "the iteration variable {0} of block {1} is opaque: its iterations run in order",
            i.var.name,
            block.label,
        )
        found.append(extent)
    return found


def _own_loops(path: Sequence[Stmt], block: Block) -> list[For]:
    """The loops right above a block that its iteration variables are bound to, one to one."""
    require(
        block.predicate is None,
        "block {0} runs only where {1}",
        block.label,
        lambda: repr(block.predicate),
        hint="do this step before splits that do not divide",
    )
    around = {s.var for s in path if type(s) is For}
    used = {v for i in block.iters for v in free_vars(i.value) & around}
    loops: list[For] = []
    missing = set(used)
    for s in reversed(path[:-1]):
        if not missing or type(s) is not For or (s.var not in used and not certain(s.extent == 1)):
            break
        loops.append(s)
        missing.discard(s.var)
    require(
        not missing,
        "loops {0} of block {1} are not right above it",
        lambda: ", ".join(sorted(v.name for v in missing)),
        block.label,
        hint="fission loops that other blocks are in, and reorder what is between",
    )
    for s in loops:
        require_serial(s, "transform the block")
        require_unmarked(s)
    _require_one_to_one(loops, block)
    return loops


def _require_one_to_one(loops: Sequence[For], block: Block) -> None:
    """Require that `loops` run a block once for each value of its iteration variables."""
    sizes: dict[Var, int] = {}
    for s in loops:
        sizes[s.var] = require_number(
            s.extent,
            "loop {0} of block {1} has the open extent {2}; expected a number",
            s.var,
            block.label.name,
            s.extent,
            hint="do this step before splits by sampled factors, or take the decisions first",
        )
    moving = IndexMap(tuple(sizes), tuple(i.value for i in block.iters))
    try:
        reached = bijection(moving, sizes).extents
    except ScheduleError as refusal:
        refusal.data.setdefault("at", block.label)
        raise
    for i, size in zip(block.iters, reached, strict=True):
        require(
            size == i.extent,
            "the loops of block {0} give {1} {2} values; expected {3}",
            block.label,
            i.var.name,
            size,
            i.extent,
        )


def _kinds(block: Block, mapping: IndexMap, new: Bijection) -> list[IterKind]:
    """The kinds of the new iteration variables."""
    kind_of = {v: i.kind for v, i in zip(mapping.inputs, block.iters, strict=True)}
    kinds = []
    for e, sources in zip(mapping.outputs, new.sources, strict=True):
        found = {kind_of[v] for v in sources}
        require(
            len(found) <= 1,
            "{0} mixes spatial and reduction indices of block {1}",
            lambda e=e: repr(e),
            block.label,
        )
        kinds.append(next(iter(found), IterKind.SPATIAL))
    return kinds

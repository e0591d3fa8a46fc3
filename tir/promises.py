"""Verify that the spatial iterations of a block are independent of each other.

Two points of a block's domain that differ in a spatial iteration variable must touch different
elements of the buffers that it stores to, where its predicate lets them run. Steps reorder such
iterations freely, so they rely on it. Internal buffers are exempt where the block reads them, if at
all, at what it stores: stages of pipelines store to the same elements again for later iterations.
So are blocks whose predicate depends on loops that are not their variables; steps create those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from functools import partial

from ..base.errors import VerifyError
from .bounds import bound
from .conditions import conjunction, conjuncts
from .independence import Independence
from .infer import region_key
from .ir import Block, Buffer, Expr, For, ForKind, Func, Iter, IterKind, Stmt, Store, Var
from .polynomial import Ranges
from .survey import Survey
from .visit import substitute
from .windows import variables


def check_promises(func: Func, survey: Survey) -> None:
    """Raise `VerifyError` if spatial iterations of a block may depend on each other."""
    parameters = {p for p in func.params if isinstance(p, Buffer)}
    for block, _ in survey.blocks:
        places = set(map(region_key, block.writes))
        elsewhere = {r.buffer for r in block.reads if region_key(r) not in places}
        stored = {r.buffer for r in block.writes} & (parameters | elsewhere)
        if stored and not _at_its_iteration(block):
            _check(block, stored, survey.ranges)


def _at_its_iteration(block: Block) -> bool:
    """Whether a block only stores at its spatial iteration variables, and reads there alone.

    This is cheap to see and decides nearly all blocks.
    """
    store = block.body
    if type(store) is not Store:
        return False
    places = {e for e in store.indices if type(e) is Var}
    return all(
        i.var in places for i in block.iters if i.kind is IterKind.SPATIAL and i.extent != 1
    ) and all(
        r.buffer is not store.buffer
        or all(x.extent == 1 and x.min is e for x, e in zip(r.ranges, store.indices, strict=True))
        for r in block.reads
    )


def _check(block: Block, stored: Set[Buffer], ranges: Ranges) -> None:
    """Ask it of loops that visit the domain, those for spatial variables outermost.

    An example is of iterations that run, if there is one: `ranges` are those of the loops.
    """
    spatial = [i for i in block.iters if i.kind is IterKind.SPATIAL]
    others = [i for i in block.iters if i.kind is not IterKind.SPATIAL]
    loops = {i.var: Var(i.var.name) for i in block.iters}
    iters = tuple(Iter(i.var, i.extent, i.kind, loops[i.var]) for i in block.iters)
    # What a predicate says of other loops than the block's variables is not known of its domain.
    bound = {i.value: loops[i.var] for i in block.iters if type(i.value) is Var}
    where = block.predicate
    if where is not None:
        if not variables(where) <= bound.keys():
            return
        where = substitute(where, bound)
    order = (*spatial, *others)

    def asked_where(predicate: Expr | None) -> Independence:
        nest: Stmt = replace(block, iters=iters, predicate=predicate)
        for i in reversed(order):
            kind = ForKind.PARALLEL if i.kind is IterKind.SPATIAL else ForKind.SERIAL
            nest = For(loops[i.var], i.extent, nest, kind)
        domain = Func("", tuple(sorted(stored, key=lambda b: b.name)), (), nest)
        return Independence(domain, Survey(domain))

    def example(loop: Var) -> str | None:
        running = conjunction([*conjuncts(where), *_visited(block, loops, ranges)])
        for predicate in (running, where):
            other = asked_where(predicate)
            (around,) = [(s, p.loops) for s, p in other.survey.parallel if s.var is loop]
            found = other.shared(*around)
            told = None if found is None else other.example(*around, found[1])
            if told is not None:
                return told
        return None

    asked = asked_where(where)
    for loop, place in asked.survey.parallel:
        found = asked.shared(loop, place.loops)
        if found is not None:
            raise VerifyError(
                "block {0}: its iterations for different {1}, which is spatial, are not shown to "
                "touch different elements of {2}, which is stored to",
                block.label.name, loop.var.name, found[0].name,
                example=partial(example, loop.var),
                hint="declare it by T.axis.reduce where the block sums up over it, by "
                "T.axis.opaque where its iterations have to run in order",
            )  # fmt: skip


def _visited(block: Block, loops: Mapping[Var, Var], ranges: Ranges) -> Iterator[Expr]:
    """Conditions on `loops` over the domain that hold where a binding takes its values."""
    for i in block.iters:
        low, high = bound(i.value, ranges)
        if isinstance(low, int) and low > 0:
            yield loops[i.var] >= low
        if isinstance(high, int) and isinstance(i.extent, int) and high < i.extent - 1:
            yield loops[i.var] <= high

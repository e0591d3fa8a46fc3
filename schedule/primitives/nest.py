"""Merging and splitting loop nests: `merge`, `fission`, `add_unit_loop`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ...base.errors import ScheduleError
from ...tir.ir import Expr, For, ForKind, Func, Label, Seq, Stmt, Var, seq
from ...tir.visit import with_body
from ..available import require_still_concurrent
from ..block_queries import loop_ranges, nest_like, require_not_vectorized
from ..find import find_path, last_loop, loop_path, path_to, rebuild
from ..loop_dependence import require_interleaving
from ..primitive import primitive
from ..rebind import rebound
from ..require import require, require_some
from .loops import height, require_depth


@primitive
def merge(fn: Func, *loops: Var) -> tuple[Func, Var]:
    """Merge loops of consecutive nests into one loop that runs their bodies one after the other.

        for i in 16: B[i] = A[i] * 2         for i in 16:
        for j in 16: C[j] = B[j] + 1    ->     B[i] = A[i] * 2
                                               C[i] = B[i] + 1

    The loops must be equally deep in adjacent nests, with nothing but loops around them there;
    those are merged too. All must have the same extents and the same kind. What an iteration of a
    later nest touches must be complete after the same iteration of the earlier ones. The loops of
    the first nest keep their variables. Returns the innermost merged loop.
    """
    require(len(loops) >= 2, "merge takes at least two loops, found {0}", len(loops))
    require(
        len(set(loops)) == len(loops),
        "a loop is named twice: {0}",
        lambda: ", ".join(v.name for v in loops),
    )
    paths = [path_to(fn, v) for v in loops]
    level = _level_of_parting(paths, loops)
    parent = paths[0][level - 1]
    assert isinstance(parent, Seq)
    chains = [_chain_to(path[level:]) for path in paths]
    first = chains[0]
    for chain in chains[1:]:
        _require_alike(first, chain)
    start = _require_consecutive(parent, [path[level] for path in paths], loops)
    above = [s for s in paths[0][:level] if type(s) is For]
    ranges = loop_ranges((*above, *first))
    bodies = [first[-1].body]
    for chain in chains[1:]:
        values: dict[Var, Expr] = {s.var: f.var for s, f in zip(chain, first, strict=True)}
        bodies.append(rebound(chain[-1].body, values, None, dict(ranges)))
    require_interleaving(above, first, bodies, "merge the loops")
    merged = nest_like(first, seq(*bodies))
    stmts = (*parent.stmts[:start], merged, *parent.stmts[start + len(loops) :])
    fn = rebuild(fn, paths[0][:level], seq(*stmts))
    require_still_concurrent(fn, [first[-1].var])
    return fn, first[-1].var


@primitive
def fission(
    fn: Func, loop: Var, after: Sequence[Label] | None = None
) -> tuple[Func, tuple[Var, ...]]:
    """Split a loop over several statements into one loop per statement.

        for i in 16:                         for i in 16: B[i] = A[i] * 2
          B[i] = A[i] * 2               ->   for i_1 in 16: C[i_1] = B[i_1] + 1
          C[i] = B[i] + 1

    With `after`, the loop is cut only behind the statements that contain these blocks. What an
    iteration of a later loop touches must not be touched by later iterations of an earlier one.
    Returns the loops; the first keeps its variable.
    """
    path, old = loop_path(fn, loop)
    _require_plain(old, "fission")
    body = old.body
    if type(body) is not Seq:
        raise ScheduleError(
            "loop {0} is around one statement; there is nothing to cut between",
            loop.name,
            at=loop,
            hint="fission the loop that is directly around several statements first",
        )
    parts = _cut(body, loop, after)
    above = [s for s in path[:-1] if type(s) is For]
    require_interleaving(above, [old], parts, "cut the loop")
    ranges = loop_ranges(above)
    new = [with_body(old, parts[0])]
    for k, part in enumerate(parts[1:], 1):
        var = Var(f"{loop.name}_{k}")
        inside = {**ranges, var: (0, old.extent - 1)}
        copy = rebound(part, {loop: var}, None, inside)
        new.append(with_body(old, copy, var))
    fn = rebuild(fn, path, seq(*new))
    variables = tuple([s.var for s in new])
    require_still_concurrent(fn, variables)
    return fn, variables


@primitive
def add_unit_loop(fn: Func, block_or_loop: Var | Label) -> tuple[Func, Var]:
    """Put a loop of one iteration around a block or loop.

        for i in 16: A[i]   ->   for u in 1: for i in 16: A[i]

    Use it where a later step needs a loop: to `bind` a block without loops, or as a location for
    `compute_at`.
    """
    path = path_to(fn, block_or_loop)
    require_not_vectorized(path, block_or_loop, "add it before the other loop is vectorized")
    require_depth(len(path) + height(path[-1]), block_or_loop)
    unit = Var("u")
    return rebuild(fn, path, For(unit, 1, path[-1])), unit


def _level_of_parting(paths: Sequence[tuple[Stmt, ...]], loops: Sequence[Var]) -> int:
    """The index in `paths` from which on they differ; a sequence comes right before."""
    level = 0
    for stmts in zip(*paths, strict=False):
        if any(s is not stmts[0] for s in stmts):
            break
        level += 1
    for v, path in zip(loops, paths, strict=True):
        require(
            len(path) > level,
            "loop {0} is around another one of the loops to merge",
            v,
            hint="fuse makes one loop of nested ones",
        )
    firsts = [path[level] for path in paths]
    for k, v in enumerate(loops):
        require(
            all(firsts[k] is not s for s in firsts[:k]),
            "loop {0} is in the same nest as another one of the loops to merge",
            v,
            hint="merge takes one loop of each nest",
        )
    return level


def _chain_to(path: Sequence[Stmt]) -> list[For]:
    """The loops of a nest down to the one to merge, each directly in the one before."""
    chain: list[For] = []
    for s in path:
        if type(s) is not For:
            loop = last_loop(path)
            raise ScheduleError(
                "there are other statements around loop {0} in its nest; nests are merged from "
                "their outermost loops on",
                loop.var.name,
                at=loop.var,
            )
        _require_plain(s, "merge")
        chain.append(s)
    return chain


def _require_plain(loop: For, what: str) -> None:
    require(
        loop.kind is not ForKind.THREAD,
        "loop {0} is bound to a thread axis; {1} it before that",
        loop.var,
        what,
    )
    require(
        not loop.annotations,
        "loop {0} is annotated with {1}, which is about this loop alone",
        loop.var,
        lambda: ", ".join(k for k, _ in loop.annotations),
        hint="unannotate it first",
    )


def _require_alike(first: Sequence[For], other: Sequence[For]) -> None:
    """Require that two chains have the same depth, extents and kinds."""
    require(
        len(first) == len(other),
        "loop {0} is {1} deep in its nest, loop {2} is {3} deep",
        first[-1].var,
        len(first),
        other[-1].var,
        len(other),
        at=other[-1].var,
    )
    for a, b in zip(first, other, strict=True):
        require(
            a.extent == b.extent,
            "loop {0} has {1} iterations, loop {2} has {3}",
            a.var,
            a.extent,
            b.var,
            b.extent,
            at=b.var,
            hint="split, or cut with loop_partition, what is longer",
        )
        require(
            a.kind is b.kind,
            "loop {0} is {1} and loop {2} is {3}; loops to merge must be of one kind",
            a.var,
            a.kind.value,
            b.var,
            b.kind.value,
            at=b.var,
        )


def _require_consecutive(parent: Seq, nests: Sequence[Stmt], loops: Sequence[Var]) -> int:
    """The position of the first of `nests`, which must follow each other in `parent`."""
    places = [next(n for n, s in enumerate(parent.stmts) if s is nest) for nest in nests]
    for k in range(1, len(places)):
        require(
            places[k] == places[0] + k,
            "the nest of loop {0} does not directly follow the one of loop {1}",
            loops[k],
            loops[k - 1],
            hint="name the loops in program order; compute_at moves what is between them",
        )
    return places[0]


def _cut(body: Seq, loop: Var, after: Sequence[Label] | None) -> list[Stmt]:
    """The parts of a loop's body, cut behind the statements with the blocks `after`."""
    if after is None:
        return list(body.stmts)
    ends = set()
    for label in after:
        place = require_some(
            next((n for n, s in enumerate(body.stmts) if find_path(s, label) is not None), None),
            "block {0} is not inside loop {1}",
            label,
            loop.name,
        )
        require(
            place < len(body.stmts) - 1,
            "block {0} is in the last statement of loop {1}; nothing follows to be cut off",
            label,
            loop.name,
        )
        ends.add(place + 1)
    require(bool(ends), "fission takes at least one block to cut behind", at=loop)
    edges = [0, *sorted(ends), len(body.stmts)]
    return [seq(*body.stmts[a:b]) for a, b in pairwise(edges)]

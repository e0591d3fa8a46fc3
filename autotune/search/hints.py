"""Hints: tile sizes that were fast elsewhere, re-fitted to the sketches of a program.

A hint knows the loops of a program and how they were tiled, not a schedule. It matches a program
with a block of the same loops. Of the rows of all sketches those count whose tiles of that block
come nearest, and of equally near ones that which the cost model prefers. It is a candidate like any
other: what it is worth is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from ...schedule import Trace
from ...schedule.find import blocks_in, nests_in
from ...tir.evaluate import Columns
from ...tir.ir import Block, Buffer, Dim, Expr, For, Func, Iter, IterKind, Var, as_expr
from ...tir.visit import substitute
from ..model.cost_model import Floats
from ..records import schedule_record
from .candidates import Rows, Rowspace
from .search import Search

MOST = 6
"""Candidates by hints of a session: with the two that it always has, they are the first batch."""
DRAWN = 2048
"""Rows of a sketch that are looked at first."""
REFINED, ROUNDS, PARENTS, CHILDREN = 4, 2, 64, 1024
"""So many sketches are looked at closely: children of the nearest rows are, in so many rounds."""
OUTER_WEIGHT = 0.5
"""Of tiles in caches and of reductions, beside that of the tile in registers."""
NEAR = 0.25
"""Octaves within which rows are equally near."""


class Axis(NamedTuple):
    """A loop of a hint: its extent and the sizes of its tiles, the smallest first.

    There are no sizes of a loop about which nothing is known. `reduced` says whether it is one of a
    reduction, `None` if that is not known.
    """

    extent: int
    tiles: tuple[int, ...]
    reduced: bool | None


Nest: TypeAlias = tuple[Axis, ...]


class Hint(NamedTuple):
    """A record of another tuner: the nests that it tiled, one of which is the program's.

    `dtypes` are those of its tensors that are known.
    """

    file: str
    line: int
    seconds: float
    nests: tuple[Nest, ...]
    dtypes: frozenset[str]


class HintCandidate(NamedTuple):
    """The candidate of a hint. `exact` says whether it has the tile sizes of the hint."""

    hint: Hint
    trace: Trace
    schedule: str
    exact: bool


def matching(hints: Iterable[Hint], func: Func) -> list[tuple[Hint, Nest]]:
    """The hints for a program, each with its nest, those that were fastest first."""
    blocks = list(blocks_in(func.body))
    dtypes = {p.dtype for p in func.params if isinstance(p, Buffer)}
    found = []
    for hint in sorted(hints, key=lambda h: h.seconds):
        nests = (n for n in hint.nests if any(_assigned(n, block) for block in blocks))
        nest = next(nests, None)
        if nest is not None and hint.dtypes <= dtypes:
            found.append((hint, nest))
    return found


def hint_candidates(search: Search, matched: Sequence[tuple[Hint, Nest]]) -> list[HintCandidate]:
    """The candidates that come nearest to matching hints, at most `MOST`, each once."""
    found: dict[str, HintCandidate] = {}
    tilings = [_Tilings(search, n) for n in range(len(search.sketches))]
    tried = set[Nest]()
    for hint, nest in matched:
        if len(found) == MOST:
            break
        if nest in tried:
            continue
        tried.add(nest)
        candidate = _nearest(search, tilings, hint, nest)
        if candidate is not None:
            found.setdefault(candidate.schedule, candidate)
    return list(found.values())


def _nearest(
    search: Search, tilings: Sequence[_Tilings], hint: Hint, nest: Nest
) -> HintCandidate | None:
    near = [(*tiling.nearest(nest), tiling) for tiling in tilings]
    near = sorted((found for found in near if len(found[1])), key=lambda found: found[0][0])
    for n, (apart, rows, tiling) in enumerate(near[:REFINED]):
        near[n] = (*tiling.refined(nest, apart, rows), tiling)
    least = min((apart[0] for apart, *_ in near), default=0.0)
    best: tuple[float, int, tuple[int, ...], float] | None = None
    for apart, rows, tiling in near:
        among = apart <= least + NEAR
        if among.any():
            scores = search.scores(tiling.sketch, rows[among])
            place = int(np.argmin(scores))
            row = tuple(int(v) for v in rows[among][place])
            found = float(scores[place]), tiling.sketch, row, float(apart[among][place])
            best = found if best is None else min(best, found)
    if best is None:
        return None
    _, number, row, distance = best
    sketch = search.sketches[number]
    trace = sketch.trace.with_row(row)
    record = schedule_record(trace, sketch.generator)
    return HintCandidate(hint, trace, record.id, exact=distance < 1e-9)


def _assigned(nest: Nest, block: Block) -> list[tuple[Axis, Iter]] | None:
    """The iterations of a block that are the loops of a nest, or `None` if it has others.

    Spatial loops come first, in order; those of one iteration do not count.
    """
    iters = sorted((i for i in block.iters if not _is_one(i.extent)), key=_reduced)
    axes = sorted((a for a in nest if a.extent != 1), key=lambda a: a.reduced is True)
    if len(iters) != len(axes):
        return None
    pairs = list(zip(axes, iters, strict=True))
    for axis, i in pairs:
        same = isinstance(i.extent, int) and i.extent == axis.extent
        if not same or axis.reduced not in (None, _reduced(i)):
            return None
    return pairs


def _is_one(extent: Dim) -> bool:
    return isinstance(extent, int) and extent == 1


def _reduced(i: Iter) -> bool:
    return i.kind is IterKind.REDUCE


class _Tilings:
    """The tile sizes of the blocks of a sketch, for many rows at once."""

    def __init__(self, search: Search, sketch: int) -> None:
        self.sketch = sketch
        self._space = Rowspace(search.sketches[sketch])
        nests = nests_in(search.sketches[sketch].func.body)
        # Of the blocks with the same loops, such as that of an epilogue, the innermost counts.
        self._nests = sorted(nests, key=lambda n: len(n[1]), reverse=True)
        self._rng = np.random.default_rng(0)
        self._drawn = self._space.sample(self._rng, DRAWN)
        self._tiles: dict[int, tuple[Columns, np.ndarray]] = {}

    def nearest(self, nest: Nest) -> tuple[Floats, Rows]:
        """How far the nearest of the drawn rows are from a nest in octaves, and these, in order.

        There are none if no block of the sketch has these loops.
        """
        found = self._placed(nest)
        if found is None or not len(self._drawn):
            return np.empty(0), self._drawn[:0]
        place, axes = found
        return _in_order(_apart(axes, self._sizes(place)[1]), self._drawn)

    def refined(self, nest: Nest, apart: Floats, rows: Rows) -> tuple[Floats, Rows]:
        """The rows nearest to a nest, among these and their children."""
        found = self._placed(nest)
        for _ in range(ROUNDS if found and self._space.size > len(self._drawn) else 0):
            assert found is not None
            place, axes = found
            children = self._space.mutate(self._rng, rows, CHILDREN)
            if len(children):
                sizes = _shaped(self._sizes(place)[0](children), self._nests[place])
                apart = np.concatenate([apart, _apart(axes, sizes)])
                apart, rows = _in_order(apart, np.concatenate([rows, children]))
        return apart, rows

    def _placed(self, nest: Nest) -> tuple[int, list[tuple[Axis, Iter, int]]] | None:
        """The block with the loops of a nest, and the iteration of each with its number."""
        for place, (block, _) in enumerate(self._nests):
            axes = _assigned(nest, block)
            if axes:
                return place, [(axis, i, block.iters.index(i)) for axis, i in axes]
        return None

    def _sizes(self, place: int) -> tuple[Columns, np.ndarray]:
        """What computes the tile sizes of a block, and those of the drawn rows."""
        if place not in self._tiles:
            block, loops = self._nests[place]
            sizes = [size for i in block.iters for size in _sizes_of(i, loops)]
            columns = Columns(sizes, self._space.sketch.space.bounds)
            shaped = _shaped(columns(self._drawn), self._nests[place])
            self._tiles[place] = columns, shaped
        return self._tiles[place]


def _sizes_of(i: Iter, loops: Sequence[For]) -> Iterator[Expr]:
    """How many values an iteration variable takes inside of the first 0, 1, ... of the loops."""
    zeros: dict[Var, Expr] = {}
    ends: dict[Var, Expr] = {}
    for loop in loops:
        ends[loop.var] = substitute(as_expr(loop.extent), zeros) - 1
        zeros[loop.var] = as_expr(0)
    first = substitute(i.value, zeros)
    for depth in range(len(loops) + 1):
        around = {loop.var: zeros[loop.var] for loop in loops[:depth]}
        yield substitute(i.value, ends | around) - first + 1


def _shaped(sizes: np.ndarray, nest: tuple[Block, Sequence[For]]) -> np.ndarray:
    """Tile sizes by iteration, by how many loops are around the tile, by row."""
    block, loops = nest
    shape = len(block.iters), len(loops) + 1, len(sizes)
    return np.asarray(np.maximum(sizes.T.reshape(shape), 1))


def _in_order(apart: Floats, rows: Rows) -> tuple[Floats, Rows]:
    """The nearest rows."""
    order = np.argsort(apart, kind="stable")[:PARENTS]
    return apart[order], rows[order]


def _apart(axes: Sequence[tuple[Axis, Iter, int]], sizes: np.ndarray) -> Floats:
    """The sum over tile sizes of a hint of how far the nearest tile of each row is, as log2.

    The smallest tile that a hint has of a spatial loop is compared with the tile inside of all
    reductions, which is that in registers, where there is a reduction.
    """
    reductions = [sizes[n] for _, i, n in axes if _reduced(i)]
    inside = _first_inside(reductions)
    total = np.zeros(sizes.shape[-1])
    for axis, i, number in axes:
        own = np.minimum(sizes[number], axis.extent)
        for n, wanted in enumerate(axis.tiles):
            ratios = np.abs(np.log2(own / min(wanted, axis.extent)))
            if n == 0 and reductions and not _reduced(i):
                total += np.take_along_axis(ratios, inside[None], axis=0)[0]
            else:
                total += OUTER_WEIGHT * ratios.min(axis=0)
    return total


def _first_inside(reductions: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
    """For each row, how many loops are around the tile that no reduction's loop divides.

    Loops of a reduction of one iteration are none.
    """
    if not reductions:
        return np.empty(0, dtype=np.int64)
    sizes = np.array(reductions)  # of each reduction, inside of so many loops, for each row
    return np.asarray((sizes > 1).any(axis=0).sum(axis=0))

"""Winograd convolution: `winograd`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace as _replace
from typing import NamedTuple

from ...base import dtypes
from ...tir.ir import (
    Binary,
    Block,
    Buffer,
    Dim,
    Expr,
    For,
    ForKind,
    Func,
    Iter,
    IterKind,
    Label,
    Load,
    Op,
    Stmt,
    Store,
    Var,
    as_expr,
    binary,
    ceildiv,
    const,
    load,
    select,
    seq,
)
from ...tir.simplify import simplify
from ...tir.structure import conjunction
from ...tir.updates import Reduction
from ...tir.visit import substitute, walk
from ..block_queries import domain, free_vars, nest, require_unit, with_regions
from ..find import find_block, find_path
from ..minimal_filtering import ALGORITHMS, WINDOW, Algorithm, product_row
from ..primitive import primitive
from ..reduction_blocks import match_reduction, starts_from_zero
from ..require import certain, require
from .cached_copies import replace_top, top_position, top_statements

ERROR_FACTORS: Mapping[int, float] = {2: 4.0, 4: 32.0}
"""By the size of tiles: a few times the errors that `docs/tuning.md` lists."""


@primitive(inexact=lambda arguments: ERROR_FACTORS[arguments["tile"]])
def winograd(fn: Func, block: Label, tile: int) -> tuple[Func, tuple[Label, ...]]:
    """Compute a 3 by 3 convolution by Winograd's algorithm, in square output tiles of 2 or 4.

        winograd(block, 4):
        for y, x, c, ry, rx: Y[y, x] += X[c, y + ry, x + rx] * W[c, ry, rx]
          ->  for i in 6, c, rx: W_rows[i, c, rx] = (G W[c, 0..2, rx])[i]
              for i, j in 6, c: W_tiles[i, j, c] = (G W_rows[i, c, 0..2])[j]
              for i in 6, c, ty, x: X_rows[i, c, ty, x] = (Bt X[c, ty * 4 + 0..5, x])[i]
              for i, j in 6, c, ty, tx: X_tiles[i, j, c, ty, tx] = (Bt X_rows[.., tx * 4 + 0..5])[j]
              for i, j in 6, ty, tx, c: Y_tiles[i, j, ty, tx] += X_tiles[..] * W_tiles[i, j, c]
              for i in 4, j in 6, ty, tx: Y_rows[i, j, ty, tx] = (At Y_tiles[0..5, j, ty, tx])[i]
              for y, x: Y[y, x] = (At Y_rows[y % 4, 0..5, y // 4, x // 4])[x % 4]

    A tile takes (tile + 2)^2 multiplications instead of 9 tile^2. Dimensions may have any order;
    padding may be a stage of its own or a guard. The result is the same over the reals. Floats are
    rounded differently, and non-finite values spread over their tile. Returns the labels of all
    blocks but the last, in this order; the handle `block` stays with the last. Lavin & Gray,
    arXiv:1509.09308.
    """
    found = find_block(fn, block)
    require(
        tile in ALGORITHMS,
        "tiles of {0} by {0}; expected {1}",
        tile,
        lambda: " or ".join(map(str, ALGORITHMS)),
        at=block,
        found=tile,
        alternatives=tuple(ALGORITHMS),
    )
    position = top_position(fn, block)
    loops = _own_loops(fn, found, position)
    made = _Made(_convolution(found), loops, tile)
    last = made.all(found, ALGORITHMS[tile])
    kept = {i.value for i in last.iters}
    stages = [*made.stages, nest([(s.var, s.extent) for s in loops if s.var in kept], last)]
    fn = replace_top(fn, block, seq(*stages))
    return _replace(fn, allocs=(*fn.allocs, *made.buffers)), tuple(made.labels)


class _Axis(NamedTuple):
    """The variables along which a window slides: one of the output and one of the window."""

    place: Var
    window: Var
    extent: Dim


class _Convolution(NamedTuple):
    """A sum of products of `source`, a function of `positions`, and `kernel`.

    The positions stand for the sums of the variables of each axis; rows come first. `swapped` says
    that the kernel is the first factor.
    """

    reduction: Reduction
    axes: tuple[_Axis, _Axis]
    positions: tuple[Var, Var]
    source: Expr
    kernel: Expr
    swapped: bool


def _own_loops(fn: Func, block: Block, position: int) -> list[For]:
    """The loops around the block: a serial one for each of its variables, and nothing else."""
    label = block.label
    require_unit(fn, block)
    path = find_path(top_statements(fn)[position], label) or ()
    loops = [s for s in path if type(s) is For]
    extents = {s.var: s.extent for s in loops}
    plain = len(loops) == len(path) - 1 == len(block.iters) and all(
        type(i.value) is Var and i.value in extents and certain(extents[i.value] == i.extent)
        for i in block.iters
    )
    require(
        plain and block.predicate is None and all(s.kind is ForKind.SERIAL for s in loops),
        "the loops around block {0} are scheduled; expected a serial one for each of its iteration "
        "variables",
        label,
        hint="winograd comes before the steps that change loops",
    )
    return loops


def _convolution(block: Block) -> _Convolution:
    label = block.label
    found = match_reduction(block, "sum") if starts_from_zero(block) else None
    value = None if found is None else found.value
    require(
        type(value) is Binary and value.op is Op.MUL,
        "block {0} must be a sum of products that starts with zero",
        label,
    )
    assert found is not None
    assert type(value) is Binary
    require(
        dtypes.is_float(value.dtype),
        "block {0} sums {1}; the transforms have fractions, expected floats",
        label,
        value.dtype,
    )
    for source, kernel in ((value.a, value.b), (value.b, value.a)):
        axes = _axes(block, source, kernel, found)
        if len(axes) == 2:
            at = Var("y_at"), Var("x_at")
            moved = _at(block, source, axes, at)
            return _Convolution(found, (axes[0], axes[1]), at, moved, kernel, kernel is value.a)
    require(
        False,
        "block {0} does not slide a window of {1} by {1} along two dimensions by steps of one",
        label,
        WINDOW,
        hint="one factor is read at sums of a variable of the output and one of the window, the "
        "other one at those of the window",
    )
    raise AssertionError


def _axes(block: Block, source: Expr, kernel: Expr, found: Reduction) -> list[_Axis]:
    """The pairs of variables at whose sums alone `source` is read, in the order of the output's."""
    mine, weights = free_vars(source), free_vars(kernel)
    stored = {e for e in found.indices if type(e) is Var}
    windows = [
        i.var
        for i in block.iters
        if i.kind is IterKind.REDUCE and certain(i.extent == WINDOW) and i.var in mine & weights
    ]
    axes = []
    for i in block.iters:
        if i.kind is not IterKind.SPATIAL or i.var not in (mine & stored) - weights:
            continue
        for window in windows:
            axis = _Axis(i.var, window, i.extent)
            if free_vars(_at(block, source, [axis], [Var("at")])).isdisjoint((i.var, window)):
                axes.append(axis)
    return axes


def _at(block: Block, source: Expr, axes: Sequence[_Axis], at: Sequence[Var]) -> Expr:
    """`source` as a function of positions along axes."""
    ranges = domain(block.iters)
    places: dict[Var, Expr] = {}
    for axis, position in zip(axes, at, strict=True):
        places[axis.place] = position - axis.window
        ranges[position] = (0, axis.extent + (WINDOW - 2))
    return simplify(substitute(source, places), ranges)


class _Made:
    """The stages that a convolution is taken apart into, with their buffers and labels."""

    def __init__(self, conv: _Convolution, loops: Sequence[For], tile: int) -> None:
        self.stages: list[Stmt] = []
        self.buffers: list[Buffer] = []
        self.labels: list[Label] = []
        self._conv = conv
        self._tile = tile
        self._loops = loops

    def all(self, block: Block, algorithm: Algorithm) -> Block:
        """Make all stages but the last; gives the block of that."""
        conv, tile = self._conv, self._tile
        size = tile + WINDOW - 1
        rows, columns = conv.axes
        spatial = tuple(i for i in block.iters if i.kind is IterKind.SPATIAL)
        windows = {a.window for a in conv.axes}
        summed = {i.var: i for i in block.iters if i.var not in windows and i not in spatial}
        names: dict[Expr, str] = {s.var: s.var.name for s in self._loops}
        own = {i.var: _Dimension(i.var, i.extent, names[i.value]) for i in block.iters}
        tiles = dict(own)
        for a in conv.axes:
            name = f"t{own[a.place].loop}"
            tiles[a.place] = _Dimension(Var(f"v{name}"), ceildiv(a.extent, tile), name)

        at_kernel = [own[v] for v in _order(conv.kernel, own) if v not in windows]
        w = [d.var for d in at_kernel]
        w_rows = self._stage(
            _name(conv.kernel, "rows"), [size], [*at_kernel, own[columns.window]],
            lambda i: product_row(algorithm.kernel, i[0], lambda k: substitute(
                conv.kernel, {rows.window: const(k)})),
        )  # fmt: skip
        w_tiles = self._stage(
            _name(conv.kernel, "tiles"), [size, size], at_kernel,
            lambda i: product_row(algorithm.kernel, i[1], lambda k: load(
                w_rows, (i[0], *w, const(k)))),
        )  # fmt: skip

        back = dict(zip(conv.positions, (rows.place, columns.place), strict=True))
        order = list(dict.fromkeys(back.get(v, v) for v in _order(conv.source, {*own, *back})))
        across = tiles[columns.place]
        whole = _Dimension(
            columns.place, across.extent * tile + (WINDOW - 1), own[columns.place].loop
        )
        x = [tiles[v].var for v in order]
        x_rows = self._stage(
            _name(conv.source, "rows"), [size],
            [whole if v is columns.place else tiles[v] for v in order],
            lambda i: product_row(algorithm.input, i[0], lambda k: self._input(
                tiles[rows.place].var * tile + k, whole.var)),
        )  # fmt: skip
        x_tiles = self._stage(
            _name(conv.source, "tiles"), [size, size], [tiles[v] for v in order],
            lambda i: product_row(algorithm.input, i[1], lambda k: load(x_rows, (i[0], *(
                v * tile + k if v is across.var else v for v in x)))),
        )  # fmt: skip

        stored = _order(conv.reduction.indices, {i.var for i in spatial})
        at_result = [tiles[v] for v in dict.fromkeys([*stored, *(i.var for i in spatial)])]
        y = [d.var for d in at_result]

        def term(i: Sequence[Var]) -> Expr:
            a, b = load(x_tiles, (*i, *x)), load(w_tiles, (*i, *w))
            return binary(Op.MUL, b, a) if conv.swapped else binary(Op.MUL, a, b)

        name = conv.reduction.buffer.name
        y_tiles = self._stage(
            f"{name}_tiles", [size, size], at_result, term, [own[v] for v in summed]
        )
        y_rows = self._stage(
            f"{name}_rows", [tile, size], at_result,
            lambda i: product_row(algorithm.output, i[0], lambda k: load(
                y_tiles, (const(k), i[1], *y))),
        )  # fmt: skip
        taken = {tiles[a.place].var: a.place // tile for a in conv.axes}
        value = product_row(algorithm.output, columns.place % tile, lambda k: load(
            y_rows, (rows.place % tile, const(k), *(taken.get(v, v) for v in y))))  # fmt: skip
        body = Store(conv.reduction.buffer, conv.reduction.indices, value)
        return with_regions(_replace(block, iters=spatial, init=None, body=body))

    def _input(self, row: Expr, column: Expr) -> Expr:
        """The input at a position, zero beyond its end, where the last tiles reach."""
        conv = self._conv
        within = [
            e < as_expr(a.extent + (WINDOW - 1))
            for a, e in zip(conv.axes, (row, column), strict=True)
            if not certain(a.extent % self._tile == 0)
        ]
        value = substitute(conv.source, dict(zip(conv.positions, (row, column), strict=True)))
        inside = conjunction(within)
        return value if inside is None else select(inside, value, const(0.0, value.dtype))

    def _stage(
        self,
        name: str,
        matrix: Sequence[int],
        dims: Sequence[_Dimension],
        value: Callable[[Sequence[Var]], Expr],
        summed: Sequence[_Dimension] = (),
    ) -> Buffer:
        """A buffer with dimensions of sizes `matrix` before `dims`, and the nest that fills it."""
        front = [
            _Dimension(Var(f"v{n}"), size, n)
            for n, size in zip("ij"[: len(matrix)], matrix, strict=True)
        ]
        spatial, every = [*front, *dims], [*front, *dims, *summed]
        fresh = {d.var: Var(d.var.name) for d in every}
        loops = [(Var(d.loop), d.extent) for d in every]
        kinds = [IterKind.SPATIAL] * len(spatial) + [IterKind.REDUCE] * len(summed)
        iters = tuple(
            Iter(fresh[d.var], d.extent, kind, loop)
            for d, kind, (loop, _) in zip(every, kinds, loops, strict=True)
        )
        found = substitute(value([d.var for d in front]), fresh)
        buffer = Buffer(name, tuple(d.extent for d in spatial), found.dtype)
        indices = tuple(fresh[d.var] for d in spatial)
        init = Store(buffer, indices, const(0.0, buffer.dtype)) if summed else None
        total = load(buffer, indices) + found if summed else found
        label = Label(name)
        body = Store(buffer, indices, total)
        block = with_regions(Block(label, iters, (), (), body, init=init))
        self.stages.append(nest(loops, block))
        self.buffers.append(buffer)
        self.labels.append(label)
        return buffer


class _Dimension(NamedTuple):
    """A variable of a block, its extent, and the name of the loop that gives its value."""

    var: Var
    extent: Dim
    loop: str


def _order(value: Expr | Sequence[Expr], variables: Collection[Var]) -> list[Var]:
    """Those of `variables` that `value` depends on, in the order of the indices of its first load.

    Or in the order of `value` where that is indices.
    """
    exprs = [value] if isinstance(value, Expr) else list(value)
    first = next((n for e in exprs for n in walk(e) if type(n) is Load), None)
    exprs = [*(() if first is None else first.indices), *exprs]
    found = [n for e in exprs for n in walk(e) if type(n) is Var and n in variables]
    return list(dict.fromkeys(found))


def _name(value: Expr, what: str) -> str:
    first = next((n for n in walk(value) if type(n) is Load), None)
    return what if first is None else f"{first.buffer.name}_{what}"

"""The place of an extreme value from the value itself: `locate_extremum`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as _replace

from ...base import dtypes
from ...tir.bounds import prove
from ...tir.combiners import COMBINERS, Combiner, Place, update
from ...tir.ir import (
    INDEX,
    NARROW_INDEX,
    Block,
    Buffer,
    Cast,
    Expr,
    ForKind,
    Func,
    Iter,
    IterKind,
    Label,
    Op,
    Stmt,
    Store,
    Var,
    binary,
    cast,
    const,
    load,
    select,
    seq,
)
from ...tir.structure import same
from ...tir.updates import Update, match_updates
from ...tir.visit import substitute
from ..block_queries import (
    domain,
    loop_name,
    nest,
    readers_of,
    require_unit,
    with_regions,
    without_buffers,
)
from ..find import find_block, perfect_nest, statements
from ..primitive import primitive
from ..require import require, require_number, require_some
from ..written import visited
from .cached_copies import replace_top, top_position, top_statements

_EXTREMUM = {"argmax": "max", "argmin": "min"}


@primitive
def locate_extremum(
    fn: Func, block: Label, piece: int | None = None
) -> tuple[Func, tuple[Label, ...]]:
    """Compute an argmax from the maximum: the least number of an element that is equal to it.

        locate_extremum(I, 8):
        for i, k: I[i], V[i] = argmax((k, A[i, k]))
          ->  for i, p, k: I_extremum[i, p] = max(A[i, p * 8 + k])
              for i, p: I_piece[i], I_value[i] = argmax((p, I_extremum[i, p]))
              for i, k: I_place[i] = min(k where A[i, I_piece[i] * 8 + k] == I_value[i])
              for i: I[i] = I_piece[i] * 8 + I_place[i]

    An argmin is computed from the minimum. Vectors then hold no numbers beside the values, and only
    one piece of each row is searched. `piece` is its size along the last variable of the reduction;
    the last piece overlaps the one before if need be. Without it the row is one piece: the maximum
    needs no search, and I_piece is left out. The value V is read at its place; it is left out if it
    is internal and nothing reads it. Numbers have to count the reduction in row-major order. The
    block must have a nest of its own, with serial loops, which are made anew. Returns the labels of
    the new blocks in their order; `block` stays with the last nest.
    """
    found = find_block(fn, block)
    require_unit(fn, found)
    extremum = _matched(found)
    nests, leaf = perfect_nest(top_statements(fn)[top_position(fn, block)])
    require(
        leaf is found and all(s.kind is ForKind.SERIAL for s in nests) and found.predicate is None,
        "block {0} must have a nest of its own, of serial loops that no condition guards",
        block,
    )
    require(
        visited(fn, [(found, found.iters)]),
        "block {0} is not shown to run in all of its iterations, which the search reads",
        block,
    )
    *outer, length = extremum.extents
    size = length if piece is None else piece
    require(
        1 <= size <= length,
        "a piece has 1 to {1} elements, found {0}",
        size,
        length,
        at=block,
    )
    used = [
        place.buffer not in fn.allocs or bool(readers_of(fn, {place.buffer}, but=block))
        for place in extremum.places
    ]
    if not any(used):
        used = [True, True]
    parts = _Parts(found, extremum, [*outer, -(-length // size)], size, piece is not None)
    stmts, labels, buffers = parts.statements(used)
    fn = replace_top(fn, block, seq(*stmts))
    dropped = {p.buffer for p, kept in zip(extremum.places, used, strict=True) if not kept}
    fn = without_buffers(fn, dropped)
    return _replace(fn, allocs=(*fn.allocs, *buffers)), labels


@dataclass(frozen=True)
class _Extremum:
    """An argmax or argmin: where it stores number and value, the value, and what it reduces."""

    combiner: Combiner
    places: tuple[Place, ...]
    value: Expr
    spatial: tuple[Iter, ...]
    reduce: tuple[Iter, ...]
    extents: tuple[int, ...]


def is_extremum(update: Update) -> bool:
    """Whether an update is that of `te.argmax` or `te.argmin`, however it is spelled.

    Others choose the last of equal elements, or pass over NaN.
    """
    usual = COMBINERS.get(update.combiner.name)
    if update.combiner.name not in _EXTREMUM or usual is None or update.combiner.arity != 2:
        return False
    old, new = (
        tuple([Var(side, p.buffer.dtype) for p in update.places]) for side in ("old", "new")
    )
    pairs = zip(update.combiner.combine(old, new), usual.combine(old, new), strict=True)
    return not update.combiner.numbered and all(same(x, y) for x, y in pairs)


def _matched(block: Block) -> _Extremum:
    """The one argmax or argmin that a block computes, over elements numbered in row-major order."""
    found = match_updates(block)
    updates = () if found is None else found.updates
    update_ = require_some(
        updates[0] if len(updates) == 1 and is_extremum(updates[0]) else None,
        "block {0} must be one argmax or argmin",
        block.label,
    )
    assert found is not None
    assert block.init is not None
    number, value = update_.values
    for var, bound in reversed(found.bindings):
        number, value = (substitute(e, {var: bound}) for e in (number, value))
    starts = {s.buffer: s.value for s in statements(block.init) if type(s) is Store}
    identity = update_.combiner.identity(tuple([p.buffer.dtype for p in update_.places]))
    require(
        starts.keys() == {p.buffer for p in update_.places}
        and all(same(starts[p.buffer], e) for p, e in zip(update_.places, identity, strict=True)),
        "block {0} must start from the identity of its {1}",
        block.label,
        update_.combiner.name,
    )
    reduce = tuple([i for i in block.iters if i.kind is IterKind.REDUCE])
    extents = tuple(
        require_number(i.extent, "the sizes of block {0} are open", block.label) for i in reduce
    )
    total = math.prod(extents)
    held = 0 < total <= dtypes.int_limits(number.dtype)[1]
    while held and type(number) is Cast and dtypes.is_integer(number.value.dtype):
        number = number.value
        held = total <= dtypes.int_limits(number.dtype)[1]
    require(
        held
        and number.dtype == INDEX
        and prove(number == _number([i.var for i in reduce], extents), domain(block.iters)) is True,
        "block {0} must number its elements in row-major order, from 0 on",
        block.label,
    )
    spatial = tuple(i for i in block.iters if i.kind is IterKind.SPATIAL)
    return _Extremum(update_.combiner, update_.places, value, spatial, reduce, extents)


def _number(digits: Sequence[Expr], extents: Sequence[int]) -> Expr:
    """The number with these digits, the last one of which counts single elements."""
    number = digits[0]
    for digit, extent in zip(digits[1:], extents[1:], strict=True):
        number = number * extent + digit
    return number


def _digits(number: Expr, extents: Sequence[int]) -> list[Expr]:
    """The digits of a number, which is clamped to those that there are."""
    left: Expr = binary(Op.MIN, binary(Op.MAX, cast(INDEX, number), 0), math.prod(extents) - 1)
    digits: list[Expr] = []
    for extent in reversed(extents[1:]):
        digits.insert(0, left % extent)
        left = left // extent
    return [left, *digits]


@dataclass(frozen=True)
class _Parts:
    """The nests that an extremum is computed by. `pieces` has how many there are, for each variable
    of the reduction; each has `size` elements. They are `searched` for the one to look at."""

    block: Block
    extremum: _Extremum
    pieces: Sequence[int]
    size: int
    searched: bool

    def statements(
        self, used: Sequence[bool]
    ) -> tuple[list[Stmt], tuple[Label, ...], list[Buffer]]:
        """The nests, the labels of the new blocks, and the new buffers.

        `used` says which of the number and the value are stored.
        """
        name, found = self.block.label.name, self.extremum
        rows = tuple([i.extent for i in found.spatial])
        dtype = found.places[1].buffer.dtype
        whole = Buffer(f"{name}_value", rows, dtype)
        place = Buffer(f"{name}_place", rows, self._counter(math.prod(self._inner())))
        stmts: list[Stmt] = []
        buffers = [whole, place]
        best = COMBINERS[_EXTREMUM[found.combiner.name]]
        of_piece: Buffer | None = None
        if self.searched:
            each = Buffer(f"{name}_extremum", (*rows, *self.pieces), dtype)
            number = self._counter(math.prod(self.pieces))
            of_piece = Buffer(f"{name}_piece", rows, number)
            buffers = [each, of_piece, *buffers]
            stmts.append(self._reduced(
                each, best, self.pieces, [self.size],
                lambda s, p, k: self._value(s, [*p[:-1], self._start(p[-1]) + k[0]]),
            ))  # fmt: skip
            stmts.append(self._searched(each, of_piece, whole))
        else:
            stmts.append(self._reduced(whole, best, [], self._inner(),
                                       lambda s, _, k: self._value(s, k)))  # fmt: skip
        stmts.append(self._located(whole, place, of_piece))
        labels = tuple(map(_label_of, stmts))
        return [*stmts, self._stored(place, of_piece, used)], labels, buffers

    def _inner(self) -> list[int]:
        """The extents of what is searched for the element."""
        return [self.size] if self.searched else list(self.extremum.extents)

    def _counter(self, count: int) -> str:
        return NARROW_INDEX if count <= dtypes.int_limits(NARROW_INDEX)[1] else INDEX

    def _start(self, piece: Expr) -> Expr:
        """Where a piece starts along the last variable of the reduction."""
        start, last = piece * self.size, self.extremum.extents[-1] - self.size
        return start if last % self.size == 0 else binary(Op.MIN, start, last)

    def _value(self, spatial: Mapping[Var, Expr], at: Sequence[Expr]) -> Expr:
        reduced = {i.var: e for i, e in zip(self.extremum.reduce, at, strict=True)}
        return substitute(self.extremum.value, {**spatial, **reduced})

    def _element(
        self, spatial: Mapping[Var, Expr], piece: Buffer | None, at: list[Expr]
    ) -> list[Expr]:
        """The values of the reduction's variables at place `at` of the piece that was found."""
        if piece is None:
            return at
        *around, last = _digits(load(piece, tuple(spatial.values())), self.pieces)
        return [*around, self._start(last) + at[0]]

    def _axes(self) -> tuple[list[Iter], dict[Var, Expr]]:
        """Iterations over the rows, and their variables by those of the block."""
        fresh: dict[Var, Expr] = {}
        iters: list[Iter] = []
        for i in self.extremum.spatial:
            var = Var(i.var.name)
            fresh[i.var] = var
            iters.append(Iter(var, i.extent, IterKind.SPATIAL, Var(loop_name(i.var))))
        return iters, fresh

    def _reduced(
        self,
        out: Buffer,
        combiner: Combiner,
        pieces: Sequence[int],
        extents: Sequence[int],
        value: Callable[[Mapping[Var, Expr], list[Expr], list[Expr]], Expr],
    ) -> Stmt:
        """The nest that reduces `value` of a row, a piece and an element to an element of `out`."""
        iters, rows = self._axes()
        counted = [Var(f"vp{n}") for n in range(len(pieces))]
        inner = [Var(f"vk{n}") for n in range(len(extents))]
        iters += _iters(counted, pieces, IterKind.SPATIAL) + _iters(inner, extents, IterKind.REDUCE)
        place = Place(out, (*rows.values(), *counted))
        body = update(combiner, [place], [load(*place)], [value(rows, [*counted], [*inner])])
        init = Store(*place, *combiner.identity((out.dtype,)))
        return _nest(Label(out.name), iters, body, init)

    def _searched(self, each: Buffer, piece: Buffer, value: Buffer) -> Stmt:
        """The nest that finds the first piece with the extreme value."""
        iters, rows = self._axes()
        inner = [Var(f"vp{n}") for n in range(len(self.pieces))]
        iters += _iters(inner, self.pieces, IterKind.REDUCE)
        places = [Place(b, tuple(rows.values())) for b in (piece, value)]
        number = cast(piece.dtype, _number(inner, self.pieces))
        values = [number, load(each, (*rows.values(), *inner))]
        combiner = self.extremum.combiner
        body = update(combiner, places, [load(*p) for p in places], values)
        identity = combiner.identity((piece.dtype, value.dtype))
        init = seq(*(Store(*p, e) for p, e in zip(places, identity, strict=True)))
        return _nest(Label(piece.name), iters, body, init)

    def _located(self, value: Buffer, place: Buffer, piece: Buffer | None) -> Stmt:
        """The nest that finds the first element of the piece that has the extreme value."""
        extents = self._inner()

        def number(rows: Mapping[Var, Expr], _: list[Expr], at: list[Expr]) -> Expr:
            element = self._value(rows, self._element(rows, piece, at))
            best = load(value, tuple(rows.values()))
            hit = binary(Op.EQ, element, best)
            if dtypes.is_float(value.dtype):
                # NaN is the extreme value if there is one, and equal to none.
                hit = hit | binary(Op.NE, element, element)
            counted = cast(place.dtype, _number(at, extents))
            none = const(dtypes.int_limits(place.dtype)[1], place.dtype)
            return select(hit, counted, none)

        return self._reduced(place, COMBINERS["min"], [], extents, number)

    def _stored(self, place: Buffer, piece: Buffer | None, used: Sequence[bool]) -> Stmt:
        """The nest that stores the number and the value of the element that was found."""
        iters, rows = self._axes()
        at = _digits(load(place, tuple(rows.values())), self._inner())
        element = self._element(rows, piece, at)
        places = self.extremum.places
        number = cast(places[0].buffer.dtype, _number(element, self.extremum.extents))
        stores = [
            Store(p.buffer, tuple([substitute(e, rows) for e in p.indices]), value)
            for p, value, kept in zip(
                places, (number, self._value(rows, element)), used, strict=True
            )
            if kept
        ]
        return _nest(self.block.label, iters, seq(*stores), None)


def _iters(variables: Sequence[Var], extents: Sequence[int], kind: IterKind) -> list[Iter]:
    return [Iter(v, n, kind, Var(loop_name(v))) for v, n in zip(variables, extents, strict=True)]


def _nest(label: Label, iters: Sequence[Iter], body: Stmt, init: Stmt | None) -> Stmt:
    """A block in serial loops, one for each of its iterations."""
    loops = [(i.value, i.extent) for i in iters if isinstance(i.value, Var)]
    return nest(loops, with_regions(Block(label, tuple(iters), (), (), body, init)))


def _label_of(stmt: Stmt) -> Label:
    """The label of the block of a nest."""
    _, leaf = perfect_nest(stmt)
    assert isinstance(leaf, Block)
    return leaf.label

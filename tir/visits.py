"""Verify the visits of blocks that update: each point once, the zero point of a reduction first.

A block with reduce axes, or that reads elements which it stores to, does not compute the same
again at a second visit. Steps rebuild its loops from its domain, so the loops as written must visit
a point once, and all of a reduction. They may do so again in each iteration of outer loops, a
*round*, that begins anew: by the init of the block, or by another block that stores what is
updated. A reduction may be cut in parts, blocks of one domain that store to the same buffer: the
later ones continue what the first one has begun.

Bindings that are sums of loops and of their digits, as steps make them, are decided by the sizes of
their steps; others exactly, by integer sets.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

from ..base.errors import VerifyError
from .bounds import variables
from .dependence import Access, Conflict, Verdict, before, beyond, conflict
from .digits import Digit, digit_of, free, telling
from .ir import (
    Binary,
    Block,
    Buffer,
    Const,
    Dim,
    Expr,
    For,
    If,
    Iter,
    IterKind,
    Op,
    Range,
    Region,
    Var,
    as_expr,
    binary,
    const,
)
from .polynomial import factors
from .structure import conjuncts, key_of
from .survey import Survey
from .visit import substitute, walk


def check_visits(survey: Survey) -> None:
    """Raise `VerifyError` for an update that is not shown to visit its points as it has to."""
    nests = [_Nest.of(survey, k) for k in range(len(survey.blocks))]
    for nest in nests:
        block = nest.block
        if updates(block) and all(i.extent != 0 for i in block.iters):
            depth = _plain_depth(survey, nest)
            if depth is None or not _restarted(nest, nests, depth):
                _check_exactly(survey, nest, nests)


def updates(block: Block) -> bool:
    """Whether `block` computes something else where it visits a point again."""
    if any(i.kind is IterKind.REDUCE for i in block.iters):
        return True
    return any(_meet(r, w) for w in block.writes for r in block.reads)


def _meet(a: Region, b: Region) -> bool:
    """Whether two regions are not seen to be apart."""
    return a.buffer is b.buffer and not any(
        x.extent == 1
        and y.extent == 1
        and type(x.min) is Const
        and type(y.min) is Const
        and x.min.value != y.min.value
        for x, y in zip(a.ranges, b.ranges, strict=True)
    )


_AXES = tuple(Var(f"axis{n}") for n in range(32))
"""What axes of blocks are called where their stores are compared."""


class _Nest(NamedTuple):
    """A block, its position among all, and the loops around it that have several iterations.

    Its `values` and `conditions`, those of iteration variables and of visits, are of the loops.
    """

    block: Block
    order: int
    loops: tuple[For, ...]
    values: tuple[Expr, ...]
    conditions: tuple[Expr, ...]

    @staticmethod
    def of(survey: Survey, order: int) -> _Nest:
        block, place = survey.blocks[order]
        loops = tuple([f for f in place.loops if f.extent != 1])
        once = {f.var: const(0) for f in place.loops if f.extent == 1}
        values = tuple([substitute(survey.resolved(i.value), once) for i in block.iters])
        told = (substitute(survey.resolved(c), once) for c in place.conditions)
        return _Nest(block, order, loops, values, tuple([c for k in told for c in conjuncts(k)]))

    def buffers(self) -> set[Buffer]:
        return {r.buffer for r in self.block.writes}

    def domain(self) -> list[tuple[IterKind, int]]:
        return [(i.kind, int(i.extent)) for i in self.block.iters]  # type: ignore[arg-type]

    def divided(self) -> list[tuple[IterKind, int]]:
        """The domain with the axes that are not reduced before the others; steps may mix them."""
        return sorted(self.domain(), key=lambda axis: axis[0] is IterKind.REDUCE)

    def element(self) -> tuple[list[Expr], list[int]]:
        """The values of the axes that are not reduced, and their extents."""
        pairs = list(zip(self.values, self.domain(), strict=True))
        kept = [(v, n) for v, (kind, n) in pairs if kind is not IterKind.REDUCE]
        kept = kept or [(const(0), 1)]
        return [v for v, _ in kept], [n for _, n in kept]

    def reduced(self) -> list[Expr]:
        """The values of the reduce axes."""
        pairs = zip(self.values, self.block.iters, strict=True)
        return [v for v, i in pairs if i.kind is IterKind.REDUCE]

    def stored(self) -> set[tuple[Buffer, tuple[object, ...]]]:
        """The elements that it stores to, by its axes that are not reduced."""
        axes = [i for i in self.block.iters if i.kind is not IterKind.REDUCE]
        named: dict[Var, Expr] = {i.var: _AXES[n] for n, i in enumerate(axes[: len(_AXES)])}
        return {
            (r.buffer, tuple(key_of(substitute(e, named)) for d in r.ranges for e in _ends(d)))
            for r in self.block.writes
        }

    def shares(self, other: _Nest, depth: int) -> bool:
        """Whether both are in the same iteration of the first `depth` loops."""
        common = zip(self.loops[:depth], other.loops[:depth], strict=False)
        return sum(a is b for a, b in common) == depth


def _ends(d: Range) -> tuple[Expr, Expr]:
    return d.min, as_expr(d.extent)


def _restarted(nest: _Nest, nests: Sequence[_Nest], depth: int) -> bool:
    """Whether each iteration of the first `depth` loops begins the update anew."""
    return (
        depth == 0
        or nest.block.init is not None
        or nest.buffers()
        <= {
            b
            for other in nests[: nest.order]
            if other.shares(nest, depth)
            and (other.block.init is not None or not updates(other.block))
            for b in other.buffers()
        }
    )


def _plain_depth(survey: Survey, nest: _Nest) -> int | None:
    """The number of outer loops in each of whose iterations the visits are seen to be right.

    There the sizes of steps and digits show it; `None` if they do not.
    """
    for depth in range(_after_unused(nest, nest.values), len(nest.loops) + 1):
        if _plainly(survey, nest, depth):
            return depth
    return None


def _after_unused(nest: _Nest, told: Sequence[Expr]) -> int:
    """The number of outer loops down to the last one that the expressions `told` are not of."""
    used = set(variables(*told))
    return max((k + 1 for k, f in enumerate(nest.loops) if f.var not in used), default=0)


def _plainly(survey: Survey, nest: _Nest, depth: int) -> bool:
    """Whether steps and digits show the visits right in an iteration of the first `depth` loops.

    Each value determines its digits, these the loops; those of reduce axes, which have no gap, are
    in no other value. So they are all 0 at a visit of the same element, which comes first.
    """
    moving = {f.var: f.extent for f in nest.loops[depth:]}
    used: dict[Var, list[Digit]] = {v: [] for v in moving}
    reducing: set[Var] = set()
    for (kind, extent), value in zip(nest.domain(), nest.values, strict=True):
        terms: list[tuple[int, Digit]] = []
        for key, c in survey.plain.poly(value).items():
            if moving.keys().isdisjoint(v for a in factors(key) for v in variables(a)):
                if kind is IterKind.REDUCE:
                    return False  # it may not begin at 0
                continue
            digit = digit_of(survey.plain, key) if isinstance(key, Expr) else None
            if digit is None:
                return False
            terms.append((c, digit))
        width = 0
        for c, digit in sorted(terms, key=lambda term: abs(term[0])):
            if abs(c) <= width or (kind is IterKind.REDUCE and c != width + 1):
                return False
            width += abs(c) * (digit.size - 1)
            used[digit.var].append(digit)
            if kind is IterKind.REDUCE:
                reducing.add(digit.var)
        if kind is IterKind.REDUCE and width + 1 < extent:
            return False
    sizes = {v: n for v, n in moving.items() if isinstance(n, int)}
    return all(telling(used[v], n) for v, n in sizes.items()) and all(
        free(used[v], sizes[v]) for v in reducing
    )


def _check_exactly(survey: Survey, nest: _Nest, nests: Sequence[_Nest]) -> None:
    """Decide by integer sets; where a loop was fused, a round may be an iteration of its digits."""
    try:
        _check(nest, nests)
    except VerifyError:
        cut = _with_digits(survey, nests)
        try:
            _check(cut[nest.order], cut)
        except VerifyError:
            cut = []
        if not cut:
            raise


def _with_digits(survey: Survey, nests: Sequence[_Nest]) -> list[_Nest]:
    """`nests` with a loop for each digit of a loop that values are of, if these make it up."""
    digits = {
        digit_of(survey.plain, key)
        for nest in nests
        for value in nest.values
        for n in walk(value)
        if type(n) is Binary
        for key in survey.plain.poly(n)
        if isinstance(key, Expr)
    }
    pieces: dict[For, tuple[For, ...]] = {}
    sums: dict[Var, Expr] = {}
    for loop in {f: None for nest in nests for f in nest.loops}:
        cuts = {c for d in digits if d and d.var is loop.var for c in (d.low, d.low * d.size)}
        lows = sorted({1, *(c for c in cuts if isinstance(loop.extent, int) and c < loop.extent)})
        sizes = [high // low for low, high in pairwise([*lows, loop.extent])]
        if all(high % low == 0 for low, high in pairwise([*lows, loop.extent])):
            names = [Var(f"{loop.var.name}_{low}") for low in lows]
            made = [For(v, n, loop.body) for v, n in zip(names, sizes, strict=True)]
            pieces[loop] = tuple(reversed(made))
            parts = [v * low for v, low in zip(names, lows, strict=True)]
            sums[loop.var] = reduce(operator.add, parts)
    return [
        nest._replace(
            loops=tuple([piece for f in nest.loops for piece in pieces.get(f, (f,))]),
            values=tuple([substitute(v, sums) for v in nest.values]),
            conditions=tuple([substitute(c, sums) for c in nest.conditions]),
        )
        for nest in nests
    ]


def _check(nest: _Nest, nests: Sequence[_Nest]) -> None:
    """Raise `VerifyError` for visits that are not shown to be right.

    They are asked of one iteration of the fewest outer loops in which none is repeated.
    """
    least = _after_unused(nest, (*nest.values, *nest.conditions))
    all_loops = len(nest.loops)
    depth = next((d for d in range(least, all_loops) if _again(nest, d).apart), all_loops)
    begun = _begun(nest, nests, depth)
    if not _restarted(nest, nests, depth) or (depth and not begun.apart):
        found = _again(nest, depth - 1)
        raise VerifyError(
            "block {0}: it updates what it stores to, and may visit a point of its domain more "
            "than once; expected one visit of each, in all iterations of loop {1}",
            nest.block.label.name, nest.loops[depth - 1].var.name,
            hint="give each loop an axis of its own, or begin anew in each iteration of the loop: "
            "by an init, or by a block that stores what is updated",
            **_shown(nest, found, nest.block.iters),
        )  # fmt: skip
    reduced = [i for i in nest.block.iters if i.kind is IterKind.REDUCE]
    others = [i for i in nest.block.iters if i.kind is not IterKind.REDUCE]
    axes = ", ".join(i.var.name for i in reduced)
    if not begun.apart:
        raise VerifyError(
            "block {0}: its init runs where {1} is 0, which is not shown to be the first visit "
            "of each element; expected one that comes before all others",
            nest.block.label.name, axes,
            hint="bind reduce axes to loops of their own, which count from 0",
            **_shown(nest, begun, others),
        )  # fmt: skip
    whole = _whole(nest, nests, depth)
    if not whole.apart:
        raise VerifyError(
            "block {0}: its loops are not shown to take {1} through all values of the domain; "
            "expected a loop for each",
            nest.block.label.name, axes,
            hint="declare the axis with the extent of its loop, and write what it skips or scales "
            "in the indices of the body; leave terms out by `if` in the body",
            **_shown(nest, whole, [*others, *reduced]),
        )  # fmt: skip


def _shown(nest: _Nest, found: Verdict, axes: Sequence[Iter]) -> dict[str, Any]:
    """The example of an error, in words and as data: visits by loops, and the point by `axes`.

    Where the element of a visit has no axes, it has a 0 in their place.
    """
    example: Conflict | None = found.example
    if example is None:
        return {"visits": None, "point": None}
    visits = []
    for p in dict.fromkeys((example.first, example.second)):
        values = dict((*example.outer.values, *p.values))
        visits.append({f.var.name: values[f.var.name] for f in nest.loops if f.var.name in values})
    numbers = example.element[-len(axes) :] if axes else ()
    point = {i.var.name: n for i, n in zip(axes, numbers, strict=True)}
    told = [", ".join(f"{name}={n}" for name, n in v.items()) for v in (*visits, point)]
    of = " and ".join(filter(None, told[:-1]))
    return {
        "example": ": ".join(filter(None, (of, told[-1]))) or None,
        "visits": visits,
        "point": point,
    }


def _again(nest: _Nest, depth: int) -> Verdict:
    """Whether a visit is of the same point as another in one iteration of the `depth` loops."""
    sizes = {f.var: f.extent for f in nest.loops}
    around, inside = list(sizes.items())[:depth], list(sizes.items())[depth:]
    ranges = [Range(v, 1) for v in nest.values] or [Range(const(0), 1)]
    visit = Access(ranges, {}, nest.conditions)
    return conflict(visit, visit, dict(around), dict(inside))


def _begun(nest: _Nest, nests: Sequence[_Nest], depth: int) -> Verdict:
    """Whether the element of each visit was begun: at a visit of its zero point, before or there.

    The other may be one of an earlier part.
    """
    if nest.block.init is None or not nest.reduced():
        return Verdict(True)
    values, shape = nest.element()
    read = Access([Range(v, 1) for v in values], {}, nest.conditions)
    writes: list[Access] = []
    for part in (nest, *_earlier(nest, nests, depth)):
        new = {f.var: Var(f.var.name) for f in part.loops[depth:]}
        both = [a for a, b in zip(part.loops, nest.loops, strict=False) if a is b][depth:]
        there, here = [new[f.var] for f in both], [f.var for f in both]
        zero = [binary(Op.EQ, v, const(0)) for v in part.reduced()]
        first = Access(
            [Range(substitute(v, new), 1) for v in part.element()[0]],
            {new[f.var]: f.extent for f in part.loops[depth:]},
            [substitute(c, new) for c in (*part.conditions, *zero)] + [_not_after(there, here)],
        )
        writes.append(first)
    return beyond(read, writes, shape, {f.var: f.extent for f in nest.loops})


def _not_after(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
    """The condition that iteration `a` is `b`, or precedes it."""
    result = before(a, b)
    same: Expr = const(True, "bool")
    for x, y in zip(a, b, strict=True):
        same = binary(Op.AND, same, binary(Op.EQ, x, y))
    return binary(Op.OR, result, same)


def _whole(nest: _Nest, nests: Sequence[_Nest], depth: int) -> Verdict:
    """Whether the loops take the reduce axes of each visited element through their domain.

    Those of other parts count; where a step has given parts other domains, the rest may be there.
    A predicate that ends loops early says so, and so does a condition around the body.
    """
    extents = [n for kind, n in nest.domain() if kind is IterKind.REDUCE]
    elsewhere = any(
        other.reduced() and other.divided() != nest.divided()
        for other in _continuing(nest, nests, depth)
    )
    if not extents or elsewhere:
        return Verdict(True)
    terms = [Var(f"term{k}") for k in range(len(extents))]
    values, shape = nest.element()
    inner: dict[Var, Dim] = {f.var: f.extent for f in nest.loops[depth:]}
    inner |= dict(zip(terms, extents, strict=True))
    taken = dict(zip(nest.block.iters, nest.values, strict=True))
    taken |= dict(zip((i for i in taken if i.kind is IterKind.REDUCE), terms, strict=True))
    at = {i.var: v for i, v in taken.items()}
    body = nest.block.body
    acts = body.cond if type(body) is If and body.other is None else None
    guards = [*nest.conditions, *(substitute(c, at) for c in conjuncts(acts))]
    asked = Access([Range(v, 1) for v in (*values, *terms)], inner, guards)
    visits = [
        Access(
            [Range(v, 1) for v in (*p.element()[0], *p.reduced())],
            {f.var: f.extent for f in p.loops[depth:]},
        )
        for p in (nest, *_parts(nest, nests, depth))
    ]
    around = {f.var: f.extent for f in nest.loops[:depth]}
    return beyond(asked, visits, [*shape, *extents], around)


def _parts(nest: _Nest, nests: Sequence[_Nest], depth: int) -> list[_Nest]:
    """The other parts of a reduction: blocks of the same domain."""
    return [o for o in _continuing(nest, nests, depth) if o.divided() == nest.divided()]


def _earlier(nest: _Nest, nests: Sequence[_Nest], depth: int) -> list[_Nest]:
    """The earlier parts of a reduction, also those whose terms a step has put into blocks."""
    return [
        other
        for other in _continuing(nest, nests, depth)
        if other.order < nest.order
        and other.block.init is not None
        and other.element()[1] == nest.element()[1]
        and other.stored() == nest.stored()
    ]


def _continuing(nest: _Nest, nests: Sequence[_Nest], depth: int) -> list[_Nest]:
    """The other blocks in the first `depth` loops that store to the same buffers."""
    return [
        other
        for other in nests
        if other is not nest and other.shares(nest, depth) and other.buffers() == nest.buffers()
    ]

"""Exact dependences between iterations of loops of concrete programs.

Used where structure (`distinct.py`) does not decide, because a query takes a millisecond. Accesses
that are not quasi-affine, or of symbolic sizes, stay undecided.

Stores that a visit of a block makes for certain, under no condition in its body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..tir import dependence
from ..tir.bounds import prove
from ..tir.dependence import Access, Order, Verdict, before
from ..tir.ir import (
    Block,
    Buffer,
    Dim,
    Expr,
    For,
    If,
    Op,
    Range,
    Region,
    Stmt,
    Store,
    Var,
    as_expr,
    binary,
)
from ..tir.regions import hull
from ..tir.structure import conjuncts
from ..tir.visit import nested, substitute
from .block_queries import (
    Ranges,
    bound_regions,
    buffers_in_order,
    domain,
    free_vars,
    loop_ranges,
    reads_data,
)
from .distinct import distinct, gapless
from .facts import last
from .find import blocks_in, find_path
from .require import certain, current_space, require


class Use(NamedTuple):
    """A read or write of a buffer by a block, in terms of the loops around it.

    It is `certain` if each visit of the block stores to all of it.
    """

    block: Block
    buffer: Buffer
    writes: bool
    access: Access
    certain: bool = False

    @property
    def verb(self) -> str:
        """The verb for an element; a region of several only says what may be touched."""
        if all(r.extent == 1 for r in self.access.ranges):
            return "writes" if self.writes else "reads"
        return "may write" if self.writes else "may read"


@dataclass(frozen=True, eq=False)
class Finding:
    """The result for the uses of a buffer: they are `apart`, two conflict, or it is unknown."""

    apart: bool
    first: Use | None = None
    second: Use | None = None
    verdict: Verdict = dependence.UNKNOWN

    def example(self, visits: str | None = None) -> str | None:
        """Two conflicting iterations as text, or `None` if none is known.

        `visits` is the verb for both, if they do not read or write.
        """
        found = self.verdict.example
        if found is None or self.first is None:
            return None
        element = f"{self.first.buffer.name}[{', '.join(map(str, found.element))}]"
        verb = visits or self.first.verb
        if self.second is None:
            return f"iteration {found.first} {verb} {element}, which is not written by then"
        again = visits or self.second.verb
        where = f"at {found.outer}: " if found.outer.values else ""
        same = self.first.block.label is self.second.block.label
        names = ("", "") if same else (f" of block {self.first.block.label.name}",
                                       f" of block {self.second.block.label.name}")  # fmt: skip
        return (
            f"{where}iteration {found.first}{names[0]} {verb} {element}, "
            f"iteration {found.second}{names[1]} {again} it"
        )


def uses_of(block: Block, buffer: Buffer, body: Stmt) -> list[Use]:
    """How `block`, which is in `body`, uses a buffer."""
    path = find_path(body, block.label) or ()
    inner = {s.var: s.extent for s in path if type(s) is For}
    guards = conjuncts(block.predicate)
    uses = []
    for writes, regions in ((True, block.writes), (False, block.reads)):
        for region in regions:
            for r in bound_regions(block, (region,), buffer):
                access = Access(r.ranges, inner, guards)
                certain = writes and always_writes(block, region)
                uses.append(Use(block, buffer, writes, access, certain))
    return uses


def pairs_of(uses: Sequence[Use]) -> list[tuple[Use, Use]]:
    """All pairs, in either order, with at least one write."""
    return [(a, b) for a in uses for b in uses if a.writes or b.writes]


def conflicts(
    pairs: Sequence[tuple[Use, Use]],
    loops: Sequence[For],
    ranges: Ranges,
    order: Order = before,
) -> Finding:
    """Whether one of `pairs` uses an element in two iterations of `loops`, in that `order`.

    `ranges` has the loops outside of `loops`, which are at one iteration, and `loops`.
    """
    if current_space() is not None:
        return Finding(False)
    own = {s.var: s.extent for s in loops}
    around = {v: high + 1 for v, (_, high) in ranges.items() if v not in own}
    decided = True
    for first, second in pairs:
        verdict = dependence.conflict(first.access, second.access, around, own, order)
        if verdict.clash:
            return Finding(False, first, second, verdict)
        decided = decided and verdict.apart
    return Finding(decided)


def served(reads: Sequence[Use], writes: Sequence[Use], shared: Sequence[For]) -> Finding:
    """Whether `writes` write everything that `reads` touch in the same iteration of `shared`."""
    if current_space() is not None:
        return Finding(False)
    written = [w.access for w in writes if w.certain]
    own = {s.var: s.extent for s in shared}
    for use in reads:
        verdict = dependence.beyond(use.access, written, use.buffer.shape, own)
        if not verdict.apart:
            known = len(written) == len(writes)
            return Finding(False, use, None, verdict if known else dependence.UNKNOWN)
    return Finding(True)


def overtakes(old: Sequence[Var], new: Sequence[Var]) -> Order:
    """The pairs of iterations that loops in the order `old` run first to last, `new` the reverse.

    The loops that conflicts are asked about are in the order `old`.
    """
    place = {v: k for k, v in enumerate(old)}

    def order(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
        turned = before([b[place[v]] for v in new], [a[place[v]] for v in new])
        return binary(Op.AND, before(a, b), turned)

    return order


def always_writes(block: Block, region: Region) -> bool:
    """Whether a visit of a block, the first one of a reduction, stores to all of a region.

    It does not where the store is under a condition in the body, or in a loop that leaves gaps.
    """
    ranges = domain(block.iters)

    def fills(s: Store, loops: Mapping[Var, Dim], values: Mapping[Var, Expr]) -> bool:
        own = {**ranges, **{v: (0, last(n)) for v, n in loops.items()}}
        moved = set(loops)
        for r, e in zip(region.ranges, s.indices, strict=True):
            if certain(r.extent == 1):
                continue
            place = substitute(e, values)
            swept = gapless(Range(place, 1), loops, own)
            mine = free_vars(place) & loops.keys()
            if swept is None or not mine <= moved or not certain(swept.extent == r.extent):
                return False
            moved -= mine
        return True

    def visit(s: Stmt, loops: Mapping[Var, Dim], values: Mapping[Var, Expr]) -> bool:
        match s:
            case Store():
                return s.buffer is region.buffer and s.mask is None and fills(s, loops, values)
            case If():
                if s.other is None or reads_data(s.cond):  # no check can follow data
                    return False
                return all(visit(b, loops, values) for b in (s.then, s.other))
            case For():
                more = {**loops, s.var: s.extent}
                return certain(s.extent >= 1) and visit(s.body, more, values)
            case Block():
                inner = {**values, **{i.var: substitute(i.value, values) for i in s.iters}}
                parts = [p for p in (s.body, s.init) if p is not None]
                return s.predicate is None and any(visit(p, loops, inner) for p in parts)
            case _:
                return any(visit(b, loops, values) for b in nested(s))

    return any(visit(p, {}, {}) for p in (block.body, block.init) if p is not None)


# Whether parts of a loop's body may be interleaved or run one after the other.
#
# In the first order each iteration runs all parts; in the second each part runs all iterations. The
# orders differ only for pairs of an iteration of an earlier part and one of a later part that
# precedes it. If no such pair touches the same element, both orders mean the same.


def require_interleaving(
    above: Sequence[For], chain: Sequence[For], parts: Sequence[Stmt], what: str
) -> None:
    """Require that `parts` mean the same in one nest of loops `chain` and in a separate nest each.

    `chain` are perfectly nested loops, `parts` the statements in them, in order, and `above` the
    loops around them.
    """
    ranges = loop_ranges((*above, *chain))
    uses = [_uses(part) for part in parts]
    for k, later in enumerate(uses):
        for earlier in uses[:k]:
            for buffer in earlier.keys() & later.keys():
                for a in earlier[buffer]:
                    for b in later[buffer]:
                        if not (a.writes or b.writes) or ordered(a.access, b.access, chain, ranges):
                            continue
                        found = conflicts([(b, a)], chain, ranges)
                        require(
                            found.apart,
                            "cannot {0}: block {1} may {2} an element of {3} in an iteration of "
                            "{4} after the one in which block {5} {6} it",
                            what,
                            a.block.label.name,
                            "write" if a.writes else "read",
                            buffer.name,
                            lambda: ", ".join(s.var.name for s in chain),
                            b.block.label,
                            "writes" if b.writes else "reads",
                            example=found.example,
                        )


def _uses(part: Stmt) -> dict[Buffer, list[Use]]:
    """The accesses of each buffer."""
    found: dict[Buffer, list[Use]] = {}
    for block in blocks_in(part):
        for buffer in buffers_in_order((*block.writes, *block.reads)):
            found.setdefault(buffer, []).extend(uses_of(block, buffer, part))
    return found


def ordered(a: Access, b: Access, chain: Sequence[For], ranges: Ranges) -> bool:
    """Whether no iteration of `chain` touches with `a` what an earlier one touches with `b`."""
    loops = [s for s in chain if not certain(s.extent == 1)]
    return distinct([a, b], loops, ranges) or all(
        _apart(a, b, loops, k, ranges) for k in range(len(loops))
    )


def _apart(a: Access, b: Access, loops: Sequence[For], level: int, ranges: Ranges) -> bool:
    """Whether `a` and `b` touch different elements if the loop at `level` is ahead in `a`.

    Outer loops are at the same iteration for both, inner loops at any.
    """
    ahead = loops[level]
    by = Var(f"{ahead.var.name}_ahead")
    values: dict[Var, Expr] = {ahead.var: ahead.var + by + 1}
    own: dict[Var, tuple[Dim, Dim]] = {**ranges, by: (0, ahead.extent - 2)}
    for s in loops[level + 1 :]:
        other = Var(s.var.name)
        values[s.var] = other
        own[other] = (0, s.extent - 1)
    within = [binary(Op.LT, values[ahead.var], as_expr(ahead.extent))]
    for r, q in zip(a.ranges, b.ranges, strict=True):
        mine = _swept(Range(substitute(r.min, values), r.extent), a, own)
        its = _swept(q, b, own)
        if mine is None or its is None:
            continue
        if _before(mine, its, own, within) or _before(its, mine, own, within):
            return True
    return False


def _swept(r: Range, access: Access, ranges: Ranges) -> Range | None:
    """The range that `r` covers while the loops inside an access sweep, if that is known."""
    found = hull(r.min, access.inner, ranges)
    return None if found is None else Range(found.min, found.extent + (r.extent - 1))


def _before(a: Range, b: Range, ranges: Ranges, assuming: Sequence[Expr]) -> bool:
    """Whether all of `a` comes before all of `b`."""
    return prove(binary(Op.LE, a.min + as_expr(a.extent), b.min), ranges, assuming) is True

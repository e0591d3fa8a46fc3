"""Whether parts of a loop's body may be interleaved or run one after the other.

In the first order each iteration runs all parts; in the second each part runs all iterations. The
orders differ only for pairs of an iteration of an earlier part and one of a later part that
precedes it. If no such pair touches the same element, both orders mean the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..tir.bounds import prove
from ..tir.dependence import Access
from ..tir.ir import Buffer, Dim, Expr, For, Op, Range, Stmt, Var, as_expr, binary
from ..tir.regions import hull
from ..tir.visit import substitute
from .block_queries import Ranges, buffers_in_order, loop_ranges
from .distinct import distinct
from .find import blocks_in
from .loop_dependence import Use, conflicts, uses_of
from .require import certain, require


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

"""What rows have in common: the parts of expressions that depend on decisions alone."""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce

import numpy as np
import numpy.typing as npt

from ....tir.ir import INDEX, Binary, Const, Dim, Expr, Op, Var, as_dim, binary
from ....tir.structure import key_of
from ....tir.visit import rewrite_children
from ....tir.windows import variables

Ints = npt.NDArray[np.int64]
_HASH = 0x9E3779B97F4A7C15
"""An odd number whose powers differ in all bits."""


class DecidedParts:
    """Expressions in which a variable stands for each part that is free of `others`.

    `names` are these variables, and `exprs` what each of them stands for. Sums and products are
    ordered so that these parts are large: int64 arithmetic wraps around, and is the same in any
    order.
    """

    def __init__(self, others: Collection[Var]) -> None:
        self._others = frozenset(others)
        self._known: dict[object, Var] = {}
        self._decided: dict[Expr, bool] = {}
        self.names: list[Var] = []
        self.exprs: list[Expr] = []

    def __call__(self, dim: Dim) -> Dim:
        return dim if isinstance(dim, int) else as_dim(self._visit(dim))

    def _visit(self, e: Expr) -> Expr:
        if type(e) is Const or e in self._others:
            return e
        if e.dtype == INDEX and self._is_decided(e):
            return self._part(e)
        if type(e) is Binary and e.dtype == INDEX and e.op in (Op.ADD, Op.MUL):
            terms = _terms(e, e.op)
            decided = [t for t in terms if self._is_decided(t)]
            operands = [self._visit(t) for t in terms if not self._is_decided(t)]
            if decided:
                operands.append(self._visit(reduce(lambda a, b: binary(e.op, a, b), decided)))
            return reduce(lambda a, b: binary(e.op, a, b), operands)
        return rewrite_children(e, self._visit)

    def _is_decided(self, e: Expr) -> bool:
        decided = self._decided.get(e)
        if decided is None:
            if type(e) is Binary:
                decided = self._is_decided(e.a) and self._is_decided(e.b)
            else:
                decided = variables(e).isdisjoint(self._others)
            self._decided[e] = decided
        return decided

    def _part(self, e: Expr) -> Expr:
        key = key_of(e)
        part = self._known.get(key)
        if part is None:
            part = self._known[key] = Var(f"d{len(self.names)}")
            self.names.append(part)
            self.exprs.append(e)
        return part


def _terms(e: Expr, op: Op) -> list[Expr]:
    """The operands of a sum, or of a product."""
    if type(e) is Binary and e.op is op and e.dtype == INDEX:
        return [*_terms(e.a, op), *_terms(e.b, op)]
    return [e]


def distinct_rows(rows: Ints) -> tuple[Ints, Ints]:
    """The places of the different rows of a matrix, and the number of each row among these."""
    with np.errstate(over="ignore"):
        key = np.zeros(len(rows), dtype=np.uint64)
        for column in rows.T:
            key = (key ^ column.astype(np.uint64)) * np.uint64(_HASH)
            key ^= key >> np.uint64(29)
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    place = place.ravel()
    if not np.array_equal(rows[first[place]], rows):  # two rows have one key
        _, first, place = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, place.ravel()

"""Einstein summation: operand after operand, by products of matrices where labels are summed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...base.errors import ModelError
from ..builder import Builder
from ..ir import Value


@dataclass(frozen=True)
class _Labelled:
    """A value with a label for each dimension."""

    value: Value
    labels: str

    def extent(self, label: str) -> int:
        """The extent of a label; 1 if there is none."""
        place = self.labels.find(label)
        return 1 if place < 0 else self.value.shape[place]


def einsum(b: Builder, equation: str, operands: Sequence[Value]) -> Value:
    """The sum of products that an equation says, as numpy writes it.

    Raises `ModelError` for an equation that does not go with the operands.
    """
    terms, result = _parsed(equation, [v.type.rank for v in operands])
    own = [_diagonal(b, v, labels) for v, labels in zip(operands, terms, strict=True)]
    left, *rest = own
    for n, right in enumerate(rest):
        needed = set(result).union(*(t.labels for t in rest[n + 1 :]))
        left = _product(b, left, right, needed)
    left = _summed(b, left, set(result))
    return _arranged(b, left, result)


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The labels of the operands and of the result; those of an ellipsis are digits."""
    text = equation.replace(" ", "")
    given, arrow, wanted = text.partition("->")
    terms = given.split(",")
    if len(terms) != len(ranks):
        raise ModelError("{0}: {1} terms for {2} operands", equation, len(terms), len(ranks))
    lead = [r - len(t.replace("...", "")) for t, r in zip(terms, ranks, strict=True)]
    most = max((n for t, n in zip(terms, lead, strict=True) if "..." in t), default=0)
    digits = "".join(chr(ord("0") + d) for d in range(most))
    for term, rank, more in zip(terms, ranks, lead, strict=True):
        if more < 0 or (more > 0 and "..." not in term):
            raise ModelError("{0}: {1} for {2} dimensions", equation, term, rank)
    full = [
        t.replace("...", digits[most - n :] if n else "") for t, n in zip(terms, lead, strict=True)
    ]
    if not arrow:
        joined = "".join(terms).replace("...", "")
        wanted = "..." * ("..." in text) + "".join(
            sorted(c for c in joined if joined.count(c) == 1)
        )
    result = wanted.replace("...", digits)
    if len(set(result)) != len(result) or not set(result) <= set("".join(full)):
        raise ModelError("{0}: the result has labels that operands have not, or twice", equation)
    return full, result


def _diagonal(b: Builder, value: Value, labels: str) -> _Labelled:
    """The elements at which dimensions of one label have one index."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            extent = value.shape[first]
            if value.shape[second] != extent:
                raise ModelError("label {0} is {1} and {2}", label, extent, value.shape[second])
            rest = [d for d in range(len(labels)) if d not in (first, second)]
            value = b.add("transpose", value, axes=(*rest, first, second))
            lead = value.shape[:-2]
            value = b.add("reshape", value, shape=(*lead, extent * extent))
            rank = len(lead) + 1
            value = b.add(
                "slice", value, starts=(0,) * rank, steps=(*(1,) * len(lead), extent + 1),
                shape=(*lead, extent),
            )  # fmt: skip
            labels = "".join(labels[d] for d in rest) + label
    return _Labelled(value, labels)


def _summed(b: Builder, term: _Labelled, needed: set[str]) -> _Labelled:
    axes = tuple(d for d, label in enumerate(term.labels) if label not in needed)
    if not axes:
        return term
    value = b.add("sum", term.value, axes=axes)
    return _Labelled(value, "".join(c for c in term.labels if c in needed))


def _arranged(b: Builder, term: _Labelled, labels: str) -> Value:
    """The value with its dimensions in the order of labels; those that it lacks are 1."""
    value = term.value
    own = [label for label in labels if label in term.labels]
    axes = tuple(term.labels.index(label) for label in own)
    if axes != tuple(range(len(axes))):
        value = b.add("transpose", value, axes=axes)
    shape = tuple(term.extent(label) for label in labels)
    result: Value = value if shape == value.shape else b.add("reshape", value, shape=shape)
    return result


def _product(b: Builder, left: _Labelled, right: _Labelled, needed: set[str]) -> _Labelled:
    """The product of two operands, summed over the labels that are not needed."""
    left = _summed(b, left, needed | set(right.labels))
    right = _summed(b, right, needed | set(left.labels))
    both = [c for c in left.labels if c in right.labels]
    for label in both:
        extents = {left.extent(label), right.extent(label)} - {1}
        if len(extents) > 1:
            raise ModelError("label {0} is {1}", label, sorted(extents))
    inner = "".join(c for c in both if c not in needed)
    if any(left.extent(c) != right.extent(c) for c in inner) or not inner:
        union = left.labels + "".join(c for c in right.labels if c not in left.labels)
        value = b.add("multiply", _arranged(b, left, union), _arranged(b, right, union))
        return _summed(b, _Labelled(value, union), needed)
    batch = "".join(c for c in both if c in needed)
    rows = "".join(c for c in left.labels if c not in both)
    columns = "".join(c for c in right.labels if c not in both)

    def matrix(term: _Labelled, first: str, second: str) -> Value:
        value = _arranged(b, term, batch + first + second)
        sides = (math.prod(map(term.extent, side)) for side in (first, second))
        shape = (*(term.extent(c) for c in batch), *sides)
        result: Value = value if shape == value.shape else b.add("reshape", value, shape=shape)
        return result

    value = b.add("matmul", matrix(left, rows, inner), matrix(right, inner, columns))
    labels = batch + rows + columns
    sides = ((left.extent(c), right.extent(c)) for c in labels)
    whole = tuple(second if first == 1 else first for first, second in sides)
    value = b.add("reshape", value, shape=whole)
    return _Labelled(value, labels)

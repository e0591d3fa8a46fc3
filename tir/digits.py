"""Digits of variables: `v // low % size`, the indices that fused loops leave behind.

Join adjacent dimensions that are accessed at the digits of one number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from .ir import Binary, Buffer, Const, Dim, Expr, Op, Var
from .polynomial import Poly, add, constant
from .simplify import Simplifier
from .structure import same


class Digit(NamedTuple):
    """`var // low % size`, of a variable from zero on. It has the values 0 .. size - 1."""

    var: Var
    low: int
    size: int


def digit_of(s: Simplifier, atom: Expr) -> Digit | None:
    """The digit that an atom of `s` is; `None` if it is none of a variable of known range."""
    if type(atom) is Var:
        first, last = s.ranges.get(atom, (None, None))
        return Digit(atom, 1, last + 1) if first == 0 and isinstance(last, int) else None
    op, a, b = s.definitions.get(atom, (None, {}, {}))
    inner, n = _alone(a), constant(b)
    digit = None if inner is None else digit_of(s, inner)
    if digit is None or n is None or n < 1:
        return None
    var, low, size = digit
    whole = size * low > s.ranges[var][1]  # nothing is cut off above
    if op is Op.FLOORDIV and (whole or size % n == 0):
        return Digit(var, low * n, -(-size // n))
    if op is Op.MOD and (whole or size % n == 0 or size <= n):
        return Digit(var, low, min(size, n))
    return None


def _alone(p: Poly) -> Expr | None:
    """The atom that a polynomial is."""
    if len(p) != 1:
        return None
    ((key, c),) = p.items()
    return key if c == 1 and isinstance(key, Expr) else None


def free(digits: Sequence[Digit], extent: int) -> bool:
    """Whether digits of a variable below `extent` take all combinations of their values."""
    reached = 1
    for d in sorted(digits, key=lambda d: d.low * d.size):
        if d.size > 1:
            if d.low % reached:
                return False
            reached = d.low * d.size
    return extent % reached == 0


def telling(digits: Sequence[Digit], extent: int) -> bool:
    """Whether digits of a variable below `extent` determine it."""
    reached = 1
    for d in sorted(digits, key=lambda d: d.low):
        if d.low > reached:
            return False
        if reached % d.low == 0:
            reached = max(reached, d.low * d.size)
    return reached >= extent


class Joined(NamedTuple):
    """An access to a buffer with adjacent dimensions joined; the order of elements is the same.

    `dims` has the dimensions of the buffer that each dimension joins.
    """

    shape: tuple[Dim, ...]
    indices: tuple[Expr, ...]
    dims: tuple[tuple[int, ...], ...]


def joined(buffer: Buffer, indices: tuple[Expr, ...]) -> Joined:
    """An access with each run of indices that are the digits of one number joined to that number.

        A[i, e // 8, e % 8], of shape (4, 6, 8)   ->   A[i, e], of shape (4, 48)

        A[e // 32, (e % 16 // 8 + e // 16 * 2) % 4, e % 8], of shape (6, 4, 8)   ->   A[e]

    Remainders are by the sizes of their dimensions. Multiples of these may have been left out of
    quotients and remainders. Buffers with strides of their own stay as they are.
    """
    shape, found = list(buffer.shape), list(indices)
    dims: list[tuple[int, ...]] = [(d,) for d in range(len(shape))]
    if buffer.strides is None:
        for d in range(len(shape) - 2, -1, -1):
            size, low = shape[d], shape[d + 1]
            if not isinstance(size, int) or not isinstance(low, int):
                continue
            number = _number(found[d], found[d + 1], size, low)
            if number is not None:
                shape[d : d + 2] = [size * low]
                found[d : d + 2] = [number]
                dims[d : d + 2] = [dims[d] + dims[d + 1]]
        for last in range(len(shape) - 1, 0, -1):
            if last < len(shape) and (run := _run(found, shape, last)) is not None:
                d, number = run
                shape[d : last + 1] = [math.prod(cast("list[int]", shape[d : last + 1]))]
                found[d : last + 1] = [number]
                dims[d : last + 1] = [tuple(n for joint in dims[d : last + 1] for n in joint)]
    return Joined(tuple(shape), tuple(found), tuple(dims))


def _run(indices: Sequence[Expr], shape: Sequence[Dim], last: int) -> tuple[int, Expr] | None:
    """The first of the dimensions up to `last` whose indices are digits of one number, and that.

    From the last dimension outwards, elements are numbered by the dimensions so far: `number`, or
    its remainder by their size if that was `cut` off. A quotient of it by that size, in the next
    index, tells that both are digits of the number that they make together.
    """
    if not any(map(_has_quotient, indices[:last])):
        return None
    s = Simplifier()
    size, found = 1, None
    number: Poly = {}
    cut = False
    for d in range(last, -1, -1):
        extent = shape[d]
        if not isinstance(extent, int):
            break
        rest = _operand(indices[d], Op.MOD, extent)
        terms = _terms(indices[d] if rest is None else rest)
        quotient = next((t for t in terms if _is_quotient(s, t, number, size)), None)
        if quotient is None and cut:
            break
        for term in terms:
            if term is not quotient:
                number = add(number, s.poly(term), size)
        size, cut = size * extent, rest is not None
        if quotient is not None:
            whole = s.build(number)
            found = d, whole % size if cut else whole
    return found


def _terms(e: Expr) -> list[Expr]:
    """What `e` is the sum of."""
    return [*_terms(e.a), *_terms(e.b)] if type(e) is Binary and e.op is Op.ADD else [e]


def _is_quotient(s: Simplifier, term: Expr, number: Poly, size: int) -> bool:
    """Whether a term is the quotient of `number` by `size`."""
    of = _operand(term, Op.FLOORDIV, size)
    return of is not None and s.poly(of) == number


def _has_quotient(e: Expr) -> bool:
    return type(e) is Binary and (e.op is Op.FLOORDIV or _has_quotient(e.a) or _has_quotient(e.b))


def two_digits(e: Expr, sizes: Mapping[Var, Dim]) -> tuple[Var, Var] | None:
    """The variables `h` and `l` of the number `h * n + l`, where `l` is below `n`, by `sizes`."""
    if not (type(e) is Binary and e.op is Op.ADD and type(e.b) is Var and type(e.a) is Binary):
        return None
    high, by = e.a.a, e.a.b
    if e.a.op is not Op.MUL or type(high) is not Var or type(by) is not Const:
        return None
    size = sizes.get(e.b)
    return (high, e.b) if high in sizes and isinstance(size, int) and size == by.value else None


def _number(high: Expr, low: Expr, size: int, by: int) -> Expr | None:
    """The number of which `low` is the remainder by `by`, and `high` the quotient below `size`."""
    number = _operand(low, Op.MOD, by)
    if number is None:
        return None
    quotient = _operand(high, Op.FLOORDIV, by)
    if quotient is not None and same(quotient, number):
        return number
    rest = _operand(high, Op.MOD, size)
    quotient = None if rest is None else _operand(rest, Op.FLOORDIV, by)
    return number % (size * by) if quotient is not None and same(quotient, number) else None


def _operand(e: Expr, op: Op, by: int) -> Expr | None:
    """The operand of `e`, if it applies `op` with the number `by`."""
    if type(e) is Binary and e.op is op and type(e.b) is Const and e.b.value == by:
        return e.a
    return None

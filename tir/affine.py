"""Exact queries on quasi-affine accesses, answered by the integer set library (isl).

Used where simple structure does not decide, since a query takes a millisecond. All functions return
`None` if an expression is not quasi-affine (it depends on data, or multiplies variables).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from ..base.errors import VerifyError
from .bounds import variables
from .ir import Binary, Call, Cast, Const, Dim, Expr, Op, Var
from .polynomial import HIGH, LOW
from .simplify import Simplifier
from .visit import walk

if TYPE_CHECKING:
    import islpy

    Elements: TypeAlias = islpy.Map

T = TypeVar("T")

LIMIT = 1_000_000
"""Operations of the library for one question: about a second."""

_TEXT = {
    Op.ADD: "({0} + {1})",
    Op.SUB: "({0} - {1})",
    Op.MIN: "min({0}, {1})",
    Op.MAX: "max({0}, {1})",
    Op.LT: "({0} < {1})",
    Op.LE: "({0} <= {1})",
    Op.GT: "({0} > {1})",
    Op.GE: "({0} >= {1})",
    Op.EQ: "({0} = {1})",
    Op.NE: "({0} != {1})",
    Op.AND: "({0} and {1})",
    Op.OR: "({0} or {1})",
}
_DIVISIONS = {Op.FLOORDIV: "floor(({0}) / {1})", Op.MOD: "(({0}) mod {1})"}


class Box(NamedTuple):
    """Variables with their extents, and conditions on them."""

    extents: Mapping[Var, int]
    conditions: Sequence[Expr]


def text(e: Expr, names: Mapping[Var, str]) -> str | None:
    """`e` in the notation of the library; `None` if it is not quasi-affine."""
    match e:
        case Var():
            return names.get(e)
        case Const(value=value):
            return str(value).lower() if isinstance(value, bool) else str(value)
        case Binary(op=op):
            a, b = text(e.a, names), text(e.b, names)
            if a is None or b is None:
                return None
            if op is Op.MUL:
                return f"({a} * {b})" if type(e.a) is Const or type(e.b) is Const else None
            if op in _DIVISIONS:
                return _division(op, a, int(e.b.value)) if type(e.b) is Const else None
            template = _TEXT.get(op)
            return None if template is None else template.format(a, b)
        case Call(fn="neg" | "not" as fn, args=(a,)):
            inner = text(a, names)
            return None if inner is None else f"({'-' if fn == 'neg' else 'not '}{inner})"
        case _:
            return None


def _division(op: Op, a: str, by: int) -> str | None:
    """The library divides by positive numbers: `a // -n` is `-a // n`, `a % -n` is `-(-a % n)`."""
    if by > 0:
        return _DIVISIONS[op].format(a, by)
    if by >= -1:  # the least integer has no opposite
        return None
    negative = _DIVISIONS[op].format(f"-{a}", -by)
    return negative if op is Op.FLOORDIV else f"(-{negative})"


def exact_ends(e: Expr, extents: Mapping[Var, int]) -> tuple[int, int] | None:
    """The least and the greatest value of a quasi-affine expression, conditions counting as 0 or 1.

    `None` where a part of it may leave int64, and wrap around: the library's integers do not.
    """
    match e:
        case Var():
            n = extents.get(e)
            return None if n is None else (0, max(n - 1, 0))
        case Const(value=int() as value):  # bools are
            return int(value), int(value)
        case Binary(op=op):
            a, b = exact_ends(e.a, extents), exact_ends(e.b, extents)
            if a is None or b is None:
                return None
            low, high = _ends_of(op, a, b)
            return (low, high) if low >= LOW and high <= HIGH else None
        case Call(fn="neg", args=(x,)):
            inner = exact_ends(x, extents)
            return None if inner is None or inner[0] == LOW else (-inner[1], -inner[0])
        case Call(fn="not", args=(x,)):
            return None if exact_ends(x, extents) is None else (0, 1)
        case _:
            return None


def _ends_of(op: Op, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    match op:
        case Op.ADD:
            return a[0] + b[0], a[1] + b[1]
        case Op.SUB:
            return a[0] - b[1], a[1] - b[0]
        case Op.MUL:
            corners = [x * y for x in a for y in b]
            return min(corners), max(corners)
        case Op.FLOORDIV | Op.MOD:
            if b[0] != b[1] or b[0] == 0:
                return LOW - 1, HIGH + 1  # no quasi-affine expression
            by = b[0]
            if op is Op.MOD:
                return min(by + 1, 0), max(by - 1, 0)
            corners = [x // by for x in a]
            return min(corners), max(corners)
        case Op.MIN:
            return min(a[0], b[0]), min(a[1], b[1])
        case Op.MAX:
            return max(a[0], b[0]), max(a[1], b[1])
        case _:
            return 0, 1


def elements(
    indices: Sequence[Expr],
    shape: Sequence[Dim],
    box: Box,
    shared: Sequence[Var],
    certain: bool,
) -> Elements | None:
    """The map from the variables in `shared` to the elements within `shape` that an access touches.

    With `certain`, only elements that are certainly touched; `None` if that is not quasi-affine, or
    may wrap around. Otherwise all that may be touched: such conditions and indices may be anything.
    A certain map is used to cover elements within the shape, so it does not repeat those limits:
    subtracting a set with a limit is a separate query for each side.
    """
    moving = {v: n for v, n in box.extents.items() if v not in set(shared)}
    names = {v: f"v{k}" for k, v in enumerate(box.extents)}
    names |= {v: "0" for v, n in moving.items() if n == 1}  # each variable costs time
    facts = _texts(box.conditions, box.extents, names)
    places = _texts(indices, box.extents, names)
    if certain and None in (*facts, *places):
        return None
    limited = moving if certain else box.extents
    limits = [f"0 <= {names[v]} < {n}" for v, n in limited.items()]
    limits += [f for f in facts if f is not None]
    outputs = [f"e{d}" for d in range(len(places))]
    for output, place, size in zip(outputs, places, shape, strict=True):
        if not certain:
            limits.append(f"0 <= {output} < {size}")
        if place is not None:
            limits.append(f"{output} = {place}")
    fixed = ", ".join(names[v] for v in shared)
    swept = ", ".join(names[v] for v, n in moving.items() if n != 1)
    exists = f"exists {swept}: " if swept else ""
    body = " and ".join(limits) or "true"
    relation = f"{{ [{fixed}] -> [{', '.join(outputs)}] : {exists}{body} }}"
    return _bounded(lambda isl, context: isl.Map.read_from_str(context, relation))


def _texts(
    exprs: Sequence[Expr], extents: Mapping[Var, int | None], names: Mapping[Var, str]
) -> list[str | None]:
    """Those that are quasi-affine and do not wrap around.

    Where variables without an extent are in them, only what is divided must not: other indices and
    bounds are checked where they are used.
    """
    known = {v: n for v, n in extents.items() if n is not None}
    found: list[str | None] = []
    for e in without_casts(exprs, extents):
        if known.keys() >= set(variables(e)):
            exact = exact_ends(e, known) is not None
        else:
            exact = all(
                _fits(n.a, known) for n in walk(e) if type(n) is Binary and n.op in _DIVISIONS
            )
        found.append(text(e, names) if exact else None)
    return found


def _fits(e: Expr, known: Mapping[Var, int]) -> bool:
    """Whether an expression stays within int64, with any value of the variables not `known`."""
    s = Simplifier({v: (0, max(n - 1, 0)) for v, n in known.items()})
    return s.fits(s.poly(e))


def without_casts(exprs: Sequence[Expr], extents: Mapping[Var, int | None]) -> Sequence[Expr]:
    """`exprs` without the casts that keep all values for variables within their extents."""
    if not any(type(n) is Cast for e in exprs for n in walk(e)):
        return exprs
    s = Simplifier({v: (0, n - 1) for v, n in extents.items() if n is not None})
    return [s(e) for e in exprs]


class Solutions:
    """The integer values of variables under which conditions hold."""

    def __init__(self, variables: Sequence[Var], values: Any, *, exact: bool) -> None:
        self._variables = variables
        self._values = values
        self.exact = exact
        """Whether all conditions were quasi-affine; otherwise there may be fewer solutions."""

    @cached_property
    def empty(self) -> bool:
        """Whether there are surely none."""
        return _bounded(lambda _isl, _context: bool(self._values.is_empty())) is True

    def first(self) -> dict[Var, int] | None:
        """The lexicographically first solution; `None` if there is none or it takes too long."""

        values = _bounded(lambda isl, _context: _first(isl, self._values, len(self._variables)))
        return None if values is None else dict(zip(self._variables, values, strict=True))


def solve(extents: Mapping[Var, int | None], conditions: Sequence[Expr]) -> Solutions | None:
    """The values of variables from zero on, below their extents, for which `conditions` hold.

    A variable without an extent may be any integer. Conditions that are not quasi-affine, or may
    wrap around, are left out. `None` if the query takes too long.
    """
    names = {v: f"v{k}" for k, v in enumerate(extents)}
    facts = _texts(conditions, extents, names)
    limits = [f"0 <= {names[v]} < {n}" for v, n in extents.items() if n is not None]
    limits += [f for f in facts if f is not None]
    values = _bounded(lambda isl, context: _set(isl, context, names.values(), limits))
    return None if values is None else Solutions(list(extents), values, exact=None not in facts)


def unsatisfiable(names: Sequence[str], facts: Sequence[str]) -> bool:
    """Whether no integers for `names` satisfy all `facts`, which are in isl notation.

    False if the query takes too long.
    """
    return _bounded(lambda isl, context: bool(_set(isl, context, names, facts).is_empty())) is True


def _set(isl: Any, context: Any, names: Iterable[str], facts: Sequence[str]) -> Any:
    text = f"{{ [{', '.join(names)}] : {' and '.join(facts) or 'true'} }}"
    return isl.Set.read_from_str(context, text)


def covered(read: Elements, writes: Iterable[Elements]) -> bool:
    """Whether every element that `read` touches is shown to be touched by a map in `writes`."""

    def ask(_isl: Any, _context: Any) -> bool:
        rest = read
        for w in writes:
            rest = _without(rest, w)
            if rest.is_empty():
                return True
        return bool(rest.is_empty())

    return _bounded(ask) is True


def first_beyond(read: Elements, writes: Iterable[Elements]) -> tuple[list[int], list[int]] | None:
    """The first values of the shared variables, and the element, that only `read` touches."""

    def ask(isl: Any, _context: Any) -> tuple[list[int], list[int]] | None:
        rest = read
        for w in writes:
            rest = _without(rest, w)
        shared, count = read.dim(isl.dim_type.in_), read.dim(isl.dim_type.out)
        values = _first(isl, rest.wrap(), shared + count)
        return None if values is None else (values[:shared], values[shared:])

    return _bounded(ask)


def _without(read: Elements, written: Elements) -> Elements:
    """The part of `read` that is not in `written`.

    isl takes up to 1000 times as long, or too long, to subtract iterations that it has to find for
    an element whose index mixes digits of them, as in `v % 2 + v % 6 * 2`. The intersection relates
    them to the iterations that read the element.
    """
    return read.subtract(written.intersect(read))


def _first(isl: Any, points: Any, count: int) -> list[int] | None:
    """The `count` coordinates of the lexicographically first of `points`; `None` if none."""
    point = points.lexmin().sample_point()
    if point.is_void():
        return None
    kind = isl.dim_type.set
    return [point.get_coordinate_val(kind, k).to_python() for k in range(count)]


def overlap(a: Elements, b: Elements, position: int) -> bool:
    """Whether `a` and `b` may touch one element in two iterations that differ at `position`.

    The variables before `position` are the same in both.
    """

    def ask(isl: Any, context: Any) -> bool:
        n = a.dim(isl.dim_type.in_)
        left = ", ".join(f"x{k}" for k in range(n))
        right = ", ".join(f"y{k}" for k in range(n))
        same = "".join(f"x{k} = y{k} and " for k in range(position))
        text = f"{{ [{left}] -> [{right}] : {same}x{position} != y{position} }}"
        apart = isl.Map.read_from_str(context, text)
        return not a.apply_range(b.reverse()).intersect(apart).is_empty()

    return _bounded(ask) is not False


def _bounded(ask: Callable[[Any, Any], T]) -> T | None:
    """The answer to a query, or `None` if it takes more than `LIMIT` operations."""
    isl, context = _library()
    context.reset_operations()
    try:
        return ask(isl, context)
    except isl.Error:
        return None


@cache
def _library() -> tuple[Any, Any]:
    try:
        import islpy
    except ImportError as error:
        raise VerifyError(
            "islpy is needed to decide whether this program is right",
            hint="install it: pip install islpy",
        ) from error
    context = islpy.Context()
    context.set_max_operations(LIMIT)
    return islpy, context

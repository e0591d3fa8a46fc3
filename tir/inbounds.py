"""Verify bounds: accesses, divisors, bindings of iteration variables, and `value_range` of stores.

The analysis is path-sensitive: an expression in a branch of `select` or `If`, under a predicate or
a mask, is proved under that condition. A block's body is first checked for its whole domain, then,
if that fails, for the values that its iteration variables take in its loops.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base import dtypes
from ..base.errors import VerifyError
from .bounds import bound, truth
from .contradiction import contradict
from .inequality import decide
from .ir import (
    FALSE,
    INDEX,
    TRUE,
    Cast,
    Const,
    Dim,
    Expr,
    IterKind,
    Load,
    Op,
    Range,
    Region,
    Select,
    as_expr,
    binary,
    call,
    cast,
    const,
)
from .polynomial import Poly, add, number
from .simplify import Simplifier
from .structure import same
from .survey import Binding, Division, Place, Stored, Survey, Touch, under
from .visit import children, rewrite_children, walk


class InBounds:
    """Questions about one surveyed program."""

    def __init__(self, survey: Survey) -> None:
        self.survey = survey

    def check(self) -> None:
        """Raise `VerifyError` for the first access, division or binding that is not shown safe."""
        for binding in self.survey.bindings:
            self._binding(binding)
        for touch in self.survey.touches:
            self._touch(touch)
        for division in self.survey.divisions:
            self._division(division)
        for stored in self.survey.stored:
            self._stored(stored)

    def within(self, e: Expr, size: Dim, place: Place) -> bool:
        """Whether `0 <= e < size` is shown at `place`."""
        p = self.survey.plain.poly(e)
        low, high = self.survey.plain.interval(p)
        if low >= 0 and isinstance(size, int) and high < size:
            return True
        below, above = binary(Op.GE, e, const(0)), binary(Op.LT, e, as_expr(size))
        if self.holds(below, place) and self.holds(above, place):
            return True
        outside = binary(Op.OR, binary(Op.LT, e, const(0)), binary(Op.GE, e, as_expr(size)))
        return self._impossible(outside, place) or self._each_side(e, size, place)

    def _each_side(self, e: Expr, size: Dim, place: Place) -> bool:
        """Whether `e` has a select, and is within `size` with either side in its place."""
        chosen = _select_in(e)
        if chosen is None:
            return False
        cond = chosen.cond
        return all(
            self.within(_put(e, chosen, side), size, under(place, known))
            for side, known in ((chosen.then, cond), (chosen.other, call("not", cond)))
        )

    def _impossible(self, condition: Expr, place: Place) -> bool:
        """Whether integer sets show that `condition` holds nowhere at `place`."""
        survey = self.survey
        resolved = [survey.resolved(c) for c in (condition, *place.conditions)]
        return contradict(resolved, survey.ranges)

    def _is_unreached(self, place: Place) -> bool:
        """Whether it is shown that nothing runs at `place`."""
        return self.holds(FALSE, place) or self._impossible(TRUE, place)

    def holds(self, condition: Expr, place: Place) -> bool:
        """Whether `condition` is shown at `place`."""
        if truth(self.survey.plain, condition) is True:
            return True
        if any(type(c) is Const and not c.value for c in place.conditions):
            return True  # nothing runs there
        survey = self.survey
        if place.conditions:
            s = Simplifier(survey.ranges, place.conditions)
            if s.impossible or truth(s, condition) is True:
                return True
        resolved = survey.resolved(condition)
        if resolved is condition:
            return False
        known = [survey.resolved(c) for c in place.conditions]
        return truth(Simplifier(survey.ranges, known), resolved) is True

    def _binding(self, binding: Binding) -> None:
        i, place = binding
        if self.within(i.value, i.extent, place):
            return
        raise VerifyError(
            "block {0}: the value {1} of {2} {3}; expected {4}",
            _name_of(binding, self.survey), i.value, i.var.name, self._lies(i.value, place),
            _places(i.extent), hint="guard the block by a predicate",
        )  # fmt: skip

    def _touch(self, touch: Touch) -> None:
        for d, (e, size) in enumerate(zip(touch.indices, touch.buffer.shape, strict=True)):
            if self.within(e, size, touch.place):
                continue
            raise VerifyError(
                "{0}: index {1} of {2}{3} {4}; expected {5} (shape {6}){7}",
                touch.place.name, e, touch.buffer.name, f" in dimension {d}",
                self._lies(e, touch.place), _places(size), list(touch.buffer.shape),
                _reduce_axes(e, touch.place),
                hint=self._advice(e, size),
            )  # fmt: skip

    def _advice(self, e: Expr, size: Dim) -> str:
        low, high = self.survey.plain.interval(self.survey.plain.poly(e))
        if high < 0 and isinstance(size, int):
            last = f", and {low} is written {size + low}" if -size <= low == high else ""
            return f"indices do not count from the end: the last one is {_last(size)}{last}"
        read = e.value if type(e) is Cast else e
        declare = None
        if type(read) is Load and dtypes.is_integer(read.dtype):
            name = read.buffer.name
            declare = f"declare the range of the indices in {name}: value_range=(0, {size})"
        if high - low >= 1 << 31:
            return declare or (
                "declare the range of the integers that the index is computed from, "
                f"value_range=(low, high), so that it lies in {_places(size)}"
            )
        pad = (
            "pad: te.select(condition, a[index], 0); or clamp the index: "
            f"a[te.maximum(te.minimum(index, {_last(size)}), 0)]; or make the buffer larger"
        )
        return pad if declare is None else f"{declare}; or {pad}"

    def _lies(self, e: Expr, place: Place) -> str:
        survey = self.survey
        known = [survey.resolved(c) for c in place.conditions]
        low, high = bound(survey.resolved(e), survey.ranges)
        guard = " where " + " and ".join(map(str, known)) if known else ""
        if low is None and high is None:
            return f"is not bounded{guard}"
        return f"is known to lie in [{low}, {high}]{guard}"

    def _division(self, division: Division) -> None:
        e, place = division
        if self._not_zero(e.b, place):
            return
        what = "zero" if type(e.b) is Const else "not shown to differ from zero"
        raise VerifyError(
            "{0}: the divisor {1} of {2} is {3}", place.name, e.b, e, what,
            hint="guard it: te.select(divisor != 0, a // divisor, 0)",
        )  # fmt: skip

    def _not_zero(self, e: Expr, place: Place) -> bool:
        if type(e) is Const:
            return e.value != 0 or self._is_unreached(place)
        if self.holds(binary(Op.NE, cast(INDEX, e), const(0)), place):
            return True
        if self._impossible(binary(Op.EQ, e, const(0, e.dtype)), place):
            return True
        # Conditions that no integer set describes, of products or floats, may fail at zero alone.
        zero = const(0, e.dtype)
        there = [self.survey.plain(_put(c, e, zero)) for c in place.conditions]
        return contradict(there, self.survey.ranges)

    def _stored(self, stored: Stored) -> None:
        """Refuse a value outside its buffer's range, which loads rely on; the caller's are checked
        by each call."""
        buffer, value, place = stored
        assert buffer.value_range is not None, "the survey lists no others"
        low, high = buffer.value_range
        above = binary(Op.SUB, cast(INDEX, value), const(low))
        if self.within(above, high - low, place):
            return
        raise VerifyError(
            "{0}: the value {1} that is stored to {2} {3}; expected {4} to {5}, its value_range",
            place.name, value, buffer.name, self._lies(cast(INDEX, value), place), low, high - 1,
            hint="bound it by minimum and maximum, computed in int64, or declare no value_range",
        )  # fmt: skip

    def covered(self, touch: Touch, regions: Sequence[Region]) -> bool:
        """Whether one of the declared regions covers the access, which is within its buffer.

        Integer sets, which take long, are asked where no region is seen to cover it.
        """
        declared = [r for r in regions if r.buffer is touch.buffer]
        return any(
            all(
                _is_whole(x, size) or shown(e, x, touch.place)
                for e, x, size in zip(touch.indices, r.ranges, r.buffer.shape, strict=True)
            )
            for shown in (self._in_range, self._in_range_exactly)
            for r in declared
        )

    def _in_range(self, e: Expr, r: Range, place: Place) -> bool:
        if same(e, r.min):
            return not isinstance(r.extent, int) or r.extent >= 1
        s = self.survey.plain
        offset = add(s.poly(e), s.poly(r.min), -1)
        extent: Poly = number(r.extent) if isinstance(r.extent, int) else s.poly(r.extent)
        if decide(s, Op.GE, offset, {}) and decide(s, Op.LT, offset, extent):
            return True
        return self.holds(binary(Op.GE, e, r.min), place) and self.holds(
            binary(Op.LT, e, r.min + as_expr(r.extent)), place
        )

    def _in_range_exactly(self, e: Expr, r: Range, place: Place) -> bool:
        return self.within(binary(Op.SUB, e, r.min), r.extent, place)


def _reduce_axes(e: Expr, place: Place) -> str:
    """The reduce axes in an index with their extents, as the end of a message."""
    block, used = place.block, set(walk(e))
    texts = [
        f"; {i.var.name} is the reduce axis {i.value} of extent {i.extent}"
        for i in (block.iters if block is not None else ())
        if i.kind is IterKind.REDUCE and i.var in used
    ]
    return "".join(texts)


def _select_in(e: Expr) -> Select | None:
    """A select that `e` computes with, none of those that only say where memory is read."""
    if type(e) is Select or type(e) is Load:
        return e if type(e) is Select else None
    below = (_select_in(c) for c in children(e) if isinstance(c, Expr))
    return next((found for found in below if found is not None), None)


def _put(e: Expr, old: Expr, new: Expr) -> Expr:
    """`e` with `new` for each expression of the structure of `old`."""
    if same(e, old):
        return new
    return rewrite_children(e, lambda n: _put(n, old, new) if isinstance(n, Expr) else n)


def _is_whole(r: Range, size: Dim) -> bool:
    starts = type(r.min) is Const and r.min.value == 0
    return starts and isinstance(r.extent, int) and isinstance(size, int) and r.extent == size


def _name_of(binding: Binding, survey: Survey) -> str:
    return next(b.label.name for b, _ in survey.blocks if binding.iter in b.iters)


def _places(size: Dim) -> str:
    """The indices of a dimension, for people."""
    return f"0 to {size - 1}" if isinstance(size, int) else f"0 to less than {size}"


def _last(size: Dim) -> str:
    """The last index of a dimension, for people."""
    return str(size - 1) if isinstance(size, int) else f"{size} - 1"

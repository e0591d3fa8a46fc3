"""Elements as other dtypes see their bits."""

from __future__ import annotations

from ...base import dtypes
from ..builder import Builder
from ..ir import Value
from .basics import cast_to, part, reshaped, stacked


def bits_as(b: Builder, x: Value, kind: str) -> Value:
    """The bits of integers as those of `int`s or `uint`s, or of floats as those of `uint`s."""
    return _same_width(b, x, f"{kind}{dtypes.info(x.dtype).bits}")


def bitcast(b: Builder, x: Value, to: str) -> Value:
    """The bits of `x` as those of a dtype; neither is bool.

    Of another width, the parts of an element are a dimension more, the lowest first: the last of
    the result if `to` is narrower, and the last of `x` if it is wider.
    """
    given, wanted = dtypes.info(x.dtype).bits, dtypes.info(to).bits
    if given != wanted:
        x = bits_as(b, x, "uint")
    if given > wanted:
        shifts = (b.constant(wanted * k, x.dtype) for k in range(given // wanted))
        parts = [b.add("shift_right", x, s) for s in shifts]
        x = stacked(b, [b.add("cast", p, dtype=f"uint{wanted}") for p in parts], x.type.rank)
    elif given < wanted:
        last = x.type.rank - 1
        total = None
        for k in range(wanted // given):
            own = cast_to(b, reshaped(b, part(b, x, last, k, 1), x.shape[:-1]), f"uint{wanted}")
            own = b.add("shift_left", own, b.constant(given * k, own.dtype))
            total = own if total is None else b.add("bitwise_or", total, own)
        assert total is not None
        x = total
    return _same_width(b, x, to)


def _same_width(b: Builder, x: Value, to: str) -> Value:
    return x if x.dtype == to else b.add("bitcast", x, source=x.dtype, to=to)

"""The result of `te.argmax` and `te.argmin`: two expressions, which are computed together."""

from __future__ import annotations

from typing import NoReturn

from ..errors import IRError
from .ir import PAIR_HINT, Expr

_OPERATORS = """
    add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow
    lt le gt ge neg pos abs
"""


class Pair(tuple[Expr, Expr]):
    """The index and the value. It is no number: arithmetic with it raises `IRError`."""

    __slots__ = ()


def _refuse(pair: Pair, *_: object) -> NoReturn:
    raise IRError("arithmetic takes one expression, found the pair {0!r}", pair, hint=PAIR_HINT)


for _name in _OPERATORS.split():
    setattr(Pair, f"__{_name}__", _refuse)

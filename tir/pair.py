"""The result of `te.argmax` and `te.argmin`: two expressions, which are computed together."""

from __future__ import annotations

from typing import NoReturn

from ..base.errors import IRError
from .ir import Expr

PAIR_HINT = "te.argmax and te.argmin return (index, value): write te.argmax(x, axis=r)[0], or [1]"
_OPERATORS = """
    add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod divmod rdivmod pow rpow
    and rand or ror xor rxor lshift rlshift rshift rrshift lt le gt ge eq ne
    neg pos abs invert round floor ceil trunc array_ufunc
"""


class Pair(tuple[Expr, Expr]):
    """The index and the value. It is no number: operators of expressions raise `IRError`.

    That includes `==`: of tuples it would be a Python bool, and `te.where` takes that as constant.
    """

    __slots__ = ()


def _refuse(pair: Pair, *_: object, **__: object) -> NoReturn:
    raise IRError("an operator takes one expression, found the pair {0!r}", pair, hint=PAIR_HINT)


for _name in _OPERATORS.split():
    setattr(Pair, f"__{_name}__", _refuse)

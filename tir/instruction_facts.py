"""Check the facts of an instruction that users give: their types and ranges."""

from __future__ import annotations

import math
import re

from ..base.errors import IRError
from .instruction import Cost, Unit
from .ir import Func

_INTRINSIC = re.compile(r"llvm\.[A-Za-z0-9_.]+")


def check_facts(
    name: object,
    programs: tuple[object, object],
    unit: object,
    requires: object,
    cost: object,
    code: object,
) -> None:
    """Raise `IRError` for a fact that has another type than its field, or no meaning.

    A cost that is no positive number would divide by zero in the estimate, and text that is no
    intrinsic would end up in the code.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise IRError("an instruction is named {0!r}; expected an identifier", name)
    if any(not isinstance(p, Func) for p in programs):
        raise IRError("{0}: expected two programs (Func), found {1!r:.80}", name, programs)
    if not isinstance(unit, Unit):
        raise IRError("{0}: unit: expected a Unit, found {1!r}", name, unit)
    if not isinstance(requires, tuple | str):
        raise IRError(
            "{0}: `requires` is {1!r}; expected a tuple of alternatives, each one a tuple of "
            "features", name, requires,
            hint="requires=(): every target of that kind has it",
        )  # fmt: skip
    if cost is not None:
        _check_cost(name, cost)
    intrinsic = unit.emitter == "intrinsic"
    if not isinstance(code, str) or (code and intrinsic and not _INTRINSIC.fullmatch(code)):
        raise IRError(
            "{0}: code: expected the name of an LLVM intrinsic, found {1!r}", name, code,
            hint="for instance llvm.x86.avx512.vpdpbusd.512; leave it out to generate code from "
            "the implementation",
        )  # fmt: skip


def _check_cost(name: str, cost: object) -> None:
    if not isinstance(cost, Cost):
        raise IRError("{0}: cost: expected a Cost or None, found {1!r}", name, cost)
    for field, least in (("cycles", "above 0"), ("latency", "above 0"), ("run_loads", "from 0 on")):
        value = getattr(cost, field)
        number = isinstance(value, int | float) and math.isfinite(value)
        if not number or value < 0 or (value == 0 and least == "above 0"):
            raise IRError(
                "{0}: cost: {1} is {2!r}; expected a finite number {3}", name, field, value, least
            )

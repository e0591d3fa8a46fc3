"""The registry of instructions: those of this package and those that users register.

Check the facts of an instruction that users give: their types and ranges.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from functools import cache

from ..base.errors import IRError
from ..target import Target
from . import cpu_instructions
from .instruction import VECTORS, Cost, Instruction, Product, Unit, product_in
from .instruction_check import check_instruction
from .ir import Func

TABLES: dict[str, tuple[Instruction, ...]] = {"cpu": cpu_instructions.INSTRUCTIONS}
"""The instructions of this package by the kind of target."""

_known = {i.name: i for table in TABLES.values() for i in table}


def register_intrin(
    name: str,
    semantics: Func,
    implementation: Func,
    *,
    unit: Unit = VECTORS,
    requires: tuple[tuple[str, ...], ...] = (),
    cost: Cost | None = None,
    code: str = "",
    init: str = "",
    write: str = "",
) -> Instruction:
    """Register an instruction for `tensorize`; rules and the estimate use it if the target has it.

    `semantics` and `implementation` are programs: what it computes, and the same in vector code.
    The other arguments are the fields of `Instruction`. If the implementation is a single `T.dot`
    or `T.matmul` and there is a `cost`, rules use the instruction for such products. `code` is the
    LLVM intrinsic that is called with the operands as vectors, or another key of the unit's
    emitter. Builds compare it with `semantics` where this machine executes it.

    Raises `IRError` if the name is taken, the programs do not have this form or do not compute the
    same on random and extreme numbers, or the facts do not fit them.
    """
    check_facts(name, (semantics, implementation), unit, requires, cost, code)
    if name in _known:
        raise IRError("an instruction named {0} exists already", name)
    for other in (init, write):
        if other and other not in _known:
            raise IRError("{0} names {1}, which is no instruction that is known", name, other)
    made = Instruction(
        name, lambda: (semantics, implementation), product_in(implementation), unit, requires, cost,
        code, init, write, home=sys._getframe(1).f_globals.get("__name__", "__main__"),
    )  # fmt: skip
    check_instruction(made)
    _known[name] = made
    forget_queries()
    return made


def forget_queries() -> None:
    """Clear cached queries by target."""
    for query in (instructions_of, products_of, instruction_for):
        query.cache_clear()


def find_instruction(name: str) -> Instruction | None:
    """The instruction of that name."""
    return _known.get(name)


def user_instructions() -> tuple[Instruction, ...]:
    """The instructions that users registered."""
    return tuple(i for i in _known.values() if i.home is not None)


def users_digests(text: str) -> dict[str, str]:
    """The digests of the users' instructions that the JSON text of a trace names, by name."""
    named = (i for i in user_instructions() if json.dumps(i.name) in text)
    return {i.name: hashlib.sha256(i.text.encode()).hexdigest() for i in named}


def users_digest(target: Target, program: str = "") -> str:
    """A digest of the users' instructions that rules or code for `target` may use, and of those
    that the text of a program names; empty if there are none."""
    used = [
        i
        for i in user_instructions()
        if (i.runs_on(target) and (i.cost or i.code)) or i.name in program
    ]
    texts = sorted(i.text for i in used)
    return hashlib.sha256("\0".join(texts).encode()).hexdigest() if texts else ""


def instruction_names() -> tuple[str, ...]:
    """The names of all instructions."""
    return tuple(sorted(_known))


@cache
def instructions_of(target: Target) -> tuple[Instruction, ...]:
    """The instructions of a target: those of users first, then in the order of the tables."""
    ordered = sorted(_known.values(), key=lambda i: i.home is None)
    return tuple(i for i in ordered if i.runs_on(target))


@cache
def products_of(target: Target) -> tuple[tuple[Instruction, Product, Cost], ...]:
    """The target's instructions for products, with the product and cost of each."""
    return tuple(
        (i, i.product, i.cost)
        for i in instructions_of(target)
        if i.product is not None and i.cost is not None
    )


@cache
def instruction_for(target: Target, product: Product) -> Instruction | None:
    """The instruction of the target whose code computes a product: the first of several."""
    fitting = (i for i in instructions_of(target) if i.code and i.product == product)
    return next(fitting, None)


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

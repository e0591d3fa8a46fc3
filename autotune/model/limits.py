"""What a kind of target can build: limits on the decisions of a scheduled program.

Rules for a target put tighter limits on their own sketches. These are for schedules of any origin:
of users' rules, and those that people write. They say before a build which decisions it refuses, or
does not finish in time.
"""

from __future__ import annotations

from collections.abc import Iterator

from ... import dtypes
from ...errors import TargetError
from ...schedule.require import Space
from ...target import Target
from ...tir.ir import Dim, Expr, ForKind, Func, ceildiv, product
from ...tir.structure import key_of
from .profile import Profile, Visit, profile
from .target_model import Limit, model_for

MAX_STRAIGHT = 4096
"""Operations of straight code, on whole registers: LLVM takes two to ten seconds for so many, and
four times as long for twice as many. A session gives it twenty."""
OF_A_FUNCTION = 16
"""Operations that a special function counts for."""


def limits_of(func: Func, target: Target, space: Space) -> list[Limit]:
    """The limits that not all decisions in a space satisfy, each once; `False` where none does.

    There are none for a kind of target without a model.
    """
    try:
        model = model_for(target)
    except TargetError:
        return []
    limits: dict[object, Limit] = {}
    for name, condition in model.limits(profile(func, space.bounds), target):
        holds = space.decide(condition) if isinstance(condition, Expr) else condition
        if holds is None:
            limits[name, key_of(condition)] = Limit(name, condition)
        elif not holds:
            limits[name, None] = Limit(name, False)
    return list(limits.values())


def straight_code(source: Profile, register_bits: int) -> Iterator[Limit]:
    """Limits on the copies that unrolled loops make of each block, and on the width of its vectors.

    Both become code, on registers of so many bits.
    """
    for visit in source.visits:
        copies = _extent(visit, ForKind.UNROLL) * _registers(visit, register_bits)
        operations = max(1, visit.operations + OF_A_FUNCTION * visit.expensive)
        yield Limit("the straight code is short", copies * operations <= MAX_STRAIGHT)


def _registers(visit: Visit, register_bits: int) -> Dim:
    bits = _extent(visit, ForKind.VECTOR) * dtypes.info(visit.dtype).bits
    return ceildiv(bits, register_bits)


def _extent(visit: Visit, kind: ForKind) -> Dim:
    """The iterations of the loops of a kind around a block."""
    return product([n for n, k in zip(visit.extents, visit.kinds, strict=True) if k is kind])

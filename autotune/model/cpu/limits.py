"""What processors can build, as `codegen/passes/registers.py` checks it of a program."""

from __future__ import annotations

from collections.abc import Iterator

from ....target import Target
from ....tir.ir import ForKind
from ..profile import Profile
from ..target_model import Limit

_STRAIGHT = (ForKind.UNROLL, ForKind.VECTOR)
"""The kinds of loops whose variables become constants."""


def limits(source: Profile, target: Target) -> Iterator[Limit]:
    del target
    for visit in source.visits:
        for access in visit.accesses:
            if access.buffer.scope != "register":
                continue
            for term in (t for terms in access.terms for t in terms):
                if visit.kinds[term.loop] not in _STRAIGHT:
                    name = f"indices of {access.buffer.name}, held in registers, are constants"
                    yield Limit(name, term.values <= 1)

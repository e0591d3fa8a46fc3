"""What processors can build."""

from __future__ import annotations

from collections.abc import Iterator

from ....target import CpuTarget, Target
from ..limits import straight_code
from ..profile import Profile
from ..target_model import Limit

_SCALAR_BITS = 64
"""Of a register where there are no vectors."""


def limits(source: Profile, target: Target) -> Iterator[Limit]:
    return straight_code(source, CpuTarget.of(target).vector_bits or _SCALAR_BITS)

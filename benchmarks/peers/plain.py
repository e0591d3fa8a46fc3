"""This package: the program as written, with no schedule."""

from __future__ import annotations

import tilewright as tw

from ..suite import Array, Case
from .call import Call
from .tilewright import call, program, target

VERSION = tw.__version__


def prepare(case: Case, arrays: list[Array], threads: int) -> Call:
    """The call for a case."""
    return call(tw.build(tw.Schedule(program(case)), target(threads)), case, arrays)

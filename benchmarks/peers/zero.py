"""This package: the schedule that it chooses with zero trials, by its cost model."""

from __future__ import annotations

import tilewright as tw

from ..suite import Array, Case
from .call import Call
from .tilewright import call, program, target

VERSION = tw.__version__


def prepare(case: Case, arrays: list[Array], threads: int) -> Call:
    """The call for a case; `note` says who chose, if it was not the cost model."""
    module = tw.build(program(case), target(threads))
    chosen = module.origin.kind
    return call(module, case, arrays, "" if chosen == "model" else f"by {chosen}")

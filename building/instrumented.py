"""A model once more for a profile: with the time between its steps, and without any step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..codegen.build import to_module
from ..codegen.sequence import Place, Stamp, Step, joined
from ..runtime.profile import STAMP_BYTES, Instrumented, stamps
from ..target import Target
from .model_steps import Steps


def instrumented(plan: Steps[Any], target: Target) -> Instrumented:
    """The modules that a profile calls, of kernels that are compiled already."""
    arguments = plan.signature.arguments
    timed = (*arguments, stamps(len(plan.steps)))
    signature = replace(plan.signature, arguments=timed)
    return Instrumented(
        to_module(joined(signature, tuple(_stamped(plan, Place(len(arguments)))), target)),
        to_module(joined(plan.signature, (), target)),
    )


def _stamped(plan: Steps[Any], place: Place) -> Iterator[Step]:
    """The steps, each between two stamps, after two that tell what a stamp takes."""
    number = 0

    def stamp() -> Stamp:
        nonlocal number
        number += 1
        return Stamp(replace(place, offset=(number - 1) * STAMP_BYTES))

    yield stamp()
    yield stamp()
    for step in plan.steps:
        yield stamp()
        yield step
        yield stamp()

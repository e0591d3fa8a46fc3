"""A model once more for a profile: with the time between its steps, and without any step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..codegen.build import to_module
from ..codegen.sequence import Function, Place, Stamp, Step, joined
from ..runtime.profile import STAMP_BYTES, Instrumented, signatures
from ..target import Target
from .model_steps import Steps


def functions(plan: Steps[Any]) -> tuple[Function, Function]:
    """The functions that a profile calls."""
    timed, empty = signatures(plan.signature, len(plan.steps))
    return (timed, tuple(_stamped(plan, Place(len(plan.signature.arguments))))), (empty, ())


def instrumented(plan: Steps[Any], target: Target) -> Instrumented:
    """The modules that a profile calls, of kernels that are compiled already."""
    timed, empty = (to_module(joined(*function, target)) for function in functions(plan))
    return Instrumented(timed, empty)


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

"""Several kernels as one: a function that calls them one after the other at places in memory.

The function takes the arguments of its signature and a workspace, as every kernel does. The code
generator of the kind of target makes it (`CodeGenerator.join`), and its image has the code of all
kernels. So a model is called, timed and stored as a kernel is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..base.errors import BuildError
from ..runtime.guards import Guard
from ..runtime.signature import Signature
from ..target import Target
from .calling_convention import sized
from .compiled import Compiled
from .generator import generator_for


@dataclass(frozen=True)
class Address:
    """Memory at an offset in bytes of the argument of that number; of the workspace if `None`."""

    argument: int | None
    offset: int = 0


@dataclass(frozen=True)
class KernelCall:
    """A kernel is called with its arguments at these places, and its workspace at the last.

    The guards of its indices are asked first.
    """

    kernel: Compiled
    places: tuple[Address, ...]
    workspace: Address | None = None
    guards: tuple[Guard, ...] = ()


@dataclass(frozen=True)
class Copy:
    """Bytes are copied from one place to another, which does not overlap with it."""

    source: Address
    destination: Address
    bytes: int


@dataclass(frozen=True)
class Stamp:
    """The time is written to a place: two int64, seconds and nanoseconds of `CLOCK_MONOTONIC`."""

    place: Address


@dataclass(frozen=True)
class Fill:
    """All bits of the bytes at a place are set: floats are no numbers then, and integers -1."""

    place: Address
    bytes: int


@dataclass(frozen=True)
class Repeat:
    """Steps are taken so many times.

    Their argument of each number is at the place of that number, from which it is further by the
    stride in bytes in each iteration; their workspace is at the last place.
    """

    count: int
    places: tuple[Address, ...]
    strides: tuple[int, ...]
    workspace: Address | None
    steps: tuple[SequenceStep, ...]


SequenceStep: TypeAlias = KernelCall | Copy | Stamp | Fill | Repeat
Function: TypeAlias = tuple[Signature, Sequence[SequenceStep]]
"""A function that takes these steps."""


def guards_of(steps: Sequence[SequenceStep]) -> tuple[Guard, ...]:
    """The guards of all calls; the status of each is `FIRST_GUARD` and its number here."""
    return tuple(guard for call in calls_of(steps) for guard in call.guards)


def calls_of(steps: Sequence[SequenceStep]) -> Iterator[KernelCall]:
    """The calls among steps, also those that are repeated, each once."""
    for step in steps:
        if isinstance(step, KernelCall):
            yield step
        elif isinstance(step, Repeat):
            yield from calls_of(step.steps)


def joined(
    signature: Signature,
    steps: Sequence[SequenceStep],
    target: Target,
    beside: Sequence[Function] = (),
) -> Compiled:
    """The compiled function of that signature that takes these steps, for a resolved target.

    Where a kernel returns a status other than 0, or a guard does not hold, its status is returned,
    and no further step is taken. The image has the functions `beside` it too.
    Raises `BuildError` for kernels of other targets.
    """
    functions: list[Function] = [(signature, steps), *beside]
    calls = (call for _, own in functions for call in calls_of(own))
    kernels = tuple({call.kernel.signature.name: call.kernel for call in calls}.values())
    for kernel in kernels:
        if kernel.target != target:
            raise BuildError(
                "the kernel {0} is for {1}, and the sequence for {2}",
                kernel.signature.name, str(kernel.target), str(target),
            )  # fmt: skip
    code = generator_for(target).join(functions, kernels, target)
    scheduled = tuple(program for kernel in kernels for program in kernel.scheduled)
    remarks = tuple(dict.fromkeys(r for kernel in kernels for r in kernel.remarks))
    return Compiled(
        sized(signature, code.workspaces), target, scheduled, code.text, code.image, code.launches,
        remarks, any(kernel.strict_fp for kernel in kernels), guards=guards_of(steps),
    )  # fmt: skip

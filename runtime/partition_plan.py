"""The plan of a partitioned model: which values its parts take and compute, as data.

Values have numbers: the inputs of the model the first ones. Artifacts have the plan in their
manifest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from ..base import dtypes
from ..base.checked_json import Such
from .evidence import Natural
from .signature import Argument, Dtype, Extents

_Shape: TypeAlias = Annotated[
    Extents, Such("extents", lambda shape: min(shape, default=0) >= dtypes.UNKNOWN)
]


@dataclass(frozen=True)
class ArrayType:
    """The dtype of an array, and its shape; an extent that data decide is `dtypes.UNKNOWN`."""

    dtype: Dtype
    shape: _Shape

    @property
    def bytes(self) -> int:
        """Extents that data decide count as 1."""
        return dtypes.nbytes(self.dtype) * math.prod(n for n in self.shape if n != dtypes.UNKNOWN)


@dataclass(frozen=True)
class PartPlan:
    """A part: it takes the values of the numbers `reads` and returns those of `writes`.

    `crossing` are those that other parts have computed. After it, nothing reads `dead`.
    """

    provider: str
    reads: tuple[Natural, ...]
    writes: tuple[Natural, ...]
    crossing: tuple[Natural, ...]
    dead: tuple[Natural, ...]


@dataclass(frozen=True)
class PartitionPlan:
    """What a call does: the parts in the order in which they run, and the values by number.

    `outputs` have names and numbers. `constants` are outputs that no part computes.
    """

    model: str
    values: tuple[ArrayType, ...]
    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, Natural], ...]
    constants: tuple[Natural, ...]
    parts: tuple[PartPlan, ...]

    def arguments(self) -> tuple[Mapping[str, Argument], Mapping[str, Argument]]:
        """The inputs and the outputs by name."""
        inputs = {n: self._argument(n, place) for place, n in enumerate(self.inputs)}
        return inputs, {n: self._argument(n, place, "out") for n, place in self.outputs}

    def _argument(self, name: str, number: int, role: str = "in") -> Argument:
        value = self.values[number]
        return Argument(name, value.dtype, value.shape, role="out" if role == "out" else "in")

    def validate(self) -> None:
        """Raise `ValueError` for names that are there twice, and values that are not there."""
        for names in (self.inputs, [name for name, _ in self.outputs]):
            if len({*names}) < len(names):
                raise ValueError("a name is there twice")
        known = range(len(self.values))
        held = {*range(len(self.inputs)), *self.constants}
        if not held.issubset(known):
            raise ValueError("an input or constant has no type")
        for number, part in enumerate(self.parts):
            if not held.issuperset((*part.reads, *part.crossing)):
                raise ValueError(f"part {number} reads what is not computed before it")
            if not held.isdisjoint(part.writes) or not {*part.writes}.issubset(known):
                raise ValueError(f"part {number} writes what is there, or has no type")
            held.update(part.writes)
            if len({*part.dead}) < len(part.dead) or not held.issuperset(part.dead):
                raise ValueError(f"after part {number}, something dies that is not there")
            held.difference_update(part.dead)
        if not held.issuperset(number for _, number in self.outputs):
            raise ValueError("an output is not computed")

"""The roofline of a program on a target: rates that are out of reach, and those of its versions.

A program reads and writes its arguments once at least. Its operations over these bytes are its
intensity, from which follows how fast it could be where they come from each memory, and at the peak
of the target (Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import htpy as h

from ..autotune.model.target_model import model_for
from ..autotune.records import workload_record
from ..durations import format_seconds
from ..target import Target
from ..tir.ir import Func
from .charts import Layer, chart
from .scales import Axis, format_si

_BESIDE = 16.0
"""By which factor the chart goes beyond intensities of interest."""
TITLE = "Roofline"


class Bounds(NamedTuple):
    """What bounds the rate of a program: `peak` operations, and bytes of each memory, in a second.

    `intensity` is operations for each byte of its arguments; 0 where there are no operations.
    """

    flops: int
    intensity: float
    peak: float
    bandwidths: Mapping[str, float]

    @property
    def span(self) -> tuple[float, float]:
        """The intensities that a chart shows."""
        ridges = [self.peak / rate for rate in self.bandwidths.values()]
        shown = [self.intensity, *ridges]
        return min(shown) / _BESIDE, max(shown) * _BESIDE / 4

    def slope(self, memory: str) -> list[tuple[float, float]]:
        """The ends of the line of a memory: intensities and rates."""
        rate, low = self.bandwidths[memory], self.span[0]
        return [(low, low * rate), (self.peak / rate, self.peak)]

    @property
    def ceiling(self) -> list[tuple[float, float]]:
        """The ends of the line of the peak."""
        first = min((self.peak / rate for rate in self.bandwidths.values()), default=self.span[0])
        return [(first, self.peak), (self.span[1], self.peak)]


def bounds_of(func: Func, target: Target) -> Bounds | None:
    """The bounds of a concrete program on a resolved target; `None` without operations.

    Raises `TargetError` for a target whose rates are not known.
    """
    known = workload_record(func)
    compute = model_for(target).roofline(func, target).compute
    if not known.flops or not known.bytes or compute <= 0:
        return None
    intensity = known.flops / known.bytes
    return Bounds(known.flops, intensity, known.flops / compute, target.bandwidths)


def roofline(func: Func, target: Target, seconds: Mapping[str, float]) -> h.Element:
    """A figure of a program's bounds on a resolved target, and of versions by their times.

    Raises `TargetError` for a target whose rates are not known.
    """
    bounds = bounds_of(func, target)
    x = Axis("operations for each byte of the arguments", "{:.3g}".format, logarithmic=True)
    y = Axis("rate", lambda rate: format_si(rate, "FLOP/s"), logarithmic=True)
    if bounds is None:
        return chart(TITLE, x, y, empty="The program has no operations on floats.")
    layers = [Layer(f"peak {y.write(bounds.peak)}", bounds.ceiling)]
    for memory, rate in bounds.bandwidths.items():
        name = f"{memory} {format_si(rate, 'B/s')}"
        layers.append(Layer(name, bounds.slope(memory), slanted=True))
    points = [(bounds.intensity, bounds.flops / time) for time in seconds.values()]
    names = [f"{name} {format_seconds(time)}" for name, time in seconds.items()]
    return chart(TITLE, x, y, *layers, Layer("versions", points, "points", names))

"""The roofline of a program on a target: rates that are out of reach, and those of its versions.

`roofline` draws it, and `roofline_points` has it as data.

A program reads and writes its arguments once at least. Its operations over these bytes are its
intensity, from which follows how fast it could be where they come from each memory, and at the peak
of the target (Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import htpy as h

from ...autotune.model.target_model import TargetModel, model_for
from ...autotune.records import workload_record
from ...base.durations import format_seconds
from ...base.text import format_si
from ...target import Target
from ...tir.ir import Func
from ...tuning_db.values import Workload
from ..workbench.program_tree import Data
from ..workbench.versions import Version
from .charts import Layer, chart
from .scales import Axis

_BESIDE = 16.0
"""By which factor the chart goes beyond intensities of interest."""
TITLE = "Roofline"
_LABELS = 12
"""Names of versions that stand on a figure."""


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


def roofline(
    func: Func,
    target: Target,
    measured: Mapping[str, float],
    predicted: Mapping[str, float] = MappingProxyType({}),
) -> h.Element:
    """A figure of a program's bounds on a resolved target, and of versions by their times.

    Predicted times have hollow marks. The last names of each kind stand on the figure. Raises
    `TargetError` for a target whose rates are not known.
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
    few = min(len(predicted), _LABELS // 2)
    most = min(len(measured), _LABELS - few)
    for kind, times, labels in (
        ("measured", measured, most),
        ("predicted", predicted, _LABELS - most),
    ):
        places = [(bounds.intensity, bounds.flops / time) for time in times.values()]
        word = "" if kind == "measured" else ", predicted"
        names = [f"{name} {format_seconds(time)}{word}" for name, time in times.items()]
        layers.append(Layer(kind, places, "points", names, labels=labels))
    return chart(TITLE, x, y, *layers)


def roofline_points(
    func: Func,
    workload: Workload,
    target: Target,
    model: TargetModel,
    versions: Iterable[Version],
    recorded: Callable[[str], float | None],
) -> Data:
    """The least time of a program, in `seconds`, and a point for each version.

    `peak` is in operations and `bandwidth` in bytes per second, `intensity` in operations per byte;
    `null` where the program has none of them. A point has the operations per second and the share
    of the roofline that a version reaches, by its measured time, or that of its schedule (id) which
    is `recorded`, or else its predicted one.
    """
    roof = model.roofline(func, target)
    flops, size = workload.flops, workload.bytes
    points = []
    for version in versions:
        timing = version.timing
        known = recorded(version.schedule_id) if timing is None else timing.seconds
        seconds = version.predicted if known is None else known
        if seconds:
            points.append(
                {
                    "version": version.id,
                    "seconds": seconds,
                    "measured": known is not None,
                    "rate": flops / seconds,
                    "share": roof.seconds / seconds,
                }
            )
    return {
        "seconds": roof.seconds,
        "text": str(roof),
        "bound": roof.bound,
        "flops": flops,
        "bytes": size,
        "intensity": flops / size if size else None,
        "peak": flops / roof.compute if roof.compute else None,
        "bandwidth": size / roof.memory if roof.memory else None,
        "points": points,
    }

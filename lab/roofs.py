"""The roofline of a program, and where its versions are below it."""

from __future__ import annotations

from collections.abc import Iterable

from ..autotune.model.target_model import TargetModel
from ..target import Target
from ..tir.ir import Func
from ..tuning_db.values import Workload
from .program_tree import Data
from .versions import Version


def roofline(
    func: Func, workload: Workload, target: Target, model: TargetModel, versions: Iterable[Version]
) -> Data:
    """The least time of a program, in `seconds`, and a point for each version.

    `peak` is in operations and `bandwidth` in bytes per second, `intensity` in operations per byte;
    `null` where the program has none of them. A point has the operations per second and the share
    of the roofline that a version reaches, by its measured or else its predicted time.
    """
    roof = model.roofline(func, target)
    flops, size = workload.flops, workload.bytes
    points = []
    for version in versions:
        timing = version.timing
        seconds = version.predicted if timing is None else timing.seconds
        if seconds:
            points.append(
                {
                    "version": version.id,
                    "seconds": seconds,
                    "measured": timing is not None,
                    "rate": flops / seconds,
                    "share": roof.seconds / seconds,
                }
            )
    return {
        "seconds": roof.seconds,
        "text": str(roof),
        "bound": "arithmetic" if roof.compute >= roof.memory else "memory",
        "flops": flops,
        "bytes": size,
        "intensity": flops / size if size else None,
        "peak": flops / roof.compute if roof.compute else None,
        "bandwidth": size / roof.memory if roof.memory else None,
        "points": points,
    }

"""Importing this shortens the tuning sessions of a process, but for options that it gives them.

Finals of two seconds are for times that somebody reads. In much shorter ones the program as written
has no part where a busy machine makes one call of it long. The workers of a run share the
processors: each builds in one process, and waits little for a disturbance to pass. Short samples
are rarely interrupted, so that finals are settled after a few.
"""

from __future__ import annotations

import inspect
from typing import Any

from tilewright.autotune.config import TuneConfig
from tilewright.autotune.measure.measure_result import MeasureConfig
from tilewright.building import compile_all

DEFAULTS: dict[Any, dict[str, float]] = {
    TuneConfig: {"final_seconds": 0.5, "pause": 0.05},
    MeasureConfig: {"builders": 1, "sample_seconds": 2e-4},
}

for options, values in DEFAULTS.items():
    parameters = inspect.signature(options).parameters
    options.__init__.__defaults__ = tuple(values.get(n, p.default) for n, p in parameters.items())
assert all(getattr(o(), name) == v for o, vs in DEFAULTS.items() for name, v in vs.items())
compile_all.jobs_by_default = lambda: 1

"""Importing this shortens the tuning sessions of a process, but for options that it gives them.

Finals of two seconds are for times that somebody reads. In much shorter ones than these the program
as written has no part where a busy machine makes one call of it long. The workers of a run share
the processors: each builds in one process, and waits little for a disturbance to pass. Short
samples are rarely interrupted, so that finals are settled after a few.

In processes of a test the sketches of a program are made once, and what the cost model chooses for
it is chosen once in a run, in the folder that the variable `CHOICES` names.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.autotune.config import TuneConfig
from tilewright.autotune.measure.measure_result import MeasureConfig
from tilewright.autotune.rules.user_rules import SKETCH_RULES
from tilewright.autotune.search import drawing, remembered, search
from tilewright.autotune.search.sketch import Sketch, sketches
from tilewright.building import compile_all
from tilewright.codegen.disk_cache import location
from tilewright.target import Target
from tilewright.tir.instruction_set import users_digest
from tilewright.tir.ir import Func
from tilewright.tir.printer import func_text

CHOICES = "TESTS_CHOICES"

DEFAULTS: dict[Any, dict[str, float]] = {
    TuneConfig: {"final_seconds": 0.25, "pause": 0.05},
    MeasureConfig: {"builders": 1, "sample_seconds": 2e-4},
}

for options, values in DEFAULTS.items():
    parameters = inspect.signature(options).parameters
    options.__init__.__defaults__ = tuple(values.get(n, p.default) for n, p in parameters.items())
assert all(getattr(o(), name) == v for o, vs in DEFAULTS.items() for name, v in vs.items())
compile_all.jobs_by_default = lambda: 1


_SKETCHES: dict[tuple[object, ...], tuple[Sketch, ...]] = {}
_MOST_SKETCHES = 32
"""Programs whose sketches a process keeps, the last ones."""


def sketches_made_once(func: Func, target: Target, *, inexact: bool = False) -> tuple[Sketch, ...]:
    """As `sketches`, which are kept."""
    text = func_text(func)
    rules = tuple(SKETCH_RULES.values())
    key = (text, target, inexact, users_digest(target, text), rules)
    if key not in _SKETCHES:
        found = sketches(func, target, inexact=inexact)
        if found[0].name == "written":  # that is warned of
            return found
        while len(_SKETCHES) >= _MOST_SKETCHES:
            del _SKETCHES[next(iter(_SKETCHES))]
        _SKETCHES[key] = found
    return _SKETCHES[key]


def shared_location(environ: Mapping[str, str], kind: str) -> Path | None:
    """Where choices are kept; others are taken where the environment says so."""
    return location(environ, kind) or Path(environ[CHOICES])


if CHOICES in os.environ:
    for module in (drawing, search):
        vars(module)["sketches"] = sketches_made_once
    vars(remembered)["location"] = shared_location

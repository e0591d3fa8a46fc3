"""Operators as code for other architectures, run by an emulator or Node.js, against numpy.

`python -m tests.ops.other_machines` runs every case for every target with both schedules, for an
hour.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.autotune.search.unmeasured import default_trace, model_trace
from tilewright.base.dtypes import from_numpy, info, is_float, to_numpy
from tilewright.codegen.build import compile_func
from tilewright.codegen.compiled import Compiled
from tilewright.codegen.detect import resolve
from tilewright.tir.ir import Func

from ..emulator import MACHINES, Call, run
from .cases import GROUPS, Case, Cases

SCHEDULES = {"default": default_trace, "model": model_trace}


def compiled(func: Func, mcpu: str, schedule: str, name: str, threads: int = 1) -> Compiled:
    """`func` with the `default` schedule, or the one that the `model` chooses."""
    target = resolve(f"cpu -mcpu={mcpu} -threads={threads}")
    scheduled = SCHEDULES[schedule](func, target).apply(func).func
    return compile_func(scheduled, target, name=name)


def check(cases: Sequence[Case], mcpu: str, schedule: str, folder: Path, threads: int = 1) -> None:
    """Require that each case gives what is wanted of it."""
    calls = []
    for n, case in enumerate(cases):
        kernel = compiled(case.func, mcpu, schedule, f"k{n}", threads)
        outputs = kernel.signature.arguments[len(case.inputs) :]
        zeros = [np.zeros(a.shape, to_numpy(a.dtype)) for a in outputs]
        calls.append(Call(kernel, [*case.inputs, *zeros]))
    for case, found in zip(cases, run(calls, mcpu, folder), strict=True):
        for x, wanted in zip(found, case.wanted, strict=True):
            _close(x, wanted, f"{case.name}, {mcpu}, {schedule} schedule", case.ulps)


def _close(found: Any, wanted: Any, what: str, ulps: float) -> None:
    dtype = from_numpy(found.dtype)
    if not is_float(dtype):
        np.testing.assert_array_equal(found, wanted, err_msg=what)
        return
    tolerance = ulps * 2.0 ** -info(dtype).mantissa
    found = found.astype(np.float64)
    np.testing.assert_allclose(found, wanted, tolerance, tolerance, err_msg=what)


if __name__ == "__main__":
    for group, mcpu, schedule in product(GROUPS, MACHINES, SCHEDULES):
        print(group, mcpu, schedule, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            check(list(getattr(Cases(), group)()), mcpu, schedule, Path(folder))

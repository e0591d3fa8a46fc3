"""One case for a GPU: a random program, random steps and bindings, and its launches emulated."""

from __future__ import annotations

import tempfile
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import BuildError
from tilewright.target import CudaTarget
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Buffer, Func

from ..codegen.cuda.emulate_check import check_program
from ..codegen.cuda.host_run import run_text
from ..codegen.cuda.random_bindings import a_bound_program
from ..codegen.cuda.random_branches import with_branches
from ..codegen.machinery import copied, random_arguments
from ..schedule.random_cases import Tally

TARGET = CudaTarget.named("sm_90a")
TOLERANCE = 1e-3
"""Of narrow floats, whose sums are added up in another order."""


class Emulated(NamedTuple):
    """Whether the emulator ran the program, and its text ran too, and what was wrong, as text."""

    emulated: bool
    failure: str | None = None
    text_ran: bool = False


def run_gpu_case(seed: int, tally: Tally, *, text: bool = False) -> Emulated:
    """Emulate the program of a seed, which has more branches than schedules make if that is odd.

    With `text` the text of its kernels runs on this processor too (`host_run.py`). Lowering may
    refuse the program, by a `BuildError`.
    """
    func = None
    try:
        func = a_bound_program(seed, tally)
        if seed % 2:
            func = with_branches(func, seed)
        check = check_program(func, TARGET, random_arguments(func), tolerance=TOLERANCE)
    except BuildError:
        return Emulated(False)
    except Exception:  # noqa: BLE001  any other one is what is looked for
        return Emulated(False, f"seed {seed}: {traceback.format_exc()}\n{func}")
    if not check.right:
        return Emulated(True, f"seed {seed}: {check}\n{func}\n{check.lowered}")
    if not text:
        return Emulated(True)
    try:
        _run_text(func, random_arguments(func))
    except Exception:  # noqa: BLE001
        return Emulated(True, f"seed {seed}: {traceback.format_exc()}\n{func}", text_ran=True)
    return Emulated(True, text_ran=True)


def _run_text(func: Func, arguments: list[Any]) -> None:
    """Compare what the text of a program's kernels writes with the interpreter."""
    expected = copied(arguments)
    interpret(func, *expected)
    with tempfile.TemporaryDirectory(prefix="tilewright-fuzz-") as folder:
        run_text(func, Path(folder), *arguments)
    for p, found, wanted in zip(func.params, arguments, expected, strict=True):
        if not isinstance(p, Buffer) or not found.size:
            continue
        if not dtypes.is_float(p.dtype):
            np.testing.assert_array_equal(found, wanted, err_msg=p.name)
            continue
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        largest = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
        np.testing.assert_allclose(a, b, TOLERANCE, TOLERANCE * largest, err_msg=p.name)

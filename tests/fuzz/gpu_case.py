"""One case for a GPU: a random program, random steps and bindings, and its launches emulated."""

from __future__ import annotations

import traceback
from typing import NamedTuple

from tilewright.codegen.cuda.emulate_check import check_program
from tilewright.errors import BuildError
from tilewright.target import CudaTarget

from ..codegen.cuda.random_bindings import a_bound_program
from ..codegen.cuda.random_branches import with_branches
from ..codegen.machinery import random_arguments
from ..schedule.random_cases import Tally

TARGET = CudaTarget.named("sm_90a")
TOLERANCE = 1e-3
"""Of narrow floats, whose sums are added up in another order."""


class Emulated(NamedTuple):
    """Whether the emulator ran the program, and what was wrong, as text."""

    emulated: bool
    failure: str | None = None


def run_gpu_case(seed: int, tally: Tally) -> Emulated:
    """Emulate the program of a seed, which has more branches than schedules make if that is odd.

    Lowering may refuse it, by a `BuildError`.
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
    if check.right:
        return Emulated(True)
    return Emulated(True, f"seed {seed}: {check}\n{func}\n{check.lowered}")

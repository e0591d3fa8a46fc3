"""What rows of decisions give: predicted seconds, figures of the machine, what loops touch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from ...autotune.model.cpu.footprints import Evaluated
from ...autotune.model.loop_footprints import loop_bytes
from ...autotune.model.profile import profile
from ...autotune.model.target_model import Estimate, Estimator, TargetModel
from ...autotune.search.candidates import Rows
from ...target import Target
from ...tir.columns import Program, Tape
from ...tir.ir import Buffer, Func, Var
from ...tir.printer import loop_names
from ..pictures.listing import held_in
from .program_tree import Data, held_data

NO_DECISIONS: Rows = np.empty((1, 0), np.int64)
"""The one row of a concrete program."""


class RowFigures:
    """Those of a program whose decisions have `bounds`; of a concrete one by default."""

    def __init__(
        self,
        func: Func,
        model: TargetModel,
        target: Target,
        bounds: Mapping[Var, tuple[int, int]] | None = None,
    ) -> None:
        self._func, self._model, self._target = func, model, target
        self._profile = profile(func, bounds)

    @cached_property
    def estimate(self) -> Estimator:
        """The estimate of the model for many rows."""
        return self._model.estimator(self._profile, self._target)

    def of(self, row: Rows) -> Data:
        """The figures of one row as data."""
        estimate = self.estimate(row)
        figures = self._model.figures(estimate.features[0], self._target)
        return {
            "predicted": float(estimate.seconds[0]),
            "figures": [
                {"name": f.name, "value": f.value, "unit": f.unit, "of": f.of, "exceeds": f.exceeds}
                for f in figures
            ],
            "loops": self._loops(row),
        }

    def _loops(self, row: Rows) -> list[Data]:
        """What an iteration of each loop touches."""
        places, program = self._touched
        (_, numbers), *_ = program.run(np.ascontiguousarray(row.T), 1)
        touched: dict[Var, dict[Buffer, int]] = {}
        for (loop, buffer), number in zip(places, numbers, strict=True):
            touched.setdefault(loop, {})[buffer] = int(np.max(number))
        return [
            {
                "loop": name,
                "held": [held_data(h) for h in held_in(touched[loop], {}, self._target)],
            }
            for loop, name in loop_names(self._func).items()
            if loop in touched
        ]

    @cached_property
    def _touched(self) -> tuple[list[tuple[Var, Buffer]], Program]:
        """The buffers that each loop touches, and what computes how many bytes of them."""
        tape = Tape()
        numbers = {
            (loop, buffer): number
            for loop, buffers in loop_bytes(Evaluated(self._profile, tape)).items()
            for buffer, number in buffers.items()
        }
        return list(numbers), Program(tape, list(numbers.values()))


def alike(a: Estimate, b: Estimate) -> bool:
    """Whether two estimates of one row are the same, as far as their numbers are rounded."""
    return np.allclose(a.seconds, b.seconds, rtol=1e-9, atol=0) and np.allclose(
        a.features, b.features, rtol=0, atol=1e-4
    )

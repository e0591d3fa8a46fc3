"""The model of processors, and the files of the base model that comes with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....base.errors import TuningError
from ....target import CpuTarget, Rates, Target
from ..target_model import SampledFacts, TargetModel
from .estimate import FEATURES, VERSION, Estimator
from .figures import figures
from .limits import limits
from .roofline import roofline

MODEL_FILE = Path(__file__).with_name("base") / "model.json"
"""The base model."""


class CpuFacts(SampledFacts):
    """The `caches` of a processor (bytes of L1, L2 and L3), their `ways`, `line_bytes` and `rates`.

    Those that are `None` or left out are those of the table of processors. Rates are written also
    where none were measured, so that features do not change with that table.
    """

    def of(self, target: Target) -> dict[str, Any]:
        cpu = CpuTarget.of(target)
        return {
            "caches": [cpu.l1_bytes, cpu.l2_bytes, cpu.l3_bytes],
            "rates": cpu.rates.to_json(),
            "ways": list(cpu.ways),
            "line_bytes": cpu.line_bytes,
        }

    def described(self, target: Target, facts: Mapping[str, Any]) -> CpuTarget:
        known = self.of(target) | {name: x for name, x in facts.items() if x is not None}
        try:
            l1, l2, l3 = _numbers(known.pop("caches"), least=0)
            w1, w2, w3 = _numbers(known.pop("ways"), least=1)
            (line_bytes,) = _numbers([known.pop("line_bytes")], least=1)
            rates = Rates.from_json(dict(known.pop("rates")))
        except (TypeError, ValueError) as error:
            raise TuningError("expected facts of {0}: {1}", target, error) from error
        super().described(target, known)
        return replace(
            CpuTarget.of(target),
            l1_bytes=l1,
            l2_bytes=l2,
            l3_bytes=l3,
            ways=(w1, w2, w3),
            line_bytes=line_bytes,
            rates=rates,
        )

    def machine(self, target: Target) -> str:
        """Its caches: it has these whatever it is taken for."""
        cpu = CpuTarget.of(target)
        return f"{cpu.l1_bytes}/{cpu.l2_bytes}/{cpu.l3_bytes}"


def _numbers(values: Any, least: int) -> list[int]:
    numbers = list(values)
    if not all(type(n) is int and n >= least for n in numbers):
        raise ValueError(f"expected integers from {least} on, found {values!r:.80}")
    return numbers


MODEL = TargetModel(FEATURES, VERSION, Estimator, roofline, MODEL_FILE, CpuFacts(), figures, limits)

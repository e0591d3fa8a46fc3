"""The model of GPUs. No base model comes with it: none of their times is recorded yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ....base.errors import TuningError
from ....target import CudaTarget, Target
from ..target_model import SampledFacts, TargetModel
from .estimate import FEATURES, VERSION, Estimator
from .figures import figures
from .limits import limits
from .roofline import roofline

_NAMES: Mapping[str, type] = {"model": str, "sms": int, "l2_bytes": int}
"""What estimates rest on beside the architecture, which is in a target's text."""


class CudaFacts(SampledFacts):
    """The name of a device, its SMs and the bytes of its second level."""

    def of(self, target: Target) -> dict[str, Any]:
        gpu = CudaTarget.of(target)
        return {name: getattr(gpu, name) for name in _NAMES}

    def described(self, target: Target, facts: Mapping[str, Any]) -> CudaTarget:
        known = {name: x for name, x in facts.items() if name in _NAMES}
        for name, x in known.items():
            if type(x) is not _NAMES[name] or (isinstance(x, int) and x < 0):
                raise TuningError("expected facts of {0}: {1}={2!r:.80}", target, name, x)
        super().described(target, {n: x for n, x in facts.items() if n not in _NAMES})
        return replace(CudaTarget.of(target), **known)


MODEL = TargetModel(
    FEATURES, VERSION, Estimator, roofline, facts=CudaFacts(), figures=figures, limits=limits
)

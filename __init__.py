"""Tilewright compiles tensor programs to fast kernels and tunes their schedules by measurement.

Names are imported on first use, so that `import tilewright` costs next to nothing: neither LLVM nor
the database nor the cost model is loaded by a program that never asks for them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .base import __version__ as __version__
from .base import errors
from .base import process as process  # watches forks from here on
from .base.errors import (
    ArgumentError,
    ArtifactError,
    BuildError,
    ClusterError,
    DatabaseError,
    DeviceError,
    GuardError,
    IRError,
    KernelError,
    LockError,
    ModelError,
    NotTunedError,
    OutOfMemoryError,
    ParseError,
    ProviderError,
    ScheduleError,
    TargetError,
    TilewrightError,
    TrustError,
    TuningError,
    UnsupportedError,
    VerifyError,
)
from .lab import lab

if TYPE_CHECKING:
    from . import ops, tuning_db
    from .autotune.refresh import refresh
    from .autotune.rules.draft import Draft
    from .autotune.rules.fusion_groups import fusion_groups
    from .autotune.rules.rule import Group, GroupKind, Variant
    from .autotune.rules.user_rules import sketch_rule
    from .autotune.session.tuning_run import TuningRun
    from .autotune.show.recorded_run import open_run
    from .autotune.tune import tune
    from .building.build import build, build_all, build_library, explain, kernels, partition
    from .building.check_operator import check_graph_op
    from .building.freeze import freeze
    from .building.providers import DeviceProvider, provider_of, register_provider
    from .building.sbom import sbom
    from .graph import Graph
    from .graph.provider import Provider
    from .graph.text import parse_graph
    from .importers.onnx import import_onnx
    from .importers.stablehlo import import_stablehlo
    from .importers.torch import import_torch
    from .importers.user_operators import graph_op, imported_op
    from .lab import plot
    from .runtime import Module, load
    from .runtime.model import Model
    from .runtime.partitioned import PartitionedModel
    from .runtime.signing import sign
    from .runtime.verification import verify
    from .schedule import Schedule, Trace
    from .schedule.primitive import primitive
    from .schedule.require import require
    from .target import Target
    from .tir import language as T
    from .tir import te
    from .tir.instruction_set import register_intrin
    from .tir.ir import Func
    from .tir.language import script
    from .torch_backend.report import TorchReport, torch_report
    from .tuning_db import TuningDatabase

__all__ = [
    "ArgumentError",
    "ArtifactError",
    "BuildError",
    "ClusterError",
    "DatabaseError",
    "DeviceError",
    "DeviceProvider",
    "Draft",
    "Func",
    "Graph",
    "Group",
    "GroupKind",
    "GuardError",
    "IRError",
    "KernelError",
    "LockError",
    "Model",
    "ModelError",
    "Module",
    "NotTunedError",
    "OutOfMemoryError",
    "ParseError",
    "PartitionedModel",
    "Provider",
    "ProviderError",
    "Schedule",
    "ScheduleError",
    "T",
    "Target",
    "TargetError",
    "TilewrightError",
    "TorchReport",
    "Trace",
    "TrustError",
    "TuningDatabase",
    "TuningError",
    "TuningRun",
    "UnsupportedError",
    "Variant",
    "VerifyError",
    "build",
    "build_all",
    "build_library",
    "check_graph_op",
    "errors",
    "explain",
    "freeze",
    "fusion_groups",
    "graph_op",
    "import_onnx",
    "import_stablehlo",
    "import_torch",
    "imported_op",
    "kernels",
    "lab",
    "load",
    "open_run",
    "ops",
    "parse_graph",
    "partition",
    "plot",
    "primitive",
    "provider_of",
    "refresh",
    "register_intrin",
    "register_provider",
    "require",
    "sbom",
    "script",
    "sign",
    "sketch_rule",
    "te",
    "torch_report",
    "tune",
    "tuning_db",
    "verify",
]

_MODULES = {
    "T": ".tir.language",
    "ops": ".ops",
    "plot": ".lab.plot",
    "te": ".tir.te",
    "tuning_db": ".tuning_db",
}
_HOMES = {
    "DeviceProvider": ".building.providers",
    "Func": ".tir.ir",
    "Graph": ".graph",
    "Model": ".runtime.model",
    "PartitionedModel": ".runtime.partitioned",
    "Provider": ".graph.provider",
    "import_onnx": ".importers.onnx",
    "import_stablehlo": ".importers.stablehlo",
    "import_torch": ".importers.torch",
    "imported_op": ".importers.user_operators",
    "Module": ".runtime",
    "Schedule": ".schedule",
    "Target": ".target",
    "Trace": ".schedule",
    "TuningDatabase": ".tuning_db",
    "TorchReport": ".torch_backend.report",
    "TuningRun": ".autotune.session.tuning_run",
    "build": ".building.build",
    "build_all": ".building.build",
    "build_library": ".building.build",
    "check_graph_op": ".building.check_operator",
    "explain": ".building.build",
    "freeze": ".building.freeze",
    "graph_op": ".importers.user_operators",
    "kernels": ".building.build",
    "load": ".runtime",
    "open_run": ".autotune.show.recorded_run",
    "parse_graph": ".graph.text",
    "partition": ".building.build",
    "primitive": ".schedule.primitive",
    "refresh": ".autotune.refresh",
    "provider_of": ".building.providers",
    "require": ".schedule.require",
    "register_intrin": ".tir.instruction_set",
    "register_provider": ".building.providers",
    "sbom": ".building.sbom",
    "script": ".tir.language",
    "sign": ".runtime.signing",
    "Draft": ".autotune.rules.draft",
    "Group": ".autotune.rules.rule",
    "GroupKind": ".autotune.rules.rule",
    "Variant": ".autotune.rules.rule",
    "fusion_groups": ".autotune.rules.fusion_groups",
    "sketch_rule": ".autotune.rules.user_rules",
    "torch_report": ".torch_backend.report",
    "tune": ".autotune.tune",
    "verify": ".runtime.verification",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES and name not in _HOMES:
        from .base.hints import MissingNameError

        raise MissingNameError(f"module {__name__!r} has no attribute", name, _hint)
    with errors.system_errors(TilewrightError, f"importing {name}"):
        if name in _MODULES:
            value: Any = import_module(_MODULES[name], __name__)
        else:
            value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def _hint(name: str) -> str | None:
    """What a name that is not here may mean."""
    from .base.dtypes import SCALARS
    from .base.hints import instead

    hint = instead("tw", name)
    if hint is not None:
        return hint
    for module in ("te", "ops"):
        if name in import_module(_MODULES[module], __name__).__all__:
            return f"write {module}.{name}, of `from tilewright import {module}`"
    if name in SCALARS:
        return f"write {name!r}: dtypes are texts"
    return errors.similar(name, __all__)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

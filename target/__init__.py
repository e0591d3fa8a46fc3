"""Targets as plain data: what a kernel is compiled for, and facts for lowering and search.

`target.py` has what all kinds of targets share, and each kind has a file with its record.
"""

from .cpu import NATIVE, CpuTarget, baseline, check_runnable, missing_features
from .cuda import ARCHS, CudaTarget, Limits
from .processors import CPUS, FEATURES, Cpu
from .rates import Rates
from .target import Fact, Target, register_kind, registered_kinds

__all__ = [
    "ARCHS",
    "CPUS",
    "FEATURES",
    "NATIVE",
    "Cpu",
    "CpuTarget",
    "CudaTarget",
    "Fact",
    "Limits",
    "Rates",
    "Target",
    "baseline",
    "check_runnable",
    "missing_features",
    "register_kind",
    "registered_kinds",
]

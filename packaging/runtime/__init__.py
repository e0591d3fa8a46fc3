"""Load and call the kernels and models that Tilewright has compiled: `load("model.so")`.

It has no compiler and no tuner. All names are those of `tilewright`: a program that runs without
the compiler changes `import tilewright as tw` to `import tilewright_runtime as tw`.
"""

from __future__ import annotations

from .base import __version__ as __version__
from .base import errors
from .base import process as process  # watches forks from here on
from .base.errors import (
    ArgumentError,
    ArtifactError,
    BuildError,
    DeviceError,
    GuardError,
    KernelError,
    ModelError,
    OutOfMemoryError,
    ProviderError,
    TargetError,
    TilewrightError,
    TrustError,
    UnsupportedError,
)
from .runtime import Module, keep_freed_memory, load
from .runtime.library import LoadedLibrary
from .runtime.model import Model
from .runtime.part_loader import PartLoader as Provider
from .runtime.part_loader import register_provider
from .runtime.partitioned import PartitionedModel
from .runtime.verification import verify
from .target import Target

__all__ = [
    "ArgumentError",
    "ArtifactError",
    "BuildError",
    "DeviceError",
    "GuardError",
    "KernelError",
    "LoadedLibrary",
    "Model",
    "ModelError",
    "Module",
    "OutOfMemoryError",
    "PartitionedModel",
    "Provider",
    "ProviderError",
    "Target",
    "TargetError",
    "TilewrightError",
    "TrustError",
    "UnsupportedError",
    "errors",
    "keep_freed_memory",
    "load",
    "register_provider",
    "verify",
]

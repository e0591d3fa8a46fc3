"""PyTorch's exported programs as graphs."""

from .program import import_module, import_torch

__all__ = ["import_module", "import_torch"]

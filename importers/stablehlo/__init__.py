"""Programs of StableHLO, which JAX exports, as graphs."""

from .program import import_stablehlo

__all__ = ["import_stablehlo"]

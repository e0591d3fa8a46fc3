"""The operators: one module for each kind, which registers its records when it is imported."""

from . import contraction, indexing, movement, pointwise, reduction, rows

__all__ = ["contraction", "indexing", "movement", "pointwise", "reduction", "rows"]

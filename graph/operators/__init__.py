"""The operators: one module for each kind, which registers its records when it is imported."""

from . import activations, arithmetic, contraction, indexing, movement, pointwise, reduction, rows

__all__ = [
    "activations",
    "arithmetic",
    "contraction",
    "indexing",
    "movement",
    "pointwise",
    "reduction",
    "rows",
]

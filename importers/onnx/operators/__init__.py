"""Translations of operators, one module for each kind, which register themselves."""

from . import activations, contraction, control, movement, pointwise, quantised, reduction, shapes

__all__ = [
    "activations",
    "contraction",
    "control",
    "movement",
    "pointwise",
    "quantised",
    "reduction",
    "shapes",
]

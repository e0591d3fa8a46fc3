"""Translations of operators, one module for each kind, which register themselves."""

from . import contraction, control, movement, pointwise, reduction, shapes

__all__ = ["contraction", "control", "movement", "pointwise", "reduction", "shapes"]

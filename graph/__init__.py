"""Graphs: models as operators on tensors, their rewriting, and their division into kernels."""

from .builder import Builder
from .ir import Constant, Graph, Node, TensorType, Value

__all__ = ["Builder", "Constant", "Graph", "Node", "TensorType", "Value"]

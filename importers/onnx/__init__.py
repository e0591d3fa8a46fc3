"""ONNX models as graphs."""

from .model import import_onnx

__all__ = ["import_onnx"]

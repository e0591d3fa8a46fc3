"""Functions of floats on scalars and vectors."""

from __future__ import annotations

from ..errors import BuildError
from .llvm_text import Builder, call, constant, value_type

_INTRINSICS = {
    "sqrt": "llvm.sqrt",
    "abs": "llvm.fabs",
    "floor": "llvm.floor",
    "ceil": "llvm.ceil",
    "trunc": "llvm.trunc",
}


def function(b: Builder, name: str, dtype: str, args: list[str]) -> str:
    """The function `name` on float32 or float64 operands, vectors or scalars."""
    t = value_type(dtype)
    if name in _INTRINSICS:
        return call(b, _INTRINSICS[name], dtype, dtype, *args)
    if name == "neg":
        return b.op(f"fneg {t} {args[0]}")
    if name == "rsqrt":
        root = call(b, "llvm.sqrt", dtype, dtype, args[0])
        return b.op(f"fdiv {t} {constant(1.0, dtype)}, {root}")
    raise BuildError("the function {0} cannot be compiled", name)

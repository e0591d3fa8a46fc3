"""The table of ATen operators: for each overload, how it is translated.

    @aten("silu")
    def silu(b: Builder, out: TensorType, x: Value) -> Value:
        return b.add("swish", x)

A function takes the builder, the type that PyTorch says its (first) result has, and the arguments
of the operator's schema by its names, with its defaults. It raises `Unsupported` for what it does
not translate. An operator that is in the table is not decomposed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ...base import dtypes
from ...graph.builder import Builder
from ...graph.compose.basics import cast_to, wide
from ...graph.compose.complex import PART_DTYPES, Complex
from ...graph.ir import TensorType, Value
from ..control import Apart
from ..translation import registering
from ..unsupported import Reason, Unsupported

Number: TypeAlias = "bool | int | float"
Operand: TypeAlias = "Value | Number"
"""What operators of elements take: a tensor, or a number of no dtype."""

Translate: TypeAlias = "Callable[..., Value | Sequence[Value] | Complex]"
Function = TypeVar("Function", bound=Translate)

TABLE: dict[str, Translate] = {}
"""Translations by the overload: `add.Tensor`, `relu.default`, `higher_order.cond`."""


@dataclass(frozen=True)
class Body:
    """A module within the program, which an operator runs: how it is translated, of operands."""

    translate: Callable[[Sequence[Operand]], list[Value]]
    apart: Apart


def _overloads(names: Sequence[str]) -> list[str]:
    return [name if "." in name else f"{name}.default" for name in names]


def aten(*names: str) -> Callable[[Function], Function]:
    """Register the translation of overloads; a name without a point is the default one."""
    return registering(TABLE, *_overloads(names))


COMPLEX: dict[str, Translate] = {}
"""Translations of overloads that read or return complex tensors."""


def aten_complex(*names: str) -> Callable[[Function], Function]:
    """Register as `aten` does, of complex tensors. The type of a result is that of a part."""
    return registering(COMPLEX, *_overloads(names))


def part_dtype(dtype: Any) -> str:
    """The dtype of the parts of complex numbers. Raises `Unsupported` for narrow ones."""
    name = str(dtype).removeprefix("torch.")
    if name not in PART_DTYPES:
        raise Unsupported(Reason.DTYPE, name)
    return PART_DTYPES[name]


def dtype_name(dtype: Any) -> str:
    """The name of a dtype of PyTorch. Raises `Unsupported` for one that graphs do not have."""
    name = str(dtype).removeprefix("torch.")
    if name not in dtypes.SCALARS:
        raise Unsupported(Reason.DTYPE, name)
    return name


def as_value(b: Builder, operand: Operand, dtype: str) -> Value:
    """A tensor cast to a dtype, a number as a constant of it."""
    if isinstance(operand, Value):
        return cast_to(b, operand, dtype)
    try:
        return b.constant(operand, dtype)
    except OverflowError as error:
        raise Unsupported(Reason.DTYPE, f"the number {operand} as {dtype}") from error


def as_number(b: Builder, operand: Operand) -> Value:
    """A tensor, or a number of a loop, whose integers are of 64 bits."""
    if isinstance(operand, Value):
        return operand
    return b.constant(operand, "bool" if isinstance(operand, bool) else "int64")


def common(*operands: Operand) -> str:
    """The dtype that PyTorch promotes two operands to."""
    import torch

    def like(operand: Operand) -> Any:
        if not isinstance(operand, Value):
            return operand
        shape = (1,) * min(operand.type.rank, 1)
        return torch.empty(shape, dtype=getattr(torch, operand.dtype), device="meta")

    return dtype_name(torch.result_type(*map(like, operands)))


def arithmetic(operator: str, b: Builder, out: TensorType, *operands: Operand) -> Value:
    """An operator of elements that are all of the dtype of the result."""
    dtype = product_dtype(out, *operands) if operator in ("multiply", "divide") else out.dtype
    return narrowed(b, b.add(operator, *(as_value(b, x, dtype) for x in operands)), out)


def product_dtype(out: TensorType, *operands: Operand) -> str:
    """What a product or quotient is computed in: numbers beside narrow floats are not rounded."""
    narrow = dtypes.is_float(out.dtype) and dtypes.nbytes(out.dtype) < 4
    numbers = not all(isinstance(x, Value) for x in operands)
    return "float32" if narrow and numbers else out.dtype


def narrowed(b: Builder, x: Value, out: TensorType) -> Value:
    """`x`, which may have been computed in a wider dtype than a result."""
    return x if x.dtype == out.dtype else b.add("rounded", x, dtype=out.dtype)


def in_wide(b: Builder, x: Value, out: TensorType, compute: Callable[[Value], Value]) -> Value:
    """A composition of several steps, which is rounded once. Integers are floats of the result."""
    own = cast_to(b, x, out.dtype)
    return cast_to(b, compute(cast_to(b, own, wide(own))), out.dtype)


def spread(values: Sequence[int] | int, rank: int) -> tuple[int, ...]:
    """A value for each dimension, of which one may be given for all."""
    given = (values,) if isinstance(values, int) else tuple(values)
    return given * rank if len(given) == 1 else given


def axes_of(dim: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Axes from the front; without any, all are meant."""
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return tuple(range(rank))
    given = (dim,) if isinstance(dim, int) else dim
    return tuple(int(d) % max(rank, 1) for d in given) if rank else ()


def ranged(start: float, step: float, count: int) -> Any:
    return start + step * np.arange(count)

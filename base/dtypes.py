"""Data types: interned strings such as `float32`, with lanes as a suffix (`float32x16`).

Scalar names are numpy's and ml_dtypes'. A dtype with lanes is the type of a vector value after
lowering; buffers are always of a scalar dtype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple, cast

import numpy as np

from .errors import IRError, similar

Kind = Literal["float", "int", "uint", "bool"]


class Info(NamedTuple):
    """Facts about a dtype; `bits` and `mantissa` (explicit bits) are per lane."""

    scalar: str
    kind: Kind
    bits: int
    lanes: int
    mantissa: int


_SCALARS: dict[str, Info] = {
    name: Info(name, cast(Kind, kind), bits, 1, mantissa)
    for name, kind, bits, mantissa in [
        ("bool", "bool", 8, 0),
        ("int8", "int", 8, 0),
        ("int16", "int", 16, 0),
        ("int32", "int", 32, 0),
        ("int64", "int", 64, 0),
        ("uint8", "uint", 8, 0),
        ("uint16", "uint", 16, 0),
        ("uint32", "uint", 32, 0),
        ("uint64", "uint", 64, 0),
        ("float8_e4m3fn", "float", 8, 3),
        ("float8_e5m2", "float", 8, 2),
        ("float16", "float", 16, 10),
        ("bfloat16", "float", 16, 7),
        ("float32", "float", 32, 23),
        ("float64", "float", 64, 52),
    ]
}
SCALARS: tuple[str, ...] = tuple(_SCALARS)
_ABBREVIATED = {"bf": "bfloat", "f": "float", "fp": "float", "i": "int", "u": "uint"}
_OTHER_NAMES = {"double": "float64", "float": "float32", "half": "float16", "int": "int32"}
MAX_BYTES = 2**63 - 1
"""Of a tensor, and from its first element to the end of the last: numpy counts no further."""
UNKNOWN = -1
"""An extent that data decide when a model runs, of what no kernel computes or reads."""
ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


@cache
def info(dtype: str) -> Info:
    """Returns the facts about a dtype. Raises `IRError` for an unknown name."""
    if dtype in _SCALARS:
        return _SCALARS[dtype]
    scalar, _, lanes = dtype.rpartition("x")
    if scalar in _SCALARS and lanes.isdecimal() and int(lanes) > 1:
        return _SCALARS[scalar]._replace(lanes=int(lanes))
    raise IRError(
        "unknown dtype {0!r}; expected one of {1}", dtype, ", ".join(SCALARS), hint=_meant(dtype)
    )


def _meant(dtype: str) -> str | None:
    """The hint for names of other languages, such as `f32`, and for misspelt ones."""
    kind = dtype.rstrip("0123456789")
    name = _OTHER_NAMES.get(dtype, _ABBREVIATED.get(kind, "") + dtype[len(kind) :])
    return f"did you mean {name}?" if name in _SCALARS else similar(dtype, SCALARS)


@cache
def vector(dtype: str, lanes: int) -> str:
    """The dtype with `lanes` lanes of the scalar of `dtype`."""
    scalar = info(dtype).scalar
    return scalar if lanes == 1 else f"{scalar}x{lanes}"


@cache
def is_float(dtype: str) -> bool:
    return info(dtype).kind == "float"


@cache
def is_integer(dtype: str) -> bool:
    return info(dtype).kind in ("int", "uint")


@cache
def is_bool(dtype: str) -> bool:
    return info(dtype).kind == "bool"


@cache
def nbytes(dtype: str) -> int:
    """Bytes of a value in memory, over all lanes."""
    facts = info(dtype)
    return facts.bits // 8 * facts.lanes


def span_bytes(shape: Sequence[int], strides: Sequence[int] | None, dtype: str) -> int:
    """Bytes from the first element of a tensor to the end of its last one; 0 of no element.

    `strides` are in elements, `None` is compact.
    """
    size = math.prod(shape)
    if strides is not None and size:
        size = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    return size * nbytes(dtype)


def counted_bytes(shape: Sequence[int], strides: Sequence[int] | None, dtype: str) -> int:
    """The most bytes that numpy counts of a tensor, which are at most `MAX_BYTES`.

    Those are all elements, one stride, or the span. Extents of 0 count as 1.
    """
    extents = [max(n, 1) for n in shape]
    elements = max(math.prod(extents), *(strides or (0,)))
    return max(elements * nbytes(dtype), span_bytes(extents, strides, dtype))


@cache
def to_numpy(dtype: str) -> np.dtype:
    """The numpy dtype of a scalar dtype (through ml_dtypes for bfloat16 and float8)."""
    scalar = info(dtype).scalar
    if scalar in ML_DTYPES:
        import ml_dtypes

        scalar_type: type[np.generic] = getattr(ml_dtypes, scalar)
        return np.dtype(scalar_type)
    return np.dtype(scalar)


def from_numpy(dtype: object) -> str:
    """The name of anything that `numpy.dtype` takes. Raises `IRError` for unsupported dtypes."""
    name = np.dtype(dtype).name  # type: ignore[call-overload]
    if name not in _SCALARS:
        raise IRError("dtype {0} is not supported; expected one of {1}", name, ", ".join(SCALARS))
    return cast(str, name)


@cache
def promote(a: str, b: str) -> str:
    """The common dtype of two scalar dtypes by numpy 2's rules.

    Raises `IRError` if there is none (float8 with another float8, say).
    """
    if a == b:
        return a
    try:
        return from_numpy(np.promote_types(to_numpy(a), to_numpy(b)))
    except (TypeError, IRError) as error:
        raise IRError("{0} and {1} have no common dtype; cast one of them", a, b) from error


@cache
def largest_float(dtype: str) -> float:
    """The largest finite value of a dtype of floats."""
    scalar = to_numpy(dtype)
    if info(dtype).scalar not in ML_DTYPES:
        return float(np.finfo(scalar).max)
    import ml_dtypes

    return float(ml_dtypes.finfo(scalar).max)  # type: ignore[no-untyped-call]


@cache
def extremes(dtype: str) -> tuple[float, float]:
    """What no value of a dtype is below, and above: infinities of floats."""
    return (-math.inf, math.inf) if is_float(dtype) else int_limits(dtype)


@cache
def int_limits(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer (or bool) dtype."""
    facts = info(dtype)
    if facts.kind == "bool":
        return 0, 1
    if facts.kind == "uint":
        return 0, (1 << facts.bits) - 1
    return -(1 << (facts.bits - 1)), (1 << (facts.bits - 1)) - 1

"""The layout of a constant operand that is packed before the calls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np

from .. import dtypes
from ..errors import ArgumentError, ArtifactError

_ALIGN = 64


@dataclass(frozen=True)
class Packing:
    """How a kernel wants an operand of `shape`: in the layout that `Schedule.pack` made.

    `layout` has a capital letter for each dimension in order (A the first), and a small letter for
    the inner part of the dimension of the same letter; `factors` are the sizes of the inner parts,
    in the order of their letters in `layout`. Where a factor does not divide, zeros are added.
    """

    layout: str
    factors: tuple[int, ...]
    shape: tuple[int, ...]

    def __str__(self) -> str:
        """For people: `BAb, b = 48`."""
        return ", ".join([self.layout, *(f"{c} = {n}" for c, n in self._inner.items())])

    @cached_property
    def packed_shape(self) -> tuple[int, ...]:
        """The shape of the packed operand."""
        return tuple(self._extent(letter) for letter in self.layout)

    def pack(self, array: Any, name: str, dtype: str) -> np.ndarray[Any, Any]:
        """A packed copy of an array of `shape` and `dtype`, aligned to cache lines.

        Raises `ArgumentError` for an array of another shape or dtype.
        """
        given: np.ndarray[Any, Any] = np.asarray(array)
        wanted = dtypes.to_numpy(dtype)
        if given.shape != self.shape or given.dtype != wanted:
            raise ArgumentError(
                "argument {0}: expected an array of {1}{2} to pack, found {3}{4}",
                name,
                dtype,
                list(self.shape),
                given.dtype.name,
                list(given.shape),
            )
        padding, parts = [], list[int]()
        places: dict[str, int] = {}
        for d, extent in enumerate(self.shape):
            outer = chr(ord("A") + d)
            places[outer] = len(parts)
            parts.append(self._extent(outer))
            if outer.lower() in self._inner:
                places[outer.lower()] = len(parts)
                parts.append(self._extent(outer.lower()))
            padding.append((0, math.prod(parts[places[outer] :]) - extent))
        full = np.pad(given, padding) if any(after for _, after in padding) else given
        packed = _aligned(self.packed_shape, wanted)
        packed[...] = full.reshape(parts).transpose([places[c] for c in self.layout])
        return packed

    def to_json(self) -> dict[str, Any]:
        return {"layout": self.layout, "factors": list(self.factors), "shape": list(self.shape)}

    @staticmethod
    def from_json(data: object) -> Packing:
        """The packing of its JSON form. Raises `ArtifactError` if that is malformed."""
        fields = data if isinstance(data, dict) else {}
        layout, factors, shape = (fields.get(k) for k in ("layout", "factors", "shape"))
        if not (
            isinstance(layout, str)
            and _are_sizes(factors, 1)
            and _are_sizes(shape, 0)
            and _names(layout, len(factors), len(shape))
        ):
            raise ArtifactError("expected how an operand is packed, found {0!r}", data)
        return Packing(layout, tuple(factors), tuple(shape))

    @cached_property
    def _inner(self) -> dict[str, int]:
        return dict(zip(filter(str.islower, self.layout), self.factors, strict=True))

    def _extent(self, letter: str) -> int:
        if letter.islower():
            return self._inner[letter]
        extent = self.shape[ord(letter) - ord("A")]
        return -(-extent // self._inner.get(letter.lower(), 1))


def _are_sizes(value: object, least: int) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int and n >= least for n in value)


def _names(layout: str, factors: int, rank: int) -> bool:
    """Whether the letters name `rank` dimensions, and `factors` inner parts of some of them."""
    capitals = [chr(ord("A") + d) for d in range(rank)]
    small = [c for c in layout if c not in capitals]
    return (
        sorted(c for c in layout if c in capitals) == capitals
        and len(small) == len(set(small)) == factors
        and all(c.islower() and c.upper() in capitals for c in small)
    )


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGN, np.uint8)
    start = -memory.ctypes.data % _ALIGN
    return memory[start : start + size].view(dtype).reshape(shape)

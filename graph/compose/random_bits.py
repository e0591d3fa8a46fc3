"""Random bits from keys and counters: Threefry and Philox, of Salmon et al., "Parallel Random
Numbers: As Easy as 1, 2, 3" (2011). What is drawn is a function of its operands.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..builder import Builder
from ..ir import Value
from .basics import cast_to, room

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def philox(b: Builder, counter: Sequence[Value], key: Sequence[Value]) -> list[Value]:
    """Philox4x32-10: four words of each counter of four, by a key of two; all are uint32."""
    x, k = list(counter), list(key)
    for _ in range(10):
        (low0, high0), (low1, high1) = (
            words(b, b.add("multiply", cast_to(b, v, "uint64"), b.constant(m, "uint64")))
            for v, m in zip(x[::2], _MULTIPLIERS, strict=True)
        )
        x = [_xor(b, high1, x[1], k[0]), low1, _xor(b, high0, x[3], k[1]), low0]
        k = [b.add("add", v, b.constant(w, "uint32")) for v, w in zip(k, _WEYL, strict=True)]
    return x


def threefry(b: Builder, counter: Sequence[Value], key: Sequence[Value]) -> list[Value]:
    """Threefry2x32-20: two words of each counter of two, by a key of two; all are uint32."""
    keys = [*key, _xor(b, *key, b.constant(_PARITY, "uint32"))]
    first, second = (b.add("add", v, k) for v, k in zip(counter, key, strict=True))
    for turn in range(1, 6):
        for count in _ROTATIONS[(turn - 1) % 2]:
            first = b.add("add", first, second)
            second = b.add("bitwise_xor", _rotated(b, second, count), first)
        first = b.add("add", first, keys[turn % 3])
        injected = b.add("add", keys[(turn + 1) % 3], b.constant(turn, "uint32"))
        second = b.add("add", second, injected)
    return [first, second]


def words(b: Builder, x: Value) -> tuple[Value, Value]:
    """The low and the high 32 bits of uint64."""
    high = b.add("shift_right", x, b.constant(32, "uint64"))
    return cast_to(b, x, "uint32"), cast_to(b, high, "uint32")


def joined(b: Builder, low: Value, high: Value) -> Value:
    """Words of uint32 as uint64."""
    low, high = (cast_to(b, v, "uint64") for v in (low, high))
    return b.add("bitwise_or", low, b.add("shift_left", high, b.constant(32, "uint64")))


def counted(b: Builder, first: Value, shape: Sequence[int]) -> Value:
    """Numbers of a shape, in their order, from a uint64 on; after the largest comes 0."""
    room(*shape)
    steps = np.arange(int(np.prod(shape)), dtype=np.uint64)
    return b.add("add", first, b.constant(steps.reshape(shape)))


def _xor(b: Builder, first: Value, *others: Value) -> Value:
    for other in others:
        first = b.add("bitwise_xor", first, other)
    return first


def _rotated(b: Builder, x: Value, count: int) -> Value:
    left, right = (b.constant(n, "uint32") for n in (count, 32 - count))
    return b.add("bitwise_or", b.add("shift_left", x, left), b.add("shift_right", x, right))

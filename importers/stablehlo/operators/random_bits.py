"""Random bits, whose state is an operand and a result: those that XLA draws, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....base import dtypes
from ....graph.builder import Builder
from ....graph.compose.basics import cast_to, part, reshaped, row, stacked
from ....graph.compose.bits import bits_as
from ....graph.compose.random_bits import counted, joined, philox, threefry, words
from ....graph.ir import Value
from ...unsupported import Reason, Unsupported
from ..table import Op, enumerated, hlo


@hlo("rng_bit_generator")
def random_bits(b: Builder, op: Op) -> Sequence[Value]:
    """The state is a key and a counter, of two words of it as XLA's other processors have it.

    `DEFAULT` is Philox, as on a processor; types of fewer than 32 bits are the low ones.
    """
    state, out = op[0], op.results[1]
    if state.dtype != "uint64" or not dtypes.is_integer(out.dtype):
        raise Unsupported(Reason.DTYPE, f"random bits of {state.type} as {out.dtype}")
    algorithm = enumerated(str(op.raw.attributes["rng_algorithm"]))
    lengths = {"THREE_FRY": (2,), "PHILOX": (2, 3), "DEFAULT": (2, 3)}[algorithm]
    if state.shape not in [(n,) for n in lengths]:
        raise Unsupported(Reason.ATTRIBUTE, f"{algorithm} with a state {state.type}")
    draw = _by_threefry if algorithm == "THREE_FRY" else _by_philox
    bits = dtypes.info(out.dtype).bits
    values, counter = draw(b, state, out.shape, bits == 64)
    own = bits_as(b, cast_to(b, values, f"uint{bits}"), "int" if out.dtype[0] == "i" else "uint")
    return b.add("concatenate", part(b, state, 0, 0, 1), counter, axis=0), own


def _by_threefry(
    b: Builder, state: Value, shape: tuple[int, ...], is_wide: bool
) -> tuple[Value, Value]:
    """Two words of a counter are neighbours along the first even dimension, else the largest."""
    key, first = (row(b, state, 0, k) for k in (0, 1))
    whole = shape or (1,)
    axis = next((d for d, e in enumerate(whole) if not e % 2), whole.index(max(whole)))
    counters = list(whole)
    if not is_wide:
        counters[axis] = -(-whole[axis] // 2)
    found = threefry(b, words(b, counted(b, first, counters)), words(b, key))
    if is_wide:
        values = joined(b, *found)
    else:
        pairs = [*whole[:axis], 2 * counters[axis], *whole[axis + 1 :]]
        values = part(b, reshaped(b, stacked(b, found, axis + 1), pairs), axis, 0, whole[axis])
    last = b.add("add", part(b, state, 0, 1, 1), b.constant(math.prod(counters), "uint64"))
    return reshaped(b, values, shape), last


def _by_philox(
    b: Builder, state: Value, shape: tuple[int, ...], is_wide: bool
) -> tuple[Value, Value]:
    """The counter has 128 bits; with a state of two words its upper half is the key."""
    given = [row(b, state, 0, k) for k in range(state.shape[0])]
    size = math.prod(shape)
    count = -(-size // (2 if is_wide else 4))
    low = counted(b, given[1], (count + 1,))
    carry = cast_to(b, b.add("less", low, given[1]), "uint64")
    high = b.add("add", given[2] if len(given) > 2 else given[0], carry)
    each = [v for half in (low, high) for v in words(b, part(b, half, 0, 0, count))]
    found = philox(b, each, words(b, given[0]))
    if is_wide:
        found = [joined(b, *found[:2]), joined(b, *found[2:])]
    flat = reshaped(b, stacked(b, found, 1), (count * len(found),))
    last = [part(b, half, 0, count, 1) for half in (low, high)][: len(given) - 1]
    counter = b.add("concatenate", *last, axis=0) if len(last) > 1 else last[0]
    return reshaped(b, part(b, flat, 0, 0, size), shape), counter

"""Comparing a candidate's results with those of the unscheduled program.

Integers and bools are exact. For floats the error of an element is its deviation relative to the
element and the typical size of the output together (a sum that cancels has an error like the sums
around it, however small it is):

    |found - expected| / (|expected| + rms(expected))

The order of a sum is not specified, so the error that rounding alone explains grows as a random
walk, with the square root of the number of terms; what is tolerated is a few times that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import dtypes
from ...errors import TilewrightError
from ...tir.ir import Block, Buffer, Func, IterKind, Load, Store
from ...tir.visit import walk
from .measure_result import CheckResult

Array = np.ndarray[Any, Any]
_CHUNK = 1 << 20


def tolerance_of(func: Func) -> float:
    """The largest error that rounding explains in an unscheduled program."""
    rounded, accumulated, length = 0.0, 0.0, 0
    for block in walk(func):
        if type(block) is not Block:
            continue
        written = [s.buffer for s in walk(block) if type(s) is Store]
        epsilon = max([_epsilon(b) for b in written], default=0.0)
        rounded = max(rounded, epsilon)
        repeated = [i.extent for i in block.iters if i.kind is not IterKind.SPATIAL]
        terms = math.prod(n for n in repeated if isinstance(n, int))
        if terms > 1 and _accumulates(block):
            accumulated = max(accumulated, epsilon)
            length += terms
    return 8 * rounded + accumulated * (16 + 4 * math.sqrt(length))


def require_tolerance(tolerance: float | None, error: type[TilewrightError]) -> None:
    """Raise `error` unless `tolerance` is `None` or more than 0 and at most 1."""
    number = isinstance(tolerance, (int, float)) and not isinstance(tolerance, bool)
    if tolerance is not None and not (number and 0 < tolerance <= 1):
        raise error(
            "tolerance={0!r}: expected an error of more than 0 and at most 1, relative to the "
            "typical size of the results",
            tolerance,
        )


def check_outputs(
    results: Sequence[Array], expected: Sequence[Array], names: Sequence[str], tolerance: float
) -> CheckResult:
    """Compare outputs. The error names the worst element of the first that does not agree."""
    worst = 0.0
    for name, a, b in zip(names, results, expected, strict=True):
        error, place = largest_error(a, b)
        limit = tolerance if dtypes.is_float(dtypes.from_numpy(a.dtype)) else 0.0
        if not error <= limit:
            text = (
                f"{name}{[int(i) for i in place]} is {a[place]!s}, expected {b[place]!s}: "
                f"error {error:.3g}, tolerance {limit:.3g}"
            )
            return CheckResult(False, error, tolerance, text)
        worst = max(worst, error)
    return CheckResult(True, worst, tolerance)


def largest_error(results: Array, expected: Array) -> tuple[float, tuple[int, ...]]:
    """The largest error of two arrays of one shape and dtype, and where it is."""
    if results.size == 0:
        return 0.0, ()
    if not dtypes.is_float(dtypes.from_numpy(results.dtype)):
        return _largest_difference(results, expected)
    scale = _typical(expected)
    worst, where = -1.0, 0
    flat_results, flat_expected = results.reshape(-1), expected.reshape(-1)
    for start in range(0, results.size, _CHUNK):
        error = _errors(
            flat_results[start : start + _CHUNK].astype(np.float64),
            flat_expected[start : start + _CHUNK].astype(np.float64),
            scale,
        )
        k = int(np.argmax(error))
        if error[k] > worst:
            worst, where = float(error[k]), start + k
    return worst, _place(where, results.shape)


def _errors(results: Array, expected: Array, scale: float) -> Array:
    with np.errstate(all="ignore"):
        error: Array = np.abs(results - expected) / (np.abs(expected) + scale)
    same = (results == expected) | (np.isnan(results) & np.isnan(expected))
    error[same] = 0.0
    error[~same & ~(np.isfinite(results) & np.isfinite(expected))] = np.inf
    return error


def _typical(expected: Array) -> float:
    """The root mean square of the finite elements; 1 where they are all zero."""
    total, count = 0.0, 0
    flat = expected.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        piece = flat[start : start + _CHUNK].astype(np.float64)
        finite = piece[np.isfinite(piece)]
        total += float(np.dot(finite, finite))
        count += finite.size
    return math.sqrt(total / count) if total > 0 and math.isfinite(total) else 1.0


def _largest_difference(results: Array, expected: Array) -> tuple[float, tuple[int, ...]]:
    if results.dtype == np.bool_:  # a byte that is neither 0 nor 1 is wrong too
        results, expected = results.view(np.uint8), expected.view(np.uint8)
    wrong = results != expected
    if not wrong.any():
        return 0.0, ()
    where = _place(int(np.argmax(wrong)), results.shape)
    return abs(float(results[where]) - float(expected[where])) or 1.0, where


def _place(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape))


def _accumulates(block: Block) -> bool:
    """Whether a block reads what it writes."""
    written = {s.buffer for s in walk(block.body) if type(s) is Store}
    return any(type(n) is Load and n.buffer in written for n in walk(block.body))


def _epsilon(buffer: Buffer) -> float:
    facts = dtypes.info(buffer.dtype)
    return 2.0**-facts.mantissa if facts.kind == "float" else 0.0

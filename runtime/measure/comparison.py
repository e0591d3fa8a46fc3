"""Comparing a candidate's results with those of the unscheduled program.

Integers and bools are exact. For floats the error of an element is its deviation relative to the
element and the typical size of the output together (a sum that cancels has an error like the sums
around it, however small it is):

    |found - expected| / (|expected| + rms(expected))

The order of a sum is not specified, so the error that rounding alone explains grows as a random
walk, with the square root of the number of terms; what is tolerated is a few times that.

An output that cancels has errors of the size of the terms before they cancelled, and the
unscheduled program is no more accurate than others. A candidate that deviates by more is therefore
compared with `Exact` results, those of wider arithmetic (`tir/widen.py`): it passes if it is as
accurate as the unscheduled program up to `ROUNDING_FACTOR`, in its worst element and on average
(rms). The first alone would let much pass where a comparison of rounded values goes the other way
in one element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from ...base import dtypes

Array = np.ndarray[Any, Any]
_CHUNK = 1 << 20
ROUNDING_FACTOR = 4
"""How many times the rounding error of the unscheduled program a candidate's may be."""


@dataclass(frozen=True)
class CheckResult:
    """A numeric check against the unscheduled program.

    `max_error` is the largest deviation, in the measure of this module; `tolerance` limits it.
    `error` says what is wrong where it did not pass.
    """

    passed: bool
    max_error: float
    tolerance: float
    error: str | None = None

    @staticmethod
    def from_json(fields: dict[str, Any]) -> CheckResult:
        """The result of `to_json`."""
        error = fields["max_error"]
        return CheckResult(**{**fields, "max_error": math.inf if error is None else error})

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON, where `null` stands for infinity."""
        finite = self.max_error < math.inf
        return {**asdict(self), "max_error": self.max_error if finite else None}


class Deviation(NamedTuple):
    """The errors of an output: the largest, the root of their mean square, where the largest is."""

    largest: float
    rms: float
    place: tuple[int, ...] = ()


class Exact(NamedTuple):
    """The outputs in wider arithmetic, and the unscheduled program's `Deviation` from each."""

    outputs: Sequence[Array]
    rounding: Sequence[Deviation]


def check_outputs(
    results: Sequence[Array],
    expected: Sequence[Array],
    names: Sequence[str],
    tolerance: float,
    exact: Exact | None = None,
    error_factor: float = 1.0,
) -> CheckResult:
    """Compare outputs. The error names the worst element of the first that does not agree.

    Without `exact`, what rounding alone does not explain fails. Inexact schedules may deviate by
    `error_factor` times as much.
    """
    worst, tolerance = 0.0, tolerance * error_factor
    allowed = tolerance
    for n, (name, a, b) in enumerate(zip(names, results, expected, strict=True)):
        is_float = dtypes.is_float(dtypes.from_numpy(a.dtype))
        limit = tolerance if is_float else 0.0
        error, place = largest_error(a, b)
        passed, more = error <= limit, ""
        if not passed and is_float and exact is not None:
            own = exact.rounding[n]
            found = deviation(a, b, exact.outputs[n])
            factor = ROUNDING_FACTOR * error_factor
            most, mean = (max(limit, factor * e) for e in (own.largest, own.rms))
            passed = found.largest <= most and found.rms <= mean
            if passed:
                error, allowed = found.largest, max(allowed, most)
            more = (
                f"; in wider arithmetic its error is {found.largest:.3g} (rms {found.rms:.3g}), "
                f"that of the program as written {own.largest:.3g} (rms {own.rms:.3g})"
            )
        if not passed:
            text = (
                f"{name}{[int(i) for i in place]} is {a[place]!s}, expected {b[place]!s}: "
                f"error {error:.3g}, tolerance {limit:.3g}{more}"
            )
            return CheckResult(False, error, tolerance, text)
        worst = max(worst, error)
    return CheckResult(True, worst, allowed)


def largest_error(results: Array, expected: Array) -> tuple[float, tuple[int, ...]]:
    """The largest error of two arrays of one shape and dtype, and where it is."""
    if results.size and not dtypes.is_float(dtypes.from_numpy(results.dtype)):
        return _largest_difference(results, expected)
    found = deviation(results, expected, expected)
    return found.largest, found.place


def deviation(results: Array, expected: Array, exact: Array) -> Deviation:
    """The errors of floats against `exact`, relative to what is `expected`.

    The arrays have one shape. Where `expected` is not finite, `results` have to agree with it;
    where only `exact` is not, `expected` stands for it.
    """
    if results.size == 0:
        return Deviation(0.0, 0.0)
    scale = typical_size(expected)
    worst, where, squares = -1.0, 0, 0.0
    flat = [array.reshape(-1) for array in (results, expected, exact)]
    for start in range(0, results.size, _CHUNK):
        a, b, c = (array[start : start + _CHUNK].astype(np.float64) for array in flat)
        error = _errors(a, b, c, scale)
        k = int(np.argmax(error))
        if error[k] > worst:
            worst, where = float(error[k]), start + k
        with np.errstate(over="ignore"):
            squares += float(np.dot(error, error))
    return Deviation(worst, math.sqrt(squares / results.size), _place(where, results.shape))


def _errors(results: Array, expected: Array, exact: Array, scale: float) -> Array:
    finite = np.isfinite(expected)
    with np.errstate(all="ignore"):
        center = np.where(np.isfinite(exact), exact, expected)
        error: Array = np.abs(results - center) / (np.abs(expected) + scale)
    same = (results == expected) | (np.isnan(results) & np.isnan(expected))
    error[~finite & same] = 0.0
    error[~(finite & np.isfinite(results)) & ~same] = np.inf
    return error


def typical_size(expected: Array) -> float:
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

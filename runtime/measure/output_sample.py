"""Single elements of outputs that were computed on a host, to judge a device by.

`autotune/measure/host_sample.py` computes them. A pack has them as JSON: floats are texts of
`float.hex`, since JSON has neither NaN nor infinities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...base import dtypes
from ...base.checked_json import read
from ...base.errors import ArtifactError, KernelError
from ..signature import Argument
from .comparison import ROUNDING_FACTOR, Array, largest_error, typical_size


@dataclass(frozen=True)
class OutputSample:
    """Elements of the output `name` of a dtype, at `places` (int64, flat positions in order).

    `exact` are computed in float64, and `own` by the program's own arithmetic.
    """

    name: str
    dtype: str
    places: Array
    exact: Array
    own: Callable[[], Array]

    def check(self, output: Array, tolerance: float) -> None:
        """Compare the output of a device.

        An error beyond `tolerance` is accepted if that of the program's own arithmetic on the host
        is comparable. Raises `KernelError`.
        """
        found = output.reshape(-1)[self.places]
        if not dtypes.is_float(self.dtype):
            largest, limit = largest_error(found, self.exact.astype(found.dtype))[0], 0.0
        else:
            scale, most = typical_size(output), dtypes.largest_float(self.dtype)
            largest, limit = _error(found, self.exact, scale, most), tolerance
            if largest > limit:
                limit = max(limit, ROUNDING_FACTOR * _error(self.own(), self.exact, scale, most))
        if largest > limit:
            raise KernelError(
                "{0} of the program as written differs from float64 on the host: of {1} elements "
                "the largest error is {2:.3g}, expected at most {3:.3g}",
                self.name,
                len(self.places),
                largest,
                limit,
                hint="the device, its driver or the code generator computes wrong results: please "
                "report the program",
            )

    def to_json(self) -> dict[str, Any]:
        numbers = {"exact": self.exact, "own": self.own()}
        return {
            "places": [int(n) for n in self.places],
            **{name: [_text(x) for x in array.tolist()] for name, array in numbers.items()},
        }

    @staticmethod
    def from_json(data: object, argument: Argument) -> OutputSample:
        """The sample of an output. Raises `ArtifactError`."""
        what, dtype = f"pack: the sample of {argument.name}", argument.dtype
        found = read(_Plain, data, what)
        if any(not 0 <= n < argument.size for n in found.places):
            raise ArtifactError("{0}: expected positions below {1}", what, argument.size)
        if any(len(numbers) != len(found.places) for numbers in (found.exact, found.own)):
            raise ArtifactError("{0}: expected a number for each of its positions", what)
        try:
            exact, own = _numbers(found.exact, dtype), _numbers(found.own, dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise ArtifactError("{0}: expected numbers of {1}", what, dtype) from error
        places = np.array(found.places, np.int64)
        return OutputSample(argument.name, dtype, places, exact, lambda: own)


@dataclass(frozen=True)
class _Plain:
    places: tuple[int, ...]
    exact: list[Any]
    own: list[Any]


def _text(number: object) -> object:
    return number.hex() if isinstance(number, float) else number


def _numbers(texts: list[Any], dtype: str) -> Array:
    if dtypes.is_float(dtype):
        return np.array([float.fromhex(text) for text in texts], np.float64)
    return np.array(texts, dtypes.to_numpy(dtype))


def _error(found: Array, exact: Array, scale: float, most: float) -> float:
    """The largest error relative to the element and the size of the output together.

    Numbers beyond `most` overflow the dtype of the output.
    """
    a, b = found.astype(np.float64), exact.astype(np.float64)
    with np.errstate(all="ignore"):
        errors = np.abs(a - b) / (np.abs(b) + scale)
    errors[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    errors[np.isinf(a) & (np.sign(a) == np.sign(b)) & (np.abs(b) > most)] = 0.0
    return float(np.nan_to_num(errors, nan=np.inf, posinf=np.inf).max(initial=0.0))

"""Scales of charts: values to pixels, ticks at round values, and texts of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

_WIDEST = 1e100
"""Values beyond it, and positive ones below its inverse, are on no chart."""
_NARROWEST = 1.05
"""The least ratio of the ends of a logarithmic scale: labels of three digits then differ."""
_ROUND = ((1, 2, 5), (1, 3), (1,))
"""Digits of the ticks within a decade, the finest first."""
_CHARACTER = 6.2
"""The mean width of a character in a label of 11 pixels."""


def plottable(value: float, *, logarithmic: bool = False) -> bool:
    """Whether a chart has a place for the value: finite, and positive on a logarithmic scale."""
    if not isfinite(value) or abs(value) > _WIDEST:
        return False
    return not logarithmic or value > 1 / _WIDEST


def width_of(text: str) -> float:
    """The approximate width of a label, in pixels."""
    return _CHARACTER * len(text)


@dataclass(frozen=True)
class Axis:
    """An axis as the reader of a chart sees it: what it shows, and how values are written."""

    label: str
    write: Callable[[float], str] = "{:.4g}".format
    logarithmic: bool = False
    zero: bool = False
    """Whether a linear scale begins at 0."""


@dataclass(frozen=True)
class Scale:
    """The values from `low` to `high` on the pixels from `begin` to `end`."""

    low: float
    high: float
    begin: float
    end: float
    logarithmic: bool = False

    @classmethod
    def around(cls, values: Iterable[float], begin: float, end: float, axis: Axis) -> Scale:
        """The scale that has all plottable values, with some room on both sides."""
        shown = [v for v in values if plottable(v, logarithmic=axis.logarithmic)]
        low, high = (min(shown), max(shown)) if shown else (1.0, 1.0)
        if axis.logarithmic:
            room = max((high / low) ** 0.04, (_NARROWEST * low / high) ** 0.5, 1.0)
            return cls(low / room, high * room, begin, end, logarithmic=True)
        if axis.zero:
            low = min(low, 0.0)
        room = (high - low) * 0.04 or abs(high) * 0.1 or 1.0
        return cls(low if axis.zero and low == 0 else low - room, high + room, begin, end)

    def __call__(self, value: float) -> float:
        """The pixel of a value; one beyond the ends of the scale is at its end."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            part = log10(value / self.low) / log10(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.begin + part * (self.end - self.begin)

    def ticks(self, spacing: float) -> list[float]:
        """Round values that are about `spacing` pixels apart, at the least."""
        most = max(2, int(abs(self.end - self.begin) / spacing))
        if not self.logarithmic or self.high < 3 * self.low:
            return self._even(most)
        first, last = floor(log10(self.low)), ceil(log10(self.high))
        for digits in _ROUND:
            found = self._within(d * 10.0**k for k in range(first, last + 1) for d in digits)
            if len(found) <= most:
                return found
        stride = ceil((last - first) / most)
        return self._within(10.0**k for k in range(first, last + 1, stride))

    def _even(self, most: int) -> list[float]:
        """The multiples of the least round step of which there are at most so many."""
        power = 10.0 ** floor(log10((self.high - self.low) / most))
        steps = (power * d for d in (1, 2, 5, 10, 20))
        found = (
            [k * s for k in range(ceil(self.low / s), floor(self.high / s) + 1)] for s in steps
        )
        return next(ticks for ticks in found if len(ticks) <= most)

    def _within(self, values: Iterable[float]) -> list[float]:
        return [v for v in values if self.low <= v <= self.high]


def labelled(
    ticks: Sequence[float], axis: Axis, scale: Scale, room: Callable[[str], float]
) -> list[tuple[float, str]]:
    """The pixels and labels of the ticks whose labels differ and have `room` pixels each."""
    shown: list[tuple[float, str]] = []
    for value in ticks:
        label, at = axis.write(value), scale(value)
        if shown:
            before, last = shown[-1]
            if last == label or abs(at - before) < (room(label) + room(last)) / 2:
                continue
        shown.append((at, label))
    return shown

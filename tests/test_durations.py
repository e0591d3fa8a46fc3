"""Durations, and ratios of them, as text."""

from __future__ import annotations

import re
from math import inf, nan

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tilewright.durations import (
    MeasuredTime,
    format_change,
    format_changes,
    format_factor,
    format_factor_between,
    format_factors,
    format_long,
    format_ratio,
    format_seconds,
)
from tilewright.tuning_db.gains import Gain, gain_cell, gains_text
from tilewright.tuning_db.values import Baseline


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(1.0, "1.000x"), (1.0042, "1.004x"), (1.134, "1.13x"), (7.27, "7.3x"), (37.13, "37x")],
)
def test_factors_have_the_digits_that_matter(ratio: float, text: str) -> None:
    assert format_factor(ratio) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.9893, 1.0171, "0.99 to 1.02"),
        (1.0, 1.0, "1.00 to 1.00"),
        (1.0004, 1.057, "1.0004 to 1.06"),
        (0.97, 0.998, "0.97 to 0.998"),
        (7.18, 12.4, "7.2 to 12"),
        (1.0 + 1e-15, inf, "1.000000000 to inf"),
    ],
)
def test_what_is_not_1_is_not_printed_as_1(low: float, high: float, text: str) -> None:
    assert format_factors(low, high) == text


@pytest.mark.parametrize(
    ("ratio", "interval", "text"),
    [
        (1.134, (1.09, 1.2), "1.13x (1.09 to 1.20)"),
        (1.0079, (1.0074, 1.02), "1.008x (1.007 to 1.02)"),
        (1.0002, (1.0001, 1.03), "1.0002x (1.0001 to 1.03)"),
        (2.04, (1.99, 2.042), "2.0x (1.99 to 2.0)"),
        (7.27, None, "7.3x (too few rounds)"),
    ],
)
def test_a_factor_is_in_its_interval(
    ratio: float, interval: tuple[float, float] | None, text: str
) -> None:
    assert format_factor_between(ratio, interval) == text


RATIOS = st.one_of(st.floats(0.9, 1.2), st.floats(0.01, 20), st.floats(1e-3, 1e4))


@given(st.tuples(RATIOS, RATIOS, RATIOS).map(sorted))
@example([1.06, 1.08, 2.7])
@example([1.0079, 1.008, 1.02])
def test_intervals_contain_their_values_as_printed(ends: list[float]) -> None:
    low, value, high = ends
    gain = Gain(value, (low, high))
    time = MeasuredTime(value, (low, high))
    phrase = gains_text({Baseline.UNTUNED: gain})
    texts = [
        format_factor_between(value, (low, high)),
        str(time),
        repr(gain),
        phrase,
        gain_cell(gain),
    ]
    for text in map(str, texts):
        printed, *between = map(float, re.findall(r"\d+(?:\.\d+)?", text))
        if between:  # a gain whose interval is narrow is a number alone
            assert between[0] <= printed <= between[1], text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.5, "2.5 s"),
        (8.86e-3, "8.86 ms"),
        (3.3e-7, "330 ns"),
        (1.2e-5, "12 us"),
        (0.0, "0 ns"),
        (9.996e-4, "1 ms"),
        (0.9996, "1 s"),
        (1234.5, "1234 s"),
    ],
)
def test_seconds_for_people(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "interval", "text"),
    [
        (8.86e-3, (8.812e-3, 9.0e-3), "8.86 ms (8.81 to 9)"),
        (8.86e-3, None, "8.86 ms"),
        (0.98e-6, (0.97e-6, 1.2e-6), "980 ns (970 to 1200)"),
        (9.996e-4, (9.9e-4, 1.01e-3), "1 ms (0.99 to 1.01)"),
    ],
)
def test_measured_times_have_their_interval_in_the_same_unit(
    seconds: float, interval: tuple[float, float] | None, text: str
) -> None:
    assert str(MeasuredTime(seconds, interval)) == text


def test_one_sample_is_told_as_such() -> None:
    assert str(MeasuredTime(0.748, None, 1)) == "748 ms (1 sample)"
    assert str(MeasuredTime(0.748, None, 2)) == "748 ms"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.04, "1"),
        (1.26, "1.3"),
        (68.4, "68"),
        (403.0, "400"),
        (12345.0, "12000"),
        (2e7, "20000000"),
        (3e-5, "0.00003"),
    ],
)
def test_ratios_are_written_as_people_write_them(ratio: float, text: str) -> None:
    assert format_ratio(ratio) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25 seconds"), (119, "119 seconds"), (120, "2 minutes"), (9000, "2.5 hours")],
)
def test_long_times_in_words(seconds: float, text: str) -> None:
    assert format_long(seconds) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1 / 3, "3.00x faster"),
        (0.525, "1.90x faster"),
        (1.2, "1.20x slower"),
        (1 / 123.4, "123x faster"),
        (1.004, "same time"),
        (0.997, "same time"),
    ],
)
def test_changes_of_times_are_factors_above_1(ratio: float, text: str) -> None:
    assert format_change(ratio) == text


@pytest.mark.parametrize("ratio", [0.0, -1.0, inf, nan])
def test_what_is_no_ratio_of_times_has_no_change(ratio: float) -> None:
    with pytest.raises(ValueError, match=f"above 0 and finite, not {ratio}"):
        format_change(ratio)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.523, 0.537, "1.862x to 1.912x"),
        (1.011, 1.054, "1.011x to 1.054x"),
        (0.98, 1.031, "1.020x faster to 1.031x slower"),
        (1.0, 1.031, "same time to 1.031x slower"),
        (1.0, 1.0, "same time"),
        (0.9, 1.0, "1.111x faster to same time"),
        (1.01234, 1.01238, "1.012x slower"),
    ],
)
def test_intervals_of_changes_say_their_direction_once(low: float, high: float, text: str) -> None:
    assert format_changes(low, high, 3) == text

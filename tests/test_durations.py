"""Durations, and ratios of them, as text."""

from __future__ import annotations

import re
from math import inf, nan

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tilewright.base.durations import (
    MeasuredTime,
    change,
    format_change,
    format_change_between,
    format_changes,
    format_ratio,
    format_seconds,
)
from tilewright.lab.workbench.versions import Comparison
from tilewright.tuning_db.compare import TimeDiff
from tilewright.tuning_db.gains import Gain, gain_cell, gains_text
from tilewright.tuning_db.results import Baseline, ComparedSchedule, Verdict

RATIOS = st.one_of(st.floats(0.9, 1.2), st.floats(0.01, 20), st.floats(1e-3, 1e4))
FASTER = re.compile(r"(?:(\d+(?:\.\d+)?)x(?: (faster|slower))?|same time)")


def ratios_in(text: str) -> list[float]:
    """The ratios of times that a text has; a factor without a direction has that of the next."""
    matches = FASTER.finditer(text)
    signed = [(float(m[1] or 1), m[2] or ("" if m[1] else "same")) for m in matches]
    direction = next(d for _, d in signed if d)
    found = []
    for factor, own in signed:
        direction = own or direction
        found.append(1 / factor if direction == "faster" else factor)
    return found


@given(st.tuples(RATIOS, RATIOS, RATIOS).map(sorted))
@example([1.06, 1.08, 2.7])
@example([1.0079, 1.008, 1.02])
@example([0.9996, 1.0, 1.02])
@example([0.98, 0.9996, 1.0])
def test_intervals_contain_their_values_as_printed(ends: list[float]) -> None:
    low, value, high = ends
    gain = Gain(value, (low, high))
    phrase, cell = gains_text({Baseline.UNTUNED: gain}), gain_cell(gain)
    texts = [format_change_between(value, (low, high)), repr(gain), phrase, cell]
    for text in map(str, texts):
        printed, *between = ratios_in(text)
        if between:  # a gain whose interval is narrow is a number alone
            assert min(between) <= printed <= max(between), text
    printed, *between = map(float, re.findall(r"[\d.]+", str(MeasuredTime(value, (low, high)))))
    assert between[0] <= printed <= between[1]


@given(RATIOS, st.booleans())
def test_a_pair_has_one_factor_whichever_is_named_first(ratio: float, interleaved: bool) -> None:
    there, back = (change(r, interleaved=interleaved) for r in (ratio, 1 / ratio))
    assert there.factor == back.factor
    assert {there.direction, back.direction} in ({"faster", "slower"}, {""})
    assert (there.direction == "slower") == (ratio > 1 and there.factor != "")


@given(RATIOS)
def test_all_that_compares_a_pair_prints_one_factor(ratio: float) -> None:
    """The gain, the row of the finals, the cell of `db best` and the difference of two records."""
    texts = [
        repr(Gain(ratio)),
        gain_cell(Gain(ratio)),
        gains_text({Baseline.WRITTEN: Gain(ratio)}),
        str(ComparedSchedule("ab" * 32, 1.0, 9, ratio, None, Verdict.SLOWER)),
        TimeDiff(MeasuredTime(1.0), MeasuredTime(ratio), ratio, None, 5).ratio_text,
        str(Comparison("v0", "v1", ratio, None, Verdict.SLOWER).data()["text"]),
    ]
    factor = change(ratio, interleaved=True).factor or "same time"
    # A schedule that was out early may be the faster one, and then only its interval counts.
    assert all(factor in str(text) for text in texts if "out early" not in str(text)), texts


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


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.0, "same time"),
        (1.0042, "1.004x slower"),
        (0.9996, "1.0004x faster"),
        (1 + 1e-15, "same time"),
        (1.134, "1.13x slower"),
        (7.27, "7.27x slower"),
        (37.13, "37.1x slower"),
    ],
)
def test_small_differences_of_interleaved_times_are_shown(ratio: float, text: str) -> None:
    assert str(change(ratio, interleaved=True)) == text


@pytest.mark.parametrize("ratio", [0.0, -1.0, inf, nan])
def test_what_is_no_ratio_of_times_has_no_change(ratio: float) -> None:
    with pytest.raises(ValueError, match=f"above 0 and finite, not {ratio}"):
        format_change(ratio)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.523, 0.537, "1.86x to 1.91x faster"),
        (1.011, 1.054, "1.01x to 1.05x slower"),
        (0.98, 1.031, "1.02x faster to 1.03x slower"),
        (0.97, 0.998, "1.002x to 1.03x faster"),
        (1.0, 1.031, "same time to 1.03x slower"),
        (1.0004, 1.057, "1.0004x to 1.06x slower"),
        (1.0, 1.0, "same time"),
        (0.9, 1.0, "1.11x faster to same time"),
        (1.1234, 1.1238, "1.12x slower"),
    ],
)
def test_intervals_of_changes_say_their_direction_once(low: float, high: float, text: str) -> None:
    assert format_changes(low, high) == text


@pytest.mark.parametrize(
    ("ratio", "interval", "text"),
    [
        (1.134, (1.09, 1.2), "1.13x slower (1.09x to 1.20x)"),
        (1.0079, (1.0074, 1.02), "1.01x slower (1.01x to 1.02x)"),
        (1.0002, (1.0001, 1.03), "1.0002x slower (1.0001x to 1.03x)"),
        (1.02, (0.98, 1.03), "1.02x slower (1.02x faster to 1.03x slower)"),
        (0.5, (0.5, 0.5), "2.00x faster"),
        (0.5, (0.49, 0.51), "2.00x faster (1.96x to 2.04x)"),
        (1.0, (1.0, 1.03), "same time (same time to 1.03x slower)"),
        (7.27, None, "7.27x slower (too few rounds)"),
    ],
)
def test_changes_with_their_intervals(
    ratio: float, interval: tuple[float, float] | None, text: str
) -> None:
    assert format_change_between(ratio, interval) == text


def test_what_a_time_is_compared_with_is_named_before_the_interval() -> None:
    said = format_change_between(0.5, (0.49, 0.51), than="v0")
    assert said == "2.00x faster than v0 (1.96x to 2.04x)"
    assert format_change_between(1.0, None, than="v0") == "same time as v0 (too few rounds)"

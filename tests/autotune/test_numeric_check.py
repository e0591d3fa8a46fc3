"""Comparing results: what rounding explains passes, what it does not is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright import TuningError, te
from tilewright.autotune.measure.measure_result import Kernel
from tilewright.autotune.measure.numeric_check import (
    Deviation,
    Exact,
    check_outputs,
    deviation,
    largest_error,
    require_tolerance,
    tolerance_of,
)
from tilewright.runtime.measure.comparison import CheckResult
from tilewright.schedule import Schedule
from tilewright.tir.parser import parse

from .kernels import affine, matmul


def test_tolerance_grows_with_the_square_root_of_the_length() -> None:
    short, long = tolerance_of(matmul(16)), tolerance_of(matmul(1024))
    assert tolerance_of(affine()) < short < long < 8 * short
    a = te.placeholder((9,), "int32", name="A")
    whole = te.func([a, te.compute((9,), lambda i: a[i] + 1, name="B")], name="whole")
    assert tolerance_of(whole) == 0


@pytest.mark.parametrize(
    "body",
    [
        "B[i, 0] = 0.0\n        for k in range(40):\n            B[i, 0] = B[i, 0] + A[i, k]",
        "for k in range(40):\n            B[i, k] = A[i, k] / 3.0",
        "B[i, 0] = A[i, 0]\n"
        "        for k in range(1, 40):\n            B[i, k] = B[i, k - 1] * 0.5 + A[i, k]",
    ],
)
def test_plain_loops_have_about_the_tolerance_of_their_blocks(body: str) -> None:
    func = parse(f"""
@tw.script
def f(A: T.Buffer((8, 40), "float32"), B: T.Buffer((8, 40), "float32")):
    for i in range(8):
        {body}
""")
    sch = Schedule(func)
    sch.make_blocks()
    assert tolerance_of(func) == pytest.approx(tolerance_of(sch.func), rel=0.05)
    assert tolerance_of(func) > 0


@pytest.mark.parametrize("tolerance", [0, -1e-3, 2.0, True, "1e-3", float("nan")])
def test_what_is_no_tolerance(tolerance: Any) -> None:
    with pytest.raises(TuningError, match="expected an error of more than 0"):
        require_tolerance(tolerance, TuningError)


@pytest.mark.parametrize(
    ("error_factor", "tolerance", "allowed"),
    [
        (1.0, None, True),
        (1.0, 1e-9, True),
        (4.0, None, False),
        (4.0, 1e-4, True),
        (4.0, 1e-6, False),
    ],
)
def test_errors_of_inexact_schedules_are_for_the_user_to_accept(
    error_factor: float, tolerance: float | None, allowed: bool
) -> None:
    check = CheckResult(True, 1e-5, 1e-3)
    assert Kernel(b"", error_factor=error_factor).allows(check, tolerance) is allowed


def test_other_orders_of_a_sum_pass_and_a_missing_term_does_not() -> None:
    n = 512
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, (n, n)).astype(np.float32) for _ in range(2))
    tolerance = tolerance_of(matmul(n))
    serial = np.zeros((n, n), np.float32)
    for k in range(n):
        serial += a[:, k : k + 1] * b[k]
    assert check_outputs([a @ b], [serial], ["C"], tolerance).passed
    half = a[:, : n // 2] @ b[: n // 2] + a[:, n // 2 :] @ b[n // 2 :]
    assert check_outputs([half], [serial], ["C"], tolerance).passed
    missing = check_outputs([a[:, 1:] @ b[1:]], [serial], ["C"], tolerance)
    assert not missing.passed
    assert missing.max_error > 100 * tolerance


@given(st.integers(0, 34), st.sampled_from([np.nan, np.inf, -np.inf, 3.0e3]))
def test_one_wrong_element_is_found_and_named(place: int, value: float) -> None:
    expected = np.linspace(-1, 1, 35, dtype=np.float32).reshape(5, 7)
    found = expected.copy()
    found[place // 7, place % 7] = value
    result = check_outputs([expected, found], [expected, expected], ["A", "B"], 1e-3)
    assert not result.passed
    assert f"B[{place // 7}, {place % 7}] is " in str(result.error)
    assert check_outputs([found], [found], ["B"], 1e-3).passed


def test_values_that_are_not_finite_have_to_agree() -> None:
    expected = np.array([1.0, np.nan, np.inf, -np.inf])
    assert largest_error(expected, expected) == (0.0, (0,))
    for other in ([1.0, 2.0, np.inf, -np.inf], [1.0, np.nan, -np.inf, -np.inf]):
        assert largest_error(np.array(other), expected)[0] == np.inf


@pytest.mark.parametrize("dtype", ["int8", "uint64", "int64"])
def test_integers_are_exact(dtype: str) -> None:
    expected = np.array([3, np.iinfo(dtype).max], dtype)
    assert check_outputs([expected], [expected], ["N"], 0.5).passed
    found = expected.copy()
    found[1] -= 1
    result = check_outputs([found], [expected], ["N"], 0.5)
    assert not result.passed
    assert "N[1]" in str(result.error)
    assert "tolerance 0" in str(result.error)


def test_a_bool_is_zero_or_one() -> None:
    expected = np.array([True, False])
    odd = np.array([2, 0], np.uint8).view(np.bool_)
    assert check_outputs([expected], [expected], ["P"], 0.0).passed
    assert not check_outputs([odd], [expected], ["P"], 0.0).passed


def test_what_is_empty_agrees_and_zeros_are_compared_absolutely() -> None:
    empty, zeros = np.empty((0, 3), np.float32), np.zeros(4, np.float32)
    assert check_outputs([empty, zeros], [empty, zeros], ["E", "Z"], 1e-6).passed
    assert check_outputs([zeros + np.float32(1e-7)], [zeros], ["Z"], 1e-6).passed
    assert not check_outputs([zeros + np.float32(1e-5)], [zeros], ["Z"], 1e-6).passed


def test_what_is_as_accurate_as_the_program_itself_passes() -> None:
    exact = np.zeros(1000)
    own = np.where(np.arange(1000) % 2, 1e-4, -1e-4).astype(np.float32)
    known = Exact([exact], [deviation(own, own, exact)])
    for factor, passes in ((-1.0, True), (3.9, True), (4.1, False)):
        found = check_outputs([np.float32(factor) * own], [own], ["P"], 1e-6, known)
        assert found.passed is passes, found.error
    assert not check_outputs([-own], [own], ["P"], 1e-6).passed


def test_one_element_that_the_program_misses_excuses_one_element_only() -> None:
    exact = np.ones(1000)
    own = exact.astype(np.float32)
    own[7] = 2.0
    known = Exact([exact], [deviation(own, own, exact)])
    other, many = own.copy(), own.copy()
    other[7], other[8] = 1.0, 2.0
    many[::8] = 2.0
    assert check_outputs([other], [own], ["P"], 1e-6, known).passed
    assert not check_outputs([many], [own], ["P"], 1e-6, known).passed


def test_wider_results_excuse_nothing_that_is_not_finite() -> None:
    own = np.array([1.0, np.inf, 2.0], np.float32)
    known = Exact([np.array([1.0, 1e60, np.inf])], [Deviation(0.0, 0.0)])
    assert check_outputs([own], [own], ["P"], 1e-6, known).passed
    for place, value in ((1, 1e30), (0, np.nan), (2, np.inf)):
        found = own.copy()
        found[place] = value
        assert not check_outputs([found], [own], ["P"], 1e-6, known).passed

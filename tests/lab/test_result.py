"""The picture of a result: what a person reads off it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import html5lib
import pytest

from tilewright import Trace, TuningError
from tilewright.autotune.model.target_model import Roofline
from tilewright.autotune.result import BestResult, Spent, TuneResult
from tilewright.autotune.session.events import Trial
from tilewright.autotune.tasks import together
from tilewright.base.durations import MeasuredTime
from tilewright.lab.pictures.arguments import trace_of
from tilewright.lab.pictures.page import page
from tilewright.lab.pictures.trials import improvements, rank_correlation
from tilewright.lab.pictures.views import view_of
from tilewright.lab.plot import convergence
from tilewright.tuning_db.gains import Gain
from tilewright.tuning_db.results import ComparedSchedule, Verdict
from tilewright.tuning_db.values import Outcome, SessionStatus

from ..layers import mlp

HOSTILE = "<script>alert(1)</script>\x1b[2J"
BEST, OTHER, SESSION = "ab" * 32, "cd" * 32, "ef" * 32
FINALS = (
    ComparedSchedule(BEST, 2e-3, 20, 1.004, (0.99, 1.01), Verdict.TIE),
    ComparedSchedule(OTHER, 2e-3, 20, 1.0, None, Verdict.FASTEST),
)
GAINS = {"written": Gain(48.0, (45.0, 51.0)), "untuned": Gain(130.0, None, at_least=True)}
TIME = MeasuredTime(2e-3, (1.9e-3, 2.1e-3), 20)
CHOICE = BestResult(TIME, Trace(), BEST, "12" * 32, FINALS, GAINS, "contraction", SESSION)


def trial(number: int, seconds: float | None, error: str | None = None) -> Trial:
    outcome = Outcome.OK if error is None else Outcome.CRASH
    predicted = None if seconds is None else 2 * seconds
    best = None if seconds is None else 2e-3
    return Trial(number, outcome, seconds, best, False, error, BEST, 1.0 * number, 0, predicted)


RESULT = TuneResult(
    workload="matmul A:float32[64,64]",
    target="cpu -threads=2",
    flops=4_000_000,
    best=CHOICE,
    trials=4,
    outcomes={Outcome.OK: 3, Outcome.CRASH: 1},
    error=None,
    status=SessionStatus.FINISHED,
    reason="all 4 trials are done",
    session=SESSION,
    seconds=10.0,
    spent=Spent(1.0, 2.0, 3.0, 4.0, 0.0, 0.0),
    roofline=Roofline(1e-3, 2e-4),
    drift=(1.0,),
    gains=GAINS,
    noise=None,
    history=(
        trial(1, 9e-3),
        trial(2, None, f"signal 11\n{HOSTILE}"),
        trial(3, 3e-3),
        trial(4, 2e-3),
    ),
    finals=FINALS,
)


def words(value: object) -> str:
    """The text of the picture, which is valid HTML, with a space between two elements."""
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    document = parser.parse(page("result", view_of(value)))
    return " ".join(" ".join(document.find("body").itertext()).split())


def test_a_result_of_several_kernels_shows_theirs() -> None:
    kernels = {"mlp_0": RESULT, "mlp_1": replace(RESULT, workload="another")}
    result = together(mlp(2), kernels)
    assert (result.trials, result.call_seconds, result.best) == (8, 4e-3, None)
    shown = words(result)
    assert "best of 2 kernels together 4 ms after 8 trials (6 ok, 2 crash) in 20.0 s" in shown
    assert all(kernel.workload in shown for kernel in kernels.values())
    for refused in (partial(convergence, result), partial(trace_of, result)):
        with pytest.raises(TuningError) as caught:
            refused()
        assert "mlp_0" in str(caught.value.hint)


def test_a_result_shows_time_gain_and_course() -> None:
    shown = words(RESULT)
    for expected in (
        "matmul A:float32[64,64]",
        f"cpu -threads=2, session {SESSION[:12]}",
        "best 2 ms (1.9 to 2.1) after 4 trials (3 ok, 1 crash) in 10.0 s: all 4 trials are done · "
        "2 GFLOP/s",
        "48x faster than the program as written, more than 130x faster than the untuned build",
        "50% of the roofline (1 ms, bound by arithmetic)",
        "finals: 2 ms",
        "Rank correlation 1.00",
        "crash: signal 11",
        "runs 4 s (40%)",
        "chosen; tie (1.01x faster",
        "The schedule: 0 steps by contraction",
    ):
        assert expected in shown


def test_noise_and_doubts_stand_out() -> None:
    noisy = replace(RESULT, noise="something else is running", doubts=f"wrong {HOSTILE}")
    html = noisy._repr_html_()
    assert '<p class="bad">something else is running</p>' in html
    assert "<script" not in html
    assert "\x1b" not in html


def test_a_result_without_a_best_says_why() -> None:
    failed = replace(RESULT, best=None, finals=(), gains={}, error="signal 11", kept="1 is kept")
    shown = words(replace(failed, history=RESULT.history[1:2], outcomes={Outcome.CRASH: 4}))
    assert "no correct candidate after 4 trials (4 crash) in 10.0 s" in shown
    assert "last error: signal 11" in shown
    assert "No trial ran to its end." in shown
    assert "No trial that ran had a prediction." in shown
    assert "1 is kept" in shown
    empty = words(replace(failed, history=(), trials=0, outcomes={}))
    assert "nothing was measured in 10.0 s" in empty


def test_a_best_of_an_earlier_session_is_named() -> None:
    earlier = replace(RESULT, best=replace(CHOICE, session="99" * 32), finals=(), own_seconds=3e-3)
    shown = words(earlier)
    assert "of session 999999999999; this session's: 3 ms" in shown
    assert "finals: 2 ms" not in shown


def test_finals_that_took_longer_are_explained_by_their_own_time() -> None:
    """Not by the best, which another session has."""
    elsewhere = replace(CHOICE, time=MeasuredTime(1.5e-3), session="99" * 32, comparison=())
    result = replace(RESULT, best=elsewhere, trial_seconds=1e-3, own_seconds=2e-3)
    slower = "The fastest trial took 1 ms; the winner of the finals takes 2 ms. The finals count."
    assert slower in str(result).splitlines()
    assert slower in words(result)
    assert "finals: 2 ms" in words(result)


def test_the_best_shows_itself() -> None:
    shown = words(CHOICE)
    assert f"2 ms (1.9 to 2.1) · schedule {BEST[:12]}, measured by session {SESSION[:12]}" in shown
    assert "Finals: timed interleaved" in shown


def test_improvements_are_the_corners_of_the_curve() -> None:
    bests = [(1.0, None), (2.0, 5.0), (3.0, 5.0), (4.0, 3.0), (5.0, 3.0)]
    assert improvements(bests) == [(2.0, 5.0), (4.0, 3.0), (5.0, 3.0)]
    assert improvements([]) == []
    assert improvements([(1.0, 2.0)]) == [(1.0, 2.0)]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(1, 1), (2, 20), (3, 300)], 1.0),
        ([(1, 3), (2, 2), (3, 1)], -1.0),
        ([(1, 1), (1, 1), (2, 2)], 1.0),
        ([(1, 1), (2, 2)], None),
        ([(1, 1), (1, 2), (1, 3)], None),
        ([(float("nan"), 1), (2, 2), (3, 3)], None),
    ],
)
def test_rank_correlation(pairs: list[tuple[float, float]], expected: float | None) -> None:
    found = rank_correlation(pairs)
    assert found == (None if expected is None else pytest.approx(expected))

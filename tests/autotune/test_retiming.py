"""Trials that are timed again: which, and what becomes of their first times."""

from __future__ import annotations

from tilewright.autotune.retiming import Plausibility


def test_times_far_beyond_their_predictions_and_the_best_are_doubted() -> None:
    plausible = Plausibility()
    assert plausible.doubts(10e-3, 14e-6, None)
    assert plausible.doubts(10e-3, 14e-6, 12e-6)
    assert not plausible.doubts(20e-6, 14e-6, None), "as predicted"
    assert not plausible.doubts(10e-3, 9e-3, 12e-6), "as slow as predicted"
    assert not plausible.doubts(10e-3, 14e-6, 1e-3), "the best is not much faster"
    assert not plausible.doubts(1.0, 14e-6, None), "a time slice explains little of it"
    assert not plausible.doubts(None, 14e-6, None), "it failed"


def test_a_model_that_is_off_for_all_candidates_is_believed_no_more() -> None:
    plausible = Plausibility()
    for _ in range(7):
        plausible.conclude(10e-3, 14e-6, doubtful=True)
    assert plausible.doubts(10e-3, 14e-6, None)
    plausible.conclude(9e-3, 14e-6, doubtful=True)
    assert not plausible.doubts(10e-3, 14e-6, None)
    plausible.conclude(14e-6, 14e-6, doubtful=False)
    assert plausible.doubts(10e-3, 14e-6, None), "it was the machine"

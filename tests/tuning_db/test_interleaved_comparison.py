"""Interleaved comparisons: intervals, ties, what is simpler, and what `best` makes of that."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from statistics import median
from types import MappingProxyType

import numpy as np
import pytest

from tilewright.base.durations import median_interval
from tilewright.tuning_db import (
    AnyRecord,
    Baseline,
    Best,
    ComparedSchedule,
    Measurement,
    ScheduleRecord,
    TuningDatabase,
    Verdict,
    Verification,
    to_plain,
)
from tilewright.tuning_db.gains import Gain, gain_cell, gains_text
from tilewright.tuning_db.interleaved_comparison import (
    TimeRatio,
    compare_schedules,
    fastest_row,
    simplicity,
    summary,
    time_ratio,
)

from .samples import CPU, DRIFT, LLVM, MATMUL, NOON, OLD_LLVM, SESSION, fill, timed, verified

Place = Callable[[], str]
NOISE = tuple(d * f for d, f in zip(DRIFT, (1, 1, 0.99, 1, 1.01, 1, 0.99, 1, 1.01), strict=True))
"""Of one schedule beside others, as likely to be faster as slower."""


def trace(*sizes: int, steps: int = 5) -> ScheduleRecord:
    """A schedule of that many steps, a decision in each of the first."""
    listed = [{"op": "sample_categorical", "args": {}, "decision": [size]} for size in sizes]
    listed += [{"op": "reorder", "args": {}}] * (steps - len(sizes))
    return ScheduleRecord(json.dumps({"version": 1, "steps": listed}), 1)


def compare(
    entries: Sequence[tuple[Measurement, ScheduleRecord]],
    trials: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> list[ComparedSchedule]:
    return compare_schedules(entries, lambda: trials)


def checked(schedule: ScheduleRecord, passed: bool = True) -> Verification:
    return Verification(
        MATMUL.id, CPU.id, schedule.id, LLVM.id, passed, 1e-6 if passed else 3.0, 1e-4, NOON
    )


def put(db: TuningDatabase, *entries: tuple[Measurement, ScheduleRecord]) -> None:
    records: list[AnyRecord] = []
    for measured, schedule in entries:
        records += [measured, schedule, checked(schedule)]
    db.put(*records)


WRITTEN = ScheduleRecord('{"version": 1, "steps": []}', 1)
SMALL, LARGE, LONG = trace(4, 8), trace(4, 64), trace(4, 8, steps=9)


def test_the_interval_leaves_out_as_many_rounds_as_chance_allows() -> None:
    ratios = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 9.9]
    for order in (ratios, ratios[::-1]):
        found = time_ratio(order, [1.0] * 9)
        assert (found.ratio, found.interval) == (1.4, (1.1, 1.7))
    assert time_ratio(ratios[:6], [1.0] * 6).interval == (1.0, 1.5)
    assert time_ratio(ratios[:5], [1.0] * 5).interval is None
    assert time_ratio([1.0], [2.0]).ratio == 0.5


def test_the_interval_holds_what_it_promises() -> None:
    """Of medians of a skewed distribution at least 95% are within, and not all."""
    rng = np.random.default_rng(7)
    for rounds in (6, 9, 18, 72):
        hits = 0
        for _ in range(1000):
            interval = time_ratio(rng.lognormal(0.0, 0.5, rounds).tolist(), [1.0] * rounds).interval
            assert interval is not None
            low, high = interval
            hits += low <= 1 <= high
        assert 940 <= hits < 1000, rounds


def test_drift_from_round_to_round_does_not_count() -> None:
    drift = [1.0 + 0.1 * n for n in range(9)]
    found = time_ratio([1.05 * d for d in drift], drift)
    assert found.interval == pytest.approx((1.05, 1.05))
    assert found.verdict is Verdict.SLOWER
    assert found.decided


def test_the_fastest_is_so_within_rounds() -> None:
    """The median of the second is lower, for one lucky sample while all were slow."""
    one, other = [1.0] * 4 + [2.0] * 5, [1.03] * 4 + [1.5] + [2.06] * 4
    assert median(one) > median(other)
    assert fastest_row([one, other]) == 0
    assert compare([timed(SMALL, 1.0, other), timed(LARGE, 1.0, one)])[0].schedule == LARGE.id


@pytest.mark.parametrize("seed", range(40))
def test_no_other_is_ahead_of_the_fastest(seed: int) -> None:
    """In whatever noise, unless medians form a circle; then the words do not contradict it."""
    rng = np.random.default_rng(seed)
    rows = [rng.lognormal(0.0, 1.5, 9).tolist() for _ in range(4)]
    first = fastest_row(rows)
    ahead = {(n, m) for n in range(4) for m in range(4) if time_ratio(rows[n], rows[m]).ratio < 1}
    winner = next((n for n in range(4) if all((n, m) in ahead for m in range(4) if m != n)), None)
    assert winner in (None, first)
    schedules = [trace(4, 8, steps=2 + n) for n in range(4)]
    entries = [timed(s, 1.0, row) for s, row in zip(schedules, rows, strict=True)]
    said = [str(compared) for compared in compare(entries)]
    assert said.count("fastest") == 1
    assert not any(", 0." in words for words in said)


def test_a_tie_in_noise_says_what_may_be() -> None:
    tie = ComparedSchedule("ab" * 32, 1e-3, 9, 0.962, (0.12, 11.986), Verdict.TIE)
    assert str(tie) == "tie (8.33x faster to 12x slower)"


def test_rounds_without_one_of_the_two_do_not_count() -> None:
    assert time_ratio([2.0] * 6, [1.0] * 6 + [9.0] * 6).interval == (2.0, 2.0)
    assert fastest_row([[1.0] * 6, [3.0] * 12, [2.0] * 12]) == 2


def test_a_clear_winner_is_taken_however_complicated() -> None:
    compared = compare([timed(SMALL, 1.1), timed(LONG, 1.0), timed(LARGE, 1.2)])
    assert [s.schedule for s in compared] == [LONG.id, SMALL.id, LARGE.id]
    assert [s.verdict for s in compared] == [Verdict.FASTEST, Verdict.SLOWER, Verdict.SLOWER]
    assert [s.ratio for s in compared] == pytest.approx([1.0, 1.1, 1.2])
    assert summary(compared) == "ahead of the 2 other finalists"


def test_one_spoilt_round_does_not_change_the_answer() -> None:
    spoilt = (*DRIFT[:3], 5.0, *DRIFT[4:])
    tie = [timed(SMALL, 1.001, NOISE), timed(LARGE, 1.0, spoilt)]
    clear = [timed(SMALL, 1.1), timed(LARGE, 1.0, spoilt)]
    assert compare(tie)[0].schedule == SMALL.id
    assert compare(clear)[0].schedule == LARGE.id
    assert compare(clear)[1].verdict is Verdict.SLOWER


def test_of_two_that_tie_the_simpler_is_taken() -> None:
    for fast, slow in permutations([SMALL, LARGE]):
        compared = compare([timed(fast, 1.0), timed(slow, 1.003, NOISE)])
        assert compared[0].schedule == SMALL.id
        assert {s.schedule: s.verdict for s in compared} == {
            fast.id: Verdict.FASTEST,
            slow.id: Verdict.TIE,
        }
        said = "ties with the other finalist, and is the simplest"
        assert summary(compared) == said


def test_of_three_that_tie_the_simplest_is_taken_in_any_order() -> None:
    entries = [
        timed(LONG, 1.0),
        timed(LARGE, 1.002, NOISE),
        timed(SMALL, 1.004, NOISE),
        timed(trace(1, steps=1), 1.2),
    ]
    for order in permutations(entries):
        compared = compare(order)
        assert compared == compare(entries)
        assert compared[0].schedule == SMALL.id
        assert [s.verdict for s in compared] == [
            Verdict.TIE,
            Verdict.FASTEST,
            Verdict.TIE,
            Verdict.SLOWER,
        ]


def test_a_simpler_one_beyond_the_margin_is_no_tie_however_wide_its_interval() -> None:
    wild = (0.5, 1.03, 1.04, 1.05, 1.06, 1.07, 0.6, 3.0, 0.7)
    (first, second) = compare([timed(SMALL, 1.0, wild), timed(LARGE, 1.0, (1.0,) * 9)])
    assert (first.schedule, second.verdict) == (LARGE.id, Verdict.SLOWER)
    assert second.interval is not None
    assert second.interval[0] < 1


def test_one_that_is_surely_slower_is_no_tie_however_little() -> None:
    compared = compare([timed(SMALL, 1.01), timed(LARGE, 1.0)])
    assert compared[0].schedule == LARGE.id


def test_fewer_rounds_than_an_interval_takes_leave_the_margin() -> None:
    assert compare([timed(SMALL, 1.01, (1.0,) * 3), timed(LARGE, 1.0, (1.0,) * 3)])[0].rounds == 3
    for slower, taken in ((1.01, SMALL), (1.03, LARGE)):
        compared = compare([timed(SMALL, slower, (1.0,) * 3), timed(LARGE, 1.0, (1.0,) * 3)])
        assert compared[0].schedule == taken.id
        assert all(s.interval is None for s in compared)


BUSY = (80, 900, 85, 700, 80, 800, 600, 80, 750)
"""A kernel that something else disturbs in more than half of the rounds."""


def test_a_tie_takes_evidence() -> None:
    """An interval that reaches far above 1 is none."""
    plain = time_ratio([480] * 9, BUSY)
    assert (plain.ratio, plain.interval) == (0.8, (0.6, 6.0))
    assert plain.verdict is Verdict.UNSETTLED
    few = time_ratio([1.0, 1.0, 3.0], [1.0] * 3)
    assert few.verdict is Verdict.UNSETTLED, "too few rounds for an interval"
    slightly = time_ratio([1.0] * 5 + [1.12] * 4, [1.0] * 9)
    assert slightly.interval == (1.0, 1.12)
    assert slightly.verdict is Verdict.UNSETTLED
    assert time_ratio([1.0] * 5 + [1.09] * 4, [1.0] * 9).verdict is Verdict.TIE


@pytest.mark.parametrize("busy", [BUSY, (900, *BUSY[1:4], 700, *BUSY[5:])])
def test_where_noise_hides_the_ratio_the_shortest_time_wins(busy: tuple[float, ...]) -> None:
    """Whichever of them is ahead by the median; the simpler one takes six times as long."""
    plain, fast = timed(WRITTEN, 480.0, (1.0,) * 9), timed(LONG, 1.0, busy)
    for order in permutations([plain, fast]):
        compared = compare(order)
        assert [c.schedule for c in compared] == [LONG.id, WRITTEN.id]
        assert {c.verdict for c in compared} == {Verdict.FASTEST, Verdict.UNSETTLED}
        assert summary(compared).startswith("has the shortest time, but is not told apart from the")


def test_most_rounds_disturbed_do_not_hide_the_fastest_however_many_there_are() -> None:
    """The interval of the median becomes narrow, and what is disturbed is surely slower by it."""
    plain, fast = timed(WRITTEN, 480.0, (1.0,) * 576), timed(LONG, 1.0, BUSY * 64)
    ratio = time_ratio(fast[0].samples, plain[0].samples)
    assert ratio.interval is not None
    assert ratio.interval[0] > 1
    assert ratio.verdict is Verdict.UNSETTLED
    assert compare([plain, fast])[0].schedule == LONG.id


def test_a_tie_by_the_median_that_shortest_times_contradict_is_none() -> None:
    fast = (80.0, 80.0, 80.0, *(480.0,) * 6)
    ratio = time_ratio([480.0] * 9, [*fast[3:], *fast[:3]])
    assert ratio.ratio == 1.0
    assert ratio.verdict is Verdict.UNSETTLED
    assert (
        compare([timed(WRITTEN, 480.0, (1.0,) * 9), timed(LONG, 1.0, fast)])[0].schedule == LONG.id
    )


def test_trials_are_evidence_too_where_noise_hides_the_ratio() -> None:
    """Its rounds were all disturbed, but for its trial."""
    busy = (500, 900, 495, 470, 480, 800, 600, 475, 750)
    plain, fast = (
        timed(WRITTEN, 470.0, (1.0, 1.1, 1.0, 2.0, 1.0, 1.1, 1.0, 2.0, 0.99)),
        timed(LONG, 1.0, busy),
    )
    assert compare([plain, fast])[0].schedule == WRITTEN.id
    assert compare([plain, fast], {LONG.id: [80.0], WRITTEN.id: [470.0]})[0].schedule == LONG.id


def test_ties_beside_one_that_is_unsettled_stay_ties() -> None:
    over = (1.01, 1.01, 5.0, 0.99, 1.01, 1.4, 1.3, 0.99, 1.01)
    erratic = [d * f for d, f in zip(DRIFT, over, strict=True)]
    entries = [timed(LARGE, 1.0), timed(SMALL, 1.001, NOISE), timed(LONG, 1.0, erratic)]
    compared = compare(entries)
    assert (compared[0].schedule, compared[0].verdict) == (SMALL.id, Verdict.TIE)
    assert compared[2].verdict is Verdict.UNSETTLED
    assert str(compared[2]).startswith("unsettled (")
    assert summary(compared) == (
        "ties with 1 of the 2 other finalists, and is the simplest; "
        "noise hides how 1 compare, whose shortest times are longer"
    )


def test_one_that_was_out_early_does_not_win() -> None:
    """It lost to another, and the one that is the fastest now was slow in those rounds."""
    early = timed(SMALL, 0.105, (1.0,) * 9)
    late = timed(LARGE, 0.03, (5.0,) * 9 + (1.0,) * 27)
    other = timed(LONG, 0.1, (1.0,) * 9 + (3.0,) * 27)
    compared = compare([early, late, other])
    assert compared[0].schedule == LARGE.id
    verdicts = {c.schedule: c for c in compared}
    assert verdicts[SMALL.id].verdict is Verdict.SLOWER
    assert str(verdicts[SMALL.id]) == "out early (1.43x faster), 9 rounds"


@pytest.mark.parametrize("later", [0.2, 3.0])
def test_a_finalist_has_the_time_of_its_record_and_the_place_of_its_ratio(later: float) -> None:
    """The rounds of one that was out early were slower or faster than the later ones."""
    early = timed(LONG, 1.04, (1.0,) * 6)
    late = timed(SMALL, 1.0, (1.0,) * 6 + (later,) * 30)
    other = timed(LARGE, 1.03, (1.0,) * 6 + (later,) * 30)
    compared = compare([early, late, other])
    assert [(c.schedule, c.seconds) for c in compared] == [
        (e[1].id, e[0].seconds) for e in (late, other, early)
    ]
    assert [c.time for c in compared] == [e[0].time for e in (late, other, early)]
    assert str(compared[2]) == "1.04x slower, 6 rounds"
    assert repr(compared[2]).endswith(": 1.04x slower, 6 rounds>")
    assert [c.early for c in compared] == [False, False, True]
    assert "rounds" not in f"{compared[1]}{compared[1]!r}"


def test_the_price_of_a_pin_is_that_of_the_finals(db: TuningDatabase) -> None:
    """The pinned one was out early, in rounds that were faster than the later ones."""
    early = timed(LONG, 1.04, (1.0,) * 6)
    best = timed(SMALL, 1.0, (1.0,) * 6 + (1.5,) * 30)
    put(db, early, best)
    pinned = db.pin(MATMUL.id, CPU, LONG.id)
    assert pinned.ratio == pytest.approx(1.04)
    assert pinned.price == (
        f"It is 1.04x slower than the recorded best, schedule {SMALL.id[:12]}: "
        "timed interleaved in 6 of 36 rounds."
    )


def test_slower_is_said_only_of_what_is_surely_slower() -> None:
    def said(interval: tuple[float, float] | None) -> str:
        return str(ComparedSchedule("ab" * 32, 1e-3, 9, 1.021, interval, Verdict.SLOWER))

    assert said((0.885, 1.073)) == "behind (1.13x faster to 1.07x slower)"
    assert said((1.004, 1.073)) == "1.02x slower (1.004x to 1.07x)"
    assert said(None) == "behind, 1.02x slower (too few rounds)"


def test_baselines_are_named_wherever_finals_are_listed(db: TuningDatabase) -> None:
    plain, fast = timed(WRITTEN, 7.0, DRIFT, after=1), timed(LONG, 1.0, DRIFT, after=1)
    db.prepared_session(SESSION.id, LONG.id)
    put(db, plain, fast)
    best = db.best(MATMUL.id, CPU)
    assert best is not None
    assert [(c.schedule, c.baselines) for c in best.comparison] == [
        (LONG.id, (Baseline.UNTUNED,)),
        (WRITTEN.id, (Baseline.WRITTEN,)),
    ]
    assert [str(c) for c in best.comparison] == [
        "fastest, untuned",
        "7.00x slower, as written",
    ]
    assert [c["baselines"] for c in to_plain(best)["comparison"]] == [["untuned"], ["written"]]


def test_the_best_of_a_noisy_comparison_is_the_same_in_the_database(db: TuningDatabase) -> None:
    plain = timed(WRITTEN, 470.0, (1.0, 1.1, 1.0, 2.0, 1.0, 1.1, 1.0, 2.0, 0.99), after=1)
    fast = timed(LONG, 1.0, (500, 900, 495, 470, 480, 800, 600, 475, 750), after=1)
    put(db, plain, fast)
    found = db.best(MATMUL.id, CPU)
    assert found is not None
    assert found.schedule == WRITTEN
    trial = timed(LONG, 80.0)
    put(db, trial)
    found = db.best(MATMUL.id, CPU)
    assert found is not None
    assert found.schedule == LONG
    assert list(found.comparison) == compare([plain, fast], {LONG.id: trial[0].samples})
    assert "shortest time of a noisy comparison" in str(db.explain(MATMUL, CPU))


def test_what_is_simpler() -> None:
    in_order = [trace(64, steps=3), trace(32, 1), trace(64, 1), trace(2, 2), trace(2, 3), LONG]
    other = [ScheduleRecord(text, 1) for text in ("[]", "3", '{"steps": 3}')]
    keys = [simplicity(s) for s in [*in_order, other[0]]]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    assert len({simplicity(s) for s in other}) == 1
    opened = ScheduleRecord('{"steps": [{"decision": [null, 2]}, 7]}', 1)
    assert simplicity(opened) == (False, 2, 1, 2)


def test_the_best_is_the_simplest_of_those_that_tie(db: TuningDatabase) -> None:
    fast, tie, slow = timed(LARGE, 1.0), timed(SMALL, 1.003, NOISE), timed(LONG, 1.5)
    put(db, fast, tie, slow)
    best = db.best(MATMUL.id, CPU, LLVM)
    assert best == Best(SMALL, tie[0], False, db.location, tuple(compare([fast, tie, slow])))
    story = str(db.explain(MATMUL, CPU, LLVM))
    why = "as fast as the fastest verified, and at least as simple"
    assert f"schedule {SMALL.id[:12]}, {why}, 1 s (0.983 to 1.02)" in story
    outcome = "ties with 1 of the 2 other finalists, and is the simplest"
    interleaved = "timed interleaved in 9 rounds; compared with the fastest"
    assert f"\n  {outcome}; {interleaved}:\n" in story
    assert f"\n    {LARGE.id[:12]}: fastest, 1 s (0.98 to 1.02)\n" in story
    assert f"\n    {LONG.id[:12]}: 1.50x slower" in story


def test_of_those_that_are_as_simple_the_shorter_time_is_the_choice(db: TuningDatabase) -> None:
    """It may be another than the fastest by the ratios, and is no simpler."""
    one, other = trace(4, 8), trace(8, 4)
    assert simplicity(one) == simplicity(other)
    times = [1.0] * 4 + [1.01] + [1.02] * 4
    fast, tie = timed(one, 1.0, times), timed(other, 1.001, [0.99, *times[1:4], 1.003, *times[5:]])
    put(db, fast, tie)
    best = db.best(MATMUL.id, CPU, LLVM)
    assert best is not None
    assert [(c.schedule, c.verdict) for c in best.comparison] == [
        (other.id, Verdict.TIE),
        (one.id, Verdict.FASTEST),
    ]
    said = "as fast as the fastest verified, and at least as simple"
    assert said in str(db.explain(MATMUL, CPU, LLVM))


def test_a_schedule_that_took_no_part_and_is_faster_is_the_best(db: TuningDatabase) -> None:
    put(db, timed(LARGE, 1.0), timed(SMALL, 1.003, NOISE))
    alone = timed(LONG, 0.999, after=1)
    put(db, alone)
    assert db.best(MATMUL.id, CPU) == Best(LONG, alone[0], False, db.location)


def test_of_a_comparison_only_what_is_usable_counts(db: TuningDatabase) -> None:
    put(db, timed(LARGE, 1.0), timed(SMALL, 1.003, NOISE))
    put(db, timed(SMALL, 1.4, after=1))  # it was timed again, and is slow
    best = db.best(MATMUL.id, CPU)
    assert best is not None
    assert (best.schedule, best.comparison) == (LARGE, ())


def test_what_failed_a_check_in_any_layer_takes_no_part(new_place: Place) -> None:
    with TuningDatabase(new_place()) as team, TuningDatabase(new_place()) as mine:
        for db in (team, mine):
            fill(db)
        put(team, timed(LARGE, 1.0), timed(SMALL, 1.003, NOISE))
        mine.put(SMALL, checked(SMALL, passed=False))
        place = team.location
        below = place if "://" in place else f"sqlite:///{place}"
        own = mine.location
        above = own if "://" in own else f"sqlite:///{own}"
        with TuningDatabase(above, layers=[below]) as both:
            best = both.best(MATMUL.id, CPU)
        assert best is not None
        assert (best.schedule, best.comparison) == (LARGE, ())
        alone = team.best(MATMUL.id, CPU)
        assert alone is not None
        assert alone.schedule == SMALL


def test_what_only_shares_the_moment_is_no_comparison(db: TuningDatabase) -> None:
    put(db, timed(LARGE, 1.0))
    db.put(*verified(8, 1.001, toolchain=OLD_LLVM))
    best = db.best(MATMUL.id, CPU)
    assert best is not None
    assert (best.schedule, best.comparison) == (LARGE, ())


def test_a_comparison_survives_moving(db: TuningDatabase, new_place: Place) -> None:
    put(db, timed(LARGE, 1.0), timed(SMALL, 1.003, NOISE))
    with TuningDatabase(new_place()) as copy:
        copy.merge(db)
        there, here = copy.best(MATMUL.id, CPU), db.best(MATMUL.id, CPU)
    assert there is not None
    assert here is not None
    assert (there.schedule, there.comparison) == (here.schedule, here.comparison)


# Gains over the baselines


def ratio(median: float, *interval: float) -> Gain:
    """The gain of a ratio with its interval; without one if there were too few rounds."""
    low, high = interval or (median, median)
    return Gain.of(TimeRatio(median, (low, high) if interval else None, shortest=median))


def test_the_gain_is_that_of_the_choice_within_rounds(db: TuningDatabase) -> None:
    fast, tie, slow = timed(LARGE, 1.0), timed(SMALL, 1.003, NOISE), timed(WRITTEN, 6.0)
    put(db, fast, tie, slow)
    best = db.best(MATMUL.id, CPU, LLVM)
    assert best is not None
    assert best.schedule == SMALL
    expected = time_ratio(slow[0].samples, tie[0].samples)
    gains = db.gains(best)
    assert gains == {Baseline.WRITTEN: Gain(expected.ratio, expected.interval)}
    assert gains_text(gains) == "5.98x faster than the program as written"
    assert "\n  5.98x faster than the program as written\n" in str(db.explain(MATMUL, CPU, LLVM))


def test_a_gain_stays_when_the_baseline_is_timed_again(db: TuningDatabase) -> None:
    put(db, timed(LARGE, 1.0), timed(WRITTEN, 6.0))
    put(db, timed(WRITTEN, 9.0, after=1))
    best = db.best(MATMUL.id, CPU, LLVM)
    assert best is not None
    assert best.comparison == ()
    assert db.gains(best)[Baseline.WRITTEN].ratio == pytest.approx(6.0)


def test_no_finals_or_no_baseline_have_no_gain(db: TuningDatabase) -> None:
    put(db, timed(LARGE, 1.0))
    put(db, timed(WRITTEN, 6.0, after=1))
    best = db.best(MATMUL.id, CPU, LLVM)
    assert best is not None
    assert db.gains(best) == {}
    put(db, timed(SMALL, 0.5, after=2), timed(LONG, 0.6, after=2))
    best = db.best(MATMUL.id, CPU, LLVM)
    assert best is not None
    assert len(best.comparison) == 2
    assert db.gains(best) == {}


@pytest.mark.parametrize(
    ("gain", "said", "cell"),
    [
        (ratio(6.24, 6.0, 6.5), "6.24x faster than {}", "6.24x faster"),
        (ratio(31.4), "about 31.4x faster than {}", "31.4x faster"),
        (ratio(1.034, 1.01, 1.06), "1.03x faster than {}", "1.03x faster"),
        (ratio(0.5, 0.4, 0.6), "2.00x slower than {}", "2.00x slower"),
        (
            ratio(310.0, 140.0, 333.0),
            "310x faster than {} (140x to 333x)",
            "310x faster (140x to 333x)",
        ),
        (Gain(139.9, at_least=True), "more than 130x faster than {}", ">130x faster"),
        (Gain(3.97, at_least=True), "more than 3.9x faster than {}", ">3.9x faster"),
    ],
)
def test_gains_in_words(gain: Gain, said: str, cell: str) -> None:
    assert gains_text({Baseline.UNTUNED: gain}) == said.format("the untuned build")
    assert gains_text({}) is None
    assert gain_cell(gain) == cell


HIDDEN = "not told apart"
"""The cell of a gain that noise hides."""


@pytest.mark.parametrize(
    ("gain", "said", "cell"),
    [
        (ratio(1.01, 0.99, 1.03), "as fast as {} (a tie: 1.03x faster to 1.01x slower)", "tie"),
        (ratio(1.0), "as fast as {} (a tie)", "tie"),
        (
            ratio(0.939, 0.581, 108.5),
            "not told apart from {} (108x faster to 1.72x slower)",
            HIDDEN,
        ),
        (ratio(72.7, 0.904, 74.6), "not told apart from {} (74.6x faster to 1.11x slower)", HIDDEN),
        (ratio(1.03, 0.97, 1.08), "not told apart from {} (1.08x faster to 1.03x slower)", HIDDEN),
        (ratio(0.97, 0.95, 1.0), "not told apart from {} (same time to 1.05x slower)", HIDDEN),
        (ratio(1.08), "not told apart from {} (too few rounds)", HIDDEN),
        (
            Gain.of(TimeRatio(1.5, (1.3, 1.7), shortest=0.4)),
            "not told apart from {} (1.30x to 1.70x faster)",
            HIDDEN,
        ),
        (
            Gain.of(TimeRatio(1.0, (1.0, 1.0)), same_code=True),
            "the same machine code as {}",
            "tie",
        ),
    ],
)
def test_what_is_no_gain_is_no_number(gain: Gain, said: str, cell: str) -> None:
    assert gains_text({Baseline.UNTUNED: gain}) == said.format("the untuned build")
    assert gain_cell(gain) == cell


def test_a_summary_says_which_of_those_behind_may_be_as_fast() -> None:
    fastest = ComparedSchedule("ab" * 32, 1e-3, 9, 1.0, None, Verdict.FASTEST)
    near = ComparedSchedule("cd" * 32, 1e-3, 9, 1.08, (0.95, 1.09), Verdict.SLOWER)
    far = ComparedSchedule("ef" * 32, 1e-3, 9, 2.0, (1.9, 2.1), Verdict.SLOWER)
    assert summary([fastest, far]) == "ahead of the other finalist"
    assert summary([fastest, near, far]) == (
        "ahead of the 2 other finalists; 1 finalist listed as behind cannot be told apart from it"
    )


def test_intervals_of_medians() -> None:
    times = [float(k) for k in range(1, 10)]
    assert median_interval(times[:5]) is None
    assert median_interval(times[:6]) == (1.0, 6.0)
    assert median_interval(times[::-1]) == (2.0, 8.0)
    (compared, _) = compare([timed(LONG, 0.1, tuple(times)), timed(SMALL, 0.1, (20.0,) * 9)])
    assert compared.seconds_interval == (0.2, 0.8)


def test_an_interval_of_as_many_rounds_as_a_record_holds_takes_no_hours() -> None:
    """By the normal distribution, the median of n is within 0.98 sqrt(n) places of the middle."""
    interval = median_interval([float(k) for k in range(1, 100_001)])
    assert interval is not None
    assert interval[0] == pytest.approx(50_000 - 0.98 * 100_000**0.5, abs=2)

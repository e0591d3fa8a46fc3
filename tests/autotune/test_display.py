"""The display of a session."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from tilewright.autotune.session.events import (
    Batch,
    Drift,
    Ended,
    Event,
    Final,
    Started,
    Trial,
    Waiting,
)
from tilewright.autotune.show.display import LiveDisplay, render, sparkline
from tilewright.autotune.show.picture import Picture
from tilewright.base.durations import MeasuredTime
from tilewright.tuning_db import Baseline, ComparedSchedule, Gain, Outcome, Verdict


def trial(number: int, seconds: float | None, best: float | None, *, record: bool = False) -> Trial:
    failed = seconds is None
    return Trial(
        number=number,
        outcome=Outcome.CRASH if failed else Outcome.OK,
        seconds=seconds,
        best_seconds=best,
        record=record,
        error="running it: signal 11 [SIGSEGV]\nmore" if failed else None,
        schedule="ab" * 32,
        elapsed=float(number),
    )


EVENTS: list[Event] = [
    Started("0" * 64, "matmul A:float32[4,4]", "cpu", 4, None, 0, 7, 2_000_000, None),
    Batch(1, 4, 0.5),
    Waiting("building", 0.8),
    trial(1, 2e-3, 2e-3, record=True),
    trial(2, None, 2e-3),
    trial(3, 1e-3, 1e-3, record=True),
    trial(4, 4e-3, 1e-3),
    Drift(1.5, 4.5),
    Final(
        (
            ComparedSchedule(
                "ab" * 32, 1.01e-3, 18, 1.0104, (0.9951, 1.0196), Verdict.TIE, (1e-3, 1.02e-3)
            ),
            ComparedSchedule("cd" * 32, 1e-3, 18, 1.0, None, Verdict.FASTEST),
            ComparedSchedule("ef" * 32, 1.1e-3, 3, 1.1, None, Verdict.SLOWER),
        ),
        5.0,
        gains={
            Baseline.WRITTEN: Gain(31.4, (30.0, 33.0)),
            Baseline.UNTUNED: Gain(1.034, (1.01, 1.06)),
        },
    ),
    Drift(68.19, 5.1),
    Ended("all 4 trials are done", False, 4, MeasuredTime(1.01e-3, (1e-3, 1.02e-3)), 5.2),
]

TRIALS = [event for event in EVENTS if not isinstance(event, (Final, Drift, Ended))]
SLOWER = (ComparedSchedule("ab" * 32, 1.2e-3, 18, 1.0, None, Verdict.FASTEST),)


def shown(console: Console, events: list[Event]) -> str:
    with LiveDisplay(console) as display:
        for event in events:
            display(event)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_plain_lines_where_there_is_no_terminal() -> None:
    text = shown(Console(file=io.StringIO(), width=200), EVENTS)
    assert text.splitlines() == [
        "tuning matmul A:float32[4,4] for cpu, 7 schedules are known",
        "trial 1/4: best 2 ms, 1.0 GFLOP/s after 1.0 s",
        "trial 2/4: crash: running it: signal 11 [SIGSEGV]",
        "trial 3/4: best 1 ms, 2.0 GFLOP/s after 3.0 s",
        "finals, compared with the fastest:",
        "-> abababababab  tie (1.005x faster to 1.02x slower)",
        "   cdcdcdcdcdcd  fastest, 1 ms",
        "   efefefefefef  behind, 1.10x slower (too few rounds)",
        "31.4x faster than the program as written, "
        "1.03x faster than the untuned build (tw.build without a record)",
        "best 1.01 ms (1 to 1.02), 2.0 GFLOP/s after 4 trials in 5.2 s: all 4 trials are done",
    ]


def test_a_finalist_is_a_line_of_80_columns() -> None:
    """Whatever its verdict; a short time is followed by all there is to say of a baseline."""
    best = ComparedSchedule(
        "ab" * 32, 1.126e-4, 36, 1.0, None, Verdict.FASTEST, (1.121e-4, 1.132e-4), 36
    )
    others = [
        replace(best, ratio=1.0042, interval=(0.9893, 1.0171), verdict=Verdict.TIE),
        replace(best, ratio=0.9981, interval=(0.9893, 1.0171), verdict=Verdict.TIE),
        replace(best, ratio=1.0123, interval=(0.9002, 1.2123), verdict=Verdict.UNSETTLED),
        replace(best, ratio=1.2123, interval=(0.9893, 1.4123), verdict=Verdict.SLOWER),
        replace(best, ratio=1.2123, interval=(1.1893, 1.4123), verdict=Verdict.SLOWER, rounds=6),
        replace(
            best,
            seconds=4.17e-3,
            seconds_interval=(4.151e-3, 4.203e-3),
            ratio=37.132,
            interval=(36.8, 37.9),
            verdict=Verdict.SLOWER,
            rounds=6,
            baselines=(Baseline.WRITTEN,),
        ),
    ]
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    lines = shown(console, [*TRIALS, Final((best, *others), 5.0)]).splitlines()
    listed = [line.strip() for line in lines if "abababababab" in line][-7:]
    assert [line.partition("abababababab")[2].strip() for line in listed] == [
        "fastest, 113 us (112 to 113)",
        "tie (1.01x faster to 1.02x slower)",
        "tie (1.01x faster to 1.02x slower)",
        "unsettled (1.11x faster to 1.21x slower)",
        "behind (1.01x faster to 1.41x slower)",
        "1.21x slower (1.19x to 1.41x), 6 rounds",
        "37.1x slower (36.8x to 37.9x), 6 rounds, as written",
    ]


def test_finals_that_are_slower_than_the_trials_are_explained() -> None:
    text = shown(
        Console(file=io.StringIO(), width=200), [*TRIALS, Final(SLOWER, 5.0, trial_seconds=1e-3)]
    )
    assert text.splitlines()[-1] == (
        "The fastest trial took 1 ms; the winner of the finals takes 1.2 ms. The finals count."
    )


def test_conclusions_are_whole_in_a_narrow_terminal() -> None:
    finals = Final(SLOWER, 5.0, trial_seconds=1e-3, gains={Baseline.UNTUNED: Gain(1.2, None)})
    console = Console(file=io.StringIO(), force_terminal=True, width=60)
    text = " ".join(shown(console, [*TRIALS, finals]).split())
    assert "the winner of the finals takes 1.2 ms. The finals count." in text
    assert "1.20x faster than the untuned build (tw.build without a record)" in text


def test_the_finals_are_compared_with_the_trials_of_this_session() -> None:
    """The best known at the start is of another session."""
    started, *trials = TRIALS
    assert isinstance(started, Started)
    events: list[Event] = [
        replace(started, best_seconds=0.5e-3),
        *(replace(t, best_seconds=0.5e-3, record=False) for t in trials if isinstance(t, Trial)),
    ]
    text = shown(Console(file=io.StringIO(), width=200), [*events, Final(SLOWER, 5.0)])
    assert "trial took" not in text
    events.append(Final(SLOWER, 5.0, trial_seconds=1e-3))
    text = shown(Console(file=io.StringIO(), width=200), events)
    assert "trial took 1 ms" in text


@pytest.mark.parametrize("count", range(1, len(EVENTS) + 1))
def test_a_terminal_shows_the_whole_picture_after_every_event(count: int) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    text = shown(console, EVENTS[:count])
    assert "matmul" in text
    if count == len(EVENTS):
        last = text[text.rindex("matmul") :]
        for part in (
            "trial 4/4",
            "best 1.01 ms (1 to 1.02), 2.0 GFLOP/s",
            "crash 1  ok 3",
            "signal 11",
            "-> abababababab",
            "31.4x faster than",
            "done",
        ):
            assert part in last, part


def test_a_session_without_a_best_says_so() -> None:
    events: list[Event] = [
        Started("0" * 64, "matmul", "cpu", None, 30.0, 0, 0, 0, None),
        trial(1, None, None),
        Ended("the 30 seconds are over", False, 1, None, 30.0),
    ]
    text = shown(Console(file=io.StringIO(), width=200), events)
    assert text.splitlines()[-1] == (
        "no result yet after 1 trial in 30.0 s: the 30 seconds are over"
    )
    assert "trial 1" in shown(Console(file=io.StringIO(), force_terminal=True), events)


def test_a_best_of_another_session_is_told_apart() -> None:
    best = MeasuredTime(34e-6)
    ended = Ended("done", False, 4, best, 5.2, best_session="ad" * 32, own_seconds=608e-6)
    text = shown(Console(file=io.StringIO(), width=200), [*EVENTS[:-1], ended])
    assert text.splitlines()[-1] == (
        "best 34 us, 58.8 GFLOP/s, of session adadadadadad; this session's: 608 us after 4 trials "
        "in 5.2 s: done"
    )


def test_a_sparkline_falls_as_times_do() -> None:
    assert sparkline([8.0, 4.0, 2.0, 1.0], 10) == "█▆▃▁"
    assert sparkline([3.0, 3.0], 10) == "▁▁"
    assert len(sparkline([float(k) for k in range(1, 500)], 32)) == 32


def test_programs_that_share_a_budget_are_told_apart() -> None:
    def of(program: int, *events: Event) -> list[Event]:
        return [replace(event, program=program) for event in events]

    def started(name: str) -> Started:
        return Started("0" * 64, name, "cpu", 4, None, 0, 0, 0, None, programs=2)

    events = [
        *of(0, started("matmul")),
        *of(1, started("softmax")),
        *of(0, trial(1, 2e-3, 2e-3, record=True)),
        *of(1, trial(2, None, None), trial(3, 1e-3, 1e-3, record=True)),
        *of(0, Ended("done", False, 1, MeasuredTime(2e-3), 5.0)),
        *of(1, Ended("done", False, 2, MeasuredTime(1e-3), 5.0)),
    ]
    text = shown(Console(file=io.StringIO(), width=200), events)
    assert text.splitlines()[2:] == [
        "trial 1/4: matmul: best 2 ms after 1.0 s",
        "trial 2/4: softmax: crash: running it: signal 11 [SIGSEGV]",
        "trial 3/4: softmax: best 1 ms after 3.0 s",
        "matmul: best 2 ms after 1 trial in 5.0 s: done",
        "softmax: best 1 ms after 2 trials in 5.0 s: done",
    ]
    picture = shown(Console(file=io.StringIO(), force_terminal=True, width=120), events[:5])
    last = picture[picture.rindex("matmul") :]
    assert "best 2 ms" in last
    assert "1 trial\n" in "\n".join(line.rstrip() for line in last.splitlines()) + "\n"
    assert "1 trials" not in last
    assert "softmax" in last


def test_of_many_finalists_a_live_picture_shows_the_first() -> None:
    many = [
        ComparedSchedule(f"{n:02x}" * 32, 1e-3 + n / 1e5, 18, 1 + n / 100, None, Verdict.SLOWER)
        for n in range(26)
    ]
    console = Console(file=io.StringIO(), width=80)
    started = EVENTS[0]
    assert isinstance(started, Started)
    picture = Picture(started)
    picture.add(Final(tuple(many), 5.0))
    console.print(render(picture, console))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert [f"{n:02x}" * 6 for n in range(26) if any(f"{n:02x}" * 6 in li for li in lines)] == [
        f"{n:02x}" * 6 for n in range(8)
    ]
    assert "   ... 18 more" in [line.rstrip() for line in lines]
    assert len(picture.finalists) == 26


def test_the_terminal_is_as_before_once_all_programs_have_ended() -> None:
    screen = io.StringIO()
    started = Started("0" * 64, "matmul", "cpu", 4, None, 0, 0, 0, None, programs=2)
    ended = Ended("interrupted", True, 1, None, 5.0)
    show_cursor = "\x1b[?25h"
    with LiveDisplay(Console(file=screen, force_terminal=True)) as display:
        for event in (started, replace(started, program=1), ended):
            display(event)
        assert show_cursor not in screen.getvalue()
        display(replace(ended, program=1))
        assert screen.getvalue().count(show_cursor) == 1


@pytest.mark.parametrize("width", [40, 80])
def test_finals_are_whole_in_a_narrow_terminal(width: int) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width)
    text = " ".join(shown(console, EVENTS[:-1]).split())
    assert "tie (1.005x faster to 1.02x slower)" in text
    assert "fastest, 1 ms" in text

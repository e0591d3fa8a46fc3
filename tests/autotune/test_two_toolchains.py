"""Sessions that several toolchains measured: what is read of them is what lookups choose."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import TuningDatabase
from tilewright.autotune.session import tuning_job
from tilewright.autotune.session.events import Ended, Event, Final, Trial
from tilewright.autotune.session.session_history import SessionHistory
from tilewright.autotune.show.recorded_run import open_run
from tilewright.tuning_db import (
    Environment,
    Measurement,
    Outcome,
    ScheduleRecord,
    TargetRecord,
    Toolchain,
    Verification,
    Workload,
)

from ..long import examples
from .recorded import Simulated
from .test_rivals import Tune, run, third_is_fast

__all__ = ["run"]

TOOLS = (
    Toolchain("llvm 22", {"numpy": "2.1"}),
    Toolchain("llvm 22", {"numpy": "2.2"}),
    Toolchain("llvm 23", {"numpy": "2.2"}),
)
"""Two of one generation, and another one."""
TARGET = TargetRecord("cpu -mcpu=znver4 -threads=2", "x86_64", "some processor")
WORKLOAD = Workload("ab" * 32, "matmul", "func", "A:float32[64,64]", 2, 2)
HOST = Environment({"host": "a"})
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def schedule(number: int) -> ScheduleRecord:
    return ScheduleRecord(f'{{"version":1,"steps":[],"number":{number}}}', 1, "tiling")


class Writer:
    """Writes one session, a second after the other; all results are right."""

    def __init__(self) -> None:
        self.now = NOON
        self.database = TuningDatabase("sqlite://", clock=lambda: self.now)
        self.database.put(WORKLOAD, TARGET, HOST, *TOOLS)
        self.session = self.database.start_session(
            WORKLOAD.id, TARGET.id, trials=99, seconds=None, seed=0, search={}, model={}
        )

    def measured(self, tools: Toolchain, times: Sequence[tuple[int, float]], trial: bool) -> None:
        """Measure schedules by their numbers at one moment."""
        self.now += timedelta(seconds=1)
        for number, seconds in times:
            record = schedule(number)
            key = (WORKLOAD.id, TARGET.id, record.id, tools.id)
            measured = Measurement(
                session=self.session.id,
                schedule=record.id,
                workload=WORKLOAD.id,
                target=TARGET.id,
                toolchain=tools.id,
                environment=HOST.id,
                outcome=Outcome.OK,
                seconds=seconds,
                samples=(seconds,) * 5,
                error=None,
                created=self.now,
                trial=trial,
            )
            check = Verification(*key, True, 1e-7, 1e-5, self.now)
            self.database.put(record, measured, check)


def test_the_times_of_another_generation_are_not_compared() -> None:
    written = Writer()
    written.measured(TOOLS[0], [(0, 1e-3)], trial=True)
    written.measured(TOOLS[0], [(1, 2e-3)], trial=True)
    written.measured(TOOLS[2], [(2, 5e-3)], trial=True)
    written.measured(TOOLS[2], [(3, 4e-3)], trial=True)
    events = open_run(written.database, written.session.id).poll()
    trials = [e for e in events if isinstance(e, Trial)]
    assert [(t.best_seconds, t.record) for t in trials] == [
        (1e-3, True),
        (1e-3, False),
        (5e-3, True),
        (4e-3, True),
    ]
    history = SessionHistory(written.database, written.session)
    assert len(list(history.read())) == 4
    assert history.own_seconds == history.trial_seconds == 4e-3
    assert [ran.seconds for ran in history.fastest()] == [4e-3, 5e-3]
    written.measured(TOOLS[0], [(4, 3e-3)], trial=True)
    assert [t.trial.best_seconds for t in history.read()] == [1e-3], "the old compiler goes on"
    assert history.own_seconds == 1e-3


SECONDS = st.integers(1, 60).map(lambda n: n * 1e-4)
TRIAL = st.tuples(st.integers(0, 2), SECONDS)
FINALS = st.tuples(st.integers(0, 2), st.lists(SECONDS, min_size=2, max_size=3))


@given(st.lists(TRIAL | FINALS, min_size=1, max_size=8))
@settings(max_examples=examples(150), deadline=None)
def test_the_best_of_a_session_is_that_of_a_lookup(
    steps: list[tuple[int, float | list[float]]],
) -> None:
    """After each measurement, of its best so far, and of the finals that decide."""
    written, number = Writer(), 0
    history = SessionHistory(written.database, written.session)
    for tools, times in steps:
        last = TOOLS[tools]
        several = times if isinstance(times, list) else [times]
        numbered = list(enumerate(several, start=number))
        number += len(several)
        written.measured(last, numbered, trial=len(several) == 1)
        trials = [recorded.trial for recorded in history.read()]
        best = written.database.best(WORKLOAD.id, TARGET, last)
        assert best is not None
        assert history.own_seconds == best.seconds
        assert [t.best_seconds for t in trials] == [best.seconds] * (len(several) == 1)
        assert history.finals is None or history.finals.seconds == best.seconds


@pytest.mark.usefixtures("given_machine", "remembered_choices")
@pytest.mark.parametrize("slower", [0.8, 2.0])
def test_a_session_resumed_by_other_tools_has_one_best(
    db: TuningDatabase, run: Tune, monkeypatch: pytest.MonkeyPatch, slower: float
) -> None:
    """Its finals measure the best of before again, checked by these tools."""
    seconds = third_is_fast()

    def interrupt(event: Event) -> None:
        if isinstance(event, Trial) and event.number == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(tuning_job, "toolchain_record", lambda _: TOOLS[0])
    before = run(Simulated(seconds), callback=interrupt)
    monkeypatch.setattr(tuning_job, "toolchain_record", lambda _: TOOLS[1])
    live: list[Event] = []
    after = run(Simulated(lambda trace: slower * seconds(trace)), resume=True, callback=live.append)
    assert after.session == before.session
    assert before.best is not None
    assert after.best is not None
    assert after.best.seconds == after.own_seconds == min(1.0, slower) * before.best.seconds
    assert bool(after.finals) is (slower < 1)
    assert all(c.seconds >= after.best.seconds for c in after.finals)
    assert "The finals count" not in str(after)
    again = open_run(db, after.session).poll()
    (ended,) = [e for e in again if isinstance(e, Ended)]
    assert ended.best is not None
    assert ended.best.seconds == ended.own_seconds == after.best.seconds
    (told,) = [e for e in live if isinstance(e, Final)]
    read = [e.comparison for e in again if isinstance(e, Final)]
    assert read == [told.comparison] * (slower < 1)
    assert (told.comparison == ()) is (slower > 1)
    ends = [t.best_seconds for t in again if isinstance(t, Trial)][4:]
    assert ends == [t.best_seconds for t in live if isinstance(t, Trial)]

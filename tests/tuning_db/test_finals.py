"""The rule of finals (`finals_rule.py`), and that all that asks for the best agrees on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilewright import open_run, ops
from tilewright.autotune.records import workload_record
from tilewright.autotune.session.session_history import SessionHistory
from tilewright.tuning_db import AnyRecord, Best, Outcome, Session, SessionStatus, TuningDatabase
from tilewright.tuning_db.explain import Reason
from tilewright.tuning_db.finals_rule import of_finals

from ..lab.databases import CPU, LLVM, Tuning
from ..long import examples

US = 1e-6
EARLY, LATE = [79] * 6 + [100] * 30, [80] * 6
"""The machine got slower after the sixth round: the second dropped out, and has a shorter time."""


@pytest.fixture
def tuning(tmp_path: Path) -> Iterator[Tuning]:
    made = Tuning(tmp_path / "tuning.db")
    with made.database:
        yield made


def best_us(tuning: Tuning) -> float:
    """The time of the best in microseconds, on which all agree."""
    best = tuning.database.best(tuning.workload.id, CPU, LLVM)
    assert best is not None
    (row,) = tuning.database.to_pandas("best").itertuples()
    assert (row.seconds, row.schedule) == (best.seconds, best.schedule.id)
    assert tuning.database.explain(tuning.workload, CPU, LLVM).best == best
    assert best.seconds is not None
    return round(best.seconds / US, 2)


def interleaved(tuning: Tuning, session: Session, rows: dict[int, list[int]]) -> None:
    """Finals of a session: samples of tiles in microseconds."""
    tuning.now += timedelta(seconds=1)
    tuning.database.put(
        *(
            tuning._measurement(
                session,
                tuning.schedule(tile).id,
                tuple(sample * US for sample in samples),
                "",
                Outcome.OK,
                None,
            )
            for tile, samples in rows.items()
        )
    )


def trials(tuning: Tuning, session: Session, times: dict[int, float]) -> None:
    for tile, time in times.items():
        tuning.trial(session, tile, time * US)


def test_a_slower_trial_after_the_finals_brings_back_no_earlier_one(tuning: Tuning) -> None:
    session = tuning.start()
    trials(tuning, session, {4: 95, 8: 100, 16: 110})
    tuning.finals(session, {8: 120 * US, 16: 125 * US})
    assert best_us(tuning) == 121.2
    trials(tuning, session, {2: 300})
    assert best_us(tuning) == 121.2
    history = SessionHistory(tuning.database, session)
    assert list(history.read())
    assert history.own_seconds == pytest.approx(121.2 * US)
    tuning.end(session)
    (picture,) = open_run(tuning.database, session.id).pictures.pictures.values()
    assert any("121 us" in line and "finals count" in line for line in picture.conclusions)


def test_nor_does_one_of_a_session_that_was_resumed(tuning: Tuning) -> None:
    session = tuning.start()
    trials(tuning, session, {8: 100, 4: 120, 16: 300})
    tuning.finals(session, {8: 130 * US, 16: 390 * US})
    assert best_us(tuning) == 131.3
    tuning.database.finish_session(session.id, SessionStatus.INTERRUPTED)
    tuning.database.resume_session(session.id)
    trials(tuning, session, {2: 300})
    assert best_us(tuning) == 131.3
    trials(tuning, session, {2: 129})
    assert best_us(tuning) == 129, "a faster trial after the finals competes"


def test_finals_stay_when_another_session_measures_the_baseline_again(tuning: Tuning) -> None:
    first = tuning.start()
    trials(tuning, first, {8: 100, 4: 120, 16: 300})
    tuning.finals(first, {8: 130 * US, 16: 390 * US})
    tuning.end(first)
    assert best_us(tuning) == 131.3
    second = tuning.start()
    trials(tuning, second, {16: 300, 2: 200})
    tuning.finals(second, {2: 200 * US, 16: 300 * US})
    tuning.end(second)
    assert best_us(tuning) == 131.3
    tuning.database.prune()
    assert best_us(tuning) == 131.3


def test_prune_keeps_finals_that_outdate_what_stays(tuning: Tuning) -> None:
    """All of them were measured again elsewhere, and a trial that they outdate was not."""
    first, second = tuning.start(), tuning.start()
    trials(tuning, first, {4: 95, 8: 100, 16: 110})
    tuning.finals(first, {8: 120 * US, 16: 125 * US})
    trials(tuning, first, {2: 300})
    trials(tuning, second, {8: 130, 16: 140})
    tuning.end(first)
    tuning.end(second)
    assert best_us(tuning) == 130
    assert tuning.database.prune().counts == {"measurement": 2}, "the trials of 8 and 16"
    assert best_us(tuning) == 130


def test_finals_outdate_a_copy_from_before_them(tuning: Tuning, tmp_path: Path) -> None:
    session = tuning.start()
    trials(tuning, session, {4: 95, 8: 100, 16: 110})
    copy = tmp_path / "copy.db"
    with TuningDatabase(copy) as below:
        below.merge(tuning.database)
    tuning.finals(session, {8: 120 * US, 16: 125 * US})
    alone = tuning.database.best(tuning.workload.id, CPU, LLVM)
    with TuningDatabase(tuning.database.location, layers=[copy]) as both:
        assert both.best(tuning.workload.id, CPU, LLVM) == alone
        reasons = {r.reason for r in both.explain(tuning.workload, CPU, LLVM).refused}
    assert reasons == {Reason.OUTDATED, Reason.SUPERSEDED, Reason.NOT_CHOSEN}
    tuning.database.merge(copy)
    assert best_us(tuning) == 121.2


def test_what_finals_outdate_is_not_usable(tuning: Tuning) -> None:
    """Also that of a session whose trials are slower than a finalist of another one that lost."""
    first = tuning.start()
    trials(tuning, first, {2: 130, 4: 131})
    interleaved(tuning, first, {2: EARLY, 4: LATE})
    second = tuning.start()
    trials(tuning, second, {8: 90, 16: 91, 32: 92})
    interleaved(tuning, second, {16: [120] * 36, 32: [126] * 36})
    assert best_us(tuning) == 100
    refused = tuning.database.explain(tuning.workload, CPU, LLVM).refused
    counts = {r.reason: r.count for r in refused}
    assert (counts[Reason.OUTDATED], counts[Reason.NOT_CHOSEN]) == (1, 3), "three finalists lost"
    fastest = {r.reason: r.seconds for r in refused}
    assert fastest[Reason.OUTDATED] == pytest.approx(90 * US)
    assert fastest[Reason.NOT_CHOSEN] == pytest.approx(80 * US)


def test_relatives_begin_with_the_choice_and_go_on_with_its_finalists(tuning: Tuning) -> None:
    session = tuning.start()
    trials(tuning, session, {2: 130, 4: 131})
    interleaved(tuning, session, {2: EARLY, 4: LATE})
    trials(tuning, session, {8: 140})
    other = workload_record(ops.matmul_func(128, 128, 128))
    relatives = tuning.database.relatives(other, CPU, LLVM)
    times = [r.measurement.seconds for r in relatives]
    assert times == pytest.approx([100 * US, 80 * US, 140 * US])
    (near,) = tuning.database.explain(other, CPU).near
    assert near.seconds == times[0]
    (one,) = tuning.database.relatives(other, CPU, LLVM, schedules=1)
    assert one == relatives[0]


def test_failures_of_one_moment_are_no_finals(tuning: Tuning) -> None:
    assert of_finals([("a", "crash"), ("a", "crash"), ("a", "ok")]) == [False] * 3
    assert of_finals([("a", "ok"), ("b", "ok"), ("a", "ok")]) == [True, False, True]
    session = tuning.start()
    for tile in (2, 4, 8):
        moment = tuning.now
        tuning.trial(session, tile, None, "signal 11")
        tuning.now = moment
    read = [recorded.trial.schedule for recorded in SessionHistory(tuning.database, session).read()]
    assert len(read) == tuning.database.trials(session.id) == 3
    (row,) = tuning.database.to_pandas("sessions").itertuples()
    assert (row.trials, row.failures) == (3, 3)
    assert sum(t.trials for t in tuning.database.tally()) == 3


# Any sessions in any order


class Event(NamedTuple):
    """What a session measures: a trial, or finals of several tiles; times are powers of 1.1.

    The `early` one of finals, the last, drops out after 6 of 9 rounds.
    """

    session: int
    times: dict[int, int]
    early: bool


class Row(NamedTuple):
    session: int
    tile: int
    moment: int
    seconds: float
    rounds: int


_TILES = st.sampled_from([2, 4, 8, 16])
_EVENTS = st.lists(
    st.builds(
        Event,
        st.integers(0, 2),
        st.one_of(
            st.dictionaries(_TILES, st.integers(0, 30), min_size=1, max_size=1),
            st.dictionaries(_TILES, st.integers(0, 30), min_size=2, max_size=4),
        ).filter(lambda times: len({*times.values()}) == len(times)),
        st.booleans(),
    ),
    min_size=1,
    max_size=10,
)


@contextmanager
def sessions_of(path: Path) -> Iterator[tuple[Tuning, list[Session]]]:
    tuning = Tuning(path)
    with tuning.database:
        yield tuning, [tuning.start() for _ in range(3)]


def measure(tuning: Tuning, session: Session, number: int, event: Event) -> list[Row]:
    """Put what an event measures. No two times are equal: of those that are the order is by ids."""
    rows = []
    if len(event.times) == 1:
        ((tile, power),) = event.times.items()
        seconds = 100 * US * 1.1**power * (1 + number * 1e-6)
        tuning.trial(session, tile, seconds)
        return [Row(event.session, tile, number, seconds, 1)]
    tuning.now += timedelta(seconds=1)
    records: list[AnyRecord] = []
    for n, (tile, power) in enumerate(event.times.items()):
        rounds = 6 if event.early and n == len(event.times) - 1 else 9
        seconds = 100 * US * 1.1**power * (1 + (number + n / 8) * 1e-6)
        schedule = tuning.schedule(tile)
        made = tuning._measurement(session, schedule.id, (seconds,) * rounds, "", Outcome.OK, None)
        check = tuning.verification(session, schedule.id)
        records += [schedule, check, made]
        rows.append(Row(event.session, tile, number, seconds, rounds))
    tuning.database.put(*records)
    return rows


def rule(rows: list[Row]) -> Row:
    """What competes by the rule, said once more in a few lines; and its fastest."""
    together = {
        r: [o for o in rows if (o.session, o.moment) == (r.session, r.moment)] for r in rows
    }
    last = {r.tile: r for r in rows}
    competing = []
    for r in rows:
        finals = [o.moment for o in rows if o.session == r.session and len(together[o]) > 1]
        if last[r.tile] is not r or r.moment < max(finals, default=r.moment):
            continue
        usable = [o for o in together[r] if last[o.tile] is o]
        most = max(o.rounds for o in usable)
        if r is min((o for o in usable if o.rounds == most), key=lambda o: o.seconds):
            competing.append(r)
    return min(competing, key=lambda r: r.seconds)


@settings(max_examples=examples(30), deadline=None)
@given(_EVENTS, st.integers(0, 10))
@example([Event(0, {4: 0}, False), Event(0, {8: 3, 16: 9}, False), Event(0, {2: 20}, False)], 1)
@example(
    [
        Event(0, {4: 0}, False), Event(0, {8: 3, 16: 9}, False),
        Event(1, {16: 7}, False), Event(1, {2: 6, 16: 8}, True),
    ],
    2,
)  # fmt: skip
def test_all_that_asks_for_the_best_agrees(events: list[Event], copied: int) -> None:
    """`copied` is the number of events after which a colleague copies the database."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        rows: list[Row] = []
        with (
            sessions_of(Path(folder) / "tuning.db") as (tuning, sessions),
            TuningDatabase(copy) as below,
        ):
            for number, event in enumerate(events):
                if number == copied:
                    below.merge(tuning.database)
                rows += measure(tuning, sessions[event.session], number, event)
            expected = rule(rows)
            wanted = tuning.schedule(expected.tile).id, expected.seconds
            asked = (tuning.workload.id, CPU, LLVM)

            def agrees(best: Best | None) -> bool:
                return best is not None and (best.schedule.id, best.seconds) == wanted

            database = tuning.database
            assert agrees(database.best(*asked))
            explained = database.explain(*asked)
            assert agrees(explained.best)
            for view in (database.to_pandas("best").itertuples(), _view(database)):
                ((schedule, seconds),) = [(row.schedule, row.seconds) for row in view]
                assert (schedule, seconds) == wanted
            with TuningDatabase(database.location, layers=[copy]) as both:
                assert agrees(both.best(*asked))
                assert agrees(both.explain(*asked).best)
            with TuningDatabase(copy, layers=[database.location]) as both:
                assert agrees(both.best(*asked))
            below.merge(database)
            assert agrees(below.best(*asked))
            relatives = database.relatives(
                workload_record(ops.matmul_func(128, 128, 128)), CPU, LLVM
            )
            assert (relatives[0].schedule.id, relatives[0].measurement.seconds) == wanted
            refused = {r.reason: r for r in explained.refused}
            outdated = sum(
                r.moment < max(o.moment for o in rows if _of_finals(o, rows, r.session))
                for r in rows
                if any(_of_finals(o, rows, r.session) for o in rows) and _last(r, rows)
            )
            assert outdated == (refused[Reason.OUTDATED].count if Reason.OUTDATED in refused else 0)
            for session in sessions:
                tuning.end(session)
            database.prune()
            assert agrees(database.best(*asked))


def _of_finals(row: Row, rows: list[Row], session: int) -> bool:
    same = [o for o in rows if (o.session, o.moment) == (row.session, row.moment)]
    return row.session == session and len(same) > 1


def _last(row: Row, rows: list[Row]) -> bool:
    return [o for o in rows if o.tile == row.tile][-1] is row


class _Seen(NamedTuple):
    schedule: str
    seconds: float


def _view(database: TuningDatabase) -> list[_Seen]:
    """The view in the database itself."""
    with database._layers[0].reading() as connection:
        found = connection.exec_driver_sql("SELECT schedule, seconds FROM best")
        return [_Seen(*row) for row in found]

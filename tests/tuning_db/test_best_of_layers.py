"""The best of a database is the best of its parts: of finals only the choice competes."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilewright.tuning_db import AnyRecord, Measurement, ScheduleRecord, TuningDatabase
from tilewright.tuning_db.interleaved_comparison import compare_schedules

from ..long import examples
from .samples import CPU, LLVM, MATMUL, SESSION, fill, schedule, timed, verification

_TIMES = st.floats(1.0, 2.0)
_ROW = st.tuples(_TIMES, st.booleans())
_SESSIONS = st.lists(
    st.tuples(
        st.lists(_ROW, min_size=1, max_size=4),  # times of finalists, and which stay to the end
        st.sampled_from([0.5, 1.0, 1.5]),  # how much longer all takes then
        st.booleans(),  # which layer has it
    ),
    min_size=1,
    max_size=4,
)  # fmt: skip
Entry = tuple[Measurement, ScheduleRecord]


def _session(number: int, rows: list[tuple[float, bool]], later: float) -> list[Entry]:
    """The measurements of a session of its own schedules, interleaved."""
    session = dataclasses.replace(SESSION, nonce=f"{number}")
    entries = []
    for n, (seconds, stays) in enumerate(rows):
        tile = 2 + 10 * number + n
        noise = (1.0,) * 6 + (later,) * (30 if stays else 0)
        measured, made = timed(schedule(tile), seconds + 1e-6 * tile, noise)
        moment = measured.created + timedelta(minutes=number)
        entries.append(
            (dataclasses.replace(measured, session=session.id, created=moment), made)
        )  # fmt: skip
    return entries


def _records(number: int, entries: list[Entry]) -> list[AnyRecord]:
    checks = [verification(2 + 10 * number + n) for n in range(len(entries))]
    records = [record for entry in entries for record in entry]
    return [dataclasses.replace(SESSION, nonce=f"{number}"), *checks, *records]


@settings(max_examples=examples(20), deadline=None)
@example([([(1.02, False), (1.0, True), (1.01, True)], 1.5, False), ([(1.2, True)], 1.0, True)])
@given(_SESSIONS)
def test_the_best_of_layers_is_that_of_the_merged_database(
    drawn: list[tuple[list[tuple[float, bool]], float, bool]],
) -> None:
    sessions = [_session(n, rows, later) for n, (rows, later, _) in enumerate(drawn)]
    choices = []
    for entries in sessions:
        first = compare_schedules(entries, dict)[0]
        choices.append((first.seconds, first.schedule))
    with TemporaryDirectory() as folder:
        upper, lower = f"{folder}/upper.db", f"{folder}/lower.db"
        with TuningDatabase(upper) as above, TuningDatabase(lower) as below:
            for db in (above, below):
                fill(db)
            for n, (entries, (_, _, is_below)) in enumerate(zip(sessions, drawn, strict=True)):
                (below if is_below else above).put(*_records(n, entries))
        with TuningDatabase(upper, layers=[lower]) as both:
            of_layers = both.best(MATMUL.id, CPU, LLVM)
        with TuningDatabase(upper) as db:
            db.merge(lower)
            merged = db.best(MATMUL.id, CPU, LLVM)
    assert of_layers is not None
    assert merged is not None
    assert (merged.seconds, merged.schedule.id) == min(choices)
    assert of_layers.measurement == merged.measurement
    assert of_layers.comparison == merged.comparison

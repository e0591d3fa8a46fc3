"""Every list calls the time of a finalist by one number, and is in the order of the finals."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from datetime import timedelta
from statistics import median

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.autotune.records import target_record
from tilewright.autotune.session.events import Final, Started
from tilewright.autotune.show.picture import Picture
from tilewright.base.text import short_id
from tilewright.codegen.detect import resolve
from tilewright.lab.pictures.trials import finals as picture_of_finals
from tilewright.lab.workbench import records
from tilewright.tuning_db import (
    Measurement,
    Order,
    Outcome,
    ScheduleRecord,
    TuningDatabase,
    Verdict,
    Verification,
)
from tilewright.tuning_db.interleaved_comparison import FINALISTS_SHOWN

from ..long import examples
from ..tuning_db.samples import HOST, LLVM, MATMUL, NOON, SESSION

TARGET = resolve("cpu -mcpu=znver4 -threads=2")
HERE = target_record(TARGET)
TUNING = dataclasses.replace(SESSION, target=HERE.id)
STARTED = Started("s" * 64, "matmul", "cpu", 8, None, 0, 0, 0, None)
_TIMES = st.floats(150e-6, 250e-6)


def _row(rounds: int) -> st.SearchStrategy[list[float]]:
    return st.lists(_TIMES, min_size=rounds, max_size=rounds)


_FINALS = st.tuples(
    st.lists(_row(12), min_size=1, max_size=4),  # stay to the end
    st.lists(_row(3), min_size=1, max_size=3),  # are out early
    st.sampled_from([0.25, 1.0, 4.0]),  # how much longer all takes afterwards
)


def _schedule(n: int) -> ScheduleRecord:
    steps = [{"op": "sample_categorical", "args": {}, "decision": [n + 2]}]
    return ScheduleRecord(json.dumps({"version": 1, "steps": steps}), 1, "tiling")


def _measured(n: int, samples: Sequence[float], after: float) -> Measurement:
    return Measurement(
        session=TUNING.id,
        schedule=_schedule(n).id,
        workload=MATMUL.id,
        target=HERE.id,
        toolchain=LLVM.id,
        environment=HOST.id,
        outcome=Outcome.OK,
        seconds=median(samples),
        samples=tuple(samples),
        error=None,
        created=NOON + timedelta(seconds=after),
    )


def _fill(db: TuningDatabase, rows: Sequence[Sequence[float]]) -> None:
    """A session of a trial for each row, which is as fast as its first sample, and its finals."""
    db.put(MATMUL, HERE, LLVM, HOST, TUNING)
    for n, row in enumerate(rows):
        db.put(
            _schedule(n),
            _measured(n, row[:1], n),
            Verification(
                MATMUL.id, HERE.id, _schedule(n).id, LLVM.id, True, 1e-6, 1e-4, NOON
            ),
        )  # fmt: skip
    db.put(*(_measured(n, row, 100.0) for n, row in enumerate(rows)))


@settings(max_examples=examples(25), deadline=None)
@given(_FINALS)
def test_all_lists_agree_on_the_time_of_each_finalist(
    drawn: tuple[list[list[float]], list[list[float]], float],
) -> None:
    complete, early, later = drawn
    rows = [*(row[:3] + [later * time for time in row[3:]] for row in complete), *early]
    with TuningDatabase("sqlite://") as db:
        _fill(db, rows)
        best = db.best(MATMUL.id, HERE, LLVM)
        assert best is not None
        assert len(best.comparison) == len(rows)
        assert best.schedule.id in {_schedule(n).id for n in range(len(complete))}
        finals_say = [c.ratio for c in best.comparison if c.verdict is not Verdict.FASTEST]
        finals_say = finals_say[best.comparison[0].verdict is not Verdict.FASTEST :]
        assert finals_say == sorted(finals_say)
        out = {c.schedule for c in best.comparison if c.early}
        assert out == {_schedule(len(complete) + n).id for n in range(len(early))}
        number = {c.schedule: c.seconds for c in best.comparison}
        text = {c.schedule: str(c.time) for c in best.comparison}
        verdict = {c.schedule: c.verdict for c in best.comparison}
        assert best.comparison[0].schedule == best.schedule.id
        assert (number[best.schedule.id], text[best.schedule.id]) == (best.seconds, str(best.time))

        picture = Picture(STARTED)
        picture.add(Final(best.comparison, 1.0))
        order = [c.schedule for c in best.comparison]
        for schedule, line in zip(order, picture.finalists, strict=True):
            assert short_id(schedule) in line
            assert (text[schedule] in line) is (verdict[schedule] is Verdict.FASTEST)
            assert (", 3 rounds" in line) is (schedule in out)
        explained = str(db.explain(MATMUL, HERE, LLVM))
        first = 1 if str(best.comparison[0]) == Verdict.FASTEST else 0
        told = best.comparison[first:FINALISTS_SHOWN]
        lines = [f"    {short_id(c.schedule)}: {c.line}\n" for c in told]
        assert "".join(lines) in explained
        shown = re.sub(r"<[^>]*>", " ", str(picture_of_finals(best.comparison)))
        assert re.search(".*".join(map(short_id, order)), shown, re.DOTALL)
        assert shown.count(", 3 rounds") == len(early)

        listed = [row for row, *_ in records.listed(db, MATMUL, TARGET)]
        assert {row["record"]: (row["seconds"], row["text"]) for row in listed} == {
            id: (number[id], text[id]) for id in number
        }
        assert [row["record"] for row in listed] == order
        assert {row["record"] for row in listed if row["finals"] is not None} == out

        last = [m for m in db.measurements(order=Order.TIME) if m.id not in _old(db)]
        assert {m.schedule: (m.seconds, str(m.time)) for m in last} == {
            id: (number[id], text[id]) for id in number
        }
        assert [m.seconds for m in last] == sorted(number.values())
        trials = db.to_pandas("trials")
        now = trials[trials.superseded == 0].set_index("schedule").seconds
        assert now.to_dict() == number
        (fastest,) = db.to_pandas("best").itertuples()
        assert fastest.seconds == number[str(fastest.schedule)]
        assert fastest.seconds == min(number[id] for id in number if id not in out)


def test_records_of_finals_that_lost_are_in_their_order() -> None:
    """A schedule of another session is faster; one that was out early has the shortest time."""
    rows = [[1.01e-4] * 3 + [1.515e-4] * 9, [1e-4] * 3 + [1.5e-4] * 9, [1.02e-4] * 3]
    alone, slow = _measured(7, [1.2e-4] * 5, -50.0), _measured(8, [1.55e-4] * 5, -40.0)
    other = dataclasses.replace(TUNING, nonce="other")
    with TuningDatabase("sqlite://") as db:
        _fill(db, rows)
        db.put(other)
        for n, measured in ((7, alone), (8, slow)):
            check = Verification(MATMUL.id, HERE.id, _schedule(n).id, LLVM.id, True, 0.0, 0.0, NOON)
            db.put(_schedule(n), dataclasses.replace(measured, session=other.id), check)

        def order() -> list[int]:
            ids = [row["record"] for row, *_ in records.listed(db, MATMUL, TARGET)]
            return [next(n for n in (0, 1, 2, 7, 8) if _schedule(n).id == id) for id in ids]

        assert order() == [7, 1, 0, 2, 8]
        db.pin(MATMUL.id, HERE, _schedule(0).id)
        assert order() == [0, 7, 1, 2, 8], "the pinned one comes first"


def _old(db: TuningDatabase) -> set[str]:
    return db.superseded([m.id for m in db.measurements()])

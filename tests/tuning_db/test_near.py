"""Other sizes of a program, and other programs: what of them is given, in which order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from tilewright.base.errors import DatabaseError
from tilewright.tuning_db import Relative, TargetRecord, Toolchain, TuningDatabase, Workload

from .samples import (
    ARM,
    CPU,
    LLVM,
    NOON,
    OLD_LLVM,
    SAME_CPU,
    SESSION,
    SOFTMAX,
    fill,
    measurement,
    schedule,
    verification,
    verified,
)

FAMILY = "f" * 64
MINE, NEAR, FAR, OTHER = (
    Workload(f"{n}" * 64, "matmul", "def matmul(): ...", f"A:float32[{size},64]", 1, 1, family)
    for n, size, family in ((1, 64, FAMILY), (2, 80, FAMILY), (3, 9000, FAMILY), (4, 65, "e" * 64))
)


@pytest.fixture
def related(db: TuningDatabase) -> TuningDatabase:
    db.put(NEAR, FAR, OTHER)
    return db


def short(found: list[Relative]) -> list[tuple[str, float | None]]:
    return [(r.workload.id[:1], r.measurement.seconds) for r in found]


def test_the_nearest_come_first_and_of_each_the_fastest(related: TuningDatabase) -> None:
    related.put(*verified(8, 3.0, workload=FAR), *verified(16, 2.0, workload=FAR))
    related.put(*verified(8, 5.0, workload=NEAR), *verified(16, 4.0, workload=NEAR))
    related.put(*verified(8, 1.0, workload=OTHER), *verified(8, 1.0, workload=SOFTMAX))
    found = related.relatives(MINE, CPU)
    assert short(found) == [("2", 4.0), ("2", 5.0), ("3", 2.0), ("3", 3.0)]
    assert found[0].schedule == schedule(16)
    assert found[0].workload == NEAR
    assert short(related.relatives(MINE, CPU, schedules=1)) == [("2", 4.0), ("3", 2.0)]
    assert short(related.relatives(MINE, CPU, workloads=1)) == [("2", 4.0), ("2", 5.0)]
    assert short(related.relatives(NEAR, CPU)) == [("3", 2.0), ("3", 3.0)]


def test_workloads_without_anything_usable_do_not_count(related: TuningDatabase) -> None:
    related.put(schedule(8), measurement(8, 1.0, workload=NEAR))
    related.put(*verified(8, 3.0, workload=FAR))
    assert short(related.relatives(MINE, CPU, workloads=1)) == [("3", 3.0)]


def test_only_what_a_lookup_would_take(related: TuningDatabase) -> None:
    related.put(*verified(8, 1.0, workload=NEAR, target=ARM))
    related.put(*verified(16, 2.0, workload=NEAR, toolchain=OLD_LLVM))
    related.put(schedule(32), measurement(32, 3.0, workload=NEAR))
    related.put(verification(32, passed=False, workload=NEAR))
    related.put(schedule(64), measurement(64, None, workload=NEAR))
    related.put(*verified(128, 5.0, workload=NEAR, target=SAME_CPU))
    related.put(measurement(128, 6.0, workload=NEAR, target=SAME_CPU, after=1))
    assert short(related.relatives(MINE, CPU, LLVM)) == [("2", 6.0)]
    assert short(related.relatives(MINE, CPU)) == [("2", 2.0), ("2", 6.0)]


def test_the_last_comparison_speaks_for_a_relative_too(related: TuningDatabase) -> None:
    trials = [(tile, 1.0 + tile / 64) for tile in (8, 16, 32)]
    related.put(*(r for t, s in trials for r in verified(t, s, workload=NEAR)))
    turns = (measurement(t, 2.0 + t / 64, workload=NEAR) for t in (8, 16))
    related.put(*(dataclasses.replace(m, created=NOON + timedelta(seconds=9)) for m in turns))
    assert short(related.relatives(MINE, CPU)) == [("2", 2.125), ("2", 2.25)]


def test_without_a_family_there_are_none(related: TuningDatabase) -> None:
    related.put(*verified(8, 1.0, workload=NEAR), *verified(8, 1.0, workload=SOFTMAX))
    assert related.relatives(dataclasses.replace(MINE, family=""), CPU) == []


def test_layers(new_place: Callable[[], str]) -> None:
    place = new_place()
    with TuningDatabase(place) as team:
        fill(team)
        team.put(NEAR, *verified(8, 1.0, workload=NEAR), *verified(16, 3.0, workload=NEAR))
    with TuningDatabase(new_place(), layers=[place]) as db:
        fill(db)
        db.put(NEAR, *verified(32, 2.0, workload=NEAR))
        found = db.relatives(MINE, CPU)
        assert short(found) == [("2", 1.0), ("2", 2.0), ("2", 3.0)]
        assert [r.layer == db.location for r in found] == [False, True, False]
        db.put(schedule(8), verification(8, passed=False, workload=NEAR))
        assert short(db.relatives(MINE, CPU)) == [("2", 2.0), ("2", 3.0)]


def test_measurements_of_a_family(related: TuningDatabase) -> None:
    records = [measurement(8, 1.0, workload=w) for w in (NEAR, FAR, OTHER)]
    related.put(schedule(8), *records)
    assert {m.id for m in related.measurements(family=FAMILY)} == {r.id for r in records[:2]}
    assert related.measurements(family=FAMILY, workload=OTHER.id) == []


def test_an_explanation_tells_relatives_from_namesakes(related: TuningDatabase) -> None:
    renamed = dataclasses.replace(FAR, id="5" * 64, name="product")
    related.put(renamed)
    near = related.explain(MINE, CPU).near
    assert [(n.workload[:1], n.relative) for n in near[:4]] == [
        ("2", True),
        ("3", True),
        ("5", True),
        ("4", False),
    ]
    assert "not the same program" in str(related.explain(MINE, CPU)).splitlines()[-2]


def test_a_family_is_a_digest_or_empty(db: TuningDatabase) -> None:
    with pytest.raises(DatabaseError):
        db.put(dataclasses.replace(MINE, family="near"))


# Other programs


def tuned(
    db: TuningDatabase,
    workload: Workload,
    seconds: Sequence[float | None],
    *,
    after: float,
    target: TargetRecord = CPU,
    toolchain: Toolchain = LLVM,
    version: str = "3",
) -> list[str]:
    """A session so many seconds after noon that measured a schedule for each time; their ids."""
    began = dataclasses.replace(
        SESSION, workload=workload.id, target=target.id, nonce=f"{workload.name}{after}"
    )
    began = dataclasses.replace(began, started=NOON + timedelta(seconds=after))
    db.put(workload, target, toolchain, began)
    ids = []
    for tile, taken in enumerate(seconds, 1):
        measured = measurement(tile, taken, workload=workload, target=target, toolchain=toolchain)
        measured = dataclasses.replace(
            measured, session=began.id, features=(float(tile),), feature_version=version
        )
        db.put(schedule(tile), measured)
        ids.append(measured.id)
    return sorted(ids)


def others(db: TuningDatabase, workload: Workload = MINE, **kept: int) -> list[str]:
    return [m.id for m in db.others(workload, CPU, LLVM, "3", **kept)]


def test_other_programs_are_those_of_other_families_the_last_tuned_first(
    related: TuningDatabase,
) -> None:
    of_other = tuned(related, OTHER, [1.0, 2.0, 3.0], after=0)
    of_unknown = tuned(related, SOFTMAX, [4.0, 5.0], after=1)
    tuned(related, NEAR, [6.0], after=2)
    tuned(related, MINE, [7.0], after=3)
    assert others(related) == [*of_unknown, *of_other]
    assert others(related, workloads=1) == of_unknown
    assert others(related, each=1) == [of_unknown[0], of_other[0]]
    mine = tuned(related, OTHER, [8.0], after=4)
    assert others(related) == [*sorted([*of_other, *mine]), *of_unknown]
    assert SOFTMAX.family == ""
    assert not set(of_unknown) & set(others(related, SOFTMAX))
    unknown = dataclasses.replace(MINE, id="6" * 64, family="")
    assert set(of_unknown) < set(others(related, unknown))


def test_of_other_programs_what_compares_and_has_features(related: TuningDatabase) -> None:
    tuned(related, OTHER, [1.0], after=0, target=ARM)
    tuned(related, OTHER, [1.0], after=1, toolchain=OLD_LLVM)
    tuned(related, OTHER, [1.0], after=2, version="2")
    kept = tuned(related, OTHER, [1.0, None], after=3, target=SAME_CPU)
    related.put(schedule(64), measurement(64, None, workload=OTHER))
    related.put(schedule(32), measurement(32, 1.0, workload=OTHER))
    assert others(related) == kept


def test_other_programs_of_all_layers(new_place: Callable[[], str]) -> None:
    below = new_place()
    with TuningDatabase(below) as lower:
        fill(lower)
        first = tuned(lower, OTHER, [1.0, 2.0], after=1)
        softmax = tuned(lower, SOFTMAX, [3.0], after=0)
    with TuningDatabase(new_place(), layers=[below]) as db:
        fill(db)
        both = sorted([*first, *tuned(db, OTHER, [4.0], after=-1)])
        assert others(db) == [*both, *softmax]
        assert others(db, workloads=1, each=2) == both[:2]

"""Records: content digests, normalisation, and the way to JSON and back."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.errors import DatabaseError
from tilewright.tuning_db import (
    AnyRecord,
    Environment,
    Machine,
    Measurement,
    Outcome,
    ScheduleRecord,
    SessionStatus,
    TargetRecord,
    TuningDatabase,
    Workload,
    canonical_json,
)
from tilewright.tuning_db.codec import LIMITS, check, from_plain
from tilewright.tuning_db.values import ERROR_LIMIT, KINDS, storable, to_plain

from ..long import examples
from ..refusals import refused
from .samples import (
    BASE,
    CPU,
    MACHINE,
    NOON,
    ONE_OF_EACH,
    SAME_CPU,
    SESSION,
    SLOW_CPU,
    measurement,
    schedule,
    verification,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_samples_have_every_kind() -> None:
    assert {record.kind for record in ONE_OF_EACH} == set(KINDS)


def test_ids_are_the_same_everywhere_and_always() -> None:
    """A digest that changes orphans every database that people have: never edit these."""
    even = dataclasses.replace(measurement(8, 0.125), samples=(0.125, 0.1875))
    records = (*(r for r in ONE_OF_EACH if r.kind != even.kind), even)
    assert {record.kind: record.id for record in records} == {
        "workload": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "target": "212b750fb119d2aec06ca58b718ea6186fa3960a9b8c5f8f0c1c5b0ca5a98c87",
        "toolchain": "f9de4f1275ba5d8175ebab088ab137e90bcaa2bb113d4d1f285920a6bdaebf78",
        "environment": "7da10b4a43f854b32b3aa0deb5f2fb0598ed31df41304a9980d30c390de48019",
        "machine": "a8c7eec6e6b3228577fe696b630539bd68a1da2bf4a1a4e1fce2da837bae59d1",
        "session": "0d337aefd6b4bbdcb764df9164264c22e28ea6863a38a8cc2801452bd5252098",
        "schedule": "4890c9ad4220435065a13f0a4800a466e2515f22699cdf82f04f8b293091f864",
        "measurement": "d6111d5bc0485eeb6216c17f1fbd61007e110fd99bc5d836ffb5f43b60ca5a55",
        "verification": "89c129451b0979171c0b89dadf074c3044519350d82585e593ddaff845ed134a",
        "pin": "8b3210fd5d6f47c0eb97e3c7d87a22b2853d43d37748d13a2883db064bc81aa5",
    }


@pytest.mark.parametrize("record", ONE_OF_EACH[1:], ids=lambda r: r.kind)
def test_every_field_that_is_not_state_is_in_the_id(record: AnyRecord) -> None:
    assert not isinstance(record, Workload), "a workload's id is given"
    outside = record.outside_id
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        changed = {field.name: _different(field.name, value)}
        other = dataclasses.replace(record, **changed)  # type: ignore[arg-type]
        assert (other.id == record.id) == (field.name in outside), field.name


@pytest.mark.parametrize("record", ONE_OF_EACH, ids=lambda r: r.kind)
def test_to_json_and_back(record: AnyRecord) -> None:
    back = from_plain(type(record), to_plain(record))
    assert back == record
    assert back.id == record.id


@settings(max_examples=examples(50))
@given(facts=st.dictionaries(st.text(), JSON))
def test_any_json_object_goes_to_json_and_back(facts: dict[str, Any]) -> None:
    record = Environment(facts)
    assert Environment(**to_plain(record)) == record
    assert Environment(**to_plain(record)).id == record.id


def test_the_id_of_a_schedule_ignores_white_space_and_order_of_keys() -> None:
    compact = ScheduleRecord('[{"factor":8,"step":"split"}]', 1)
    assert compact.id == ScheduleRecord('[ {"step": "split",\n "factor": 8} ]', 1).id
    assert compact.id != ScheduleRecord('[{"factor":8,"step":"split"}]', 2).id


def test_construction_normalises() -> None:
    eastern = datetime(2026, 3, 1, 17, 30, 0, 123456, tzinfo=timezone(timedelta(hours=5.5)))
    samples = [1, 1.5, 0.5]
    given = dataclasses.replace(measurement(8, 1.0), seconds=1, samples=samples, created=eastern)  # type: ignore[arg-type]
    assert given == measurement(8, 1.0)
    assert given.id == measurement(8, 1.0).id
    assert given.created.tzinfo is UTC
    assert dataclasses.replace(SESSION, search={"population": 512, "mutation": 0.5}) == SESSION
    assert Environment({"shape": (1, 2)}) == Environment({"shape": [1, 2]})
    rates = {"clock": 2_600_000_000, "fma": 35_000_000_000}
    assert dataclasses.replace(MACHINE, rates=rates, odd=list(MACHINE.odd)) == MACHINE  # type: ignore[arg-type]
    assert dataclasses.replace(MACHINE, rates=rates).id == MACHINE.id


@pytest.mark.parametrize("rates", [{"fma": 10**400}, [("fma", 1.0)], None, {"fma": "fast"}])
def test_what_a_field_cannot_hold_is_refused(rates: Any) -> None:
    with refused(DatabaseError, "rates", "machine"):
        Machine("0" * 64, rates, (), NOON)


@pytest.mark.parametrize("path", [5, None, object(), b"tuning.db"])
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(DatabaseError, match="expected a path"):
        TuningDatabase(path)


def test_a_time_without_a_zone_is_refused() -> None:
    with refused(DatabaseError, "2026-03-01 12:00:00.123456"):
        dataclasses.replace(measurement(8, 1.0), created=NOON.replace(tzinfo=None))


def test_targets_are_comparable_by_both_classes() -> None:
    assert CPU.id != SAME_CPU.id
    assert CPU.comparable == SAME_CPU.comparable
    assert CPU.comparable != SLOW_CPU.comparable
    assert CPU.comparable != TargetRecord(CPU.text, "x86_64 avx2", CPU.perf).comparable


def test_an_error_text_of_any_bytes_and_length_is_held() -> None:
    garbage = "a\0b\udc80" + "x" * 40_000 + "the end"
    held = dataclasses.replace(measurement(8, None), error=garbage)
    check(held)
    assert held.error is not None
    assert held.error.startswith("a\ufffdb?xxx")
    assert held.error.endswith("the end")
    assert "characters left out" in held.error
    assert storable("x" * ERROR_LIMIT) == "x" * ERROR_LIMIT


def test_an_error_that_is_not_finite_is_none() -> None:
    assert dataclasses.replace(verification(8), max_error=math.inf).max_error is None
    assert dataclasses.replace(verification(8), max_error=math.nan).max_error is None


@pytest.mark.parametrize("value", [math.nan, math.inf, {1, 2}, b"x", {"a": -math.inf}])
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(DatabaseError, match="not a JSON value"):
        canonical_json(value)


def test_canonical_json() -> None:
    assert canonical_json({"b": [1, 2.50], "a": "é"}) == '{"a":"\\u00e9","b":[1,2.5]}'


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("workload", {"id": "A" * 64}, "workload.id is 'AAAA.*expected a digest"),
        ("workload", {"id": "a" * 63}, "expected a digest"),
        ("workload", {"flops": 2**63}, "workload.flops is 9223372036854775808, beyond 64 bits"),
        ("workload", {"flops": "many"}, "workload.flops: "),
        ("workload", {"flops": True}, "workload.flops: "),
        ("workload", {"name": "x" * 1001}, "workload.name has 1001 characters, at most 1000"),
        ("workload", {"name": "a\0b"}, "workload.name has a NUL"),
        ("workload", {"name": "a\udc80b"}, "workload.name is not valid Unicode"),
        ("workload", {"name": None}, "workload.name: "),
        ("target", {"facts": []}, "target.facts: "),
        ("target", {"facts": {"a": "x" * 70_000}}, "target.facts has 70008 characters"),
        ("schedule", {"trace": "[1,"}, "not valid JSON"),
        ("schedule", {"trace": "[NaN]"}, "not valid JSON: NaN"),
        ("schedule", {"trace": "[" * 50_000 + "]" * 50_000}, "not valid JSON"),
        ("schedule", {"trace": f'"{"x" * 1_000_000}"'}, "schedule.trace has 1000002 characters"),
        ("session", {"started": "yesterday"}, "session.started: "),
        ("session", {"started": "2026-03-01T12:00:00"}, "session.started: "),
        ("session", {"status": "lost"}, "session.status: "),
        ("measurement", {"outcome": "fine"}, "measurement.outcome: "),
        ("measurement", {"outcome": "crash"}, "measurement crash has seconds=0.125 and 3 samples"),
        ("measurement", {"seconds": None}, "measurement ok has seconds=None and 3 samples"),
        ("measurement", {"error": "slow"}, "measurement ok has error='slow'; ok has none"),
        ("measurement", {"samples": []}, "measurement ok has seconds=0.125 and 0 samples"),
        ("measurement", {"samples": [0.0]}, "not positive and finite"),
        ("measurement", {"samples": ["1"]}, r"measurement.samples\[0\]: "),
        ("measurement", {"samples": "11"}, "measurement.samples: "),
        ("measurement", {"samples": [1.0] * 100_001}, "measurement.samples has 100001 elements"),
        ("measurement", {"seconds": -1.0}, "not positive and finite"),
        ("measurement", {"seconds": 10**400}, "measurement.seconds: "),
        ("measurement", {"features": [1.0]}, "features without their version"),
        ("measurement", {"seconds": 0.13}, "seconds=0.13, and the median of its samples is 0.125"),
        ("measurement", {"seconds": 1e-13, "samples": [1e-13]}, "not positive and finite, or none"),
        ("measurement", {"created": "0001-01-01T00:00:00+14:00"}, "is out of range in UTC"),
        ("workload", {"bytes": -1}, "workload.bytes is -1, expected 0 or more"),
        ("workload", {"flops": -1}, "workload.flops is -1, expected 0 or more"),
        ("workload", {"flops": 10**4000}, "workload.flops: "),
        ("session", {"trials": -1}, "session.trials is -1, expected 0 or more"),
        ("session", {"drift": 0.0}, "session.drift is 0.0, expected a ratio of times"),
        ("session", {"drift": -1.0}, "session.drift is -1.0, expected a ratio of times"),
        ("session", {"drift": 5e-324}, "session.drift is 5e-324, expected a ratio of times"),
        ("session", {"drift": 1e300}, r"session.drift is 1e\+300, expected a ratio of times"),
        ("session", {"seconds": math.inf}, "session.seconds: "),
        ("verification", {"max_error": -1.0}, "verification.max_error is -1.0, expected 0 or more"),
        ("verification", {"tolerance": math.nan}, "expected a finite number"),
        ("verification", {"passed": 1}, "verification.passed: "),
        ("verification", {"max_error": 1.0}, "of one that passed is within its tolerance"),
        ("verification", {"max_error": None}, "passed with max_error=None and tolerance=0.0001"),
        ("machine", {"rates": {}}, "machine.rates is empty"),
        ("machine", {"rates": {"fma": 0}}, "machine.rates has 'fma': 0.0, expected a positive"),
        ("machine", {"rates": {"fma": -1.0}}, "machine.rates has 'fma': -1.0"),
        ("machine", {"rates": {"fma": math.inf}}, r"machine.rates\['fma'\]: "),
        ("machine", {"rates": {"fma": math.nan}}, r"machine.rates\['fma'\]: "),
        ("machine", {"rates": {"fma": 5e-324}}, "machine.rates has 'fma': 5e-324"),
        ("machine", {"rates": {"fma": 10**400}}, r"machine.rates\['fma'\]: "),
        ("machine", {"rates": {"fma": "fast"}}, r"machine.rates\['fma'\]: "),
        ("machine", {"rates": {"fma": True}}, r"machine.rates\['fma'\]: "),
        ("machine", {"rates": [1.0]}, "machine.rates: "),
        ("machine", {"rates": {"x" * 65: 1.0}}, "machine.rates has the name 'xxx"),
        ("machine", {"odd": "noise"}, "machine.odd: "),
        ("machine", {"odd": [1]}, r"machine.odd\[0\]: "),
        ("machine", {"odd": ["x"] * 101}, "machine.odd has 101 elements, at most 100"),
        ("machine", {"odd": ["", "x" * 1001]}, r"machine.odd\[1\] has 1001 characters"),
        ("machine", {"odd": ["a\0b"]}, r"machine.odd\[0\] has a NUL"),
        ("machine", {"target": "cpu"}, "machine.target is 'cpu', expected a digest"),
    ],
)
def test_bad_json_is_refused(kind: str, changes: dict[str, Any], message: str) -> None:
    record = next(r for r in ONE_OF_EACH if r.kind == kind)
    with pytest.raises(DatabaseError, match=message):
        from_plain(type(record), to_plain(record) | changes)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_floats_of_numpy_are_checked_as_others_are(value: float) -> None:
    record = dataclasses.replace(
        next(r for r in ONE_OF_EACH if isinstance(r, Measurement)), elapsed=np.float64(value)
    )
    with pytest.raises(DatabaseError):
        check(record)


def test_missing_and_unknown_fields_are_refused() -> None:
    plain = to_plain(CPU)
    with refused(
        DatabaseError, "target", "compat, facts, perf, text, x", "compat, facts, perf, text"
    ):
        from_plain(TargetRecord, plain | {"x": 1})
    del plain["perf"]
    with refused(DatabaseError, "target", "compat, facts, text"):
        from_plain(TargetRecord, plain)
    with refused(DatabaseError, "target", "list"):
        from_plain(TargetRecord, [])


def test_every_limit_names_a_field() -> None:
    for where in LIMITS:
        kind, field = where.split(".")
        assert field in {f.name for f in dataclasses.fields(KINDS[kind])}, where


def test_features_that_are_not_finite_are_refused() -> None:
    held = dataclasses.replace(measurement(8, 1.0), features=(math.nan,), feature_version="1")
    with pytest.raises(DatabaseError, match="a feature that is not finite"):
        check(held)


def test_outcomes() -> None:
    assert [outcome.value for outcome in Outcome] == [
        "ok",
        "illegal",
        "build_error",
        "build_timeout",
        "run_timeout",
        "crash",
        "out_of_memory",
        "wrong_result",
    ]


def _different(name: str, value: object) -> object:
    if name == "features":
        return (1.0,)
    if name == "resources":
        return {"kernel": {"registers": 40}}
    if name == "trial":
        return True
    match value:
        case None:
            return (
                1.0
                if name in ("seconds", "max_error", "predicted", "elapsed", "drift")
                else NOON
                if name == "ended"
                else "x"
            )
        case bool():
            return not value
        case datetime():
            return value + timedelta(microseconds=1)
        case Outcome():
            return Outcome.ILLEGAL
        case SessionStatus():
            return SessionStatus.FINISHED
        case str() if value.startswith("["):
            return schedule(999).trace
        case str():
            return value + "x"
        case int() | float():
            return value + 1
        case tuple():
            return (*value, "strange" if name == "odd" else 9.0)
        case dict():
            return {**value, "another": 1}
        case _:
            raise AssertionError(value)


def test_resources_are_counts_by_name_of_each_kernel(db: TuningDatabase) -> None:
    plain = measurement(8, 0.125)
    told = dataclasses.replace(plain, resources={"k": {"registers": 40, "blocks": 8}})
    assert dataclasses.replace(told, resources=None).id == plain.id != told.id
    db.put(*BASE, schedule(8), told)
    assert db.get(Measurement, told.id).resources == {"k": {"registers": 40, "blocks": 8}}
    for wrong in ({"k": 40}, {"k": {"registers": -1}}, {"k": {"registers": "40"}}):
        with pytest.raises(DatabaseError, match="expected counts by name"):
            db.put(dataclasses.replace(plain, resources=wrong))


def test_predictions_are_positive_times(db: TuningDatabase) -> None:
    plain = measurement(8, 0.125)
    predicted = dataclasses.replace(plain, predicted=0.25)
    assert predicted.id != plain.id
    db.put(*BASE, schedule(8), predicted)
    assert db.get(Measurement, predicted.id).predicted == 0.25
    for wrong in (0.0, -1.0):
        with pytest.raises(DatabaseError, match="expected a positive number of seconds"):
            db.put(dataclasses.replace(plain, predicted=wrong))

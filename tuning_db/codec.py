"""Records from and to JSON values, strictly: types, sizes and sense are checked, nothing is run.

`check` is passed by everything that is written; `from_plain` is how a record from somebody else's
file comes in.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any, cast

from ..errors import DatabaseError
from .values import (
    KINDS,
    AnyRecord,
    Json,
    Measurement,
    Outcome,
    ScheduleRecord,
    SessionStatus,
    canonical_json,
    parse_json,
)

LARGEST_INTEGER = 2**63 - 1
SHORT_TEXT = 1_000
LONG_TEXT = 16_000_000
# Characters (of JSON for mappings) or elements that a field may have, where not SHORT_TEXT.
LIMITS: dict[str, int] = {
    "workload.ir": LONG_TEXT,
    "workload.shape": 16_000,
    "target.facts": 64_000,
    "toolchain.versions": 64_000,
    "environment.facts": 64_000,
    "schedule.trace": 1_000_000,
    "session.search": 64_000,
    "session.model": 64_000,
    "measurement.samples": 100_000,
    "measurement.error": 16_000,
    "measurement.features": 10_000,
    "cost_model.model": 4 * LONG_TEXT,
}
# No line of an export is longer: a record's largest field, and room for escapes and the rest.
LONGEST_LINE = 6 * 4 * LONG_TEXT

_HEX = re.compile(r"[0-9a-f]{64}\Z")
_REFERENCES = frozenset(
    {
        "id", "workload", "target", "session", "schedule", "toolchain", "environment", "parent",
        "family",
    }
)  # fmt: skip
_UNKNOWN = frozenset({"family"})  # may be empty


def check(record: AnyRecord) -> None:
    """Raise `DatabaseError` unless every field is of a size and sense that a database holds."""
    for name in _field_types(record.kind):
        _check_field(record.kind, name, getattr(record, name))
    if isinstance(record, ScheduleRecord):
        parse_json(record.trace)
    if isinstance(record, Measurement):
        _check_measurement(record)


def from_plain(kind: type[AnyRecord], plain: Json) -> AnyRecord:
    """The record of JSON `plain`. Raises `DatabaseError` for anything but exactly its fields."""
    if not isinstance(plain, dict):
        raise DatabaseError("{0} is {1}, expected an object", kind.kind, type(plain).__name__)
    types = _field_types(kind.kind)
    if plain.keys() != types.keys():
        raise DatabaseError(
            "{0} has fields {1}, expected {2}",
            kind.kind,
            ", ".join(sorted(map(str, plain)))[:SHORT_TEXT],
            ", ".join(sorted(types)),
        )
    fields: dict[str, Any] = {}
    for name, annotation in types.items():
        try:
            fields[name] = _DECODE[annotation](plain[name])
        except (TypeError, ValueError, OverflowError) as error:
            raise DatabaseError(
                "{0}.{1} is {2!r:.80}, expected {3}", kind.kind, name, plain[name], annotation
            ) from error
    record = kind(**fields)
    check(record)
    return record


def _check_field(kind: str, name: str, value: object) -> None:
    where = f"{kind}.{name}"
    match value:
        case str() if name in _REFERENCES:
            if not _HEX.match(value) and not (name in _UNKNOWN and not value):
                raise DatabaseError(
                    "{0} is {1!r:.80}, expected a digest: 64 hexadecimal digits", where, value
                )
        case str():
            _check_text(where, value)
        case bool():
            pass
        case int():
            if not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
                raise DatabaseError("{0} is {1}, beyond 64 bits", where, value)
        case dict():
            _check_text(where, canonical_json(value))
        case tuple():
            _check_size(where, len(value), "elements")
        case _:
            pass


def _check_text(where: str, value: str) -> None:
    _check_size(where, len(value), "characters")
    if "\0" in value:
        raise DatabaseError("{0} has a NUL character", where)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DatabaseError("{0} is not valid Unicode: {1}", where, error) from error


def _check_size(where: str, size: int, unit: str) -> None:
    limit = LIMITS.get(where, SHORT_TEXT)
    if size > limit:
        raise DatabaseError("{0} has {1} {2}, at most {3} are held", where, size, unit, limit)


def _check_measurement(record: Measurement) -> None:
    timed = record.seconds is not None and len(record.samples) > 0
    if timed != (record.outcome is Outcome.OK) or (record.seconds is None) != (not record.samples):
        raise DatabaseError(
            "measurement {0} has seconds={1} and {2} samples; ok has both, others neither",
            record.outcome.value,
            record.seconds,
            len(record.samples),
        )
    if (record.error is None) != (record.outcome is Outcome.OK):
        raise DatabaseError(
            "measurement {0} has error={1!r:.40}; ok has none, others a text that says why",
            record.outcome.value,
            record.error,
        )
    times = record.samples if record.seconds is None else (record.seconds, *record.samples)
    if not all(0 < t < float("inf") for t in times):
        raise DatabaseError("measurement has a time that is not positive and finite: {0}", times)
    if (record.features is None) != (record.feature_version is None):
        raise DatabaseError("measurement has features without their version, or the reverse")
    canonical_json(record.features)


@cache
def _field_types(kind: str) -> dict[str, str]:
    return {f.name: cast(str, f.type) for f in dataclasses.fields(KINDS[kind])}


def _exactly(*kinds: type) -> Callable[[Json], Json]:
    def decode(value: Json) -> Json:
        if type(value) not in kinds:
            raise TypeError
        return value

    return decode


def _time(value: Json) -> datetime:
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError
    return moment


def _or_none(decode: Callable[[Json], Any]) -> Callable[[Json], Any]:
    return lambda value: None if value is None else decode(value)


def _number(value: Json) -> float:
    return float(_exactly(int, float)(value))


def _numbers(value: Json) -> tuple[float, ...]:
    return tuple(map(_number, _exactly(list)(value)))


_DECODE: dict[str, Callable[[Json], Any]] = {
    "str": _exactly(str),
    "int": _exactly(int),
    "float": _number,
    "bool": _exactly(bool),
    "datetime": _time,
    "tuple[float, ...]": _numbers,
    "Mapping[str, Json]": _exactly(dict),
    "Outcome": Outcome,
    "SessionStatus": SessionStatus,
}
_DECODE |= {f"{name} | None": _or_none(decode) for name, decode in _DECODE.items()}

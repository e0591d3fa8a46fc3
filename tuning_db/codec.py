"""Records from and to JSON values, strictly: types, sizes and sense are checked, nothing is run.

`check` is passed by everything that is written; `from_plain` is how a record from somebody else's
file comes in, and `from_row` how one comes out of a database, which may be somebody else's as well.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple, get_args, get_type_hints

from ..base.checked_json import Read, Refused, reader
from ..base.durations import LONGEST, SHORTEST
from ..base.errors import DatabaseError
from ..base.text import excerpt, short_id
from .canonical import Json, canonical_json, parse_json
from .values import (
    DIGESTS,
    ERROR_LIMIT,
    KINDS,
    AnyRecord,
    Machine,
    Measurement,
    Outcome,
    ScheduleRecord,
    Session,
    TargetRecord,
    Verification,
    field_types,
    in_utc,
    normaliser,
)

LARGEST_INTEGER = 2**63 - 1
SHORT_TEXT = 1_000
LONG_TEXT = 4_000_000
# Characters (of JSON for mappings) or elements that a field may have, where not SHORT_TEXT. A text
# that is an element has at most SHORT_TEXT characters.
LIMITS: dict[str, int] = {
    "workload.ir": LONG_TEXT,
    "workload.shape": 16_000,
    "target.facts": 64_000,
    "toolchain.versions": 64_000,
    "environment.facts": 64_000,
    "machine.rates": 64_000,
    "machine.odd": 100,
    "schedule.trace": 1_000_000,
    "session.search": 64_000,
    "session.model": 64_000,
    "session.noise": 4_000,
    "measurement.samples": 100_000,
    "measurement.error": ERROR_LIMIT,
    "measurement.features": 10_000,
    "measurement.resources": 256_000,
}
# No line of an export is longer: a record's largest field, each character of which takes up to 12
# as an escape, and the rest.
LONGEST_LINE = 12 * LONG_TEXT + 1_000_000
# Nor is a row of a database, in bytes: characters take up to 4.
LONGEST_ROW = 4 * LONG_TEXT + 1_000_000
# The same of the numbers that describe a machine, in whatever units.
SMALLEST_RATE, LARGEST_RATE = 1e-30, 1e30
# Of two times of a call.
SMALLEST_RATIO, LARGEST_RATIO = 1e-21, 1e21
MOST_RATES, LONGEST_RATE_NAME = 100, 64
# The median is exact; another program that writes records may sum up in another order.
_ROUNDING = 1e-9

# How many characters a column takes for each that is counted in LIMITS: numbers and texts are
# elements, and a character of a text takes up to 12 as an escape.
_STORED_AS_JSON = {
    "tuple[float, ...]": 30,
    "tuple[str, ...]": 12 * SHORT_TEXT + 4,
    "Mapping[str, float]": 1,
    "Mapping[str, Json]": 1,
}

_HEX = re.compile(r"[0-9a-f]{64}\Z")
_COUNTS = frozenset(
    {
        "workload.flops", "workload.bytes", "session.trials", "session.seconds", "session.pid",
        "session.elapsed", "measurement.elapsed",
        "verification.max_error", "verification.tolerance",
    }
)  # fmt: skip


def check(record: AnyRecord) -> None:
    """Raise `DatabaseError` unless every field has a size and value that a database may hold.

    What has passed does not change, and passes again at once.
    """
    if _PASSED in vars(record):
        return
    values = vars(record)
    for field in _fields(record.kind):
        if (value := values[field.name]) is not None:
            field.check(field.where, value)
    _require_sense(record)


def _require_sense(record: AnyRecord) -> None:
    """Raise `DatabaseError` unless checked fields go together."""
    sense = _SENSE.get(type(record))
    if sense is not None:
        sense(record)
    vars(record)[_PASSED] = True


_PASSED = "_passed"


def is_ratio(number: float) -> bool:
    """Whether a number may be the ratio of two times of a call: neither it nor its inverse is 0."""
    return SMALLEST_RATIO <= number <= LARGEST_RATIO


def from_plain(kind: type[AnyRecord], plain: Json) -> AnyRecord:
    """The record of JSON `plain`. Raises `DatabaseError` for anything but exactly its fields."""
    if not isinstance(plain, dict):
        raise DatabaseError("{0} is {1}, expected an object", kind.kind, type(plain).__name__)
    types = field_types(kind.kind)
    if plain.keys() != types.keys():
        raise DatabaseError(
            "{0} has fields {1}, expected {2}",
            kind.kind,
            excerpt(", ".join(sorted(map(str, plain)))),
            ", ".join(sorted(types)),
        )
    return _read(kind, plain, _fields(kind.kind))


def from_row(kind: type[AnyRecord], row: Mapping[Any, Any]) -> AnyRecord:
    """The record of a row with the driver's values, which may be of any type in SQLite.

    Raises `DatabaseError` if a value does not belong in its column, or the content does not have
    the id of the row.
    """
    record = _read(kind, row, _columns(kind.kind))
    if record.id != row["id"]:
        raise DatabaseError("its content has the id {0}", short_id(record.id))
    return record


class Row(NamedTuple):
    """A record that was checked, as the values that SQLite's driver takes, by columns."""

    kind: str
    id: str
    columns: dict[str, Any]


def to_row(record: AnyRecord) -> Row:
    """The row of a checked record; `from_row` reads it."""
    values, (names, written) = vars(record), _row_fields(record.kind)
    columns = {"id": record.id, **{name: values[name] for name in names}}
    for name, write in written:
        if (value := columns[name]) is not None:
            columns[name] = write(record, name, value)
    if isinstance(record, TargetRecord):
        columns["comparable"] = record.comparable
    return Row(record.kind, record.id, columns)


@cache
def _row_fields(kind: str) -> tuple[list[str], list[tuple[str, Callable[[Any, str, Any], Any]]]]:
    """The fields of a kind, and what writes those that the driver does not take."""
    types = {name: type_.removesuffix(" | None") for name, type_ in field_types(kind).items()}
    return list(types), [(n, _TO_ROW[type_]) for n, type_ in types.items() if type_ in _TO_ROW]


# By annotations. Times are in UTC, and kept without their zone.
_ZONE = "+00:00"
_TO_ROW: dict[str, Callable[[Any, str, Any], Any]] = {
    "bool": lambda _record, _name, value: int(value),
    "datetime": lambda _record, _name, value: value.isoformat(" ", "microseconds")[: -len(_ZONE)],
    "Outcome": lambda _record, _name, value: value.value,
    "SessionStatus": lambda _record, _name, value: value.value,
    **dict.fromkeys(_STORED_AS_JSON, lambda record, name, value: record.text_of(name, value)),
}


class _Field(NamedTuple):
    """A field of a kind: its name, what errors call it, whether it may be `None`.

    `read` takes a value of JSON or of a row, and normalises it; `check` looks at its size.
    """

    name: str
    where: str
    nullable: bool
    read: Read
    check: Callable[[str, Any], None]


def _read(kind: type[AnyRecord], values: Mapping[Any, Any], fields: Sequence[_Field]) -> AnyRecord:
    found: dict[str, Any] = {}
    for name, where, nullable, read, check_value in fields:
        value = values[name]
        if value is None and nullable:
            found[name] = None
            continue
        try:
            found[name] = value = read(value)
        except (Refused, DatabaseError, RecursionError) as error:
            place = f"{where}{getattr(error, 'at', '')}"
            raise DatabaseError("{0}: {1}", place, error, at=place) from error
        check_value(where, value)
    record = kind.of_normal(found)
    _require_sense(record)
    return record


@cache
def _fields(kind: str) -> list[_Field]:
    """The fields of a kind, to be read from JSON."""
    annotations = get_type_hints(KINDS[kind])
    fields = []
    for name, annotation in field_types(kind).items():
        where, what = f"{kind}.{name}", annotation.removesuffix(" | None")
        nullable = what != annotation
        read = reader(get_args(annotations[name])[0] if nullable else annotations[name])
        normalise = normaliser(kind, name)
        if normalise is not None and (what in _NORMALISED or where == _CUT):
            read = _then(read, normalise)
        check_value = _CHECKS.get(what, _NO_CHECK)
        if name in DIGESTS:
            check_value = _check_unknown if name == "family" else _check_digest
        fields.append(_Field(name, where, nullable, read, check_value))
    return fields


# What reading leaves to be normalised; all else is exact.
_NORMALISED = ("datetime", "Mapping[str, Json]")
_CUT = "measurement.error"


def _then(read: Read, normalise: Read) -> Read:
    return lambda value: normalise(read(value))


@cache
def _columns(kind: str) -> list[_Field]:
    """As `_fields`, to be read from the driver's values."""
    types = field_types(kind)
    return [
        field._replace(read=_row_reader(field.where, types[field.name], field.read))
        for field in _fields(kind)
    ]


def _row_reader(where: str, annotation: str, read: Read) -> Read:
    kind = annotation.removesuffix(" | None")
    if kind == "bool":
        return lambda value: read(bool(value) if type(value) is int and value in (0, 1) else value)
    if kind == "datetime":
        return instant
    if kind not in _STORED_AS_JSON:
        return read

    def read_json(value: Any) -> Any:
        if not isinstance(value, str):
            return read(value)
        _check_size(where, len(value), "characters", _STORED_AS_JSON[kind])
        return read(parse_json(value))

    return read_json


def instant(value: object) -> datetime:
    """A time as a driver gives it. Raises `DatabaseError` for anything else."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return in_utc(value)
    # SQLite compares times as texts: another form of the same time would be out of order.
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is not None and moment.isoformat(" ", "microseconds") == value:
            return moment.replace(tzinfo=UTC)
    raise DatabaseError("expected a time, found {0!r:.80}", value)


def _check_digest(where: str, value: str) -> None:
    if type(value) is not str or not _HEX.match(value):
        raise DatabaseError(
            "{0} is {1!r:.80}, expected a digest: 64 hexadecimal digits", where, value
        )


def _check_unknown(where: str, value: str) -> None:
    if value != "":
        _check_digest(where, value)


def _check_int(where: str, value: int) -> None:
    if not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
        # Python refuses to print integers of thousands of digits.
        shown = str(value) if value.bit_length() < 256 else "an integer"
        raise DatabaseError("{0} is {1}, beyond 64 bits", where, shown)
    _check_count(where, value)


def _check_float(where: str, value: float) -> None:
    if not math.isfinite(value):
        raise DatabaseError("{0} is {1}, expected a finite number", where, value)
    _check_count(where, value)


def _check_elements(where: str, value: Sequence[object]) -> None:
    _check_size(where, len(value), "elements")


def _check_mapping(where: str, value: Mapping[str, Json]) -> None:
    _check_text(where, canonical_json(value))


def _check_count(where: str, value: float) -> None:
    if value < 0 and where in _COUNTS:
        raise DatabaseError("{0} is {1}, expected 0 or more", where, value)


def _check_text(where: str, value: str) -> None:
    if not isinstance(value, str):
        raise DatabaseError("{0} is {1!r:.80}, expected a text", where, value)
    _check_size(where, len(value), "characters")
    if "\0" in value:
        raise DatabaseError("{0} has a NUL character", where)
    if value.isascii():
        return
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DatabaseError("{0} is not valid Unicode: {1}", where, error) from error


def _check_size(where: str, size: int, unit: str, each: int = 1) -> None:
    limit = each * LIMITS.get(where, SHORT_TEXT)
    if size > limit:
        raise DatabaseError("{0} has {1} {2}, at most {3} are held", where, size, unit, limit)


_CHECKS: dict[str, Callable[[str, Any], None]] = {
    "str": _check_text,
    "int": _check_int,
    "float": _check_float,
    "tuple[float, ...]": _check_elements,
    "tuple[str, ...]": _check_elements,
    "Mapping[str, Json]": _check_mapping,
}

_NO_CHECK: Callable[[str, Any], None] = lambda where, value: None  # noqa: E731, ARG005


def _check_machine(record: Machine) -> None:
    if not record.rates:
        raise DatabaseError("machine.rates is empty, expected at least one number")
    if len(record.rates) > MOST_RATES:
        raise DatabaseError(
            "machine.rates has {0} numbers, expected {1} at most", len(record.rates), MOST_RATES
        )
    for name, rate in record.rates.items():
        if not (str(name).isidentifier() and len(name) <= LONGEST_RATE_NAME):
            raise DatabaseError(
                "machine.rates has the name {0!r:.80}, expected an identifier of {1} characters at "
                "most",
                name,
                LONGEST_RATE_NAME,
            )
        if not SMALLEST_RATE <= rate <= LARGEST_RATE:
            raise DatabaseError(
                "machine.rates has {0!r:.80}: {1}, expected a positive number, {2} to {3}",
                name,
                rate,
                SMALLEST_RATE,
                LARGEST_RATE,
            )
    for n, text in enumerate(record.odd):
        _check_text(f"machine.odd[{n}]", text)


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
    if not all(SHORTEST <= t <= LONGEST for t in times):
        raise DatabaseError(
            "measurement has a time that is not positive and finite, or none that a call takes: "
            "{0}, expected {1} to {2} s",
            next(t for t in times if not SHORTEST <= t <= LONGEST),
            SHORTEST,
            LONGEST,
        )
    if record.seconds is not None:
        median = statistics.median(record.samples)
        if not math.isclose(record.seconds, median, rel_tol=_ROUNDING):
            raise DatabaseError(
                "measurement has seconds={0}, and the median of its samples is {1}",
                record.seconds,
                median,
            )
    if (record.features is None) != (record.feature_version is None):
        raise DatabaseError("measurement has features without their version, or the reverse")
    if not all(map(math.isfinite, record.features or ())):
        raise DatabaseError("measurement has a feature that is not finite")
    if record.predicted is not None and not 0 < record.predicted < math.inf:
        raise DatabaseError(
            "measurement.predicted is {0}, expected a positive number of seconds", record.predicted
        )
    for kernel, taken in (record.resources or {}).items():
        counts = taken.values() if isinstance(taken, dict) else [None]
        if not all(type(n) is int and 0 <= n <= LARGEST_INTEGER for n in counts):
            raise DatabaseError(
                "measurement.resources has {0!r:.80}: {1!r:.80}, expected counts by name",
                kernel,
                taken,
            )


def _check_verification(record: Verification) -> None:
    """A check that passed is one whose error was within its tolerance."""
    if type(record.passed) is not bool:
        raise DatabaseError(
            "verification.passed is {0!r:.80}, expected True or False", record.passed
        )
    within = record.max_error is not None and record.max_error <= record.tolerance
    if record.passed and not within:
        raise DatabaseError(
            "verification passed with max_error={0} and tolerance={1}; "
            "the error of one that passed is within its tolerance",
            record.max_error,
            record.tolerance,
        )


def _check_schedule(record: ScheduleRecord) -> None:
    try:
        _ = record.id  # of what the trace holds
    except DatabaseError as error:
        raise DatabaseError("schedule.trace: {0}", error) from error


def _check_session(record: Session) -> None:
    if record.drift is not None and not is_ratio(record.drift):
        raise DatabaseError("session.drift is {0}, expected a ratio of times", record.drift)


_SENSE: dict[type[AnyRecord], Callable[[Any], None]] = {
    Machine: _check_machine,
    ScheduleRecord: _check_schedule,
    Session: _check_session,
    Measurement: _check_measurement,
    Verification: _check_verification,
}

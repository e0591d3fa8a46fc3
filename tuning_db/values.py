"""The records of a tuning database: frozen values, the only things that cross its border.

Every record has an `id`: the SHA-256 hex digest of its content as canonical JSON (a workload's is
the structural digest that the caller gives). The same content therefore has the same id in every
database, which is what makes merging idempotent. Where a field names another record (`workload`,
`target`, `session`, ...) it holds that record's id.

Times are aware datetimes and are kept in UTC with microseconds. Durations are in seconds.
Constructing a record normalises it (ints to floats where the field is a float, sequences to
tuples, mappings to what their JSON says), so that a record read back equals the one put.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache, cached_property
from json.encoder import encode_basestring_ascii
from math import isfinite
from typing import Any, ClassVar, Self, cast, get_args

from ..base.display import html
from ..base.durations import (
    MeasuredTime,
    measured_time,
)
from ..base.errors import DatabaseError
from ..base.text import LINE, cut, short_id
from . import outcome
from .canonical import Json, canonical_json, canonical_trace, digest, schedule_id

Outcome = outcome.Outcome

ERROR_LIMIT = 16_000
"""Characters of the reason of a failure, of a worker's answer too."""


class Order(StrEnum):
    """The order of lists of measurements; those that are equal in it follow by time and id.

    `CREATED`: the newest first. `TIME`: the fastest first, those without a time last. `OUTCOME`:
    by the name of the outcome.
    """

    CREATED = "created"
    TIME = "time"
    OUTCOME = "outcome"


class SessionStatus(StrEnum):
    """The state of a session. A killed one stays as it was, and its heartbeats stop.

    While it is `PREPARING`, its machine is measured and the search is set up: nothing is tried.
    """

    PREPARING = "preparing"
    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, repr=False)
class Record:
    """Base of the records; normalises the fields by their annotation.

    Raises `DatabaseError` for a value that a field cannot hold.
    """

    kind: ClassVar[str]
    repr_fields: ClassVar[tuple[str, ...]] = ()
    """The fields that tell people what a record is, beside its id."""

    _repr_html_ = html

    def __repr__(self) -> str:
        """A line; `to_plain` has all of it."""
        words = " ".join(str(v) for name in self.repr_fields if (v := getattr(self, name)))
        named = f"<{type(self).__name__} {short_id(cast('AnyRecord', self).id)}"
        if not words:
            return f"{named}>"
        return cut(f"{named}: {repr(words[:LINE])[1:-1]}", LINE - 1) + ">"

    def __post_init__(self) -> None:
        for name, normalise in _normalisers(self.kind):
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, normalise(value))
            except (TypeError, ValueError, OverflowError, AttributeError) as error:
                raise DatabaseError(
                    "{0} of a {1} cannot be {2}: {3}", name, self.kind, reprlib.repr(value), error
                ) from error

    @classmethod
    def of_normal(cls, fields: Mapping[str, Any]) -> Self:
        """The record of all its fields, which are as it keeps them: `normaliser` was applied."""
        record = object.__new__(cls)
        vars(record).update(fields)
        return record


@dataclass(frozen=True, repr=False)
class Digested(Record):
    """A record whose id is the digest of its content, less the fields in `outside_id`.

    Those `added_later` are no part of the content where they are `None`: records that were written
    before keep their ids.
    """

    outside_id: ClassVar[frozenset[str]] = frozenset()
    added_later: ClassVar[frozenset[str]] = frozenset()

    @cached_property
    def id(self) -> str:
        """SHA-256 hex digest of the content as canonical JSON."""
        text = _text_of_fields(self, _in_id(self.kind), self.added_later)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def text_of(self, name: str, value: object) -> str:
        """The list or mapping of a field as canonical JSON, which is written once."""
        texts: dict[str, str] = self.__dict__.setdefault("_texts", {})
        text = texts.get(name)
        if text is None:
            text = texts[name] = canonical_json(value)
        return text


Field = tuple[str, str, Callable[[Any], str] | None]
"""A field, what is before its value in JSON, and what writes that; `None` for what `text_of` does.

Lists and mappings are written by `text_of`.
"""


def json_text(record: AnyRecord) -> str:
    """The canonical JSON of a record's fields, as `to_plain` has them."""
    return _text_of_fields(record, _fields(record.kind))


def _text_of_fields(record: Record, fields: Iterable[Field], left_out: Collection[str] = ()) -> str:
    """Fields of a record as canonical JSON, without those that are `None` and may be left out."""
    values, content = vars(record), list[str]()
    for name, key, write in fields:
        value = values[name]
        if value is None:
            if name not in left_out:
                content.append(f"{key}null")
        elif write is None:
            content.append(key + cast(Digested, record).text_of(name, value))
        else:
            content.append(key + write(value))
    return f"{{{','.join(content)}}}"


@cache
def _in_id(kind: str) -> list[Field]:
    """The fields that the id of a kind is of, in the order of canonical JSON."""
    outside: frozenset[str] = getattr(KINDS[kind], "outside_id", frozenset())
    return [field for field in _fields(kind) if field[0] not in outside]


@cache
def _fields(kind: str) -> list[Field]:
    types = {name: type_.removesuffix(" | None") for name, type_ in field_types(kind).items()}
    lists = {name for name, type_ in types.items() if type_.startswith(("tuple", "Mapping"))}
    return [
        (name, f'"{name}":', None if name in lists else _TEXT_OF.get(types[name], _scalar_text))
        for name in sorted(types)
    ]


def _scalar_text(value: object) -> str:
    """A value of a field that is no list or mapping, as canonical JSON."""
    if type(value) is str:
        return encode_basestring_ascii(value)  # as an encoder does
    return canonical_json(_plain(value))


def _number_text(value: float) -> str:
    return repr(value) if type(value) in (int, float) and isfinite(value) else _scalar_text(value)


# By annotations, for what many records have: canonical JSON without an encoder.
_TEXT_OF: dict[str, Callable[[Any], str]] = {
    "datetime": lambda value: f'"{value.isoformat("T", "microseconds")}"',
    "Outcome": lambda value: f'"{value.value}"',
    "float": _number_text,
    "int": _number_text,
}


@dataclass(frozen=True, repr=False)
class Workload(Record):
    """A program to be tuned.

    `id` is the structural digest of its canonical IR: the database cannot compute it and takes the
    caller's word. `name` and `ir` are for display (the digest is blind to names): of two workloads
    with one id the first put stays. `name` is the operator's ("matmul"): lookups that miss look for
    near shapes of the same name. `shape` is a one-line summary ("A:float32[1024,1024] ...").
    `flops` and `bytes` are of one call; 0 where unknown. `family` is a digest that the same program
    has for other sizes, empty if unknown: schedules of one size are of use to the others.
    """

    kind: ClassVar[str] = "workload"
    repr_fields: ClassVar[tuple[str, ...]] = ("name", "shape")
    id: str
    name: str
    ir: str
    shape: str
    flops: int
    bytes: int
    family: str = ""

    @property
    def text(self) -> str:
        """The name and shape, for people."""
        return f"{self.name} {self.shape}"


@dataclass(frozen=True, repr=False)
class TargetRecord(Digested):
    """A target of measurements.

    `text` is the target's text form. `compat` is the class of targets on which the same code is
    legal (ISA and features). `perf` is the class of targets on which timings are comparable
    (processor model, threads, caches, clock). `facts` is anything else worth keeping.
    """

    kind: ClassVar[str] = "target"
    repr_fields: ClassVar[tuple[str, ...]] = ("text",)
    text: str
    compat: str
    perf: str
    facts: Mapping[str, Json] = field(default_factory=dict)

    @cached_property
    def comparable(self) -> str:
        """Key of the targets whose measurements may stand in for this one's: both classes equal."""
        return digest([self.compat, self.perf])[:32]


@dataclass(frozen=True, repr=False)
class Toolchain(Digested):
    """The versions of the tools that generate the code.

    `generation` names what must agree for timings to be comparable ("llvm 22"); records of another
    generation are refused by a lookup that gives a toolchain, and so are schedules that were made
    by other versions of primitives (see `tuning_db/staleness.py`). `versions` is everything, in
    detail.
    """

    kind: ClassVar[str] = "toolchain"
    repr_fields: ClassVar[tuple[str, ...]] = ("generation",)
    generation: str
    versions: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Environment(Digested):
    """Facts of the host while measuring: processor, threads, load, governor, memory.

    The fact `machine`, if there is one, is the id of the `Machine` that described the target.
    """

    kind: ClassVar[str] = "environment"
    facts: Mapping[str, Json]


@dataclass(frozen=True, repr=False)
class Machine(Digested):
    """A measured description of the machine of a target.

    `rates` are positive numbers by name (arithmetic, loads, memory, clock, parallel loops, ...), at
    most 100; names are identifiers. Who measures them says what they are and in which units. `odd`
    says what was strange meanwhile (a noisy host, a quota); it is empty if nothing was. Like a
    measurement, a description is of one moment: `created` is part of the id, and whoever keeps a
    copy elsewhere keeps it too. See `TuningDatabase.machine` for the one that counts.
    """

    kind: ClassVar[str] = "machine"
    target: str
    rates: Mapping[str, float]
    odd: tuple[str, ...]
    created: datetime


NOT_CALM = "not calm"
"""The mark of what a session measured whose machine was disturbed: see `Session.noise`."""


@dataclass(frozen=True, repr=False)
class Session(Digested):
    """A tuning run. Made by `TuningDatabase.start_session`.

    The budget is `trials` and/or `seconds` (None: unlimited). `search` and `model` are the
    configurations, as JSON objects; `base` of `model` names the model that it began with, by the
    digest of its file. The fields from `status` on change while it runs and are no part of its id;
    `host` and `pid` are those of the process that runs it now, or ran it last. `noise` says in
    plain words that the machine was not calm, so that times of the session are not comparable; None
    if it was. `elapsed` is its `duration` so far. `drift` is the time of the reference kernel over
    its first when it was last timed. `untuned` is the schedule (id) that a build without records
    would choose; older versions have it in `model`, by the same name. These three are None while
    they are not known, as in sessions of older versions.
    """

    kind: ClassVar[str] = "session"
    repr_fields: ClassVar[tuple[str, ...]] = ("status", "host")
    outside_id: ClassVar[frozenset[str]] = frozenset(
        {"status", "heartbeat", "ended", "host", "pid", "noise", "elapsed", "drift", "untuned"}
    )
    workload: str
    target: str
    trials: int | None
    seconds: float | None
    seed: int
    search: Mapping[str, Json]
    model: Mapping[str, Json]
    started: datetime
    nonce: str
    status: SessionStatus
    heartbeat: datetime
    ended: datetime | None
    host: str
    pid: int
    noise: str | None = None
    elapsed: float | None = None
    drift: float | None = None
    untuned: str | None = None

    @property
    def duration(self) -> float:
        """The seconds for which processes have worked on it, up to its last sign of life.

        From its start on: the measuring of the machine counts, and so do waits for a calm machine.
        Between an end and a resumption nothing works on it. Of programs that share a budget, each
        has its own part. What older versions recorded tells no pauses: it is all the time from the
        start on.
        """
        if self.elapsed is not None:
            return self.elapsed
        return max(0.0, (self.heartbeat - self.started).total_seconds())


@dataclass(frozen=True, repr=False)
class ScheduleRecord(Digested):
    """A schedule: a trace as JSON text.

    The id is of the trace (as parsed JSON, so white space does not matter) and its format version.
    `generator` says what made it ("multi_level_tiling/evolution"). `inexact` names the steps by
    which it equals its program over the reals alone, separated by commas; it is empty for a
    schedule that changes the order of sums at most. The database takes the caller's word for both:
    of two records with one id the first put stays, but for one that names inexact steps where the
    other names none.
    """

    kind: ClassVar[str] = "schedule"
    repr_fields: ClassVar[tuple[str, ...]] = ("generator",)
    outside_id: ClassVar[frozenset[str]] = frozenset({"generator", "inexact"})
    trace: str
    trace_version: int
    generator: str = ""
    inexact: str = ""

    @staticmethod
    def of(trace: Json, trace_version: int, generator: str, inexact: str) -> ScheduleRecord:
        """The record of a trace as a JSON value, which is written once, for its text and its id."""
        record = ScheduleRecord(canonical_json(trace), trace_version, generator, inexact)
        record.__dict__["id"] = schedule_id(record.trace, trace_version)
        return record

    @cached_property
    def id(self) -> str:
        """Digest of the parsed trace and its version. Raises `DatabaseError` if it is not JSON."""
        return schedule_id(canonical_trace(self.trace), self.trace_version)


@dataclass(frozen=True, repr=False)
class Measurement(Digested):
    """One candidate's outcome.

    An `OK` one has `seconds` (the median time of one call) and its raw `samples`; any other outcome
    has `seconds=None` and its reason in `error` (cut in the middle beyond 16,000 characters,
    characters that no database holds replaced). `features` is the row the cost model saw, with the
    `feature_version` that made it, or both None. Measurements of one session with the same
    `created` are interleaved: sample n of each was taken in round n. They are compared by rounds.
    `resources` are numbers by name for each kernel by its symbol: what the compiler reports of it
    (registers of a thread, spills, shared memory of a block); None where it reports nothing.
    `predicted` is the time that the cost model expected when the candidate was chosen; None where
    it was not asked. `elapsed` is the `duration` of the session at that moment. `trial` is whether
    the session's budget paid for it; it does not for finals and what they compare with. These two
    are None where they were not recorded.
    """

    kind: ClassVar[str] = "measurement"
    repr_fields: ClassVar[tuple[str, ...]] = ("outcome", "time")
    added_later: ClassVar[frozenset[str]] = frozenset(
        {"resources", "predicted", "elapsed", "trial"}
    )
    session: str
    schedule: str
    workload: str
    target: str
    toolchain: str
    environment: str
    outcome: Outcome
    seconds: float | None
    samples: tuple[float, ...]
    error: str | None
    created: datetime
    features: tuple[float, ...] | None = None
    feature_version: str | None = None
    resources: Mapping[str, Json] | None = None
    predicted: float | None = None
    elapsed: float | None = None
    trial: bool | None = None

    @property
    def time(self) -> MeasuredTime | None:
        """The time with its interval; `None` if it has none."""
        return None if self.seconds is None else measured_time(self.seconds, self.samples)


@dataclass(frozen=True, repr=False)
class Verification(Digested):
    """A numeric check of a schedule against the unscheduled program.

    Measurements of the same workload, target, schedule and toolchain are verified while at least
    one check passed and none failed. `max_error` is None if the largest error was not finite.
    """

    kind: ClassVar[str] = "verification"
    repr_fields: ClassVar[tuple[str, ...]] = ("outcome",)
    workload: str
    target: str
    schedule: str
    toolchain: str
    passed: bool
    max_error: float | None
    tolerance: float
    created: datetime

    @property
    def outcome(self) -> str:
        return "passed" if self.passed else "failed"


def verified(checks: Iterable[Verification]) -> bool | None:
    """Whether checks of a schedule of a workload verify it; `None` if there are none.

    They do if one passed on a target and toolchain on which none failed.
    """
    passed: dict[tuple[str, str], bool] = {}
    for check in checks:
        where = (check.target, check.toolchain)
        passed[where] = check.passed and passed.get(where, True)
    return any(passed.values()) if passed else None


@dataclass(frozen=True, repr=False)
class Pin(Digested):
    """The user's choice of a schedule for a workload and target; it wins over any measurement."""

    kind: ClassVar[str] = "pin"
    outside_id: ClassVar[frozenset[str]] = frozenset({"schedule", "created"})
    workload: str
    target: str
    schedule: str
    created: datetime


# In the order in which references are satisfied.
AnyRecord = (
    Workload
    | TargetRecord
    | Toolchain
    | Environment
    | Machine
    | ScheduleRecord
    | Session
    | Verification
    | Measurement
    | Pin
)
KINDS: dict[str, type[AnyRecord]] = {record.kind: record for record in get_args(AnyRecord)}
DIGESTS = frozenset({"id", "family", *KINDS})
"""The fields that hold digests: references have the name of the kind that they refer to."""


@cache
def field_types(kind: str) -> dict[str, str]:
    """The annotations of the fields of a kind of records."""
    return {f.name: cast(str, f.type) for f in dataclasses.fields(KINDS[kind])}


def utc_now() -> datetime:
    return datetime.now(UTC)


def to_plain(record: Any) -> dict[str, Json]:
    """The fields of a record, a `Best`, an `Explanation` or any other dataclass as JSON values."""
    return {f.name: _plain(getattr(record, f.name)) for f in dataclasses.fields(record)}


def storable(text: str) -> str:
    """`text` without NUL and lone surrogates, cut in the middle beyond `ERROR_LIMIT` characters."""
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")
    left_out = len(text) - ERROR_LIMIT
    if left_out <= 0:
        return text
    half = ERROR_LIMIT // 2 - 40
    return f"{text[:half]}\n... {left_out + 80} characters left out ...\n{text[-half:]}"


def _plain(value: object) -> Json:
    if value is None or type(value) in (str, float, int, bool):
        return value
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {str(key): _plain(v) for key, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_plain(value)
    return value


def in_utc(value: datetime) -> datetime:
    """Raises `DatabaseError` for a time without a zone, and one that UTC cannot express."""
    if value.tzinfo is None:
        raise DatabaseError("time {0} has no time zone", value, hint="use datetime.now(UTC)")
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise DatabaseError("time {0} is out of range in UTC: {1}", value, error) from error


def optional(normalise: Callable[[Any], object]) -> Callable[[Any], object]:
    return lambda value: None if value is None else normalise(value)


_NORMALISE: dict[str, Callable[[Any], object]] = {
    "int": int,
    "float": float,
    "bool": bool,
    "datetime": in_utc,
    "tuple[float, ...]": lambda values: tuple(map(float, values)),
    "tuple[str, ...]": lambda texts: tuple(map(str, texts)),
    "Mapping[str, float]": lambda value: {str(name): float(v) for name, v in value.items()},
    "Mapping[str, Json]": lambda value: json.loads(canonical_json(dict(value))),
    "Outcome": Outcome,
    "SessionStatus": SessionStatus,
}
_NORMALISE |= {f"{name} | None": optional(normalise) for name, normalise in _NORMALISE.items()}
# Of fields for which their annotation does not say all.
_NORMALISE_FIELD: dict[str, Callable[[Any], object]] = {
    "measurement.error": optional(storable),
    "verification.max_error": lambda value: (
        float(value) if value is not None and isfinite(value) else None
    ),
}


@cache
def _normalisers(kind: str) -> list[tuple[str, Callable[[Any], object]]]:
    found = ((name, normaliser(kind, name)) for name in field_types(kind))
    return [(name, normalise) for name, normalise in found if normalise is not None]


def normaliser(kind: str, name: str) -> Callable[[Any], object] | None:
    """What a field of a kind of records is normalised by; `None` if it is as it was given."""
    return _NORMALISE_FIELD.get(f"{kind}.{name}") or _NORMALISE.get(field_types(kind)[name])

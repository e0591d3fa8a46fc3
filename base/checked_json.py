"""JSON of files and other processes, read into classes by their annotations, strictly.

`read` takes data as it was parsed, `parse_sealed` the text of an object that carries its digest.

An annotation is bool, int, float, str, `datetime`, an enum, `Literal`, `Any`, a dataclass, a tuple,
list or mapping by text of these, or one of them or `None`. `Annotated[kind, Such(...)]` sets a
condition. Types are exact: True is no integer, and an integer is a float only where no digit is
lost. Floats are finite, integers of 64 bits.

A dataclass is read from an object with its fields and no others; one that is missing is null. Where
it has a method `validate`, that raises `ValueError` for fields that do not go together.
"""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from .errors import ArtifactError, TilewrightError

T = TypeVar("T")
Read: TypeAlias = Callable[[Any], Any]

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64
"""Bounds of what the integers of all dtypes are, the high one exclusive."""
DIGEST = "digest"


@dataclass(frozen=True)
class Such:
    """A condition of values, and what errors call those that meet it."""

    meaning: str
    holds: Callable[[Any], bool]


def between(low: float, high: float) -> Such:
    """Numbers from `low` to `high`, both inclusive."""
    return Such(f"a number from {low} to {high}", lambda n: low <= n <= high)


def at_most(count: int, what: str) -> Such:
    """Lists and texts of at most so many elements or characters."""
    return Such(f"at most {count} {what}", lambda value: len(value) <= count)


class Refused(ValueError):
    """A value that its place does not take. `at` is the place: `.arguments[0].shape`."""

    at = ""

    @staticmethod
    def of(expected: str, found: object) -> Refused:
        return Refused(f"expected {expected}, found {show(found)}")

    def within(self, place: str) -> Refused:
        self.at = place + self.at
        return self


def read(
    kind: type[T],
    data: object,
    what: str,
    error: type[TilewrightError] = ArtifactError,
    hint: str | None = None,
) -> T:
    """The value of a kind from its JSON data. Raises `error`, with the place in `data["at"]`.

    Errors begin with `what` it is.
    """
    annotation: Any = kind
    try:
        return reader(annotation)(data)  # type: ignore[no-any-return]
    except Refused as refused:
        place = refused.at.lstrip(".")
        where = f"{what}: {place}" if place else what
        raise error("{0}: {1}", where, str(refused), hint=hint, at=place) from None
    except RecursionError as nested:
        raise error("{0} is nested too deeply", what, hint=hint) from nested


@cache
def reader(annotation: Any) -> Read:
    """The function that reads values of an annotation. It raises `Refused` and `RecursionError`."""
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        return _such(reader(parts[0]), parts[1:])
    if kind in (Union, UnionType):
        (part,) = (part for part in parts if part is not NoneType)
        return _optional(reader(part))
    if kind is Literal:
        return _one_of(parts)
    if kind is list or (kind is tuple and parts[1:] == (...,)):
        return _elements(parts[0], kind)
    if kind is tuple:
        return _tuple(parts)
    if kind is Mapping:
        return _mapping(reader(parts[1]))
    if is_dataclass(annotation):
        return _object(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _member(annotation)
    raise TypeError(f"nothing reads {annotation} from JSON")


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def show(value: object) -> str:
    """The `repr` of a value from a file, shortened: it may be long, or nested deeply."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # an integer of thousands of digits
        return f"a value of type {type(value).__name__}"


def parse_json(text: str) -> Any:
    """The value of strict JSON text.

    Raises `ValueError`, also for NaN and objects that give a key twice, and `RecursionError`.
    """
    return _DECODER.decode(text)


def refuse_constant(text: str) -> Any:
    """What decoders do with NaN and infinities."""
    raise ValueError(f"{text} is not JSON")


def canonical_json(value: object) -> str:
    """The one text of a JSON value: sorted keys, no white space, ASCII, shortest floats.

    Raises `ValueError` for NaN and infinities, `TypeError` and `RecursionError`.
    """
    return _ENCODER.encode(value)


def digest_of(data: object, before: str = "") -> str:
    """SHA-256 (hex) of JSON data, an object without its digest, behind the digest `before` it."""
    covered = {k: v for k, v in data.items() if k != DIGEST} if isinstance(data, dict) else data
    return hashlib.sha256(before.encode() + canonical_json(covered).encode()).hexdigest()


def sealed(data: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """The object with its digest."""
    return {**data, DIGEST: digest_of({**data}, before)}


def parse_sealed(text: bytes, what: str, hint: str, before: str = "") -> dict[str, Any]:
    """The object of a JSON text, whose digest is right. Raises `ArtifactError`."""
    data, digest = parse_digested(text, what, hint, before)
    require_digest(data, digest, what, hint)
    return data


def parse_digested(
    text: bytes, what: str, hint: str, before: str = ""
) -> tuple[dict[str, Any], str]:
    """The object of a JSON text, and the digest that it should carry. Raises `ArtifactError`."""
    try:
        data = parse_json(text.decode())
        digest = digest_of(data, before)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(
            "{0} is damaged: not a JSON text ({1})", what, error, hint=hint
        ) from error
    if not isinstance(data, dict):
        raise ArtifactError("{0}: expected an object, found {1}", what, show(data), hint=hint)
    return data, digest


def require_digest(data: Mapping[str, Any], digest: str, what: str, hint: str) -> None:
    """Raise `ArtifactError` unless an object carries this digest."""
    if data.get(DIGEST) != digest:
        raise ArtifactError(
            "{0} was damaged or changed: expected the digest {1}, found {2}",
            what,
            digest,
            show(data.get(DIGEST)),
            hint=hint,
        )


def _exactly(kind: type, meaning: str) -> Read:
    def read_value(value: Any) -> Any:
        if type(value) is not kind:
            raise Refused.of(meaning, value)
        return value

    return read_value


def _int(value: Any) -> int:
    if type(value) is not int or not MIN_INTEGER <= value <= MAX_INTEGER:
        raise Refused.of("an integer of 64 bits", value)
    return value


def _float(value: Any) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is int:
        with suppress(OverflowError):
            if (number := float(value)) == value:
                return number
    raise Refused.of("a finite number", value)


def _time(value: Any) -> datetime:
    with suppress(TypeError, ValueError):
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            return moment
    raise Refused.of("a time with a time zone", value)


_SCALARS: dict[Any, Read] = {
    Any: lambda value: value,
    bool: _exactly(bool, "true or false"),
    datetime: _time,
    float: _float,
    int: _int,
    str: _exactly(str, "a text"),
}


def _such(read_value: Read, conditions: Iterable[Such]) -> Read:
    def read_such(value: Any) -> Any:
        found = read_value(value)
        for condition in conditions:
            if not condition.holds(found):
                raise Refused.of(condition.meaning, value)
        return found

    return read_such


def _optional(read_value: Read) -> Read:
    return lambda value: None if value is None else read_value(value)


def _one_of(choices: tuple[Any, ...]) -> Read:
    def read_choice(value: Any) -> Any:
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise Refused.of(f"one of {choices}", value)
        return value

    return read_choice


def _member(kind: type[Enum]) -> Read:
    def read_member(value: Any) -> Enum:
        with suppress(ValueError):
            return kind(value)
        raise Refused.of(f"one of {', '.join(str(member.value) for member in kind)}", value)

    return read_member


def _list(value: Any) -> Any:
    if type(value) not in (list, tuple):  # a tuple is data that was never JSON text
        raise Refused.of("a list", value)
    return value


def _elements(kind: Any, build: type) -> Read:
    read_element = reader(kind)

    def read_elements(value: Any) -> Any:
        if set(map(type, _list(value))) == {kind} and (
            kind is str or (kind is float and all(map(math.isfinite, value)))
        ):
            return build(value)  # thousands of samples and features
        return build(_each(read_element, enumerate(value), "[{}]"))

    return read_elements


def _each(read_element: Read, parts: Iterable[tuple[Any, Any]], place: str) -> list[Any]:
    found = []
    for name, part in parts:
        try:
            found.append(read_element(part))
        except Refused as refused:
            raise refused.within(place.format(show(name))) from None
    return found


def _tuple(kinds: tuple[Any, ...]) -> Read:
    readers = list(map(reader, kinds))

    def read_tuple(value: Any) -> tuple[Any, ...]:
        if len(_list(value)) != len(readers):
            raise Refused.of(f"{len(readers)} elements", value)
        pairs = enumerate(zip(readers, value, strict=True))
        return tuple(_each(lambda pair: pair[0](pair[1]), pairs, "[{}]"))

    return read_tuple


def _mapping(read_element: Read) -> Read:
    read_object = _exactly(dict, "an object")

    def read_mapping(value: Any) -> dict[str, Any]:
        elements = _each(read_element, read_object(value).items(), "[{}]")
        return dict(zip(value, elements, strict=True))

    return read_mapping


def _object(kind: Any) -> Read:
    validate = getattr(kind, "validate", None)

    @cache
    def readers() -> dict[str, Read]:  # when first used: a class may have fields of itself
        kinds = get_type_hints(kind, include_extras=True)
        return {field.name: reader(kinds[field.name]) for field in fields(kind)}

    def read_object(value: Any) -> Any:
        known = readers()
        if type(value) is not dict or not value.keys() <= known.keys():
            raise Refused.of(f"an object with {', '.join(known)}", value)
        found = {}
        for name, read_field in known.items():
            try:
                found[name] = read_field(value.get(name))
            except Refused as refused:
                raise refused.within(f".{name}") from None
        record = kind(**found)
        if validate is not None:
            try:
                validate(record)
            except ValueError as error:
                raise Refused(str(error)) from error
        return record

    return read_object


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> Any:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r:.80} is given twice")
    return found


# Made once: `json.dumps` and `json.loads` make one at each call.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
_DECODER = json.JSONDecoder(parse_constant=refuse_constant, object_pairs_hook=_refuse_duplicates)

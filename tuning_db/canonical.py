"""JSON in its one canonical text, whose digests are ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..base import checked_json
from ..base.errors import DatabaseError

Json = Any


def canonical_json(value: object) -> str:
    """The one text of a JSON value: sorted keys, no white space, ASCII, shortest floats.

    Raises `DatabaseError` for what JSON cannot hold: NaN, infinities, other types.
    """
    try:
        return checked_json.canonical_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise DatabaseError("not a JSON value: {0}", error) from error


def parse_json(text: str) -> Json:
    """The value of strict JSON text.

    Raises `DatabaseError`, also for NaN, deep nesting, and objects that give a key twice.
    """
    return _parse(checked_json.parse_json, text)


@lru_cache(maxsize=4)
def parse_trace(text: str) -> Json:
    """The value of a trace, which must not be changed: the last few are cached.

    As `parse_json`, but of duplicate keys the last counts, as it does when a trace is applied, and
    in the id of a schedule. Checking the many small objects of a trace would take long.
    """
    return _parse(_TRACES.decode, text)


def canonical_trace(text: str) -> str:
    """A trace (JSON text) as canonical JSON. Raises `DatabaseError` if it is not JSON.

    The steps of traces repeat: of half a million that were recorded 0.6% were distinct. A list of
    canonical texts of steps is the canonical text of the list, so each of these is checked once.
    """
    if text.startswith(_STEPS[0]) and text.endswith(_STEPS[1]):
        steps = text[len(_STEPS[0]) : -len(_STEPS[1])].split(_STEPS[2])
        if max(map(len, steps)) <= _LONGEST_STEP and all(map(_is_canonical_step, steps)):
            return text
    return canonical_json(parse_trace(text))


_STEPS = ('{"steps":[{"args":', '}],"version":1}', '},{"args":')
"""What traces begin and end with, and what is between two steps."""
_LONGEST_STEP = 500
"""Characters of a step that is remembered."""


@lru_cache(maxsize=10_000)
def _is_canonical_step(inside: str) -> bool:
    """Whether a text is what is between those of `_STEPS` in a canonical trace, or a part of it."""
    text = f'{{"args":{inside}}}'
    try:
        return canonical_json(_TRACES.decode(text)) == text
    except (DatabaseError, ValueError, RecursionError):
        return False


def trace_of_literal(literal: str) -> str | None:
    """The trace of which JSON has `literal` between quotes, as canonical JSON.

    `None` if it is not canonical, or not of the form of traces: that is no error. Each step is read
    and checked once, with its escapes.
    """
    start, end, between = _ESCAPED_STEPS
    if not (literal.startswith(start) and literal.endswith(end)):
        return None
    literals = literal[len(start) : -len(end)].split(between)
    if max(map(len, literals)) > _LONGEST_STEP:
        return None
    steps = [step for step in map(_step_of_literal, literals) if step is not None]
    if len(steps) < len(literals):
        return None
    return f"{_STEPS[0]}{_STEPS[2].join(steps)}{_STEPS[1]}"


_ESCAPED_STEPS = [text.replace('"', '\\"') for text in _STEPS]


@lru_cache(maxsize=10_000)
def _step_of_literal(literal: str) -> str | None:
    try:
        text: str = json.loads(f'"{literal}"')  # fails at a quote without an escape
    except ValueError:
        return None
    return text if _is_canonical_step(text) else None


def digest(value: object) -> str:
    """SHA-256 hex digest of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


def schedule_id(canonical_trace: str, trace_version: int) -> str:
    """`digest` of the trace and its version as an object, of a trace that is canonical JSON."""
    content = f'{{"trace":{canonical_trace},"trace_version":{trace_version}}}'
    return hashlib.sha256(content.encode("ascii")).hexdigest()


_TRACES = json.JSONDecoder(parse_constant=checked_json.refuse_constant)


def _parse(decode: Callable[[str], Json], text: str) -> Json:
    try:
        return decode(text)
    except (ValueError, RecursionError) as error:
        raise DatabaseError("not valid JSON: {0}", error) from error

"""JSON of other machines: bounded, strict, and covered by a digest."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from ...base.errors import ArtifactError
from ..signature import show

DIGEST = "digest"
_COPY = "copy it again from where it was written"


def canonical(data: object) -> bytes:
    """The canonical text of JSON data: sorted keys, no spaces, ASCII.

    Raises `ValueError` for NaN and infinities.
    """
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode()


def digest_of(data: Mapping[str, Any], before: str = "") -> str:
    """SHA-256 (hex) of an object without its digest, behind the digest `before` it."""
    covered = {key: value for key, value in data.items() if key != DIGEST}
    return hashlib.sha256(before.encode() + canonical(covered)).hexdigest()


def sealed(data: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """The object with its digest."""
    return {**data, DIGEST: digest_of(data, before)}


def parse_sealed(text: bytes, what: str, before: str = "") -> dict[str, Any]:
    """The object of a JSON text, whose digest is right. Raises `ArtifactError`."""
    try:
        data = json.loads(
            text,
            object_pairs_hook=_without_duplicates,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
    except (ValueError, RecursionError) as error:
        raise ArtifactError(
            "{0} is damaged: not a JSON text ({1})", what, error, hint=_COPY
        ) from error
    if not isinstance(data, dict):
        raise ArtifactError(
            "{0} is damaged: expected an object, found {1}", what, show(data), hint=_COPY
        )
    found, expected = data.get(DIGEST), digest_of(data, before)
    if found != expected:
        raise ArtifactError(
            "{0} was damaged or changed: expected the digest {1}, found {2}",
            what,
            expected,
            show(found),
            hint=_COPY,
        )
    return data


def field(data: Mapping[str, Any], name: str, kind: type[Any], what: str) -> Any:
    """A field of a type; exact whole numbers are floats too. Raises `ArtifactError`."""
    value: Any = data.get(name)
    if kind is float:
        value = as_float(value)
    if type(value) is not kind or (kind is float and not math.isfinite(value)):
        raise ArtifactError(
            "{0}: {1}: expected {2}, found {3}", what, name, kind.__name__, show(data.get(name))
        )
    return value


def as_float(value: Any) -> Any:
    """An exact whole number as the float that it is; anything else as it is."""
    return float(value) if type(value) is int and abs(value) < 1 << 53 else value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text:.40} is too large")
    return number


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")

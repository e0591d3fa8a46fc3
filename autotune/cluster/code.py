"""Compiled candidates on their way from a builder to a runner: data with digests.

Fields of JSON for each candidate, and the images of those that built, one after the other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from ...base.checked_json import at_most, between, digest_of, read
from ...base.errors import TuningError
from ...codegen.compiled import Launch
from ...runtime.signature import Signature
from ...tuning_db.values import Outcome, storable
from ..measure.measure_result import BuildRequest, Kernel, MeasureResult
from ..measure.worker_pool import Built
from .answers import Reason, Resources

MAX_CODE = 16 << 20
"""Bytes of the code of a candidate; a part of them fits into one message."""
Text = Annotated[str, at_most(1 << 20, "characters")]
Compiled: TypeAlias = Built | MeasureResult
"""A candidate that was built, or why it was not."""


@dataclass(frozen=True)
class Code:
    """What a builder says of a candidate; `digest` (SHA-256) is that of `size` bytes of code."""

    schedule: str
    outcome: Outcome
    error: Reason | None
    size: Annotated[int, between(0, MAX_CODE)]
    digest: str | None
    target: Text | None
    launches: tuple[Launch, ...]
    signature: Text | None
    resources: Resources | None

    def validate(self) -> None:
        """Raise `ValueError` unless it has what its outcome has."""
        if self.outcome is Outcome.OK:
            if not (self.size and self.digest and self.launches) or self.error is not None:
                raise ValueError("code without bytes, digest or entry points, or with an error")
        elif self.size or self.error is None:
            raise ValueError("a failure with code, or without a reason")


def pack(
    requests: Sequence[BuildRequest], found: Sequence[Compiled]
) -> tuple[list[dict[str, Any]], bytes]:
    """Candidates as fields and bytes. One with more than `MAX_CODE` bytes of code has failed."""
    fields, images = [], []
    for request, each in zip(requests, found, strict=True):
        if isinstance(each, Built) and len(each.kernel.image) > MAX_CODE:
            size = len(each.kernel.image)
            error = f"its code has {size} bytes; at most {MAX_CODE} are sent to a runner"
            each = MeasureResult(Outcome.BUILD_ERROR, error=error)
        told: dict[str, Any] = {"schedule": digest_of(request.trace), "size": 0, "launches": []}
        if isinstance(each, Built):
            kernel = each.kernel
            told |= {"outcome": Outcome.OK.value, "size": len(kernel.image), **kernel.form()}
            told |= {"digest": _digest(kernel.image), "target": kernel.target}
            told["resources"] = kernel.resources
            images.append(kernel.image)
        else:
            told |= {"outcome": each.outcome.value, "error": each.error and storable(each.error)}
        fields.append(told)
    return fields, b"".join(images)


def unpack(
    fields: object, data: bytes, requests: Sequence[BuildRequest], target: str
) -> list[Compiled]:
    """The candidates of `pack`, which have to be those of requests.

    Raises `TuningError` for anything else: other schedules, code that is not the one of its digest,
    or not for the `target` (its text).
    """
    told = read(_Codes, {"codes": fields}, "compiled candidates", TuningError).codes
    if [each.schedule for each in told] != [digest_of(r.trace) for r in requests]:
        raise TuningError("code of other schedules than it was asked for")
    if len(data) != sum(each.size for each in told):
        raise TuningError("{0} bytes of code, not {1}", len(data), sum(c.size for c in told))
    found, start = list[Compiled](), 0
    for each, request in zip(told, requests, strict=True):
        if each.outcome is not Outcome.OK:
            found.append(MeasureResult(each.outcome, error=each.error))
            continue
        image = data[start : start + each.size]
        start += each.size
        if _digest(image) != each.digest:
            raise TuningError("code that is damaged: its digest is another")
        if each.target != target:
            raise TuningError("code for {0}, where {1} is the target", each.target, target)
        if each.signature is not None:
            Signature.from_json(json.loads(each.signature))
        kernel = Kernel(
            image,
            each.launches,
            each.signature,
            request.error_factor,
            each.resources,
            target=each.target,
        )
        found.append(Built(kernel, 0.0))
    return found


@dataclass(frozen=True)
class _Codes:
    codes: tuple[Code, ...]


def _digest(image: bytes) -> str:
    return hashlib.sha256(image).hexdigest()

"""What workers of a cluster answer: messages, read with distrust.

An answer is a record from elsewhere. It has to be that of its request, and every number in it one
that a measurement may have; else its worker is not believed any more.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Annotated, Any, TypeVar

from ...base.checked_json import Such, at_most, between, canonical_json, digest_of, read
from ...base.errors import TilewrightError, TuningError
from ...runtime.measure.comparison import CheckResult
from ...runtime.measure.results import PlainCheck, Seconds
from ...target import Target
from ...tuning_db.codec import LARGEST_INTEGER, LIMITS, SHORT_TEXT, check
from ...tuning_db.values import ERROR_LIMIT, Environment, Outcome, storable
from ..measure import protocol
from ..measure.machine import NO_SENSE
from ..measure.measure_result import BuildRequest, Kernel, MeasureResult

MAX_SAMPLES = 10_000
Samples = Annotated[tuple[Seconds, ...], at_most(MAX_SAMPLES, "samples")]
Text = Annotated[str, at_most(SHORT_TEXT, "characters")]
Reason = Annotated[str, at_most(ERROR_LIMIT, "characters")]
"""As a `Measurement` may have it: senders cut longer ones."""
Resources = Annotated[
    Mapping[str, Mapping[str, Annotated[int, between(0, LARGEST_INTEGER)]]],
    Such(
        f"at most {LIMITS['measurement.resources']} characters",
        lambda value: len(canonical_json(value)) <= LIMITS["measurement.resources"],
    ),
]
"""Counts by name for each kernel by its symbol, as a `Measurement` may have them."""
T = TypeVar("T")


@dataclass(frozen=True)
class Hello:
    """What a worker says of itself: its versions, target and machine.

    `target` is the text of the resolved target, for which its code is compiled,
    `machine` the facts by which times are compared (`CodeGenerator.timed_there`), `facts` are those
    of an `Environment`. Of a builder both are empty. One that `serves` another target of the
    session is no worker of this one.
    """

    request: str
    version: Text
    generation: Text
    architecture: Text
    serves: bool
    target: Text
    machine: Mapping[str, Any]
    facts: Mapping[str, Any]

    def environment(self) -> Environment:
        """The record of the machine now. Raises `DatabaseError` for facts that none has."""
        found = Environment({**self.facts, "elsewhere": True})
        check(found)
        return found

    def parsed_target(self) -> Target:
        """Its target. Raises `TargetError`."""
        return Target.parse(self.target)


@dataclass(frozen=True)
class CandidateAnswer:
    """What became of a candidate, whose trace has the digest `schedule`."""

    schedule: str
    outcome: Outcome
    seconds: Seconds | None
    samples: Samples
    error: Reason | None
    stopped: bool
    check: PlainCheck | None
    resources: Resources | None

    @staticmethod
    def of(request: BuildRequest, result: MeasureResult) -> dict[str, Any]:
        """The JSON form of a result."""
        resources = None if result.kernel is None else result.kernel.resources
        return {
            "schedule": digest_of(request.trace),
            "outcome": result.outcome.value,
            "seconds": result.seconds,
            "samples": list(result.samples),
            "error": result.error and storable(result.error),
            "stopped": result.stopped,
            "check": None if result.check is None else result.check.to_json(),
            "resources": resources,
        }

    def validate(self) -> None:
        """Raise `ValueError` unless it has what its outcome has."""
        if self.outcome is Outcome.OK:
            if not self.samples or self.seconds != statistics.median(self.samples):
                raise ValueError("seconds that are not the median of the samples")
            if self.check is not None and not self.check.passed:
                raise ValueError("a time whose check did not pass")
        elif self.samples or self.seconds is not None or self.error is None:
            raise ValueError("a failure with times, or without a reason")

    def result(self, request: BuildRequest, environment: str) -> MeasureResult:
        """The result of a request that was measured in an environment (id)."""
        kernel = Kernel(
            b"", error_factor=request.error_factor, resources=self.resources, request=request
        )
        return MeasureResult(
            self.outcome,
            self.seconds,
            self.samples,
            self.error,
            self.stopped,
            None if self.check is None else CheckResult.from_json(vars(self.check)),
            kernel if self.outcome in (Outcome.OK, Outcome.WRONG_RESULT) else None,
            environment,
        )


@dataclass(frozen=True)
class Measured:
    """The results of a part, and samples of the sentinel before and after it."""

    request: str
    results: tuple[CandidateAnswer, ...]
    sentinel: tuple[Samples, ...]
    reference_seconds: Seconds

    def require(self, requests: Sequence[BuildRequest]) -> None:
        """Raise `TuningError` unless these are the results of `requests`, in order."""
        expected = [digest_of(r.trace) for r in requests]
        if [r.schedule for r in self.results] != expected:
            raise TuningError("results of other schedules than it was asked for")


@dataclass(frozen=True)
class Interleaved:
    """The samples of several candidates; `None` if one of them failed."""

    request: str
    samples: tuple[Samples, ...] | None

    def require(self, candidates: int, rounds: int) -> None:
        """Raise `TuningError` unless these are samples of so many candidates.

        Those for which there was no memory beside the first one have none.
        """
        found = None if self.samples is None else [len(row) for row in self.samples]
        if found is not None and not (
            len(found) == candidates and found[:1] == [rounds] and {0, rounds}.issuperset(found)
        ):
            raise TuningError(
                "{0} samples, not {1} of each of {2} candidates", found, rounds, candidates
            )


@dataclass(frozen=True)
class Checked:
    """The comparison of a candidate's results."""

    request: str
    check: PlainCheck


@dataclass(frozen=True)
class _Failed:
    """Why a worker cannot do what it was asked."""

    request: str
    error: Reason


class Unable(TuningError):
    """What a worker says that it cannot do, and why."""


def parse(kind: type[T], answer: object, request: str) -> T:
    """The answer to a request (its text). Raises `TuningError` for anything else.

    Raises `Unable` where the worker says that it cannot do it.
    """
    return read(kind, received(answer, request).fields, "answer", TuningError)


def received(answer: object, request: str) -> protocol.Message:
    """The message that answers a request. Raises `TuningError` as `parse` does."""
    if not isinstance(answer, bytes):
        raise TuningError("no answer, but a {0}", type(answer).__name__)
    stream = BytesIO(answer)
    message = protocol.read(stream)
    if message is None or stream.read(1):
        raise TuningError("no message, or more than one")
    if message.fields.get("request") != digest_of(request):
        raise TuningError("the answer to another request")
    if "error" in message.fields:
        raise Unable("{0}", read(_Failed, message.fields, "answer", TuningError).error)
    return message


def answered(request: str, fields: Mapping[str, Any], data: bytes = b"") -> bytes:
    """An answer to a request."""
    return protocol.encode(protocol.Message({"request": digest_of(request), **fields}, data))


UNBELIEVED = (TilewrightError, *NO_SENSE)
"""What reading an answer of no sense may raise."""

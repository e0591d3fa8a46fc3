"""The description of this machine: measured once, in a process of its own, and kept on disk.

What the search knows of a machine (the estimate, the features of models, the roofline) rests on the
rates of its target. Those of this machine are measured when a choice has to be made without a
measurement of the program, or a session begins, for the first time. Everything else that is built
takes the table of processors.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple

from ...base.errors import ArtifactError, DatabaseError, TargetError, TilewrightError
from ...codegen.disk_cache import DiskCache, location, sources_digest
from ...codegen.generator import Measured, generator_for
from ...target import Target
from ...tuning_db.codec import check
from ...tuning_db.values import Machine

_log = logging.getLogger(__name__)
VARIABLE = "TILEWRIGHT_MACHINE"
"""`table` in the environment: nothing is measured, and the table of processors is taken."""
KIND = "machine"
LIMIT_BYTES = 1 << 20
_VERSION = 1
_ENTRY_BYTES = 1 << 16
_PATIENCE = 60.0
_AGAIN = timedelta(minutes=10)
NO_SENSE = (ValueError, TypeError, KeyError, OverflowError, RecursionError)
"""What reading data of no sense may raise, beside errors of this project."""
_SOURCES = ("codegen/*/machine.py", "codegen/*/bare_loops.py", "target/rates.py")
_WAYS = ("measured", "table")


class Description(NamedTuple):
    """The measurements of a machine, and their time (ISO 8601)."""

    measured: Measured
    created: str

    def to_json(self) -> dict[str, Any]:
        return {**self.measured._asdict(), "created": self.created}

    @staticmethod
    def from_json(told: Any) -> Description:
        """The description of `to_json`.

        Raises `TypeError`, `KeyError`, `ValueError` or `OverflowError` for what is none, and
        `DatabaseError` for one that no record can have.
        """
        if not isinstance(told["odd"], list):
            raise TypeError(f"odd={told['odd']!r:.80}")
        measured = Measured(dict(told["rates"]), tuple(told["odd"]), bool(told["doubtful"]))
        found = Description(measured, str(told["created"]))
        check(found.record("0" * 64))
        return found

    def record(self, target: str) -> Machine:
        """The record of the description, for the id of a target."""
        created = datetime.fromisoformat(self.created)
        return Machine(target, self.measured.rates, self.measured.odd, created)


class Again(Enum):
    """Whether a machine that was measured before is measured again."""

    NEVER = "never"
    IF_DOUBTFUL = "where something disturbed it"
    ALWAYS = "always"


def described(
    target: Target, again: Again = Again.NEVER, tick: Callable[[], None] = lambda: None
) -> tuple[Target, Description | None]:
    """The resolved target with what was measured of this machine; `None` where it is another one.

    `tick` is called at least every 0.2 seconds while it is measured, and gives up by raising.

    Where nothing can be kept on disk, builds (`Again.NEVER`) take the table of processors, and a
    session measures for its process.

    Raises `TargetError` for an unknown way in `TILEWRIGHT_MACHINE`. Where this machine cannot be
    measured, a warning says so, and the table is taken; `Again.ALWAYS` raises.
    """
    generator = generator_for(target)
    way = os.environ.get(VARIABLE, "") or _WAYS[0]
    if way not in _WAYS:
        raise TargetError("{0}={1}; expected {2}", VARIABLE, way, " or ".join(_WAYS))
    if not generator.measures or generator.timed_on(target) != target:
        return target, None
    if way == "table" and again is not Again.ALWAYS:
        return target, None
    try:
        found = _description(target, again, tick)
        if found is None:
            return target, None
        return generator.described(target, found.measured.rates), found
    except TilewrightError as error:
        if again is Again.ALWAYS:
            raise
        _log.warning("this machine is not measured, the table of processors is taken: %s", error)
        return target, None


def with_rates(target: Target, again: Again = Again.NEVER) -> Target:
    """The target of `described`."""
    return described(target, again)[0]


_LOCK = threading.Lock()
_KNOWN: dict[str, Description] = {}
"""The descriptions that this process has measured or read, by name."""
_FAILED = set[str]()
"""The names that this process could not measure: builds do not try again."""


def _description(target: Target, again: Again, tick: Callable[[], None]) -> Description | None:
    with _LOCK:  # measurements of several threads would disturb each other
        return _description_alone(target, again, tick)


def _description_alone(
    target: Target, again: Again, tick: Callable[[], None]
) -> Description | None:
    name, cache = _name(target), _cache()
    found = _KNOWN.get(name)
    if found is None and cache is not None:
        found = cache.get(name, lambda content: _decoded(content, target))
    doubted = again is Again.IF_DOUBTFUL and found is not None and _worth_repeating(found)
    if found is None and cache is None and again is Again.NEVER:
        return None
    if found is None and again is Again.NEVER and name in _FAILED:
        return None
    if found is None or doubted or again is Again.ALWAYS:
        try:
            found = _measured(target, tick)
        except TilewrightError:
            _FAILED.add(name)
            raise
        if cache is not None:
            cache.put(name, json.dumps(found.to_json()).encode())
    _KNOWN[name] = found
    return found


def _worth_repeating(found: Description) -> bool:
    """Whether it is doubtful, and so old that what disturbed it may be over."""
    age = datetime.now(UTC) - datetime.fromisoformat(found.created)
    return found.measured.doubtful and abs(age) > _AGAIN


def _name(target: Target) -> str:
    """The digest (SHA-256, hex) of what a description belongs to: machine, target, measuring."""
    plain = generator_for(target).timed_on(target)
    parts = [
        platform.node(),
        json.dumps(plain.to_json()),
        *plain.hardware.values(),
        sources_digest(*_SOURCES),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _measured(target: Target, tick: Callable[[], None] = lambda: None) -> Description:
    """Ask a new process. Raises `TargetError` if it dies."""
    from .protocol import Message  # loaded where a machine has to be measured
    from .worker_pool import describe
    from .worker_process import Worker, turn

    generator = generator_for(target)
    _log.info("measuring this machine for %s", target)
    worker = Worker(["runner"], generator.environment(target, runs=True))
    try:
        worker.send(Message({"do": "machine", "target": target.to_json()}), _PATIENCE)
        answer = turn([worker], tick)[0][1]
    finally:
        worker.kill()
    if not isinstance(answer, Message):
        raise TargetError("this machine cannot be measured: {0}", describe(answer))
    if "machine" not in answer.fields:
        raise TargetError("this machine cannot be measured: {0}", answer.fields.get("error"))
    created = datetime.now(UTC).isoformat()
    found = Description.from_json({**answer.fields["machine"], "created": created})
    if found.measured.odd:
        odd = "; ".join(found.measured.odd)
        _log.warning(
            "the measured rates of this machine, which predictions and the roofline use, may be "
            "wrong: %s; `tilewright target --measure` measures them again",
            odd,
        )
    return found


def _decoded(content: bytes, target: Target) -> Description:
    """Raises `ArtifactError` for what is no description."""
    try:
        found = Description.from_json(json.loads(content))
        generator_for(target).described(target, found.measured.rates)
    except (*NO_SENSE, DatabaseError) as error:
        raise ArtifactError("{0}: {1}", type(error).__name__, error) from error
    return found


def _cache() -> DiskCache | None:
    folder = location(os.environ, KIND)
    if folder is None:
        return None
    cache = DiskCache(folder, KIND, _VERSION, LIMIT_BYTES, _ENTRY_BYTES)
    return cache if cache.keeps() else None

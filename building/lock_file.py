"""Lock files: the schedules that a build takes, as text that reviews well, to build them again.

    {
      "format": "tilewright-lock",
      "version": 1,
      "target": "cpu -mcpu=znver4 -threads=8",
      "compiler": "llvm 22",
      "programs": [{"name": "mlp", "kernels": {"mlp_0": "5e88...", ...}, "digest": "..."}],
      "kernels": [{"program": "5e88...", "name": "mlp_0", ..., "steps": [...], "digest": "..."}]
    }

A step of a schedule is a line, programs and kernels are sorted, and what is not known is left out:
two texts differ where the choices do. Kernels go by the structural digest of their program, since
which ones a model has changes with the passes.

A lock is data, nothing in it is executed. The `digest` of an entry covers it, the target and the
compiler, so that a lock that was edited by hand, or put together from others, is refused. That
guards against accidents. Whoever writes the digests anew may write any schedule, and that is
applied with the checks of every foreign one.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from ..base.checked_json import DIGEST, Such, digest_of, parse_json, read, sealed, show
from ..base.durations import MeasuredTime
from ..base.errors import BuildError, LockError
from ..base.files import File, open_regular, read_some, replace_files, require_replaceable
from ..base.text import printable, short_id
from ..runtime.module import Origin
from ..tuning_db.values import ScheduleRecord
from .origins import by_kind

T = TypeVar("T")

FORMAT = "tilewright-lock"
VERSION = 1
SUFFIX = ".lock"
MAX_BYTES = 64 << 20
"""Of a file: ten thousand kernels of fifty steps have half as much."""
_START = f'{{\n  "format": "{FORMAT}"'.encode()
"""The bytes that a lock file begins with."""
_ON_A_LINE = 4
"""The depth of steps: what is as deep is one line."""
_HINT = "take it as it was committed, or write it anew: tilewright freeze"

Digest: TypeAlias = Annotated[
    str, Such("a digest (SHA-256, hex)", lambda text: re.fullmatch(r"[0-9a-f]{64}", text))
]
Source: TypeAlias = Literal["record", "transfer", "model", "default"]


@dataclass(frozen=True)
class LockedProgram:
    """A program or model that was frozen: the digests of its kernels by name.

    Of a model `lowering` is the generation of what made the programs of its kernels (`base`).
    """

    name: str
    kernels: Mapping[str, Digest]
    lowering: int | None = None

    def to_json(self) -> dict[str, Any]:
        made_by = {} if self.lowering is None else {"lowering": self.lowering}
        return {"name": self.name, **made_by, "kernels": {**self.kernels}}


@dataclass(frozen=True, kw_only=True)
class LockedKernel:
    """A kernel: the digest of its program, the steps of its schedule, and why these.

    `source` is the policy that chose it, and `reason` says more. `record` is the measurement (id),
    or the pinned schedule, that the choice rests on; `time` is what it measured, on `host`, at the
    moment `measured`. `rivals` are the schedules that were timed interleaved with it, and how they
    compare. `schedule` is the id of the schedule, `inexact` names its inexact steps.
    `instructions` are digests of the users' instructions that steps name.
    """

    program: Digest
    name: str
    shape: str
    source: Source
    reason: str
    record: Digest | None = None
    time: MeasuredTime | None = None
    host: str | None = None
    measured: datetime | None = None
    rivals: tuple[str, ...] | None = None
    schedule: Digest
    inexact: str | None = None
    instructions: Mapping[str, Digest] | None = None
    trace_version: int
    steps: tuple[Mapping[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """Its fields, without those that are `None`."""
        known = {f.name: getattr(self, f.name) for f in fields(self)}
        data = {name: value for name, value in known.items() if value is not None}
        if self.time is not None:
            data["time"] = {k: v for k, v in vars(self.time).items() if v is not None}
        if self.measured is not None:
            data["measured"] = self.measured.isoformat(timespec="microseconds")
        return data

    @cached_property
    def recorded(self) -> ScheduleRecord:
        """Its schedule as the database has it."""
        trace = {"version": self.trace_version, "steps": [*self.steps]}
        return ScheduleRecord.of(trace, self.trace_version, "", self.inexact or "")


@dataclass(frozen=True)
class LockFile:
    """The schedules of programs on a target; `str()` is the text of the file.

    `compiler` is the generation of the tools that make the code. `location` is where it was read.
    """

    target: str
    compiler: str
    programs: tuple[LockedProgram, ...]
    kernels: tuple[LockedKernel, ...]
    location: str = field(default="the lock", compare=False)

    @cached_property
    def by_program(self) -> dict[str, LockedKernel]:
        """The kernels by the digests of their programs."""
        return {kernel.program: kernel for kernel in self.kernels}

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of its content."""
        return digest_of(self.to_json())

    @property
    def summary(self) -> str:
        """How many kernels have a schedule of each source: `3 kernels: 2 record, 1 model`."""
        return by_kind([Origin(kernel.source) for kernel in self.kernels])

    def to_json(self) -> dict[str, Any]:
        before = before_of(self.target, self.compiler)
        return {
            "format": FORMAT,
            "version": VERSION,
            "target": self.target,
            "compiler": self.compiler,
            "programs": [sealed(program.to_json(), before) for program in self.programs],
            "kernels": [sealed(kernel.to_json(), before) for kernel in self.kernels],
        }

    def __str__(self) -> str:
        return _text(self.to_json())

    def __repr__(self) -> str:
        return f"<LockFile of {len(self.kernels)} kernels for {self.target}; print it>"

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, whole: a reader sees the old one or the new one.

        Raises `LockError` where that fails, and for a file that is there and no lock.
        """
        path = Path(path)
        try:
            require_replaceable(path, _START, "lock", LockError)
            replace_files([File(path, f"{self}\n".encode())])
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise LockError("cannot write {0}: {1}", path, why) from error

    def validate(self) -> None:
        """Raise `ValueError` for programs and kernels that do not go together."""
        if len(self.by_program) < len(self.kernels):
            ((twice, _),) = Counter(kernel.program for kernel in self.kernels).most_common(1)
            raise ValueError(f"the kernel {short_id(twice)} is there twice")
        for kernel in self.kernels:
            if kernel.recorded.id != kernel.schedule:
                raise ValueError(f"the steps of {short_id(kernel.program)} are not its schedule")
        used = {digest for program in self.programs for digest in program.kernels.values()}
        for missing in sorted(used - self.by_program.keys()):
            raise ValueError(f"no schedule of {short_id(missing)}, a kernel of a program")
        for unused in sorted(self.by_program.keys() - used):
            raise ValueError(f"{short_id(unused)} is a kernel of no program")


LockFileOrPath: TypeAlias = LockFile | str | os.PathLike[str]


def is_lock(path: Path) -> bool:
    """Whether a file is, or is called, a lock."""
    if path.suffix == SUFFIX:
        return True
    try:
        with open_regular(path, LockError) as (file, _):
            return read_some(file, len(_START)) == _START
    except (LockError, FileNotFoundError):
        return False


def read_lock(path: str | os.PathLike[str]) -> LockFile:
    """The lock in a file. Raises `LockError` for what is none, or was changed."""
    where = Path(os.fsdecode(path))
    try:
        with open_regular(where, LockError) as (file, _):
            content = read_some(file, MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise LockError(
            "there is no lock file {0}", where, hint=f"tilewright freeze ... -o {where}"
        ) from error
    return parse_lock(content, printable(str(where)))


def lock_of(given: object) -> LockFile | None:
    """The lock that a build is given, itself or by its path. Raises `BuildError`, `LockError`."""
    if isinstance(given, str | os.PathLike):
        return read_lock(given)
    if given is None or isinstance(given, LockFile):
        return given
    raise BuildError("locked: expected a lock or its path, found {0!r:.80}", given)


def parse_lock(content: bytes, location: str = "the lock") -> LockFile:
    """The lock in the content of a file. Raises `LockError` for what is none, or was changed."""
    if len(content) > MAX_BYTES:
        raise LockError("{0} has more than {1} bytes; a lock has fewer", location, MAX_BYTES)
    try:
        data = parse_json(content.decode())
    except (ValueError, RecursionError) as error:
        raise LockError("{0} is no JSON text: {1}", location, error, hint=_HINT) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise LockError(
            "{0} is no lock file: expected an object of the format {1!r}", location, FORMAT
        )
    if type(data.get("version")) is not int or data["version"] != VERSION:
        raise LockError(
            "{0} is of version {1!r:.40} of the format; this version of Tilewright reads {2}",
            location, data.get("version"), VERSION,
            hint="take the version of Tilewright that wrote it, or write it anew",
            found=data.get("version"), expected=VERSION,
        )  # fmt: skip
    told = {name: value for name, value in data.items() if name not in ("format", "version")}
    found = read(_Content, told, location, LockError, _HINT)
    before = before_of(found.target, found.compiler)
    lock = LockFile(
        found.target,
        found.compiler,
        tuple(_unsealed(LockedProgram, entry, before, location) for entry in found.programs),
        tuple(_unsealed(LockedKernel, entry, before, location) for entry in found.kernels),
        location,
    )
    try:
        lock.validate()
    except ValueError as error:
        raise LockError("{0}: {1}", location, error, hint=_HINT) from error
    return lock


@dataclass(frozen=True)
class _Content:
    """What a file has beside format and version."""

    target: str
    compiler: str
    programs: tuple[Mapping[str, Any], ...]
    kernels: tuple[Mapping[str, Any], ...]


def _unsealed(kind: type[T], entry: Mapping[str, Any], before: str, location: str) -> T:
    """The entry of a lock, whose digest is right."""
    named = show(entry.get("name"))
    try:
        digest = digest_of(entry, before)
    except (ValueError, RecursionError) as error:
        raise LockError("{0}: {1}: {2}", location, named, error, hint=_HINT) from error
    if entry.get(DIGEST) != digest:
        raise LockError(
            "{0}: {1}, the target or the compiler was edited by hand", location, named,
            hint=_HINT, entry=named,
        )  # fmt: skip
    plain = {name: value for name, value in entry.items() if name != DIGEST}
    return read(kind, plain, f"{location}: {named}", LockError, _HINT)


def before_of(target: str, compiler: str) -> str:
    """The digest that those of kernels come after."""
    return digest_of({"version": VERSION, "target": target, "compiler": compiler})


def _text(value: Any, depth: int = 0) -> str:
    """JSON, indented; what is as deep as a step is on one line."""
    if not isinstance(value, dict | list | tuple) or not value or depth == _ON_A_LINE:
        return json.dumps(value, allow_nan=False)
    if isinstance(value, dict):
        parts = [f"{json.dumps(k)}: {_text(v, depth + 1)}" for k, v in value.items()]
    else:
        parts = [_text(v, depth + 1) for v in value]
    (left, right), margin = "{}" if isinstance(value, dict) else "[]", "  " * depth
    return f"{left}\n" + ",\n".join(f"{margin}  {part}" for part in parts) + f"\n{margin}{right}"

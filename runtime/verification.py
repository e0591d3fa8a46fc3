"""Verifying artifacts: form, digests, what this machine lacks, and the fixtures of programs.

`with_fixtures` writes these into an artifact when it is built, by loading and calling what was
built. `verify` checks the files of an artifact anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..base.display import html
from ..base.errors import ArgumentError, TilewrightError, TrustError
from ..base.files import File, open_regular
from ..base.hints import Hinted
from ..base.text import aligned, count, printable
from .artifact import manifest_file, parse_manifest, part_place
from .fixture import mismatches, recorded
from .host_memory import HOST_MEMORY
from .library import ArtifactContent, Loaded, opened
from .loader import read_content
from .manifest import Manifest, StoredProgram
from .memory import memory_for
from .signature import WORKSPACE_ALIGNMENT
from .stored_partition import part_path
from .target_runtime import runtime_for
from .trust import Keys, public_keys
from .weights_file import Array, StoredFile, weights_path

_LARGEST_HEADER = 1 << 24
"""Bytes: what is read to be digested, of declarations for each program."""

Outcome = Literal["right", "wrong", "does not run here", "not checked"]


@dataclass(frozen=True)
class Check:
    """One check of an artifact: `what` was checked, of a program where it is `of` one.

    `right` and `wrong` need no explanation. A program `does not run here` where this machine lacks
    what it needs; `not checked` is what was left out of the artifact.
    """

    what: Literal["signature", "files", "header", "machine", "fixture"]
    of: str
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True)
class Verification(Hinted):
    """The checks of an artifact, in their order; `passed` if nothing is wrong and all runs here."""

    path: Path
    checks: tuple[Check, ...]

    _repr_html_ = html

    @property
    def passed(self) -> bool:
        return all(check.outcome in ("right", "not checked") for check in self.checks)

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(c for c in self.checks if c.outcome not in ("right", "not checked"))

    def to_json(self) -> dict[str, Any]:
        checks = [asdict(check) for check in self.checks]
        return {"path": str(self.path), "passed": self.passed, "checks": checks}

    def table(self) -> tuple[Sequence[str], list[list[str]]]:
        """Columns and rows of the checks."""
        rows = [[c.what, c.of, c.outcome, printable(c.detail)] for c in self.checks]
        return ("check", "program", "outcome", "~detail"), rows

    def __str__(self) -> str:
        failed = len(self.failed)
        verdict = "passed" if not failed else f"{failed} of {count(len(self.checks), 'check')} fail"
        return "\n".join([f"{self.path}: {verdict}", *aligned(*self.table())])

    def __repr__(self) -> str:
        return f"<Verification of {self.path.name}: {'passed' if self.passed else 'failed'}>"


def verify(
    path: str | os.PathLike[str],
    *,
    run: bool = True,
    keys: Sequence[str | os.PathLike[str]] | None = None,
) -> Verification:
    """Check an artifact: the form and digests of its files, whether this machine runs its programs,
    and what they compute, against the results that were stored when it was built.

    Without `run` no code of it is loaded or called: only the files are checked, which may be for
    another machine. With `keys`, public keys as of `load`, one of them has to have signed it, and
    what none of them has is not checked further. A missing C header is not checked, as loading
    needs none. Never raises for what is found in the files: `print` shows all checks.

    Raises `ArgumentError` for what is no path, and for `keys` that are no list or empty;
    `TrustError` for a key that is none.
    """
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError(
            "expected the path of an artifact's code, found {0!r:.80}", path,
            hint='tw.verify("ops.so")',
        )  # fmt: skip
    place = Path(path).absolute()
    accepted = None if keys is None else public_keys(keys)
    return Verification(place, tuple(_checks(place, run=run, keys=accepted)))


def _checks(path: Path, *, run: bool, keys: Keys | None) -> Iterator[Check]:
    try:
        with memory_for("{0}: no memory to read it", path):
            content = read_content(path, (), keys)
    except TrustError as error:
        yield Check("signature", "", "wrong", error.first_line)
        return
    except TilewrightError as error:
        yield Check("files", "", "wrong", error.first_line)
        return
    manifest = content.manifest
    if content.signed is not None:
        yield Check("signature", "", "right", str(content.signed))
    yield Check("files", "", "right", _told(manifest))
    if manifest.header is not None:
        yield _header(path.with_suffix(".h"), manifest.header)
    for program in manifest.programs if run else ():
        if manifest.code.form is None:
            yield from _program(content, program, path)
        else:
            why = f"an {manifest.code.form} is linked into a program before it runs"
            yield Check("machine", program.name, "not checked", why)


def _told(manifest: Manifest) -> str:
    many = count(len(manifest.programs), "program")
    return f"{many} for {manifest.target}, {manifest.code.size} bytes of code"


def _header(path: Path, expected: StoredFile) -> Check:
    try:
        with open_regular(path) as (file, size):
            content = file.read() if size == expected.size <= _LARGEST_HEADER else b""
    except FileNotFoundError:
        return Check("header", "", "not checked", f"there is no {path.name}")
    except TilewrightError as error:
        return Check("header", "", "wrong", error.first_line)
    found = StoredFile.of(content)
    if found == expected:
        return Check("header", "", "right")
    if size != expected.size:
        return Check("header", "", "wrong", f"expected {expected.size} bytes, found {size}")
    if size > _LARGEST_HEADER:
        return Check("header", "", "wrong", f"of {size} bytes, more than any has")
    detail = f"expected sha256 {expected.sha256}, found {found.sha256}"
    return Check("header", "", "wrong", detail)


def _program(content: ArtifactContent, program: StoredProgram, path: Path) -> Iterator[Check]:
    try:
        loaded = _opened(content, program, path)
    except TilewrightError as error:
        yield Check("machine", program.name, "does not run here", error.first_line)
        return
    yield Check("machine", program.name, "right")
    if program.fixture is None:
        why = program.no_fixture or "an older version wrote it without one"
        yield Check("fixture", program.name, "not checked", why)
        return
    try:
        wrong = mismatches(loaded, program.guards, program.fixture)
    except TilewrightError as error:
        wrong = [error.first_line]
    except MemoryError:
        wrong = ["there is no memory for its arguments"]
    yield Check("fixture", program.name, "wrong" if wrong else "right", "; ".join(wrong))


def with_fixtures(files: Sequence[File]) -> tuple[File, ...]:
    """The files of an artifact, in whose manifest programs have fixtures, or the reason why not.

    They are those of `artifact_files`. What is not for this machine is not called.
    """
    code, *others, described = files
    manifest = parse_manifest(bytes(described.content), described.path)
    held = {file.path: _aligned(np.frombuffer(file.content, np.uint8)) for file in others}
    parts = {
        program.name: {
            n: held[part_path(part_place(code.path, manifest, program.name), n)].tobytes()
            for n in program.partition.files
        }
        for program in manifest.programs
        if program.partition is not None
    }
    content = ArtifactContent(
        manifest, bytes(code.content), held.get(weights_path(code.path)), parts
    )
    name = Path(code.path.name)  # errors are kept, and equal builds have equal bytes
    programs = tuple(_recorded(content, program, name) for program in manifest.programs)
    return *files[:-1], manifest_file(replace(manifest, programs=programs), code.path)


def _aligned(content: Array) -> Array:
    """The bytes at an address that weights have where they are mapped."""
    if content.ctypes.data % WORKSPACE_ALIGNMENT == 0:
        return content
    memory: Array = HOST_MEMORY.allocate(content.nbytes)
    memory[:] = content
    return memory


def _recorded(content: ArtifactContent, program: StoredProgram, path: Path) -> StoredProgram:
    try:
        loaded = _opened(content, program, path)
        return replace(program, fixture=recorded(loaded, program.guards))
    except TilewrightError as error:
        return replace(program, no_fixture=error.first_line)
    except MemoryError:
        return replace(program, no_fixture="there is no memory for its arguments")


def _opened(content: ArtifactContent, program: StoredProgram, path: Path) -> Loaded:
    runtime = runtime_for(content.manifest.target)
    (loaded,) = opened(content, path, runtime, only=program.name).values()
    return loaded

"""What changed since programs were frozen: all of it, for the error of a build."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from ..autotune.records import toolchain_record
from ..base import LOWERING
from ..base.checked_json import show
from ..base.errors import LockError
from ..base.text import printable, short_id
from ..schedule import PRIMITIVES
from ..target import Target
from ..tir.equality import structural_hash
from ..tir.instruction_set import users_digests
from ..tir.ir import Func
from .lock_file import LockedKernel, LockFile


@dataclass(frozen=True)
class Change:
    """A difference between a lock and what is built: `what` of that name, in the lock and here.

    A `kernel` has other digests, or `None` where the lock lacks it, or has it and nothing uses it;
    an `instruction` of a user too, and `None` where it is not registered. Where kernels of a model
    changed, `lowering` has the generations of what made them, if these differ.
    """

    what: Literal["target", "compiler", "primitive", "instruction", "lowering", "kernel"]
    name: str
    locked: str | None
    found: str | None

    def __str__(self) -> str:
        if self.what not in ("kernel", "instruction"):
            version = _KINDS_OF_NUMBERS.get(self.what, "")
            found = "none" if self.found is None else f"{version}{self.found}"
            return f"{self.what} {self.name}: locked {version}{self.locked}, found {found}"
        if self.locked is None:
            return f"kernel {self.name} ({short_id(self.found or '')}): the lock has none"
        if self.found is None:
            gone = "nothing uses it" if self.what == "kernel" else "it is not registered"
            return f"{self.what} {self.name} ({short_id(self.locked)}): {gone}"
        both = f"locked {short_id(self.locked)}, found {short_id(self.found)}"
        return f"{self.what} {self.name}: {both}"


_KINDS_OF_NUMBERS = {"primitive": "version ", "lowering": "generation "}


def check_unchanged(
    lock: LockFile, programs: Iterable[tuple[str, Iterable[Func]]], target: Target
) -> None:
    """Raise `LockError` with all that changed since programs (with their kernels) were frozen.

    A lock may have more programs. One is as it was frozen if the lock has all of its kernels, and
    the program of that name there has no others.
    """
    changes = [*_changes(lock, programs, target)]
    if changes:
        raise LockError(
            "{0} does not fit what is built:\n{1}",
            lock.location, "\n".join(f"  {change}" for change in changes),
            hint="where that is meant, freeze again and review the difference: tilewright freeze",
            changes=[asdict(change) for change in changes],
        )  # fmt: skip


def _changes(
    lock: LockFile, programs: Iterable[tuple[str, Iterable[Func]]], target: Target
) -> Iterator[Change]:
    compiler = toolchain_record(target).generation
    if lock.target != str(target):
        yield Change("target", target.kind, lock.target, str(target))
    if lock.compiler != compiler:
        yield Change("compiler", target.kind, lock.compiler, compiler)
    used = dict[str, LockedKernel]()
    kernels = list[Change]()
    for name, funcs in programs:
        here = {structural_hash(func): func.name for func in funcs}
        used |= {d: lock.by_program[d] for d in here if d in lock.by_program}
        kernels += _of_program(lock, name, here)
    yield from _primitives(used.values())
    yield from _instructions(used.values())
    yield from dict.fromkeys(kernels)


def _of_program(lock: LockFile, name: str, here: dict[str, str]) -> Iterator[Change]:
    """The kernels of a program that the lock lacks, and those that only the lock has."""
    missing = {digest: kernel for digest, kernel in here.items() if digest not in lock.by_program}
    frozen = [
        ({digest: kernel for kernel, digest in program.kernels.items()}, program.lowering)
        for program in lock.programs
        if program.name == name
    ]
    nearest, lowering = max(
        frozen, key=lambda f: (len(f[0].keys() & here.keys()), -len(f[0])), default=({}, None)
    )
    names = {kernel: digest for digest, kernel in nearest.items() if digest not in here}
    if (missing or names) and lowering not in (None, LOWERING):
        yield Change("lowering", printable(name), str(lowering), str(LOWERING))
    for digest, kernel in missing.items():
        before = names.pop(kernel, None)
        yield Change("kernel", kernel, before, digest)
    for kernel, digest in names.items():
        yield Change("kernel", printable(kernel), digest, None)


def _primitives(kernels: Iterable[LockedKernel]) -> Iterator[Change]:
    """The primitives whose version is not that of the steps of schedules."""
    steps = [step for kernel in kernels for step in kernel.steps]
    versions = {(_text(step.get("op")), _text(step.get("version", 1))) for step in steps}
    known = {primitive.name: str(primitive.version) for primitive in PRIMITIVES.values()}
    for name, version in sorted(versions):
        if known.get(name) != version:
            yield Change("primitive", name, version, known.get(name))


def _instructions(kernels: Iterable[LockedKernel]) -> Iterator[Change]:
    """The users' instructions that are not what steps of schedules name."""
    named = dict(item for kernel in kernels for item in (kernel.instructions or {}).items())
    known = users_digests(json.dumps([*named]))
    for name, digest in sorted(named.items()):
        if known.get(name) != digest:
            yield Change("instruction", printable(name), digest, known.get(name))


def _text(value: object) -> str:
    """A name or number of a file, where it is one."""
    return value if isinstance(value, str) and value.isidentifier() else show(value)

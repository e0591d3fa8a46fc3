"""Link object files of kernels to a shared library, for this machine or another."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from itertools import takewhile
from pathlib import Path, PurePath

from ...base.errors import BuildError
from ...base.text import printable
from ...target import CpuTarget, Target
from . import thread_teams
from .archive import members
from .detection import host_target
from .generator import OPENMP
from .object_file import read_object

_COMPILERS = ("cc", "gcc", "clang")
_LINKERS = ("ld", "ld.lld", "ld.gold", "mold")
_OF_ALL_MACHINES = ("ld.lld", "mold")
"""Linkers that link for whatever machine the object files are for."""
_LINKER_NAME = re.compile(r"(?:.*-)?(?:ld|(?:ld\.)?(?:lld|gold|bfd|mold))(?:-[\d.]+)?")
"""Names of linkers; other programs are compilers, which call one."""
_OF_ARCHITECTURE = re.compile(r"(?P<arch>[a-z0-9_]+)-linux-gnu-(?P<tool>gcc|ld)(?:-\d+)?")
_PACKAGES = {"cc": "gcc", "ld": "binutils", "ld.gold": "binutils", "ld.lld": "lld", "lld": "lld"}
"""The packages of programs, as Debian and Ubuntu call them, where they have another name."""
_SECONDS = 120
_STAYS = ["-z", "nodelete"]
"""What keeps a library in its process, whose threads run its code."""
_SHOWN = 200
Find = Callable[[str], str | None]


def link(
    object_code: bytes, target: Target, chosen: str | None = None, *, find: Find = shutil.which
) -> bytes:
    """Link an image of object files to a shared library; returns its content.

    Functions of the C library stay undefined: the process that loads the library has them. Linking
    happens in a temporary folder, by `linker`. Raises `BuildError` if there is none, if it fails,
    and if the folder cannot be written.
    """
    cpu = CpuTarget.of(target)
    command = linker(cpu, chosen, find=find)
    try:
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            library, sources = Path(folder, "kernel.so"), list[str]()
            objects = list(members(object_code))
            if any(not read_object(code).undefined.isdisjoint(OPENMP) for code in objects):
                objects.append(thread_teams.library_code(cpu))
                command += _STAYS if _is_linker(command) else [f"-Wl,{','.join(_STAYS)}"]
            for number, code in enumerate(objects):
                source = Path(folder, f"{number}.o")
                source.write_bytes(code)
                sources.append(str(source))
            _run([*command, "-o", str(library), *sources], cpu)
            if not library.exists():
                raise BuildError("{0} wrote no library for {1}", " ".join(command), target)
            return library.read_bytes()
    except OSError as error:
        raise BuildError(
            "cannot link in {0}: {1}",
            error.filename or "a temporary folder",
            error.strerror or error,
            hint="the variable TMPDIR names another folder for temporary files",
        ) from error


def linker(target: CpuTarget, chosen: str | None = None, *, find: Find = shutil.which) -> list[str]:
    """The command, without files, that links libraries for a target.

    It is the `chosen` one, a name or path that options may follow, or the first that is there.
    Raises `BuildError` with the names of packages in `data["packages"]` if there is none, and for a
    machine that has no shared libraries.
    """
    if target.arch == "wasm32":
        raise BuildError(
            "there are no shared libraries for {0}", target.arch,
            hint="write an object file, kernel.o for instance, which wasm-ld links",
        )  # fmt: skip
    if chosen is not None:
        return _chosen(chosen, find)
    names = _names(target)
    for name in names:
        program = find(name)
        if program is not None:
            return _command([program])
    packages = _packages(names)
    raise BuildError(
        "there is no linker for {0} on this machine (looked for {1})",
        target.arch,
        ", ".join(names),
        hint=f"install {' or '.join(packages)} (as Debian and Ubuntu call the packages), name one "
        "with linker= (--linker), or write an object file, which takes no linker",
        packages=packages,
    )


@cache
def version(*program: str) -> str:
    """What a linker, or the compiler that calls it, says of its version; else its name.

    It is the `tool` of a command.
    """
    with suppress(OSError, subprocess.TimeoutExpired):
        words = [*program, "--version"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
        if done.returncode == 0 and (said := printable(done.stdout.partition("\n")[0].strip())):
            return said[:_SHOWN]
    return " ".join([PurePath(program[0]).name, *program[1:]])


def _names(target: CpuTarget) -> Sequence[str]:
    """The programs that may link for a target, in the order to try."""
    if target.arch == host_target().arch:
        return _COMPILERS + _LINKERS
    return (*(f"{target.arch}-linux-gnu-{tool}" for tool in ("gcc", "ld")), *_OF_ALL_MACHINES)


def _chosen(text: str, find: Find) -> list[str]:
    try:
        name, *options = shlex.split(text) or [""]
    except ValueError as error:
        raise BuildError("linker: {0!r} is no command: {1}", text, error) from error
    program = find("ld.lld" if name == "lld" else name)
    if program is None:
        packages = _packages([name])
        raise BuildError(
            "linker: there is no program {0!r} on this machine", name,
            hint=f"install it; Debian and Ubuntu have the package {packages[0]}",
            packages=packages,
        )  # fmt: skip
    return _command([program, *options])


def _command(words: list[str]) -> list[str]:
    if _is_linker(words):
        return [*words, "-shared", "-z", "noexecstack"]
    return [*words, "-shared", "-nostdlib", "-Wl,-z,noexecstack"]


def _is_linker(command: Sequence[str]) -> bool:
    names = (PurePath(word).name for word in tool(command))
    return any(_LINKER_NAME.fullmatch(name) for name in names)


def tool(command: Sequence[str]) -> tuple[str, ...]:
    """The program of a command, with the words by which it is one of several: `zig cc`."""
    return tuple(takewhile(lambda word: not word.startswith("-"), command))


def _packages(names: Sequence[str]) -> tuple[str, ...]:
    """The packages that programs are in."""
    found = dict[str, None]()
    for name in names:
        match = _OF_ARCHITECTURE.fullmatch(name)
        package = _PACKAGES.get(name, PurePath(name).name)
        if match is not None:
            tool = "binutils" if match["tool"] == "ld" else match["tool"]
            package = f"{tool}-{match['arch'].replace('_', '-')}-linux-gnu"
        found[package] = None
    return tuple(found)


def _run(command: list[str], target: CpuTarget) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError("the linker {0} does not run: {1}", command[0], error) from error
    if done.returncode:
        raise BuildError(
            "{0} failed for the target {1}: {2}",
            " ".join(command),
            target,
            done.stderr.strip()[-2000:],
            hint="name another one with linker= (--linker), or write an object file and link it "
            "where the linker for that target is",
        )

"""Artifacts whose library is damaged, exchanged, rebuilt in place, or no file at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tilewright import load
from tilewright.base.errors import TilewrightError

from .artifacts import NAMES, copy_artifact, load_and_call, make_libraries, subject_of
from .attempt import Attack, Attempt
from .damage import damaged
from .manifests import no_regular_file
from .subjects import check_module


def prepare(folder: Path) -> Attack:
    source = make_libraries(folder)

    def attack(attempt: Attempt) -> str:
        name = attempt.choice(NAMES)
        library = copy_artifact(source, name, attempt.folder)
        what, damage = attempt.choice(_DAMAGE)
        attempt.note(f"{name}: {what}")
        return damage(source, library, name, attempt)

    return attack


def _bytes(_source: Path, library: Path, name: str, attempt: Attempt) -> str:
    before = library.read_bytes()
    library.write_bytes(damaged(before, attempt))
    return load_and_call(library, attempt, may=(name,))


def _of_another(source: Path, library: Path, name: str, attempt: Attempt) -> str:
    """The library of another kernel; with its manifest it is that kernel."""
    other = attempt.choice([n for n in NAMES if n != name])
    shutil.copy(source / f"{other}.so", library)
    if attempt.chance(0.3):
        shutil.copy(source / f"{other}.so.json", library.with_name(library.name + ".json"))
        return load_and_call(library, attempt, may=(other,))
    return load_and_call(library, attempt, may=(name,))


def _no_file(_source: Path, library: Path, name: str, attempt: Attempt) -> str:
    no_regular_file(library, attempt)
    return load_and_call(library, attempt, may=(name,))


def _rebuilt(source: Path, library: Path, name: str, attempt: Attempt) -> str:
    """Load, exchange the files for another kernel's (or write into them), load again, call both."""
    first, second = (("affine", "longer"), ("matmul", "wider"))[attempt.pick(2)]
    manifest = library.with_name(library.name + ".json")
    modules = []
    in_place = attempt.chance(0.5)
    attempt.note(f"in place: {in_place}")
    for other in (first, second, first)[: 2 + attempt.pick(2)]:
        for file, place in ((f"{other}.so", library), (f"{other}.so.json", manifest)):
            if in_place:
                place.write_bytes((source / file).read_bytes())
            else:
                shutil.copy(source / file, place.with_name("new"))
                os.replace(place.with_name("new"), place)
        modules.append((other, load(library)))
    for other, module in modules:
        check_module(module, subject_of(module, (other,)), attempt.rng)
    return "both right"


def _changed_later(source: Path, library: Path, name: str, attempt: Attempt) -> str:
    """Load, then damage, cut or remove the files, and call."""
    module = load(library)
    action = attempt.pick(3)
    attempt.note(f"afterwards: {('cut off', 'removed', 'overwritten')[action]}")
    if action == 0:
        os.truncate(library, 0)
    elif action == 1:
        shutil.rmtree(library.parent)
    else:
        library.write_bytes(attempt.rng.bytes(library.stat().st_size))
    check_module(module, subject_of(module, (name,)), attempt.rng)
    return "right after a change"


def _odd_path(source: Path, library: Path, name: str, attempt: Attempt) -> str:
    """Paths that are none, or lead elsewhere."""
    path = attempt.choice(
        ("", ".", "/", "\0", "x" * 5000, "libm.so.6", f"{library}/x", f"{library}\n", "\udc80.so")
    )
    attempt.note(f"path {path!r:.100}")
    try:
        load(path)
    except TilewrightError as error:
        return f"refused{'' if str(error) else ' without a text'}"
    return "loaded"


_DAMAGE: tuple[tuple[str, Callable[[Path, Path, str, Attempt], str]], ...] = (
    ("bytes", _bytes),
    ("bytes", _bytes),
    ("bytes", _bytes),
    ("of another kernel", _of_another),
    ("no regular file", _no_file),
    ("rebuilt", _rebuilt),
    ("changed later", _changed_later),
    ("odd path", _odd_path),
)

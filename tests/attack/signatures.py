"""Signed artifacts whose files, signatures or keys are damaged or exchanged, also during a load."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tilewright import sign

from .artifacts import NAMES, Swapping, copy_artifact, load_and_call, make_libraries
from .attempt import Attack, Attempt
from .damage import damaged

KEPT = Path(__file__).parent.parent / "runtime" / "kept"
SIGNED, UNSIGNED = NAMES[:4], NAMES[4:]
SUFFIXES = (".so", ".so.json", ".so.json.minisig")


def prepare(folder: Path) -> Attack:
    source = make_libraries(folder)
    for name in SIGNED:
        sign(source / f"{name}.so", KEPT / "minisign.key", password="secret")

    def attack(attempt: Attempt) -> str:
        name = attempt.choice(SIGNED)
        library = copy_artifact(source, name, attempt.folder)
        for path in (source / f"{name}.so.json.minisig", KEPT / "minisign.pub"):
            shutil.copy(path, attempt.folder)
        what, damage = attempt.choice(_DAMAGE)
        attempt.note(f"{name}: {what}")
        return damage(source, library, attempt)

    return attack


def _loaded(library: Path, attempt: Attempt, *more: str) -> str:
    """It is refused, or one that is signed."""
    may = (library.stem, *more)
    return load_and_call(library, attempt, may=may, keys=[attempt.folder / "minisign.pub"])


def _bytes(_source: Path, library: Path, attempt: Attempt) -> str:
    name = attempt.choice((*(library.stem + suffix for suffix in SUFFIXES), "minisign.pub"))
    path = library.with_name(name)
    path.write_bytes(damaged(path.read_bytes(), attempt))
    return _loaded(library, attempt)


def _exchanged(source: Path, library: Path, attempt: Attempt) -> str:
    """Some or all files are those of another one, which may be unsigned."""
    other = attempt.choice([name for name in NAMES if name != library.stem])
    taken = [suffix for suffix in SUFFIXES if attempt.chance(0.6)]
    attempt.note(f"{', '.join(taken)} of {other}")
    for suffix in taken:
        if (source / f"{other}{suffix}").exists():
            shutil.copy(source / f"{other}{suffix}", library.with_name(library.stem + suffix))
    return _loaded(library, attempt, *({other} & {*SIGNED}))


def _swapped(source: Path, library: Path, attempt: Attempt) -> str:
    """Load while code and manifest are exchanged for those of an unsigned one, and back."""
    names = (library.stem, attempt.choice(UNSIGNED))
    pairs = [(source / f"{name}.so", source / f"{name}.so.json") for name in names]
    held = ""
    with Swapping(library, pairs, attempt.choice((0.0, 1e-4, 1e-3))):
        for _ in range(8):
            held = _loaded(library, attempt)
    return f"swapped, {held}"


_DAMAGE: tuple[tuple[str, Callable[[Path, Path, Attempt], str]], ...] = (
    ("bytes", _bytes),
    ("bytes", _bytes),
    ("files of another one", _exchanged),
    ("swapped", _swapped),
)

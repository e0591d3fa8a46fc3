"""Artifacts for the attacks on files: a library with its manifest and header for each subject."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

from tilewright import Module, build_library, load
from tilewright.base.errors import TilewrightError

from .attempt import Attempt, Broken, require
from .subjects import TARGET, Subject, check_module, subjects

NAMES = ("affine", "longer", "matmul", "wider", "gather", "narrow")


def make_libraries(folder: Path) -> Path:
    """Artifacts of the subjects `NAMES`, as `<name>.so`, in `folder`."""
    for name in NAMES:
        build_library(subjects()[name].func, folder / f"{name}.so", TARGET, allow=("default",))
    return folder


def copy_artifact(source: Path, name: str, to: Path) -> Path:
    """A copy of the files of an artifact in the folder `to`; returns the library."""
    for file in (f"{name}.so", f"{name}.so.json", f"{name}.h"):
        shutil.copy(source / file, to / file)
    return to / f"{name}.so"


def load_and_call(
    library: Path, attempt: Attempt, *, may: tuple[str, ...], keys: list[Path] | None = None
) -> str:
    """Load an artifact and call it: it is refused, or is that of one of the subjects `may`."""
    try:
        module = load(library, keys=keys)
    except TilewrightError as error:
        require(bool(str(error)), "an error without a text")
        return "refused"
    subject = subject_of(module, may)
    check_module(module, subject, attempt.rng)
    return "loaded and right"


def subject_of(module: Module, may: tuple[str, ...]) -> Subject:
    """The subject whose signature a module has."""
    for name in may:
        if module.signature == _signature(name):
            return subjects()[name]
    raise Broken(f"loaded with a signature that was never built: {module.signature!r:.1000}")


def _signature(name: str) -> object:
    from tilewright.codegen.calling_convention import signature_of

    return signature_of(subjects()[name].func)


class Swapping:
    """Exchanges files for others, again and again, while something else goes on."""

    def __init__(self, library: Path, sources: list[tuple[Path, Path]], pause: float) -> None:
        self._stop = threading.Event()
        self._library, self._sources, self._pause = library, sources, pause
        self._thread = threading.Thread(target=self._swap, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _swap(self) -> None:
        manifest = self._library.with_name(self._library.name + ".json")
        while not self._stop.is_set():
            for library, description in self._sources:
                for source, place in ((library, self._library), (description, manifest)):
                    new = place.with_name(f"{place.name}.new")
                    shutil.copy(source, new)
                    os.replace(new, place)
                    self._stop.wait(self._pause)

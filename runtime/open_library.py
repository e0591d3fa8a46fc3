"""Open a shared library by its content.

A path may name another file by the time it is opened, and the dynamic loader does not read a file
again whose path it has seen. The loader therefore gets the checked bytes, in memory that can no
longer change, under a path that was never used before.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")
"""Whether this Python has files in memory that can be sealed: not where its C library is old."""
_numbers = itertools.count(1)
_opened: dict[str, ctypes.CDLL] = {}


def open_library(code: bytes, name: str) -> ctypes.CDLL:
    """Open the shared library with this content, once in a process; it is never closed.

    `name` is shown in /proc/self/maps, for people. The library finds others by the system's rules
    only, not beside its file. Thread-safe. Raises `OSError` if it is not a library, and if there is
    no place for it.
    """
    digest = hashlib.sha256(code).hexdigest()
    found = _opened.get(digest)
    if found is not None:
        return found
    problems = []
    for place in (_in_memory, _in_folder) if _MEMORY else (_in_folder,):
        try:
            with place(code, name) as path:
                return _opened.setdefault(digest, ctypes.CDLL(path))
        except OSError as error:  # no /proc, or a system that runs no code from there
            problems.append(str(error))
    raise OSError("; ".join(problems))


@contextmanager
def _in_memory(code: bytes, name: str) -> Iterator[str]:
    """The path of a sealed file in memory: nobody can write to it or change its size."""
    descriptor = os.memfd_create(f"tilewright-{name}"[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(code)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        yield _new_path(descriptor)
    finally:
        os.close(descriptor)


def _new_path(descriptor: int) -> str:
    """A path of the descriptor that this process has not used before.

    Descriptor numbers are reused, and glibc returns the library that it loaded from an equal path.
    A counter in binary, `/` for 0 and `/.` for 1, makes all paths different.
    """
    bits = f"{next(_numbers):b}".replace("0", "/").replace("1", "/.")
    return f"/proc/self/fd{bits}/{descriptor}"


@contextmanager
def _in_folder(code: bytes, name: str) -> Iterator[str]:
    """The path of a file in a private folder; its removal does not affect the loaded library."""
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        path = Path(folder, f"{name[:100]}-{next(_numbers)}.so")
        path.write_bytes(code)
        yield str(path)

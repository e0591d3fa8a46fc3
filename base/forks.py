"""Detect processes that were forked from one with an OpenMP runtime and several threads.

OpenMP's thread team does not survive a fork. The child has only the forking thread, and a parallel
region would wait for the missing threads for ever. Kernels read `TEAMS` before each parallel loop
and run the loop on one thread unless the value is `ALLOWED`.

Any library of the process may have created the team, and a kernel may be built after the fork.
Forks are therefore watched from `import tilewright` on.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

ALLOWED, UNANNOUNCED, REFUSED = 0, 1, 2
TEAMS = ctypes.c_int32(ALLOWED)
"""`ALLOWED`, or after a fork `UNANNOUNCED` until the first call has logged it, then `REFUSED`."""

_MAPS = Path("/proc/self/maps")


_TASKS = "/proc/self/task"
_alone = False
"""Whether the process had only one thread, and so no team, at its last fork."""


def mapped_runtimes() -> list[str]:
    """The libgomp files that this process has loaded. Raises `OSError` if that is not known."""
    maps = _MAPS.read_text(encoding="utf-8", errors="surrogateescape")
    paths = {f"/{line.partition('/')[2]}" for line in maps.splitlines()}
    return sorted(path for path in paths if path.rpartition("/")[2].startswith("libgomp"))


def _forking() -> None:
    global _alone  # noqa: PLW0603
    try:
        _alone = len(os.listdir(_TASKS)) == 1
    except OSError:
        _alone = False


def _forked() -> None:
    """Refuse teams if a runtime was loaded before the fork and there were several threads."""
    try:
        inherited = not _alone and bool(mapped_runtimes())
    except OSError:
        inherited = True
    if inherited or TEAMS.value != ALLOWED:
        TEAMS.value = UNANNOUNCED


os.register_at_fork(before=_forking, after_in_child=_forked)

"""Whether this process was forked from one that had an OpenMP runtime and several threads.

A team of OpenMP's threads does not survive a fork: the child has the forking thread alone, and a
parallel region that it enters waits for the others for ever. Kernels read `TEAMS` before each
parallel loop and run it on one thread where it is not `ALLOWED`.

Any library of the process may have made the team, and a kernel may be built only after the fork.
Forks are therefore watched from `import tilewright` on.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

ALLOWED, UNANNOUNCED, REFUSED = 0, 1, 2
TEAMS = ctypes.c_int32(ALLOWED)
"""`ALLOWED`; or refused by a fork, `UNANNOUNCED` until the first call has logged it."""

_MAPS = Path("/proc/self/maps")


_TASKS = "/proc/self/task"
_alone = False
"""Whether the process had one thread, and so no team, when it was forked last."""


def mapped_runtimes() -> list[str]:
    """The files of libgomp that this process has loaded. Raises `OSError` where nothing tells."""
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
    """What is loaded right after a fork was loaded before it."""
    try:
        inherited = not _alone and bool(mapped_runtimes())
    except OSError:
        inherited = True
    if inherited or TEAMS.value != ALLOWED:
        TEAMS.value = UNANNOUNCED


os.register_at_fork(before=_forking, after_in_child=_forked)

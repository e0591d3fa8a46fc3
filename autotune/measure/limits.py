"""How a worker process is tied to its parent and kept from doing harm."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_MAX_OUTPUT = 64 << 20


def end_with_parent(parent: int) -> None:
    """Ask to be killed when the parent dies, and exit if it is dead already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(1)


def expect_the_worst() -> None:
    """No core files, no endless output, and first in line when the machine is out of memory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower_limit(resource.RLIMIT_FSIZE, _MAX_OUTPUT)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("600", encoding="ascii")


def limit_memory(extra: int) -> None:
    """Let this process use at most `extra` bytes of addresses beyond those that it uses now."""
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        _lower_limit(resource.RLIMIT_AS, pages * resource.getpagesize() + extra)


def unlimit_memory() -> None:
    """Undo `limit_memory`."""
    with suppress(OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def _lower_limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))

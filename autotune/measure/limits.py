"""How a worker process is kept from doing harm."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

_MAX_OUTPUT = 64 << 20


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

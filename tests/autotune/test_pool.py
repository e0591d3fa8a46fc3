"""Worker processes from outside: why they ended."""

from __future__ import annotations

import signal

import pytest

from tilewright.autotune import pool
from tilewright.autotune.pool import Died, TimedOut
from tilewright.autotune.station import describe


@pytest.mark.parametrize(
    ("killed", "output", "kills", "expected"),
    [
        (signal.SIGKILL, "", 1, True),  # by the kernel: it counted one more
        (signal.SIGKILL, "", 0, False),  # by somebody
        (
            signal.SIGABRT,
            "terminate called after throwing 'std::bad_alloc'",
            0,
            True,
        ),
        (signal.SIGABRT, "LLVM ERROR: out of memory", 0, True),
        (0, "MemoryError", 0, True),
        (signal.SIGSEGV, "", 1, False),
        (signal.SIGABRT, "assertion failed", 0, False),
    ],
)
def test_deaths_for_want_of_memory_are_told_from_others(
    monkeypatch: pytest.MonkeyPatch, killed: int, output: str, kills: int, expected: bool
) -> None:
    monkeypatch.setattr(pool, "_out_of_memory_kills", lambda: 7 + kills)
    assert pool._is_out_of_memory(killed, output, 7) is expected


def test_the_kernel_counts_its_kills() -> None:
    assert pool._out_of_memory_kills() >= 0


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Died(-11, 11, False, ""), "the process ended with signal 11 (SIGSEGV)"),
        (
            Died(-9, 9, True, "so long"),
            "the process ended with signal 9 (SIGKILL), out of memory; it printed: so long",
        ),
        (Died(-63, 63, False, ""), "the process ended with signal 63 (unknown)"),
        (Died(3, 0, False, ""), "the process ended with exit status 3"),
        (TimedOut(0.5, ""), "not done within 0.5 s"),
    ],
)
def test_deaths_are_described(event: Died | TimedOut, text: str) -> None:
    assert describe(event) == text

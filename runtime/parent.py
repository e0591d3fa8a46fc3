"""How a process starts another one, and how that ends with it."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1

NO_NUMPY_THREADS = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Variables of the environment of each child process.

A thread of numpy's libraries would wait actively while numpy is imported, for 0.05 s of processor
time, and compete with the kernel that is timed.
"""


def end_with_parent(parent: int) -> None:
    """Ask to be killed when the parent (process id) dies, and exit if it is dead already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(1)

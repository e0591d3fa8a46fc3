"""Find and load the OpenMP runtime that parallel kernels call.

The first one found is used: a runtime that is loaded already, the system's libgomp, or one that an
installed package carries. It is loaded with global symbols, so that kernels in shared libraries
find it.

Threads that wait in libgomp spin for milliseconds by default. Where something else runs on their
processors, they take the time of the threads that they wait for. The runtime is therefore loaded
with `SPINS`, unless the environment says how to wait (`OMP_WAIT_POLICY`, `GOMP_SPINCOUNT`). Loops
whose teams lose time nevertheless run on one thread (`codegen/cpu/llvm_parallel.py`).

In a process that was forked from one with such a runtime, parallel loops run on one thread (see
`base/process.py`). A new team would take a new thread for each call, since the runtime keeps the
dead team for the thread that had it; and forked workers usually share the processors already.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..base.errors import KernelError, open_files_hint
from ..base.process import ALLOWED, REFUSED, TEAMS, UNANNOUNCED, mapped_runtimes

_log = logging.getLogger(__name__)
_thread = threading.local()

ENTRY = "GOMP_parallel"
SPINS = 10_000
"""How often a waiting thread looks for work before it sleeps: for about 0.3 ms on Zen 5.

The iterations of a loop are seldom shared out evenly, and a thread that falls asleep while it waits
for the last ones comes late to the next loop. A convolution of two loops, one of 7 iterations of
80 us on two threads, takes 0.577 ms with 10,000 and more, and 0.61 with 3,000."""
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
_CARRIERS = ("xgboost-cpu", "xgboost", "scikit-learn", "torch", "lightgbm", "faiss-cpu")


@dataclass(frozen=True)
class OpenMP:
    """A loaded OpenMP runtime: its file and the handle that `dlopen` returned."""

    path: str
    library: ctypes.CDLL

    def symbol_address(self, name: str) -> int:
        """The address of a function of the runtime, `GOMP_parallel` for instance.

        Raises `AttributeError` if there is no such function.
        """
        address = ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value
        assert address is not None
        return address


@cache
def load() -> OpenMP | None:
    """The OpenMP runtime of this process, loaded by the first call.

    `None` if there is none: kernels then have to be built serial, which is logged as a warning.
    Raises `KernelError` where the system lets no file be opened.
    """
    with _short_waiting():
        found = first_usable(candidates())
    if found is None:
        _log.warning(
            "no OpenMP runtime: kernels run on one thread (install libgomp1, or a package that "
            "carries one such as xgboost-cpu)"
        )
    else:
        _log.debug("OpenMP runtime: %s", found.path)
    return found


@contextmanager
def _short_waiting() -> Iterator[None]:
    """The environment with `SPINS` for a runtime that is loaded meanwhile: it is read just then."""
    if any(name in os.environ for name in WAITING):
        yield
        return
    os.environ[WAITING[1]] = str(SPINS)
    try:
        yield
    finally:
        del os.environ[WAITING[1]]


def connect(variable: int) -> None:
    """Connect code to fork detection: its variable `Signature.teams_symbol` is at this address.

    The variable is a pointer to an integer; parallel loops run on one thread unless that is 0.
    """
    ctypes.c_void_p.from_address(variable).value = ctypes.addressof(TEAMS)


def compute_alone() -> None:
    """Make this thread run parallel regions of any library alone, if it has no thread team.

    For calls of libraries with parallel regions of their own, such as xgboost: in a forked process
    these would wait for the parent's team. Raises `KernelError` if it is not known which runtimes
    the process has.
    """
    if TEAMS.value != ALLOWED and not getattr(_thread, "alone", False):
        try:
            runtimes = mapped_runtimes()
        except OSError as error:
            raise _unknown(error) from error
        for path in runtimes:
            ctypes.CDLL(path).omp_set_num_threads(1)
        _thread.alone = True


def announce_serial() -> None:
    """Log, once in a process, that parallel kernels run on one thread here, if they do."""
    if TEAMS.value == UNANNOUNCED:
        TEAMS.value = REFUSED
        _log.warning(
            "this process was forked from one with an OpenMP runtime, whose threads it does not "
            "have: parallel kernels run on one thread (start processes by multiprocessing's "
            "'spawn' to have them run on several)"
        )


def first_usable(paths: Iterator[str]) -> OpenMP | None:
    """The first of the files that loads and is an OpenMP runtime."""
    for path in paths:
        try:
            library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            _log.debug("OpenMP candidate %s: %s", path, error)
            continue
        if hasattr(library, ENTRY):
            return OpenMP(path if "/" in path else next(_mapped(), path), library)
    return None


def candidates() -> Iterator[str]:
    """Paths where an OpenMP runtime may be, best first. No package is imported."""
    yield from _mapped()
    yield "libgomp.so.1"  # the dynamic loader knows where the system keeps it
    for package in _CARRIERS:
        yield from carried(package)


def carried(package: str) -> Iterator[str]:
    """The libgomp files inside an installed package."""
    from importlib import metadata  # it loads an email parser, and is seldom needed

    try:
        files = metadata.files(package)
    except metadata.PackageNotFoundError:
        return
    for file in files or ():
        if file.name.startswith("libgomp") and ".so" in file.name:
            path = Path(str(file.locate()))
            if path.exists():
                yield str(path)


def _mapped() -> Iterator[str]:
    """A libgomp that this process has already loaded; two would each start their own threads."""
    try:
        yield from mapped_runtimes()
    except OSError as error:
        if open_files_hint(error):  # no candidate opens either
            raise _unknown(error) from error
        return


def _unknown(error: OSError) -> KernelError:
    return KernelError(
        "it is not known which OpenMP runtimes this process has loaded: {0}",
        error,
        hint=open_files_hint(error),
    )

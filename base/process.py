"""Processes: forks of this one, children that end with their parent, and what is of one alone."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

from .errors import KernelError, TilewrightError, open_files_hint

# What is of one process, such as loaded code and open files: shared by copies, never pickled.


class InProcess:
    """A base of values that other processes cannot be given.

    A copy is the value itself. To pickle it raises an error of the kind that its class names, with
    what to do instead: pickles are sent to other processes and kept, where neither addresses nor
    connections hold.
    """

    _unpicklable: ClassVar[tuple[type[TilewrightError], str]]

    def __init_subclass__(
        cls, *, error: type[TilewrightError] | None = None, instead: str = "", **more: Any
    ) -> None:
        super().__init_subclass__(**more)
        if error is not None:
            cls._unpicklable = error, instead

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        error, instead = self._unpicklable
        raise error(
            "a {0} belongs to its process and cannot be pickled", type(self).__name__, hint=instead
        )


# Detect processes that were forked from one with an OpenMP runtime and several threads.
#
# OpenMP's thread team does not survive a fork. The child has only the forking thread, and a
# parallel region would wait for the missing threads for ever. Kernels have teams of their own
# (`codegen/cpu/thread_teams.py`), but libraries such as xgboost have parallel regions of OpenMP.
#
# Any library of the process may have created the team. Forks are therefore watched from
# `import tilewright` on.

_MAPS = Path("/proc/self/maps")
_TASKS = "/proc/self/task"
_single = False
"""Whether the process had only one thread, and so no team, at its last fork."""
_orphaned = False
"""Whether the process lacks the threads of a team that its parent had."""
_thread = threading.local()


def mapped_runtimes() -> list[str]:
    """The libgomp files that this process has loaded. Raises `OSError` if that is not known."""
    maps = _MAPS.read_text(encoding="utf-8", errors="surrogateescape")
    paths = {f"/{line.partition('/')[2]}" for line in maps.splitlines()}
    return sorted(path for path in paths if path.rpartition("/")[2].startswith("libgomp"))


def compute_alone() -> None:
    """Make this thread run parallel regions of OpenMP alone, if it has no thread team.

    For calls of libraries with parallel regions of their own: in a forked process these would wait
    for the parent's team. Raises `KernelError` if it is not known which runtimes the process has.
    """
    if _orphaned and not getattr(_thread, "alone", False):
        try:
            runtimes = mapped_runtimes()
        except OSError as error:
            raise KernelError(
                "it is not known which OpenMP runtimes this process has loaded: {0}",
                error,
                hint=open_files_hint(error),
            ) from error
        for path in runtimes:
            ctypes.CDLL(path).omp_set_num_threads(1)
        _thread.alone = True


def _forking() -> None:
    global _single  # noqa: PLW0603
    try:
        _single = len(os.listdir(_TASKS)) == 1
    except OSError:
        _single = False


def _forked() -> None:
    """Note whether a runtime was loaded before the fork and there were several threads."""
    global _orphaned  # noqa: PLW0603
    try:
        inherited = not _single and bool(mapped_runtimes())
    except OSError:
        inherited = True
    _orphaned = _orphaned or inherited


os.register_at_fork(before=_forking, after_in_child=_forked)


# How a process starts another one, and how that ends with it.

_PR_SET_PDEATHSIG = 1

NO_NUMPY_THREADS = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Variables of the environment of each child process.

A thread of numpy's libraries would wait actively while numpy is imported, for 0.05 s of processor
time, and compete with the kernel that is timed.
"""


def search_path() -> str:
    """This process's module search path, as `PYTHONPATH`, for a child to find the same modules."""
    return os.pathsep.join(path or str(Path.cwd()) for path in sys.path)


def end_with_parent(parent: int) -> None:
    """Ask to be killed when the parent (process id) dies, and exit if it is dead already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(1)


# How a worker process is kept from doing harm.

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


# Python's collector of cyclic garbage, put off.


@contextmanager
def collected_later() -> Iterator[None]:
    """Suspend the garbage collector; a context manager and a decorator.

    For work that is timed, and for work that makes much and keeps it: each time that a quarter has
    been added to what lives, the collector visits all of it.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

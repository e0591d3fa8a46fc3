"""Processes that may open no more files: builds say so, calls need none."""

from __future__ import annotations

from .test_fork import run

EXHAUST = """
import resource
from contextlib import contextmanager
from tilewright.base.errors import BuildError, KernelError, TilewrightError
from tilewright.base import process

@contextmanager
def no_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

def refused(function, kind):
    try:
        function()
    except kind as error:
        assert "Too many open files" in str(error) and "ulimit -n" in str(error), str(error)
        return True
    return False
"""


def test_the_first_build_says_that_files_are_lacking() -> None:
    run(
        EXHAUST
        + """
scheduled = program()
with no_files():
    assert refused(lambda: tw.build, TilewrightError)
tw.build
with no_files():
    assert refused(lambda: tw.build(scheduled, "cpu -threads=2"), BuildError)
assert is_right(build())
"""
    )


def test_calls_open_no_files() -> None:
    run(
        EXHAUST
        + """
mod = build()
a, b = np.ones((N, N), np.float32), np.zeros((N, N), np.float32)

def child():
    found = []
    with no_files():
        found.append(is_right(mod))
        mod.bind(a, b)()
        found.append(bool((b == 2).all()))
        found.append(mod.time(a, b).median > 0)
        try:
            mod(a)
        except TilewrightError as error:
            found.append("argument" in str(error))
        process._orphaned = True
        found.append(refused(process.compute_alone, KernelError))
    process.compute_alone()
    return found

assert is_right(mod)
assert in_child(child) == [True] * 5
"""
    )

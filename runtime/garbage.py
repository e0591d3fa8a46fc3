"""Python's collector of cyclic garbage, put off."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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

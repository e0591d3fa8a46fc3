"""Instructions that tests add from outside of the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.tir import instruction_set


@contextmanager
def forgotten() -> Iterator[None]:
    """What is registered inside is gone afterwards."""
    known = dict(instruction_set._known)
    try:
        yield
    finally:
        instruction_set._known.clear()
        instruction_set._known.update(known)
        instruction_set.forget_queries()

"""The calls of a peer for a case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..suite import Array


@dataclass(frozen=True)
class Call:
    """A kernel that is ready to be timed.

    `run` is a whole call from Python, as a user of the library writes it. `kernel`, where the
    library has such a thing, is the call with its arguments bound beforehand. `result` gives what
    the last call computed; `None` if it computes nothing. `note` is shown with the time.
    """

    run: Callable[[], Any]
    result: Callable[[], Array] | None
    kernel: Callable[[], Any] | None = None
    note: str = ""


def returning(run: Callable[[], Any], convert: Callable[[Any], Array]) -> Call:
    """A call whose result is what it returns."""
    return Call(run, lambda: convert(run()))

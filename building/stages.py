"""The seconds of a build by stage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stages:
    """The seconds of a build by stage, in the order in which stages begin."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the time until its end to a stage."""
        self.seconds.setdefault(name, 0.0)
        began = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - began

    def move(self, share: float, source: str, destination: str) -> None:
        """Count a share of the seconds of a stage as those of another."""
        moved = share * self.seconds[source]
        self.seconds[source] -= moved
        self.seconds[destination] += moved

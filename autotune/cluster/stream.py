"""Candidates on their way through a cluster: drawn by the search, built, and run.

Builders work ahead of the runners, but not by more than `AHEAD` parts for each of them, nor by more
than `MAX_HELD` bytes of code: what is drawn late is drawn by what is known by then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from ..measure.any_measurer import Numbered
from ..measure.measure_result import MeasureResult
from ..measure.worker_pool import Built
from .cluster import Cluster, Role
from .code import Compiled
from .dispatch import Job

PART = 8
"""Candidates that a worker gets at a time, at most."""
AHEAD = 2
MAX_HELD = 256 << 20


class Stream:
    """The next parts for builders and runners; a `Source`.

    Candidates have numbers: the `first` are there, and `draw` adds at most so many and returns how
    many it has added; none is the end.
    """

    def __init__(
        self,
        cluster: Cluster,
        first: int,
        draw: Callable[[int], int],
        *,
        build: Callable[[Sequence[int]], Job],
        run: Callable[[Sequence[int]], Job],
    ) -> None:
        self._cluster, self._draw = cluster, draw
        self._job = {Role.BUILD: build, Role.RUN: run}
        self._drawn, self._ended = first, False
        self._new = deque(range(first))
        self._to_run = deque[int]()
        self._code: dict[int, Built] = {}
        self._held = 0
        self._reference_alone = first == 0

    @property
    def over(self) -> bool:
        return self._ended and not self._new and not self._to_run

    def next(self, role: Role, free: int) -> Job | None:
        if self._reference_alone and role is Role.RUN:
            self._reference_alone = False
            return self._job[role]([])
        if role is Role.RUN and (self._to_run or self._cluster.of(Role.BUILD)):
            return self._part(role, self._to_run, free)
        if role is Role.BUILD and self._full:
            return None
        if not self._new and not self._ended:
            added = self._draw(PART * free)
            self._ended = added == 0
            self._new.extend(range(self._drawn, self._drawn + added))
            self._drawn += added
        return self._part(role, self._new, free)

    def built(self, numbers: Sequence[int], compiled: Sequence[Compiled]) -> Iterator[Numbered]:
        """Take in what builders made; yields those that did not build."""
        for number, each in zip(numbers, compiled, strict=True):
            if isinstance(each, MeasureResult):
                yield number, each
            else:
                self._code[number] = each
                self._held += len(each.kernel.image)
                self._to_run.append(number)

    def code(self, numbers: Sequence[int]) -> list[Compiled] | None:
        """The code of a part; `None` where its runner builds it."""
        return [self._code[n] for n in numbers] if self._code.keys() >= {*numbers} else None

    def done(self, numbers: Sequence[int]) -> None:
        """Let go the code of a part that is done."""
        for number in numbers:
            built = self._code.pop(number, None)
            self._held -= 0 if built is None else len(built.kernel.image)

    @property
    def _full(self) -> bool:
        runners = len(self._cluster.workers)
        return len(self._to_run) >= AHEAD * PART * max(1, runners) or self._held >= MAX_HELD

    def _part(self, role: Role, numbers: deque[int], free: int) -> Job | None:
        size = min(len(numbers), max(1, min(PART, -(-len(numbers) // free))))
        return self._job[role]([numbers.popleft() for _ in range(size)]) if size else None

"""The finals of a session: kernels timed in turns until it is known which are slower."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..runtime.timer import turn_seconds
from ..tuning_db.interleaved_comparison import compare, leader
from .contenders import Contender
from .measure.measured import Kernel

Interleave = Callable[[Sequence[Kernel], int], list[tuple[float, ...]] | None]


class Race:
    """Kernels that are timed in turns, at first for `rounds` rounds, in about `seconds` in all.

    Those that are slower than the fastest, as `contest` judges, take no part in what follows: as
    many rounds again as there were before, until nobody who is left may be slower. `samples` has
    those of each contender, also where timing was interrupted.

    A sample takes at least `sample_seconds`.
    """

    def __init__(
        self,
        contenders: Sequence[Contender],
        rounds: int,
        seconds: float,
        sample_seconds: float,
    ) -> None:
        self.samples: list[tuple[float, ...]] = [()] * len(contenders)
        self._contenders = contenders
        self._running = list(range(len(contenders)))
        self._next = rounds
        self._left = seconds
        self._sample_seconds = sample_seconds

    @property
    def rounds(self) -> int:
        """How many rounds come next; less than two are none."""
        if len(self._running) < 2:
            return 0
        rounds = min(self._next, int(self._left / self._turn()))
        return rounds if rounds > 1 else 0

    def run(self, interleave: Interleave) -> None:
        """Time them, until it is decided, the time is over, or one of them fails."""
        while rounds := self.rounds:
            rows = interleave([self._contenders[n].kernel for n in self._running], rounds)
            if rows is None:
                return
            self._left -= rounds * self._turn()
            for n, row in zip(self._running, rows, strict=True):
                self.samples[n] += row
            self._next = len(self.samples[self._running[0]])
            self._judge()

    def _judge(self) -> None:
        first = leader(self.samples)
        compared = {n: compare(self.samples[n], self.samples[first]) for n in self._running}
        if all(c.settled for n, c in compared.items() if n != first):
            self._running = []
        else:
            self._running = [n for n in self._running if n == first or not compared[n].slower]

    def _turn(self) -> float:
        """About how long a round takes."""
        seconds = [self._contenders[n].seconds for n in self._running]
        return max(1e-9, sum(turn_seconds(s, self._sample_seconds) for s in seconds))

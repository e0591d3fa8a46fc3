"""The budget of a tuning session: trials and seconds, and the part of them that is spent.

When a session ends before its budget is used up.

Requests to stop, from the keyboard or by a signal, noticed where stopping is safe.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from types import FrameType
from typing import Any, Self

from ...base.durations import format_ratio, format_seconds
from ...base.errors import TuningError
from ..model.target_model import Roofline

_MAX_TRIALS = 10_000_000
_PAUSE = timedelta(seconds=60)
"""A session in which nothing happened for longer was not running all the time."""


@dataclass(frozen=True)
class Budget:
    """A number of new measurements and of wall-clock seconds; `None` is no limit.

    A session ends when the first of them is used up. Raises `TuningError` for a limit that is no
    positive number.
    """

    trials: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.trials is not None:
            _check("trials", self.trials, isinstance(self.trials, int), _MAX_TRIALS)
        if self.seconds is not None:
            _check("seconds", self.seconds, isinstance(self.seconds, (int, float)), math.inf)


def budget_text(trials: int | None, seconds: float | None) -> str:
    """A budget as text, `300 trials or 60 s` for instance."""
    parts = [] if trials is None else [f"{trials} trials"]
    return " or ".join([*parts, *([] if seconds is None else [f"{seconds:g} s"])])


class Meter:
    """The rest of a budget. `trials` is the number of those done."""

    def __init__(self, budget: Budget, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.budget = budget
        self.trials = 0
        self._clock = clock
        self._began = clock()
        self._before = 0.0
        self._lap = self._began

    def lap(self) -> float:
        """Seconds since the last lap, which ends here."""
        last, self._lap = self._lap, self._clock()
        return self._lap - last

    @property
    def since_lap(self) -> float:
        """Seconds since the last lap, which goes on."""
        return self._clock() - self._lap

    def spend(self, trials: int, seconds: float = 0.0) -> None:
        """Count the trials and seconds that an earlier run has used."""
        self.trials += trials
        self._before += seconds

    @property
    def elapsed(self) -> float:
        """Seconds of this run and of the earlier ones that it continues."""
        return self._before + self._clock() - self._began

    @property
    def trials_left(self) -> int | None:
        limit = self.budget.trials
        return None if limit is None else max(0, limit - self.trials)

    @property
    def seconds_left(self) -> float | None:
        limit = self.budget.seconds
        return None if limit is None else max(0.0, limit - self.elapsed)

    @property
    def spent(self) -> str | None:
        """The part of the budget that is used up, as a sentence; `None` while none is."""
        if self.trials_left == 0:
            one = self.budget.trials == 1
            return "the one trial is done" if one else f"all {self.budget.trials} trials are done"
        if self.seconds_left == 0:
            return f"the {self.budget.seconds:g} seconds are over"
        return None

    def batch(self, size: int, among: int = 1) -> int:
        """The size of the next batch: at most `size`, and a share if `among` programs wait."""
        left = self.trials_left
        return size if left is None else min(size, max(1, left // among))


def _check(name: str, value: Any, is_number: bool, most: float) -> None:
    if isinstance(value, bool) or not is_number:
        raise TuningError("{0}: expected a number, found {1!r}", name, value)
    if not (value > 0 and value <= most and math.isfinite(value)):
        raise TuningError(
            "{0}={1!r} is no budget; expected more than 0",
            name,
            value,
            hint="tune measures; `build` without a record chooses a schedule by the model alone",
        )


def running(moments: Iterable[datetime]) -> float:
    """The seconds between the first and the last moment, without long pauses between moments."""
    return max(running_at(moments).values(), default=0.0)


def running_at(moments: Iterable[datetime]) -> dict[datetime, float]:
    """The `running` seconds until each of the moments."""
    ordered = sorted(moments)
    pauses = (min(end - begin, _PAUSE).total_seconds() for begin, end in pairwise(ordered))
    return dict(zip(ordered, accumulate(pauses, initial=0.0), strict=True)) if ordered else {}


def parts(moments: Iterable[tuple[datetime, str]]) -> dict[str, float]:
    """The `running` seconds of several (names) that work in turns, of the moments of each.

    The time between two moments is of the one whose moment ends it.
    """
    ordered = sorted(moments)
    times = dict.fromkeys((name for _, name in ordered), timedelta())
    for (begin, _), (end, name) in pairwise(ordered):
        times[name] += min(end - begin, _PAUSE)
    return {name: time.total_seconds() for name, time in times.items()}


@dataclass(frozen=True)
class StopRules:
    """`stop_at` is a share of the roofline: a program that reaches it gets no more trials.

    `min_gain` ends the session once a second of tuning is expected to gain less than that share of
    the programs' time. Raises `TuningError` for values that are none.
    """

    stop_at: float | None = None
    min_gain: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not (number and 0 < value <= 1 and math.isfinite(value)):
                raise TuningError(
                    "{0}={1!r}: expected a share of more than 0 and at most 1", name, value
                )

    def reached(self, best: float | None, roof: Roofline) -> str | None:
        """The reason why a program needs no more trials; `None` if it does."""
        if self.stop_at is None or best is None or best * self.stop_at > roof.seconds:
            return None
        share = roof.seconds / best
        return f"{format_seconds(best)} is {share:.0%} of the roofline ({roof})"

    def futile(self, gain: float | None) -> str | None:
        """The reason to stop if a second is expected to `gain` that share; `None` to go on."""
        if self.min_gain is None or gain is None or gain >= self.min_gain:
            return None
        share = format_ratio(gain)
        return f"a second of tuning is expected to gain {share} of the time, below min_gain"


_DEFAULTS: dict[signal.Signals, Callable[[int, FrameType | None], object] | signal.Handlers] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


class Interrupts:
    """A context manager that defers the first SIGINT, SIGTERM or SIGHUP until `check` is called.

    `say` is called when that signal arrives, from its handler: to stop may take a while.

    A second signal has its usual effect at once. SIGTERM and SIGHUP still end the process: on
    leaving, the deferred signal is raised again, with its default action. So is a SIGINT if no
    `check` came after it.

    Handlers are installed in the main thread only, where Python delivers signals, and only for
    signals that the program does not handle itself. On leaving, the defaults are restored. Other
    threads set `stop`, which counts as an interrupt.
    """

    def __init__(
        self, stop: threading.Event | None = None, say: Callable[[], None] = lambda: None
    ) -> None:
        self._stop = stop
        self._say = say
        self._noted: signal.Signals | None = None
        self._installed: list[signal.Signals] = []
        self._raised = False

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if there was a request to stop."""
        if self._noted is not None:
            self._raised = True
            raise KeyboardInterrupt
        if self._stop is not None and self._stop.is_set():
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number, default in _DEFAULTS.items():
                if signal.getsignal(number) == default:
                    signal.signal(number, self._note)
                    self._installed.append(number)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number in self._installed:
            if signal.getsignal(number) == self._note:  # a callback may have installed its own
                signal.signal(number, _DEFAULTS[number])
        self._installed.clear()
        unseen = not self._raised and kind is None
        if self._noted is not None and (unseen or self._noted is not signal.SIGINT):
            signal.raise_signal(self._noted)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self._noted is None:
            self._noted = signal.Signals(number)
            self._say()
            return
        self._raised = True  # by the default handler: it is not raised once more at the end
        signal.signal(number, _DEFAULTS[signal.Signals(number)])
        signal.raise_signal(number)


# The expected gain of another measurement of a program: it shares budgets and ends sessions.

_WINDOW = 3
"""Batches over which the trend is taken."""
_TREND = 0.2
"""The weight of the trend beside that of what may be left."""


@dataclass
class Progress:
    """The course of a search: after each batch, the trials done and the best seconds.

    `limit` is a lower bound of the time. `seconds` is the duration of the trials of this session.
    """

    limit: float
    points: list[tuple[int, float]]
    trials: int = 0
    seconds: float = 0.0

    def add(self, trials: int, seconds: float, best: float | None) -> None:
        """Count a batch of `trials` that took `seconds`; `best` is the best time after it."""
        self.trials += trials
        self.seconds += seconds
        if best is not None:
            self.points.append((self.trials, best))

    @property
    def best(self) -> float | None:
        return self.points[-1][1] if self.points else None

    @property
    def seconds_per_trial(self) -> float | None:
        return self.seconds / self.trials if self.trials else None

    @property
    def gain(self) -> float | None:
        """The seconds of a call that the next trial is expected to save; `None` if nothing ran.

        The gradient of Ansor's task scheduler (Zheng et al., OSDI 2020, section 6): a mean of the
        trend of the last batches and of an optimistic guess, that as many trials again reach the
        limit. The limit is the roofline in place of zero, and of similar tasks.
        """
        if not self.points:
            return None
        trials, best = self.points[-1]
        trend = 0.0
        if len(self.points) > 1:
            since, then = self.points[max(0, len(self.points) - 1 - _WINDOW)]
            trend = max(0.0, then - best) / max(1, trials - since)
        left = max(0.0, best - self.limit) / max(1, trials)
        return _TREND * trend + (1 - _TREND) * left


def most_promising(sessions: Sequence[Progress], weights: Sequence[float]) -> int:
    """Which program the next batch is expected to gain most for, in weighted seconds of a call.

    One that was not tried yet comes first; one of which nothing ran gets its turn by trials.
    """
    untried = [n for n, progress in enumerate(sessions) if not progress.trials]
    if untried:
        return untried[0]
    failing = [n for n, progress in enumerate(sessions) if progress.gain is None]
    if failing:
        least = min(failing, key=lambda n: sessions[n].trials)
        if sessions[least].trials <= min(progress.trials for progress in sessions):
            return least
    gains = [w * (c.gain or 0.0) for c, w in zip(sessions, weights, strict=True)]
    return max(range(len(sessions)), key=lambda n: gains[n])


def relative_gain(sessions: Sequence[Progress], weights: Sequence[float]) -> float | None:
    """The gain that is expected of a second of tuning, as a share of the weighted time of all.

    Of the most promising program; `None` before all of them have run.
    """
    total = best = 0.0
    for progress, weight in zip(sessions, weights, strict=True):
        if progress.gain is None or progress.best is None or not progress.seconds_per_trial:
            return None
        total += weight * progress.best
        best = max(best, weight * progress.gain / progress.seconds_per_trial)
    return best / total

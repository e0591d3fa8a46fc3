"""The progress of a session for people: a live picture in a terminal, plain lines elsewhere.

with LiveDisplay() as display:
    tune(func, database=db, callback=display)
"""

from __future__ import annotations

from collections import Counter
from math import log
from typing import TYPE_CHECKING, Self

from ..durations import format_measured
from ..ids import short_id
from ..tuning_db.gains import gains_text
from ..tuning_db.interleaved_comparison import finalist_times
from ..tuning_db.values import ComparedSchedule, Outcome
from .drift import drift_text
from .events import Batch, Drift, Ended, Event, Final, Started, Trial, Waiting
from .result import origin_text, slower_finals_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 32
_ERROR = 120
_CALM = 0.1
"""The share by which the time of a kernel may change unmentioned."""


class LiveDisplay:
    """A callback for `tune` that shows the progress of a session; a context manager.

    `console` is one of rich, by default on the standard error.
    """

    def __init__(self, console: Console | None = None) -> None:
        if console is None:
            from rich.console import Console

            console = Console(stderr=True)
        self._console = console
        self._live: Live | None = None
        self._pictures: dict[int, Picture] = {}

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            from rich.live import Live

            # Drawn at events only: a thread that draws would disturb what is being timed.
            self._live = Live(console=self._console, auto_refresh=False, transient=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            self._pictures[event.program] = Picture(event)
        picture = self._pictures[event.program]
        picture.add(event)
        if self._live is not None:
            self._live.update(self._render(picture), refresh=True)
            if all(p.ended for p in self._pictures.values()):
                self._live.stop()  # a signal may end the process next, and the cursor is hidden
            return
        line = picture.line(event)
        if line is not None:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _render(self, now: Picture) -> RenderableType:
        """The programs that share the budget a line each, the one at work in full."""
        from rich.console import Group

        pictures = self._pictures.values()
        return Group(*(p.render() if p is now else p.summary() for p in pictures))


class Picture:
    """The state of a program's session as it is displayed, collected from its events."""

    def __init__(self, started: Started) -> None:
        self._started = started
        self._trials = started.done
        self._best = started.best_seconds
        self._curve: list[float] = []
        self._outcomes: Counter[Outcome] = Counter()
        self._interval: tuple[float, float] | None = None
        self._doing = "starting"
        self._elapsed = 0.0
        self._error: str | None = None
        self._comparison: tuple[ComparedSchedule, ...] = ()
        self._gains: str | None = None
        self._slower: str | None = None
        self._origin = ""
        self._kept: str | None = None
        self.ended = False

    def add(self, event: Event) -> None:
        """Update the picture by an event."""
        match event:
            case Started():
                return
            case Batch(number=number, size=size):
                self._doing = f"batch {number}: building {size} candidates"
            case Trial():
                self._add_trial(event)
            case Waiting(what=what):
                self._doing = what
            case Drift(ratio=ratio):
                self._doing = drift_text(ratio, finals=event.finals)
                if abs(ratio - 1) <= _CALM:
                    self._doing = "timing"
            case Final(comparison=comparison, gains=gains, trial_seconds=trial):
                self._doing, self._comparison = "compared the finalists", comparison
                self._gains = gains_text(gains, explained=True)
                self._slower = slower_finals_text(trial, comparison[0].seconds)
            case Ended(reason=reason, best_seconds=best, best_interval=interval):
                self._doing, self._best, self.ended = reason, best, True
                self._interval = interval
                self._kept = event.kept
                if event.best_session is not None:
                    here = self._started.session
                    self._origin = origin_text(event.best_session, here, event.own_seconds)
        self._elapsed = event.elapsed

    def line(self, event: Event) -> str | None:
        """The line to print for an event without a terminal; `None` if there is none."""
        match event:
            case Started(workload=workload, target=target, known=known):
                kept = f", {known} schedules are known" if known else ""
                return f"tuning {workload} for {target}{kept}"
            case Trial(number=number, record=True, elapsed=elapsed):
                progress = f"{self._which()}{self.rate(self._best)} after {elapsed:.1f} s"
                return f"trial {number}{self._of()}: {progress}"
            case Trial(number=number, error=str(error), outcome=outcome):
                which = self._which()
                return f"trial {number}{self._of()}: {which}{outcome}: {_shortened(error)}"
            case Drift(ratio=ratio) if abs(ratio - 1) > _CALM:
                return f"{self._which()}{drift_text(ratio, finals=event.finals)}"
            case Final():
                lines = f"{self._which()}finals:", *self._finalists(), *self._conclusions()
                return "\n".join(lines)
            case Ended(elapsed=elapsed):
                best = f"{self._which()}{self.rate(self._best)}"
                count = self._outcomes.total() if self._which() else self._trials
                ended = f"{best} after {count} trials in {elapsed:.1f} s: {self._doing}"
                return ended if event.kept is None else f"{ended}\n{self._which()}{event.kept}"
            case _:
                return None

    def rate(self, seconds: float | None) -> str:
        """The best time, at the end with its interval, its floating-point rate and its session."""
        if seconds is None:
            return "no result yet"
        flops = self._started.flops
        speed = f", {flops / seconds / 1e9:.1f} GFLOP/s" if flops and seconds > 0 else ""
        return f"best {format_measured(seconds, self._interval)}{speed}{self._origin}"

    def summary(self) -> RenderableType:
        """The picture in a line."""
        from rich.text import Text

        return Text.assemble(
            (self._which(), "bold"),
            (self.rate(self._best), "green"),
            (f"  {self._outcomes.total()} trials", "dim"),
            no_wrap=True,
            overflow="ellipsis",
        )

    def render(self) -> RenderableType:
        """The whole picture."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        head = Table.grid(padding=(0, 2))
        head.add_row(Text(self._started.workload, "bold"), Text(self._started.target, "dim"))
        total, done = self._progress()
        bar = Table.grid(padding=(0, 2))
        bar.add_row(
            ProgressBar(total=total, completed=min(done, total), width=_WIDTH),
            Text(f"trial {self._trials}{self._of()}"),
            Text(self.rate(self._best), "bold green"),
            Text(f"{self._elapsed:.0f} s", "dim"),
        )
        counts = "  ".join(f"{outcome} {n}" for outcome, n in sorted(self._outcomes.items()))
        rows: list[RenderableType] = [head, bar]
        if self._curve:
            rows.append(Text.assemble((sparkline(self._curve, _WIDTH), "cyan"), "  ", counts))
        rows += [Text(line, no_wrap=True, overflow="ellipsis") for line in self._finalists()]
        rows += [Text(line) for line in self._conclusions()]
        rows.append(Text(self._doing, "dim"))
        if self._kept is not None:
            rows.append(Text(self._kept))
        if self._error is not None:
            rows.append(Text(self._error, "yellow", no_wrap=True, overflow="ellipsis"))
        return Group(*rows)

    def _add_trial(self, event: Trial) -> None:
        self._trials, self._best = event.number, event.best_seconds
        self._outcomes[event.outcome] += 1
        self._doing = "timing"
        if event.best_seconds is not None:
            self._curve.append(event.best_seconds)
        if event.error is not None:
            self._error = f"trial {event.number} {event.outcome}: {_shortened(event.error)}"

    def _finalists(self) -> list[str]:
        """The finalists, a line each, the choice first."""
        times = finalist_times(self._comparison)
        widest = max(map(len, times), default=0)
        return [
            f"{'->' if n == 0 else '  '} {short_id(compared.schedule)}  {time:{widest}}  {compared}"
            for n, (compared, time) in enumerate(zip(self._comparison, times, strict=True))
        ]

    def _conclusions(self) -> list[str]:
        """Why the choice is slower than in its trial, and what it gained."""
        return [text for text in (self._slower, self._gains) if text is not None]

    def _which(self) -> str:
        """The program and a colon, where several share the budget."""
        return "" if self._started.programs == 1 else f"{self._started.workload}: "

    def _of(self) -> str:
        trials = self._started.trials
        return "" if trials is None else f"/{trials}"

    def _progress(self) -> tuple[float, float]:
        """The size and the used part of the budget: of trials or seconds, which will end first."""
        parts = []
        if self._started.trials is not None:
            parts.append((float(self._started.trials), float(self._trials)))
        if self._started.seconds is not None:
            parts.append((self._started.seconds, self._elapsed))
        return max(parts, key=lambda part: part[1] / part[0], default=(1.0, 0.0))


def sparkline(values: list[float], width: int) -> str:
    """The course of positive values as at most `width` bars on a logarithmic scale."""
    step = max(1.0, len(values) / width)
    picked = [values[min(len(values) - 1, int(k * step))] for k in range(min(width, len(values)))]
    picked[-1] = values[-1]
    logs = [log(v) for v in picked]
    low, high = min(logs), max(logs)
    if high == low:
        return _BARS[0] * len(logs)
    return "".join(_BARS[round((v - low) / (high - low) * (len(_BARS) - 1))] for v in logs)


def _shortened(error: str) -> str:
    line = error.strip().splitlines()[0] if error.strip() else ""
    return line if len(line) <= _ERROR else f"{line[: _ERROR - 3]}..."

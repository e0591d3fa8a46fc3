"""The progress of a session in a terminal, live, and as plain lines in logs and pipes."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import TYPE_CHECKING, Self

from ...base.text import count, printable
from ...tuning_db.interleaved_comparison import FINALISTS_SHOWN
from ..session.events import Event, Started
from .picture import Picture

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.-=*#"
_WIDTH = 32
_HANG = " " * 5
"""Behind the mark of a finalist."""


class LiveDisplay:
    """A callback for `tune` that shows the progress of sessions; a context manager.

    `console` is one of rich, by default on the standard error. In a terminal the picture is drawn
    anew at each event, elsewhere lines are printed; `live=False` prints lines in terminals too.
    """

    def __init__(self, console: Console | None = None, *, live: bool = True) -> None:
        if console is None:
            from rich.console import Console

            console = Console(stderr=True)
        self._console = console
        self._wanted = live and console.is_terminal
        self._live: Live | None = None
        self._pictures: dict[int, Picture] = {}

    def __enter__(self) -> Self:
        if self._wanted:
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
        self.show([event])

    def show(self, events: Sequence[Event]) -> None:
        """Show several events, by one drawing after the last."""
        for event in events:
            if isinstance(event, Started):
                self._pictures[event.program] = Picture(event)
            picture = self._pictures[event.program]
            picture.add(event)
            if self._live is None and (line := picture.line(event)) is not None:
                self.say(line)
        if self._live is not None and events:
            self._live.update(self._render(self._pictures[events[-1].program]), refresh=True)
            if all(p.ended for p in self._pictures.values()):
                self._live.stop()  # a signal may end the process next, and the cursor is hidden

    def say(self, line: str) -> None:
        """Print a line, in a terminal above the picture."""
        text = writable(line, self._console)
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _render(self, now: Picture) -> RenderableType:
        """The programs that share the budget a line each, the one at work in full."""
        from rich.console import Group

        pictures = self._pictures.values()
        return Group(
            *(
                render(p, self._console) if p is now else _summary(p, self._console)
                for p in pictures
            )
        )


def render(picture: Picture, console: Console) -> RenderableType:
    """The whole picture of a session, for a console of any width and character set."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.progress_bar import ProgressBar

    started = picture.started

    def line(text: str, style: str = "", *, cut: bool = False) -> Text:
        return _text(text, style, console, cut=cut)

    total, done = picture.progress
    bar = Padding(ProgressBar(total=total, completed=min(done, total), width=_WIDTH), 0)
    head = [line(started.workload, "bold"), line(started.target, "dim")]
    facts = [line(picture.trial), line(picture.rate, "bold green")]
    facts.append(line(f"{picture.elapsed:.0f} s", "dim"))
    rows: list[RenderableType] = [*_joined(head, console), bar, *_joined(facts, console)]
    if picture.trials:
        best = [t.best_seconds for t in picture.trials if t.best_seconds is not None]
        course = [line(sparkline(best, _WIDTH, _bars(console)), "cyan")] if best else []
        rows += _joined([*course, line(picture.counts)], console)
    if picture.predicted is not None:
        rows.append(line(picture.predicted, "dim"))
    if (calm := picture.calm) is not None:
        rows.append(line(calm, "dim" if picture.is_calm else "yellow"))
    finalists = picture.finalists
    for text in finalists[:FINALISTS_SHOWN]:
        rows += _hanging(line(text), console)
    if (more := len(finalists) - FINALISTS_SHOWN) > 0:
        rows.append(line(f"   ... {more} more"))
    rows.append(line(picture.doing, "dim"))
    rows += [line(text) for text in picture.conclusions]
    if picture.failed is not None:
        rows.append(line(picture.failed, "yellow", cut=True))
    return Group(*rows)


def writable(text: str, console: Console) -> str:
    """A text without control characters, and without what the console cannot write."""
    shown = printable(text.replace("\t", " "))
    return shown.encode(console.encoding, "replace").decode(console.encoding)


def sparkline(values: list[float], width: int, bars: str = _BARS) -> str:
    """The course of positive values as at most `width` bars on a logarithmic scale."""
    step = max(1.0, len(values) / width)
    picked = [values[min(len(values) - 1, int(k * step))] for k in range(min(width, len(values)))]
    picked[-1] = values[-1]
    logs = [log(v) for v in picked]
    low, high = min(logs), max(logs)
    if high == low:
        return bars[0] * len(logs)
    return "".join(bars[round((v - low) / (high - low) * (len(bars) - 1))] for v in logs)


def _summary(picture: Picture, console: Console) -> RenderableType:
    """The picture in a line."""
    trials = f"  {count(picture.outcomes.total(), 'trial')}"
    return _text(f"{picture.which}{picture.rate}{trials}", "", console, cut=True)


def _text(text: str, style: str, console: Console, *, cut: bool = False) -> Text:
    from rich.text import Text

    shown = Text(writable(text, console), style, no_wrap=cut, overflow="crop" if cut else "fold")
    if cut and _is_unicode(console):
        shown.overflow = "ellipsis"
    return shown


def _joined(parts: list[Text], console: Console) -> list[RenderableType]:
    """The parts in one line, or each in its own where they do not fit."""
    from rich.text import Text

    joined = Text("  ").join(parts)
    return [joined] if len(joined) <= console.width else list(parts)


def _hanging(line: Text, console: Console) -> list[Text]:
    """A line, or its parts where it does not fit; those behind the first are indented."""
    from rich.text import Text

    if len(line) <= console.width:
        return [line]
    first = line.wrap(console, console.width)[0]
    rest = line.plain[len(first) :].lstrip()
    later = line[len(line) - len(rest) :].wrap(console, max(1, console.width - len(_HANG)))
    parts = [first, *(Text(_HANG).append_text(part) for part in later)]
    for part in parts:
        part.rstrip()
    return parts


def _bars(console: Console) -> str:
    return _BARS if _is_unicode(console) else _ASCII_BARS


def _is_unicode(console: Console) -> bool:
    return console.encoding.lower().startswith("utf")

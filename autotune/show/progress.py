"""Which display shows the progress of a run; its failures do not reach the run."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol, Self

from ..result import TuneResult
from ..session.events import Callback, Event, Trial, ignore
from .display import LiveDisplay
from .picture import Moment, Pictures

# The progress of a session in a notebook: one output of the cell, which is updated.
#
# The picture is HTML of `lab`, asked through `display`. It is drawn while candidates are built.
# While they are timed it is drawn seldom: the browser may run on the same machine.

_BETWEEN = 0.5
"""Seconds between drawings, at least, unless a session ends."""
_BETWEEN_TRIALS = 3.0
"""The same after trials, when the next candidate is about to be timed."""
_NEWER = "a newer one of the run is live"
_NOTHING = {"text/html": "", "text/plain": ""}


class NotebookDisplay:
    """A callback for `tune` that shows the progress of sessions in the output of a cell.

    It draws `pictures`, which have the event already. A cell whose value is the result of the
    session shows that in its place.

    The output is made at once, in the cell that runs; other threads may then update it. Once the
    front end or its connection is gone, drawing raises. `in_cell` is whether that cell still runs.
    """

    def __init__(self, pictures: Pictures, clock: Callable[[], float] = time.monotonic) -> None:
        from IPython import get_ipython
        from IPython.display import display

        self._pictures = pictures
        self._clock = clock
        self._last = clock()
        self._handle: Any = display(pictures, display_id=True)  # type: ignore[no-untyped-call]
        self._shell: Any = get_ipython()
        self.in_cell = self._shell is not None
        if self.in_cell:
            self._shell.events.register("post_run_cell", self._leave_cell)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """Draw the end, and what ended it."""
        if error is not None:
            self._pictures.fail(error)
            self.draw()

    def __call__(self, event: Event) -> None:
        now = self._clock()
        between = _BETWEEN_TRIALS if isinstance(event, Trial) else _BETWEEN
        if self._pictures.ended or now - self._last >= between:
            self._last = now
            self.draw()

    def draw(self) -> None:
        """Draw what is known now."""
        self._handle.update(self._pictures)

    def rest(self) -> None:
        """Draw what is known now, and that newer outputs are live."""
        self._handle.update(Moment(self._pictures, _NEWER))

    def _leave_cell(self, cell: Any) -> None:
        self.in_cell = False
        self._shell.events.unregister("post_run_cell", self._leave_cell)
        shown = [picture.started.session for picture in self._pictures.pictures.values()]
        if isinstance(cell.result, TuneResult) and shown == [cell.result.session]:
            self._handle.update(_NOTHING, raw=True)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


_log = logging.getLogger(__name__)


class Display(AbstractContextManager["Display"], Protocol):
    """Something that shows events from when it is entered."""

    def __call__(self, event: Event) -> object: ...


class SafeDisplay:
    """A callback that shows the progress of a run by a display; a context manager.

    A display that fails, because its terminal was closed or its front end is gone, is told in the
    log and is off from then on: every measurement is stored before it is shown, and the run goes
    on.
    """

    def __init__(self, display: Display) -> None:
        self._display = display
        self._failed = False

    def __enter__(self) -> Self:
        self.attempt(self._display.__enter__)
        return self

    def __exit__(self, *error: object) -> None:
        self.attempt(self._display.__exit__, *error)

    def __call__(self, event: Event) -> None:
        self.attempt(self._display, event)

    def attempt(self, action: Callable[..., object], *arguments: object) -> None:
        """Let the display do something, unless it failed before."""
        if self._failed:
            return
        try:
            action(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, the measurements go on
            self._failed = True
            _log.warning("the display of progress failed and is off: %r", error)


def progress_here(pictures: Pictures, *, background: bool = False) -> SafeDisplay:
    """The progress of a run that this thread starts: in a notebook, a terminal, or as lines.

    A notebook shows the `pictures`, to which the caller adds each event before it is shown.
    In the `background` of a terminal lines are printed: its screen is the user's.
    """
    if in_notebook():
        return SafeDisplay(NotebookDisplay(pictures))
    return SafeDisplay(LiveDisplay(live=not background))


def each_of(*given: Callback | None) -> Callback:
    """A callback that calls those that are there, in their order."""
    callbacks = [callback for callback in given if callback is not None]
    if not callbacks:
        return ignore

    def call(event: Event) -> None:
        for callback in callbacks:
            callback(event)

    return call

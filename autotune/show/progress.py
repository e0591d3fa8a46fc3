"""Which display shows the progress of a run; its failures do not reach the run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, Self

from ..session.events import Callback, Event, ignore
from .display import LiveDisplay
from .notebook import NotebookDisplay, in_notebook
from .picture import Pictures

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

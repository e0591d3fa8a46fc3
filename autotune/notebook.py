"""The progress of a session in a notebook: one output of the cell, which is updated.

The picture is HTML of `lab`, asked through `display`. It is drawn while candidates are built. While
they are timed it is drawn seldom: the browser may run on the same machine.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Self

from .events import Event, Trial
from .picture import Pictures

_BETWEEN = 0.5
"""Seconds between drawings, at least, unless a session ends."""
_BETWEEN_TRIALS = 3.0
"""The same after trials, when the next candidate is about to be timed."""


class NotebookDisplay:
    """A callback for `tune` that shows the progress of sessions in the output of a cell.

    It collects the events, or draws `pictures` that somebody else has updated by the event.

    The output is made at once, in the cell that runs; other threads may then update it. Once the
    front end or its connection is gone, drawing raises. `in_cell` is whether that cell still runs.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, pictures: Pictures | None = None
    ) -> None:
        from IPython import get_ipython
        from IPython.display import display

        self.shown = Pictures() if pictures is None else pictures
        self._collects = pictures is None
        self._clock = clock
        self._last = clock()
        self._handle: Any = display(self.shown, display_id=True)  # type: ignore[no-untyped-call]
        self._shell: Any = get_ipython()
        self.in_cell = self._shell is not None
        if self.in_cell:
            self._shell.events.register("post_run_cell", self._leave_cell)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing: what is shown stays."""

    def __call__(self, event: Event) -> None:
        if self._collects:
            self.shown.add(event)
        now = self._clock()
        between = _BETWEEN_TRIALS if isinstance(event, Trial) else _BETWEEN
        if self.shown.ended or now - self._last >= between:
            self._last = now
            self.draw()

    def draw(self) -> None:
        """Draw what is known now."""
        self._handle.update(self.shown)

    def _leave_cell(self, _: object) -> None:
        self.in_cell = False
        self._shell.events.unregister("post_run_cell", self._leave_cell)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None

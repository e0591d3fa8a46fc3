"""The progress of a session in a notebook: one output of the cell, which is updated.

The picture is HTML of `lab`, asked through `display`. It is drawn while candidates are built. While
they are timed it is drawn seldom: the browser may run on the same machine.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from ..result import TuneResult
from ..session.events import Event, Trial
from .picture import Moment, Pictures

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

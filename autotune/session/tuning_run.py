"""A tuning session that runs in a thread of this process, while the program goes on."""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, wait
from textwrap import indent
from typing import Any, Generic, TypeVar

from ...base.display import html
from ...base.errors import TuningError
from ...base.hints import Hinted
from ...base.process import InProcess
from ...base.text import LINE
from ..result import BestResult
from ..show.picture import Pictures
from ..show.progress import NotebookDisplay, SafeDisplay, in_notebook
from .events import Callback, Event
from .session import Tuning

_log = logging.getLogger(__name__)
_GRACE = 10.0
"""Seconds that a run gets to end well when the process exits."""
_LIVE = 4
"""The newest outputs of a run that are live: each drawing takes time of the process that tunes."""
R = TypeVar("R")
"""The result: of one program a `TuneResult`, of several a list of them."""
B = TypeVar("B")
"""The best of one program, or a list of the best of each."""

Work = Callable[[threading.Event, Callback | None, list[Tuning]], R]
"""Tunes until it is done or the event is set; puts its sessions into the list."""


_INSTEAD = 'open it there: tw.open_run("tuning.db")'


class TuningRun(InProcess, Hinted, Generic[R, B], error=TuningError, instead=_INSTEAD):
    """A run of `tune(..., background=True)`.

    `best` is the fastest schedule so far, `done` whether the run has ended. `stop()` asks it to
    end, and `result()` waits for its result; so does `await`. What the run raises is raised there,
    and is logged when it happens. In a notebook it shows itself live.

    The run ends with the process: it is stopped when the interpreter exits, and its worker
    processes die with it. Everything it has measured is in the database; `tw.open_run` shows it
    from there, and `tune(..., resume=True)` continues it.
    """

    def __init__(
        self,
        work: Work[R],
        choose: Callable[[Sequence[BestResult | None]], B],
        *,
        shown: bool = False,
    ) -> None:
        """Begin the run; `shown` in the cell of a notebook that runs."""
        self.pictures = Pictures()
        self._outputs: list[tuple[NotebookDisplay, SafeDisplay]] = []
        if shown:
            self._show()
        self._choose = choose
        self._tunings: list[Tuning] = []
        self._stop = threading.Event()
        self._future: Future[R] = Future()
        self._future.set_running_or_notify_cancel()  # what waits for it cannot cancel it
        self._thread = threading.Thread(
            target=self._run, args=(work,), name="tilewright-tune", daemon=True
        )
        self._thread.start()
        _RUNS.add(self)

    @property
    def done(self) -> bool:
        """Whether it has ended, with a result or an error."""
        return self._future.done()

    @property
    def best(self) -> B:
        """The fastest schedule so far, `None` while none is known.

        Of several programs it is a list as long as they are, from the beginning.
        """
        return self._choose([tuning.best for tuning in self._tunings])

    @property
    def sessions(self) -> list[str]:
        """The ids of the sessions in the database, one for each program; empty at first."""
        return [tuning.recorder.session.id for tuning in self._tunings]

    def stop(self) -> None:
        """Ask the run to end as an interrupt would end it: the result has the best so far."""
        self._stop.set()

    def result(self, timeout: float | None = None) -> R:
        """Wait for the result. What the run raised is raised.

        Raises `TimeoutError` after `timeout` seconds; that and an interrupt leave the run alone.
        """
        wait([self._future], timeout)
        if not self.done:
            raise TimeoutError(
                f"the run goes on: it has no result after {timeout:g} s; run.best is the best so "
                "far, run.result() waits to the end, and run.stop() ends it"
            )
        return self._future.result()

    def __await__(self) -> Generator[Any, None, R]:
        return asyncio.wrap_future(self._future).__await__()

    def __repr__(self) -> str:
        pictures = indent(self.pictures.text(LINE - 3), "  ")
        state = "stopping" if self._stop.is_set() else "running"
        return f"<TuningRun, {'ended' if self.done else state}:\n{pictures}>"

    _repr_html_ = html

    def _ipython_display_(self) -> None:
        """Show the run in the output of a cell, which is live until the run ends.

        The thread that tunes updates it, so nothing is left when that ends. A cell that shows the
        run already shows no second picture of it. Where no cell can be updated, IPython shows the
        picture of the moment instead.
        """
        if any(output.in_cell for output, _ in self._outputs):
            return
        if self.done or not in_notebook():
            raise NotImplementedError
        output = self._show()
        if self._future.done():  # meanwhile
            output.draw()

    def _show(self) -> NotebookDisplay:
        """Make an output of the cell that runs, which is live."""
        output = NotebookDisplay(self.pictures)
        self._outputs.append((output, SafeDisplay(output)))
        for former, safe in self._outputs[-_LIVE - 1 : -_LIVE]:
            safe.attempt(former.rest)
        return output

    def _run(self, work: Work[R]) -> None:
        try:
            result = work(self._stop, self._see, self._tunings)
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            self.pictures.fail(error)
            _log.error("tuning in the background failed: %s", error)
            self._future.set_exception(error)
        else:
            self._future.set_result(result)
        # Behind the future: an output that is made from here on is drawn by the one who makes it.
        for output, safe in list(self._outputs):
            safe.attempt(output.draw)

    def _see(self, event: Event) -> None:
        self.pictures.add(event)
        for _, output in self._outputs[-_LIVE:]:
            output(event)


_RUNS: weakref.WeakSet[TuningRun[Any, Any]] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """End the runs of a process that exits, so that their sessions are marked as interrupted."""
    runs = list(_RUNS)
    for run in runs:
        run.stop()
    for run in runs:
        run._thread.join(_GRACE)

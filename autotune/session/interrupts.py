"""Requests to stop, from the keyboard or by a signal, noticed where stopping is safe."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self

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

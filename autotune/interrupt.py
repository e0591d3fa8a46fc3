"""Interrupts from the keyboard, noticed where stopping is safe."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Self


class Interrupts:
    """While it is entered, the first SIGINT is only noted; `check` raises for it.

    A second one raises `KeyboardInterrupt` wherever the program is. Does nothing outside the main
    thread, where Python delivers no signals, or if the program handles SIGINT in its own way.
    """

    def __init__(self) -> None:
        self._noted = False
        self._installed = False

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if there was an interrupt."""
        if self._noted:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            signal.signal(signal.SIGINT, self._note)
            self._installed = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._installed = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._noted:
            signal.default_int_handler(number, frame)
        self._noted = True

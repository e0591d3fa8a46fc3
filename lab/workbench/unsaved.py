"""Writes to the database that failed, because it was locked or is gone: they are tried again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeAlias

from ...base.errors import DatabaseError

_log = logging.getLogger(__name__)
RETRY = 10.0
"""Seconds between attempts."""

Write: TypeAlias = Callable[[], object]


class Unsaved:
    """Writes in their order: those that fail wait, and so do all after them.

    They are tried again by the next write, by `close`, and by a thread every `RETRY` seconds after
    `retry`. `on_change` is called in that thread when fewer wait.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._waiting: list[Write] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def write(self, write: Write) -> None:
        """Write now, or later if that fails."""
        with self._lock:
            self._waiting.append(write)
        self.flush()

    def flush(self) -> None:
        """Write what waits, as far as the database takes it."""
        with self._lock:
            try:
                while self._waiting:
                    self._waiting[0]()
                    del self._waiting[0]
            except DatabaseError as error:
                _log.info("%d writes of the lab wait: %s", len(self._waiting), error)

    def retry(self) -> None:
        """Go on trying in a thread, as long as anything waits."""
        if self._waiting and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._go_on, name="lab records", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Try once more; a warning says what is lost."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()
        if self._waiting:
            _log.warning(
                "%d writes of the lab are lost: the database did not take them", len(self._waiting)
            )
            self._waiting.clear()

    def _go_on(self) -> None:
        while self._waiting and not self._closed.wait(RETRY):
            before = len(self._waiting)
            self.flush()
            if len(self._waiting) < before:
                self._on_change()

"""The lab as a widget: it draws the state of a workbench, and carries its commands out.

The page sends `{"id", "command"}`, and the kernel `{"id", "answer"}` back. Commands wait in two
queues, each with a thread: one for those that build or measure, so that others are answered
meanwhile.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from importlib.resources import files
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

import htpy as h
import traitlets
from anywidget import AnyWidget

from ..schedule import Schedule
from ..target import Target
from ..tir.ir import Func
from ..tuning_db import TuningDatabase
from .page import fragment, style
from .views import view_of
from .workbench import Workbench

_SCRIPTS = (
    "dom.js",
    "program.js",
    "moves.js",
    "versions.js",
    "sizes.js",
    "compare.js",
    "tabs.js",
    "lab.js",
)
_LONG = frozenset({"asm", "compare", "lowering", "measure", "open", "pack"})
"""Commands that build or measure."""


def _script() -> str:
    """The front end as one module: a widget's module cannot import others."""
    folder = files(__package__).joinpath("front")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in _SCRIPTS)


def _style() -> str:
    return style() + files(__package__).joinpath("front", "lab.css").read_text(encoding="utf-8")


class Lab(AnyWidget):
    """A lab in a notebook; see `tilewright.lab`. `close` ends its threads and what they run."""

    _esm = _script()
    _css = _style()
    state = traitlets.Dict().tag(sync=True)

    def __init__(
        self, func: Func | Schedule, target: Target | str, database: TuningDatabase | None
    ) -> None:
        self._drawing = Lock()
        self.bench = Workbench(func, target, database, on_change=self._draw)
        super().__init__(state=self.bench.state())
        self._queues = {False: _Queue("tilewright-lab"), True: _Queue("tilewright-lab-long")}
        self.on_msg(self._receive)

    @property
    def schedule(self) -> Schedule:
        """The schedule of the current version."""
        return self.bench.versions.current.schedule

    def __repr__(self) -> str:
        current = self.bench.versions.current
        program = self.bench.func.name
        return f"the lab of {program} on {self.bench.target}, at {current.id}: {current.text}"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget; where none can be shown, the program of the current version."""
        data, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        note = h.p(".soft")[f"This is {self!r}. A notebook that shows widgets runs it."]
        picture = fragment(note, view_of(self.schedule.func))
        return {**data, "text/plain": repr(self), "text/html": picture}, metadata

    def close(self) -> None:
        """Stop what runs, and take the lab from the page."""
        for queue in self._queues.values():
            queue.close()
        super().close()

    def _draw(self) -> None:
        with self._drawing:
            self.state = self.bench.state()

    def _receive(self, _: object, message: Any, __: object) -> None:
        if not isinstance(message, dict):
            return
        command = message.get("command")
        name = command.get("do") if isinstance(command, dict) else None
        long = isinstance(name, str) and name in _LONG
        self._queues[long].put(lambda: self._answer(message.get("id"), command))

    def _answer(self, id: object, command: object) -> None:
        try:
            answer = self.bench.do(command)
        except Exception as error:  # noqa: BLE001  a defect of ours: the page shows it
            trace = traceback.format_exc()
            kind = type(error).__name__
            answer = {"ok": False, "error": {"kind": kind, "text": repr(error), "trace": trace}}
        self.send({"id": id, "answer": answer})


class _Queue:
    """Tasks that a thread carries out in order."""

    def __init__(self, name: str) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        Thread(target=self._work, name=name, daemon=True).start()

    def put(self, task: Callable[[], None]) -> None:
        self._tasks.put(task)

    def close(self) -> None:
        """End the thread after the tasks that are there."""
        self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

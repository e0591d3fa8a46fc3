"""The lab as a widget: it draws the state of a workbench, and carries its commands out.

The page sends `{"id", "command"}`, and the kernel `{"id", "answer"}` back. A thread answers, one
command after the other, so that the kernel is free meanwhile; but `cancel` is answered at once.

The cell of a notebook that runs now, by which one finds what its run before has left.
"""

from __future__ import annotations

import traceback
from importlib.resources import files
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple

import htpy as h
import traitlets
from anywidget import AnyWidget
from IPython import get_ipython

from ...base.hints import Hinted
from ...schedule import Schedule
from ..pictures.page import fragment, style
from ..pictures.views import view_of
from ..workbench.commands import is_urgent
from ..workbench.workbench import Workbench

_SCRIPTS = (
    "dom.js",
    "answers.js",
    "program.js",
    "moves.js",
    "versions.js",
    "sizes.js",
    "down.js",
    "compare.js",
    "exports.js",
    "tabs.js",
    "lab.js",
)


def _script() -> str:
    """The front end as one module: a widget's module cannot import others."""
    folder = files(__package__)
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in _SCRIPTS)


def _style() -> str:
    return style() + files(__package__).joinpath("lab.css").read_text(encoding="utf-8")


class Lab(Hinted, AnyWidget):
    """A workbench in a notebook; see `tilewright.lab`. `close` ends its threads and its run.

    It is closed when the front end closes it, and when a later run of its cell opens another one.
    """

    _esm = _script()
    _css = _style()
    state = traitlets.Dict().tag(sync=True)

    def __init__(self, bench: Workbench) -> None:
        self._drawing = Lock()
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self.bench = bench
        self._cell = running_cell()
        state = bench.state()
        self._drawn = state["revision"]
        super().__init__(state=state)
        bench.on_change = self._draw
        Thread(target=self._work, name="tilewright-lab", daemon=True).start()
        self.on_msg(self._receive)
        self.comm.on_close(lambda _: self.close())
        for replaced in [other for other in _OPEN if self._replaces(other)]:
            replaced.close()
        _OPEN.append(self)

    def _replaces(self, other: Lab) -> bool:
        return self._cell is not None and self._cell.replaces(other._cell)

    @property
    def schedule(self) -> Schedule:
        """The schedule of the current version."""
        return self.bench.versions.current.schedule

    def __repr__(self) -> str:
        current = self.bench.versions.current
        program = self.bench.func.name
        closed = "" if self in _OPEN else "closed; "
        return (
            f"the lab of {program} on {self.bench.target}, {closed}at {current.id}: {current.text}"
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget; where none can be shown, the program of the current version."""
        data, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        note = h.p(".soft")[f"This is {self!r}. A notebook that shows widgets runs it."]
        picture = fragment(note, view_of(self.schedule.func))
        return {**data, "text/plain": repr(self), "text/html": picture}, metadata

    def close(self) -> None:
        """End the lab's threads and what it runs, and take it from the page."""
        if self in _OPEN:
            _OPEN.remove(self)
        self._tasks.put(None)
        self.bench.close()
        super().close()

    def _draw(self) -> None:
        """Send the state to the page, unless a thread has sent a newer one."""
        state = self.bench.state()
        with self._drawing:
            if state["revision"] > self._drawn:
                self._drawn = state["revision"]
                self.state = state

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take what the page has changed; the state is the kernel's, and is sent to it again."""
        super().set_state({name: value for name, value in sync_data.items() if name != "state"})
        if "state" in sync_data:
            with self._drawing:
                self.send_state("state")

    def _receive(self, _: object, message: Any, __: object) -> None:
        if not isinstance(message, dict):
            return
        if is_urgent(message.get("command")):
            self._reply(message)
        else:
            self._tasks.put(message)

    def _work(self) -> None:
        while (message := self._tasks.get()) is not None:
            self._reply(message)

    def _reply(self, message: dict[str, Any]) -> None:
        self.send({"id": message.get("id"), "answer": self._answer(message.get("command"))})

    def _answer(self, command: object) -> dict[str, Any]:
        try:
            return self.bench.do(command)
        except Exception as error:  # noqa: BLE001  a defect of ours: the page shows it
            trace = traceback.format_exc()
            kind = type(error).__name__
            return {"ok": False, "error": {"kind": kind, "text": repr(error), "trace": trace}}


_OPEN: list[Lab] = []
"""The labs that are not closed."""


class CellRun(NamedTuple):
    """A cell, by the id that the notebook has for it, and one of its runs."""

    cell: str
    run: str

    def replaces(self, other: CellRun | None) -> bool:
        """Whether it is another run of the same cell: its output takes the place of the other's."""
        return other is not None and other.cell == self.cell and other.run != self.run


def running_cell() -> CellRun | None:
    """The cell that runs; `None` outside of a notebook, and where its front end names no cells."""
    shell = get_ipython()
    request = getattr(shell, "parent_header", None)  # the whole request, of which it has the header
    if not request:
        return None
    cell = request.get("metadata", {}).get("cellId")
    return CellRun(str(cell), str(request["header"]["msg_id"])) if cell else None

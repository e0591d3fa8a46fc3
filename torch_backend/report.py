"""`torch_report`: what the backend was given in this process, and what became of it."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..base.display import html
from ..base.durations import format_seconds

MAX_KEPT = 4096
"""So many graphs, and so many breaks, are remembered: the last ones."""

Place = Literal["not called", "tilewright", "torch", "refused"]


@dataclass
class CapturedGraph:
    """A graph that Dynamo and AOTAutograd made of a function, and what became of it.

    `source` is the line of its first operator. `ran_on` says what runs it, and `reason` why it is
    not Tilewright. `programs`: how often it was built, again where weights changed. `frozen`: how
    many arguments are constants in them. `copies` counts arguments that lay in memory otherwise
    than when it was captured. `seconds` were spent to import, tune and build it.
    """

    function: str
    source: str
    kind: Literal["inference", "forward", "backward"]
    operators: Mapping[str, int]
    ran_on: Place = "not called"
    reason: str = ""
    programs: int = 0
    frozen: int = 0
    calls: int = 0
    copies: int = 0
    seconds: float = 0.0

    @property
    def operator_count(self) -> int:
        return sum(self.operators.values())

    def __str__(self) -> str:
        frozen = f", {self.frozen} frozen" if self.frozen else ""
        again = f", built {self.programs} times" if self.programs > 1 else ""
        copies = f", {self.copies} copies" if self.copies else ""
        line = (
            f"{self.kind} of {self.function} ({self.source}): {self.operator_count} operators"
            f"{frozen}, {self.ran_on}, {self.calls} calls{again}{copies}"
            f", built in {format_seconds(self.seconds)}"
        )
        return f"{line}\n    {self.reason}" if self.reason else line


@dataclass(frozen=True)
class Break:
    """Where Dynamo has ended a graph and Python went on, and why."""

    source: str
    reason: str

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"


@dataclass(frozen=True)
class TorchReport:
    """The graphs that the backend was given, and the breaks between them."""

    graphs: tuple[CapturedGraph, ...]
    breaks: tuple[Break, ...]

    @property
    def seconds(self) -> float:
        """What importing, tuning and building took."""
        return sum(graph.seconds for graph in self.graphs)

    @property
    def operators(self) -> Mapping[str, int]:
        """How often each operator is in a graph."""
        return sum((Counter(graph.operators) for graph in self.graphs), Counter[str]())

    def on(self, place: Place) -> tuple[CapturedGraph, ...]:
        """The graphs that run there."""
        return tuple(graph for graph in self.graphs if graph.ran_on == place)

    def __str__(self) -> str:
        head = f"{_count(self.graphs, 'graph')}, {_count(self.breaks, 'graph break')}"
        lines = [f"{head}, built in {format_seconds(self.seconds)}"]
        lines += [f"  {graph}" for graph in self.graphs]
        if self.breaks:
            lines += ["breaks:", *(f"  {one}" for one in self.breaks)]
        return "\n".join(lines)

    _repr_html_ = html

    def __repr__(self) -> str:
        return f"<TorchReport: {str(self).partition(chr(10))[0]}>"


def torch_report(*, clear: bool = False) -> TorchReport:
    """What `torch.compile(..., backend="tilewright")` was given in this process so far.

    Of graphs: their operators, the line of the source, what runs them, and what building them took.
    Of breaks of Dynamo: the reason, and the line. With `clear` the next report begins anew.
    """
    with RECORDS.lock:
        found = TorchReport(tuple(RECORDS.graphs), tuple(RECORDS.breaks))
        if clear:
            RECORDS.graphs.clear()
            RECORDS.breaks.clear()
    return found


@dataclass
class _Records:
    lock: threading.Lock = field(default_factory=threading.Lock)
    graphs: deque[CapturedGraph] = field(default_factory=lambda: deque(maxlen=MAX_KEPT))
    breaks: deque[Break] = field(default_factory=lambda: deque(maxlen=MAX_KEPT))

    def add(self, graph: CapturedGraph) -> CapturedGraph:
        with self.lock:
            self.graphs.append(graph)
        return graph

    def add_break(self, one: Break) -> None:
        with self.lock:
            self.breaks.append(one)


RECORDS = _Records()


def _count(items: Iterable[Any], noun: str) -> str:
    number = len([*items])
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

"""`torch_report`: what the backend was given in this process, and what became of it."""

from __future__ import annotations

import sys
import threading
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

from ..base.display import html
from ..base.durations import format_seconds
from ..base.errors import BuildError

if TYPE_CHECKING:
    from ..building.lock_file import LockFile
    from .compiled_graph import CompiledGraph

MAX_KEPT = 4096
"""So many graphs, and so many breaks, are remembered: the last ones."""

Place = Literal["not called", "tilewright", "torch", "refused"]


@dataclass
class CapturedGraph:
    """A graph that Dynamo and AOTAutograd made of a function, and what became of it.

    `source` is the line of its first operator. `ran_on` says what runs it, and `reason` why it is
    not Tilewright. `programs`: how often it was built, again where weights changed; `kept` of these
    came from the cache on disk. `frozen`: how many arguments are constants in them. `drawn`: how
    many arrays of random numbers PyTorch draws before each call. `copies` counts arguments that lay
    in memory otherwise than when it was captured. `left`: how many of the calls PyTorch has run, as
    it was built for as many sizes as it may be. `seconds` were spent to import, tune and build it.
    """

    function: str
    source: str
    kind: Literal["inference", "forward", "backward"]
    operators: Mapping[str, int]
    ran_on: Place = "not called"
    reason: str = ""
    programs: int = 0
    kept: int = 0
    frozen: int = 0
    drawn: int = 0
    calls: int = 0
    copies: int = 0
    left: int = 0
    seconds: float = 0.0
    compiled: list[weakref.ref[CompiledGraph]] = field(
        default_factory=list, repr=False, compare=False
    )
    """One for each of the sizes that Dynamo left open."""

    @property
    def operator_count(self) -> int:
        return sum(self.operators.values())

    def __str__(self) -> str:
        frozen = f", {self.frozen} frozen" if self.frozen else ""
        drawn = f", {self.drawn} random arrays by PyTorch" if self.drawn else ""
        again = f", built {self.programs} times" if self.programs > 1 else ""
        copies = f", {self.copies} copies" if self.copies else ""
        left = f", {self.left} of them of other sizes, by PyTorch" if self.left else ""
        line = (
            f"{self.kind} of {self.function} ({self.source}): {self.operator_count} operators"
            f"{frozen}{drawn}, {self.ran_on}, {self.calls} calls{left}{again}{copies}"
            f", built in {format_seconds(self.seconds)}"
        )
        if self.kept:
            line += f", {self.kept} of {self.programs} from the cache on disk"
        return f"{line}\n    {self.reason}" if self.reason else line


@dataclass(frozen=True)
class Break:
    """Where Dynamo has ended a graph, so that Python went on, and why."""

    source: str
    reason: str

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"


@dataclass(frozen=True)
class TorchReport:
    """The graphs that the backend was given, the breaks between them, and what Dynamo left alone.

    `skipped` are the reasons for which it left functions to Python whole, and how often.
    """

    graphs: tuple[CapturedGraph, ...]
    breaks: tuple[Break, ...]
    skipped: Mapping[str, int]

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

    def freeze(self, *, require_tuned: bool = False) -> LockFile:
        """The schedules of the graphs that Tilewright has built, as `tw.freeze` returns them.

        `torch.compile(..., options={"locked": ...})` builds what it says, and fails with a
        `LockError` where a graph has become another one. Raises `BuildError` where nothing was
        built, where graphs have several targets, databases or tolerances, where what was compiled
        is not alive any more, and with `require_tuned` `NotTunedError` for kernels without one.
        """
        from ..building.freeze import freeze

        alive = [(g, one()) for g in self.on("tilewright") for one in g.compiled]
        gone = [graph.function for graph, compiled in alive if compiled is None]
        if gone:
            raise BuildError(
                "what was compiled of {0} is not alive any more", ", ".join(dict.fromkeys(gone)),
                hint="freeze it while it is, or begin a report by torch_report(clear=True)",
            )  # fmt: skip
        compiled = [one for _, one in alive if one is not None]
        ways = [one.ways for one in compiled]
        if any(options.locked is not None for _, options in ways):
            raise BuildError("the report has graphs that were built of a lock", hint=_NEW_REPORT)
        if len({(target, options.database, options.tolerance) for target, options in ways}) != 1:
            found = ", ".join(sorted({target for target, _ in ways})) or "none"
            raise BuildError(
                "expected graphs for one target, with one database and tolerance, found {0}", found,
                hint=_NEW_REPORT,
            )  # fmt: skip
        target, options = ways[0]
        graphs = [graph for one in compiled for graph in one.graphs()]
        return freeze(
            graphs, target, options.database, tolerance=options.tolerance,
            require_tuned=require_tuned,
        )  # fmt: skip

    def __str__(self) -> str:
        head = f"{_count(self.graphs, 'graph')}, {_count(self.breaks, 'graph break')}"
        lines = [f"{head}, built in {format_seconds(self.seconds)}"]
        lines += [f"  {graph}" for graph in self.graphs]
        if self.breaks:
            lines += ["breaks:", *(f"  {one}" for one in self.breaks)]
        if self.skipped:
            lines += ["left to Python:"]
            lines += [f"  {count} times: {why}" for why, count in self.skipped.items()]
        return "\n".join(lines)

    _repr_html_ = html

    def __repr__(self) -> str:
        return f"<TorchReport: {str(self).partition(chr(10))[0]}>"


_NEW_REPORT = "begin a report by torch_report(clear=True), and call what is to be frozen"


def torch_report(*, clear: bool = False) -> TorchReport:
    """What `torch.compile(..., backend="tilewright")` was given in this process so far.

    Of graphs: their operators, the line of the source, what runs them, and what building them took.
    Of breaks of Dynamo: the reason, and the line. Dynamo does not say for which backend it was: in
    a process that uses several, breaks of the others are among them. With `clear` the next report
    begins anew.
    """
    with RECORDS.lock:
        RECORDS.read_breaks()
        skipped = _skipped() - RECORDS.skipped
        graphs = tuple(map(replace, RECORDS.graphs))  # as they are now: calls are still counted
        found = TorchReport(graphs, tuple(RECORDS.breaks), dict(skipped))
        if clear:
            RECORDS.graphs.clear()
            RECORDS.breaks.clear()
            RECORDS.skipped = _skipped()
    return found


def _skipped() -> Counter[str]:
    """Why Dynamo has left functions to Python, as far as this process has loaded it."""
    loaded = sys.modules.get("torch._dynamo.utils")
    reasons = {} if loaded is None else loaded.counters["unimplemented"]
    found = Counter[str]()
    for reason, count in reasons.items():
        found[first_line(reason)] += count
    return found


def first_line(text: object) -> str:
    return str(text).strip().partition("\n")[0]


@dataclass
class _Records:
    lock: threading.Lock = field(default_factory=threading.Lock)
    graphs: deque[CapturedGraph] = field(default_factory=lambda: deque(maxlen=MAX_KEPT))
    breaks: deque[Break] = field(default_factory=lambda: deque(maxlen=MAX_KEPT))
    skipped: Counter[str] = field(default_factory=Counter)
    read: int = 0

    def add(self, graph: CapturedGraph) -> CapturedGraph:
        with self.lock:
            self.graphs.append(graph)
        return graph

    def break_at(self, line: int) -> Break | None:
        """The last break at a line of that number."""
        with self.lock:
            self.read_breaks()
            return next((b for b in reversed(self.breaks) if b.source.endswith(f":{line}")), None)

    def read_breaks(self) -> None:
        """Take over what Dynamo has noted since this was called last."""
        loaded = sys.modules.get("torch._dynamo.output_graph")
        noted = [] if loaded is None else loaded.graph_break_reasons
        start = self.read if self.read <= len(noted) else 0  # it was cleared
        self.breaks += map(break_of, noted[start:])
        self.read = len(noted)


def break_of(reason: Any) -> Break:
    """The place and the first line of a `GraphCompileReason` of Dynamo."""
    frame = reason.user_stack[-1] if reason.user_stack else None
    source = "unknown" if frame is None else f"{PurePath(frame.filename).name}:{frame.lineno}"
    return Break(source, first_line(reason.reason))


RECORDS = _Records()


def _count(items: Iterable[Any], noun: str) -> str:
    number = len([*items])
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

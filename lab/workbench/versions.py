"""The versions of a program in the lab: a tree in which each has the step that made it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from ...autotune.records import schedule_record
from ...base.durations import change, format_change_between, measured_time
from ...base.errors import TilewrightError
from ...schedule import Schedule
from ...tuning_db.interleaved_comparison import TimeRatio
from ...tuning_db.results import Verdict
from .program_tree import Data

MOST = 500
"""Versions of a lab."""


class LabError(TilewrightError):
    """A command that the lab does not carry out; `do` returns it as data."""


@dataclass(frozen=True)
class Timing:
    """A measured time: the median of `samples`, in seconds per call.

    `checked` says whether the results were compared with those of the unscheduled program; `None`
    in the list of records, for which no checks are read.
    """

    seconds: float
    samples: tuple[float, ...]
    checked: bool | None

    def data(self) -> Data:
        time = measured_time(self.seconds, self.samples)
        return {
            "seconds": self.seconds,
            "interval": None if time.interval is None else list(time.interval),
            "text": str(time),
            "samples": time.samples,
            "checked": self.checked,
        }


@dataclass(frozen=True)
class Comparison:
    """How two versions compare that were timed interleaved: the time of `b` over that of `a`.

    `interval` contains the true ratio with a confidence of 95%; `None` if there were too few
    rounds. `verdict` is about `b`.
    """

    a: str
    b: str
    ratio: float
    interval: tuple[float, float] | None
    verdict: Verdict

    @staticmethod
    def of(a: Version, b: Version, ratio: TimeRatio) -> Comparison:
        return Comparison(a.id, b.id, ratio.ratio, ratio.interval, ratio.mutual_verdict)

    def data(self) -> Data:
        return {
            "a": self.a,
            "b": self.b,
            "ratio": self.ratio,
            "interval": None if self.interval is None else list(self.interval),
            "verdict": "faster" if self.verdict is Verdict.FASTEST else self.verdict.value,
            "text": self._text(),
        }

    def _text(self) -> str:
        verb = "is" if change(self.ratio, interleaved=True).direction else "takes the"
        return f"{self.b} {verb} {format_change_between(self.ratio, self.interval, self.a)}"


def fastest(versions: Iterable[Version], comparisons: Iterable[Comparison]) -> Version | None:
    """The version with the shortest time that no comparison says is slower; `None` if none ran.

    Versions that were timed interleaved are compared by the ratio of their times, and others by
    their medians, which are of other rounds.
    """
    by_id = {v.id: v for v in versions}
    timed = {id: v.timing.seconds for id, v in by_id.items() if v.timing is not None}
    ratios = {(c.b, c.a): c.ratio for c in comparisons}
    ratios |= {(a, b): 1 / ratio for (b, a), ratio in ratios.items()}
    first = min(timed, key=timed.__getitem__, default=None)
    # In noise, ratios may form a circle: each version is tried once.
    while first is not None:
        del timed[first]
        ratio, ahead = min(((ratios.get((id, first), 1.0), id) for id in timed), default=(1.0, ""))
        if ratio >= 1:
            break
        first = ahead
    return None if first is None else by_id[first]


@dataclass(eq=False)
class Version:
    """A scheduled program, made from `parent` by the step `text`.

    `predicted` are seconds; `None` where its target has no model. `problem` is why it has no time,
    if it was measured and failed. A `foreign` one began from a record: somebody else may have made
    its steps.
    """

    id: str
    parent: Version | None
    text: str
    schedule: Schedule
    predicted: float | None
    timing: Timing | None = None
    problem: str | None = None
    foreign: bool = False
    children: list[Version] = field(default_factory=list)

    @property
    def scale(self) -> float | None:
        """Its measured time over its predicted one; `None` unless both are known."""
        if self.timing is None or not self.predicted:
            return None
        return self.timing.seconds / self.predicted

    @cached_property
    def schedule_id(self) -> str:
        """The id of its schedule in databases."""
        return schedule_record(self.schedule.trace).id

    def data(self) -> Data:
        return {
            "id": self.id,
            "parent": None if self.parent is None else self.parent.id,
            "text": self.text,
            "steps": len(self.schedule.trace),
            "predicted": self.predicted,
            "measured": None if self.timing is None else self.timing.data(),
            "problem": self.problem,
        }


class Versions:
    """All versions, of which one is `current`. None is ever lost: undo goes to the parent."""

    def __init__(self, root: Schedule, predicted: float | None) -> None:
        self._all: dict[str, Version] = {}
        self._redo: list[Version] = []
        self.current = self._new(None, "as written", root, predicted)

    def __iter__(self) -> Iterator[Version]:
        return iter(list(self._all.values()))  # another thread may add one meanwhile

    def __len__(self) -> int:
        return len(self._all)

    @property
    def root(self) -> Version:
        return next(iter(self._all.values()))

    @property
    def can_redo(self) -> bool:
        return bool(self._redo)

    def get(self, id: object) -> Version:
        """The version with an id. Raises `LabError` if there is none."""
        found = self._all.get(id) if isinstance(id, str) else None
        if found is None:
            raise LabError("there is no version {0!r:.40}", id)
        return found

    def add(
        self,
        parent: Version,
        text: str,
        schedule: Schedule,
        predicted: float | None,
        *,
        foreign: bool,
    ) -> Version:
        """A new version, which becomes the current one. Raises `LabError` if there are too many.

        A child of `parent` that was made by the same steps is taken instead.
        """
        same = next((v for v in parent.children if v.schedule.trace == schedule.trace), None)
        self.current = self._new(parent, text, schedule, predicted) if same is None else same
        self.current.foreign = foreign
        self._redo.clear()
        return self.current

    def undo(self) -> None:
        """Go to the parent. Raises `LabError` if there is none."""
        if self.current.parent is None:
            raise LabError("there is nothing to undo: this is the program as written")
        self._redo.append(self.current)
        self.current = self.current.parent

    def redo(self) -> None:
        """Take the last undo back. Raises `LabError` if there is none."""
        if not self._redo:
            raise LabError("there is nothing to redo")
        self.current = self._redo.pop()

    def go(self, id: object) -> None:
        """Make a version the current one."""
        self.current = self.get(id)
        self._redo.clear()

    def _new(
        self, parent: Version | None, text: str, schedule: Schedule, predicted: float | None
    ) -> Version:
        if len(self._all) >= MOST:
            raise LabError("a lab keeps {0} versions", MOST, hint="open another one from a record")
        new = Version(f"v{len(self._all)}", parent, text, schedule, predicted)
        self._all[new.id] = new
        if parent is not None:
            parent.children.append(new)
        return new

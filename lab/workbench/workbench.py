"""The lab without its front end: programs in versions, the steps that are legal, what they cost.

    bench = Workbench(func, "cpu", database)
    bench.state()                                              # a JSON object
    bench.do({"do": "moves", "place": "L0"})                   # so is what a command returns

A front end draws `state()` and sends commands. `do` returns `{"ok": true, "result": ...,
"revision": n}`, or `{"ok": false, "error": {...}, "revision": n}` for whatever is refused: an
unknown command, arguments of wrong types, a step that is not legal. It raises no exception for
these. When `revision` differs from that of the last state, there is a new state to draw.

**Ids.** `L3` is a loop, `B1` a block, `v2` a version. A loop or block keeps its id as long as it is
in the program, in all versions.

**State.**

| key | value |
| --- | --- |
| `revision` | grows with each change |
| `program` | `name`, `shape` and `workload` (the id in the database) of the unscheduled program |
| `kernels` | the names of the kernels that a build makes of it, if these are several, else empty |
| `target` | `text`; `runs_here`, else `why_not`; `model`: whether there are predicted times |
| `database` | its location, `null` without one |
| `pinned` | the id of the schedule that builds take because it is pinned, or `null` |
| `version` | the id of the current version |
| `versions` | `id, parent, text, steps, predicted, measured, recorded, problem, pinned` of each |
| `can_undo`, `can_redo` | booleans |
| `compared` | of two versions timed interleaved: `a, b, ratio, interval, verdict, text` |
| `fastest` | the id of the fastest version, by comparisons where there are, or `null` |
| `run` | the last run, or `null`: `versions, says, running, seconds, error, unsaved` |
| `costliest` | the nest that takes longest: its `place`, which is the `node` of that number |
| `tree` | `nodes` of the current program from `start` on, of `total`, each before those inside it |
| `text` | its `lines` from `start` on, of `total`: `text`, and `place`, the id of what one begins |

Times are seconds; `recorded` is what the database has of a version that was not measured here.
`measured` is `null` or `seconds, interval, text, samples, checked`: the median of so many samples,
with an interval of 95% confidence if there are enough, and whether the results were compared with
those of the unscheduled program. `ratio` is the time of `b` over that of `a`; the `verdict` about
`b` is `faster`, `slower`, `tie` or `unsettled`. `unsaved` writes of a run wait for the database;
they are tried again every 10 seconds, with the next run, and by `close`. A run that ended `says` in
plain words if the machine was not calm, `done` otherwise.

`costliest` is where a front end opens the version: the outermost loop, or block in no loop, with
the largest part of the predicted time. Of those within 10% of it, and where there are no predicted
times, it is the first. It is `null` in a program without loops and blocks.

A **node** has `kind`, `depth` and `line` (its number). A `loop` has `id`, `name`, `extent`, `loop`
(`serial` and so on), `badges`, `reduces` (whether it feeds a reduction) and `held`: what one
iteration touches, `memory` (the nearest that holds it), `bytes`, and the `name` and `bytes` of each
of the `buffers`. A `block` has `id`, `name`, the first line of what it does as `text`, `iters`
(`name, extent, kind`), `reads`, `writes` and `badges`. A statement in no block is `code` with its
`text`, and has no id.

**Commands.** Those with `version` take the current one by default, and answer with its id as
`version`; those that make a version, as a child of it, with the id of the new one.

| `do` | further keys | result |
| --- | --- | --- |
| `moves` | `version`, `place` (an id or `null`), `start`, `count` | `moves`, `total` |
| `try` | `version`, `op`, `args` | a move: whether it is legal, its predicted time |
| `apply` | `version`, `op`, `args` | the new `version` |
| `undo`, `redo` | | the `version` |
| `go` | `version` | the `version` |
| `tree`, `text` | `version`, `start`, `count` | as in the state |
| `diff` | `a`, `b`; `of`: `program`, `assembly`; `start`, `count` | lines of that name, `total` |
| `lowering` | `version` | `stages`: `number, name, why, facts, program, lines, changed, error` |
| `stage` | `version`, `number`, `start`, `count` | `lines` with `op` and `text`, `total` |
| `assembly` | `version`, `start`, `count` | `lines`, `loops` of them, `total`, `hot`, `places` |
| `roofline` | `version` | the least time, what bounds it, `points`, and the figure as `html` |
| `sliders` | `version` | `sliders`: `label, step, value, values`; `closed`: `label, why`; figures |
| `figures` | `version`, `values`: one for each slider | figures |
| `slide` | `version`, `values` | the new `version` |
| `measure` | `versions`: ids; of several, times are interleaved | the `run` that begins |
| `pack` | `versions`, `folder`: a new one | the `run` that compiles them for a machine elsewhere |
| `cancel` | | the `run` |
| `records` | `start`, `count` | `records` of this program in the database, the choice first |
| `open` | `record`: the beginning of an id | the `version` |
| `pin` | `version`, `unverified` | the `record` that builds take from now on, `id` for short |
| `unpin` | | `unpinned`: whether there was one |
| `export` | `version` | `text`: a Python file that makes the program |
| `rule` | `version`, `name` | `text`: a module with a sketch rule |

`pin` refuses a version whose results nobody checked, unless `unverified` is `true`; `measure`
checks them.

A **move** has `op`, `args` (JSON data, with ids), `text` (the call as people write it), `says` (a
sentence), `from` (the user's module that registers it, or `null`) and `legal`. If that is `true`,
`predicted` are the seconds of the program after it, `null` without a model, and `measured` those
that were measured of it, `null` if nobody did. Where the version is measured, `expected` are the
predicted seconds times the measured over the predicted time of the version. If it is `false`,
`error` says why. If it is `null`, `needs` are the arguments to fill in, `name` and `type` of each.

**Figures** of a row of `values` are `valid`, else `error`; `pruned`, the names of the search's
limits that do not hold: it would not try the row; `predicted` seconds; `figures`, a list of `name,
value, unit, of, exceeds`, where `of` is what the machine has; `loops`, what an iteration of each
touches (`loop`, and `held` as in nodes); and `around`: for each slider, of each of its values with
the others as they are, `valid`, `pruned` and `predicted`, where `why` says why one predicts none.

The `op` of a line is "-" or "+" for one that is gone or new, " " for one beside these, and "…" for
others that are left out. **Stages** lead from the scheduled program by each lowering pass to the
texts of code; the lines of one are its changes to the stage before, and `facts` are phrases with
numbers of what it has more or less of. Of an **assembly**, `hot` are the first and the last line of
the hot block, of which `says` is a phrase. `loops` are the ids of the innermost loops that run the
lines, `null` in place of all where the code does not tell, as the sentence `unknown` says then.
`places` has by the id of each loop its `name`, the first and last of the `lines` of each part, and
`says`, a sentence about them. The **roofline**
has `seconds, text, bound, flops, bytes, intensity, peak, bandwidth`; its `points`, a version each,
have `version, seconds, measured, rate, share`.

A **record** has `record` (its id), `id` for short, its last time as `seconds`, `interval` and
`text`, `generator`, `target`, `comparable` (whether its time is one of such a machine), `created`,
`pinned`: whether builds take it because it is pinned, `failed`: whether a numeric check of its
results failed where it was timed, and `decisions`, of each its `name` and `value`: those in which
it differs from others in the answer that took the same ones.

An **error** has `kind`, `text` and `hint`; for steps also `example` (what clashes: two iterations,
say), `place` (the id of the loop or block in the way) with its `name`, `alternatives`, and of the
schedule of a record the `step` that does not apply, its number and its text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from threading import RLock
from typing import Any, TypeVar

from ...autotune.config import TuneConfig
from ...autotune.measure.machine import with_rates
from ...autotune.model.memo import Memo
from ...autotune.model.target_model import target_limits
from ...autotune.records import schedule_record, workload_record
from ...autotune.rules.division import pieces_of
from ...autotune.search.drawing import model_or_none
from ...base.errors import (
    BuildError,
    DatabaseError,
    ScheduleError,
    TargetError,
    TilewrightError,
    similar,
)
from ...codegen.build import emit_parts, lower_parts
from ...codegen.detect import check_runnable, resolve
from ...schedule import Schedule, Trace
from ...schedule.require import Space
from ...target import Target
from ...tir.ir import Func
from ...tir.verify import verify
from ...tuning_db import TuningDatabase
from ..pictures.decisions import DecisionNames
from ..pictures.page import text as shown
from . import records
from .answers import plain, problem
from .commands import COMMANDS, is_urgent, text, tree
from .measuring import LabRun, Measurements, VersionResults
from .moves import refusal
from .program_tree import Data, Handles, ProgramTree
from .versions import Comparison, LabError, Version, Versions, fastest

T = TypeVar("T")
_KEPT = 64
"""Answers that are kept: trees, moves and sliders of versions."""
_ALIKE = 1.1
"""Predicted times whose ratio is less do not tell which of two nests takes longer."""


class Workbench:
    """A program on a target in the lab; see the module. To be used by several threads.

    A concrete schedule in place of `func` is a version beside the program as written. `tolerance`
    and `config` are those of `tune`, for measurements. `on_change` is called after each change of
    the state, in the thread that makes it.

    Raises `VerifyError` for a program that breaks a rule, and `TargetError` for a text that is no
    target.
    """

    def __init__(
        self,
        func: Func | Schedule,
        target: Target | str = "cpu",
        database: TuningDatabase | None = None,
        *,
        tolerance: float | None = None,
        config: TuneConfig | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        given = func if isinstance(func, Schedule) else None
        self.func = func.original if isinstance(func, Schedule) else func
        verify(self.func)
        self.target = with_rates(resolve(target))
        self.database = database
        self.handles = Handles()
        self.workload = workload_record(self.func)
        self.kernels = [shown(p.func.name) for p in pieces_of(self.func, self.target)]
        self.model = model_or_none(self.target)
        self._memo = Memo()
        self._lock = RLock()
        self.on_change = on_change
        self._revision = 0
        self._answers: dict[object, Any] = {}
        self.comparisons: dict[frozenset[str], Comparison] = {}
        self.measurements = Measurements(
            self.func, self.target, database, config or TuneConfig(), tolerance, self._measured
        )
        self.versions = Versions(Schedule(self.func), self.predict(self.func))
        self.handles.learn(self.func)
        self.decision_names = DecisionNames(self.func)
        self.pinned = self._pin()
        if given is not None:
            self.add(self.versions.root, "the given schedule", given)

    def state(self) -> Data:
        """What there is to draw, as a JSON object."""
        with self._lock:
            current, run = self.versions.current, self.measurements.run
            first = fastest(self.versions, self.comparisons.values())
            state = {
                "revision": self._revision,
                "program": {
                    "name": shown(self.workload.name),
                    "shape": self.workload.shape,
                    "workload": self.workload.id,
                },
                "kernels": self.kernels,
                "target": self._target(),
                "database": None if self.database is None else self.database.location,
                "version": current.id,
                "pinned": self.pinned,
                "versions": [
                    {
                        **v.data(),
                        "recorded": None if v.timing else self.recorded(v.schedule_id),
                        "pinned": v.schedule_id == self.pinned,
                    }
                    for v in self.versions
                ],
                "can_undo": current.parent is not None,
                "can_redo": self.versions.can_redo,
                "compared": [c.data() for c in self.comparisons.values()],
                "fastest": None if first is None else first.id,
                "run": None if run is None else run.data(),
                "costliest": self.costliest(current),
                "tree": tree(self, {}),
                "text": text(self, {}),
            }
            return plain(state)  # type: ignore[no-any-return]

    def do(self, command: object) -> Data:
        """Carry out a command, a JSON object; returns a JSON object.

        While a candidate is timed it waits: nothing of ours computes then. What `is_urgent` waits
        for nothing.
        """
        if is_urgent(command):
            return self._answer(command)
        with self.measurements.quiet, self._lock:
            return self._answer(command)

    def _answer(self, command: object) -> Data:
        try:
            result = self._done(command)
        except ScheduleError as error:
            answer: Data = {"ok": False, "error": refusal(error, self.handles)}
        except (TilewrightError, RecursionError, MemoryError) as error:
            answer = {"ok": False, "error": problem(error)}
        else:
            answer = {"ok": True, "result": result}
        return plain({**answer, "revision": self._revision})  # type: ignore[no-any-return]

    def predict(self, func: Func) -> float | None:
        """The predicted seconds of a concrete program; `None` without a model of its target."""
        if self.model is None:
            return None
        return self.model.estimate(func, self.target, self._memo).seconds

    def exceeded(self, func: Func) -> Set[str]:
        """The limits of the target that a concrete program exceeds, by their names."""
        return {limit.name for limit in target_limits(func, self.target, Space(), self._memo)}

    def not_built(self, func: Func) -> BuildError | None:
        """Why code generation refuses a concrete program; `None` if it takes it."""
        target = self.target
        try:
            emit_parts(lower_parts(func, target), target)
        except BuildError as error:
            return error
        return None

    def measured(self, trace: Trace) -> float | None:
        """The seconds of a schedule that the lab measured, or another session on such a machine."""
        for version in self.versions:
            if version.timing is not None and version.schedule.trace == trace:
                return version.timing.seconds
        return self.recorded(schedule_record(trace).id)

    def recorded(self, schedule: str) -> float | None:
        """The seconds that the database has of a schedule (id) on such a machine."""
        return self.kept("times", self._times).get(schedule)

    def _pin(self) -> str | None:
        if self.database is None:
            return None
        try:
            return records.pinned_schedule(self.database, self.workload, self.target)
        except DatabaseError:  # versions are shown whether it can be read or not
            return None

    def _times(self) -> dict[str, float]:
        if self.database is None:
            return {}
        try:
            return records.times(self.database, self.workload, self.target)
        except DatabaseError:  # steps are legal, and versions shown, whether it can be read or not
            return {}

    def add(
        self, parent: Version, text: str, schedule: Schedule, *, foreign: bool = False
    ) -> Version:
        """A new version, which becomes the current one; a `foreign` one comes from a record."""
        predicted = self.predict(schedule.func)
        foreign = foreign or parent.foreign
        self.handles.learn(schedule.func)
        version = self.versions.add(parent, text, schedule, predicted, foreign=foreign)
        self.changed()
        return version

    def changed(self) -> None:
        """Note that the state is another one."""
        with self._lock:
            self._revision += 1
        self.on_change()

    def look_up_pin(self) -> None:
        """Read again which schedule is pinned: others pin too."""
        pinned = self._pin()
        if pinned != self.pinned:
            self.pinned = pinned
            self.changed()

    def close(self) -> None:
        """End what goes on; measured times are kept."""
        self.measurements.close()

    def _measured(self, run: LabRun, measured: VersionResults | None) -> None:
        """Take over what a run found, in its thread."""
        with self._lock:
            if measured is not None:
                for version in run.versions:
                    timing = measured.timings.get(version)
                    if timing is not None:
                        version.timing, version.problem = timing, None
                    else:  # one that this run did not come to stays as it was
                        version.problem = measured.problems.get(version, version.problem)
                for comparison in measured.comparisons:
                    pair = frozenset((comparison.a, comparison.b))
                    self.comparisons.pop(pair, None)  # the newest is the last
                    self.comparisons[pair] = comparison
                self._answers.clear()
        self.changed()

    def tree(self, version: Version) -> ProgramTree:
        """The program of a version as a tree and as lines."""
        return self.kept(
            (version.id, "tree"),
            lambda: ProgramTree(version.schedule.func, self.target, self.handles),
        )

    def costliest(self, version: Version) -> Data | None:
        """The nest of a version with the largest part of its predicted time; see the module."""
        ids = {n["id"]: k for k, n in enumerate(self.tree(version).nodes) if "id" in n}
        parts = self.kept((version.id, "nests"), lambda: self._by_nest(version.schedule.func))
        longest = max(parts.values(), default=0.0)
        near = (top for top, part in parts.items() if part * _ALIKE >= longest and top in ids)
        place = next(near, next(iter(ids), None))
        return None if place is None else {"place": place, "node": ids[place]}

    def _by_nest(self, func: Func) -> dict[str | None, float]:
        if self.model is None:
            return {}
        parts = self.model.by_nest(func, self.target, self._memo)
        return {self.handles.id(top): part for top, part in parts.items()}

    def kept(self, key: object, make: Callable[[], T]) -> T:
        """What `make` returns, which is kept for the next time."""
        if key not in self._answers:
            found = make()
            if len(self._answers) >= _KEPT:
                del self._answers[next(iter(self._answers))]
            self._answers[key] = found
        return self._answers[key]  # type: ignore[no-any-return]

    def _done(self, command: object) -> Any:
        if not isinstance(command, Mapping):
            raise LabError('expected a command, {{"do": ...}}; found {0!r:.80}', command)
        name = command.get("do")
        found = COMMANDS.get(name) if isinstance(name, str) else None
        if found is None:
            raise LabError(
                "there is no command {0!r:.40}",
                name,
                hint=lambda: similar(str(name)[:40], COMMANDS) or ", ".join(COMMANDS),
            )
        return found(self, command)

    def _target(self) -> Data:
        try:
            check_runnable(self.target)
        except TargetError as error:
            why: str | None = str(error)
        else:
            why = None
        return {
            "text": str(self.target),
            "runs_here": why is None,
            "why_not": why,
            "model": self.model is not None,
        }

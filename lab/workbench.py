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
| `target` | `text`; `runs_here`, else `why_not`; `model`: whether there are predicted times |
| `database` | its location, `null` without one |
| `version` | the id of the current version |
| `versions` | `id, parent, text, steps, predicted, measured, problem` of each; seconds |
| `can_undo`, `can_redo` | booleans |
| `tree` | `nodes` of the current program from `start` on, of `total`; see `program_tree.tree` |
| `text` | its `lines` from `start` on, of `total` |

`measured` is `null` or `seconds, low, high, samples, checked, measurement`.

**Commands.** Those with `version` take the current one by default.

| `do` | further keys | result |
| --- | --- | --- |
| `moves` | `place` (an id, or `null` for the program), `start`, `count` | `moves`, `total` |
| `try` | `op`, `args` | a move: whether it is legal, its predicted time |
| `apply` | `op`, `args` | the `version` |
| `undo`, `redo` | | the `version` |
| `go` | `version` | the `version` |
| `tree`, `text` | `version`, `start`, `count` | as in the state |
| `diff` | `a`, `b`: versions | `program`: lines with `op` and `text` |

A **move** has `op`, `args` (JSON data, with ids), `text` (the call as people write it), `says` (a
sentence), `from` (the user's module that registers it, or `null`) and `legal`. If that is `true`,
`predicted` are the seconds of the program after it, `null` without a model. If it is `false`,
`error` says why. If it is `null`, `needs` are the arguments to fill in, `name` and `type` of each.

An **error** has `kind`, `text` and `hint`; for steps also `example` (what clashes: two iterations,
say), `place` (the id of the loop or block in the way) with its `name`, and `alternatives`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any, TypeAlias

import numpy as np

from ..autotune.model.profile import Visit, profile
from ..autotune.records import workload_record
from ..autotune.search.drawing import model_or_none
from ..codegen.detect import check_runnable, resolve
from ..errors import ScheduleError, TargetError, TilewrightError, similar
from ..schedule import Schedule
from ..schedule.primitive import find_primitive
from ..target import Target
from ..tir.ir import Func
from ..tir.verify import verify
from ..tuning_db import TuningDatabase
from .moves import applied, call_text, decoded, moves, refusal, try_move
from .page import text
from .program_tree import Data, Handles, tree
from .versions import LabError, Version, Versions, line_diff

Arguments: TypeAlias = Mapping[str, Any]
PAGE = 400
"""Nodes and lines of a program that the state has; there are commands for the others."""
_MOVES = 100
_PROGRAMS = 64
"""Places whose moves are kept."""


class Workbench:
    """A program on a target in the lab; see the module. To be used by several threads.

    A concrete schedule in place of `func` is a version beside the program as written. `on_change`
    is called after each change of the state, in the thread that makes it.

    Raises `VerifyError` for a program that breaks a rule, and `TargetError` for a text that is no
    target.
    """

    def __init__(
        self,
        func: Func | Schedule,
        target: Target | str = "cpu",
        database: TuningDatabase | None = None,
        *,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        given = func if isinstance(func, Schedule) else None
        self.func = func.original if isinstance(func, Schedule) else func
        verify(self.func)
        self.target = resolve(target)
        self.database = database
        self.handles = Handles()
        self._workload = workload_record(self.func)
        self._model = model_or_none(self.target)
        self._visits: dict[object, Visit] = {}
        self._lock = RLock()
        self._on_change = on_change
        self._revision = 0
        self._moves: dict[tuple[str, str | None], list[Data]] = {}
        self.versions = Versions(Schedule(self.func), self.predict(self.func))
        self.handles.learn(self.func)
        if given is not None:
            self.add(self.versions.root, "the given schedule", given)

    def state(self) -> Data:
        """What there is to draw, as a JSON object."""
        with self._lock:
            current = self.versions.current
            state = {
                "revision": self._revision,
                "program": {
                    "name": self._workload.name,
                    "shape": self._workload.shape,
                    "workload": self._workload.id,
                },
                "target": self._target(),
                "database": None if self.database is None else self.database.location,
                "version": current.id,
                "versions": [v.data() for v in self.versions],
                "can_undo": current.parent is not None,
                "can_redo": self.versions.can_redo,
                "tree": self._tree({}),
                "text": self._text({}),
            }
            return plain(state)  # type: ignore[no-any-return]

    def do(self, command: object) -> Data:
        """Carry out a command, a JSON object; returns a JSON object."""
        with self._lock:
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
        if self._model is None:
            return None
        estimator = self._model.estimator(profile(func, read=self._visits), self.target)
        return float(estimator(np.empty((1, 0), np.int64)).seconds[0])

    def add(self, parent: Version, text: str, schedule: Schedule) -> Version:
        """A new version, which becomes the current one."""
        version = self.versions.add(parent, text, schedule, self.predict(schedule.func))
        self.handles.learn(schedule.func)
        self.changed()
        return version

    def changed(self) -> None:
        """Note that the state is another one."""
        with self._lock:
            self._revision += 1
        self._on_change()

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
            "model": self._model is not None,
        }

    def _tree(self, given: Arguments) -> Data:
        nodes = tree(self._version(given).schedule.func, self.handles)
        start, count = page_of(given, PAGE)
        return {"nodes": nodes[start : start + count], "start": start, "total": len(nodes)}

    def _text(self, given: Arguments) -> Data:
        lines = repr(self._version(given).schedule.func).splitlines()
        start, count = page_of(given, PAGE)
        return {"lines": lines[start : start + count], "start": start, "total": len(lines)}

    def _all_moves(self, given: Arguments) -> Data:
        place, version = given.get("place"), self.versions.current
        handle = self.handles.get(place) if isinstance(place, str) else None
        if place is not None and handle is None:
            raise LabError("there is no loop or block {0!r:.40}", place, hint="ids are in the tree")
        key = (version.id, place)
        if key not in self._moves:
            if len(self._moves) >= _PROGRAMS:
                self._moves.clear()
            self._moves[key] = moves(
                version.schedule, handle, self.target, self.handles, self.predict
            )
        found = self._moves[key]
        start, count = page_of(given, _MOVES)
        return {"moves": found[start : start + count], "start": start, "total": len(found)}

    def _try(self, given: Arguments) -> Data:
        return try_move(
            self.versions.current.schedule, text_of(given, "op"), given.get("args"), self.handles,
            self.predict,
        )  # fmt: skip

    def _apply(self, given: Arguments) -> Data:
        current = self.versions.current
        primitive = find_primitive(text_of(given, "op"))
        bound = decoded(primitive, given.get("args"), self.handles)
        said = call_text(primitive, bound, current.schedule.func)
        after = applied(current.schedule, primitive, bound)
        if after.func is current.schedule.func:
            raise LabError("{0} changes nothing", said)
        return {"version": self.add(current, said, after).id}

    def _undo(self, _: Arguments) -> Data:
        return self._moved(self.versions.undo)

    def _redo(self, _: Arguments) -> Data:
        return self._moved(self.versions.redo)

    def _go(self, given: Arguments) -> Data:
        return self._moved(lambda: self.versions.go(given.get("version")))

    def _moved(self, move: Callable[[], None]) -> Data:
        move()
        self.changed()
        return {"version": self.versions.current.id}

    def _diff(self, given: Arguments) -> Data:
        a, b = (self.versions.get(given.get(name)) for name in ("a", "b"))
        programs = (repr(v.schedule.func) for v in (a, b))
        return {"a": a.id, "b": b.id, "program": line_diff(*programs)}

    def _version(self, given: Arguments) -> Version:
        id = given.get("version")
        return self.versions.current if id is None else self.versions.get(id)


COMMANDS: dict[str, Callable[[Workbench, Arguments], Any]] = {
    "apply": Workbench._apply,
    "diff": Workbench._diff,
    "go": Workbench._go,
    "moves": Workbench._all_moves,
    "redo": Workbench._redo,
    "text": Workbench._text,
    "tree": Workbench._tree,
    "try": Workbench._try,
    "undo": Workbench._undo,
}


def problem(error: BaseException) -> Data:
    """An error that is about no step, as data."""
    kind = type(error).__name__
    if not isinstance(error, TilewrightError):
        return {"kind": kind, "text": f"{kind}: {error}", "hint": None}
    text, *more = str(error).splitlines()
    hints = [line.partition("hint: ")[2] for line in more if line.startswith("  hint: ")]
    return {"kind": kind, "text": text, "hint": hints[0] if hints else None}


def text_of(given: Arguments, name: str) -> str:
    """A text among the keys of a command."""
    value = given.get(name)
    if not isinstance(value, str):
        raise LabError("{0}: expected a text, found {1!r:.80}", name, value)
    return value


def page_of(given: Arguments, most: int) -> tuple[int, int]:
    """The keys `start` and `count` of a command, at most `most` of it."""
    found = []
    for name, default in (("start", 0), ("count", most)):
        value = given.get(name, default)
        if type(value) is not int or value < 0:
            raise LabError("{0}: expected a number from 0 on, found {1!r:.80}", name, value)
        found.append(value)
    return found[0], min(found[1], most)


def plain(value: Any) -> Any:
    """JSON data of which all texts are safe to show, and numbers that JSON has."""
    match value:
        case str():
            return text(value)
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(k): plain(v) for k, v in value.items()}
        case list() | tuple():
            return [plain(v) for v in value]
        case _:
            return value

"""What `tw.plot` is given: arguments of another kind are refused by name, before anything is drawn.

Every refusal is a `TuningError` that names the function and the argument, what was found, what is
expected, and how it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ...autotune.result import BestResult, TuneResult
from ...autotune.session.events import Trial
from ...autotune.show.picture import HasPictures
from ...base.errors import DatabaseError, TilewrightError, TuningError
from ...base.text import short_id
from ...codegen.detect import resolve
from ...schedule import Schedule, Trace
from ...target import Target
from ...tir.ir import Func
from ...tir.program import program_hint, shown
from ...tuning_db import ScheduleRecord, Session, TuningDatabase, Workload
from ...tuning_db.arguments import is_address, opened
from ...tuning_db.store import DatabaseOrPath
from ..workbench.ablation import Seconds
from .decisions import DecisionNames
from .scales import plottable
from .session import Timed, session_trials

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TEXTS = (str, bytes, bool, int, float, type(None))
"""What errors show as it is."""


def refused(name: str, value: object, expected: str, hint: str) -> TuningError:
    """The error for an argument of another kind than it is `expected` to be."""
    words = shown(value)
    if isinstance(value, _TEXTS):
        with suppress(ValueError):  # an integer of more digits than Python writes
            words = repr(value)
    return TuningError("{0}: expected {1}, found {2:.80}", name, expected, words, hint=hint)


def raising_argument(error: Exception, arguments: Iterable[object]) -> TuningError | None:
    """The error for an argument whose own method raised `error`; `None` if none of them did.

    Comparisons, protocols and mappings call methods of whatever class a user passes.
    """
    *_, (frame, _) = walk_tb(error.__traceback__)
    code, module = frame.f_code, str(frame.f_globals.get("__name__"))
    own = module.partition(".")[0] == __name__.partition(".")[0]
    if own or isinstance(error, TilewrightError) or not code.co_argcount:
        return None
    owner = frame.f_locals.get(code.co_varnames[0])
    if not any(value is owner for value in arguments):
        return None
    return TuningError(
        "expected arguments that can be compared and read, found a {0} whose {1} raises {2}: {3}",
        type(owner).__name__,
        code.co_name,
        type(error).__name__,
        error,
        hint="pass a value of a plain type",
    )


def program(func: object, call: str) -> Func:
    """The program of a figure. A schedule is not taken for it: there may be several of one."""
    if isinstance(func, Func):
        return func
    if isinstance(func, Schedule):
        hint = f"{call}(schedule.original, ...) is of the program as it was written"
    else:
        hint = program_hint(func, call)
    raise refused("func", func, "a program (Func)", hint)


def optional_axes(ax: object) -> Axes | None:
    """The axes to draw on, or `None` for those of a new figure."""
    from matplotlib.axes import Axes

    if ax is None or isinstance(ax, Axes):
        return ax
    hint = "fig, ax = plt.subplots() makes one; of several, give one: axes[0]"
    raise refused("ax", ax, "axes of matplotlib", hint)


def require_grid(axes: object, count: int) -> None:
    """Refuse what is no square of axes for so many decisions."""
    from matplotlib.axes import Axes

    given = axes.flat if isinstance(axes, np.ndarray) and axes.shape == (count, count) else ()
    if given and all(isinstance(ax, Axes) for ax in given):
        return
    hint = f"_, axes = plt.subplots({count}, {count}, squeeze=False) makes them"
    raise refused("axes", axes, f"an array of {count} x {count} axes of matplotlib", hint)


def optional_names(names: object) -> list[str] | None:
    """The names of decisions, `None` where they are to be chosen."""
    if names is None:
        return None
    if isinstance(names, Iterable) and not isinstance(names, str):
        listed = list(names)
        if all(isinstance(name, str) for name in listed):
            return listed
    hint = 'write names=["split(i) factors[1]", "split(j) factors[1]"]'
    raise refused("names", names, "a list of names of decisions", hint)


def optional_text(name: str, value: object, hint: str) -> None:
    """Refuse what is neither a text nor `None`."""
    if value is not None and not isinstance(value, str):
        raise refused(name, value, "a text", hint)


def one_of(name: str, value: object, known: Sequence[str]) -> str:
    """One of some words."""
    if isinstance(value, str) and value in known:
        return value
    raise refused(name, value, f"one of {', '.join(map(repr, known))}", f"{name}={known[0]!r}")


def times_by_name(times: object) -> Mapping[str, float] | TuneResult:
    """The times of versions in seconds by their names, or a result of `tune`."""
    if isinstance(times, TuneResult):
        return times
    if not isinstance(times, Mapping):
        hint = 'a time needs a name: {"mine": 3e-6}'
        raise refused("times", times, "a result of tune, or times in seconds by name", hint)
    for name, seconds in times.items():
        if not isinstance(name, str):
            hint = 'the keys name the versions: {"mine": 3e-6}'
            raise refused("a key of times", name, "a text", hint)
        _require_seconds(f"times[{name!r:.40}]", seconds)
    return times


def trace_of(value: object) -> Trace:
    """The trace of whatever has one."""
    if isinstance(value, TuneResult):
        if value.kernels:
            raise TuningError(
                "trace: the result is of {0} kernels", len(value.kernels),
                hint=f"take one of them: result.kernels[{next(iter(value.kernels))!r}]",
            )  # fmt: skip
        if value.best is None:
            raise TuningError(
                "trace: the result has no best schedule",
                hint=f"it ended so: {value.reason}; tune longer, or give a Schedule",
            )
        return value.best.trace
    if isinstance(value, Trace):
        return value
    if isinstance(value, (Schedule, BestResult)):
        return value.trace
    raise refused(
        "trace",
        value,
        "a Trace, a Schedule, a result of tune or its best",
        "tw.plot.ablation(func, result); a recorded one is tw.Trace.from_json(record.trace)",
    )


def target_of(value: object, target: Target | str | None) -> Target:
    """The target that was given, else that of a result of `tune`, else this machine's CPU."""
    if target is None:
        target = value.target if isinstance(value, TuneResult) else "cpu"
    return resolve(target)


def measuring(seconds: object) -> Seconds | None:
    """A function that times schedules, whose results are checked; `None` for the estimate."""
    if seconds is None:
        return None
    if not callable(seconds):
        hint = "seconds=lambda schedule: tw.build(schedule).time(*arrays).median"
        raise refused("seconds", seconds, "a function of a Schedule", hint)
    return _checked(seconds)


def _checked(measure: Callable[..., Any]) -> Seconds:
    def seconds(schedule: Schedule) -> float:
        return _require_seconds("what seconds= returns", measure(schedule))

    return seconds


def _require_seconds(name: str, value: object) -> float:
    """A time: a finite number above 0."""
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        with suppress(OverflowError, TypeError):  # an integer that is too large, a complex number
            seconds = float(value)
            if plottable(seconds, logarithmic=True):
                return seconds
    raise refused(name, value, "seconds, a number above 0", "a Timing has them: timing.median")


# Trials of whatever has some: a result, a run, a database.

Source: TypeAlias = TuneResult | HasPictures | DatabaseOrPath


_SESSION = "give the id of a session, or its first digits"


class TimedCandidate(NamedTuple):
    """The decisions of a candidate by name, and its time."""

    decisions: Mapping[str, int]
    seconds: float


def trials_of(source: Source, session: str | None = None) -> list[Trial]:
    """The trials of a result, of a run, or of a session of a database: by default the newest.

    Raises `TuningError` for what has no trials, and `DatabaseError` for an unknown session.
    """
    optional_text("session", session, _SESSION)
    if not isinstance(source, (TuneResult, HasPictures)):
        database = _opened(source)
        return session_trials(database, _session(database, session)).tried
    return _history(source, session)


def candidates_of(
    source: Source, database: DatabaseOrPath | None, session: str | None, sketch: str | None
) -> tuple[list[TimedCandidate], str]:
    """The candidates of one sketch that ran, the fastest first, and the name of the sketch.

    That is by default the sketch of the fastest. The schedules of a result or a run are in its
    database.
    """
    optional_text("session", session, _SESSION)
    optional_text("sketch", sketch, "the titles of plots are names of sketches")
    if not isinstance(source, (TuneResult, HasPictures)):
        own = _opened(source)
        chosen = _session(own, session)
        return _of_sketch(own, session_trials(own, chosen).timed, sketch, chosen.id)
    if database is None:
        raise TuningError(
            "the decisions of a {0} are in its database",
            type(source).__name__,
            hint="give it as database=",
        )
    store, timed = opened(database, TuningError), []
    for trial in _history(source, session):
        if trial.seconds is not None:
            generator = store.get(ScheduleRecord, trial.schedule).generator
            more = (trial.schedule, generator, trial.predicted, trial.elapsed)
            timed.append(Timed(trial.seconds, trial.schedule, *more))
    return _of_sketch(store, sorted(timed), sketch, _session_id(source))


def _of_sketch(
    database: TuningDatabase, timed: list[Timed], sketch: str | None, session: str
) -> tuple[list[TimedCandidate], str]:
    if not timed:
        return [], sketch or ""
    wanted = timed[0].generator if sketch is None else sketch
    same = [t for t in timed if t.generator == wanted]
    if not same:
        known = ", ".join(sorted({t.generator for t in timed}))
        raise TuningError("no candidate is of the sketch {0!r}", wanted, hint=f"there are: {known}")
    names, found = _names(database, session), []
    for one in same:
        try:
            trace = Trace.from_json(database.get(ScheduleRecord, one.schedule).trace)
        except TilewrightError:
            continue  # damaged, or of a primitive that is not here
        found.append(TimedCandidate(names.decisions(trace), one.seconds))
    return found, wanted


def _names(database: TuningDatabase, session: str) -> DecisionNames:
    """The names of decisions of the program of a session, if the database has it."""
    try:
        workload = database.get(Session, session).workload
        return DecisionNames.of(database.get(Workload, workload))
    except DatabaseError:
        return DecisionNames(None)


def _session_id(source: TuneResult | HasPictures) -> str:
    """The session of a result, or of a run of one program."""
    if isinstance(source, TuneResult):
        return source.session
    return next((p.started.session for p in source.pictures.pictures.values()), "")


def _opened(source: object) -> TuningDatabase:
    """The database of a source that is no result and no run."""
    if isinstance(source, TuningDatabase) or is_address(source):
        return opened(source, TuningError)
    raise refused(
        "source",
        source,
        "a result of tune, a run, or a TuningDatabase or the path of one",
        'tw.plot.convergence(result), or tw.plot.convergence("tuning.db")',
    )


def _session(database: TuningDatabase, id: str | None) -> Session:
    if id is not None:
        return database.find(id, Session)
    measured = {tally.session for tally in database.tally()}
    sessions = [s for s in database.records(Session) if s.id in measured]
    if not sessions:
        raise TuningError("there is no measurement in {0}", database.location)
    return max(sessions, key=lambda s: s.started)


def _history(source: TuneResult | HasPictures, session: str | None) -> list[Trial]:
    if session is not None:
        raise TuningError(
            "session: a {0} has its sessions, found {1!r:.80}",
            type(source).__name__,
            session,
            hint="plot its database to choose another one",
        )
    if isinstance(source, TuneResult):
        if source.kernels:
            raise TuningError(
                "the result is of {0} kernels", len(source.kernels),
                hint=f"plot one of them: result.kernels[{next(iter(source.kernels))!r}]",
            )  # fmt: skip
        return list(source.history)
    pictures = list(source.pictures.pictures.values())
    if len(pictures) > 1:
        named = ", ".join(short_id(p.started.session) for p in pictures)
        raise TuningError(
            "the run is of {0} programs", len(pictures),
            hint=f"plot its database, with session= one of {named}",
        )  # fmt: skip
    return [trial for picture in pictures for trial in picture.trials]

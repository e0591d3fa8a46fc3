"""`tune`: search for a fast schedule of a program by measuring candidates."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, Unpack, overload, runtime_checkable

from ..base.errors import TuningError, checked_call, open_files_hint, system_errors
from ..codegen.detect import check_runnable, resolve, usable_processors
from ..schedule import Schedule
from ..target import Target
from ..tir.ir import Func
from ..tir.verify import verify
from ..tuning_db.arguments import opened
from ..tuning_db.journal import journalled
from ..tuning_db.store import DatabaseOrPath
from .cluster.cluster import Cluster
from .cluster.scheduler import connected
from .config import TuneConfig
from .measure.numeric_check import require_tolerance
from .result import BestResult, TuneResult
from .session.budget import Budget, StopRules
from .session.events import Callback, Event
from .session.session import Tuning
from .session.several_targets import run_each
from .session.tuning_job import TuningJob
from .session.tuning_run import TuningRun
from .show.picture import Pictures
from .show.progress import each_of, in_notebook, progress_here
from .tasks import Kernels, tasks, weights_of
from .tvm_records import HintFiles, read_hints

_log = logging.getLogger(__name__)
SeveralTargets: TypeAlias = list[str] | list[Target] | list[Target | str]
Targets: TypeAlias = Target | str | SeveralTargets
TRIALS = 64
"""Those of a kernel, where neither trials nor seconds are given."""


@runtime_checkable
class HasKernels(Protocol):
    """What is built to several kernels, such as a graph."""

    def kernels(self) -> Mapping[Func, float]:
        """Their programs, and how often a call runs each."""
        ...


class _Options(TypedDict, total=False):
    weights: Sequence[float] | None
    trials: int | None
    seconds: float | None
    stop_at: float | None
    min_gain: float | None
    seed: int
    resume: bool
    tolerance: float | None
    callback: Callback | None
    config: TuneConfig | None
    progress: bool
    cluster: Any
    hints: HintFiles | None


@overload
def tune(
    func: Func | Schedule | Sequence[Schedule],
    target: Target | str = "cpu",
    *,
    database: DatabaseOrPath,
    background: Literal[False] = False,
    **options: Unpack[_Options],
) -> TuneResult: ...
@overload
def tune(
    func: Sequence[Func] | HasKernels,
    target: Targets = "cpu",
    *,
    database: DatabaseOrPath,
    background: Literal[False] = False,
    **options: Unpack[_Options],
) -> list[TuneResult]: ...
@overload
def tune(
    func: Func | Schedule | Sequence[Schedule],
    target: SeveralTargets,
    *,
    database: DatabaseOrPath,
    background: Literal[False] = False,
    **options: Unpack[_Options],
) -> list[TuneResult]: ...
@overload
def tune(
    func: Func | Schedule | Sequence[Schedule],
    target: Target | str = "cpu",
    *,
    database: DatabaseOrPath,
    background: Literal[True],
    **options: Unpack[_Options],
) -> TuningRun[TuneResult, BestResult | None]: ...
@overload
def tune(
    func: Sequence[Func] | HasKernels,
    target: Targets = "cpu",
    *,
    database: DatabaseOrPath,
    background: Literal[True],
    **options: Unpack[_Options],
) -> TuningRun[list[TuneResult], list[BestResult | None]]: ...
@overload
def tune(
    func: Func | Schedule | Sequence[Schedule],
    target: SeveralTargets,
    *,
    database: DatabaseOrPath,
    background: Literal[True],
    **options: Unpack[_Options],
) -> TuningRun[list[TuneResult], list[BestResult | None]]: ...
@checked_call(TuningError, 'tw.tune(func, database="tuning.db")')
def tune(  # noqa: PLR0913 - each option of a session has a name
    func: Func | Schedule | Sequence[Schedule] | Sequence[Func] | HasKernels,
    target: Targets = "cpu",
    *,
    database: DatabaseOrPath,
    weights: Sequence[float] | None = None,
    trials: int | None = None,
    seconds: float | None = None,
    stop_at: float | None = None,
    min_gain: float | None = None,
    seed: int = 0,
    resume: bool = False,
    tolerance: float | None = None,
    callback: Callback | None = None,
    config: TuneConfig | None = None,
    progress: bool = True,
    background: bool = False,
    cluster: Any = None,
    hints: HintFiles | None = None,
) -> TuneResult | list[TuneResult] | TuningRun[Any, Any]:
    """Search for a fast schedule of `func` on `target` by measuring candidates on this machine.

    Sketch rules make the schedules to search. Symbolic schedules of a program in place of `func`
    are searched as they are. Concrete ones, as you have written them, are candidates beside those
    of the rules, and what they sampled is open again: half of the trials are for those with
    `sample_` steps. `TuneResult.schedules` says how each ranked. Primitives of the user must come
    from modules that can be imported.

    Of a graph all kernels are tuned, each weighted by how often a call runs it. So are those of a
    program that `build` makes several kernels of, and `TuneResult.kernels` has their results.

    Several programs share one budget, and a list of results is returned. Each batch goes to the
    program for which it is expected to gain most, in seconds of a call times its weight (how often
    it is called, say; by default 1). This is Ansor's task scheduler, see `gain`.

    The budget is `trials` new measurements, `seconds` of wall-clock time, or both: the first that
    is used up ends the session. By default it is 64 trials for each kernel. `stop_at` ends it for
    a program that reaches that share of its roofline (0.9 say, see `roofline`), and `min_gain` for
    all once a second of tuning is expected to gain less than that share of their time.

    The program as written and the schedule that a build without records would choose are candidates
    too, and are timed interleaved with the fastest at the end: no schedule is called best that is
    slower, and `TuneResult.gains` has the gain over them. What would take long is not timed again,
    and the gain is then a lower bound.

    Every measurement is in `database` (or the one at that path or URL, which is created where there
    is none) before the next begins. Where that is on a server that gets out of reach, measurements
    wait in a file of this machine, and arrive later. Earlier measurements of the program
    and target warm the search and are not repeated; schedules of other sizes of the program are the
    first candidates. `resume` continues the last session of this program, target, budget and
    tolerance that did not finish; if there is none, a warning says why, and a new one starts.

    With `tolerance`, schedules with inexact steps are searched too: convolutions by Winograd's
    algorithm. It is the largest error that is accepted of them, in the measure of `numeric_check`.
    Other schedules change the order of sums at most. `build` takes a `tolerance` as well.

    The progress is shown while it lasts: live in a notebook and in a terminal, as lines on the
    standard error elsewhere; `progress=False` shows nothing. A `callback` is called besides.

    `hints` are files of TVM's tuning records (AutoTVM, auto-scheduler, MetaSchedule). Those of a
    nest of this program's loops and dtypes give the first candidates: of the schedules here those
    with the nearest tile sizes, at most six. They are measured as any other, and
    `TuneResult.hints` says what became of them.

    With `cluster`, a `dask.distributed.Client` or the address of a scheduler, candidates are
    measured by its workers in place of this machine, and `target` is theirs: `cpu` is the processor
    that they have. Whoever is free gets a batch, drawn by what is known by then. Of several targets
    (a list) each is tuned by the workers that have it, all at once, with a budget of its own; the
    results are a list, of all programs for the first target, then for the next.

    With `background=True` a `TuningRun` is returned at once, and the session runs in a thread of
    this process: `run.best`, `run.stop()`, `run.result()`, `await run`.

    An interrupt (Ctrl-C, or that of a notebook) ends the session early, and the result has the best
    so far. SIGTERM and SIGHUP end it too, with the best so far in the database; the process then
    ends by that signal. A second signal ends it at once. This holds in the main thread, for signals
    that the program does not handle itself. `callback` is called in the thread that tunes with the
    events of `events`; an exception of it ends the session and is passed on. The same `seed` gives
    the same search, but not the same measurements.

    Raises `TuningError` for a budget that is none, where a program cannot be measured, and for a
    file of hints that has something else (`line` in its data),
    `VerifyError` for a program that breaks a rule (reads out of bounds, say), `ScheduleError` where
    no rule makes a schedule for it, `TargetError` for a target that this machine does not run, and
    `DatabaseError`; `ClusterError` for a cluster without workers or scheduler. Of a run in the
    background, what is not refused at once is raised by its
    `result`.
    """
    with system_errors(TuningError, "preparing to tune"), ExitStack() as opened_here:
        divide = not isinstance(func, HasKernels)
        if isinstance(func, HasKernels):
            runs = func.kernels()
            func, weights = list(runs), list(runs.values()) if weights is None else weights
        programs, several = tasks(func)
        require_tolerance(tolerance, TuningError)
        for program in programs:
            verify(program.func)
        shares = weights_of(weights, len(programs))
        told = None if hints is None else read_hints(hints)
        client = cluster
        if isinstance(cluster, str):
            client = opened_here.enter_context(connected(cluster))
        several = several or isinstance(target, list)
        targets: list[Target | str] = [*target] if isinstance(target, list) else [target]
        _require_targets(targets, cluster)
        farms = [None if cluster is None else Cluster(client, t, among=targets) for t in targets]
        runnable = [
            _runnable(t) if farm is None else farm.target
            for t, farm in zip(targets, farms, strict=True)
        ]
        kernels = [Kernels(programs, shares, t, divide=divide) for t in runnable]
        budgets = [_budget(trials, seconds, len(tuned.tasks)) for tuned in kernels]
        rules = StopRules(stop_at, min_gain)
        kept_in = opened(database, TuningError, write=True)
        jobs = [
            TuningJob(
                tuned.tasks,
                resolved,
                kept_in,
                budget,
                rules,
                tuned.weights,
                seed,
                resume,
                tolerance,
                config or TuneConfig(),
                farm,
                told,
            )
            for tuned, resolved, budget, farm in zip(kernels, runnable, budgets, farms, strict=True)
        ]
        run_shows = background and progress and in_notebook()
        pictures = Pictures()
        shown = None
        if progress and not run_shows:
            shown = progress_here(pictures, background=background)
        to_close = opened_here.pop_all()

    sessions: list[list[Tuning]] = [[] for _ in jobs]

    def work(stop: threading.Event, see: Callback | None, tunings: list[Tuning]) -> _Found:
        with (
            to_close,
            shown or nullcontext(),
            _system_errors(callback) as given,
            journalled(jobs[0].database) as kept,
        ):
            tell = each_of(see, shown, given)
            each = [replace(job, database=kept) for job in jobs]
            if len(each) == 1:
                sessions[0] = tunings
                found = [each[0].run(tell, stop, tunings)]
            else:
                found = run_each(each, tell, stop, sessions)
                tunings += [tuning for own in sessions for tuning in own]
        results = [r for k, some in zip(kernels, found, strict=True) for r in k.of_programs(some)]
        return results if several else results[0]

    def choose(_: Sequence[BestResult | None]) -> BestResult | list[BestResult | None] | None:
        pairs = zip(kernels, sessions, strict=True)
        each = [best for k, own in pairs for best in k.alone([t.best for t in own])]
        return each if several else each[0]

    if background:
        return TuningRun(work, choose, shown=run_shows)
    return work(threading.Event(), None if shown is None else pictures.add, [])


_Found = TuneResult | list[TuneResult]


def _require_targets(targets: Sequence[Target | str], cluster: object) -> None:
    """Raise `TuningError` for targets that no session has: none, twice one, or several here."""
    texts = [str(target) for target in targets]
    if not texts or len({*texts}) < len(texts):
        raise TuningError("target={0!r}: expected different targets", texts)
    if len(texts) > 1 and cluster is None:
        raise TuningError(
            "{0} targets, which one machine does not have",
            len(texts),
            hint="give the cluster whose workers have them: tune(..., cluster=client)",
        )


def _budget(trials: int | None, seconds: float | None, programs: int) -> Budget:
    """The budget of so many programs. Raises `TuningError` for what is none."""
    default = TRIALS * programs if trials is None and seconds is None else trials
    budget = Budget(default, seconds)
    if trials is not None and trials < programs:
        raise TuningError("{0} trials are not enough for {1} programs", trials, programs)
    return budget


@contextmanager
def _system_errors(callback: Callback | None) -> Iterator[Callback | None]:
    """Raise `TuningError` for an `OSError` inside, but for one of the callback.

    That is given back to be called in its place.
    """
    raised: list[OSError] = []

    def call(event: Event) -> None:
        assert callback is not None
        try:
            callback(event)
        except OSError as error:
            raised.append(error)
            raise

    try:
        yield None if callback is None else call
    except OSError as error:
        if error in raised:
            raise
        raise TuningError("tuning failed: {0}", error, hint=open_files_hint(error)) from error


def _runnable(target: Target | str) -> Target:
    resolved = resolve(target)
    check_runnable(resolved)
    if resolved.threads > usable_processors():
        _log.warning(
            "target %s has more threads than the %d processors that this process may use",
            resolved,
            usable_processors(),
        )
    return resolved

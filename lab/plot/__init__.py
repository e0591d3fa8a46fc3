"""`tw.plot`: figures of tuning for those who compose their own, with matplotlib.

    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2)
    tw.plot.convergence(result, ax=left)
    tw.plot.predictions(result, ax=right)

Functions draw on `ax`, by default the axes of a new figure, and return them. Most take a result of
`tune`, a run, or a database (or the path or URL of one) with the id of a `session`, by default the
newest that measured. The extra `plot` installs matplotlib; without it, and for arguments of another
kind, they raise `TuningError`, also for one that raises when it is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from importlib import import_module
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypeVar, get_args

import numpy as np

from ...autotune.measure.machine import with_rates
from ...autotune.result import BestResult, TuneResult
from ...base.durations import format_change, format_seconds
from ...base.errors import TuningError, checked_call, similar
from ...base.hints import MissingNameError
from ...base.text import count, format_si
from ...schedule import Schedule, Trace
from ...target import Target
from ...tir.ir import Func
from ...tuning_db.store import DatabaseOrPath
from ..pictures.arguments import (
    Source,
    TimedCandidate,
    candidates_of,
    measuring,
    one_of,
    optional_axes,
    optional_names,
    program,
    raising_argument,
    require_grid,
    target_of,
    times_by_name,
    trace_of,
    trials_of,
)
from ..pictures.decisions import name_lines
from ..pictures.roofline import bounds_of
from ..pictures.trials import rank_correlation, times_and_best
from ..workbench.ablation import Ablated, Seconds, estimate, prefixes, without_each
from .axes import (
    SMALL,
    axes_of_rows,
    drawn,
    fitting,
    legend,
    log_seconds,
    logarithmic,
    plain,
    points_of,
    prepared,
    thinned,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

__all__ = ["ablation", "convergence", "decisions", "pairs", "predictions", "roofline"]

if not TYPE_CHECKING:  # type checkers then still know which names there are

    def __getattr__(name: str) -> Any:
        def hint(name: str) -> str:
            return similar(name, __all__) or f"there are {', '.join(__all__)}"

        raise MissingNameError(f"module {__name__!r} has no attribute", name, hint)


Steps: TypeAlias = Literal["without", "prefixes"]
P = ParamSpec("P")
R = TypeVar("R")
_PAIRED = 5
"""Decisions that `pairs` shows by default."""
_STEP = 48
"""Characters of a step, or of the name of a version, that are shown."""
_NAME = 13
"""Characters of a line of the name of a decision."""
_COLUMN, _LINE = 0.8, 0.2
"""Inches between the decisions of parallel coordinates, at least, and between names of a legend."""


def _figure(function: Callable[P, R]) -> Callable[P, R]:
    """A function that says what to install where matplotlib is not, and what arguments it takes."""
    checked = checked_call(TuningError)(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            import_module("matplotlib")
        except ModuleNotFoundError as error:
            raise TuningError(
                "a plot takes matplotlib, which is not installed",
                hint="pip install 'tilewright[plot]'",
            ) from error
        try:
            return checked(*args, **kwargs)
        except Exception as error:
            raising = raising_argument(error, [*args, *kwargs.values()])
            if raising is None:
                raise
            raise raising from error

    return call


@_figure
def convergence(source: Source, *, session: str | None = None, ax: Axes | None = None) -> Axes:
    """The times of trials in seconds and the best so far, against seconds since the first trial.

    Raises `TuningError` for what has no trials, and `DatabaseError` for an unknown session.
    """
    ax = optional_axes(ax)
    trials = trials_of(source, session)
    timed, best = times_and_best(trials)
    ax = prepared(ax, shown=bool(best))
    ax.scatter(*drawn(timed), s=9, color="0.55", label="trials")
    ax.step(*drawn(best), where="post", label="best so far")
    ax.set_xlabel("seconds since the first trial")
    log_seconds(ax, "y", "time of a call")
    ax.legend()
    return ax


@_figure
def predictions(source: Source, *, session: str | None = None, ax: Axes | None = None) -> Axes:
    """The seconds that the cost model expected against those measured, and their rank correlation.

    Raises `TuningError` for what has no trials, and `DatabaseError` for an unknown session.
    """
    ax = optional_axes(ax)
    pairs_of = [
        (t.predicted, t.seconds)
        for t in trials_of(source, session)
        if t.predicted is not None and t.seconds is not None
    ]
    ax = prepared(ax, shown=bool(pairs_of))
    rank = rank_correlation(pairs_of)
    label = "trials" if rank is None else f"trials, rank correlation {rank:.2f}"
    ax.scatter(*drawn(pairs_of), s=12, alpha=0.7, label=label)
    if pairs_of:
        ends = min(map(min, pairs_of)), max(map(max, pairs_of))
        ax.plot(ends, ends, linestyle="--", color="0.4", label="as predicted")
    log_seconds(ax, "x", "predicted")
    log_seconds(ax, "y", "measured")
    ax.legend()
    return ax


@_figure
def decisions(
    source: Source,
    database: DatabaseOrPath | None = None,
    *,
    session: str | None = None,
    sketch: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Parallel coordinates: the decisions of the candidates of a sketch, and their times.

    Each decision is named as the sliders of the lab name it, `split(i) factors[1]`, and has its
    values at even distances. If the database does not have the program, names are those of the
    printed trace, `t3`.
    `sketch` is by default that of the fastest candidate. A result or a run needs its `database`,
    which has the schedules.

    Raises `TuningError` for what has no trials, a missing database, and an unknown sketch.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_hex
    from matplotlib.patheffects import withStroke

    ax = optional_axes(ax)
    candidates, name = candidates_of(source, database, session, sketch)
    columns = _varying(candidates)
    width = max(6.4, _COLUMN * (len(columns) + 2))
    ax = prepared(ax, shown=bool(columns), size=(width, 4.8))
    if not columns:
        return ax
    heights = [_heights(values) for values in columns.values()]
    logs = np.log10([c.seconds for c in candidates])
    heights.append((logs - logs.min()) / (np.ptp(logs) or 1.0))
    ranks = np.arange(len(candidates))
    rows = np.column_stack(heights)
    lines = [np.column_stack([np.arange(rows.shape[1]), row]) for row in rows[::-1]]
    ax.add_collection(LineCollection(lines, array=ranks[::-1], cmap="viridis", alpha=0.4, lw=0.6))
    halo = withStroke(linewidth=2.5, foreground=to_hex(ax.get_facecolor()))
    fastest = f"fastest: {format_seconds(candidates[0].seconds)}"
    ax.plot(rows[0], color="C1", linewidth=2.5, label=fastest)
    ax.set_xlim(-0.6, len(columns) + 0.6)
    across, up = points_of(ax)
    room = across / (len(columns) + 1.2)
    for at, values in enumerate(columns.values()):
        ax.axvline(at, color="0.8", linewidth=0.8, zorder=0)
        places = sorted(dict(zip(values, heights[at].tolist(), strict=True)).items())
        size = fitting([str(value) for value, _ in places], 0.8 * room)
        for n in thinned(len(places), up / (1.5 * size)):
            value, height = places[n]
            words = ax.text(at, height, f"{value} ", ha="right", va="center", size=size)
            words.set_path_effects([halo])
    ends = candidates[0].seconds, candidates[-1].seconds
    for height, seconds in zip((0.0, 1.0), ends, strict=True):
        ax.text(len(columns), height, f" {format_seconds(seconds)}", va="center", size=SMALL)
    names = [_in_lines(name) for name in (*columns, "time")]
    longest = [line for name in names for line in name.split("\n")]
    ax.set_xticks(range(len(names)), names, fontsize=fitting(longest, 0.9 * room))
    ax.set_yticks([])
    ax.set_title(plain(name), wrap=True, fontsize="medium")
    ax.legend(loc="upper right", bbox_to_anchor=(1.0, -0.07), fontsize=SMALL, frameon=False)
    return ax


@_figure
def pairs(
    source: Source,
    database: DatabaseOrPath | None = None,
    *,
    session: str | None = None,
    sketch: str | None = None,
    names: Sequence[str] | None = None,
    axes: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Decisions of the candidates of a sketch in pairs, coloured by time; on the diagonal the time.

    `names` are those of the decisions, by default up to five that vary. `axes` (n, n) are those
    to draw on, by default of a new figure; they are returned. The rest is as for `decisions`.
    """
    import matplotlib.pyplot as plt

    wanted = optional_names(names)
    candidates, name = candidates_of(source, database, session, sketch)
    candidates.reverse()  # so that the fastest marks are on top
    varying = _varying(candidates)
    chosen = list(varying)[:_PAIRED] if wanted is None else wanted
    unknown = [n for n in chosen if n not in varying]
    if unknown or not chosen:
        what = ", ".join(unknown) or "nothing"
        known = ", ".join(varying) or "none"
        raise TuningError("{0} varies in {1!r}; decisions that do: {2}", what, name, known)
    count = len(chosen)
    if axes is None:
        figure, axes = plt.subplots(
            count, count, figsize=(2.0 * count, 2.0 * count), squeeze=False, layout="constrained"
        )
        figure.suptitle(plain(name), wrap=True)
    require_grid(axes, count)
    seconds = [c.seconds for c in candidates]
    for i, below in enumerate(chosen):
        for j, across in enumerate(chosen):
            ax = axes[i, j]
            if i == j:
                ax.scatter(varying[across], seconds, s=8)
                log_seconds(ax, "y", None)
            else:
                colours = np.log10(seconds)
                ax.scatter(varying[across], varying[below], c=colours, cmap="viridis", s=8)
            if i == len(chosen) - 1:
                ax.set_xlabel(_in_lines(across))
            if j == 0:
                ax.set_ylabel("time" if i == 0 else _in_lines(below))
    return axes


@_figure
def roofline(
    func: Func,
    times: Mapping[str, float] | TuneResult,
    *,
    target: Target | str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The roofline of a program on a target, with versions by their times in seconds.

    Of a result of `tune` these are the best, and what it is compared with. The rates are operations
    on floats in a second, the bandwidths those of the memories of the target: by default that of
    the result, else the CPU.

    Raises `TargetError` for a target whose rates are not known, and `TuningError` for a program
    without operations on floats.
    """
    from matplotlib.ticker import FuncFormatter

    func, ax = program(func, "tw.plot.roofline"), optional_axes(ax)
    given = times_by_name(times)
    versions = _times(given) if isinstance(given, TuneResult) else given
    resolved = with_rates(target_of(given, target))
    bounds = bounds_of(func, resolved)
    if bounds is None:
        raise TuningError("{0} has no operations on floats, and no roofline", func.name)
    own = ax is None
    ax = prepared(ax, shown=True, size=(9.0, max(4.8, _LINE * (len(versions) + 8))))
    for memory, rate in bounds.bandwidths.items():
        ax.plot(*drawn(bounds.slope(memory)), label=f"{memory}, {format_si(rate, 'B/s')}")
    peak = f"peak, {format_si(bounds.peak, 'FLOP/s')}"
    ax.plot(*drawn(bounds.ceiling), color="black", label=peak)
    for marker, (name, seconds) in zip(_markers(), versions.items(), strict=False):
        label = f"{plain(name, _STEP)}, {format_seconds(seconds)}"
        rate = bounds.flops / seconds
        ax.plot([bounds.intensity], [rate], marker=marker, linestyle="", label=label)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("operations for each byte of the arguments")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: format_si(rate, "FLOP/s")))
    legend(ax, own=own)
    return ax


@_figure
def ablation(
    func: Func,
    trace: Trace | Schedule | BestResult | TuneResult,
    *,
    steps: Steps = "without",
    seconds: Seconds | None = None,
    target: Target | str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """What each step of a schedule gains.

    `without`: by what factor the schedule is slower (to the right) or faster without a step, and
    without the steps that need it. `prefixes`: the time in seconds after each step, from the
    program as written on. `seconds` returns the time of a `Schedule`, such as
    `lambda sch: tw.build(sch, target).time(*arrays).median`; by default it is the estimate for
    `target`: by default that of the result, else the CPU.

    Raises `ScheduleError` if the trace does not apply to the program, and `TuningError` if there is
    no estimate for the target.
    """
    func, ax = program(func, "tw.plot.ablation"), optional_axes(ax)
    known, kind = trace_of(trace), one_of("steps", steps, get_args(Steps))
    measure = measuring(seconds) or estimate(with_rates(target_of(trace, target)))
    whole = measure(known.apply(func))
    if kind == "without":
        rows = list(without_each(func, known, measure))
        ratios = [1.0 if r.seconds is None else r.seconds / whole for r in rows]
        texts = [_worth(row, ratio) for row, ratio in zip(rows, ratios, strict=True)]
        left, widths = 1.0, [ratio - 1 for ratio in ratios]
    else:
        rows = list(prefixes(func, known, measure))
        left, widths = 0.0, [r.seconds or 0.0 for r in rows]
        texts = [format_seconds(r.seconds) if r.seconds else "does not compile" for r in rows]
    ax = axes_of_rows(ax, [r.step for r in rows], texts, _STEP)
    if not rows:
        return ax
    ax.barh(range(len(rows)), widths, left=left)
    if kind == "without":
        ax.axvline(1.0, color="0.4", linestyle="--")
        logarithmic(ax, "x", _factor)
        ax.set_xlabel("faster ← without the step → slower")
    else:
        log_seconds(ax, "x", "time after the step")
    return ax


def _varying(candidates: Sequence[TimedCandidate]) -> dict[str, list[int]]:
    """The decisions that all candidates have, and of which they took several values."""
    if not candidates:
        return {}
    names = [n for n in candidates[0].decisions if all(n in c.decisions for c in candidates)]
    columns = {n: [c.decisions[n] for c in candidates] for n in names}
    return {n: values for n, values in columns.items() if len(set(values)) > 1}


def _in_lines(name: str) -> str:
    """The name of a decision beside an axis."""
    return "\n".join(map(plain, name_lines(name, _NAME)))


def _heights(values: Sequence[int]) -> NDArray[np.float64]:
    """Values by their rank among the distinct ones, from 0 to 1."""
    distinct, ranks = np.unique(values, return_inverse=True)
    return ranks / max(1, len(distinct) - 1)


def _times(result: TuneResult) -> dict[str, float]:
    """The best of a result and what it is compared with, by their times."""
    if result.best is None:
        return {}
    best = result.best.seconds
    return {**{str(n): best * gain.ratio for n, gain in result.gains.items()}, "best": best}


def _markers() -> Iterator[str]:
    return cycle("os^Dvx+*")


def _factor(ratio: float) -> str:
    """A ratio of times as a factor above 1, the same for faster and slower: `1.25x`."""
    return f"{max(ratio, 1 / ratio):.4g}x"


def _worth(row: Ablated, ratio: float) -> str:
    if row.seconds is None:
        return "cannot be left out"
    along = f", with {count(row.along, 'step')} that need it" if row.along else ""
    return f"{format_change(ratio)}{along}"

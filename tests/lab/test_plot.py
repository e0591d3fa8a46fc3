"""Figures: what is on the axes, as data; nothing is compared by pixels."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.autotune.result import BestResult
from tilewright.base.durations import MeasuredTime, format_change
from tilewright.base.errors import BuildError, DatabaseError, TuningError
from tilewright.lab import plot
from tilewright.lab.pictures.arguments import TimedCandidate, trials_of
from tilewright.lab.workbench.ablation import prefixes, without_each
from tilewright.tuning_db import TuningDatabase

from ..refusals import refused
from .databases import FUNC, Tuning, tuned
from .test_result import RESULT

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402 - after the choice of a backend

TARGET = "cpu -mcpu=skylake-avx512 -threads=2"


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture
def database(tmp_path: Path) -> TuningDatabase:
    return tuned(tmp_path / "tuning.db")


def labels(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def line(ax: Any, number: int = 0) -> Any:
    """The points of a line."""
    return ax.lines[number].get_xydata().tolist()


def marks(ax: Any) -> Any:
    """The places of the first marks."""
    return ax.collections[0].get_offsets().tolist()


def widths(ax: Any) -> list[float]:
    """The widths of bars."""
    return [bar.get_width() for bar in ax.patches]


def texts(ax: Any) -> list[str]:
    return [text.get_text().strip() for text in ax.texts]


def test_convergence_of_a_result_and_of_a_database(database: TuningDatabase) -> None:
    ax = tw.plot.convergence(RESULT)
    assert ax.get_xlabel() == "seconds since the first trial"
    assert line(ax) == [[0.0, 2e-3], [3.0, 2e-3]]
    assert marks(ax) == [[0.0, 9e-3], [2.0, 3e-3], [3.0, 2e-3]]
    assert ax.get_yscale() == "log"
    assert ax.yaxis.get_major_formatter()(2e-3, 0) == "2 ms"
    drawn = tw.plot.convergence(database, ax=ax)
    assert drawn is ax
    assert line(ax, 1) == [[0, 8e-3], [1, 4e-3], [4, 2e-3], [5, 1e-3]]


def test_the_newest_session_that_measured_is_the_default(tmp_path: Path) -> None:
    tuning = Tuning(tmp_path / "tuning.db")
    first = tuning.start()
    tuning.trial(first, 2, 4e-3)
    second = tuning.start()
    tuning.trial(second, 4, 2e-3)
    tuning.start()
    assert line(tw.plot.convergence(tuning.database)) == [[0.0, 2e-3]]
    older = tw.plot.convergence(tuning.database, session=first.id[:8])
    assert line(older) == [[0.0, 4e-3]]
    with refused(DatabaseError, "session", "00000000"):
        tw.plot.convergence(tuning.database, session="00000000")


def test_a_run_is_drawn_from_its_database(database: TuningDatabase) -> None:
    run = tw.open_run(database)
    assert line(tw.plot.convergence(run))[-1] == [5.0, 1e-3]
    assert tw.plot.decisions(run, database).get_title() == "tiling(vector=True)"


def test_predictions_have_the_diagonal_and_the_correlation() -> None:
    ax = tw.plot.predictions(RESULT)
    assert marks(ax) == [[18e-3, 9e-3], [6e-3, 3e-3], [4e-3, 2e-3]]
    assert line(ax) == [[2e-3, 2e-3], [18e-3, 18e-3]]
    assert labels(ax) == ["trials, rank correlation 1.00", "as predicted"]


def test_decisions_are_parallel_coordinates(database: TuningDatabase) -> None:
    ax = tw.plot.decisions(database)
    lines: Any = ax.collections[0]
    assert [segment.tolist() for segment in lines.get_segments()] == [
        [[0, 1], [1, 1]],
        [[0, 0], [1, 0]],
    ]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["split(i)\nfactors[1]", "time"]
    assert texts(ax) == ["8", "16", "1 ms", "2 ms"]
    assert labels(ax) == ["fastest: 1 ms"]
    other = tw.plot.decisions(database, sketch="tiling(vector=False)")
    assert texts(other) == ["There is nothing to show."]
    with refused(TuningError, "x"):
        tw.plot.decisions(database, sketch="x")


def test_decisions_of_a_result_are_in_its_database(tmp_path: Path) -> None:
    tuning = Tuning(tmp_path / "tuning.db")
    tuning.database.put(*(tuning.schedule(tile) for tile in (8, 16)))
    history = [
        replace(trial, schedule=tuning.schedule(tile).id)
        for trial, tile in zip(RESULT.history[2:], (8, 16), strict=True)
    ]
    result = replace(RESULT, history=tuple(history))
    ax = tw.plot.decisions(result, tuning.database)
    assert texts(ax) == ["8", "16", "2 ms", "3 ms"]
    assert line(ax) == [[0, 1], [1, 0]]
    with refused(TuningError, "TuneResult"):
        tw.plot.decisions(result)


NAME = "split(i) factors[1]"


def test_decisions_of_an_unknown_program_have_the_names_of_the_trace(tmp_path: Path) -> None:
    tuning = Tuning(tmp_path / "tuning.db")
    session = tuning.start()
    for tile, seconds in ((8, 2e-3), (16, 1e-3)):
        tuning.trial(session, tile, seconds)
    result = replace(RESULT, session=session.id, history=tuple(trials_of(tuning.database)))
    (ax,) = tw.plot.pairs(result, tuning.database).flat
    assert ax.get_xlabel() == "split(i)\nfactors[1]"
    elsewhere = replace(RESULT, history=result.history)
    (ax,) = tw.plot.pairs(elsewhere, tuning.database).flat
    assert ax.get_xlabel() == "t4"


def test_pairs_of_decisions(tmp_path: Path) -> None:
    tuning = Tuning(tmp_path / "tuning.db")
    session = tuning.start()
    for tile, seconds in ((8, 2e-3), (16, 1e-3)):
        tuning.trial(session, tile, seconds)
    axes = tw.plot.pairs(tuning.database)
    assert axes.shape == (1, 1)
    assert marks(axes[0, 0]) == [[8, 2e-3], [16, 1e-3]]
    _, given = plt.subplots(2, 2)
    both = tw.plot.pairs(tuning.database, names=[NAME, NAME], axes=given)
    assert both is given
    assert marks(both[0, 1]) == [[8, 8], [16, 16]]
    with pytest.raises(TuningError, match="t9 varies in"):
        tw.plot.pairs(tuning.database, names=["t9"])


def test_rooflines_have_bandwidths_the_peak_and_versions() -> None:
    ax = tw.plot.roofline(FUNC, {"mine": 1e-4}, target=TARGET)
    named = labels(ax)
    assert [name.partition(",")[0] for name in named] == [
        "L1", "L2", "L3", "memory", "peak", "mine",
    ]  # fmt: skip
    point = line(ax, -1)
    assert point == [[pytest.approx(2 * 64 / 12), pytest.approx(2 * 64**3 / 1e-4)]]
    ax = tw.plot.roofline(FUNC, RESULT, target=TARGET)
    assert labels(ax)[-3:] == ["written, 96 ms", "untuned, 260 ms", "best, 2 ms"]


def test_the_target_of_a_figure_is_that_of_its_result() -> None:
    target = "cpu -mcpu=x86-64-v2 -threads=1"
    result = replace(RESULT, target=target)
    peaks = [
        next(name for name in labels(ax) if name.startswith("peak"))
        for ax in (
            tw.plot.roofline(FUNC, result),
            tw.plot.roofline(FUNC, result, target=target),
            tw.plot.roofline(FUNC, result, target="cpu -mcpu=x86-64-v3 -threads=8"),
        )
    ]
    assert peaks[0] == peaks[1] != peaks[2]


SCHEDULE = tw.Schedule(FUNC)
ROWS, COLUMNS, SUM = SCHEDULE.get_loops(SCHEDULE.get_block("C"))
OUTER, INNER = SCHEDULE.split(ROWS, [None, 4])
SCHEDULE.reorder(OUTER, COLUMNS, SUM, INNER)
SCHEDULE.unroll(INNER)
SCHEDULE.parallel(OUTER)


def loops(sch: tw.Schedule) -> float:
    """A time that parallel and unrolled loops make shorter."""
    text = str(sch.func)
    return 100.0 - 10.0 * ("T.parallel" in text) - ("T.unroll" in text)


def test_a_schedule_without_each_step_and_what_needs_it() -> None:
    found = list(without_each(FUNC, SCHEDULE.trace, loops))
    assert [row.step.partition("(")[0].split(".")[-1] for row in found] == [
        "split", "reorder", "unroll", "parallel",
    ]  # fmt: skip
    split, _, unroll, parallel = found
    assert split.along == 3
    assert split.seconds == loops(tw.Schedule(FUNC))
    whole = loops(SCHEDULE)
    assert (parallel.seconds, parallel.along) == (whole + 10, 0)
    assert unroll.seconds == whole + 1


def test_steps_of_an_ablation_have_the_names_of_the_program() -> None:
    sch = tw.Schedule(FUNC)
    i, *_ = sch.get_loops(sch.get_block("C"))
    size = sch.sample_categorical([2, 4], decision=[4])
    outer, _ = sch.split(i, [None, size * 2])
    sch.parallel(outer)
    sch.cache_read(sch.get_block("C"), 0, "global")
    sch.transform_layout(sch.get_block("C"), ("read", 0), lambda i, j: (j, i))
    assert [row.step for row in without_each(FUNC, sch.trace, loops)] == [
        "sch.split(i, factors=[None, 8])",
        "sch.parallel(i_0)",
        "sch.cache_read(C, read_buffer_index=0, storage_scope='global')",
        "sch.transform_layout(C, buffer=['read', 0], index_map=lambda i, j: (j, i))",
    ]


def test_what_is_refused_without_a_step_has_its_reason() -> None:
    sch = tw.Schedule(FUNC)
    sch.unroll(sch.get_loops(sch.get_block("C"))[2])

    def refuse(other: tw.Schedule) -> float:
        if other.trace == sch.trace:
            return loops(other)
        raise BuildError("not {0}", other.func.name)

    (row,) = without_each(FUNC, sch.trace, refuse)
    assert (row.seconds, row.reason) == (None, "not matmul")
    assert row_texts(tw.plot.ablation(FUNC, sch, seconds=refuse))[1] == ["cannot be left out"]

    def fail_late(other: tw.Schedule) -> float:
        if len(other.trace) > 1:
            raise BuildError("no")
        return 1.0

    written, failed = prefixes(FUNC, sch.trace, fail_late)
    assert (written.seconds, failed.seconds, failed.reason) == (1.0, None, "no")


def test_prefixes_begin_with_the_program_as_written() -> None:
    found = list(prefixes(FUNC, SCHEDULE.trace, loops))
    assert found[0] == ("as written", loops(tw.Schedule(FUNC)), 0, None)
    assert len(found) == 5
    assert found[-1].seconds == loops(SCHEDULE)


def test_ablation_draws_ratios_and_times() -> None:
    ax = tw.plot.ablation(FUNC, SCHEDULE, seconds=loops)
    whole = loops(SCHEDULE)
    assert widths(ax)[-1] == pytest.approx(10 / whole)
    steps, worth = row_texts(ax)
    assert steps[-1] == "sch.parallel(i_0)"
    assert "with 3 steps that need it" in worth[0]
    assert worth[-1] == format_change(1 + 10 / whole)
    assert ax.get_xlabel() == "faster ← without the step → slower"
    ticks = ax.xaxis.get_major_formatter()
    assert [ticks(ratio, 0) for ratio in (0.5, 1.0, 1.25)] == ["2x", "1x", "1.25x"]
    best = BestResult(MeasuredTime(1.0), SCHEDULE.trace, "", "")
    ax = tw.plot.ablation(FUNC, best, steps="prefixes", seconds=loops)
    assert widths(ax)[-1] == whole
    estimated = tw.plot.ablation(FUNC, SCHEDULE.trace, target=TARGET)
    assert len(estimated.patches) == 4
    with pytest.raises(TuningError, match="no best schedule"):
        tw.plot.ablation(FUNC, replace(RESULT, best=None))


def row_texts(ax: Any) -> tuple[list[str], list[str]]:
    """The texts left and right of the rows."""
    (right,) = ax.child_axes
    return tuple([t.get_text() for t in a.get_yticklabels()] for a in (ax, right))  # type: ignore[return-value]


def long_steps(count: int) -> tw.Schedule:
    """A schedule with so many steps, whose texts are long."""
    sch = tw.Schedule(FUNC)
    (loop, *_) = sch.get_loops(sch.get_block("C"))
    for n in range(count):
        sch.annotate(loop, f"a_key_of_an_annotation_that_takes_much_room_{n}", "a value")
    return sch


def boxes(ax: Any) -> dict[str, list[Any]]:
    """Where the texts of rows are drawn, left and right."""
    (right,) = ax.child_axes
    renderer = ax.figure.canvas.get_renderer()
    sides = {"left": ax, "right": right}
    return {
        side: [t.get_window_extent(renderer) for t in of.get_yticklabels() if t.get_text()]
        for side, of in sides.items()
    }


@pytest.mark.part(2)
@pytest.mark.parametrize("count", [3, 12, 40])
@pytest.mark.parametrize("kind", ["without", "prefixes"])
def test_texts_of_an_ablation_do_not_overlap(count: int, kind: Any) -> None:
    """Nor leave the figure, in a figure of its own and in axes that are there."""
    sch = long_steps(count)
    figure, given = plt.subplots(1, 2, figsize=(10, 4))
    drawn = [tw.plot.ablation(FUNC, sch, steps=kind, seconds=loops)]
    drawn += [tw.plot.ablation(FUNC, sch, steps=kind, seconds=loops, ax=ax) for ax in given]
    for ax in drawn:
        ax.figure.canvas.draw()
        whole = ax.figure.bbox
        sides = boxes(ax)
        inner = ax.get_window_extent()
        for column in sides.values():
            assert len(column) == count + (kind == "prefixes")
            for above, below in pairwise(column):
                assert above.y0 >= below.y1 - 1
            for box in column:
                assert whole.x0 <= box.x0 <= box.x1 <= whole.x1
        assert max(b.x1 for b in sides["left"]) <= inner.x0
        assert min(b.x0 for b in sides["right"]) >= inner.x1
    first, second = (boxes(ax) for ax in given)
    assert max(b.x1 for b in first["right"]) <= min(b.x0 for b in second["left"])
    plt.close(figure)


def test_nothing_to_show_is_said(tmp_path: Path) -> None:
    empty = replace(RESULT, history=())
    for draw in (tw.plot.convergence, tw.plot.predictions):
        ax = draw(empty)
        assert texts(ax) == ["There is nothing to show."]
        ax.figure.canvas.draw()
        assert ax.yaxis.get_majorticklocs().tolist() == []
    empty_database = TuningDatabase(tmp_path / "empty.db")
    with pytest.raises(TuningError, match="there is no measurement in"):
        tw.plot.convergence(empty_database)


def test_hostile_names_are_no_formulas(tmp_path: Path) -> None:
    ax = tw.plot.roofline(FUNC, {r"$\frac": 1e-3}, target=TARGET)
    ax.figure.canvas.draw()
    assert labels(ax)[-1] == r"\$\frac, 1 ms"


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(TuningError, match="a plot takes matplotlib") as error:
        tw.plot.convergence(RESULT)
    assert error.value.hint == "pip install 'tilewright[plot]'"


NOT_AXES = r"ax: expected axes of matplotlib, found '?{}.*\n  hint: fig, ax = plt.subplots"
WRONG: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], str]] = {
    "source": ("convergence", (3,), {}, "source: expected a result of tune, a run, .* found 3"),
    "source of a program": ("predictions", (FUNC,), {}, "source: expected a result .* 'Func'"),
    "no source": ("decisions", (), {}, "decisions: missing a required argument: 'source'"),
    "no database there": ("convergence", ("none.db",), {}, "there is no tuning database at"),
    "session of a result": ("convergence", (RESULT,), {"session": "ab"}, "session: a TuneResult"),
    "session": ("predictions", (RESULT,), {"session": 3}, "session: expected a text, found 3"),
    "a keyword": ("convergence", (RESULT,), {"axis": 3}, "it takes no argument 'axis'"),
    "database": ("decisions", (RESULT, 3), {}, "database: expected a TuningDatabase, .* found 3"),
    "sketch": ("pairs", (RESULT, "x.db"), {"sketch": 3}, "sketch: expected a text, found 3"),
    "names": ("pairs", (RESULT, "x.db"), {"names": "t4"}, "names: expected a list .* found 't4'"),
    "a name": ("pairs", (RESULT, "x.db"), {"names": [4]}, "names: expected a list of names"),
    "ax of convergence": ("convergence", (RESULT,), {"ax": 3}, NOT_AXES.format(3)),
    "ax of predictions": ("predictions", (RESULT,), {"ax": [1]}, NOT_AXES.format("list")),
    "ax of decisions": ("decisions", (RESULT, "x.db"), {"ax": "x"}, NOT_AXES.format("x")),
    "ax of roofline": ("roofline", (FUNC, {}), {"ax": 3}, NOT_AXES.format(3)),
    "ax of ablation": ("ablation", (FUNC, SCHEDULE), {"ax": 3}, NOT_AXES.format(3)),
    "func": ("roofline", (3, {}), {}, "func: expected a program \\(Func\\), found 3"),
    "a function": ("ablation", (loops, SCHEDULE), {}, "func: .* found 'function'\n  hint: call"),
    "a schedule": ("roofline", (SCHEDULE, {}), {}, "found 'Schedule'\n  hint: .*schedule.orig"),
    "a time": ("roofline", (FUNC, 3e-6), {}, r'times: .* found 3e-06\n  hint: .*\{"mine": 3e-6\}'),
    "times": ("roofline", (FUNC, [1e-6]), {}, "times: expected .* by name, found 'list'"),
    "a key": ("roofline", (FUNC, {1: 1e-6}), {}, "a key of times: expected a text, found 1"),
    "no seconds": ("roofline", (FUNC, {"a": 0}), {}, r"times\['a'\]: expected seconds, .* found 0"),
    "a text": ("roofline", (FUNC, {"a": "1 ms"}), {}, r"times\['a'\]: .* found '1 ms'"),
    "trace": ("ablation", (FUNC, "tuning.db"), {}, "trace: expected a Trace, .* 'tuning.db'"),
    "steps": ("ablation", (FUNC, SCHEDULE), {"steps": "with"}, "steps: expected one of 'without'"),
    "seconds": ("ablation", (FUNC, SCHEDULE), {"seconds": 1.0}, "seconds: expected a function"),
    "no time": (
        "ablation",
        (FUNC, SCHEDULE),
        {"seconds": lambda _: None},
        "what seconds= returns: expected seconds, a number above 0, found None",
    ),
    "a large time": ("roofline", (FUNC, {"a": 10**400}), {}, r"times\['a'\]: .* found 1000"),
    "a longer time": ("roofline", (FUNC, {"a": 10**5000}), {}, r"times\['a'\]: expected seconds"),
    "a large result": (
        "ablation",
        (FUNC, SCHEDULE),
        {"seconds": lambda _: 10**400},
        "what seconds= returns: expected seconds, a number above 0, found 1000",
    ),
    "target": ("roofline", (FUNC, {}), {"target": 3}, "3"),
}
"""A function of `tw.plot`, its arguments, and what the error says."""


@pytest.mark.parametrize("case", WRONG)
def test_arguments_of_another_kind_are_named(case: str) -> None:
    name, args, kwargs, says = WRONG[case]
    with pytest.raises(tw.TilewrightError) as refused:
        getattr(tw.plot, name)(*args, **kwargs)
    assert re.search(says, str(refused.value)), str(refused.value)
    assert plt.get_fignums() == []


class Raising:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class RaisingText(str):
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")


class RaisingTimes(dict[str, float]):
    def items(self) -> Any:
        raise RuntimeError("no items")


def test_an_argument_whose_methods_raise_is_named(database: TuningDatabase) -> None:
    calls: dict[str, Callable[[], object]] = {
        "a Raising whose __getattr__ raises RuntimeError: ": lambda: plot.convergence(Raising()),
        "a RaisingText whose __eq__ raises RuntimeError: no comparison": lambda: plot.decisions(
            database, sketch=RaisingText("s")
        ),
        "a RaisingTimes whose items raises RuntimeError: no items": lambda: plot.roofline(
            FUNC, RaisingTimes(mine=1e-6), target=TARGET
        ),
    }
    for expected, call in calls.items():
        with pytest.raises(TuningError, match=re.escape(expected)):
            call()

    def seconds(_: object) -> float:
        raise ZeroDivisionError("of the user's function")

    with pytest.raises(ZeroDivisionError):
        plot.ablation(FUNC, tw.Schedule(FUNC).trace, seconds=seconds)


def test_axes_of_pairs(tmp_path: Path) -> None:
    tuning = Tuning(tmp_path / "tuning.db")
    session = tuning.start()
    for tile, seconds in ((8, 2e-3), (16, 1e-3)):
        tuning.trial(session, tile, seconds)
    _, one = plt.subplots()
    for given in (one, [one], plt.subplots(2, 2)[1]):
        with refused(TuningError, "axes"):
            tw.plot.pairs(tuning.database, axes=given)  # type: ignore[arg-type]


def test_each_function_is_refused_something() -> None:
    assert {case[0] for case in WRONG.values()} == set(tw.plot.__all__)


def test_a_path_is_a_source(database: TuningDatabase) -> None:
    place = Path(database.location)
    assert line(tw.plot.convergence(place)) == line(tw.plot.convergence(database))
    assert texts(tw.plot.decisions(str(place))) == texts(tw.plot.decisions(database))


@pytest.mark.part(1)
@pytest.mark.parametrize("count", [3, 12, 30])
def test_names_of_many_decisions_do_not_overlap(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do their values, in a figure of its own and in axes that are there."""
    candidates = [
        TimedCandidate({f"t{n + 100}": 1 << (n + k) % 40 for n in range(count)}, 1e-3 * k)
        for k in range(1, 41)
    ]
    monkeypatch.setattr(plot, "candidates_of", lambda *_: (list(candidates), "a name " * 30))
    _, given = plt.subplots(figsize=(5, 3))
    for ax in (tw.plot.decisions("x"), tw.plot.decisions("x", ax=given)):
        ax.figure.canvas.draw()
        renderer: Any = ax.figure.canvas
        named = [t.get_window_extent(renderer.get_renderer()) for t in ax.get_xticklabels()]
        assert len(named) == count + 1
        assert all(a.x1 <= b.x0 for a, b in pairwise(named))
        values = [t for t in ax.texts if t.get_text().strip().isdigit()]
        assert len(values) >= 2 * count
        drawn = [t.get_window_extent(renderer.get_renderer()) for t in values]
        apart = [
            (a.y1 <= b.y0 or b.y1 <= a.y0) or (a.x1 <= b.x0 or b.x1 <= a.x0)
            for n, a in enumerate(drawn)
            for b in drawn[:n]
        ]
        assert all(apart)


def test_a_roofline_of_many_versions_is_within_its_figure() -> None:
    ax = tw.plot.roofline(FUNC, {f"{n} " + "x" * 400: 1e-4 for n in range(30)}, target=TARGET)
    ax.figure.canvas.draw()
    inner, whole = ax.get_tightbbox(), ax.figure.bbox
    assert inner is not None
    assert whole.x0 <= inner.x0 <= inner.x1 <= whole.x1
    assert whole.y0 <= inner.y0 <= inner.y1 <= whole.y1

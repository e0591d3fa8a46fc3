"""Output of the command line: results and records as JSON rows, tables and text.

Heavy modules are imported only when they are needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from ..base.errors import ScheduleError
from ..base.text import count, short_id
from .table import print_facts, print_headings, print_table, print_text

if TYPE_CHECKING:
    from ..autotune.model.assess import Report, Score
    from ..autotune.result import TuneResult
    from ..tir.ir import Func
    from ..tuning_db import Best, Measurement, ScheduleRecord, TuningDatabase, Workload
    from ..tuning_db.gains import Gains


def measurement_row(
    m: Measurement, schedule: ScheduleRecord, texts: Mapping[str, str]
) -> dict[str, Any]:
    """A measurement as JSON; `texts` are those of workloads and targets by their ids."""
    from ..tuning_db import to_plain

    plain = to_plain(m)
    del plain["features"], plain["feature_version"]
    names = {
        "workload_name": texts.get(m.workload, short_id(m.workload)),
        "target_text": texts.get(m.target, short_id(m.target)),
    }
    of_schedule = {"inexact": schedule.inexact, "generator": schedule.generator}
    return {"id": m.id, **plain, **names, **of_schedule}


def best_rows(
    database: TuningDatabase, tolerance: float | None, wanted: str | None = None
) -> Iterator[dict[str, Any]]:
    """What `build` takes, as JSON, of each workload or the one with the id `wanted`.

    The program of `wanted` may come with primitives and instructions of the user's.
    """
    from ..autotune.search.remembered_replays import RememberedReplays, replays_of
    from ..tuning_db import TargetRecord, Toolchain, Workload

    targets = {t.comparable: t for t in database.records(TargetRecord)}
    compilers = {t.generation: t for t in database.records(Toolchain)}
    for workload in database.records(Workload):
        if wanted not in (None, workload.id):
            continue
        applies = RememberedReplays(workload) if wanted is None else replays_of(workload)
        for target in targets.values():
            for generation, compiler in compilers.items():
                choice = database.best(
                    workload.id, target, compiler, tolerance=tolerance, applies=applies
                )
                if choice is not None:
                    where = {"target": target.text, "generation": generation}
                    gains = gains_json(database.gains(choice))
                    noise = database.noise(choice)
                    yield {**_best(workload, choice), **where, "gains": gains, "noise": noise}


def _best(workload: Workload, choice: Best) -> dict[str, Any]:
    from ..tuning_db import to_plain

    return {
        "workload": workload.id,
        "name": workload.name,
        "shape": workload.shape,
        "seconds": choice.seconds,
        "interval": choice.time and choice.time.interval,
        "samples": choice.time and choice.time.samples,
        "gflops": _rate(workload.flops, choice.seconds),
        "pinned": choice.pinned,
        "verified": choice.verified,
        "how": choice.how,
        "inexact": choice.schedule.inexact,
        "schedule": choice.schedule.id,
        "measurement": None if choice.measurement is None else choice.measurement.id,
        "layer": choice.layer,
        "comparison": [to_plain(compared) for compared in choice.comparison],
    }


def tune_row(result: TuneResult, name: str) -> dict[str, Any]:
    from ..tuning_db import to_plain

    best = result.best
    return {
        "name": name,
        "best": None
        if best is None
        else {
            "seconds": best.seconds,
            "interval": best.time.interval,
            "samples": best.time.samples,
            "gflops": _rate(result.flops, best.seconds),
            "schedule": best.schedule_id,
            "measurement": best.measurement_id,
            "generator": best.generator,
            "session": best.session,
            "resources": best.resources,
            "comparison": [to_plain(compared) for compared in best.comparison],
            "trace": json.loads(best.trace.to_json()),
        },
        "trials": result.trials,
        "earlier_trials": result.earlier_trials,
        "outcomes": {outcome.value: count for outcome, count in result.outcomes.items()},
        "status": result.status.value,
        "reason": result.reason,
        "session": result.session,
        "own_seconds": result.own_seconds,
        "seconds": result.seconds,
        "roofline": vars(result.roofline),
        "spent": vars(result.spent),
        "drift": list(result.drift),
        "gains": gains_json(result.gains),
        "own_rules": {name: use._asdict() for name, use in result.rules.items()},
        "own_schedules": {name: use._asdict() for name, use in result.schedules.items()},
        "hints": None if result.hints is None else result.hints._asdict(),
        "pinned": result.pinned,
        "kept": result.kept,
        "noise": result.noise,
        "doubts": result.doubts,
        "kernels": [tune_row(kernel, name) for name, kernel in result.kernels.items()],
    }


def gains_json(gains: Gains) -> dict[str, Any]:
    """Gains as JSON, by the names of the baselines."""
    from ..tuning_db import to_plain

    return {str(baseline): to_plain(gain) for baseline, gain in gains.items()}


def steps(schedule: ScheduleRecord) -> str:
    """The steps of a recorded schedule as Python, or why they cannot be read."""
    from ..schedule import Trace

    try:
        return str(Trace.from_json(schedule.trace, older=True))
    except ScheduleError as error:
        return f"its trace cannot be read: {error}"


def decisions_text(schedule: ScheduleRecord) -> str:
    """The decisions of a recorded schedule in their order (`4 8,2 16`), or why there are none."""
    from ..schedule import Trace

    try:
        decisions = Trace.from_json(schedule.trace, older=True).decisions.values()
    except ScheduleError as error:
        return f"its trace cannot be read: {error}"
    return " ".join(",".join("?" if n is None else str(n) for n in d) for d in decisions)


def _rate(flops: int, seconds: float | None) -> float | None:
    """GFLOP/s, if there is a time and arithmetic to count."""
    return flops / seconds / 1e9 if flops and seconds else None


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))


def print_kernels(results: Sequence[TuneResult], runs: Mapping[Func, float]) -> None:
    """Print the results of the kernels of models, and how often these run each."""
    from ..tuning_db.gains import gain_cell
    from ..tuning_db.results import Baseline

    rows = [
        [
            func.name,
            f"{weight:g}",
            time_text(None if result.best is None else result.best.seconds),
            gain_cell(result.gains[Baseline.UNTUNED]) if Baseline.UNTUNED in result.gains else "",
            str(result.trials),
            "" if result.best is None else short_id(result.best.schedule_id),
        ]
        for result, (func, weight) in zip(results, runs.items(), strict=True)
    ]
    print_table(("~kernel", ">runs", ">time", ">vs untuned", ">trials", "schedule"), rows, "")
    best = [result.best for result in results if result.best is not None]
    told = f"{len(best)} of {count(len(results), 'kernel')} measured"
    if len(best) == len(results):
        pairs = zip(best, runs.values(), strict=True)
        told += f"; together they take {time_text(sum(b.seconds * w for b, w in pairs))}"
    without = [result for result in results if result.best is None and not result.trials]
    if any(result.interrupted for result in results):
        told += "; interrupted: --resume with the same target and budget goes on"
    elif without:
        told += f"; {len(without)} had no trial: {without[0].reason}"
    print_text(f"\n{told}")
    _print_spent(results)


def print_results(results: Sequence[TuneResult]) -> None:
    """Print the results of programs that shared a budget, or that several targets have."""
    of_one = len({result.target for result in results}) == 1
    for n, result in enumerate(results):
        if len(results) > 1:
            print_headings(n, result.workload, *(() if of_one else (result.target,)))
        print_text(str(result))
        for name, kernel in result.kernels.items():
            print_headings(n, name)
            print_facts({**_facts_of_best(kernel), "session": short_id(kernel.session)})
        if not result.kernels:
            print_facts({**_facts_of_best(result), "session": short_id(result.session)})
    _print_spent(results)


def _print_spent(results: Sequence[TuneResult]) -> None:
    typer.echo()
    spent = [vars(result.spent) for result in results]
    total = sum(result.seconds for result in results)
    parts = {part: sum(seconds[part] for seconds in spent) for part in spent[0]}
    rows = [
        [part, f"{seconds:.1f} s", f"{seconds / total:.0%}"]
        for part, seconds in [*parts.items(), ("all", total)]
        if seconds or part != "earlier"
    ]
    print_table(("time", ">spent", ">share"), rows, "")


def _facts_of_best(result: TuneResult) -> dict[str, object]:
    from ..tuning_db.interleaved_comparison import summary
    from ..tuning_db.resources import resources_text

    best = result.best
    if best is None:
        return {}
    rate = _rate(result.flops, best.seconds)
    return {
        "rate": None if rate is None else f"{rate:.4g} GFLOP/s",
        "finals": summary(best.comparison) if best.comparison else None,
        "rules": best.generator or None,
        "resources": "; ".join(resources_text(best.resources)) or None,
        "schedule": short_id(best.schedule_id),
    }


def print_new(new: Mapping[str, int], as_json: bool, what: str = "new") -> None:
    if as_json:
        print_json(new)
        return
    from ..tuning_db.removal import counted

    print_text(f"{what}: {counted({kind: n for kind, n in new.items() if n}) or 'nothing'}")


def print_assessment(report: Report) -> None:
    """Print the evaluation of models: a table of tasks, and two of all methods over all tasks."""
    from ..autotune.model.assess import SECONDS, TOPS, TRIALS

    if not report.tasks:
        print_text("no program has enough measured candidates to be judged")
        return
    shown = ("model", "analytic", "random")
    predictions = [*(f">top-{k}" for k in TOPS), "?>rank"]
    rows = []
    for judged in report.tasks:
        scores = {s.method: s for s in judged.scores}
        model = scores["model"]
        timed = [_ratios(scores[m].timed, SECONDS)[_AT] for m in shown]
        rows.append([str(judged.task), str(judged.candidates), *_predicted(model), *timed])
    print_table(["~task", ">of", *predictions, *(f">{m}" for m in shown)], rows, "")
    known = sum(judged.task.trial_seconds is not None for judged in report.tasks)
    typer.echo()
    print_text(
        f"{len(rows)} tasks, each judged by models that did not see it. Of so many candidates: "
        "how often the fastest is among those predicted best (above by `model`), the correlation "
        "of the prediction with the times, and the time of the best found over that of the best, "
        f"after {SECONDS[_AT]:g} s in trials and models. How long trials took is known of {known} "
        "tasks. Over all tasks:"
    )
    overall = [[s.method, *_predicted(s)] for s in report.overall]
    print_table(["method", *predictions], overall, "")
    typer.echo()
    print_text("The best found after so many trials, and after so many seconds:")
    progress = [
        [s.method, *_ratios(s.regret, TRIALS), *_ratios(s.timed, SECONDS)] for s in report.overall
    ]
    columns = ["method", *(f">{n}" for n in TRIALS), *(f">{n:g} s" for n in SECONDS)]
    print_table(columns, progress, "")


_AT = 1
"""Which of `SECONDS` is shown for each task."""


def _predicted(score: Score) -> list[str]:
    return [*(f"{r:.2f}" for r in score.recall), f"{score.rank:.2f}"]


def _ratios(ratios: Sequence[float] | None, points: Sequence[float]) -> list[str]:
    return [""] * len(points) if ratios is None else [f"{r:.3f}" for r in ratios]


def time_text(seconds: float | None) -> str:
    from ..base.durations import format_seconds

    return "" if seconds is None else format_seconds(seconds)


def measured_text(m: Measurement) -> str:
    """The time of a measurement with its interval, or its outcome."""
    return str(m.time or m.outcome)


def time_cells(best: Mapping[str, Any]) -> list[str]:
    """The time of a row of `best_rows` and its interval, a cell each."""
    from dataclasses import replace

    from ..base.durations import MeasuredTime

    if best["seconds"] is None:
        return ["", ""]
    time = MeasuredTime(best["seconds"], best["interval"], best["samples"])
    return [str(replace(time, interval=None)), time.interval_text]

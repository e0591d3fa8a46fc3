"""Measured schedules as a table that models are trained on, small enough to ship.

A line of the table is a program, a sketch of it and the rows of decisions that a session measured.
The facts of the target that its text does not spell are in it, as its kind has them. Features are
not: they are computed when it is read, so that it outlives their versions.
"""

from __future__ import annotations

import gzip
import json
import logging
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import datetime
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...base.errors import ArtifactError, TargetError, TilewrightError, TuningError
from ...base.files import File, open_regular, replace_files
from ...base.text import short_id
from ...codegen.detect import resolve
from ...codegen.generator import generator_for
from ...schedule import Trace
from ...target import Target
from ...tir.parser import parse
from ...tuning_db import TuningDatabase
from ...tuning_db.values import Environment, Machine, Outcome, TargetRecord, Workload
from ..running_time import running
from ..search.candidates import decided
from ..search.replay import read_trace, row_of
from .profile import profile
from .target_model import Features, model_for, model_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_log = logging.getLogger(__name__)
_FORMAT = {"tilewright samples": 1}
_TARGET = re.compile(r"[A-Za-z]\w*( -\w[\w-]*=\S+)*")
"""The text of a target of any kind."""
_DIGITS = 4


@dataclass(frozen=True)
class Sweep:
    """Candidates of one sketch of a program, and the seconds that a session measured of each.

    `target` is the text of a target, and `facts` what the text does not spell, as the `TargetModel`
    of its kind has it. `trace` is JSON with open decisions. `trial_seconds` is what a trial of the
    session took on average, `None` where that is not known.
    """

    name: str
    shape: str
    program: str
    target: str
    session: str
    trace: str
    rows: tuple[tuple[int, ...], ...]
    seconds: tuple[float, ...]
    trial_seconds: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


_FIELDS = tuple(f.name for f in fields(Sweep) if f.name != "facts")
"""Those that a line of the table has, beside the facts of its target."""


@dataclass(frozen=True)
class SampledTask:
    """A program (its text) on a target in one session: times compare within a task.

    `machine` names the machine, whatever it was taken for. `trial_seconds` is what a trial of the
    session took on average, `None` where that is not known.
    """

    name: str
    shape: str
    target: str
    session: str
    program: str
    machine: str
    trial_seconds: float | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.shape} {self.target}"


@dataclass(frozen=True)
class Samples:
    """Rows of `features` with their `seconds`, each of the task with the number in `task`.

    `feature_version` is that of their `TargetModel`. `decisions` tells them apart within a task,
    see `candidates.decided`.
    """

    tasks: tuple[SampledTask, ...]
    task: Ints
    feature_version: str
    features: Features
    seconds: Floats
    decisions: Features

    def __len__(self) -> int:
        return len(self.seconds)

    def only(self, tasks: Iterable[int]) -> Samples:
        """The rows of some tasks, whose numbers stay what they are."""
        mask = np.isin(self.task, list(tasks))
        return Samples(
            self.tasks,
            self.task[mask],
            self.feature_version,
            self.features[mask],
            self.seconds[mask],
            self.decisions[mask],
        )


def sweeps_of(database: TuningDatabase, kind: str) -> list[Sweep]:
    """The measurements on targets of a kind that gave a time, those of finals left out.

    The fastest sample stands for a candidate: what disturbs a sample makes it slower, and those
    that could not win have few. Schedules that cannot be read are left out with a warning, and so
    is what was measured on a target that is not known here.

    Raises `TargetError` for a kind that has no model.
    """
    facts_of = model_of(kind).facts.of
    workloads = {w.id: w for w in database.records(Workload)}
    targets = _targets(database.records(TargetRecord), kind)
    machines = _machines(database)
    described: dict[tuple[str, str], Target] = {}
    groups: dict[tuple[str, str, str, str], dict[tuple[int, ...], float]] = {}
    moments: dict[str, list[datetime]] = {}
    for measured, schedule in reversed(database.history()):
        if measured.features is None:
            continue
        if measured.workload not in workloads or measured.target not in targets:
            continue  # that record is damaged, or of another kind of target
        moments.setdefault(measured.session, []).append(measured.created)
        place = (measured.session, measured.target)
        if place not in described:
            machine = machines.get(measured.environment)
            described[place] = _described(targets[measured.target], machine)
        if measured.outcome is not Outcome.OK or not measured.samples:
            continue
        trace = read_trace(schedule)
        row = None if trace is None else row_of(trace)
        if trace is None or row is None:
            continue
        opened = trace.opened().to_json(notes=False)
        key = (measured.workload, measured.target, measured.session, opened)
        groups.setdefault(key, {}).setdefault(row, min(measured.samples))
    sweeps = list[Sweep]()
    for (program, measured_on, session, opened), timed in groups.items():
        workload, target = workloads[program], described[session, measured_on]
        sweep = Sweep(
            name=workload.name,
            shape=workload.shape,
            program=workload.ir,
            target=str(target),
            session=session,
            trace=opened,
            rows=tuple(timed),
            seconds=tuple(map(_short, timed.values())),
            trial_seconds=_pace(moments[session]),
            facts=facts_of(target),
        )
        sweeps.append(sweep)
    return sweeps


def _targets(records: Iterable[TargetRecord], kind: str) -> dict[str, Target]:
    """The targets of a kind, by the ids of their records."""
    targets: dict[str, Target] = {}
    for record in records:
        try:
            target = resolve(record.text)
        except TilewrightError as error:
            _log.warning("measurements on %s are left out: %s", record.text, error)
            continue
        if target.kind == kind:
            targets[record.id] = target
    return targets


def _machines(database: TuningDatabase) -> dict[str, Machine]:
    """The machines, by the ids of the environments that name them.

    What an environment names that is no machine is left out with a warning.
    """
    machines = {machine.id: machine for machine in database.records(Machine)}
    by_environment: dict[str, Machine] = {}
    for environment in database.records(Environment):
        named = environment.facts.get("machine")
        if isinstance(named, str):
            if named in machines:
                by_environment[environment.id] = machines[named]
        elif named is not None:
            _log.warning(
                "environment %s names %.80s as its machine, expected the id of a record",
                short_id(environment.id),
                repr(named),
            )
    return by_environment


def _described(target: Target, machine: Machine | None) -> Target:
    """The target with the rates of the machine that measured it, where they are known.

    Rates that are not those of its kind are left out with a warning.
    """
    if machine is None:
        return target
    try:
        described: Target = generator_for(target).described(target, machine.rates)
    except ArtifactError as error:
        _log.warning("the rates of machine %s are left out: %s", short_id(machine.id), error)
        return target
    return described


def _pace(moments: Sequence[datetime]) -> float | None:
    """Seconds from the end of a trial to that of the next, on average."""
    return _short(running(moments) / (len(moments) - 1)) if len(moments) > 1 else None


def _short(seconds: float) -> float:
    return float(f"{seconds:.{_DIGITS}g}")


def merged(*sources: Iterable[Sweep]) -> list[Sweep]:
    """Every sketch of a session once, as the first source has it, in an order of their own.

    What is learned depends on the order, by the rounding of sums: the same sweeps give the same.
    """
    sweeps: dict[tuple[str, str], Sweep] = {}
    for sweep in chain.from_iterable(sources):
        sweeps.setdefault((sweep.session, sweep.trace), sweep)
    return sorted(sweeps.values(), key=lambda s: (s.name, s.shape, s.target, s.session, s.trace))


def write(sweeps: Sequence[Sweep], path: str | PathLike[str]) -> None:
    """Write a table: JSON lines, compressed, the same bytes for the same sweeps."""
    lines = [json.dumps(line) for line in (_FORMAT, *map(_line, merged(sweeps)))]
    data = "\n".join(lines).encode()
    replace_files([File(Path(path), gzip.compress(data, compresslevel=9, mtime=0))])


def _line(sweep: Sweep) -> dict[str, Any]:
    """A line of the table: the facts of the target stand beside the other fields."""
    if shared := sweep.facts.keys() & _FIELDS:
        raise TuningError(
            "facts of {0} have names of fields of samples: {1}",
            sweep.target,
            ", ".join(sorted(shared)),
            hint="name them otherwise in `TargetModel.facts`",
        )
    return {**{name: getattr(sweep, name) for name in _FIELDS}, **sweep.facts}


def shipped(kind: str) -> list[Sweep]:
    """The sweeps that the base model of a kind of target is trained on; none where it has none.

    Raises `TargetError` for a kind that has no model, `TuningError` where the table is damaged.
    """
    table = model_of(kind).table
    return [] if table is None else read(table)


def read(path: str | PathLike[str]) -> list[Sweep]:
    """The sweeps of a table. Raises `TuningError` for a file that is none, or is damaged."""
    try:
        with open_regular(Path(path), TuningError) as (there, _):
            lines = gzip.decompress(there.read()).decode().splitlines()
        head, *rest = map(json.loads, lines)
        if head != _FORMAT:
            raise ValueError(f"it begins with {head!r:.80}")
        return [_read_sweep(line) for line in rest]
    except (OSError, EOFError, zlib.error, ValueError, RecursionError, TuningError) as error:
        raise TuningError("{0} cannot be read as a table of samples: {1}", path, error) from error


def _read_sweep(line: Any) -> Sweep:
    """The sweep of a line. Raises `ValueError`, or `TuningError` for what are no facts."""
    if not isinstance(line, dict):
        raise ValueError(f"expected a JSON object, found {line!r:.80}")
    fields = {name: line.pop(name, None) for name in _FIELDS}
    texts = {n: x for n, x in fields.items() if n not in ("rows", "seconds", "trial_seconds")}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise ValueError(f"{name}: expected a text, found {text!r:.80}")
    if not _TARGET.fullmatch(texts["target"]):
        raise ValueError(f"expected a target such as `cpu -threads=1`, found {texts['target']!r}")
    rows, seconds = _rows(fields["rows"]), _times(fields["seconds"])
    if len(rows) != len(seconds):
        raise ValueError(f"{len(rows)} rows have {len(seconds)} times")
    pace = None if fields["trial_seconds"] is None else _times([fields["trial_seconds"]])[0]
    sweep = Sweep(**texts, rows=rows, seconds=seconds, trial_seconds=pace, facts=line)
    with suppress(TargetError):  # one that is not known here: nobody can tell its facts
        _described_target(sweep)
    return sweep


def _rows(data: Any) -> tuple[tuple[int, ...], ...]:
    rows = data if isinstance(data, list) else [data]
    same = all(isinstance(row, list) and len(row) == len(rows[0]) for row in rows)
    if not same or not all(type(v) is int and abs(v) < 1 << 63 for row in rows for v in row):
        raise ValueError(f"expected rows of as many integers each, found {data!r:.80}")
    return tuple(map(tuple, rows))


def _times(data: Any) -> tuple[float, ...]:
    times = data if isinstance(data, list) else [data]
    if not all(type(t) in (int, float) and 0 <= t < math.inf for t in times):
        raise ValueError(f"expected seconds, found {data!r:.80}")
    return tuple(map(float, times))


def _described_target(sweep: Sweep) -> Target:
    """Raises `TargetError` for a target that is not known here, `TuningError` for no facts."""
    target = Target.parse(sweep.target)
    return model_for(target).facts.described(target, sweep.facts)


def featurise(sweeps: Sequence[Sweep], kind: str) -> Samples:
    """Compute the features of all rows, replaying each sketch once: those of a kind of target.

    Sketches that no longer apply are left out with a warning, and so are those of other kinds and
    of targets that are not known here.

    Raises `TargetError` for a kind that has no model.
    """
    target_model = model_of(kind)
    tasks: dict[tuple[str, str, str], tuple[int, SampledTask]] = {}
    features: list[Features] = [np.empty((0, len(target_model.features)))]
    seconds, numbers = [np.empty(0)], [np.empty(0)]
    width = 1 + max((len(row) for sweep in sweeps for row in sweep.rows[:1]), default=0)
    decisions = [np.empty((0, width), dtype=np.float32)]
    made_of: Counter[int] = Counter()
    for sweep in sweeps:
        try:
            target = _described_target(sweep)
            if target.kind != kind:
                raise TargetError("expected a target of kind {0}, found {1}", kind, target)
            func = parse(sweep.program)
            schedule = Trace.from_json(sweep.trace).apply(func, symbolic=True)
        except TilewrightError as error:
            _log.warning("a schedule of %s on %s is left out: %s", sweep.name, sweep.target, error)
            continue
        assert schedule.space is not None, "symbolic schedules have one"
        read = profile(schedule.func, schedule.space.bounds)
        rows = np.array(sweep.rows, dtype=np.int64).reshape(len(sweep.rows), -1)
        features.append(target_model.estimator(read, target)(rows).features)
        seconds.append(np.array(sweep.seconds))
        task = SampledTask(
            sweep.name,
            sweep.shape,
            sweep.target,
            sweep.session,
            sweep.program,
            target_model.facts.machine(target),
            sweep.trial_seconds,
        )
        key = (sweep.program, sweep.target, sweep.session)
        number, _ = tasks.setdefault(key, (len(tasks), task))
        numbers.append(np.full(len(rows), number))
        decisions.append(decided(made_of[number], rows, width))
        made_of[number] += 1
    return Samples(
        tuple(task for _, task in tasks.values()),
        np.concatenate(numbers).astype(np.int64),
        target_model.feature_version,
        np.concatenate(features),
        np.concatenate(seconds),
        np.concatenate(decisions),
    )

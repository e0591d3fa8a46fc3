"""Measured schedules as a table that models are trained on, small enough to ship.

A line of the table is a program, a sketch of it and the rows of decisions that a session measured.
Features are not in it: they are computed when it is read, so that it outlives their versions.
"""

from __future__ import annotations

import gzip
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...codegen.detect import resolve
from ...errors import TilewrightError, TuningError
from ...schedule import Trace
from ...target import CpuTarget, Rates
from ...tir.parser import parse
from ...tuning_db import TuningDatabase
from ...tuning_db.values import Environment, Machine, Outcome, TargetRecord, Workload
from ..budget import running
from ..search.candidates import decided
from ..search.replay import read_trace, row_of
from .cpu.model import MODEL
from .profile import profile
from .target_model import Features

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_log = logging.getLogger(__name__)
_FORMAT = {"tilewright samples": 1}
_DIGITS = 4


@dataclass(frozen=True)
class Sweep:
    """Candidates of one sketch of a program, and the seconds that a session measured of each.

    `caches` are the bytes of L1, L2 and L3 of the machine, `ways` and `line_bytes` what a target
    says of them (`None` stands for those of the table). `rates` were measured of it, or are
    those that the table of processors had when the sweep was written, so that features do not
    change with the table; `None` stands for those of the table. `trace` is JSON with open
    decisions. `trial_seconds` is what a trial of the session took on average, `None` where that is
    not known.
    """

    name: str
    shape: str
    program: str
    target: str
    caches: tuple[int, int, int]
    session: str
    trace: str
    rows: tuple[tuple[int, ...], ...]
    seconds: tuple[float, ...]
    trial_seconds: float | None = None
    rates: Mapping[str, Any] | None = None
    ways: tuple[int, int, int] | None = None
    line_bytes: int | None = None


@dataclass(frozen=True)
class Task:
    """A program (its text) on a target in one session: times compare within a task.

    `trial_seconds` is what a trial of the session took on average, `None` where that is not known.
    """

    name: str
    shape: str
    target: str
    session: str
    program: str
    caches: tuple[int, int, int]
    trial_seconds: float | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.shape} {self.target}"


@dataclass(frozen=True)
class Samples:
    """Rows of `features` with their `seconds`, each of the task with the number in `task`.

    `feature_version` is that of their `TargetModel`. `decisions` tells them apart within a task,
    see `candidates.decided`.
    """

    tasks: tuple[Task, ...]
    task: Ints
    feature_version: str
    features: Features
    seconds: Floats
    decisions: Features

    def __len__(self) -> int:
        return len(self.seconds)

    def only(self, tasks: Iterable[int]) -> Samples:
        """The rows of some tasks, whose numbers stay what they are."""
        kept = np.isin(self.task, list(tasks))
        return Samples(
            self.tasks,
            self.task[kept],
            self.feature_version,
            self.features[kept],
            self.seconds[kept],
            self.decisions[kept],
        )


def sweeps_of(database: TuningDatabase) -> list[Sweep]:
    """The measurements of a database that gave a time, those of finals left out.

    The fastest sample stands for a candidate: what disturbs a sample makes it slower, and those
    that could not win have few. Schedules that cannot be read are left out with a warning, and so
    is what was measured on a target of a kind or processor that is not known here.
    """
    workloads = {w.id: w for w in database.records(Workload)}
    targets = _processors(database.records(TargetRecord))
    machines = _machines(database)
    described: dict[str, Mapping[str, Any] | None] = {}
    groups: dict[tuple[str, str, str, str], dict[tuple[int, ...], float]] = {}
    moments: dict[str, list[datetime]] = {}
    for measured, schedule in reversed(database.history()):
        if measured.features is None:
            continue
        if measured.workload not in workloads or measured.target not in targets:
            continue  # that record is damaged, or of another kind of target
        moments.setdefault(measured.session, []).append(measured.created)
        described.setdefault(measured.session, machines.get(measured.environment))
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
    for (program, machine, session, opened), timed in groups.items():
        workload, target = workloads[program], targets[machine]
        sweep = Sweep(
            name=workload.name,
            shape=workload.shape,
            program=workload.ir,
            target=str(target),
            caches=(target.l1_bytes, target.l2_bytes, target.l3_bytes),
            session=session,
            trace=opened,
            rows=tuple(timed),
            seconds=tuple(map(_short, timed.values())),
            trial_seconds=_pace(moments[session]),
            rates=described[session] or target.rates.to_json(),
            ways=target.ways,
            line_bytes=target.line_bytes,
        )
        sweeps.append(sweep)
    return sweeps


def _processors(records: Iterable[TargetRecord]) -> dict[str, CpuTarget]:
    """The processors among targets, by the ids of their records."""
    targets: dict[str, CpuTarget] = {}
    for record in records:
        try:
            target = resolve(record.text)
        except TilewrightError as error:
            _log.warning("measurements on %s are left out: %s", record.text, error)
            continue
        if isinstance(target, CpuTarget):
            targets[record.id] = target
    return targets


def _machines(database: TuningDatabase) -> dict[str, Mapping[str, Any]]:
    """The rates of machines, by the ids of the environments that name them.

    Rates that are not those of a processor are left out with a warning, and so is what an
    environment names that is no machine. What was measured there takes the rates of the table.
    """
    rates: dict[str, Mapping[str, Any]] = {}
    for machine in database.records(Machine):
        try:
            Rates.from_json(machine.rates)
        except (TypeError, ValueError) as error:
            _log.warning("the rates of machine %.12s are left out: %s", machine.id, error)
        else:
            rates[machine.id] = machine.rates
    found: dict[str, Mapping[str, Any]] = {}
    for environment in database.records(Environment):
        named = environment.facts.get("machine")
        if isinstance(named, str):
            if named in rates:
                found[environment.id] = rates[named]
        elif named is not None:
            _log.warning(
                "environment %.12s names %.80s as its machine, expected the id of a record",
                environment.id,
                repr(named),
            )
    return found


def _pace(moments: Sequence[datetime]) -> float | None:
    """Seconds from the end of a trial to that of the next, on average."""
    return _short(running(moments) / (len(moments) - 1)) if len(moments) > 1 else None


def _short(seconds: float) -> float:
    return float(f"{seconds:.{_DIGITS}g}")


def merged(*sources: Iterable[Sweep]) -> list[Sweep]:
    """Every sketch of a session once, as the first source has it, in an order of their own.

    What is learned depends on the order, by the rounding of sums: the same sweeps give the same.
    """
    found: dict[tuple[str, str], Sweep] = {}
    for sweep in chain.from_iterable(sources):
        found.setdefault((sweep.session, sweep.trace), sweep)
    return sorted(found.values(), key=lambda s: (s.name, s.shape, s.target, s.session, s.trace))


def write(sweeps: Sequence[Sweep], path: str | PathLike[str]) -> None:
    """Write a table: JSON lines, compressed, the same bytes for the same sweeps."""
    lines = [json.dumps(line) for line in (_FORMAT, *map(asdict, merged(sweeps)))]
    data = "\n".join(lines).encode()
    Path(path).write_bytes(gzip.compress(data, compresslevel=9, mtime=0))


def read(path: str | PathLike[str]) -> list[Sweep]:
    """The sweeps of a table. Raises `TuningError` for a file that is none."""
    try:
        lines = gzip.decompress(Path(path).read_bytes()).decode().splitlines()
        head, *rest = map(json.loads, lines)
        if head != _FORMAT:
            raise TuningError("{0} is no table of samples: it begins with {1!r}", path, head)
        return [_read_sweep(line) for line in rest]
    except (OSError, EOFError, ValueError, TypeError, KeyError) as error:
        raise TuningError("{0} cannot be read as a table of samples: {1}", path, error) from error


def _read_sweep(line: dict[str, Any]) -> Sweep:
    l1, l2, l3 = line.pop("caches")
    rows = tuple(tuple(int(v) for v in row) for row in line.pop("rows"))
    seconds = tuple(float(s) for s in line.pop("seconds"))
    if line.get("rates") is not None:
        Rates.from_json(dict(line["rates"]))  # raises for what is none
    if line.get("ways") is not None:
        line["ways"] = tuple(int(n) for n in line["ways"])
    return Sweep(**line, caches=(int(l1), int(l2), int(l3)), rows=rows, seconds=seconds)


def _machine_of(sweep: Sweep) -> CpuTarget:
    """Raises `TargetError` for a processor that is not known here."""
    l1, l2, l3 = sweep.caches
    target = CpuTarget.parse(sweep.target)
    return replace(
        target,
        l1_bytes=l1,
        l2_bytes=l2,
        l3_bytes=l3,
        ways=target.ways if sweep.ways is None else sweep.ways,
        line_bytes=target.line_bytes if sweep.line_bytes is None else sweep.line_bytes,
        rates=target.rates if sweep.rates is None else Rates.from_json(sweep.rates),
    )


def featurise(sweeps: Sequence[Sweep]) -> Samples:
    """Compute the features of all rows, replaying each sketch once.

    Sketches that no longer apply are left out with a warning, and so are those of processors that
    are not known here.
    """
    tasks: dict[tuple[str, str, str], tuple[int, Task]] = {}
    features: list[Features] = [np.empty((0, len(MODEL.features)))]
    seconds, numbers = [np.empty(0)], [np.empty(0)]
    width = 1 + max((len(row) for sweep in sweeps for row in sweep.rows[:1]), default=0)
    decisions = [np.empty((0, width), dtype=np.float32)]
    made_of: Counter[int] = Counter()
    for sweep in sweeps:
        try:
            target = _machine_of(sweep)
            func = parse(sweep.program)
            made = Trace.from_json(sweep.trace).apply(func, symbolic=True)
        except TilewrightError as error:
            _log.warning("a schedule of %s on %s is left out: %s", sweep.name, sweep.target, error)
            continue
        assert made.space is not None, "symbolic schedules have one"
        read = profile(made.func, made.space.bounds)
        rows = np.array(sweep.rows, dtype=np.int64).reshape(len(sweep.rows), -1)
        features.append(MODEL.estimator(read, target)(rows).features)
        seconds.append(np.array(sweep.seconds))
        task = Task(
            sweep.name,
            sweep.shape,
            sweep.target,
            sweep.session,
            sweep.program,
            sweep.caches,
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
        MODEL.feature_version,
        np.concatenate(features),
        np.concatenate(seconds),
        np.concatenate(decisions),
    )

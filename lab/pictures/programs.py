"""The programs of a database with what is known of each: the best schedule, its gains, failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...autotune.search.remembered_replays import replays_of
from ...autotune.session.session_history import tolerance_of
from ...base.errors import DatabaseError
from ...base.text import short_id
from ...tuning_db import Best, Outcome, Session, TargetRecord, Toolchain, TuningDatabase, Workload
from ...tuning_db.gains import Gains
from ...tuning_db.tally import Tally


class Tuned(NamedTuple):
    """A program on a target, by a generation of compilers.

    `target` and `generation` are texts. `trials` of it were made, of which `failed` failed.
    `session` (id) has the best measurement, or most of them.
    `trouble` is why the best could not be looked up, and `noise` what disturbed the session of it.
    """

    workload: Workload | None
    name: str
    target: str
    generation: str
    trials: int
    failed: int
    session: str
    best: Best | None
    gains: Gains
    trouble: str | None = None
    noise: str | None = None

    @property
    def rate(self) -> float | None:
        """Floating-point operations in a second, where time and operations are known."""
        seconds = None if self.best is None else self.best.seconds
        flops = 0 if self.workload is None else self.workload.flops
        return flops / seconds if flops and seconds else None


class Contents:
    """The counts of a database, and the records that they are of, by their ids."""

    def __init__(self, database: TuningDatabase) -> None:
        self.database = database
        self.tallies = database.tally()
        self.workloads = {w.id: w for w in database.records(Workload)}
        self.targets = {t.id: t for t in database.records(TargetRecord)}
        self.toolchains = {t.id: t for t in database.records(Toolchain)}
        self.sessions = {s.id: s for s in database.records(Session)}

    @property
    def outcomes(self) -> Counter[Outcome]:
        """How many trials had each outcome."""
        return counted(self.tallies)

    @property
    def measurements(self) -> int:
        """How many measurements there are: trials, finals and what these compare with."""
        return sum(tally.measurements for tally in self.tallies)

    def name(self, workload: str) -> str:
        """The name and shape of a workload (id)."""
        found = self.workloads.get(workload)
        return f"program {short_id(workload)}" if found is None else found.text

    def target(self, target: str) -> str:
        """The text of a target (id)."""
        found = self.targets.get(target)
        return f"target {short_id(target)}" if found is None else found.text

    def programs(self) -> list[list[Tally]]:
        """The counts of each program on comparable targets, the most measured first."""
        groups: dict[tuple[str, str, str], list[Tally]] = {}
        for tally in self.tallies:
            target, tool = self.targets.get(tally.target), self.toolchains.get(tally.toolchain)
            comparable = tally.target if target is None else target.comparable
            generation = tally.toolchain if tool is None else tool.generation
            groups.setdefault((tally.workload, comparable, generation), []).append(tally)
        return sorted(
            groups.values(), key=lambda g: (-sum(t.measurements for t in g), g[0].workload)
        )

    def tuned(self, tallies: Sequence[Tally], tolerance: float | None = None) -> Tuned:
        """What is known of a program, by its counts; builds with `tolerance` take the best."""
        first = tallies[0]
        workload, target = self.workloads.get(first.workload), self.targets.get(first.target)
        tool = self.toolchains.get(first.toolchain)
        counts = counted(tallies)
        best: Best | None = None
        gains: Gains = {}
        trouble: str | None = None
        noise: str | None = None
        if workload is not None and target is not None and tool is not None:
            try:
                best = self.database.best(
                    workload.id, target, tool, tolerance=tolerance, applies=replays_of(workload)
                )
                if best is not None:
                    gains, noise = self.database.gains(best), self.database.noise(best)
            except DatabaseError as error:
                trouble = str(error)
        session = max(tallies, key=lambda t: t.measurements).session
        if best is not None and best.measurement is not None:
            session = best.measurement.session
        return Tuned(
            workload,
            self.name(first.workload),
            self.target(first.target),
            short_id(first.toolchain) if tool is None else tool.generation,
            counts.total(),
            counts.total() - counts[Outcome.OK],
            session,
            best,
            gains,
            trouble,
            noise,
        )

    def of_session(self, session: Session) -> Tuned:
        """What is known of the program of a session, with the tolerance that it had."""
        groups = (g for g in self.programs() if any(t.session == session.id for t in g))
        group = next(groups, None)
        if group is not None:
            return self.tuned(group, tolerance_of(session))
        name, target = self.name(session.workload), self.target(session.target)
        workload = self.workloads.get(session.workload)
        return Tuned(workload, name, target, "", 0, 0, session.id, None, {})


def counted(tallies: Iterable[Tally]) -> Counter[Outcome]:
    """The trials by outcome."""
    counts = Counter[Outcome]()
    for tally in tallies:
        counts[tally.outcome] += tally.trials
    return +counts

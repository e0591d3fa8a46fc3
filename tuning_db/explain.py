"""Why a lookup found what it found: the records considered, and the reason that refused each.

Records are grouped: all that share a target, toolchain, outcome and state of verification were
refused for one reason. A group names how many there are, the fastest time and a few ids.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    func,
    or_,
    select,
)

from ..base.display import html
from ..base.durations import LONGEST, SHORTEST, format_seconds
from ..base.text import count, excerpt, printable, short_id
from .codec import LIMITS, instant
from .confirm import Applies, Wanted
from .gains import Gains, gains_text
from .interleaved_comparison import FINALISTS_SHOWN, summary
from .lookup import best, failed_checks, gains, noise, outdating, superseded_in
from .near import distance
from .read import Damage, Layers, get, location, raw
from .resources import resources_text
from .results import Best, Verdict
from .staleness import lowered, other_version
from .tables import measurement, schedule, target, toolchain, workload
from .usable import EXACT, IN_RANGE, SUPERSEDED, Finals, within
from .values import Outcome, TargetRecord, Toolchain, Workload

EXAMPLES = 3
_THREADS = re.compile(r"(.*)/threads=([0-9]+)")
"""A class of comparable times: the machine, and its number of threads."""
NEAREST_SHOWN = 5
_SHAPE = 24
"""Characters of a shape that `repr` tells."""


class Reason(StrEnum):
    """The reasons for refusing records, in order: the first that applies counts."""

    OTHER_COMPAT = "its code may not be legal on this target"
    OTHER_THREADS = "tuned for another number of threads: a build re-fits it, as a transfer"
    OTHER_PERF = "its times are not comparable with this target's"
    OTHER_GENERATION = "re-verify: another generation of the toolchain"
    OTHER_VERSION = "re-verify: another version of a primitive"
    NOT_OK = "it failed"
    DAMAGED = "it is damaged"
    CHECK_FAILED = "a numeric check of its schedule failed"
    NOT_VERIFIED = "not verified: its results were not compared with the program as written"
    INEXACT = "it has inexact steps, and their error is not tolerated"
    NOT_APPLICABLE = "its schedule does not apply to the program"
    SUPERSEDED = "its schedule was measured again later"
    OUTDATED = "the final timings of its session replace it"
    NOT_CHOSEN = "usable, but not the choice"


RE_VERIFIED = frozenset({Reason.OTHER_GENERATION, Reason.OTHER_VERSION})
"""The reasons for which a record is verified again by `refresh`."""


@dataclass(frozen=True)
class Refused:
    """Records of the workload that were refused for one reason; `examples` are measurement ids."""

    reason: Reason
    detail: str
    count: int
    seconds: float | None
    examples: tuple[str, ...]
    layer: str

    def __repr__(self) -> str:
        """Its reason is named, not told, and one record stands for all."""
        some = count(self.count, "record") + _at_best(self.seconds)
        such = f", such as {short_id(self.examples[0])}" if self.examples else ""
        return f"<Refused {self.reason.name}: {some}{such}>"


@dataclass(frozen=True)
class Near:
    """Another workload of the same family or name, with its usable measurements for the target.

    `count` is their number: the last one of each schedule. `seconds` is the time of its recorded
    best: after finals that of the winner, whatever a trial took, and whatever is pinned.
    `relative` is set if it is of the same family, so that its schedules can be transferred, and
    None if a family is unknown. `distance` is the sum of |log2| of the ratios of the numbers in the
    two shapes, and None if they differ in more than numbers.
    """

    workload: str
    shape: str
    count: int
    seconds: float | None
    distance: float | None
    layer: str
    relative: bool | None

    def __repr__(self) -> str:
        shape = excerpt(self.shape, _SHAPE)
        usable = f"{self.count} usable{_at_best(self.seconds)}"
        return f"<Near {short_id(self.workload)}: {shape}, {usable}>"


@dataclass(frozen=True)
class Explanation:
    """The explanation of a lookup; `str()` renders it. `name` is None for an unknown workload.

    `gains` are those of `best` over the baselines of its session, as far as they are recorded.
    `noise` says in plain words what disturbed that session, `None` if nothing did. Where there is
    no record of the program, `lowering` has the other generations of what makes programs of models
    by which records were made: by these, a kernel of a model may have been another program.
    """

    workload: str
    name: str | None
    target: str
    generation: str | None
    layers: tuple[str, ...]
    best: Best | None
    refused: tuple[Refused, ...]
    near: tuple[Near, ...]
    gains: Gains
    noise: str | None = None
    lowering: tuple[int, ...] = ()

    _repr_html_ = html

    def __str__(self) -> str:
        return printable("\n".join(_lines(self)))

    def __repr__(self) -> str:
        """A line; `str` has the reasons."""
        counts = f"{len(self.refused)} refused, {len(self.near)} near"
        best = "nothing usable"
        if self.best is not None:
            seconds = self.best.seconds
            best = "pinned" if seconds is None else f"best {format_seconds(seconds)}"
        return f"<Explanation of {short_id(self.workload)}: {best}, {counts}; print it>"


def explain(
    layers: Layers,
    program: Workload | str,
    goal: TargetRecord,
    wanted: Wanted,
    applies: Applies | None = None,
) -> Explanation:
    """See `TuningDatabase.explain`. `wanted` and `applies` are as for `best`."""
    id = wanted.workload
    known = program if isinstance(program, Workload) else _first(layers, id, wanted.damage)
    chosen = best(layers, wanted, applies)
    wanted.failed = failed_checks(layers, id)
    finals = outdating(layers, wanted)
    refused: list[Refused] = []
    for connection in layers:
        refused += _refused(layers, connection, goal, wanted, chosen, finals)
    return Explanation(
        workload=id,
        name=None if known is None else known.name,
        target=goal.text,
        generation=wanted.generation,
        layers=tuple(map(location, layers)),
        best=chosen,
        refused=tuple(refused),
        near=() if known is None else _near(layers, known, wanted),
        gains={} if chosen is None else gains(layers, chosen, wanted.damage),
        noise=None if chosen is None else noise(layers, chosen, wanted.damage),
        lowering=() if chosen or refused else _other_lowerings(layers, wanted),
    )


def _other_lowerings(layers: Layers, wanted: Wanted) -> tuple[int, ...]:
    """The generations of lowering by which records were made, but for that of the wanted tools."""
    if wanted.tools is None:
        return ()
    found = set[int | None]()
    for connection in layers:
        for id in connection.execute(select(raw(toolchain.c.id))).scalars():
            tools = wanted.damage.or_none(connection, partial(get, connection, Toolchain, id))
            found.add(None if tools is None else lowered(tools))
    return tuple(sorted(n for n in found if n not in (None, lowered(wanted.tools))))


def _first(layers: Layers, id: str, damage: Damage) -> Workload | None:
    workloads = (damage.or_none(c, partial(get, c, Workload, id)) for c in layers)
    return next((w for w in workloads if w is not None), None)


def _considered(tolerance: float | None) -> Select[Any]:
    """The measurements of a workload but for the chosen one, those of one fate in a row."""
    names = (
        "id", "seconds", "schedule", "session", "target", "toolchain", "outcome", "verified",
        "created",
    )  # fmt: skip
    return (
        select(
            *(raw(measurement.c[name]).label(name) for name in names),
            SUPERSEDED.label("superseded"),
            schedule.c.inexact,
            raw(schedule.c.trace).label("trace"),
            within(tolerance).label("within"),
            target.c.text,
            target.c.compat,
            target.c.perf,
            toolchain.c.generation,
        )
        .join_from(measurement, schedule, measurement.c.schedule == schedule.c.id)
        .join(target, measurement.c.target == target.c.id)
        .join(toolchain, measurement.c.toolchain == toolchain.c.id)
        .where(
            measurement.c.workload == bindparam("wanted"), measurement.c.id != bindparam("chosen")
        )
        .order_by(
            *(measurement.c[name] for name in ("outcome", "target", "toolchain", "seconds", "id"))
        )
    )


def _refused(
    layers: Layers,
    connection: Connection,
    goal: TargetRecord,
    wanted: Wanted,
    chosen: Best | None,
    finals: Finals,
) -> list[Refused]:
    mine = "" if chosen is None or chosen.measurement is None else chosen.measurement.id
    damaged = wanted.damage.of(connection)
    others = [layer for layer in layers if layer is not connection]
    groups: dict[tuple[Reason, str], list[tuple[float, str]]] = {}
    for row in connection.execute(
        _considered(wanted.tolerance), {"wanted": wanted.workload, "chosen": mine}
    ):
        why = _judge(row, goal, wanted, damaged)
        if why is None:
            why = _usable(others, wanted, row, finals), ""
        groups.setdefault(why, []).append((_seconds(row), row.id))
    return [_group(*why, rows, location(connection)) for why, rows in groups.items()]


def _usable(others: Layers, wanted: Wanted, row: Row[Any], finals: Finals) -> Reason:
    """Why a usable measurement is not the choice; `others` are the layers that do not have it."""
    last = finals.get((row.session, row.target, row.toolchain))
    if last is None and not others:
        return Reason.NOT_CHOSEN
    created = instant(row.created)
    measured_as = (wanted.workload, wanted.comparable, row.schedule, row.toolchain)
    if any(superseded_in(layer, measured_as, created, row.id) for layer in others):
        return Reason.SUPERSEDED
    return Reason.OUTDATED if last is not None and created < last else Reason.NOT_CHOSEN


def _group(reason: Reason, detail: str, rows: list[tuple[float, str]], layer: str) -> Refused:
    rows.sort()
    fastest, _ = rows[0]
    return Refused(
        reason,
        detail,
        count=len(rows),
        seconds=None if fastest == math.inf else fastest,
        examples=tuple(id for _, id in rows[:EXAMPLES]),
        layer=layer,
    )


def _seconds(row: Row[Any]) -> float:
    """The time of a row; infinite where it is none."""
    seconds = row.seconds
    return seconds if isinstance(seconds, float) and SHORTEST <= seconds <= LONGEST else math.inf


def _judge(
    row: Row[Any], goal: TargetRecord, wanted: Wanted, damaged: Mapping[str, str]
) -> tuple[Reason, str] | None:
    """The reason that refuses a row, with details; `None` if it is usable."""
    tolerance = wanted.tolerance
    if row.compat != goal.compat:
        return Reason.OTHER_COMPAT, f"measured on {row.text} ({row.compat}), wanted {goal.compat}"
    here, there = (_THREADS.fullmatch(perf) for perf in (goal.perf, str(row.perf)))
    if row.perf != goal.perf and here and there and here[1] == there[1]:
        return Reason.OTHER_THREADS, f"tuned for {there[2]}, asked for {here[2]}"
    if row.perf != goal.perf:
        return Reason.OTHER_PERF, f"measured on {row.text} ({row.perf}), wanted {goal.perf}"
    if (stale := _stale(row, wanted.tools)) is not None:
        return stale
    if row.outcome not in list(Outcome):
        return Reason.DAMAGED, f"its outcome is {row.outcome!r:.40}"
    if row.outcome != Outcome.OK:
        return Reason.NOT_OK, row.outcome
    if row.id in damaged:
        return Reason.DAMAGED, damaged[row.id]
    if _seconds(row) == math.inf:
        return Reason.DAMAGED, f"its time is {row.seconds!r:.40} s"
    if (row.schedule, row.target, row.toolchain) in wanted.failed:
        return Reason.CHECK_FAILED, ""
    if not row.verified:
        return Reason.NOT_VERIFIED, ""
    if not row.within:
        limit = "no tolerance was given" if tolerance is None else f"tolerance {tolerance:g}"
        return Reason.INEXACT, f"{row.inexact}, {limit}"
    if row.schedule in wanted.refused:
        return Reason.NOT_APPLICABLE, wanted.refused[row.schedule]
    if row.superseded:
        return Reason.SUPERSEDED, ""
    return None


def _stale(row: Row[Any], tools: Toolchain | None) -> tuple[Reason, str] | None:
    """Why a row is to be verified again, with details; `None` if it is not."""
    if tools is None:
        return None
    if row.generation != tools.generation:
        measured = f"measured with {row.generation}, wanted {tools.generation}"
        return Reason.OTHER_GENERATION, measured
    made = other_version(row.trace, tools) if isinstance(row.trace, str) else None
    return None if made is None else (Reason.OTHER_VERSION, made)


class _Relative(NamedTuple):
    """Another workload of the same family or name, as one layer has it."""

    connection: Connection
    id: str
    shape: str
    distance: float | None
    relative: bool | None
    measured: bool
    """Whether it has measurements that may be usable."""

    @property
    def rank(self) -> tuple[object, ...]:
        return self.relative is not True, self.distance is None, self.distance, self.id


def _near(layers: Layers, known: Workload, wanted: Wanted) -> tuple[Near, ...]:
    """The nearest workloads, those with usable measurements first; others are not looked into."""
    found = [r for connection in layers for r in _relatives(connection, known, wanted)]
    usable: list[Near] = []
    rest: list[Near] = []
    for one in sorted(found, key=attrgetter("rank")):
        choice = _transferable(layers, one.connection, one.id, wanted) if one.measured else None
        near = Near(
            workload=one.id,
            shape=one.shape,
            count=0 if choice is None else _count_usable(one, wanted),
            seconds=None if choice is None else choice.seconds,
            distance=one.distance,
            layer=location(one.connection),
            relative=one.relative,
        )
        (usable if near.count else rest).append(near)
        if len(usable) == NEAREST_SHOWN:
            break
    return (*usable, *rest)[:NEAREST_SHOWN]


def _relatives(connection: Connection, known: Workload, wanted: Wanted) -> Iterator[_Relative]:
    same_family = and_(workload.c.family == known.family, workload.c.family != "")
    measured = select(measurement.c.id).where(
        measurement.c.workload == workload.c.id, *_transferable_rows(wanted)
    )
    rows = connection.execute(
        select(workload.c.id, workload.c.shape, workload.c.family, measured.exists().label("any"))
        .where(or_(workload.c.name == known.name, same_family), workload.c.id != known.id)
    )  # fmt: skip
    for row in rows:
        if isinstance(row.id, str) and _is_shape(row.shape):
            relative = row.family == known.family if row.family and known.family else None
            far = distance(known.shape, row.shape)
            yield _Relative(connection, row.id, row.shape, far, relative, bool(row.any))


def _transferable_rows(wanted: Wanted) -> Iterator[ColumnElement[bool]]:
    """The conditions on measurements of schedules that may be transferred to other sizes."""
    yield measurement.c.comparable == wanted.comparable
    yield measurement.c.outcome == Outcome.OK
    yield measurement.c.verified
    yield IN_RANGE
    # Schedules with inexact steps are not transferred.
    yield measurement.c.schedule.in_(select(schedule.c.id).where(EXACT))
    if wanted.generation is not None:
        same_compiler = select(toolchain.c.id).where(toolchain.c.generation == wanted.generation)
        yield measurement.c.toolchain.in_(same_compiler)


def _count_usable(one: _Relative, wanted: Wanted) -> int:
    conditions = (measurement.c.workload == one.id, *_transferable_rows(wanted), ~SUPERSEDED)
    count_rows = select(func.count(measurement.c.id)).where(*conditions)
    return one.connection.execute(count_rows).scalar_one()


def _transferable(layers: Layers, connection: Connection, near: str, wanted: Wanted) -> Best | None:
    """The recorded best of another workload in one layer, whose schedule may be transferred."""
    failed = failed_checks(layers, near) if len(layers) > 1 else ()
    other = Wanted(near, wanted.comparable, wanted.tools, failed=failed, damage=wanted.damage)
    return best([connection], other, pins=False)


def _is_shape(shape: object) -> bool:
    """Whether it is a text no longer than the shape of a record may be."""
    return isinstance(shape, str) and len(shape) <= LIMITS["workload.shape"]


_DETAIL = 4_000
"""Characters of a reason, which may have features of two processors."""


def _lines(story: Explanation) -> Iterator[str]:
    name = "a workload never seen" if story.name is None else excerpt(story.name)
    yield f"{name} ({short_id(story.workload)}) on {excerpt(story.target)}"
    if story.generation is not None:
        yield f"toolchain: {excerpt(story.generation)}"
    yield "searched: " + ", ".join(story.layers)
    yield _best_line(story.best, story.layers)
    if story.best is not None and story.best.measurement is not None:
        yield from (f"  {line}" for line in resources_text(story.best.measurement.resources))
    if (gained := gains_text(story.gains)) is not None:
        yield f"  {gained}"
    if story.noise is not None:
        yield f"  {story.noise}"
    yield from _comparison_lines(story.best)
    for group in story.refused:
        detail = f" ({excerpt(group.detail, _DETAIL)})" if group.detail else ""
        ids = ", ".join(map(short_id, group.examples))
        more = ", ..." if group.count > len(group.examples) else ""
        some = count(group.count, "record") + _at_best(group.seconds)
        yield f"  {some}: {group.reason.value}{detail}: {ids}{more}"
    if story.best is None and any(group.reason in RE_VERIFIED for group in story.refused):
        yield "  `tilewright db refresh` measures the best of those again"
    if not story.refused and story.best is None:
        yield "  there are no measurements of this workload"
    if story.lowering:
        made_by = ", ".join(map(str, story.lowering))
        yield f"  records are of lowering generation {made_by}: tune models of then again"
    if story.near:
        yield f"near shapes of {name}:"
    for near in story.near:
        counted = "nothing usable" if near.count == 0 else f"{near.count} usable"
        other = ", not the same program" if near.relative is False else ""
        named = f"{excerpt(near.shape)} ({short_id(near.workload)})"
        yield f"  {named}: {counted}{_at_best(near.seconds)}{other}"


_CHOICES = {
    Verdict.TIE: "as fast as the fastest verified, and at least as simple",
    Verdict.UNSETTLED: "shortest time of a noisy comparison",
}
"""Why the choice of a comparison is one that is not the fastest."""


def choice_text(best: Best) -> str:
    """Why a schedule is the choice, as a phrase: the same in texts and pictures."""
    if best.pinned or not best.comparison:
        return best.how if best.pinned else "fastest verified"
    return _CHOICES.get(best.comparison[0].verdict, "fastest verified")


def comparison_text(best: Best) -> str | None:
    """How the choice compares with the other finalists, as a phrase; `None` without finals."""
    if not best.comparison:
        return None
    return f"{summary(best.comparison)}; timed interleaved in {best.comparison[0].rounds_text}"


def _best_line(best: Best | None, layers: Sequence[str]) -> str:
    if best is None:
        return "found: nothing usable"
    inexact = f" ({best.schedule.inexact})" if best.schedule.inexact else ""
    time = best.time or "no usable time"
    layer = f", from {best.layer}" if len(layers) > 1 else ""
    found = f"found: schedule {short_id(best.schedule.id)}{inexact}"
    return f"{found}, {choice_text(best)}, {time}{layer}"


def _comparison_lines(best: Best | None) -> Iterator[str]:
    if best is None or (compared_text := comparison_text(best)) is None:
        return
    yield f"  {compared_text}; compared with the fastest:"
    # The choice is told already, unless it has a ratio to the fastest or another name.
    first = 1 if str(best.comparison[0]) == Verdict.FASTEST else 0
    for compared in best.comparison[first:FINALISTS_SHOWN]:
        yield f"    {short_id(compared.schedule)}: {compared.line}"
    if (more := len(best.comparison) - FINALISTS_SHOWN) > 0:
        yield f"    ... {more} more"


def _at_best(seconds: float | None) -> str:
    return "" if seconds is None else f", at best {format_seconds(seconds)}"

"""Commands that keep a database in order: `db prune`, `db pin` and `db diff`."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.durations import format_seconds
from ..base.errors import DatabaseError
from ..base.text import masked_url, short_id
from ..tuning_db.arguments import READER, TUNER
from .graph_options import Constants, Shapes
from .options import (
    AsJson,
    Database,
    DatabaseArgument,
    DatabaseOption,
    Parameters,
    Tolerance,
    database_named,
    open_database,
)
from .program_file import Options, load_buildable
from .report import decisions_text, measured_text, print_json, steps, tune_row
from .table import print_facts, print_headings, print_table, print_text

if TYPE_CHECKING:
    from ..base.durations import MeasuredTime
    from ..tuning_db import (
        AnyRecord,
        Measurement,
        Pin,
        RecordDiff,
        ScheduleRecord,
        TuningDatabase,
    )

Yes = Annotated[bool, typer.Option("--yes", help="Delete; otherwise only say what would be.")]
AnyId = Annotated[str, typer.Argument(metavar="ID", help="An id, or its first digits.")]
_SHOWN = 3
"""Ids that a row of a table of deleted records names."""


def stats(
    database: DatabaseArgument = None, db: DatabaseOption = None, as_json: AsJson = False
) -> None:
    """Count the records, and those that are to be verified again, by target and compiler."""
    from ..autotune.today import toolchain_of
    from ..tuning_db.staleness import RE_VERIFY

    location = database_named(database, db)
    with open_database(location) as opened:
        counts, places = opened.counts(), opened.places(toolchain_of)
    if as_json:
        print_json({"records": counts, "places": [place._asdict() for place in places]})
        return
    print_facts(counts)
    rows = [
        [
            place.target,
            place.generation,
            *map(str, (place.programs, place.measurements, place.usable)),
            "?" if place.reverify is None else str(place.reverify or ""),
        ]
        for place in places
    ]
    print_text("")
    columns = ("~target", "compiler", ">programs", ">measured", ">verified", f"?>{RE_VERIFY}")
    print_table(columns, rows, "no measurements")
    if any(place.reverify for place in places):
        print_text("\n`tilewright db refresh` measures the best of each program again.")


def refresh(
    programs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE.py:FUNCTION[:KERNEL]|MODEL.onnx[:KERNEL]]...",
            help="Programs and models, whose kernels run most often first; by default all of the "
            "database.",
        ),
    ] = None,
    param: Parameters = None,
    shape: Shapes = None,
    constant: Constants = None,
    db: Database = "tuning.db",
    target: Annotated[
        str | None,
        typer.Option(help="By default each target of the database that this machine is."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Wall-clock time in seconds.", min=0)
    ] = None,
    tolerance: Tolerance = None,
    as_json: AsJson = False,
) -> None:
    """Measure the best schedules of older compilers and primitives again, most used first.

    No build takes a record of another generation of the compiler, or of an older version of a
    primitive: `db list`, `db stats` and `db explain` show it as re-verify. Nothing is deleted.
    """
    from ..autotune.refresh import Refreshed
    from ..autotune.refresh import refresh as run
    from ..codegen.detect import resolve

    options = Options(param, shape, constant, target or "cpu")
    given = [load_buildable(name, options) for name in programs or ()] or None

    def tell(one: Refreshed) -> None:
        if not as_json:
            typer.echo(f"{one.workload}: {one.outcome}", err=True)

    with open_database(db, write=True) as opened:
        done = run(
            opened,
            given,
            None if target is None else resolve(target),
            seconds=seconds,
            tolerance=tolerance,
            callback=tell,
        )
    if as_json:
        print_json(
            [
                {
                    "workload": one.workload,
                    "target": one.target,
                    "recorded": one.seconds,
                    "why": one.why,
                    "result": None if one.result is None else tune_row(one.result, one.workload),
                    "refused": one.refused,
                }
                for one in done
            ]
        )
    else:
        rows = [
            [one.workload, one.target, format_seconds(one.seconds), one.outcome, one.why]
            for one in done
        ]
        columns = ("~program", "~target", ">recorded", "~now", "~why")
        print_table(columns, rows, f"there is nothing to verify again in {masked_url(db)}")
    if any(one.result is not None and one.result.interrupted for one in done):
        raise typer.Exit(130)


def roles(
    db: Database = "tuning.db",
    reader: Annotated[str, typer.Option(help="The role that looks up.")] = READER,
    tuner: Annotated[str, typer.Option(help="The role that also adds records.")] = TUNER,
    apply: Annotated[bool, typer.Option("--apply", help="Run it, as the owner.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the SQL that lets roles of a server read or tune; --apply runs it.

    Readers look up, tuners add records. To delete records and to migrate is the owner's.
    """
    with open_database(db, write=apply) as opened:
        statements = opened.roles(reader, tuner, apply=apply)
    if as_json:
        print_json(statements)
        return
    for statement in statements:
        typer.echo(f"{statement};")
    if apply:
        typer.echo(f"applied; a user is let in by: GRANT {tuner} TO user", err=True)


def prune(
    database: DatabaseArgument = None,
    db: DatabaseOption = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete what no lookup needs; without --yes, say what that is.

    Measurements that another session superseded, sessions that measured nothing, schedules that
    nothing refers to. The best schedules, their comparisons and pins stay as they are.
    """
    location = database_named(database, db)
    with open_database(location, write=yes) as opened:
        removal = opened.prune(dry_run=not yes)
    if as_json:
        reasons = {str(why): dict(ids) for why, ids in removal.reasons.items()}
        print_json({"database": removal.location, "done": removal.done, "reasons": reasons})
        return
    rows = [
        [kind, str(len(ids)), str(why), " ".join([*map(short_id, ids[:_SHOWN]), *_more(ids)])]
        for why, of_kind in removal.reasons.items()
        for kind, ids in of_kind.items()
    ]
    print_table(
        ("kind", ">records", "~why", "~ids"),
        rows,
        f"there is nothing to delete in {masked_url(location)}",
    )
    if rows and removal.done:
        print_text("Deleted. A merge with a database that still has them brings them back.")
    elif rows:
        print_text("Nothing was deleted. `--yes` deletes these.")


def _more(ids: tuple[str, ...]) -> list[str]:
    return ["..."] if len(ids) > _SHOWN else []


def pin(id: AnyId, db: Database = "tuning.db", as_json: AsJson = False) -> None:
    """Make a schedule the choice for its program and target, by the id of it or a measurement."""
    with open_database(db, write=True) as database:
        measured = _measurement_of(database, id)
        target = _target(database, measured.target)
        pinned = database.pin(measured.workload, target, measured.schedule)
        text = _pin_text(database, pinned.pin)
    if as_json:
        from ..tuning_db import to_plain

        more = {"replaced": pinned.replaced, "ratio": pinned.ratio, "price": pinned.price}
        print_json([{"id": pinned.pin.id, **to_plain(pinned.pin), **more}])
        return
    print_text(f"pinned: {text}{pinned.instead}\n{pinned.price}")


def _measurement_of(database: TuningDatabase, id: str) -> Measurement:
    """The measurement of an id, or one of the schedule of it."""
    from ..tuning_db import Measurement, ScheduleRecord

    record = database.find(id)
    if isinstance(record, Measurement):
        return record
    if not isinstance(record, ScheduleRecord):
        raise DatabaseError(
            "{0} {1} cannot be pinned: expected a measurement or a schedule",
            record.kind,
            short_id(record.id),
        )
    measured = database.measurements(schedule=record.id)
    if not measured:
        raise DatabaseError("schedule {0} was not measured", short_id(record.id))
    by_place = {(m.workload, _target(database, m.target).comparable): m for m in measured}
    if len(by_place) > 1:
        raise DatabaseError(
            "schedule {0} was measured of more than one program or target",
            short_id(record.id),
            hint=f"name a measurement: {', '.join(short_id(m.id) for m in by_place.values())}",
        )
    return measured[0]


def _target(database: TuningDatabase, id: str) -> Any:
    from ..tuning_db import TargetRecord

    return database.get(TargetRecord, id)


def _pin_text(database: TuningDatabase, choice: Pin) -> str:
    from ..tuning_db import Workload

    program = database.get(Workload, choice.workload).text
    where = _target(database, choice.target).text
    return f"schedule {short_id(choice.schedule)} for {program} on {where}"


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="An id, or a database.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another of the same kind.")],
    db: Database = "tuning.db",
    as_json: AsJson = False,
) -> None:
    """Compare two records of a database, by their ids, or two databases.

    Schedules and measurements are compared by decisions, steps and times: their ratio is known
    where both were timed interleaved. Sessions are compared by their options; of databases it says
    which records one has and the other has not.
    """
    if _is_database(first) and _is_database(second):
        _diff_databases(first, second, as_json)
        return
    with open_database(db) as database:
        difference = database.diff(first, second)
        schedules = [
            database.schedule_of(record) for record in (difference.first, difference.second)
        ]
        told = list(_told(database, difference, schedules))
    if as_json:
        from ..tuning_db import to_plain

        print_json(to_plain(difference))
        return
    names = [short_id(difference.first.id), short_id(difference.second.id)]
    print_headings(0, f"{difference.first.kind}s {names[0]} and {names[1]}")
    rows = [
        [name, *(_text(name, value) for value in values)]
        for name, values in difference.fields.items()
        if name not in _LONG
    ]
    rows += [[name, *texts] for name, texts in told]
    print_table(("field", *(f"~{name}" for name in names)), rows, "they are the same")
    one, two = schedules
    if one is None or two is None:
        return
    typer.echo()
    changes = list(
        difflib.unified_diff(steps(one).splitlines(), steps(two).splitlines(), lineterm="", n=1)
    )[2:]
    print_text("\n".join(changes) or "their steps are the same")


_LONG = frozenset({"trace", "samples", "features", "ir", "seconds", "nonce", "heartbeat"})
"""Fields that are shown as steps and times, or that say nothing."""


def _told(
    database: TuningDatabase, difference: RecordDiff, schedules: list[ScheduleRecord | None]
) -> Iterator[tuple[str, list[str]]]:
    """What two records differ in that is no field: decisions, times and what was measured."""
    from ..tuning_db import Order, Session

    first, second = difference.first, difference.second
    if first == second:
        return
    if (times := difference.times) is not None:
        ran = zip((first, second), times.times, strict=True)
        yield "time", [_time_text(record, time) for record, time in ran]
        if all(times.times):
            yield "compared", ["", times.ratio_text]
    if isinstance(first, Session) and isinstance(second, Session):
        measured = [database.measurements(session=s.id, order=Order.TIME) for s in (first, second)]
        yield "trials", [str(database.trials(s.id)) for s in (first, second)]
        yield "measurements", [_outcomes(of_session) for of_session in measured]
        yield "fastest", [measured_text(m[0]) if m else "" for m in measured]
    decisions = [decisions_text(s) for s in schedules if s is not None]
    if len(set(decisions)) > 1:
        yield "decisions", decisions


def _time_text(record: AnyRecord, time: MeasuredTime | None) -> str:
    """A time, or the outcome of a measurement without one."""
    from ..tuning_db import Measurement

    if time is not None:
        return str(time)
    return record.outcome.value if isinstance(record, Measurement) else "not measured"


def _outcomes(measured: list[Measurement]) -> str:
    counts = Counter(m.outcome.value for m in measured)
    return f"{len(measured)} ({', '.join(f'{n} {name}' for name, n in counts.items()) or 'none'})"


def _text(field: str, value: object) -> str:
    """The value of a field of a record; what names other records does so in short."""
    from ..tuning_db.values import DIGESTS

    text = "" if value is None else str(value)
    return short_id(text) if field in DIGESTS else text


def _is_database(text: str) -> bool:
    return "://" in text or Path(text).exists()


def _diff_databases(first: str, second: str, as_json: bool) -> None:
    with open_database(first) as one, open_database(second) as two:
        difference = one.compare(two)
    if as_json:
        from ..tuning_db import to_plain

        print_json(to_plain(difference))
        return
    rows = [
        [where, kind, str(len(ids)), " ".join([*map(short_id, ids[:_SHOWN]), *_more(ids)])]
        for where, only in ((first, difference.only_first), (second, difference.only_second))
        for kind, ids in only.items()
    ]
    print_table(("~only in", "kind", ">records", "~ids"), rows, str(difference))
    if difference.pins:
        print_text(f"pins of different schedules: {' '.join(map(short_id, difference.pins))}")

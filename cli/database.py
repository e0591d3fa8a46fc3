"""Commands on tuning databases: `db list`, `db best`, `db explain` and others."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ..base.errors import DatabaseError
from ..base.text import FEWEST_DIGITS, count, masked_url, short_id
from . import upkeep
from .graph_options import Constants, Never, Placements, Providers, Shapes, sharing
from .options import (
    OPTIONS,
    AsJson,
    Database,
    DatabaseArgument,
    DatabaseOption,
    Parameters,
    ProgramOrModel,
    SomeProgram,
    TargetText,
    Tolerance,
    database_named,
    open_database,
    parse_moment,
)
from .program_file import Options, load_buildable, load_program
from .report import (
    best_rows,
    decisions_text,
    measurement_row,
    print_json,
    print_new,
    steps,
    time_cells,
    time_text,
)
from .table import print_facts, print_headings, print_table, print_text

if TYPE_CHECKING:
    from ..tuning_db import Measurement, ScheduleRecord, Workload

app = typer.Typer(help="Inspect a tuning database, and move records.", **OPTIONS)
E = TypeVar("E", bound=StrEnum)
_SUPERSEDED = "*"
"""The mark of a measurement whose schedule was measured again later."""
_MOST_NAMED = 5
"""Programs that an error lists."""


@app.command("list")
def list_measurements(
    database: DatabaseArgument = None,
    db: DatabaseOption = None,
    workload: Annotated[
        str | None, typer.Option(metavar="TEXT|ID", help="A part of its name and shape, or its id.")
    ] = None,
    outcome: Annotated[
        str | None, typer.Option(help="Only those: ok, crash, wrong_result, ...")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="DATE|DURATION", help="2026-11-23, 2026-11-23T08:00 (UTC), or 12h."),
    ] = None,
    sort: Annotated[
        str, typer.Option(help="created (the newest first), time (the fastest first) or outcome.")
    ] = "created",
    limit: Annotated[int | None, typer.Option(help="The number of rows.", min=1)] = None,
    wide: Annotated[bool, typer.Option("--wide", help="Also rules and decisions.")] = False,
    as_json: AsJson = False,
) -> None:
    """List measurements by program and target, the newest first."""
    from ..autotune.today import toolchain_of
    from ..tuning_db import Order, Outcome, Session, TargetRecord, Toolchain, Workload
    from ..tuning_db.staleness import RE_VERIFY, reverify

    order = _one_of(Order, sort, "--sort")
    only = None if outcome is None else _one_of(Outcome, outcome, "--outcome")
    moment = None if since is None else parse_moment(since, "--since")
    location = database_named(database, db)
    pinned: dict[tuple[str, str], str] = {}
    disturbed: set[str] = set()
    with open_database(location) as opened:
        programs = {w.id: w.text for w in opened.records(Workload)}
        wanted = None if workload is None else _matching(programs, workload, location)
        measured = opened.history(
            workload=wanted, outcome=only, since=moment, order=order, limit=limit
        )
        old = opened.superseded([m.id for m, _ in measured])
        targets = {t.id: t for t in opened.records(TargetRecord)}
        for group in {(m.workload, m.target) for m, _ in measured if m.target in targets}:
            pin = opened.pinned(group[0], targets[group[1]])
            if pin is not None:
                pinned[group] = pin.schedule
        if wide or as_json:
            disturbed = {s.id for s in opened.records(Session) if s.noise is not None}
        tools = {t.id: t for t in opened.records(Toolchain)}
        texts = programs | {id: target.text for id, target in targets.items()}
    today = {id: toolchain_of(target.text) for id, target in targets.items()}
    stale = {
        m.id: why
        for m, schedule in measured
        if m.toolchain in tools and (now := today.get(m.target)) is not None
        if (why := reverify(schedule.trace, tools[m.toolchain], now)) is not None
    }
    marked = {m.id for m, _ in measured if pinned.get((m.workload, m.target)) == m.schedule}
    if as_json:
        print_json(
            [
                {
                    **measurement_row(m, schedule, texts),
                    "superseded": m.id in old,
                    "pinned": m.id in marked,
                    "calm": m.session not in disturbed,
                    "reverify": stale.get(m.id),
                }
                for m, schedule in measured
            ]
        )
        return
    if not measured:
        chosen = (wanted, only, moment) != (None, None, None)
        print_text(f"no measurements in {masked_url(location)}{' match' if chosen else ''}")
    tables: dict[tuple[str, str], list[list[str]]] = {}
    for m, schedule in measured:
        tables.setdefault((m.workload, m.target), []).append(
            _row(
                m,
                schedule,
                wide,
                superseded=m.id in old,
                pinned=m.id in marked,
                disturbed=m.session in disturbed,
                stale=m.id in stale,
            )
        )
    for n, (group, rows) in enumerate(tables.items()):
        print_headings(n, *(texts.get(id, short_id(id)) for id in group))
        print_table(
            ("id", "outcome", ">time", "?inexact", "?session", "?created", "~rules", "~decisions"),
            rows,
            "",
        )
    if old:
        print_text(f"\n{_SUPERSEDED} superseded: its schedule was measured again later")
    if stale:
        some = count(len(stale), "record")
        print_text(
            f"\n{RE_VERIFY}: {some} of another compiler or primitive; no build takes them, and "
            "`tilewright db refresh` measures the best again"
        )


def _one_of(kind: type[E], text: str, option: str) -> E:
    try:
        return kind(text)
    except ValueError:
        expected = ", ".join(kind)
        raise typer.BadParameter(f"{text!r} is none of {expected}", param_hint=option) from None


def _matching(programs: Mapping[str, str], text: str, db: str) -> list[str]:
    """The ids of the programs that a text is a part of, or whose id begins with it."""
    matches = [id for id, program in programs.items() if text in program]
    if len(text) >= FEWEST_DIGITS:
        matches += [id for id in programs if id.startswith(text)]
    if not matches:
        some = "; ".join(list(programs.values())[:_MOST_NAMED]) or "none"
        raise DatabaseError(
            "no program in {0} is called {1!r}, and no id of one begins so; there are: {2}{3}",
            masked_url(db),
            text,
            some,
            "; ..." if len(programs) > _MOST_NAMED else "",
        )
    return matches


def _row(
    m: Measurement,
    schedule: ScheduleRecord,
    wide: bool,
    *,
    superseded: bool,
    pinned: bool,
    disturbed: bool,
    stale: bool,
) -> list[str]:
    more = [schedule.generator, decisions_text(schedule)] if wide else ["", ""]
    from ..tuning_db.staleness import RE_VERIFY
    from ..tuning_db.values import NOT_CALM

    states = {
        "finals": m.trial is False,
        "pinned": pinned,
        NOT_CALM: disturbed,
        RE_VERIFY: stale,
    }
    marks = "".join(f", {state}" for state, holds in states.items() if holds)
    outcome = f"{m.outcome.value}{f' {_SUPERSEDED}' if superseded else ''}{marks}"
    return [
        short_id(m.id),
        outcome,
        time_text(m.seconds),
        schedule.inexact,
        short_id(m.session),
        f"{m.created:%Y-%m-%d %H:%M}",
        *more,
    ]


@app.command()
def show(
    id: Annotated[str, typer.Argument(help="The id of any record, or its first digits.")],
    db: Database = "tuning.db",
    as_json: AsJson = False,
) -> None:
    """Show a record; for schedules and measurements also the steps."""
    from ..tuning_db import Measurement, to_plain
    from ..tuning_db.resources import resources_text

    with open_database(db) as database:
        record = database.find(id)
        schedule = database.schedule_of(record)
    facts = {"kind": record.kind, "id": record.id, **to_plain(record)}
    taken = resources_text(record.resources) if isinstance(record, Measurement) else []
    if schedule is not None:
        facts["generator"] = schedule.generator
    if as_json:
        print_json(facts)
        return
    facts["resources"] = taken or None
    print_facts({k: v for k, v in facts.items() if k not in ("trace", "ir", "features")})
    if schedule is not None:
        print_text(f"\n{steps(schedule)}")
    elif "ir" in facts:
        print_text(f"\n{facts['ir']}")


@app.command()
def best(
    program: SomeProgram = None,
    param: Parameters = None,
    shape: Shapes = None,
    constant: Constants = None,
    db: Database = "tuning.db",
    tolerance: Tolerance = None,
    as_json: AsJson = False,
) -> None:
    """Show the schedule that `build` takes for each workload, or one, by target and compiler."""
    from ..autotune.today import toolchain_of
    from ..tuning_db.staleness import RE_VERIFY
    from ..tuning_db.values import NOT_CALM

    options = Options(param, shape, constant)
    if program is None and options.words:
        raise typer.BadParameter("parameters of no program: name FILE.py:FUNCTION too")
    workload = None if program is None else _workload(program, options)
    with open_database(db) as database:
        choices = list(best_rows(database, tolerance, None if workload is None else workload.id))
    if as_json:
        print_json(choices)
        return
    tables: dict[tuple[str, str], list[list[str]]] = {}
    for best in choices:
        row = [
            f"{best['name']} {best['shape']}",
            *time_cells(best),
            "" if best["gflops"] is None else f"{best['gflops']:.4g}",
            best["how"] if best["noise"] is None else f"{best['how']}, {NOT_CALM}",
            *(_gain(best["gains"].get(name)) for name in ("written", "untuned")),
            best["inexact"],
            short_id(best["schedule"]),
        ]
        tables.setdefault((best["target"], best["generation"]), []).append(row)
    if not tables:
        of = "" if workload is None else f" for {workload.text}"
        print_text(f"nothing usable{of} in {masked_url(db)}")
    columns = (
        "~workload", ">time", "95% interval", ">GFLOP/s", "?how", ">vs written",
        ">vs untuned", "?inexact", "schedule",
    )  # fmt: skip
    for n, ((where, compiler), rows) in enumerate(tables.items()):
        now = toolchain_of(where)
        stale = f", {RE_VERIFY}" if now is not None and now.generation != compiler else ""
        print_headings(n, f"{where}, {compiler}{stale}")
        print_table(columns, rows, "")
    noises = dict.fromkeys(best["noise"] for best in choices if best["noise"] is not None)
    if workload is not None and noises:
        print_text("\n" + "\n".join(noises))
    elif noises:
        print_text(f"\n{NOT_CALM}: `db explain` of the program says what disturbed its session")


def _workload(program: str, options: Options) -> Workload:
    """The record of a program, for which all that describes programs is loaded."""
    from ..autotune.records import workload_record

    return workload_record(load_program(program, options))


def _gain(gain: Mapping[str, Any] | None) -> str:
    from ..tuning_db.gains import Gain, gain_cell
    from ..tuning_db.results import Verdict

    if gain is None:
        return ""
    return gain_cell(Gain(**{**gain, "verdict": Verdict(gain["verdict"])}))


class ExportFormat(StrEnum):
    """The formats of an export: JSON lines, and T4, the results format that tuners share."""

    LINES = "lines"
    T4 = "t4"


Format = Annotated[
    ExportFormat | None,
    typer.Option("--format", help="By default `t4` if the file is named .t4.json, else `lines`."),
]


def _is_t4(file: str, given: ExportFormat | None) -> bool:
    return given is ExportFormat.T4 or (given is None and file.endswith(".t4.json"))


@app.command()
def export(
    file: Annotated[str, typer.Argument(help="`-` is standard output.")],
    db: Database = "tuning.db",
    file_format: Format = None,
) -> None:
    """Write every record, as JSON lines or as a T4 file."""
    with open_database(db) as database:
        write = database.export_t4 if _is_t4(file, file_format) else database.export_lines
        written = write(sys.stdout if file == "-" else file)
    typer.echo(f"{count(written, 'record')} written", err=True)


@app.command("import")
def import_records(
    file: Annotated[str, typer.Argument(help="`-` is standard input.")],
    db: Database = "tuning.db",
    file_format: Format = None,
    as_json: AsJson = False,
) -> None:
    """Import the records of an export; existing ones do not change."""
    from ..autotune.records import inexact_steps

    with open_database(db, create=True) as database:
        read = database.import_t4 if _is_t4(file, file_format) else database.import_lines
        new = read(sys.stdin if file == "-" else file, inexact=inexact_steps)
    print_new(new, as_json)


@app.command()
def merge(
    other: Annotated[str, typer.Argument(help="The database to take records from.")],
    db: Database = "tuning.db",
    as_json: AsJson = False,
) -> None:
    """Copy the records of another database; existing ones do not change."""
    with open_database(db, create=True) as database:
        new = database.merge(other)
    print_new(new, as_json)


@app.command()
def sync(
    first: Annotated[
        str, typer.Argument(metavar="[LOCAL] TEAM", help="A file or an SQLAlchemy URL.")
    ],
    second: Annotated[str | None, typer.Argument(metavar="", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Give two databases what they lack of each other; what was interrupted goes on.

    Existing records do not change, and doing it again changes nothing. Of one database on a server,
    send what sessions have measured while it could not be reached.
    """
    from ..tuning_db.journal import deliver_waiting

    if second is None:
        with open_database(first, write=True) as team:
            print_new(deliver_waiting(team), as_json)
        return
    with open_database(first, create=True) as local, open_database(second, create=True) as team:
        synced = local.sync(team)
    if as_json:
        print_json(synced._asdict())
        return
    print_new(synced.received, as_json=False, what="received")
    print_new(synced.sent, as_json=False, what="sent")


@app.command()
def explain(  # noqa: PLR0913, PLR0917 - each option of a lookup has a name
    program: ProgramOrModel,
    param: Parameters = None,
    shape: Shapes = None,
    constant: Constants = None,
    db: Database = "tuning.db",
    target: TargetText = "cpu",
    tolerance: Tolerance = None,
    provider: Providers = None,
    place: Placements = None,
    never: Never = None,
    as_json: AsJson = False,
) -> None:
    """Say which records a build would consider, which it takes, and why it refuses the others.

    Of a model, where a build takes the schedule of each kernel from; where other providers share
    it, of the parts that Tilewright runs.
    """
    from ..building.build import explain as explain_build
    from ..graph.ir import Graph
    from ..tuning_db import to_plain

    shared = sharing(provider, place, never)
    options = Options(param, shape, constant, target, foreign=bool(shared))
    made: Any = load_buildable(program, options)
    with open_database(db) as database:
        told = explain_build(made, target, database, tolerance=tolerance, **shared)
    if as_json:
        print_json(to_plain(told))
    elif isinstance(made, Graph):
        rows = [
            [
                k.name,
                str(k.runs),
                k.origin.kind,
                short_id(k.origin.schedule_id or ""),
                k.origin.detail,
            ]
            for k in told.kernels
        ]
        print_table(("~kernel", ">runs", "from", "?schedule", "~detail"), rows, "no kernels")
        print_text(f"\n{told.summary}")
    else:
        print_text(str(told))


for _command in (upkeep.stats, upkeep.refresh, upkeep.roles, upkeep.pin, upkeep.prune, upkeep.diff):
    app.command()(_command)

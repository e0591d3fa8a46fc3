"""Commands on tuning databases: `db list`, `db best`, `db explain` and others."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ..ids import short_id
from .options import (
    OPTIONS,
    AsJson,
    Database,
    Parameters,
    Program,
    SomeProgram,
    TargetText,
    Tolerance,
    open_database,
)
from .program_file import load_program
from .report import (
    best_rows,
    inexact_of,
    interval_text,
    measurement_row,
    names,
    print_facts,
    print_json,
    print_new,
    print_table,
    printable,
    steps,
    time_text,
)

app = typer.Typer(help="Inspect a tuning database, and move records.", **OPTIONS)


@app.command("list")
def list_measurements(
    db: Database = "tuning.db",
    limit: Annotated[int | None, typer.Option(help="The number of rows.", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """List measurements by program and target, the newest first."""
    with open_database(db) as database:
        found = database.measurements(limit=limit)
        named = names(database)
        inexact = inexact_of(database)
    if as_json:
        print_json([measurement_row(m, named, inexact) for m in found])
        return
    tables: dict[tuple[str, str], list[list[str]]] = {}
    for m in found:
        row = [
            short_id(m.id),
            m.outcome.value,
            time_text(m.seconds),
            inexact.get(m.schedule, ""),
            short_id(m.session),
            f"{m.created:%Y-%m-%d %H:%M}",
        ]
        tables.setdefault((m.workload, m.target), []).append(row)
    if not tables:
        typer.echo(f"no measurements in {db}")
    for (workload, target), rows in tables.items():
        for id in (workload, target):
            typer.echo(printable(named.get(id, short_id(id))))
        print_table(("id", "outcome", ">time", "inexact", "?session", "?created"), rows, "")


@app.command()
def show(
    id: Annotated[str, typer.Argument(help="The id of any record, or its first digits.")],
    db: Database = "tuning.db",
    as_json: AsJson = False,
) -> None:
    """Show a record; for schedules and measurements also the steps."""
    from ..tuning_db import Measurement, ScheduleRecord, to_plain
    from ..tuning_db.resources import resources_text

    with open_database(db) as database:
        record = database.find(id)
        schedule = (
            database.get(ScheduleRecord, record.schedule)
            if isinstance(record, Measurement)
            else record
        )
    facts = {"kind": record.kind, "id": record.id, **to_plain(record)}
    taken = resources_text(record.resources) if isinstance(record, Measurement) else []
    if isinstance(schedule, ScheduleRecord):
        facts["generator"] = schedule.generator
    if as_json:
        print_json(facts)
        return
    facts["resources"] = taken or None
    print_facts({k: v for k, v in facts.items() if k not in ("trace", "ir", "features")})
    if isinstance(schedule, ScheduleRecord):
        typer.echo(printable(f"\n{steps(schedule)}"))
    elif "ir" in facts:
        typer.echo(printable(f"\n{facts['ir']}"))


@app.command()
def best(
    program: SomeProgram = None,
    param: Parameters = None,
    db: Database = "tuning.db",
    tolerance: Tolerance = None,
    as_json: AsJson = False,
) -> None:
    """Show the schedule that `build` takes for each workload, or one, by target and compiler."""
    from ..autotune.records import workload_record

    if program is None and param:
        raise typer.BadParameter("parameters of no program: name FILE.py:FUNCTION too")
    workload = None if program is None else workload_record(load_program(program, param or ()))
    with open_database(db) as database:
        found = list(best_rows(database, tolerance, None if workload is None else workload.id))
    if as_json:
        print_json(found)
        return
    rows = [
        [
            f"{best['name']} {best['shape']}",
            best["target"],
            best["generation"],
            time_text(best["seconds"]),
            interval_text(best["seconds"], best["interval"]),
            "" if best["gflops"] is None else f"{best['gflops']:.4g}",
            "pinned" if best["pinned"] else "verified",
            *(_gain(best["gains"].get(name)) for name in ("written", "untuned")),
            best["inexact"],
            short_id(best["measurement"] or ""),
        ]
        for best in found
    ]
    columns = (
        "~workload", "~target", "?compiler", ">time", "?95% interval", ">GFLOP/s", "?how",
        "?>written/best", "?>untuned/best", "?inexact", "measurement",
    )  # fmt: skip
    of = "" if workload is None else f" for {workload.name} {workload.shape}"
    print_table(columns, rows, f"nothing usable{of} in {db}")


def _gain(gain: Mapping[str, Any] | None) -> str:
    from ..tuning_db.gains import Gain, gain_cell

    return "" if gain is None else gain_cell(Gain(**gain))


@app.command()
def export(
    file: Annotated[str, typer.Argument(help="`-` is standard output.")], db: Database = "tuning.db"
) -> None:
    """Write every record as JSON lines."""
    with open_database(db) as database:
        count = database.export_lines(sys.stdout if file == "-" else file)
    typer.echo(f"{count} records written", err=True)


@app.command("import")
def import_records(
    file: Annotated[str, typer.Argument(help="`-` is standard input.")],
    db: Database = "tuning.db",
    as_json: AsJson = False,
) -> None:
    """Import the records of an export; existing ones do not change."""
    from ..autotune.records import inexact_steps

    with open_database(db, create=True) as database:
        lines = sys.stdin if file == "-" else file
        new = database.import_lines(lines, inexact=inexact_steps)
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
def explain(
    program: Program,
    param: Parameters = None,
    db: Database = "tuning.db",
    target: TargetText = "cpu",
    tolerance: Tolerance = None,
    as_json: AsJson = False,
) -> None:
    """Say which records a build would consider, which it takes, and why it refuses the others."""
    from ..building import explain as explain_build
    from ..tuning_db import to_plain

    func = load_program(program, param or ())
    with open_database(db) as database:
        told = explain_build(func, target, database, tolerance=tolerance)
    if as_json:
        print_json(to_plain(told))
    else:
        typer.echo(printable(str(told)))

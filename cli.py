"""The command `tilewright`: tune, build, and look into the database from a shell.

A program is named as `FILE.py:FUNCTION`: the file is run as Python runs any module that is imported
(so name only files that you trust), and the function is called with the `-p` parameters.

Results go to standard output, as tables or with `--json` as JSON; progress, warnings and errors go
to standard error. The status is 0, 1 where Tilewright refuses, 2 for wrong usage, 130 after Ctrl-C,
and after SIGTERM or SIGHUP that of a process that the signal ended (143 or 129 in a shell).
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import BuildError, TilewrightError
from .report import (
    algebra_of,
    best_rows,
    measurement_row,
    names,
    print_assessment,
    print_facts,
    print_json,
    print_new,
    print_results,
    print_table,
    printable,
    steps,
    time_text,
    tune_row,
)

if TYPE_CHECKING:
    from .autotune.samples import Sweep
    from .tir.ir import Func
    from .tuning_db import TuningDatabase

_OPTIONS: dict[str, Any] = {
    "no_args_is_help": True,
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,  # plain text, and help does not wait for rich
}
app = typer.Typer(help="Compile tensor programs to fast kernels, and tune them.", **_OPTIONS)
db = typer.Typer(help="Look into a tuning database, and move records.", **_OPTIONS)
app.add_typer(db, name="db")
model = typer.Typer(help="Train cost models, and see what they are worth.", **_OPTIONS)
app.add_typer(model, name="model")

Databases = Annotated[
    list[str] | None, typer.Option("--db", help="A database to learn from; give several.")
]
Shipped = Annotated[
    bool, typer.Option(help="Learn from the measurements too that come with the package.")
]
Program = Annotated[
    str, typer.Argument(metavar="FILE.py:FUNCTION", help="Makes the program; the file is run.")
]
Programs = Annotated[
    list[str],
    typer.Argument(metavar="FILE.py:FUNCTION...", help="Make the programs; the files are run."),
]
Parameters = Annotated[
    list[str] | None,
    typer.Option("-p", "--param", metavar="NAME=VALUE", help="A parameter of the function."),
]
Database = Annotated[
    str, typer.Option("--db", envvar="TILEWRIGHT_DB", help="A file, or an SQLAlchemy URL.")
]
TargetText = Annotated[
    str, typer.Option(help="`cpu` is this machine; or `cpu -mcpu=x86-64-v3 -threads=1`.")
]
Tolerance = Annotated[
    float | None,
    typer.Option(help="The largest error of schedules that compute by other algebra (Winograd's)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


def main() -> None:
    """Run the command line and exit."""
    try:
        app(prog_name="tilewright")
    except TilewrightError as error:
        typer.echo(f"tilewright: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:  # the reader, `head` for instance, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _show_version(wanted: bool) -> None:
    if wanted:
        from . import __version__

        typer.echo(f"tilewright {__version__}")
        raise typer.Exit


@app.callback()
def _every_command(
    verbose: Annotated[int, typer.Option("-v", "--verbose", count=True, help="Log more.")] = 0,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    levels = (logging.WARNING, logging.INFO, logging.DEBUG)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    logging.getLogger(__package__).setLevel(levels[min(verbose, 2)])


@app.command()
def tune(  # noqa: PLR0913, PLR0917 - each option of a session has a name
    programs: Programs,
    param: Parameters = None,
    trials: Annotated[
        int | None,
        typer.Option(help="New measurements; 64, or with --seconds as many as fit.", min=1),
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Wall-clock time.", min=0)] = None,
    stop_at: Annotated[
        float | None, typer.Option(help="Stop at this share of the roofline, 0.9 say.")
    ] = None,
    min_gain: Annotated[
        float | None, typer.Option(help="Stop when a second is expected to gain a smaller share.")
    ] = None,
    weight: Annotated[
        list[float] | None, typer.Option(help="Of each program in turn: how often it is called.")
    ] = None,
    db: Database = "tuning.db",
    target: TargetText = "cpu",
    seed: Annotated[int, typer.Option(help="Makes the search the same again.", min=0)] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a session that did not finish.")
    ] = False,
    tolerance: Tolerance = None,
    as_json: AsJson = False,
) -> None:
    """Find a fast schedule by measuring candidates; several programs share the budget.

    Every measurement is in the database as soon as it is made; Ctrl-C keeps the best so far, and so
    do SIGTERM and a terminal that is closed.
    """
    from .autotune.records import flops
    from .autotune.tune import tune as run

    funcs = [_program(program, param) for program in programs]
    options: dict[str, Any] = {
        "weights": weight,
        "trials": 64 if trials is None and seconds is None else trials,
        "seconds": seconds,
        "stop_at": stop_at,
        "min_gain": min_gain,
        "seed": seed,
        "resume": resume,
        "tolerance": tolerance,
    }
    with _open(db, create=True) as database:
        if as_json:
            results = run(funcs, target, database=database, **options)
            rows = [tune_row(r, f.name, flops(f)) for f, r in zip(funcs, results, strict=True)]
            print_json(rows if len(rows) > 1 else rows[0])
        else:
            from .autotune.display import LiveDisplay

            with LiveDisplay() as display:
                results = run(funcs, target, database=database, callback=display, **options)
            print_results([(f.name, flops(f), r) for f, r in zip(funcs, results, strict=True)])
    if any(result.interrupted for result in results):
        raise typer.Exit(130)
    if any(result.best is None for result in results):
        raise typer.Exit(1)


@app.command()
def build(  # noqa: PLR0913, PLR0917 - each option of a build has a name
    program: Program,
    output: Annotated[Path, typer.Option("-o", "--output", help="matmul.so for instance.")],
    param: Parameters = None,
    db: Annotated[
        str | None,
        typer.Option(envvar="TILEWRIGHT_DB", help="Where the schedule is looked up."),
    ] = None,
    target: TargetText = "cpu",
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help="`record`, `transfer`, `model`, `default`: where it may come from. All if left."
        ),
    ] = None,
    object_file: Annotated[
        bool, typer.Option("--object", help="Write an object file, which takes no linker.")
    ] = False,
    strict_fp: Annotated[
        bool, typer.Option("--strict-fp", help="Do not contract products and sums.")
    ] = False,
    tolerance: Tolerance = None,
    as_json: AsJson = False,
) -> None:
    """Compile one kernel to a library; measure nothing.

    Writes the shared library, its manifest (.json) and a C header (.h), or an object file and the
    header. The schedule is the best recorded one, else one of other sizes, else a prediction.
    """
    from .compile import POLICIES, build_library

    func = _program(program, param)
    with _open(db) as database:
        made = build_library(
            func,
            output,
            target,
            database,
            allow or POLICIES,
            strict_fp=strict_fp,
            tolerance=tolerance,
            object_file=object_file,
        )
    if database is not None and made.origin.kind != "record":
        typer.echo(
            f"warning: {db} has no usable record of {func.name}, this is the {made.origin.kind} "
            f"schedule; `tilewright db explain {program}` says why",
            err=True,
        )
    if as_json:
        from dataclasses import asdict

        files = [str(path) for path in made.files]
        print_json({"files": files, "target": str(made.target), "origin": asdict(made.origin)})
        return
    for path in made.files:
        typer.echo(path)
    typer.echo(f"{func.name} for {made.target}, from {made.origin}")


@app.command()
def target(
    text: Annotated[str, typer.Argument(metavar="[TARGET]")] = "cpu", as_json: AsJson = False
) -> None:
    """Show what a target, or this machine, is."""
    from .codegen.detect import resolve, usable_memory
    from .codegen.llvm import llvm_version
    from .runtime import openmp

    found = resolve(text)
    runtime = openmp.load()
    facts: dict[str, Any] = {
        "target": str(found),
        "model": found.model or None,
        "triple": found.triple,
        "threads": found.threads,
        "cores": found.cores,
        "vector_bits": found.vector_bits,
        "vector_registers": found.vector_registers,
        "l1_bytes": found.l1_bytes,
        "l2_bytes": found.l2_bytes,
        "l3_bytes": found.l3_bytes,
        "line_bytes": found.line_bytes,
        "memory_bytes": usable_memory(),
        "features": list(found.features),
        "compat": found.compat_class,
        "perf": found.perf_class,
        "llvm": llvm_version(),
        "openmp": None if runtime is None else runtime.path,
    }
    print_json(facts) if as_json else print_facts(facts)


@db.command("list")
def list_measurements(
    db: Database = "tuning.db",
    limit: Annotated[int | None, typer.Option(help="At most so many.", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Every measurement, the newest first."""
    with _reading(db) as database:
        found = database.measurements(limit=limit)
        named = names(database)
        algebra = algebra_of(database)
    if as_json:
        print_json([measurement_row(m, named, algebra) for m in found])
        return
    rows = [
        [
            m.id[:12],
            named.get(m.workload, m.workload[:12]),
            named.get(m.target, m.target[:12]),
            m.outcome.value,
            time_text(m.seconds),
            algebra.get(m.schedule, ""),
            m.session[:8],
            f"{m.created:%Y-%m-%d %H:%M}",
        ]
        for m in found
    ]
    columns = ("id", "~workload", "~target", "outcome", ">time", "algebra", "session", "created")
    print_table(columns, rows, f"no measurements in {db}")


@db.command()
def show(
    id: Annotated[str, typer.Argument(help="The id of any record, or how it begins.")],
    db: Database = "tuning.db",
    as_json: AsJson = False,
) -> None:
    """Everything that is known of a record; of a schedule also its steps."""
    from .tuning_db import Measurement, ScheduleRecord, to_plain

    with _reading(db) as database:
        record = database.find(id)
        schedule = (
            database.get(ScheduleRecord, record.schedule)
            if isinstance(record, Measurement)
            else record
        )
    facts = {"kind": record.kind, "id": record.id, **to_plain(record)}
    if as_json:
        print_json(facts)
        return
    print_facts({k: v for k, v in facts.items() if k not in ("trace", "ir", "features")})
    if isinstance(schedule, ScheduleRecord):
        typer.echo(printable(f"\n{steps(schedule)}"))
    elif "ir" in facts:
        typer.echo(printable(f"\n{facts['ir']}"))


@db.command()
def best(db: Database = "tuning.db", tolerance: Tolerance = None, as_json: AsJson = False) -> None:
    """The schedule that `build` takes, of each workload on each target and compiler."""
    with _reading(db) as database:
        found = list(best_rows(database, tolerance))
    if as_json:
        print_json(found)
        return
    rows = [
        [
            f"{best['name']} {best['shape']}",
            best["target"],
            best["generation"],
            time_text(best["seconds"]),
            "" if best["gflops"] is None else f"{best['gflops']:.4g}",
            "pinned" if best["pinned"] else "verified",
            best["algebra"],
            (best["measurement"] or "")[:12],
        ]
        for best in found
    ]
    columns = (
        "~workload", "~target", "compiler", ">time", ">GFLOP/s", "how", "algebra", "measurement",
    )  # fmt: skip
    print_table(columns, rows, f"nothing usable in {db}")


@db.command()
def export(
    file: Annotated[str, typer.Argument(help="`-` is standard output.")], db: Database = "tuning.db"
) -> None:
    """Write every record as JSON lines."""
    with _reading(db) as database:
        count = database.export_lines(sys.stdout if file == "-" else file)
    typer.echo(f"{count} records written", err=True)


@db.command("import")
def import_records(
    file: Annotated[str, typer.Argument(help="`-` is standard input.")],
    db: Database = "tuning.db",
    as_json: AsJson = False,
) -> None:
    """Take over the records of an export; nothing that is there changes."""
    with _open(db, create=True) as database:
        new = database.import_lines(sys.stdin if file == "-" else file)
    print_new(new, as_json)


@db.command()
def merge(
    other: Annotated[str, typer.Argument(help="The database to take records from.")],
    db: Database = "tuning.db",
    as_json: AsJson = False,
) -> None:
    """Take over the records of another database; nothing that is there changes."""
    with _open(db, create=True) as database:
        new = database.merge(other)
    print_new(new, as_json)


@db.command()
def explain(
    program: Program,
    param: Parameters = None,
    db: Database = "tuning.db",
    target: TargetText = "cpu",
    tolerance: Tolerance = None,
    as_json: AsJson = False,
) -> None:
    """Say which records a build would consider, which it takes, and why it refuses the others."""
    from .compile import explain as explain_build
    from .tuning_db import to_plain

    func = _program(program, param)
    with _reading(db) as database:
        told = explain_build(func, target, database, tolerance=tolerance)
    if as_json:
        print_json(to_plain(told))
    else:
        typer.echo(printable(str(told)))


@model.command()
def train(
    out: Annotated[Path, typer.Option(help="The model, as JSON of xgboost.")],
    db: Databases = None,
    table: Annotated[
        Path | None, typer.Option(help="Also write what it was trained on (.jsonl.gz).")
    ] = None,
    shipped: Shipped = True,
    as_json: AsJson = False,
) -> None:
    """Train the model that a search begins with; `SearchConfig(base=FILE)` uses it."""
    from .autotune import base_model, samples

    sweeps = samples.merged(_sweeps(db), samples.read(base_model.TABLE) if shipped else ())
    learned = samples.featurise(sweeps)
    trained = base_model.train(learned)
    try:
        trained.save(out)
        if table is not None:
            samples.write(sweeps, table)
    except OSError as error:
        raise BuildError("cannot write {0}: {1}", error.filename, error.strerror) from error
    if as_json:
        print_json({"file": str(out), "rows": trained.rows, "tasks": len(learned.tasks)})
        return
    typer.echo(f"{out}: learned from {trained.rows} candidates of {len(learned.tasks)} tasks")


@model.command("report")
def model_report(
    db: Databases = None,
    shipped: Shipped = True,
    folds: Annotated[int, typer.Option(help="Base models trained.", min=2)] = 8,
    as_json: AsJson = False,
) -> None:
    """Say what models are worth on measured programs that they did not see.

    The programs of the databases are judged, or those that come with the package where none is
    given; each by a base model that was trained on all others.
    """
    from .autotune import assess, base_model, samples

    own = _sweeps(db)
    known = samples.read(base_model.TABLE) if shipped or not own else []
    learned = samples.featurise(samples.merged(own, known))
    sessions = {s.session for s in own or known}
    judged = [n for n, task in enumerate(learned.tasks) if task.session in sessions]
    found = assess.assess(learned, judged, folds=folds)
    print_json(found.to_json()) if as_json else print_assessment(found)


# What commands share


@contextmanager
def _open(location: str | None, *, create: bool = False) -> Iterator[Any]:
    """The database at a path or URL, `None` where there is no location."""
    if location is None:
        yield None
        return
    from .tuning_db import TuningDatabase

    with TuningDatabase(location, create=create, read_only=not create) as database:
        yield database


@contextmanager
def _reading(location: str) -> Iterator[TuningDatabase]:
    with _open(location) as database:
        yield database


def _sweeps(locations: Sequence[str] | None) -> list[Sweep]:
    """What several databases have to learn from."""
    from .autotune import samples

    found: list[Sweep] = []
    for location in locations or ():
        with _reading(location) as database:
            found += samples.sweeps_of(database)
    return found


def _program(name: str, parameters: Sequence[str] | None) -> Func:
    """The program of `FILE.py:FUNCTION` with `NAME=VALUE` parameters."""
    from .program_file import UsageError, load_program

    try:
        return load_program(name, parameters or ())
    except UsageError as error:
        raise typer.BadParameter(str(error)) from None

"""The commands `tilewright measure ...`: measuring on a machine elsewhere."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from ..base.text import count
from .graph_options import Constants, Shapes
from .options import (
    OPTIONS,
    AsJson,
    Database,
    Parameters,
    Program,
    TargetText,
    Tolerance,
    open_database,
)
from .program_file import Options, load_program
from .report import print_json
from .table import print_text

app = typer.Typer(
    help="Measure on a machine elsewhere: pack candidates here, run them there, import.", **OPTIONS
)


@app.command()
def pack(  # noqa: PLR0913, PLR0917 - each option has a name
    program: Program,
    out: Annotated[Path, typer.Option(help="The folder to write, which is not there yet.")],
    param: Parameters = None,
    shape: Shapes = None,
    constant: Constants = None,
    db: Annotated[
        str | None,
        typer.Option(
            envvar="TILEWRIGHT_DB",
            help="A database that warms the search; what it has measured is left out.",
        ),
    ] = None,
    target: TargetText = "cpu",
    trials: Annotated[int, typer.Option(help="Candidates to compile.", min=1)] = 64,
    seed: Annotated[int, typer.Option(help="The seed of the search.", min=0)] = 0,
    tolerance: Tolerance = None,
    as_json: AsJson = False,
) -> None:
    """Compile what the search asks for into a folder, for a machine that is not this one.

    There, `python -m tilewright.runtime.measure FOLDER --out results.jsonl` measures it.
    """
    from ..autotune.measure.pack import write_pack

    func = load_program(program, Options(param, shape, constant, target))
    with nullcontext() if db is None else open_database(db) as database:
        packed = write_pack(
            func,
            target,
            out,
            trials=trials,
            seed=seed,
            database=database,
            tolerance=tolerance,
            tell=lambda text: typer.echo(text, err=True),
        )
    if not packed.searched:
        typer.echo(
            "warning: there is no model of times for this kind of target: the candidates were "
            "drawn at random",
            err=True,
        )
    of, built = len(packed.pack.candidates), packed.built
    if as_json:
        told = {"folder": str(out), "candidates": of, "built": built}
        print_json({**told, "digest": packed.pack.digest, "searched": packed.searched})
        return
    print_text(f"{out}: {built} of {of} candidates of {func.name} compiled\nmeasure them there:")
    folder = shlex.quote(str(out))
    typer.echo(f"  python -m tilewright.runtime.measure {folder} --out results.jsonl")


@app.command("import")
def import_results(
    file: Annotated[Path, typer.Argument(help="The results, as they were written there.")],
    db: Database = "tuning.db",
    as_json: AsJson = False,
) -> None:
    """Import results of a machine elsewhere as records; importing twice is as once."""
    from ..autotune.measure.pack_import import import_results as put
    from ..runtime.measure.results import read_results

    read_results(file)  # a database is not made for what is no results
    with open_database(db, create=True) as database:
        imported = put(file, database)
    if imported.cut:
        typer.echo(f"warning: the last line of {file} was cut off, and is left out", err=True)
    if as_json:
        print_json(imported._asdict())
        return
    measured, new = count(imported.measurements, "measurement"), count(imported.new, "new record")
    print_text(f"{measured}, {new}")
    if imported.missing:
        print_text(f"not measured yet: {count(imported.missing, 'candidate')}")

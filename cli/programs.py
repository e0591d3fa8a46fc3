"""Commands on programs and targets: `tune`, `build` and `target`."""

from __future__ import annotations

import shlex
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from ..base.errors import BuildError, TargetError
from ..base.text import masked_url
from ..target import Target
from .options import (
    AsJson,
    Database,
    Parameters,
    Program,
    Programs,
    TargetText,
    Tolerance,
    open_database,
)
from .program_file import load_program, load_tunable
from .report import print_json, print_results, tune_row
from .table import print_facts, print_text


def tune(  # noqa: PLR0913, PLR0917 - each option of a session has a name
    programs: Programs,
    param: Parameters = None,
    trials: Annotated[
        int | None,
        typer.Option(help="New measurements; default 64, with --seconds unlimited.", min=1),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Wall-clock time in seconds.", min=0)
    ] = None,
    stop_at: Annotated[
        float | None, typer.Option(help="Stop at this share of the roofline, such as 0.9.")
    ] = None,
    min_gain: Annotated[
        float | None, typer.Option(help="Stop when a second is expected to save a smaller share.")
    ] = None,
    weight: Annotated[
        list[float] | None,
        typer.Option(help="How often a program is called; one for each, in order."),
    ] = None,
    db: Database = "tuning.db",
    target: TargetText = "cpu",
    seed: Annotated[int, typer.Option(help="The seed of the search.", min=0)] = 0,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue the last unfinished session of this budget and tolerance."
        ),
    ] = False,
    tolerance: Tolerance = None,
    as_json: AsJson = False,
) -> None:
    """Find a fast schedule by measuring candidates; several programs share the budget.

    A function may also return a schedule, or a list of schedules of one program, to be candidates
    or searched. Every measurement is stored at once; Ctrl-C, SIGTERM and a closed terminal keep the
    best so far.
    """
    from ..autotune.tune import tune as run

    given = [load_tunable(program, param or ()) for program in programs]
    funcs = [made[0].original if isinstance(made, list) else made for made in given]
    tuned: Any = given
    if any(isinstance(made, list) for made in given):
        if len(given) > 1:
            raise typer.BadParameter("schedules are tuned by themselves: give one FILE.py:FUNCTION")
        (tuned,) = given
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
    with open_database(db, create=True) as database:
        found = run(tuned, target, database=database, progress=not as_json, **options)
        results = found if isinstance(found, list) else [found]
        if as_json:
            rows = [tune_row(r, f.name) for f, r in zip(funcs, results, strict=True)]
            print_json(rows if len(rows) > 1 else rows[0])
        else:
            print_results(results)
    if any(result.interrupted for result in results):
        raise typer.Exit(130)
    if any(result.best is None for result in results):
        raise typer.Exit(1)


def build(  # noqa: PLR0913, PLR0917 - each option of a build has a name
    program: Program,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file to write, such as matmul.so.")
    ],
    param: Parameters = None,
    db: Annotated[
        str | None,
        typer.Option(envvar="TILEWRIGHT_DB", help="The database to look the schedule up in."),
    ] = None,
    target: TargetText = "cpu",
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help="A permitted source: `record`, `transfer`, `model` or `default`; repeatable."
        ),
    ] = None,
    object_file: Annotated[
        bool, typer.Option("--object", help="Write an object file; needs no linker.")
    ] = False,
    strict_fp: Annotated[
        bool, typer.Option("--strict-fp", help="Do not contract products and sums.")
    ] = False,
    tolerance: Tolerance = None,
    as_json: AsJson = False,
) -> None:
    """Compile one kernel to a library; measure nothing.

    Writes the shared library, its manifest (.json) and a C header (.h), or an object file and the
    header; for GPUs machine code (.cubin) and its manifest. The schedule is the best recorded one,
    else one of other sizes, else a prediction.
    """
    from ..building.build import build_library
    from ..building.choose import POLICIES

    func = load_program(program, param or ())
    with nullcontext() if db is None else open_database(db) as database:
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
            f"warning: {masked_url(str(db))} has no usable record of {func.name}, this is the "
            f"{made.origin.kind} schedule; `tilewright db explain {shlex.quote(program)}` says why",
            err=True,
        )
    if as_json:
        from dataclasses import asdict

        files = [str(path) for path in made.files]
        print_json({"files": files, "target": str(made.target), "origin": asdict(made.origin)})
        return
    for path in made.files:
        typer.echo(path)
    print_text(f"{func.name} for {made.target}, from {made.origin}")


def target(
    text: Annotated[str, typer.Argument(metavar="[TARGET]")] = "cpu",
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure this machine anew, and show its rates.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a target, or this machine, with all its facts, and what is missing here.

    What is measured replaces what is kept of this machine, and every choice rests on it from then
    on.
    """
    from ..codegen.detect import resolve, usable_memory
    from ..codegen.generator import generator_for
    from ..runtime.target_runtime import runtime_for

    wanted = Target.parse(text)
    generator = generator_for(wanted)
    missing = [str(error) for error in generator.missing()]
    try:
        resolved = resolve(wanted)
    except TargetError as error:
        others = [told for told in missing if told != str(error)]
        error.detail = (lambda _: "\n".join(others)) if others else None
        raise
    measured: dict[str, Any] = {}
    if measure:
        from ..autotune.measure.machine import Again, described

        with_rates, description = described(resolved, Again.ALWAYS)
        if description is None:
            raise TargetError(
                "{0} is not this machine: it cannot be measured here",
                resolved,
                hint="tilewright target --measure",
            )
        measured = {
            **({"rates": description.measured.rates} if as_json else with_rates.speeds),
            "odd": description.measured.odd or None,
        }
    facts: dict[str, Any] = {"target": str(resolved), **resolved.facts}
    facts.setdefault("memory_bytes", usable_memory())
    facts |= {"compat": resolved.compat_class, "perf": resolved.perf_class}
    with suppress(BuildError):  # there are no tools, which `missing` says
        facts |= generator.tools().versions
    facts |= generator.runtimes()
    with suppress(TargetError):  # there is no such device
        facts |= runtime_for(resolved).conditions()
    facts |= measured
    if as_json:
        print_json({**facts, "missing": missing})
        return
    print_facts(facts)
    for told in missing:
        print_text(f"\nmissing: {told}")

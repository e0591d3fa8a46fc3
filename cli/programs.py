"""Commands on programs, models and targets: `tune`, `build` and `target`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.errors import BuildError, TargetError
from ..base.text import masked_url
from ..target import Target
from .graph_options import (
    Constants,
    Never,
    Placements,
    Providers,
    Shapes,
    sharing,
    words_of,
)
from .options import (
    Allow,
    AsJson,
    Database,
    NamedSources,
    OptionalDatabase,
    Parameters,
    ProgramsOrModels,
    RequireTuned,
    TargetText,
    TargetTexts,
    Tolerance,
    open_database,
)
from .program_file import Options, load_all, load_tunable
from .report import print_json, print_kernels, print_results, tune_row
from .table import print_facts, print_headings, print_text

if TYPE_CHECKING:
    from ..graph.ir import Graph
    from ..graph.parts import Partition
    from ..tir.ir import Func


def tune(  # noqa: PLR0913, PLR0917 - each option of a session has a name
    programs: ProgramsOrModels,
    param: Parameters = None,
    shape: Shapes = None,
    constant: Constants = None,
    trials: Annotated[
        int | None,
        typer.Option(
            help="New measurements; default 64 for each program or kernel of a model, with "
            "--seconds unlimited.",
            min=1,
        ),
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
        typer.Option(help="How often a program or model is called; one for each, in order."),
    ] = None,
    db: Database = "tuning.db",
    target: TargetTexts = ["cpu"],  # noqa: B006 - typer copies it
    seed: Annotated[int, typer.Option(help="The seed of the search.", min=0)] = 0,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue the last unfinished session of this budget and tolerance."
        ),
    ] = False,
    tolerance: Tolerance = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="tcp://HOST:PORT",
            help="The scheduler of a Dask cluster, whose workers measure in place of this machine.",
        ),
    ] = None,
    hints: Annotated[
        list[str] | None,
        typer.Option(help="TVM's tuning records, to begin with what they suggest; repeatable."),
    ] = None,
    provider: Providers = None,
    place: Placements = None,
    never: Never = None,
    as_json: AsJson = False,
) -> None:
    """Find fast schedules by measuring candidates; several programs share the budget.

    A function may also return a schedule, or a list of schedules of one program, to be candidates
    or searched. Of a model all kernels are tuned, weighted by how often a call runs them; where
    other providers share it, those of the parts that Tilewright runs. Every measurement is stored
    at once; Ctrl-C, SIGTERM and a closed terminal keep the best so far.
    """
    from ..autotune.tune import tune as run
    from ..graph.ir import Graph
    from ..graph.parts import Partition

    shared = sharing(provider, place, never)
    options = Options(param, shape, constant, target[0], foreign=bool(shared))
    loaded = [load_tunable(program, options) for program in programs]
    given = [divided(made, shared) for made in loaded] if shared else loaded
    alone = [made for made in given if not isinstance(made, list)]  # not schedules
    if len(alone) < len(given) and len(given) > 1:
        raise typer.BadParameter("schedules are tuned by themselves: give one FILE.py:FUNCTION")
    tuned: Any = alone or given[0]
    targets: Any = target[0] if len(target) == 1 else target
    of_models = any(isinstance(made, Graph | Partition) for made in alone)
    if of_models:
        tuned = _Kernels(kernels_of(alone, weight, target[0]))
        weight = [*tuned.runs.values()]
    with open_database(db, create=True) as database:
        found = run(
            tuned,
            targets,
            database=database,
            weights=weight,
            trials=trials,
            seconds=seconds,
            stop_at=stop_at,
            min_gain=min_gain,
            seed=seed,
            resume=resume,
            tolerance=tolerance,
            progress=not as_json,
            cluster=cluster,
            hints=hints,
        )
        results = found if isinstance(found, list) else [found]
        if as_json:
            funcs = tuned.runs if of_models else tuned if alone else [tuned[0].original]
            named = zip([*funcs] * len(target), results, strict=True)
            rows = [tune_row(r, f.name) for f, r in named]
            print_json(rows if of_models or len(rows) > 1 else rows[0])
        elif of_models:
            for n, first in enumerate(range(0, len(results), len(tuned.runs))):
                part = results[first : first + len(tuned.runs)]
                if len(target) > 1:
                    print_headings(n, part[0].target)
                print_kernels(part, tuned.runs)
        else:
            print_results(results)
    if any(result.interrupted for result in results):
        raise typer.Exit(130)
    untuned = [result.call_seconds is None for result in results]
    if all(untuned) if of_models else any(untuned):
        raise typer.Exit(1)


def divided(made: Any, shared: dict[str, Any]) -> Partition:
    """A graph as providers share it."""
    from ..building.build_partition import divided
    from ..graph.ir import Graph

    if not isinstance(made, Graph):
        raise typer.BadParameter("--provider, --place and --never are of models")
    return divided(made, **shared)


@dataclass(frozen=True)
class _Kernels:
    """Kernels to tune as they are, and how often all models and programs together run each."""

    runs: Mapping[Func, float]

    def kernels(self) -> Mapping[Func, float]:
        return self.runs


def kernels_of(
    given: Sequence[Func | Graph | Partition], weights: Sequence[float] | None, target: str
) -> dict[Func, float]:
    """The kernels of programs, graphs and partitions, each once; and how often all run each."""
    from ..autotune.rules.division import pieces_of
    from ..codegen.detect import resolve
    from ..graph.ir import Graph
    from ..graph.parts import Partition
    from ..tir.equality import structural_hash

    if weights is not None and len(weights) != len(given):
        raise typer.BadParameter(
            f"found {len(weights)}, expected one for each of {len(given)}", param_hint="--weight"
        )
    found: dict[Any, tuple[Func, float]] = {}
    for made, weight in zip(given, weights or [1.0] * len(given), strict=True):
        if isinstance(made, Graph | Partition):
            runs = dict(made.kernels())
        else:
            runs = {p.func: 1 for p in pieces_of(made, resolve(target))} or {made: 1}
        for func, count in runs.items():
            key = structural_hash(func) if isinstance(made, Graph | Partition) else id(func)
            _, before = found.get(key, (func, 0.0))
            found[key] = func, before + count * weight
    return dict(found.values())


def build(  # noqa: PLR0913, PLR0917 - each option of a build has a name
    context: typer.Context,
    programs: NamedSources,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file to write, such as matmul.so.")
    ],
    param: Parameters = None,
    shape: Shapes = None,
    constant: Constants = None,
    db: OptionalDatabase = None,
    target: TargetText = "cpu",
    allow: Allow = None,
    locked: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A lock file: the schedules are those that it has, and no others."
        ),
    ] = None,
    require_tuned: RequireTuned = False,
    object_file: Annotated[
        bool,
        typer.Option(
            "--object", help="Write an object file, as for a name in .o; needs no linker."
        ),
    ] = False,
    linker: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND", help="The linker, with options in quotes: ld.lld, for instance."
        ),
    ] = None,
    strict_fp: Annotated[
        bool, typer.Option("--strict-fp", help="Do not contract products and sums.")
    ] = False,
    tolerance: Tolerance = None,
    provider: Providers = None,
    place: Placements = None,
    never: Never = None,
    bill: Annotated[
        Path | None,
        typer.Option(
            "--sbom", metavar="FILE.cdx.json", help="Also write what went in: CycloneDX, as JSON."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile kernels and models to one library; measure nothing.

    Writes the shared library, its manifest (.json), a C header (.h), and of models their weights
    (.weights) and the parts that other providers run (.part1); or an object file (.o), of a model
    or several programs an archive of them, in the place of the library; for GPUs machine code
    (.cubin) and its manifest. Schedules are the best recorded ones, else of other sizes, else
    predictions; or those of a lock file, which `freeze` writes. Of several programs each has a
    name: its own, or that of NAME=FILE.py:FUNCTION.
    """
    from ..building.build import build_library
    from ..building.choose import POLICIES
    from ..graph.ir import Graph

    if bill is not None:
        from ..building.sbom import cyclonedx

        cyclonedx()  # which raises where it is not installed
    shared = sharing(provider, place, never)
    options = Options(param, shape, constant, target, foreign=bool(shared))
    made = load_all(programs, options)
    if locked is not None and not _is_on_command_line(context, "db"):
        db = None  # that of the environment is for other builds
    name, first = next(iter(made.items()))
    with nullcontext() if db is None else open_database(db) as database:
        library = build_library(
            made if len(made) > 1 or first.name != name else first,
            output,
            target,
            database,
            allow or POLICIES,
            strict_fp=strict_fp,
            tolerance=tolerance,
            locked=locked,
            require_tuned=require_tuned,
            object_file=object_file,
            linker=linker,
            **shared,
        )
    files = [*library.files]
    if bill is not None:
        from ..base.files import File, replace_files
        from ..building.sbom import sbom

        replace_files([File(bill, sbom(library).encode())])
        files.append(bill)
    for source, name, origin in zip(programs, made, library.programs.values(), strict=True):
        if database is None or origin.kind == "record":
            continue
        told = f"{name}, this is the {origin.kind} schedule"
        if isinstance(made[name], Graph) or (library.kernels and len(made) == 1):
            told = f"all kernels of {name} ({origin.detail})"
        named = masked_url(str(db))
        program = source.removeprefix(f"{name}=")
        words = options.words if len(programs) == 1 else options.of(program).words
        words = ["tilewright", "db", "explain", program, *words, "--db", named]
        words += [] if target == "cpu" else ["--target", target]
        words += [] if tolerance is None else ["--tolerance", str(tolerance)]
        words += words_of(shared)
        typer.echo(
            f"warning: {named} has no usable record of {told}; `{shlex.join(words)}` says why",
            err=True,
        )
    if as_json:
        from dataclasses import asdict

        print_json(
            {
                "files": [str(path) for path in files],
                "target": str(library.target),
                "origin": asdict(library.origin),
                "programs": {name: asdict(origin) for name, origin in library.programs.items()},
            }
        )
        return
    for path in files:
        typer.echo(path)
    for name, origin in zip(made, library.programs.values(), strict=True):
        print_text(f"{name} for {library.target}, from {origin}")


def _is_on_command_line(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


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

"""The command `freeze`, and what `inspect` shows of a lock file."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.text import count, short_id
from .graph_options import Constants, Never, Placements, Providers, Shapes, sharing
from .options import (
    Allow,
    AsJson,
    NamedSources,
    OptionalDatabase,
    Parameters,
    RequireTuned,
    TargetText,
    Tolerance,
    open_database,
)
from .program_file import Options, load_all
from .programs import divided
from .report import print_json
from .table import print_facts, print_headings, print_table, print_text

if TYPE_CHECKING:
    from ..building.lock_file import LockFile


def freeze(  # noqa: PLR0913, PLR0917 - each option of a build has a name
    programs: NamedSources,
    output: Annotated[Path, typer.Option("-o", "--output", help="The lock file to write.")] = Path(
        "tilewright.lock"
    ),
    param: Parameters = None,
    shape: Shapes = None,
    constant: Constants = None,
    db: OptionalDatabase = None,
    target: TargetText = "cpu",
    allow: Allow = None,
    require_tuned: RequireTuned = False,
    tolerance: Tolerance = None,
    provider: Providers = None,
    place: Placements = None,
    never: Never = None,
    as_json: AsJson = False,
) -> None:
    """Write the schedules that `build` would take to a lock file, for `build --locked`.

    It is text to be reviewed and committed: of each kernel the steps of its schedule, and why
    these. What is measured later changes nothing until it is frozen again.
    """
    from ..building.choose import POLICIES
    from ..building.freeze import freeze as run
    from ..building.library import renamed

    shared = sharing(provider, place, never)
    options = Options(param, shape, constant, target, foreign=bool(shared))
    made = load_all(programs, options)
    loaded = [p if p.name == name else renamed(p, name) for name, p in made.items()]
    given: Any = [divided(program, shared) for program in loaded] if shared else loaded
    with nullcontext() if db is None else open_database(db) as database:
        lock = run(
            given, target, database, allow or POLICIES, tolerance=tolerance,
            require_tuned=require_tuned,
        )  # fmt: skip
    lock.write(output)
    if as_json:
        print_json({"file": str(output), **_summary(lock)})
        return
    typer.echo(output)
    print_text(f"{lock.summary} for {lock.target}")


def _summary(lock: LockFile) -> dict[str, Any]:
    return {
        "target": lock.target,
        "compiler": lock.compiler,
        "programs": {program.name: len(program.kernels) for program in lock.programs},
        "kernels": lock.summary,
    }


def inspect_lock(path: Path, *, text: bool, as_json: bool) -> None:
    """Show a lock file, with `text` the steps of its schedules as Python."""
    from ..building.lock_file import read_lock
    from ..schedule import Trace

    lock = read_lock(path)
    if as_json:
        print_json(lock.to_json())
        return
    told = {n: count(kernels, "kernel") for n, kernels in _summary(lock)["programs"].items()}
    print_facts({**_summary(lock), "programs": [f"{n}, {kernels}" for n, kernels in told.items()]})
    typer.echo()
    rows = [
        [
            kernel.name,
            kernel.shape,
            kernel.source,
            "" if kernel.time is None else str(kernel.time),
            short_id(kernel.record or ""),
            kernel.host or "",
            "" if kernel.measured is None else f"{kernel.measured:%Y-%m-%d}",
        ]
        for kernel in lock.kernels
    ]
    columns = ("~kernel", "~?shape", "source", "time", "record", "?host", "?measured")
    print_table(columns, rows, "no kernels")
    for number, kernel in enumerate(lock.kernels if text else ()):
        print_headings(number + 1, f"{kernel.name}, schedule {short_id(kernel.schedule)}")
        print_text(str(Trace.from_json(kernel.recorded.trace)))

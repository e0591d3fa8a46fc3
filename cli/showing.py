"""The command `show`: a program and its schedule, what that changed, and the code it becomes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.errors import TilewrightError
from .graph_options import Constants, Shapes
from .options import AsJson, Parameters, Program, TargetText, Tolerance, open_database
from .program_file import Options, load_program
from .report import print_json
from .table import output_text, output_width, print_text

if TYPE_CHECKING:
    from rich.text import Text

    from ..lab.pictures.assembly_lines import Assembly
    from ..schedule import Schedule
    from ..target import Target
    from ..tir.ir import Func
    from ..tuning_db import TuningDatabase


class What(StrEnum):
    """A part of what `show` prints."""

    PROGRAM = "program"
    TRACE = "trace"
    DIFF = "diff"
    ASM = "asm"


_TITLES = {
    What.PROGRAM: "program",
    What.TRACE: "steps",
    What.DIFF: "difference from the program as written",
    What.ASM: "assembly",
}


def show(  # noqa: PLR0913, PLR0917 - each option has a name
    program: Program,
    param: Parameters = None,
    shape: Shapes = None,
    constant: Constants = None,
    record: Annotated[
        str | None,
        typer.Option(
            "--record", metavar="ID", help="A schedule or measurement; default: the best recorded."
        ),
    ] = None,
    db: Annotated[
        str | None,
        typer.Option(envvar="TILEWRIGHT_DB", help="The database that has the schedule."),
    ] = None,
    target: TargetText = "cpu",
    what: Annotated[
        What | None, typer.Option(help="Only this part, and of the assembly all of it.")
    ] = None,
    tolerance: Tolerance = None,
    as_json: AsJson = False,
) -> None:
    """Show a program with its footprints, and of a schedule the steps, difference and assembly.

    Without a database it is the program as it is written; with one, each kernel that is built of
    it, with its schedule. Beside loops are, as comments, how they run, what an iteration touches,
    and the nearest memory that holds it.
    """
    from ..building.build_program import Ways, pieces_of
    from ..building.choose import POLICIES
    from ..codegen.detect import resolve
    from ..schedule import Schedule

    func, resolved = load_program(program, Options(param, shape, constant, target)), resolve(target)
    if record is not None and db is None:
        raise typer.BadParameter("--record needs the database that has it: --db")
    with nullcontext() if db is None else open_database(db) as database:
        kernels = [p.func for p in pieces_of(func, Ways(resolved, database, POLICIES, tolerance))]
        if database is None or record is not None:
            _tell_kernels(program, kernels)
        if database is None:
            schedules = [Schedule(func)]
        elif record is not None:
            schedules = [_recorded(func, database, record)]
        else:
            schedules = [_best(f, resolved, database, tolerance) for f in kernels or [func]]
    if as_json:
        told = [_data(schedule, resolved) for schedule in schedules]
        print_json(told[0] if len(told) == 1 else {"kernels": told})
        return
    for n, schedule in enumerate(schedules):
        if len(schedules) > 1:
            print_text("\n" * (n > 0) + f"kernel {n + 1} of {len(schedules)}: {schedule.func.name}")
        parts = list(What) if what is None and len(schedule.trace) else [what or What.PROGRAM]
        _print(schedule, resolved, parts, whole=what is What.ASM)


def _tell_kernels(program: str, kernels: Sequence[Func]) -> None:
    """Tell of the kernels that are built of the program that is shown as one."""
    if kernels:
        names = ", ".join(kernel.name for kernel in kernels)
        told = f"note: this is built as {len(kernels)} kernels: {names}; each is a program: "
        typer.echo(output_text(f"{told}{program}:{kernels[0].name}"), err=True)


def _recorded(func: Func, database: TuningDatabase, record: str) -> Schedule:
    """The program with the schedule of a record."""
    from ..autotune.records import workload_record
    from ..autotune.search.replay import recorded_schedule

    recorded = recorded_schedule(database, record, func)
    if recorded.of_others:
        others = "; ".join(recorded.of_others)
        told = f"warning: record {record} is of {others}; this is its schedule on "
        typer.echo(output_text(told + workload_record(func).text), err=True)
    return recorded.schedule


def _best(
    func: Func, target: Target, database: TuningDatabase, tolerance: float | None
) -> Schedule:
    """The program with the best schedule that there is, else as it is written."""
    from ..autotune.records import target_record, toolchain_record, workload_record
    from ..autotune.search.replay import Replays
    from ..schedule import Schedule

    replays = Replays(func)
    where, tools = target_record(target), toolchain_record(target)
    workload = workload_record(func).id
    best = database.best(workload, where, tools, tolerance=tolerance, applies=replays)
    replays.warn(database.location)
    if best is None:
        typer.echo(
            f"warning: {database.location} has no usable record of {func.name} for {target}, this "
            "is the program as it is written; `tilewright db explain` says why",
            err=True,
        )
        return Schedule(func)
    return replays.schedule(best.schedule)


def _assembly(schedule: Schedule, target: Target) -> Assembly:
    """The assembly of the program, compiled in a child: the schedule may be anybody's.

    Raises `BuildError`, and `LabError` where code of the target has no assembly.
    """
    from ..autotune.measure.compile_in_child import compile_in_child
    from ..codegen.cache import compile_cached
    from ..lab.pictures.assembly_lines import Assembly

    compiled = compile_cached(schedule.func, target, compiler=compile_in_child)
    return Assembly.of(compiled, schedule.func)


def _data(schedule: Schedule, target: Target) -> dict[str, Any]:
    """All parts as JSON. The hot block is a range of lines of the assembly, counted from 0.

    `loops` are the names of the loops that run the lines, `None` where the code does not tell.
    """
    from ..lab.pictures.trace import changes

    code: dict[str, Any] = {"assembly": "", "error": None, "hot_block": None, "loops": None}
    try:
        assembly = _assembly(schedule, target)
    except TilewrightError as error:
        code["error"] = str(error)
    else:
        loops, hot = assembly.loops, assembly.hot
        code["assembly"] = assembly.text
        code["hot_block"] = None if hot is None else [hot.start, hot.stop]
        if loops is not None:
            code["loops"] = [None if n is None else assembly.loop_name(n) for n in loops]
    return {
        "program": str(schedule.func),
        "trace": json.loads(schedule.trace.to_json()),
        "difference": [c._asdict() for c in changes(schedule.original, schedule.func)],
        **code,
    }


def _print(schedule: Schedule, target: Target, parts: list[What], *, whole: bool) -> None:
    """Print parts, with titles where there are several."""
    from rich.console import Console
    from rich.text import Text

    width = output_width()
    console = Console(width=width, soft_wrap=True, highlight=False)
    for n, part in enumerate(parts):
        if len(parts) > 1:
            console.print(Text("\n" * (n > 0) + _TITLES[part], "bold underline"))
        for line in _lines(part, schedule, target, width, whole=whole):
            console.print(line)


def _lines(
    part: What, schedule: Schedule, target: Target, width: int | None, *, whole: bool
) -> Iterator[Text]:
    from ..lab import terminal

    match part:
        case What.PROGRAM:
            yield from terminal.program_lines(schedule.func, target, width)
        case What.TRACE:
            yield from terminal.step_lines(schedule.trace, width)
        case What.DIFF:
            yield from terminal.difference_lines(schedule.original, schedule.func, width)
        case What.ASM:
            try:
                assembly = _assembly(schedule, target)
            except TilewrightError as error:
                if whole:
                    raise
                yield from terminal.sentence(f"none: {error.first_line}", width)
                return
            yield from terminal.assembly_lines(assembly, width, whole=whole)

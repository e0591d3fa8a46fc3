"""The command `tilewright check`: candidates are examined, and none is measured."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from ..base.text import count, short_id
from .graph_options import Constants, Shapes
from .options import AsJson, Parameters, Program, TargetText
from .program_file import Options, load_program
from .report import print_json, time_text
from .table import output_text, print_table, print_text

if TYPE_CHECKING:
    from ..autotune.examine import Examined


def check(
    program: Program,
    param: Parameters = None,
    shape: Shapes = None,
    constant: Constants = None,
    target: TargetText = "cpu",
    candidates: Annotated[int, typer.Option(help="Candidates of each sketch, at most.", min=1)] = 2,
    seed: Annotated[int, typer.Option(help="The seed of the candidates.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Draw candidates of every sketch, run small ones, and compile all; needs no GPU.

    Shows what the compiler reports of each, its predicted time, and which loops few threads run.
    Fails where a candidate is wrong: a race, other values than the interpreter's; and where one
    could not be examined. One that is slow, by a spill for instance, is right.
    """
    from ..autotune.examine import as_json as plain
    from ..autotune.examine import examine, is_small
    from ..autotune.search.drawing import model_or_none
    from ..codegen.detect import resolve

    func = load_program(program, Options(param, shape, constant, target))
    examined = list(examine(func, target, candidates=candidates, seed=seed))
    wrong = [e for e in examined if e.problems]
    failures = Counter(e.failure for e in examined if e.failure is not None)
    if as_json:
        print_json([plain(e) for e in examined])
        raise typer.Exit(int(bool(wrong or failures)))
    rows = [
        [
            e.drawn.sketch,
            short_id(e.drawn.schedule.id),
            e.ran,
            *("" if n is None else str(n) for n in (e.most("registers"), e.spills)),
            "" if e.most("shared_bytes") is None else str(e.most("shared_bytes")),
            "" if e.occupancy is None else f"{e.occupancy:.0%}",
            "" if e.drawn.predicted is None else time_text(e.drawn.predicted),
            e.verdict,
        ]
        for e in examined
    ]
    columns = (
        "~sketch", "schedule", "?run", ">registers", ">spills", ">?shared", ">?occupancy",
        ">predicted", "result",
    )  # fmt: skip
    print_table(columns, rows, f"{func.name} has no candidate")
    if not is_small(func):
        print_text("none was run: the sizes are too large; give smaller ones to check results")
    elif any(e.ran == "no" and e.failure is None for e in examined):
        print_text("some were not run: this machine does not run code for the target")
    if model_or_none(resolve(target)) is None:
        print_text("no times are predicted: this kind of target has no model of times")
    for e in examined:
        for remark in e.remarks:
            print_text(f"{_name(e)}: {remark}")
    for e in wrong:
        for problem in e.problems:
            typer.echo(output_text(f"tilewright: {_name(e)}: {problem}"), err=True)
    for failure, several in failures.items():
        which = "" if several == 1 else f" ({count(several, 'candidate')})"
        typer.echo(output_text(f"tilewright: not checked{which}: {failure}"), err=True)
    verdicts = Counter(e.verdict for e in examined)
    if examined and not {"wrong", "not checked"} & verdicts.keys():
        slow = f", {verdicts['slow']} of them slow" if verdicts["slow"] else ""
        print_text(f"all {len(examined)} candidates are right{slow}")
    if wrong:
        typer.echo(f"tilewright: {len(wrong)} of {len(examined)} candidates are wrong", err=True)
    if failures:
        some = f"{failures.total()} of {len(examined)} candidates"
        typer.echo(f"tilewright: {some} could not be checked", err=True)
    if wrong or failures:
        raise typer.Exit(1)


def _name(examined: Examined) -> str:
    """A candidate by its sketch and the id of its schedule."""
    return f"{examined.drawn.sketch} {short_id(examined.drawn.schedule.id)}"

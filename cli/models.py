"""Commands on cost models: `model train` and `model report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..base.errors import BuildError
from ..base.text import count
from .options import OPTIONS, AsJson, Databases, Kind, Shipped, sweeps_of
from .report import print_assessment, print_json
from .table import print_text

app = typer.Typer(help="Train and evaluate cost models.", **OPTIONS)


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="The model, as JSON of xgboost.")],
    db: Databases = None,
    table: Annotated[
        Path | None, typer.Option(help="Also write the training data (.jsonl.gz).")
    ] = None,
    shipped: Shipped = True,
    kind: Kind = "cpu",
    as_json: AsJson = False,
) -> None:
    """Train the base model that a search starts from; `SearchConfig(base=FILE)` uses it."""
    from ..autotune.model import base_model, samples

    sweeps = samples.merged(sweeps_of(db, kind), samples.shipped(kind) if shipped else ())
    learned = samples.featurise(sweeps, kind)
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
    tasks = count(len(learned.tasks), "task")
    print_text(f"{out}: learned from {count(trained.rows, 'candidate')} of {tasks}")


@app.command("report")
def model_report(
    db: Databases = None,
    shipped: Shipped = True,
    folds: Annotated[int, typer.Option(help="The number of base models to train.", min=2)] = 8,
    machines: Annotated[
        bool, typer.Option("--machines", help="Hold out whole machines instead of programs.")
    ] = False,
    kind: Kind = "cpu",
    as_json: AsJson = False,
) -> None:
    """Evaluate models on measured programs that they were not trained on.

    Each program of the databases, or of the shipped table if none is given, is evaluated by a base
    model that was trained on all others; with --machines, on the measurements of all other
    machines.
    """
    from ..autotune.model import assess, samples

    own = sweeps_of(db, kind)
    known = samples.shipped(kind) if shipped or not own else []
    learned = samples.featurise(samples.merged(own, known), kind)
    sessions = {s.session for s in own or known}
    judged = [n for n, task in enumerate(learned.tasks) if task.session in sessions]
    unseen = assess.of_machine if machines else assess.of_program
    assessment = assess.assess(learned, judged, folds=folds, unseen=unseen)
    print_json(assessment.to_json()) if as_json else print_assessment(assessment)

"""The command `run`: builds or loads a model, calls it, times it, and compares it with others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.errors import ModelError
from ..base.text import count, format_bytes, short_id
from .artifacts import PublicKeys, library_and_program
from .graph_options import (
    PROVIDERS,
    Constants,
    Inputs,
    ModelOrLibrary,
    Never,
    Placements,
    Providers,
    Shapes,
    arrays,
    sharing,
    values,
)
from .graphs import is_built, print_evidence
from .options import AsJson, Parameters, TargetText, open_database
from .program_file import Options, load_graph
from .report import print_json, time_text
from .table import output_text, print_headings, print_table, print_text

if TYPE_CHECKING:
    from ..runtime.evidence import Evidence
    from ..runtime.model import Model
    from ..runtime.partition_evidence import PartitionEvidence
    from ..runtime.partitioned import PartitionedModel
    from ..runtime.profile import Profile
    from .parity import Comparison


class Beside(StrEnum):
    """What `run` compares with."""

    ONNXRUNTIME = "onnxruntime"
    REFERENCE = "reference"


def run(  # noqa: PLR0913, PLR0917 - each option of a run has a name
    context: typer.Context,
    model: ModelOrLibrary,
    param: Parameters = None,
    shape: Shapes = None,
    constant: Constants = None,
    input_files: Inputs = None,
    random: Annotated[int, typer.Option(help="The seed of inputs without a file.", min=0)] = 0,
    check: Annotated[
        list[Beside] | None,
        typer.Option(
            help="Compare with `onnxruntime`, or with the `reference` alone, which computes in "
            "float64; repeatable."
        ),
    ] = None,
    target: TargetText = "cpu",
    db: Annotated[
        str | None,
        typer.Option(envvar="TILEWRIGHT_DB", help="The database to look schedules up in."),
    ] = None,
    repeat: Annotated[
        int, typer.Option(help="Calls, of which all have to give equal outputs.", min=1)
    ] = 1,
    profile: Annotated[
        bool, typer.Option("--profile", help="Say where the time goes, kernel by kernel.")
    ] = False,
    evidence: Annotated[
        bool,
        typer.Option("--evidence", help="Say what became of the nodes, of which kernels are made."),
    ] = False,
    provider: Providers = None,
    place: Placements = None,
    never: Never = None,
    key: PublicKeys = None,
    as_json: AsJson = False,
) -> None:
    """Compile a model or load one that was built, run it, and time it; measures no schedules.

    Random floats are normally distributed, random integers 0 or 1: as masks, lengths and indices
    they are valid. Those of 8 bits take all values. Fails where outputs of calls differ, where an
    error is too large (more than twice that of the others, and more than rounding explains), and
    where onnxruntime computes something else than the reference, which is of the imported graph.
    """
    from ..building.build import build
    from ..codegen.detect import resolve
    from ..runtime.model import Model
    from ..runtime.onnx_parts import OnnxruntimeParts
    from ..runtime.partitioned import PartitionedModel
    from .parity import compare, session_of

    wanted = dict.fromkeys(check or ())
    if Beside.ONNXRUNTIME in wanted:
        OnnxruntimeParts().version()  # which raises where it is not installed
    shared = sharing(provider, place, never)
    made: Model | PartitionedModel
    graph, resolved = None, resolve(target)
    peer: Callable[[], Sequence[Any]] | None = None
    sources = ("param", "shape", "constant", "check", "target", "db", "provider", "place")
    if is_built(model, context, *sources):
        made = _loaded(model, never or (), key or None)
        given = arrays(made.inputs, input_files or (), random)
    elif key:
        raise typer.BadParameter(f"{model} is no library, which is what --key has signed")
    else:  # what may be refused comes before the build, which takes long
        options = Options(param, shape, constant, target, foreign=bool(shared))
        graph = load_graph(str(model), options)
        given = arrays(graph.inputs, input_files or (), random)
        if Beside.ONNXRUNTIME in wanted:
            feeds = {**given, **values(constant)}
            file = str(model) if model.suffix == ".onnx" else graph.to_onnx().SerializeToString()
            peer = session_of(file, feeds, resolved, list(graph.outputs))
        with nullcontext() if db is None else open_database(db) as database:
            made = build(graph, resolved, database, **({"providers": PROVIDERS[:1]} | shared))
    outputs = _called(made, given, repeat)
    facts: dict[str, Any] = {
        "model": str(model),
        "target": str(made.target),
        "inputs": {name: argument.type_text for name, argument in made.inputs.items()},
        "outputs": {
            name: {"type": a.type_text, "digest": _digest(array), "first": _first(array)}
            for name, a, array in zip(
                graph.outputs if graph else made.outputs,
                made.outputs.values(),
                outputs,
                strict=True,
            )
        },
    }
    if isinstance(made, PartitionedModel):
        facts["counts"] = made.counts
    timing = made.time(*given.values())
    facts |= {"seconds": timing.median, "samples": timing.samples}
    told: dict[str, Evidence | PartitionEvidence | Profile] = {}
    if evidence:
        told["evidence"] = made.evidence
    if profile:
        told["profile"] = made.profile(*given.values())
    facts |= {name: one.to_json() for name, one in told.items()}
    found = None
    if wanted and graph is not None:
        found = compare(graph, given, outputs, peer, lambda: made(*given.values()))
        facts |= found.to_json()
    if as_json:
        print_json(facts)
    else:
        there = "into outputs that are there" if isinstance(made, Model) else "with new outputs"
        _print_run(facts, f"{timing} for {facts['target']}, {there}", told, found, random)
    if found is not None and found.wrong:
        listed = ", ".join(found.wrong)
        typer.echo(output_text(f"tilewright: wrong beside the reference: {listed}"), err=True)
    if found is not None and found.differs:
        listed = ", ".join(found.differs)
        text = f"tilewright: onnxruntime differs from the reference of the imported graph: {listed}"
        typer.echo(output_text(text), err=True)
    if found is not None and (found.wrong or found.differs):
        raise typer.Exit(1)


def _print_run(
    facts: dict[str, Any],
    timing: str,
    told: dict[str, Evidence | PartitionEvidence | Profile],
    found: Comparison | None,
    seed: int,
) -> None:
    """Print outputs and times of a run, what is told of it, and what was compared."""
    rows = [
        [name, one["type"], short_id(one["digest"]), " ".join(map(_number, one["first"]))]
        for name, one in facts["outputs"].items()
    ]
    print_table(("~output", "type", "digest", "~first values"), rows, "no outputs")
    print_text(f"\n{timing}")
    if "counts" in facts:
        known = dict(facts["counts"])
        runs, crossed = (
            count(known.pop("runs"), "run"),
            format_bytes(known.pop("transferred_bytes")),
        )
        copied, waits = known.pop("copied_bytes", None), known.pop("waits", 0)
        ran = ", ".join(f"{name} {number}" for name, number in known.items())
        on_devices = f", {format_bytes(copied)} copied, {count(waits, 'wait')}" if copied else ""
        print_text(f"{runs}: parts {ran}; {crossed} crossed{on_devices}")
    for name, one in told.items():
        print_headings(1, name)
        print_evidence(one)
    if found is not None:
        print_headings(1, f"largest errors beside the float64 reference, seed {seed}")
        print_table(*found.table(), "no outputs")
        if found.times is not None:
            ours, theirs = found.times
            print_text(
                f"\nonnxruntime takes {time_text(theirs)}, this {time_text(ours)} "
                "(calls from Python, interleaved)"
            )


def _loaded(
    path: Path, never: Sequence[str], keys: Sequence[str] | None
) -> Model | PartitionedModel:
    """The model of an artifact."""
    from ..runtime import load
    from ..runtime.library import LoadedLibrary
    from ..runtime.model import Model
    from ..runtime.partitioned import PartitionedModel

    library, name = library_and_program(path)
    made = load(library, never=never, keys=keys)
    if isinstance(made, LoadedLibrary):
        if name is None:
            raise typer.BadParameter(f"{path} has {', '.join(made)}; name a model: {path}:NAME")
        made = made[name]
    if not isinstance(made, Model | PartitionedModel):
        raise typer.BadParameter(f"{path} is a kernel, expected a model")
    return made


def _called(made: Model | PartitionedModel, given: dict[str, Any], repeat: int) -> tuple[Any, ...]:
    """The outputs of a call, which are those of all. Raises `ModelError` where they differ."""
    first: tuple[Any, ...] | None = None
    for number in range(1, repeat + 1):
        result = made(*given.values())
        results = (result,) if len(made.outputs) == 1 else result
        if first is None:
            first = results
        for name, a, b in zip(made.outputs, first, results, strict=True):
            if a.tobytes() != b.tobytes():
                raise ModelError("{0}: call {1} gives other values than the first", name, number)
    assert first is not None
    return first


def _digest(array: Any) -> str:
    from hashlib import sha256

    return sha256(array.tobytes()).hexdigest()


def _first(array: Any) -> list[float | str]:
    """The first values of an array, as numbers of JSON; what is not finite as text."""
    found = array.reshape(-1)[:4].tolist()
    return [v if math.isfinite(v) else str(v) for v in found]


def _number(value: float | str) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)

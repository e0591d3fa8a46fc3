"""Commands on models: `inspect` and `run`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.errors import ModelError, UnsupportedError
from ..base.text import count, format_bytes, format_si, short_id
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
    changes,
    check_pass,
    graph_after,
    sharing,
    values,
)
from .options import AsJson, Parameters, TargetText, open_database
from .program_file import Options, load_graph
from .report import print_json, time_text
from .table import output_text, print_facts, print_headings, print_table, print_text

if TYPE_CHECKING:
    from ..graph.ir import Graph
    from ..importers.onnx.summary import Summary
    from ..runtime.evidence import Evidence
    from ..runtime.model import Model
    from ..runtime.partition_evidence import PartitionEvidence
    from ..runtime.partitioned import PartitionedModel
    from ..runtime.profile import Profile
    from ..tir.ir import Func
    from .parity import Comparison


class Beside(StrEnum):
    """What `run` compares with."""

    ONNXRUNTIME = "onnxruntime"
    REFERENCE = "reference"


def inspect(  # noqa: PLR0913, PLR0917 - each option of a view has a name
    context: typer.Context,
    model: ModelOrLibrary,
    param: Parameters = None,
    shape: Shapes = None,
    constant: Constants = None,
    text: Annotated[
        bool, typer.Option("--text", help="Print the graph, as text that parses back.")
    ] = False,
    after: Annotated[
        str | None,
        typer.Option(metavar="PASS", help="Print the graph as it is after that pass."),
    ] = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="Print what each pass, or that of --after, changes.")
    ] = False,
    partition: Annotated[
        bool,
        typer.Option(
            "--partition", help="Say which providers run which nodes, why, and what crosses."
        ),
    ] = False,
    provider: Providers = None,
    place: Placements = None,
    never: Never = None,
    as_json: AsJson = False,
) -> None:
    """Show a model: inputs, outputs, operators, what is not supported, its passes and kernels.

    Fails where a dim has no value, and where a node is not supported; what is known is shown. Of a
    model that was built, what became of it.
    """
    sources = ("param", "shape", "constant", "text", "after", "diff", "partition")
    if is_built(model, context, *sources):
        _inspect_library(model, as_json=as_json)
        return
    shared = sharing(provider, place, never)
    options = Options(param, shape, constant, foreign=partition)
    if partition:
        _inspect_partition(load_graph(str(model), options), shared, as_json=as_json)
        return
    if shared:
        raise typer.BadParameter("--provider, --place and --never are of --partition")
    check_pass(after)
    facts: dict[str, Any] = {"model": str(model)}
    graph, problem, told = None, None, None
    if model.suffix == ".onnx":
        from ..importers.onnx.summary import summary

        told = summary(model)
        facts |= _of_file(told)
    try:
        graph = load_graph(str(model), options, told)
        facts |= {**_of_source(graph), **facts, **_of_graph(graph)}
    except ModelError as error:
        if told is None:
            raise
        problem = error
        facts["open_dims"] = list(error.data.get("dims", ()))
        if isinstance(error, UnsupportedError):
            facts["unsupported"] = _unsupported(error)
        elif not facts["open_dims"]:
            raise
    shown = None
    if graph is not None and (text or diff or after is not None):
        shown = changes(graph, after) if diff else str(graph_after(graph, after))
    if as_json:
        print_json({**facts, **({} if shown is None else {"text": shown})})
    elif shown is not None:
        print_text(shown.rstrip("\n"))
    else:
        _print(facts)
    if isinstance(problem, UnsupportedError):
        many = count(len(facts["unsupported"]), "node")
        is_or_are = "is" if len(facts["unsupported"]) == 1 else "are"
        typer.echo(f"tilewright: {many} {is_or_are} not supported", err=True)
        raise typer.Exit(1)
    if problem is not None:
        raise problem


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
        made = _loaded(model, never or ())
        given = arrays(made.inputs, input_files or (), random)
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
        runs, crossed, *parts = facts["counts"].items()
        ran = ", ".join(f"{name} {number}" for name, number in parts)
        print_text(f"{count(runs[1], 'run')}: parts {ran}; {format_bytes(crossed[1])} crossed")
    for name, one in told.items():
        print_headings(1, name)
        _print_evidence(one)
    if found is not None:
        print_headings(1, f"largest errors beside the float64 reference, seed {seed}")
        print_table(*found.table(), "no outputs")
        if found.times is not None:
            ours, theirs = found.times
            print_text(
                f"\nonnxruntime takes {time_text(theirs)}, this {time_text(ours)} "
                "(calls from Python, interleaved)"
            )


def is_built(path: Path, context: typer.Context, *sources: str) -> bool:
    """Whether a model was built, which then takes none of `sources`, options of what is compiled.

    A variable may name a database.
    """
    from ..runtime.artifact import manifest_path

    if path.suffix == ".onnx" or not manifest_path(path).is_file():
        return False
    found = {n: context.get_parameter_source(n) for n in sources}
    given = [f"--{n}" for n, source in found.items() if source and source.name == "COMMANDLINE"]
    if given:
        raise typer.BadParameter(f"{path} was built already: {', '.join(given)} is of MODEL.onnx")
    return True


def evidence_of(path: Path) -> Evidence | PartitionEvidence:
    """The evidence of a model that was built; its code may be for another machine."""
    from ..base.errors import ArtifactError
    from ..runtime.artifact import read_manifest
    from ..runtime.partition_evidence import evidence_from

    told = read_manifest(path).provenance.evidence
    if told is None:
        raise ArtifactError("{0} has no evidence: it is a kernel, or an older version's", path)
    return evidence_from(told)


def _inspect_library(path: Path, *, as_json: bool) -> None:
    """Show the evidence of a model that was built."""
    found = evidence_of(path)
    if as_json:
        print_json(found.to_json())
    else:
        _print_evidence(found)


def _inspect_partition(graph: Graph, shared: dict[str, Any], *, as_json: bool) -> None:
    """Show the partition of a graph, as a build would make it."""
    from ..building.build_partition import divided

    found = divided(graph, **({"providers": PROVIDERS} | shared)).evidence()
    if as_json:
        print_json(found.to_json())
    else:
        _print_evidence(found)


def _print_evidence(told: Evidence | PartitionEvidence | Profile) -> None:
    """Print facts and tables."""
    from ..runtime.partition_evidence import PartitionEvidence

    print_facts(told.facts())
    typer.echo()
    print_table(*told.table(), "no kernels")
    if isinstance(told, PartitionEvidence) and told.transfers:
        typer.echo()
        print_table(*told.transfer_table(), "nothing crosses")
    for number, part in enumerate(told.parts if isinstance(told, PartitionEvidence) else ()):
        if part.kernels is not None:
            print_headings(2, f"part {number}")
            _print_evidence(part.kernels)


def _loaded(path: Path, never: Sequence[str]) -> Model | PartitionedModel:
    """The model of an artifact."""
    from ..runtime import load
    from ..runtime.model import Model
    from ..runtime.partitioned import PartitionedModel

    made = load(path, never=never)
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


def _of_source(graph: Graph) -> dict[str, Any]:
    """What is known of a graph that has no file: its operators are those of its source."""
    operators = Counter(source.operator for source in graph.sources)
    return {
        "name": graph.name,
        "producer": None,
        "opsets": {},
        "operators": dict(operators.most_common()),
        "open_dims": [],
        "unsupported": [],
    }


def _of_file(told: Summary) -> dict[str, Any]:
    def plain(tensors: Any) -> list[dict[str, Any]]:
        return [{"name": t.name, "dtype": t.dtype, "shape": t.shape} for t in tensors]

    return {
        "name": told.name,
        "producer": told.producer or None,
        "opsets": told.opsets,
        "inputs": plain(told.inputs),
        "outputs": plain(told.outputs),
        "operators": dict(told.operators.most_common()),
        "open_dims": [],
        "unsupported": [],
    }


@dataclass
class _Alike:
    """Groups of the same operators: how often each kernel runs, and what all of them do."""

    kernels: Counter[Func] = field(default_factory=Counter)
    operations: int = 0
    bytes: int = 0


def _of_graph(graph: Graph) -> dict[str, Any]:
    """What is known once all dims have values: types, and the kernels that groups become."""
    from ..autotune.records import flops
    from ..graph.fates import fates
    from ..graph.groups import divide
    from ..graph.lower import lowered_all
    from ..graph.passes import stages

    found = stages(graph)
    groups = divide(found[-1].graph)
    known: dict[Func, int] = {}
    rows: dict[str, _Alike] = {}
    for group, func in zip(groups, lowered_all(groups), strict=True):
        if func not in known:
            known[func] = flops(func)
        row = rows.setdefault(group.name, _Alike())
        row.kernels[func] += 1
        row.operations += known[func]
        row.bytes += group.read_bytes + group.constant_bytes + group.written_bytes

    def plain(values: Any) -> list[dict[str, Any]]:
        return [{"name": n, "dtype": v.dtype, "shape": v.shape} for n, v in values.items()]

    return {
        "inputs": plain(graph.inputs),
        "outputs": plain(graph.outputs),
        "nodes": len(graph.nodes),
        "became": Counter(str(fate.became) for fate in fates(found[-1].graph, groups)),
        "weight_bytes": sum(value.type.bytes for value in graph.constants),
        "digest": graph.digest,
        "passes": [
            {"name": stage.name, "nodes": len(stage.graph.nodes), "rules": dict(stage.applied)}
            for stage in found
        ],
        "groups": [
            {
                "operators": name,
                "groups": row.kernels.total(),
                "kernels": len(row.kernels),
                "operations": row.operations,
                "bytes": row.bytes,
            }
            for name, row in sorted(rows.items(), key=lambda item: -item[1].operations)
        ],
    }


def _unsupported(error: UnsupportedError) -> list[dict[str, Any]]:
    """The nodes that are not supported, each with its reason."""
    from ..importers.unsupported import Reason

    return [
        {"node": node, "operator": operator, "reason": Reason[reason].value, "detail": detail}
        for node, operator, reason, detail in error.data["reasons"]
    ]


def _print(facts: dict[str, Any]) -> None:
    from ..runtime.evidence import became_text

    groups = facts.get("groups")
    print_facts(
        {
            "model": facts["name"],
            "producer": facts["producer"],
            "opsets": [f"{name} {version}" for name, version in facts["opsets"].items()] or None,
            "nodes": f"{sum(facts['operators'].values())} in the file"
            if groups is None
            else f"{became_text(facts['became'])}; {facts['nodes']} in the graph, "
            f"{_last(facts)} built",
            "weights": format_bytes(facts["weight_bytes"]) if groups is not None else None,
            "kernels": None
            if groups is None
            else f"{sum(g['kernels'] for g in groups)} for {count(_all(groups), 'group')}",
        }
    )
    for what in ("inputs", "outputs"):
        typer.echo()
        rows = [[t["name"], _type(t)] for t in facts[what]]
        print_table((f"~{what.removesuffix('s')}", "type"), rows, f"no {what}")
    typer.echo()
    rows = [[name, str(number)] for name, number in facts["operators"].items()]
    print_table(("operator", ">nodes"), rows, "no operators")
    if facts["unsupported"]:
        typer.echo()
        same = Counter((u["operator"], u["reason"], u["detail"]) for u in facts["unsupported"])
        rows = [[op, str(n), reason, detail] for (op, reason, detail), n in same.items()]
        print_table(("not supported", ">nodes", "~reason", "~detail"), rows, "")
    if groups is not None:
        typer.echo()
        rows = [
            [each["name"], rule, str(times)]
            for each in facts["passes"]
            for rule, times in each["rules"].items()
        ]
        print_table(("pass", "~rule", ">times"), rows, "no pass changes the graph")
        typer.echo()
        rows = [
            [
                g["operators"], str(g["groups"]), str(g["kernels"]), format_si(g["operations"]),
                format_bytes(g["bytes"]),
            ]
            for g in groups
        ]  # fmt: skip
        print_table(("~group", ">groups", ">kernels", ">operations", ">bytes"), rows, "no kernels")


def _last(facts: dict[str, Any]) -> int:
    """The nodes that are left after all passes."""
    return int(facts["passes"][-1]["nodes"])


def _all(groups: list[dict[str, Any]]) -> int:
    return sum(group["groups"] for group in groups)


def _type(tensor: dict[str, Any]) -> str:
    shape = tensor["shape"]
    dims = "..." if shape is None else ", ".join(map(str, shape))
    return f"{tensor['dtype'] or 'of no type'}[{dims}]"


def _digest(array: Any) -> str:
    from hashlib import sha256

    return sha256(array.tobytes()).hexdigest()


def _first(array: Any) -> list[float | str]:
    """The first values of an array, as numbers of JSON; what is not finite as text."""
    found = array.reshape(-1)[:4].tolist()
    return [v if math.isfinite(v) else str(v) for v in found]


def _number(value: float | str) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)

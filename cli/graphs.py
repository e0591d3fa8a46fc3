"""The command `inspect`, of models, and the evidence of those that were built."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.errors import ModelError, UnsupportedError
from ..base.text import count, format_bytes, format_si
from .artifacts import inspect_library, is_artifact, library_and_program
from .freezing import inspect_lock
from .graph_options import (
    PROVIDERS,
    Constants,
    ModelOrLibrary,
    Never,
    Placements,
    Providers,
    Shapes,
    changes,
    check_pass,
    graph_after,
    sharing,
)
from .options import AsJson, Parameters
from .program_file import Options, load_graph
from .report import print_json
from .table import print_facts, print_headings, print_table, print_text

if TYPE_CHECKING:
    from ..graph.ir import Graph
    from ..importers.onnx.summary import Summary
    from ..runtime.evidence import Evidence
    from ..runtime.partition_evidence import PartitionEvidence
    from ..runtime.profile import Profile
    from ..tir.ir import Func


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
    library that was built, its manifest: programs, schedules, and what became of models. Of a lock
    file, its kernels, and with --text the steps of their schedules.
    """
    from ..building.lock_file import is_lock

    if is_lock(model):
        inspect_lock(model, text=text, as_json=as_json)
        return
    sources = ("param", "shape", "constant", "text", "after", "diff", "partition")
    if is_built(model, context, *sources):
        inspect_library(*library_and_program(model), as_json=as_json)
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


def is_built(path: Path, context: typer.Context, *sources: str) -> bool:
    """Whether a path is that of a library, which takes none of `sources`, options of what is
    compiled. The library may be missing. A variable may name a database.
    """
    if path.suffix == ".onnx" or not is_artifact(library_and_program(path)[0]):
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

    library, name = library_and_program(path)
    told = read_manifest(library).named(name).provenance.evidence
    if told is None:
        raise ArtifactError("{0} has no evidence: it is a kernel, or an older version's", path)
    return evidence_from(told)


def _inspect_partition(graph: Graph, shared: dict[str, Any], *, as_json: bool) -> None:
    """Show the partition of a graph, as a build would make it."""
    from ..building.build_partition import divided

    found = divided(graph, **({"providers": PROVIDERS} | shared)).evidence()
    if as_json:
        print_json(found.to_json())
    else:
        print_evidence(found)


def print_evidence(told: Evidence | PartitionEvidence | Profile) -> None:
    """Print facts and tables."""
    from ..runtime.partition_evidence import PartitionEvidence

    print_facts(told.facts())
    tables = told.tables() if isinstance(told, PartitionEvidence) else [told.table()]
    for columns, rows in tables:
        typer.echo()
        print_table(columns, rows, "no kernels")
    for number, part in enumerate(told.parts if isinstance(told, PartitionEvidence) else ()):
        if part.kernels is not None:
            print_headings(2, f"part {number}")
            print_evidence(part.kernels)


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
    from ..graph.loops import kernel_groups
    from ..graph.lower import lowered_all
    from ..graph.passes import stages

    found = stages(graph)
    groups = divide(found[-1].graph)
    known: dict[Func, int] = {}
    rows: dict[str, _Alike] = {}
    run = dict(kernel_groups(groups))
    for (group, runs), func in zip(run.items(), lowered_all(run), strict=True):
        if func not in known:
            known[func] = flops(func)
        row = rows.setdefault(group.name, _Alike())
        row.kernels[func] += 1
        row.operations += runs * known[func]
        row.bytes += runs * (group.read_bytes + group.constant_bytes + group.written_bytes)

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

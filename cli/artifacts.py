"""The command `verify`, and what `inspect` shows of a library that was built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.text import count, format_bytes, short_id
from .options import AsJson
from .report import print_json
from .table import print_facts, print_headings, print_table

if TYPE_CHECKING:
    from ..runtime.manifest import StoredProgram, StoredSchedule

Library = Annotated[
    Path, typer.Argument(metavar="LIBRARY.so", help="The library that `build` wrote.")
]


def verify(
    library: Library,
    form: Annotated[
        bool,
        typer.Option("--form", help="Check the files alone: load and call nothing of the code."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check what `build` wrote: its files, this machine, and what each program computes.

    Fails where a file is not what it was, where this machine does not run a program, and where one
    computes something else than when it was built.
    """
    from ..runtime.verification import verify as check

    found = check(library, run=not form)
    if as_json:
        print_json(found.to_json())
    else:
        print_table(*found.table(), "nothing is checked")
    if not found.passed:
        many = count(len(found.failed), "check")
        typer.echo(f"tilewright: {library}: {many} of {len(found.checks)} failed", err=True)
        raise typer.Exit(1)


def library_and_program(path: Path) -> tuple[Path, str | None]:
    """The library that was built, and of `LIBRARY.so:NAME` the name of one of its programs."""
    from ..runtime.artifact import manifest_path

    file, _, name = path.name.rpartition(":")
    if file and not manifest_path(path).is_file() and manifest_path(path.with_name(file)).is_file():
        return path.with_name(file), name
    return path, None


def inspect_library(path: Path, name: str | None, *, as_json: bool) -> None:
    """Show the manifest of an artifact, or of a program in it; it may be for another machine."""
    from ..runtime.artifact import manifest_path, read_manifest

    manifest = read_manifest(path)
    if name is not None:
        manifest = replace(manifest, programs=(manifest.named(name),))
    if as_json:
        print_json(manifest.to_json())
        return
    size = manifest_path(path).stat().st_size
    print_facts(
        {
            "library": str(path),
            "target": str(manifest.target),
            "features": ", ".join(manifest.features) or None,
            "toolchain": ", ".join(f"{name} {text}" for name, text in manifest.toolchain.items()),
            **({} if manifest.code.form is None else {"to be linked": manifest.code.form}),
            "code": f"{format_bytes(manifest.code.size)}, sha256 {short_id(manifest.code.sha256)}",
            "weights": format_bytes(0 if manifest.weights is None else manifest.weights.size),
            "manifest": format_bytes(size),
        }
    )
    typer.echo()
    columns = ("program", "kind", ">kernels", "~schedule", ">workspace", ">weights", "fixture")
    print_table(columns, [_row(program) for program in manifest.programs], "no programs")
    for program in manifest.programs:
        print_headings(2, program.name)
        _print_program(program)


def _row(program: StoredProgram) -> list[str]:
    weights, provenance = program.weights, program.provenance
    return [
        program.name,
        program.kind,
        str(max(1, len(provenance.schedules))),
        str(provenance.origin),
        format_bytes(program.signature.workspace_bytes),
        "" if weights is None else format_bytes(weights.size),
        "none" if program.fixture is None else "written",
    ]


def _print_program(program: StoredProgram) -> None:
    """Print its arguments, its source, and its schedules or what is known of its model."""
    from ..runtime.partition_evidence import evidence_from
    from .graphs import print_evidence

    source, told = program.provenance.source, program.provenance.evidence
    facts: dict[str, Any] = {
        f"{a.role} {a.name}": a.type_text
        if a.packing is None
        else f"{a.type_text}, packed as {a.packing.layout}"
        for a in program.signature.arguments
    }
    if source is not None:
        facts["source"] = f"{source.kind} {short_id(source.digest)}"
        facts |= dict(source.importer or {})
    if program.no_fixture is not None:
        facts["no fixture"] = program.no_fixture
    print_facts(facts)
    if program.provenance.schedules:
        typer.echo()
        columns = ("kernel", "~schedule", ">time", "~measured on", "when")
        rows = [_schedule_row(*item) for item in program.provenance.schedules.items()]
        print_table(columns, rows, "no schedules")
    if told is not None:
        typer.echo()
        print_evidence(evidence_from(told))


def _schedule_row(kernel: str, schedule: StoredSchedule) -> list[str]:
    from ..base.durations import MeasuredTime

    origin, found = schedule.origin, schedule.measured
    loss = "" if origin.loss is None else f", an expected loss of {origin.loss:.0%}"
    row = [kernel, f"{origin}{loss}"]
    if found is None:
        return [*row, "", "", ""]
    time = MeasuredTime(found.seconds, (found.low, found.high), found.samples)
    where = found.target if found.host is None else f"{found.target}, {found.host}"
    return [*row, str(time), where, found.created[:19]]

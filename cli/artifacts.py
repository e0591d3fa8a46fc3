"""The commands `verify`, `sign` and `keygen`, and what `inspect` shows of a library."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.errors import TrustError
from ..base.text import count, format_bytes, short_id
from .options import AsJson
from .report import print_json
from .table import print_facts, print_headings, print_table

if TYPE_CHECKING:
    from ..runtime.manifest import StoredProgram, StoredSchedule

Library = Annotated[
    Path, typer.Argument(metavar="LIBRARY.so", help="The library that `build` wrote.")
]
PublicKeys = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE|RW...", help="A public key, one of which has to have signed it. Repeatable."
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The password is its first line; nothing is asked for."),
]


def verify(
    library: Library,
    form: Annotated[
        bool,
        typer.Option("--form", help="Check the files alone: load and call nothing of the code."),
    ] = False,
    key: PublicKeys = None,
    as_json: AsJson = False,
) -> None:
    """Check what `build` wrote: its files, this machine, and what each program computes.

    Fails where a file is not what it was, where this machine does not run a program, and where one
    computes something else than when it was built; with --key, where none of these has signed it.
    """
    from ..runtime.verification import verify as check

    found = check(library, run=not form, keys=key or None)
    if as_json:
        print_json(found.to_json())
    else:
        print_table(*found.table(), "nothing is checked")
    if not found.passed:
        many = count(len(found.failed), "check")
        typer.echo(f"tilewright: {library}: {many} of {len(found.checks)} failed", err=True)
        raise typer.Exit(1)


def sign(
    library: Library,
    key: Annotated[Path, typer.Option(metavar="FILE", help="The secret key, as of minisign.")],
    comment: Annotated[
        str | None, typer.Option(help="A line that is signed too, and shown by `verify`.")
    ] = None,
    password_file: PasswordFile = None,
) -> None:
    """Sign what `build` wrote: its manifest, which has the digests of all files.

    Writes LIBRARY.so.json.minisig, a signature in the format of minisign. If the key has a
    password, it is asked for.
    """
    from ..runtime.signing import is_encrypted
    from ..runtime.signing import sign as signature

    password = None
    if is_encrypted(key):
        password = _password(password_file, f"Password of {key}", confirm=False)
    typer.echo(signature(library, key, password=password, comment=comment))


def keygen(
    key: Annotated[
        Path, typer.Argument(metavar="NAME.key", help="The secret key; NAME.pub is the public one.")
    ],
    password_file: PasswordFile = None,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="Write the secret key as it is.")
    ] = False,
) -> None:
    """Make a key to sign with, and the public key by which others check that; as minisign does.

    The secret key is for its owner alone, and encrypted by a password, which is asked for.
    """
    from ..runtime.signing import make_keys

    password = None if no_password else _password(password_file, f"New password of {key}")
    for path in make_keys(key, password):
        typer.echo(path)


def _password(path: Path | None, asked: str, *, confirm: bool = True) -> str:
    """The password in the first line of a file, or what the user types."""
    from ..runtime.trust import read_small

    if path is None:
        typed: str = typer.prompt(asked, hide_input=True, confirmation_prompt=confirm, err=True)
        return typed
    try:
        return read_small(path).decode().partition("\n")[0].removesuffix("\r")
    except (FileNotFoundError, UnicodeDecodeError) as error:
        raise TrustError("{0} has no password: {1}", path, error) from error


def library_and_program(path: Path) -> tuple[Path, str | None]:
    """The library that was built, and of `LIBRARY.so:NAME` the name of one of its programs."""
    file, _, name = path.name.rpartition(":")
    if file and not is_artifact(path) and is_artifact(path.with_name(file)):
        return path.with_name(file), name
    return path, None


_OF_CODE = frozenset({".so", ".o", ".cubin"})


def is_artifact(path: Path) -> bool:
    """Whether a path is that of an artifact's code, which may be missing, or of one beside it."""
    from ..runtime.artifact import artifact_beside, manifest_path

    if path.suffix in _OF_CODE or (path.name and manifest_path(path).is_file()):
        return True
    return artifact_beside(path) is not None


def inspect_library(path: Path, name: str | None, *, as_json: bool) -> None:
    """Show the manifest of an artifact, or of a program in it; it may be for another machine.

    A file that is missing, or has another size, is shown as that.
    """
    from ..runtime.artifact import manifest_path, part_place, read_manifest
    from ..runtime.weights_file import weights_path

    whole = manifest = read_manifest(path)
    if name is not None:
        manifest = replace(manifest, programs=(manifest.named(name),))
    if as_json:
        print_json(manifest.to_json())
        return
    size = manifest_path(path).stat().st_size
    code, weights = manifest.code, manifest.weights
    print_facts(
        {
            "library": str(path),
            "target": str(manifest.target),
            "features": ", ".join(manifest.features) or None,
            "toolchain": ", ".join(f"{name} {text}" for name, text in manifest.toolchain.items()),
            **({} if manifest.code.form is None else {"to be linked": manifest.code.form}),
            "code": f"{_size(path, code.size)}, sha256 {short_id(code.sha256)}",
            "weights": "0 B" if weights is None else _size(weights_path(path), weights.size),
            "manifest": format_bytes(size),
        }
    )
    typer.echo()
    columns = ("program", "kind", ">kernels", "~schedule", ">workspace", ">weights", "fixture")
    print_table(columns, [_row(program) for program in manifest.programs], "no programs")
    for program in manifest.programs:
        print_headings(2, program.name)
        _print_program(program, part_place(path, whole, program.name))


def _size(path: Path, expected: int) -> str:
    """The size of a file as its manifest has it, and what is wrong with it at a glance."""
    told = format_bytes(expected)
    if not path.is_file():
        return f"{told}, {path.name} is missing"
    found = path.stat().st_size
    return told if found == expected else f"{told}, {path.name} has {format_bytes(found)}"


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


def _print_program(program: StoredProgram, place: Path) -> None:
    """Print its arguments, its source, its parts of other providers, and its schedules or what is
    known of its model."""
    from ..runtime.partition_evidence import evidence_from
    from ..runtime.stored_partition import part_path
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
    if program.partition is not None and program.partition.files:
        typer.echo()
        parts, of_parts = program.partition.plan.parts, (">part", "provider", "version", "~size")
        rows = [
            [str(n), parts[n].provider, file.version, _size(part_path(place, n), file.content.size)]
            for n, file in program.partition.files.items()
        ]
        print_table(of_parts, rows, "no parts")
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

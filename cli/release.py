"""The command `evidence`: a gate of releases, which compares two builds of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..base.errors import ModelError
from ..base.files import open_regular, read_some
from ..base.text import count
from .artifacts import library_and_program
from .graphs import evidence_of
from .options import AsJson
from .report import print_json
from .table import print_table, print_text

if TYPE_CHECKING:
    from ..runtime.evidence_changes import Build

_MAX_BYTES = 64 << 20
_Build = Annotated[
    Path,
    typer.Argument(
        metavar="LIBRARY.so[:NAME]|FILE.json",
        help="What `build` wrote, or what `inspect MODEL.so --json` or `run --evidence --json` "
        "printed, which has times.",
    ),
]


def evidence(before: _Build, after: _Build, as_json: AsJson = False) -> None:
    """Compare two builds of a model, and fail where the second one is worse.

    Worse are another partition, an operator that runs elsewhere now, more kernels of the same
    graph, a schedule that is no record any more, more memory of the arena or the weights, and a
    call whose median time is beyond the interval of the other, where both have times.
    """
    from ..runtime.evidence_changes import changes, table

    found = changes(_read(before), _read(after))
    worse = sum(change.worse for change in found)
    if worse:
        changed = "change is" if len(found) == 1 else "changes are"
        typer.echo(f"tilewright: {worse} of {len(found)} {changed} worse", err=True)
    if as_json:
        print_json({"changes": [change.to_json() for change in found], "worse": worse})
    elif worse:
        print_table(*table(found), "nothing changes")
    else:
        print_text(f"nothing is worse: {count(len(found), 'change')}")
    if worse:
        raise typer.Exit(1)


def _read(path: Path) -> Build:
    from ..base.checked_json import parse_json
    from ..runtime.artifact import manifest_path
    from ..runtime.evidence_changes import Build, build_from

    if manifest_path(library_and_program(path)[0]).is_file():
        return Build(evidence_of(path))
    try:
        with open_regular(path, ModelError) as (file, size):
            content = read_some(file, _MAX_BYTES + 1) if size <= _MAX_BYTES else b""
        data = parse_json(content.decode())
    except FileNotFoundError:
        raise ModelError("there is no file {0}", path) from None
    except (ValueError, RecursionError) as error:
        raise ModelError(
            "{0} has no evidence: {1}", path, error,
            hint="expected what `build` wrote, or `inspect MODEL.so --json` printed",
        ) from error  # fmt: skip
    return build_from(data)

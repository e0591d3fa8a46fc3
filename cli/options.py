"""Options that several commands share, and how they open databases."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.text import masked_url

if TYPE_CHECKING:
    from ..autotune.model.samples import Sweep
    from ..tuning_db import TuningDatabase

OPTIONS: dict[str, Any] = {
    "no_args_is_help": True,
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,  # plain text, and help does not wait for rich
}
Databases = Annotated[
    list[str] | None, typer.Option("--db", help="A database to learn from; repeatable.")
]
Kind = Annotated[
    str, typer.Option(help="The kind of target, whose measurements alone are learned from.")
]
Shipped = Annotated[bool, typer.Option(help="Also learn from the measurements in the package.")]
Program = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py:FUNCTION[:KERNEL]|MODEL.onnx:KERNEL",
        help="The function that makes the program (runs FILE.py), or one of several kernels.",
    ),
]
ProgramOrModel = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py:FUNCTION[:KERNEL]|MODEL.onnx[:KERNEL]",
        help="The function that makes a program or graph (runs FILE.py), or a model, or one of its "
        "kernels.",
    ),
]
SomeProgram = Annotated[
    str | None,
    typer.Argument(
        metavar="[FILE.py:FUNCTION[:KERNEL]|MODEL.onnx:KERNEL]",
        help="The function that makes the program, or one of several kernels.",
    ),
]
ProgramsOrModels = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE.py:FUNCTION[:KERNEL]|MODEL.onnx[:KERNEL]...",
        help="Functions that make programs or graphs (runs the files), or models, or kernels of "
        "these.",
    ),
]
NamedSources = Annotated[
    list[str],
    typer.Argument(
        metavar="[NAME=]FILE.py:FUNCTION[:KERNEL]|[NAME=]MODEL.onnx[:KERNEL]...",
        help="Functions that make programs or graphs (runs the files), or models, or kernels of "
        "these, and the names that they are to have.",
    ),
]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "-p", "--param", metavar="NAME=VALUE", help="A parameter of the function; repeatable."
    ),
]
_VARIABLE, _DEFAULT = "TILEWRIGHT_DB", "tuning.db"
Database = Annotated[
    str, typer.Option("--db", envvar=_VARIABLE, help="A file or an SQLAlchemy URL.")
]
WHERE = f"A file or an SQLAlchemy URL. [env var: {_VARIABLE}; default: {_DEFAULT}]"
DatabaseArgument = Annotated[
    str | None, typer.Argument(metavar="[DB]", help=WHERE, show_default=False)
]
"""Of commands that are about a database alone; `--db` names it as well: see `database_named`."""
DatabaseOption = Annotated[
    str | None, typer.Option("--db", metavar="DB", help="The same database.", show_default=False)
]
TargetText = Annotated[
    str,
    typer.Option(
        help="`cpu` is this machine, `cpu -mcpu=x86-64-v3 -threads=1` another; `cuda` is its GPU, "
        "`cuda -arch=sm_90a` another. With options, in quotes."
    ),
]
TargetTexts = Annotated[
    list[str],
    typer.Option(
        "--target",
        help="As of `tilewright build`; several times with --cluster: what workers of several "
        "kinds tune for.",
    ),
]
Tolerance = Annotated[
    float | None,
    typer.Option(help="The largest error that is accepted of schedules with inexact steps."),
]
OptionalDatabase = Annotated[
    str | None,
    typer.Option("--db", envvar=_VARIABLE, help="The database to look schedules up in."),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        help="A permitted source: `record`, `transfer`, `model` or `default`; repeatable."
    ),
]
RequireTuned = Annotated[
    bool,
    typer.Option(
        "--require-tuned",
        help="Fail where kernels have no record, with all of them by their share of the time.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


def open_database(location: str, *, create: bool = False, write: bool = False) -> TuningDatabase:
    """The database at a path or URL; read-only unless it may be created or is there to write."""
    from ..tuning_db import TuningDatabase

    return TuningDatabase(location, create=create, read_only=not (create or write))


def database_named(argument: str | None, option: str | None) -> str:
    """The location that a command is given, as an argument or by `--db`; else the default.

    Raises `typer.BadParameter` for both.
    """
    if argument is not None and option is not None:
        raise typer.BadParameter(
            f"two databases, {masked_url(argument)!r} and --db {masked_url(option)!r}: expected "
            "one; leave one out"
        )
    named = option if argument is None else argument
    return os.environ.get(_VARIABLE) or _DEFAULT if named is None else named


def sweeps_of(locations: Sequence[str] | None, kind: str) -> list[Sweep]:
    """The measurements of several databases on a kind of target, as training data."""
    from ..autotune.model import samples

    sweeps: list[Sweep] = []
    for location in locations or ():
        with open_database(location) as database:
            sweeps += samples.sweeps_of(database, kind)
    return sweeps


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_moment(text: str, option: str) -> datetime:
    """The moment of a date, in UTC where it does not name a zone, or so long ago.

    Raises `typer.BadParameter` for anything else.
    """
    ago = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is neither a date such as 2026-11-23 or 2026-11-23T08:00 (UTC), nor a "
            "duration such as 90m, 12h, 7d or 2w",
            param_hint=option,
        ) from None

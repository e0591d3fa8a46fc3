"""The command `tilewright`: tune, build, and inspect a database from a shell.

A program is given as `FILE.py:FUNCTION`. The file is run like any imported Python module (so name
only files that you trust), and the function is called with the `-p` parameters. What it
makes, such as a program or a graph, may be named itself too: `FILE.py:NAME`.

Results go to standard output, as tables or, with `--json`, as JSON. Progress, warnings and errors
go to standard error. Exit status: 0 for success, 1 when Tilewright refuses, 2 for wrong usage, 130
after Ctrl-C. SIGTERM and SIGHUP end the process by that signal (143 or 129 in a shell).
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..base.errors import TilewrightError
from ..base.text import masked
from ..target import registered_kinds
from . import (
    artifacts,
    checking,
    database,
    freezing,
    graphs,
    measuring,
    models,
    pages,
    programs,
    release,
    running,
    showing,
)
from .options import OPTIONS
from .program_file import load_module
from .table import output_text

_UsageError: Any = typer.BadParameter.__bases__[0]


class _Commands(TyperGroup):
    """The commands; the error for one that stands in a group says so."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name = args[0] if args else ""
        if name not in self.commands:
            groups = ((g, c) for g, c in self.commands.items() if isinstance(c, TyperGroup))
            found = [f"`tilewright {g} {name}`" for g, c in groups if name in c.commands]
            if found:
                ctx.fail(f"No such command {name!r}. Did you mean {' or '.join(found)}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Errors of usage repeat words of the command line: URLs among them without passwords.

        Ctrl-C ends a command that does not await it.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("tilewright: interrupted", err=True)
            raise typer.Exit(130) from None
        except _UsageError as error:
            error.message = masked(error.message)
            raise


app = typer.Typer(
    help="Compile tensor programs to fast kernels, and tune them.", cls=_Commands, **OPTIONS
)
app.command()(programs.tune)
app.command()(programs.build)
app.command()(freezing.freeze)
app.command()(programs.target)
app.command()(showing.show)
app.command()(checking.check)
app.command()(graphs.inspect)
app.command()(running.run)
app.command()(artifacts.verify)
app.command()(artifacts.sign)
app.command()(artifacts.keygen)
app.command()(release.evidence)
app.command()(pages.report)
app.command()(pages.watch)
app.add_typer(database.app, name="db")
app.add_typer(models.app, name="model")
app.add_typer(measuring.app, name="measure")


def main() -> None:
    """Run the command line and exit."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may not know every character
    quoted = _quoted_target(sys.argv[1:])
    if quoted is not None:
        typer.echo(
            "tilewright: the options of a target are part of it, and found outside\n"
            f"  hint: write it in quotes: {quoted}",
            err=True,
        )
        sys.exit(2)
    try:
        app(prog_name="tilewright")
    except TilewrightError as error:
        typer.echo(output_text(f"tilewright: {error}"), err=True)
        sys.exit(1)
    except BrokenPipeError:  # the reader, `head` for instance, has seen enough
        _drop_output()
        sys.exit(0)
    except OSError as error:  # the disk that the output goes to is full, say
        _drop_output()
        typer.echo(output_text(f"tilewright: cannot write: {masked(str(error))}"), err=True)
        sys.exit(1)


def _drop_output() -> None:
    """Write nothing more: Python would try to at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _quoted_target(words: Sequence[str]) -> str | None:
    """A target as it is written on a command line, where its options stand there as words.

    `None` where they do not.
    """
    kinds = registered_kinds()
    names = {name for record in kinds.values() for name in record.option_names}

    options = list[str]()
    for word, after in zip(words, [*words, ""][1:], strict=True):
        name, equals, value = word.removeprefix("-").partition("=")
        if word.startswith("-") and name in names:
            options.append(f"-{name}={value if equals else after}")
    if not options:
        return None
    first = options[0][1:].partition("=")[0]
    kind = next(kind for kind, record in kinds.items() if first in record.option_names)
    return f'"{" ".join([kind, *options])}"'


def _show_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"tilewright {__version__}")
        raise typer.Exit


@app.callback()
def _every_command(
    verbose: Annotated[int, typer.Option("-v", "--verbose", count=True, help="Log more.")] = 0,
    load: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE.py|MODULE",
            help="Run this first: it registers operators, providers or targets. Repeatable.",
        ),
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    levels = (logging.WARNING, logging.INFO, logging.DEBUG)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    logging.getLogger(__package__.rpartition(".")[0]).setLevel(levels[min(verbose, 2)])
    for name in load or ():
        load_module(name)

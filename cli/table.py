"""Tables and lists of facts as plain text, for a terminal of any width.

A cell that may be long is wrapped, columns that are not needed are left out, and where the others
do not fit side by side, each row is a list of its facts. A file or pipe gets a line for each row.

Texts may be anybody's: control characters are replaced, and what the output cannot encode.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from ..base.text import COLUMN_MARKS, MAX_LENGTH, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_GAP = 2
_NARROWEST = 16
"""Cells of a column that is wrapped, at least."""
_UNLIMITED = 1_000_000
"""Cells of a line of a file or pipe: nothing is wrapped."""


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], otherwise: str) -> None:
    """Print a table, or the sentence `otherwise` if there are no rows.

    The name of a column may begin with marks: `>` (align to the right), `~` (may be wrapped where
    room is short) and `?` (left out, the last first, where room is still short). Columns without
    any text are left out.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    cells = [
        [_cell(text) for text in row] for row in [[c.lstrip(COLUMN_MARKS) for c in columns], *rows]
    ]
    titles, *body = cells
    named = [k for k in range(len(columns)) if any(row[k] for row in body)]
    least = {k: max(cell_len(row[k]) for row in cells) for k in named}
    least |= {k: min(_NARROWEST, least[k]) for k in named if "~" in columns[k]}
    width = output_width() or _UNLIMITED
    for k in reversed(named):
        if "?" in columns[k] and sum(least.values()) + _GAP * (len(least) - 1) > width:
            del least[k]
    if not body:
        print_text(otherwise)
    elif sum(least.values()) + _GAP * (len(least) - 1) > width:
        for n, row in enumerate(body):
            if n > 0:
                typer.echo()
            print_facts({titles[k]: row[k] for k in named if row[k]})
    else:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for k in least:
            table.add_column(Text(titles[k]), no_wrap="~" not in columns[k])
            if ">" in columns[k]:
                table.columns[-1].justify = "right"
        for row in body:
            table.add_row(*(Text(row[k], overflow="fold") for k in least))
        _print(table)


def print_headings(number: int, *texts: str) -> None:
    """Print what the rows of a table have in common, behind the tables before that `number`."""
    print_text("\n" * (number > 0) + "\n".join(map(_cell, texts)))


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values, without those that are `None`."""
    from rich.table import Column, Table
    from rich.text import Text

    grid = Table.grid(Column(no_wrap=True), "", padding=(0, _GAP, 0, 0))
    for name, value in facts.items():
        if value is not None:
            grid.add_row(name, Text(_text(value), overflow="fold"))
    _print(grid)


def print_text(text: str) -> None:
    """Print a text; a line that is too long for the terminal is wrapped, and indented alike."""
    from rich.padding import Padding
    from rich.text import Text

    for line in output_text(text).split("\n"):
        words = line.lstrip(" ")
        if not words:
            typer.echo()  # a padding of nothing has no line
            continue
        _print(Padding.indent(Text(words, overflow="fold"), len(line) - len(words)))


def output_width() -> int | None:
    """The cells of a line of the output; `None` where nothing has to fit: a file or pipe."""
    terminal = sys.stdout is not None and sys.stdout.isatty()  # `None` where it is closed
    if os.environ.get("COLUMNS", "").isdigit() or terminal:
        return shutil.get_terminal_size().columns
    return None


def output_text(text: str) -> str:
    """A text as `texts.printable` returns it, without tabs and in the encoding of the output."""
    shown = printable(text.replace("\t", " "))
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return shown.encode(encoding, "replace").decode(encoding)


def _print(*parts: RenderableType) -> None:
    from rich.console import Console

    console = Console(width=output_width() or _UNLIMITED, color_system=None)
    with console.capture() as captured:
        console.print(*parts, sep="\n")
    for line in captured.get().split("\n")[:-1]:
        typer.echo(line.rstrip())


def _cell(text: str) -> str:
    """The text of a cell, which is one line; of a long text the middle is left out."""
    half = MAX_LENGTH // 2
    cut = text if len(text) <= MAX_LENGTH else f"{text[:half]} ... {text[-half:]}"
    return output_text(cut.replace("\n", "\0"))


def _text(value: object) -> str:
    """A value as text; what is between the elements of a list is not in them."""
    if not isinstance(value, (list, tuple)):
        return output_text(str(value))
    elements = [output_text(str(element)) for element in value]
    return ("; " if any(" " in element for element in elements) else " ").join(elements)

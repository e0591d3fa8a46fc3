"""Tables and lists of facts as plain text, for a terminal of any width.

Nothing that tells rows apart is cut. A cell that may be long is wrapped, columns that are not
needed are left out, and where the others do not fit side by side, each row is a list of its facts:

    id            outcome    time               id       0123456789ab
    ────────────  ───────  ───────              outcome  ok
    0123456789ab  ok       1.23 us              time     1.23 us

Texts may be anybody's: control characters are replaced, and what the output cannot encode.
Widths are counted in cells of a terminal, of which characters take none, one or two.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

import typer

from ..base.text import MAX_LENGTH, printable

_MARKS = ">~?"
"""What the name of a column of a table may begin with."""
_GAP = "  "
_NARROWEST = 16
"""Cells of a column that is wrapped, at least."""
_HANG = 4
"""Cells by which the later lines of an indented line are indented further: twice a level."""
_BREAKS = "/-+,;_("
"""Marks in a long word, such as a path or the name of a processor, behind which it is divided."""
_LONGEST = 4
"""Characters that are looked at for each cell: some take none."""


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], otherwise: str) -> None:
    """Print a table, or the sentence `otherwise` if there are no rows.

    The name of a column may begin with marks: `>` (align to the right), `~` (may be wrapped where
    room is short) and `?` (left out, the last first, where room is still short). Columns without
    any text are left out.
    """
    if not rows:
        typer.echo(output_text(otherwise))
        return
    for line in table_lines(columns, rows, output_width(), rule=_encodable("─", "-")):
        typer.echo(line)


def print_headings(number: int, *texts: str) -> None:
    """Print what the rows of a table have in common, behind the tables before that `number`."""
    if number > 0:
        typer.echo()
    for text in texts:
        for line in _wrapped(_cell(text), output_width()):
            typer.echo(line)


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values, without those that are `None`."""
    for line in _facts([(n, _text(v)) for n, v in facts.items() if v is not None], output_width()):
        typer.echo(line)


def print_text(text: str, hang: int = 0) -> None:
    """Print a text, wrapped where a line is longer than the terminal is wide.

    What a line goes on with is indented by `hang` cells, that of an indented line by 4 at least.
    """
    for line in _wrapped(output_text(text), output_width(), hang):
        typer.echo(line)


def output_width() -> int | None:
    """The cells of a line of the output; `None` where nothing has to fit: a file or pipe."""
    terminal = sys.stdout is not None and sys.stdout.isatty()  # `None` where it is closed
    if os.environ.get("COLUMNS", "").isdigit() or terminal:
        return shutil.get_terminal_size().columns
    return None


def output_text(text: str) -> str:
    """A text as `texts.printable` returns it, without tabs and in the encoding of the output."""
    shown = printable(text.replace("\t", " "))
    return shown.encode(_encoding(), "replace").decode(_encoding())


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, rule: str = "-"
) -> Iterator[str]:
    """The lines of a table that is at most `width` cells wide; see `print_table`."""
    titles = [column.lstrip(_MARKS) for column in columns]
    marks = [column[: len(column) - len(t)] for column, t in zip(columns, titles, strict=True)]
    cells = [[_cell(text) for text in row] for row in rows]
    named = [k for k in range(len(columns)) if any(row[k] for row in cells)]
    natural = {k: max(map(_cells, (titles[k], *(row[k] for row in cells)))) for k in named}
    least = {k: min(_NARROWEST, w) if "~" in marks[k] else w for k, w in natural.items()}
    room = _total(natural, named) if width is None else width
    shown = list(named)
    for k in reversed(named):
        if "?" in marks[k] and _total(least, shown) > room:
            shown.remove(k)
    if _total(least, shown) > room:
        for n, row in enumerate(cells):
            yield from [""] * (n > 0)
            yield from _facts([(titles[k], row[k]) for k in named if row[k]], width)
        return
    widths = _shared(natural, least, shown, room)
    yield from _row(titles, widths, marks)
    yield _GAP.join(rule * widths[k] for k in shown)
    for row in cells:
        yield from _row(row, widths, marks)


def _total(widths: Mapping[int, int], shown: Sequence[int]) -> int:
    return sum(widths[k] for k in shown) + len(_GAP) * (len(shown) - 1)


def _shared(
    natural: Mapping[int, int], least: Mapping[int, int], shown: Sequence[int], room: int
) -> dict[int, int]:
    """The widths of columns: what is left of the room goes to those that are wrapped, evenly."""
    widths = {k: least[k] for k in shown}
    narrow = sorted((k for k in shown if least[k] < natural[k]), key=lambda k: natural[k])
    for n, k in enumerate(narrow):
        spare = room - _total(widths, shown)
        widths[k] = min(natural[k], widths[k] + spare // (len(narrow) - n))
    return widths


def _row(texts: Sequence[str], widths: Mapping[int, int], marks: Sequence[str]) -> Iterator[str]:
    """The lines of a row: the texts of the columns that have a width."""
    wrapped = (_wrapped(texts[k], width) for k, width in widths.items())
    for parts in zip_longest(*wrapped, fillvalue=""):
        padded = list[str]()
        for part, (k, width) in zip(parts, widths.items(), strict=True):
            space = " " * (width - _cells(part))
            padded.append(space + part if ">" in marks[k] else part + space)
        yield _GAP.join(padded).rstrip()


def _facts(facts: Sequence[tuple[str, str]], width: int | None) -> Iterator[str]:
    """Lines of names and values, which are wrapped behind their names."""
    margin = max(len(name) for name, _ in facts) + len(_GAP)
    room = None if width is None else max(_NARROWEST, width - margin)
    for name, value in facts:
        for n, part in enumerate(_wrapped(value, room)):
            yield f"{name if n == 0 else '':{margin}}{part}".rstrip()


def _wrapped(text: str, width: int | None, hang: int = 0) -> Iterator[str]:
    """The lines of a text, of at most so many cells: divided at spaces, in long words anywhere.

    What an indented line goes on with is indented by 4 cells more, or by `hang`, where there is
    room: so one sees where the next line begins, and those below it.
    """
    for line in text.split("\n"):
        if width is None or _cells(line) <= width:
            yield line
            continue
        words = line.lstrip(" ")
        room = max(0, width - _NARROWEST)
        indent = min(len(line) - len(words), room)
        later = min(indent + max(hang, _HANG if indent else 0), room)
        now, margin = "", " " * indent
        for word in words.split(" "):
            longer = f"{now} {word}" if now else word
            if len(margin) + _cells(longer) <= width:
                now = longer
                continue
            *full, now = [*([now] if now else []), *_parts(word, width - later)]
            for part in full:
                yield margin + part
                margin = " " * later
        yield margin + now


def _parts(word: str, room: int) -> Iterator[str]:
    """A word in parts of at most so many cells, a long one divided behind marks where it can be."""
    from rich.cells import chop_cells

    start = 0
    while len(part := word[start : start + _LONGEST * room]) > 0:
        if _cells(part) > room:
            part = chop_cells(part, room)[0] or part[0]
            end = max(part.rfind(mark) for mark in _BREAKS) + 1
            part = part[:end] if end > len(part) // 3 else part
        yield part
        start += len(part)


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


def _cells(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _encoding() -> str:
    return getattr(sys.stdout, "encoding", None) or "utf-8"


def _encodable(text: str, otherwise: str) -> str:
    """A text, or another one where the output cannot encode it."""
    try:
        text.encode(_encoding())
    except UnicodeEncodeError:
        return otherwise
    return text

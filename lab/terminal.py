"""Programs, steps, differences and assembly for a terminal of any width, as text of rich.

Notes beside loops are comments, so what is copied is still a program. Lines that are too long go on
in the next one, further in. Without colours everything is still said: by comments and by signs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..base.text import format_bytes
from ..schedule import Trace
from ..target import Target
from ..tir.ir import Func
from .pictures.assembly_lines import UNKNOWN_LOOPS, Assembly
from .pictures.listing import Kind, Row, pieces, rows
from .pictures.page import text
from .pictures.trace import changes, statements

if TYPE_CHECKING:
    from rich.text import Text

STYLES: dict[Kind, str] = {
    "keyword": "magenta",
    "call": "blue",
    "string": "green",
    "comment": "dim",
    "buffer": "yellow",
    "": "",
}
_STEP = 4
"""Columns of an indentation in the text of programs."""
_NAME = 12
"""Columns of the name of a loop beside assembly, at most."""
_SIGNS = {"-": "red", "+": "green", " ": "", "…": "dim"}


def program_lines(func: Func, target: Target, width: int | None) -> list[Text]:
    """The text of a program, with notes beside its loops where there is room."""
    found = rows(func, target)
    step = _indentation([row.line.text for row in found], width)
    codes = [_narrowed(row.line.text, step) for row in found]
    column, notes = _notes(found, codes, width)
    lines: list[Text] = []
    for line, note in zip(codes, notes, strict=True):
        styled = _highlighted(line)
        if note:
            styled.append(f"{line:{column}}  # {note}"[len(line) :], STYLES["comment"])
        lines += folded(styled, width)
    return lines


def step_lines(trace: Trace, width: int | None) -> list[Text]:
    """The steps of a trace as Python, each with its number."""
    lines: list[Text] = []
    for n, line in enumerate(statements(trace)):
        lines += folded(_highlighted(line), width, f"{n:3}  ")
    return lines


def difference_lines(before: Func, after: Func, width: int | None) -> list[Text]:
    """The difference of two programs: lines taken away and added, by sign and colour."""
    found = changes(before, after)
    step = _indentation([f"  {change.text}" for change in found], width)
    lines: list[Text] = []
    for change in found:
        style = _SIGNS[change.sign]
        line = _highlighted(_narrowed(change.text, step))
        line.stylize(style)
        lines += folded(line, width, f"{change.sign} ", style)
    return lines


def assembly_lines(assembly: Assembly, width: int | None, *, whole: bool) -> list[Text]:
    """An assembly text with `>` before the lines of its hot block, and the loop that runs each.

    Without `whole` it is the hot block alone, but all of the text where no loop computes. A last
    line says that the code does not tell the loops, where that is so.
    """
    hot = assembly.hot
    shown = range(len(assembly.lines)) if whole or hot is None else hot
    names = [text(name, _NAME) for name in assembly.names]
    column = max((len(names[n]) for n in shown), default=0) if names else 0
    found: list[Text] = []
    for n in shown:
        is_hot = hot is not None and n in hot
        line = _plain(text(assembly.lines[n].expandtabs(8)), "bold" if is_hot else "")
        name = f"{names[n]:{column}}  " if column else ""
        found += folded(line, width, f"{'> ' if is_hot else '  '}{name}")
    if assembly.loops is None:
        found += sentence(UNKNOWN_LOOPS, width)
    return found


def sentence(words: str, width: int | None) -> Iterator[Text]:
    """A sentence, which may quote anybody's text."""
    return folded(_plain(text(words), ""), width)


def folded(
    line: Text, width: int | None, gutter: str = "", style: str = STYLES["comment"]
) -> Iterator[Text]:
    """A line behind a gutter of a style, as lines of at most so many cells, later ones indented."""
    indent = len(gutter) + len(line.plain) - len(line.plain.lstrip())
    line = _behind(gutter, style, line)
    if width is None:
        yield line
        return
    later = min(indent + _STEP, width // 2)
    while line.cell_len > width:
        first, rest = line.divide([_break(line.plain, width, indent)])
        first.rstrip()
        yield first
        line = _behind(" " * later, "", rest[len(rest.plain) - len(rest.plain.lstrip()) :])
        indent = later
    yield line


def _break(plain: str, width: int, inside: int) -> int:
    """Where a line that is too wide is divided: at its last space that fits, or anywhere."""
    from rich.cells import get_character_cell_size

    end = cells = 0
    while cells + get_character_cell_size(plain[end]) <= width:
        cells += get_character_cell_size(plain[end])
        end += 1
    space = plain.rfind(" ", inside + 1, end + 1)
    return space if space > 0 else max(end, inside + 1)


def _indentation(lines: Iterable[str], width: int | None) -> int:
    """The columns of an indentation with which most lines fit: fewer in narrow terminals."""
    longest = max(lines, key=len, default="")
    return _STEP if width is None or len(longest) <= width else 2 if width >= 60 else 1


def _narrowed(line: str, step: int) -> str:
    bare = line.lstrip(" ")
    return " " * ((len(line) - len(bare)) * step // _STEP) + bare


def _notes(found: Sequence[Row], codes: Sequence[str], width: int | None) -> tuple[int, list[str]]:
    """Notes for the rows, and the column in which they begin.

    Where there is no room for them one below the other, each stands behind its line, as long as it
    fits there.
    """
    for form in _FORMS[:-1]:
        notes = [form(row) for row in found]
        column = max((len(c) for c, note in zip(codes, notes, strict=True) if note), default=0)
        if width is None or column + len("  # ") + max(map(len, notes), default=0) <= width:
            return column, notes
    assert width is not None
    return 0, [
        next((note for form in _FORMS if len(f"{code}  # {(note := form(row))}") <= width), "")
        for row, code in zip(found, codes, strict=True)
    ]


def _everything(row: Row) -> str:
    buffers = [f"{name} {format_bytes(size)}" for held in row.held for name, size in held.buffers]
    return f"{_totals(row)}: {', '.join(buffers)}" if buffers else _totals(row)


def _totals(row: Row) -> str:
    return ", ".join(filter(None, (row.badge, *(held.total for held in row.held))))


def _badge(row: Row) -> str:
    return row.badge or ""


_FORMS = (_everything, _totals, _badge)


def _highlighted(line: str) -> Text:
    from rich.text import Text

    return Text.assemble(*((piece, STYLES[kind]) for kind, piece in pieces(text(line))))


def _plain(line: str, style: str) -> Text:
    from rich.text import Text

    return Text(line, style)


def _behind(gutter: str, style: str, line: Text) -> Text:
    from rich.text import Text

    return Text.assemble((gutter, style), line)

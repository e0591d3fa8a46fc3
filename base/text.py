"""Texts for people: counts, lists, bytes, ids, and names that are safe to print."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from urllib.parse import unquote_plus

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_bytes(count: int) -> str:
    """A number of bytes in the largest unit that it fills once rounded: 768 B, 1.5 KiB, 32 MiB."""
    value, unit = float(count), 0
    while value >= 1023.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if value >= 999.5 else f"{value:.3g} {_UNITS[unit]}"


def format_si(value: float, unit: str = "") -> str:
    """A number with three digits, a prefix of powers of 1000 and a unit: `12.5 GFLOP/s`."""
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= 0.9995 * scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()


SHORT_DIGITS = 12
FEWEST_DIGITS = 4
"""The fewest digits that stand for an id."""


def short_id(id: str, beyond: str = "") -> str:
    """The form of an id in sentences and tables.

    It is longer than `beyond`, the digits that several ids have in common. What is no id, which
    errors may be about, has no control characters.
    """
    return printable(id[: max(SHORT_DIGITS, len(beyond) + FEWEST_DIGITS)])


MAX_LENGTH = 200
"""Characters of a name in a line or in a cell of a table, at most."""
LINE = 80
"""Cells of a line of a `repr`, at most."""
MAX_ARGUMENTS = 6
"""Arguments that a `repr` names."""
_ARGUMENT = 36
"""Cells of an argument in a `repr`, of which a line has room for two."""
_CHARACTERS = 4
"""Characters of a text for each of its cells, at most: some take none."""
_URL = re.compile(r"[A-Za-z][\w+.-]*://?\S+")
_SCHEME = re.compile("[^:]*://?")
"""With one slash where a URL was taken for a path."""
_AROUND = re.compile(r"['\"`,;:.)\]}]*$")
"""What stands behind a URL in a text and is likely no part of it."""
_ALMOST_URL = re.compile(
    r"(sqlite|postgres(ql)?)(\+\w+)?:|(host|hostaddr|user|password|passfile|dbname|service) *="
)
"""A URL without its slashes, or the options of a PostgreSQL server: no name of a file."""
_OPTION = re.compile(r"([?&][^=&]*=)([^&]*)")
_USER = re.compile(r"[^:/@?]*:")
_PORT = re.compile(r"\d*(?:[/?]|$)")
_SECRETS = ("pass", "pwd", "secret", "token")
"""Parts of the names of options whose values are nobody's: `sslpassword`, `passfile`."""
MASK = "***"
COLUMN_MARKS = ">~?"
"""What the name of a column of a table may begin with."""
_UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """A text whose control characters are replaced, whole; ends of lines and tabs stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else _UNPRINTABLE for c in text)


def excerpt(text: str, most: int = MAX_LENGTH) -> str:
    """A printable text of one line and of at most so many characters; what is cut ends in `…`."""
    shown = text if len(text) <= most else f"{text[: most - 1]}…"
    return printable(shown.replace("\n", "\0").replace("\t", " "))


def masked_url(url: str) -> str:
    """A URL whose password, and the values of such options, are `***`; another text as it is.

    The one function that does it. It hides too much of a URL that does not parse, or that was cut.
    """
    start = _SCHEME.match(url)
    if start is None:
        almost = _ALMOST_URL.match(url)
        return url if almost is None else f"{almost[0]}{MASK}"
    rest = url[start.end() :]
    user = _USER.match(rest)
    if user is not None:
        question = rest.find("?") if "?" in rest else len(rest)
        end = rest.rfind("@", user.end(), question)
        end = rest.rfind("@") if end < 0 else end
        if end >= 0 or not _PORT.match(rest, user.end()):
            rest = f"{user[0]}{MASK}{rest[end:] if end >= 0 else ''}"
    rest = _OPTION.sub(lambda option: option[1] + (MASK if _is_secret(option) else option[2]), rest)
    return f"{start[0]}{rest}"


def _is_secret(option: re.Match[str]) -> bool:
    name = unquote_plus(option[1]).lower()
    return bool(option[2]) and any(part in name for part in _SECRETS)


def masked(text: str) -> str:
    """A text with the URLs in it as `masked_url` returns them."""
    if ":/" not in text:
        return text
    return _URL.sub(_masked_part, text)


def _masked_part(found: re.Match[str]) -> str:
    behind = _AROUND.search(found[0])
    end = len(found[0]) if behind is None else behind.start()
    return masked_url(found[0][:end]) + found[0][end:]


def count(number: int, what: str) -> str:
    """`1 loop`, `2 loops`, `1,200 loops`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def in_lines(parts: Iterable[str], room: int = LINE) -> str:
    """Parts with a space between them, in lines of at most `room` cells; later ones are indented.

    A part that is longer than a line is cut.
    """
    lines = [""]
    for part in parts:
        whole = f"{lines[-1]} {part}" if lines[-1] else part
        if _fits(whole, room):
            lines[-1] = whole
        elif lines[-1].strip():
            lines.append(cut(f"  {part}", room))
        else:
            lines[-1] = cut(whole, room)
    return "\n".join(lines)


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table of short texts; columns whose names begin with `>` are to the right.

    Other marks of columns are left out (see `cli/table.py`), and so are columns without any text.
    """
    used = [k for k in range(len(columns)) if any(row[k] for row in rows)]
    titles = [name.lstrip(COLUMN_MARKS) for name in columns]
    wide = {k: max(cells(row[k]) for row in (titles, *rows)) for k in used}

    def line(row: Sequence[str]) -> str:
        shown = []
        for k in used:
            room = " " * (wide[k] - cells(row[k]))
            shown.append(room + row[k] if columns[k].startswith(">") else row[k] + room)
        return "  ".join(shown).rstrip()

    return [line(row) for row in (titles, *rows)]


def arguments(name: str, given: Sequence[str]) -> list[str]:
    """The parts of `name(A: float32[64], B: float32[64])`; of many arguments it names the first."""
    shown = [cut(argument, _ARGUMENT) for argument in given[:MAX_ARGUMENTS]]
    if len(given) > MAX_ARGUMENTS:
        shown.append(f"and {len(given) - MAX_ARGUMENTS} more")
    first, *rest = [*(f"{argument}," for argument in shown[:-1]), f"{''.join(shown[-1:])})"]
    return [f"{cut(name, _ARGUMENT)}({first}", *rest]


def cut(text: str, room: int) -> str:
    """A text of at most `room` cells and not many characters; what is cut ends in `…`."""
    if _fits(text, room):
        return text
    if room <= 0:
        return ""
    start, used = text[: _CHARACTERS * room - 1], 0
    for n, character in enumerate(start):
        used += _width(character)
        if used >= room:
            return f"{start[:n]}…"
    return f"{start}…"


def _fits(text: str, room: int) -> bool:
    return len(text) <= _CHARACTERS * room and cells(text) <= room


def cells(text: str) -> int:
    """The cells of a terminal that a text takes: a character is none, one or two wide."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1

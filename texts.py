"""Texts of others, such as names in a database, as they can be shown."""

from __future__ import annotations

MAX_LENGTH = 200
"""Characters of a name in a line or in a cell of a table, at most."""
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

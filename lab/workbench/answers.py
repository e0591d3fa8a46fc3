"""Commands and answers of the lab as JSON data: what is read of them, and errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from markupsafe import Markup

from ...base.errors import TilewrightError
from ...base.text import printable
from ..pictures.page import text
from .versions import LabError

Arguments: TypeAlias = Mapping[str, Any]
"""The keys of a command."""


def problem(error: BaseException) -> dict[str, Any]:
    """An error that is about no step, as data."""
    kind = type(error).__name__
    if not isinstance(error, TilewrightError):
        return {"kind": kind, "text": text(f"{kind}: {error}"), "hint": None}
    first, *more = str(error).splitlines()
    hints = [line.partition("hint: ")[2] for line in more if line.startswith("  hint: ")]
    return {"kind": kind, "text": text(first), "hint": text(hints[0]) if hints else None}


def text_of(given: Arguments, name: str) -> str:
    """A text among the keys of a command. Raises `LabError` if there is none."""
    value = given.get(name)
    if not isinstance(value, str):
        raise LabError("{0}: expected a text, found {1!r:.80}", name, value)
    return value


def page_of(given: Arguments, most: int) -> tuple[int, int]:
    """The keys `start` and `count` of a command, at most `most` of it. Raises `LabError`."""
    start, count = (number_of(given, n, d) for n, d in (("start", 0), ("count", most)))
    return start, min(count, most)


def flag_of(given: Arguments, name: str) -> bool:
    """A flag among the keys of a command, by default off. Raises `LabError`."""
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise LabError("{0}: expected true or false, found {1!r:.80}", name, value)
    return value


def number_of(given: Arguments, name: str, default: int) -> int:
    """A number from 0 on among the keys of a command. Raises `LabError`."""
    value = given.get(name, default)
    if type(value) is not int or value < 0:
        raise LabError("{0}: expected a number from 0 on, found {1!r:.80}", name, value)
    return value


def plain(value: Any) -> Any:
    """JSON data of which all texts are safe to show, and numbers that JSON has.

    `Markup` is HTML of this package, in which texts are escaped already. No text is cut here:
    scripts and programs are whole or worthless. Texts of others are cut where they come in.
    """
    match value:
        case Markup():
            return str(value)
        case str():
            return printable(value)
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(k): plain(v) for k, v in value.items()}
        case list() | tuple():
            return [plain(v) for v in value]
        case _:
            return value

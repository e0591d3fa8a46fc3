"""Ids in sentences: records, schedules and packs are digests of 64 digits, whose first digits do.

Texts for people have the short form, data (JSON, records, files) the whole id. Whatever takes an id
takes any beginning of it that no other record has.
"""

from __future__ import annotations

from .texts import printable

SHORT_DIGITS = 12
FEWEST_DIGITS = 4
"""The fewest digits that stand for an id."""


def short_id(id: str, beyond: str = "") -> str:
    """The form of an id in sentences and tables.

    It is longer than `beyond`, the digits that several ids have in common. What is no id, which
    errors may be about, has no control characters.
    """
    return printable(id[: max(SHORT_DIGITS, len(beyond) + FEWEST_DIGITS)])

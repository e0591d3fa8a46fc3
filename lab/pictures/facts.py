"""Names with what is known of them: a list that is read as one, in two columns."""

from __future__ import annotations

from collections.abc import Mapping

import htpy as h

from .page import text


def facts(known: Mapping[str, h.Node]) -> h.Node:
    """A list of names and values, without those that are `None` or empty.

    Values are text of ours or nodes: what is foreign comes through `page.text`.
    """
    kept = {name: value for name, value in known.items() if value not in (None, "", [], ())}
    if not kept:
        return None
    return h.dl(".tw-facts")[((h.dt[text(name)], h.dd[value]) for name, value in kept.items())]


def codes(values: list[str]) -> h.Node:
    """Short pieces of code beside each other."""
    return [[h.code[text(value)], " "] for value in values] or None

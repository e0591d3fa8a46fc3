"""The picture of each kind of value: a table from types to functions that return HTML.

A view takes a value and returns a node of htpy; `html_of` makes a fragment for a notebook of it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

import htpy as h

from .page import fragment

View: TypeAlias = Callable[[Any], h.Node]

_HOMES: dict[str, str] = {
    "Best": "database",
    "BestResult": "result",
    "DatabaseDiff": "upkeep",
    "Evidence": "evidence",
    "Explanation": "database",
    "Func": "program",
    "Graph": "graph",
    "GraphExplanation": "graph",
    "Model": "graph",
    "Module": "module",
    "Moment": "live",
    "Pictures": "live",
    "Profile": "profile",
    "Record": "database",
    "RecordDiff": "upkeep",
    "RecordedRun": "live",
    "Removal": "upkeep",
    "Schedule": "schedule",
    "Target": "target",
    "TilewrightError": "error",
    "Trace": "trace",
    "TuneResult": "result",
    "TuningDatabase": "database",
    "TuningRun": "live",
}
"""The file of this package that has the view of a class, by the name of the class."""


def view_of(value: object) -> h.Node:
    """The picture of a value, without the style. Raises `TypeError` for a kind that has none."""
    for base in type(value).__mro__:
        home = _HOMES.get(base.__name__)
        if home is not None:
            view: View = import_module(f".{home}", __package__).view
            return view(value)
    raise TypeError(f"there is no view of a {type(value).__name__}")


def html_of(value: object) -> str:
    """The picture of a value as HTML that a notebook shows: one element, with its style."""
    return fragment(view_of(value))

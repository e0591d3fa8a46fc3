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
    "BestResult": "tuning.result_view",
    "DatabaseDiff": "upkeep",
    "Evidence": "model.evidence_view",
    "Explanation": "database",
    "Func": "program",
    "Graph": "model.graph_view",
    "GraphExplanation": "model.graph_view",
    "Model": "model.graph_view",
    "Module": "module",
    "Moment": "tuning",
    "Partition": "partition.partition_view",
    "PartitionEvidence": "partition.partition_view",
    "PartitionedModel": "partition.partition_view",
    "Pictures": "tuning",
    "Profile": "model.profile_view",
    "Record": "database",
    "RecordDiff": "upkeep",
    "RecordedRun": "tuning",
    "Removal": "upkeep",
    "Schedule": "trace.schedule_view",
    "Target": "target",
    "TilewrightError": "error",
    "Trace": "trace",
    "TuneResult": "tuning.result_view",
    "TuningDatabase": "database",
    "TuningRun": "tuning",
}
"""The module of this package that has the view of a class, and the function if not `view`."""


def view_of(value: object) -> h.Node:
    """The picture of a value, without the style. Raises `TypeError` for a kind that has none."""
    for base in type(value).__mro__:
        home = _HOMES.get(base.__name__)
        if home is not None:
            module, _, function = home.partition(".")
            view: View = getattr(import_module(f".{module}", __package__), function or "view")
            return view(value)
    raise TypeError(f"there is no view of a {type(value).__name__}")


def html_of(value: object) -> str:
    """The picture of a value as HTML that a notebook shows: one element, with its style."""
    return fragment(view_of(value))

"""What is said of several kernels together: where schedules come from, and what is lacking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ..base.errors import NotTunedError
from ..base.text import count
from ..runtime.module import Origin
from ..target import Target
from .choose import POLICIES, Choices, permitted

_CERTAIN = ("schedule", *POLICIES)
"""Kinds of origins, the most certain one first."""


def by_kind(origins: Sequence[Origin]) -> str:
    """`3 kernels: 2 record, 1 model`."""
    kinds = Counter(origin.kind for origin in origins)
    told = ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds, key=_CERTAIN.index))
    return f"{count(len(origins), 'kernel')}: {told}" if told else "no kernels"


def together(origins: Iterable[Origin]) -> Origin:
    """The least certain origin of a kernel, and how many are of each kind."""
    origins = [*origins]
    last = max(origins, key=lambda o: _CERTAIN.index(o.kind), default=Origin("schedule"))
    return Origin(last.kind, detail=by_kind(origins))


def not_tuned(
    name: str, target: Target, allow: Sequence[str], again: Sequence[Choices], first: NotTunedError
) -> NotTunedError:
    """The error that lists all kernels without a permitted schedule; `first` is that of one.

    `again` are new choices of all kernels of the program or model of that name.
    """
    lacking = []
    for choices in again:
        try:
            next(choices)
        except NotTunedError:
            lacking.append(choices.name)
    explanation = first.data["explanation"]
    return NotTunedError(
        "allow={0} permits no schedule on {1} for {2} of {3} of {4}: {5}{6}",
        [*allow], str(target), len(lacking), count(len(again), "kernel"), name, ", ".join(lacking),
        "\nno database was given" if explanation is None else f"\nof the first:\n{explanation}",
        hint="tune it into the database, tw.tune(..., database=...), or allow "
        f"{permitted(explanation)!r}",
        kernels=lacking, **first.data,
    )  # fmt: skip

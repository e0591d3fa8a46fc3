"""Finals: measurements that a session took interleaved, and what they outdate.

Two or more measurements are *finals* if they ran, and their session, program, target, toolchain and
`created` are the same. They remain finals whatever is measured later, and by whom. A failure is no
finalist, whatever it shares its moment with.

The rule of finals, which every lookup, view, list and deletion follows:

- The last finals of a session *outdate* all that the session measured before them. What is outdated
  competes with nothing any more: it lost to the finalists, and must not win later because the
  machine was slower during the finals, or because a finalist was measured again elsewhere.
- Finals of which a lookup may use fewer than two, since checks failed or errors are not tolerated,
  compared nothing, and outdate nothing for it. Whether they were superseded does not matter.
- Of each finals only the choice competes (`interleaved_comparison`), among the finalists that were
  not measured again later. Another finalist may have a shorter time, of other rounds.
- What a session measures after its finals competes by its own time.

With layers, the finals in any of them outdate what is in all of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from operator import attrgetter

from sqlalchemy import ColumnElement, FromClause, select

from .tables import measurement
from .values import Measurement, Outcome

FINALS = ("session", "workload", "target", "toolchain", "created")
"""The columns in which all measurements of one finals agree."""
_values = attrgetter(*FINALS)


def finals_key(measured: Measurement) -> tuple[Hashable, ...]:
    """What the measurements of one finals have in common; two that ran and agree are finals."""
    return tuple(_values(measured))


def of_finals(keys: Iterable[tuple[Hashable, str]]) -> list[bool]:
    """Whether each of some measurements is of finals: given are its `FINALS` and its outcome."""
    rows = list(keys)
    counts: dict[Hashable, int] = {}
    for key, outcome in rows:
        counts[key] = counts.get(key, 0) + (outcome == Outcome.OK)
    return [outcome == Outcome.OK and counts[key] > 1 for key, outcome in rows]


def in_finals(of: FromClause) -> ColumnElement[bool]:
    """Whether a measurement is of finals, as a condition."""
    other = measurement.alias()
    return (of.c.outcome == Outcome.OK) & (
        select(other.c.id)
        .where(
            *(other.c[name] == of.c[name] for name in FINALS),
            other.c.outcome == Outcome.OK,
            other.c.id != of.c.id,
        )
        .exists()
    )

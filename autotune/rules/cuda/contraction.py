"""Contractions: a thread for each result."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from ..access_patterns import spatial
from ..draft import Draft
from ..rule import Group, Variant
from .by_thread import schedule_results


def contraction_variants(_draft: Draft, group: Group) -> Iterator[Variant]:
    """A thread for each result."""
    if spatial(group.members[0]):
        yield Variant.of("by_thread", functools.partial(schedule_results, labels=group.labels))
    yield Variant.of("default", default=True)

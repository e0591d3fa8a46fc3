"""The picture of a profile of a model: the time of each kernel."""

from __future__ import annotations

import htpy as h

from ...base.durations import format_seconds
from ...runtime.profile import Profile
from .bars import bars
from .evidence import table_of
from .facts import facts
from .page import text

_BARS = 20
"""Kernels with a bar, the slowest ones."""


def view(profile: Profile) -> h.Node:
    """The picture of a profile."""
    columns, rows = profile.table()
    slowest = [(kernel.operators, kernel.seconds) for kernel in profile.kernels[:_BARS]]
    return h.section(".result")[
        facts({name: text(value) for name, value in profile.facts().items()}),
        bars("The slowest kernels", slowest, head=("kernel", "time"), write=format_seconds),
        h.details[h.summary["All kernels"], table_of("Kernels", columns, rows)],
    ]

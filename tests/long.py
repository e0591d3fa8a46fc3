"""Parameters that take long: the first of them in `make test`, the others in `make test-long`."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from _pytest.mark.structures import ParameterSet


def first_of(values: Iterable[object], count: int = 1) -> list[ParameterSet]:
    """The values as parameters of a test; those after the first `count` are marked `long`."""
    return [
        pytest.param(value, marks=pytest.mark.long if n >= count else ())
        for n, value in enumerate(values)
    ]

"""Errors by their type and by what they name, whatever their sentences are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from tilewright import TilewrightError

E = TypeVar("E", bound=TilewrightError)


@contextmanager
def refused(kind: type[E], *named: object) -> Iterator[pytest.ExceptionInfo[E]]:
    """Expect an error of this kind, with all of `named` among its arguments (as texts)."""
    with pytest.raises(kind) as caught:
        yield caught
    found = texts(caught.value)
    missing = [str(value) for value in named if str(value) not in found]
    assert not missing, f"{caught.value!r} names {found}, expected also {missing}"


def texts(error: TilewrightError) -> list[str]:
    """What an error names, and the errors that it is about."""
    found = []
    for argument in error.arguments:
        if isinstance(argument, TilewrightError):
            found += texts(argument)
        found.append(TilewrightError("{0}", argument).first_line)
    return found

"""Facts about programs that are worked out once while many steps ask for them.

Most questions of a step are those of the step before, and of other schedules of the program: the
same expressions under the same ranges. Facts are kept while `keeping_facts` lasts: at least for a
step, for a whole trace that is replayed, and for all sketches of a program.

A kept fact must not depend on what was asked before. A `Simplifier` writes equal expressions as the
first of them that it met, so that a kept one answers as `Truths`, without expressions that could
become part of a program.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from ..tir.bounds import truth
from ..tir.ir import Dim, Expr
from ..tir.polynomial import Ranges
from ..tir.simplify import Simplifier

T = TypeVar("T")
MOST_FACTS = 2000
"""Beyond it all are forgotten: programs of very many nests would fill the memory."""

_facts: ContextVar[dict[Hashable, Any] | None] = ContextVar("tilewright_facts", default=None)


@contextmanager
def keeping_facts() -> Iterator[None]:
    """Keep facts while the context lasts, or while one around it does. Also a decorator."""
    known = _facts.get()
    token = _facts.set({} if known is None else known)
    try:
        yield
    finally:
        _facts.reset(token)


def fact(key: Hashable, find: Callable[[], T]) -> T:
    """The fact of a key, which `find` returns if it is not known yet."""
    known = _facts.get()
    if known is None:
        return find()
    if key not in known:
        value = find()
        if len(known) >= MOST_FACTS:
            known.clear()
        known[key] = value
    found: T = known[key]
    return found


def under(ranges: Ranges) -> Hashable:
    """The part of a key that stands for `ranges`. Their ends count by identity: see `last`."""
    return frozenset(ranges.items())


def last(extent: Dim) -> Dim:
    """The last value of a loop, one object for all that ask."""
    return extent - 1 if isinstance(extent, int) else fact((last, extent), lambda: extent - 1)


class Truths:
    """Whether conditions hold, decided by a simplifier that is asked for nothing else."""

    __slots__ = ("_simplifier",)

    def __init__(self, ranges: Ranges) -> None:
        self._simplifier = Simplifier(ranges)

    def __call__(self, condition: Expr) -> bool | None:
        """See `prove`."""
        return truth(self._simplifier, condition)


def truths(ranges: Ranges) -> Truths:
    """The truths under `ranges`."""
    return fact((truths, under(ranges)), lambda: Truths(dict(ranges)))

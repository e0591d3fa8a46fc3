"""Instructions that tests add from outside of the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.tir import instruction_set
from tilewright.tir.instruction import Instruction


@contextmanager
def forgotten() -> Iterator[None]:
    """Those of the package alone are known at first; what is registered inside is gone afterwards.

    Other tests register some as well, which child processes do not know.
    """
    known = dict(instruction_set._known)
    _know({name: i for name, i in known.items() if i.home is None})
    try:
        yield
    finally:
        _know(known)


def _know(instructions: dict[str, Instruction]) -> None:
    instruction_set._known.clear()
    instruction_set._known.update(instructions)
    instruction_set.forget_queries()

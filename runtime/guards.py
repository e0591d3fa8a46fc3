"""What a model demands of indices that data decide, and the error of a call that breaks it.

The entry of a model compares indices with their limits before the kernel that uses them is called.
It ends with the status `FIRST_GUARD` and the number of the guard where one is outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from ..base import dtypes
from ..base.checked_json import Such
from ..base.errors import ArtifactError, GuardError
from .signature import Argument, Signature

FIRST_GUARD = 16
Number = Annotated[int, Such("a number from 0 on", lambda n: n >= 0)]


@dataclass(frozen=True)
class Guard:
    """Indices `data` have to be `least` to `greatest`, both inclusive.

    They are read by `node`, as its operand `data.name`, at an offset in bytes of the argument of
    that number, or of the workspace.
    """

    node: str
    data: Argument
    argument: Number | None
    offset: Number
    least: int
    greatest: int
    column: Number | None = None
    """The place in the last dimension of the operand that all of them are at."""
    broken: str | None = None
    """What the error says, if not the range: see `broken_text`."""

    @property
    def text(self) -> str:
        if self.broken is not None:
            return f"{self.node}: {self.broken}"
        return f"{self.data.name} of {self.node}: expected {self.least} to {self.greatest}"

    def error(self, memory: np.ndarray[Any, Any]) -> GuardError:
        """The error of a call that ended with its status, and left these bytes there."""
        found = np.ndarray(
            self.data.shape, dtypes.to_numpy(self.data.dtype), memory.reshape(-1).view(np.uint8),
            self.offset, [n * self.data.itemsize for n in self.data.element_strides],
        )  # fmt: skip
        outside = (found < self.least) | (found > self.greatest)
        place = tuple(int(n) for n in np.unravel_index(int(outside.argmax()), outside.shape))
        index = int(found[place])
        place += () if self.column is None else (self.column,)
        if self.broken is None:
            text = f"{self.text}, found {index} at {list(place)}"
        else:
            text = broken_text(self.broken, found)
        return GuardError(
            "{0}", text,
            node=self.node, operand=self.data.name, index=index, place=place,
            least=self.least, greatest=self.greatest,
        )  # fmt: skip


def broken_text(text: str, violations: np.ndarray[Any, Any]) -> str:
    """What is said of the first of these numbers that is not 0.

    In the text, `{index}` stands for that number, and `{place}` for its place among them all.
    """
    flat = violations.reshape(-1)
    place = int((flat != 0).argmax())
    return text.replace("{index}", str(flat[place])).replace("{place}", str(place))


def check_guards(signature: Signature, guards: Sequence[Guard]) -> None:
    """Raise `ArtifactError` for a guard of memory that a call does not have."""
    for guard in guards:
        size = signature.workspace_bytes
        if guard.argument is not None:
            known = guard.argument < len(signature.arguments)
            size = signature.arguments[guard.argument].span_bytes if known else -1
        if guard.offset + guard.data.span_bytes > size or not guard.data.size:
            raise ArtifactError("a guard reads what is not there: {0}", guard.text)

"""What a model demands of indices that data decide, and the error of a call that breaks it.

The entry of a model compares indices with their limits before the kernel that uses them is called.
It ends with the status `FIRST_GUARD` and the number of the guard where one is outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

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
    """What the error says, if not the range: see `first_outside`."""

    @property
    def text(self) -> str:
        if self.broken is not None:
            return f"{self.node}: {_filled(self.broken, 'n', 'p')}"
        return f"{self.data.name} of {self.node}: expected {self.least} to {self.greatest}"

    def error(self, memory: np.ndarray[Any, Any]) -> GuardError:
        """The error of a call that ended with its status, and left these bytes there."""
        found = np.ndarray(
            self.data.shape, dtypes.to_numpy(self.data.dtype), memory.reshape(-1).view(np.uint8),
            self.offset, [n * self.data.itemsize for n in self.data.element_strides],
        )  # fmt: skip
        outside = first_outside(found, self.least, self.greatest, self.column, self.broken)
        assert outside is not None, "the call ended with its status"
        text = outside.text if self.broken is not None else f"{self.text}, {outside.text}"
        return GuardError(
            "{0}", text,
            node=self.node, operand=self.data.name, index=outside.number, place=outside.place,
            least=self.least, greatest=self.greatest,
        )  # fmt: skip


class Outside(NamedTuple):
    """A number that is not within limits, its place in the operand, and what is said of it."""

    number: int
    place: tuple[int, ...]
    text: str


def first_outside(
    data: np.ndarray[Any, Any], least: int, greatest: int, column: int | None, broken: str | None
) -> Outside | None:
    """The first of `data`, integers at one column of an operand, that is not within limits.

    What is said is `broken`, if it is given. In it, `{index}` stands for that number, and `{place}`
    for its place among them all.
    """
    outside = (data < least) | (data > greatest)
    if not outside.any():
        return None
    flat = int(outside.argmax())
    place = tuple(int(n) for n in np.unravel_index(flat, outside.shape))
    number = int(data[place])
    place += () if column is None else (column,)
    if broken is None:
        return Outside(number, place, f"found {number} at {list(place)}")
    return Outside(number, place, _filled(broken, number, flat))


def _filled(broken: str, number: object, place: object) -> str:
    return broken.replace("{index}", str(number)).replace("{place}", str(place))


def check_guards(signature: Signature, guards: Sequence[Guard]) -> None:
    """Raise `ArtifactError` for a guard of memory that a call does not have."""
    for guard in guards:
        size = signature.workspace_bytes
        if guard.argument is not None:
            known = guard.argument < len(signature.arguments)
            size = signature.arguments[guard.argument].span_bytes if known else -1
        if guard.offset + guard.data.span_bytes > size or not guard.data.size:
            raise ArtifactError("a guard reads what is not there: {0}", guard.text)

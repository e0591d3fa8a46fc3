"""What is of one process, such as loaded code and open files: shared by copies, never pickled."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Self

from .errors import TilewrightError


class InProcess:
    """A base of values that other processes cannot be given.

    A copy is the value itself. To pickle it raises an error of the kind that its class names, with
    what to do instead: pickles are sent to other processes and kept, where neither addresses nor
    connections hold.
    """

    _unpicklable: ClassVar[tuple[type[TilewrightError], str]]

    def __init_subclass__(
        cls, *, error: type[TilewrightError] | None = None, instead: str = "", **more: Any
    ) -> None:
        super().__init_subclass__(**more)
        if error is not None:
            cls._unpicklable = error, instead

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        error, instead = self._unpicklable
        raise error(
            "a {0} belongs to its process and cannot be pickled", type(self).__name__, hint=instead
        )

"""Every error that Tilewright raises on purpose.

An error is cheap to raise: it keeps a template and its arguments, and formats them only when
somebody reads it. It carries data, so that a notebook or a program can show it in its own way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Text: TypeAlias = str | Callable[[], str | None]
"""A text, or what makes it when it is read (`None` where there is nothing to say)."""


class TilewrightError(Exception):
    """Base of all errors of this package.

    `message` is a `str.format` template for the positional `arguments`; a callable argument is
    called for its text when the error is read. `hint` says what to do about it, `example` shows a
    case of it where one is found. Further keyword arguments are kept in `data`. `detail`, set by
    whoever knows more of the circumstances, gives lines that are shown below.
    """

    detail: Callable[[], str] | None = None

    def __init__(
        self,
        message: str,
        *arguments: Any,
        hint: Text | None = None,
        example: Text | None = None,
        **data: Any,
    ) -> None:
        super().__init__(message, *arguments)
        self.message = message
        self.arguments = arguments
        self.hint = hint
        self.example = example
        self.data = data

    def __str__(self) -> str:
        text = self.message
        if self.arguments:
            text = text.format(*(a() if callable(a) else a for a in self.arguments))
        for name, part in (("example", self.example), ("hint", self.hint)):
            more = part() if callable(part) else part
            if more is not None:
                text += f"\n  {name}: {more}"
        return text if self.detail is None else f"{text}\n{self.detail()}"


class IRError(TilewrightError):
    """A node or expression that has no meaning: mismatched dtypes, a wrong number of indices."""


class ParseError(TilewrightError):
    """Program text that does not parse; `data` has `line` and `column` where they are known."""


class VerifyError(TilewrightError):
    """A program that breaks a rule of the IR: out of bounds, uninitialised, carried dependence."""


class ScheduleError(TilewrightError):
    """A schedule step that was refused because a condition for its safety does not hold."""


class TargetError(TilewrightError):
    """A target text that is unknown, malformed, or asks for what this machine does not have."""


class BuildError(TilewrightError):
    """Lowering or compiling failed."""


class NotTunedError(BuildError):
    """The policy of `build` leaves no way to choose a schedule; carries the lookup's reasons."""


class ArgumentError(TilewrightError):
    """An argument that a kernel was not compiled for: its shape, dtype, strides or device."""


class KernelError(TilewrightError):
    """A compiled kernel that could not finish: no memory for its internal buffers."""


class ArtifactError(TilewrightError):
    """A compiled artifact that is damaged, of another version, or for another machine."""


class DatabaseError(TilewrightError):
    """The tuning database is missing, locked, read-only, damaged or of a newer version."""


class TuningError(TilewrightError):
    """A tuning session that cannot start or go on."""

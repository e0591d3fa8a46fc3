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

    def _text(self) -> str:
        if not self.arguments:
            return self.message
        return self.message.format(*(a() if callable(a) else a for a in self.arguments))

    def __str__(self) -> str:
        text = self._text()
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
    """A schedule step that was refused because a condition for its safety does not hold.

    What its text says can be asked for one by one; what is not known is `None` or empty.
    """

    @property
    def condition(self) -> str:
        """What does not hold: the first line of the text."""
        return self._text()

    @property
    def found(self) -> Any:
        """The value that does not meet the condition."""
        return _value(self.data.get("found"))

    @property
    def expected(self) -> Any:
        """What the condition asks for instead."""
        return _value(self.data.get("expected"))

    @property
    def place(self) -> Any:
        """The loop or block that is marked in the program."""
        return self.data.get("at")

    @property
    def primitive(self) -> str | None:
        """The name of the primitive that was asked for."""
        return self.data.get("primitive")

    @property
    def given(self) -> dict[str, Any]:
        """What it was given, by name, as a trace holds it."""
        return dict(self.data.get("given", ()))

    @property
    def step(self) -> int | None:
        """The number of the step in its schedule."""
        return self.data.get("step")

    @property
    def func(self) -> Any:
        """The program that the step was asked of."""
        return self.data.get("func")

    @property
    def alternatives(self) -> list[Any]:
        """What would be legal in place of what was given: numbers, loops, names."""
        return list(_value(self.data.get("alternatives")) or ())

    def as_data(self) -> dict[str, Any]:
        """All of it as JSON data; loops and blocks by their names."""
        hint, example = (_value(text) for text in (self.hint, self.example))
        return {
            "condition": self.condition,
            "found": _plain(self.found),
            "expected": _plain(self.expected),
            "place": _plain(self.place),
            "primitive": self.primitive,
            "given": {name: _plain(value) for name, value in self.given.items()},
            "step": self.step,
            "alternatives": [_plain(a) for a in self.alternatives],
            "example": example,
            "hint": hint,
            "program": _value(self.data.get("program")),
            "ended": _value(self.data.get("ended")),
        }


def _value(of: Any) -> Any:
    return of() if callable(of) else of


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return str(getattr(value, "name", value))


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

"""The exceptions that Tilewright raises.

Raising is cheap: an error keeps a template and its arguments, and formats them only when it is
read. It also carries its parts as data, so that a notebook or a program can render them itself.
Errors pickle, so that they leave pools of processes: with their texts, and their data as JSON.
"""

from __future__ import annotations

import errno
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from string import Formatter
from typing import Any, ParamSpec, TypeAlias, TypeVar

from .display import html, traceback_lines
from .text import masked

P = ParamSpec("P")
R = TypeVar("R")

Text: TypeAlias = str | Callable[[], str | None]
"""A text, or what makes it when it is read (`None` if there is nothing to say)."""


_SHORT = 4
"""Letters of a word that others are close to by chance."""


class _Formatter(Formatter):
    """Calls what makes a text. With a conversion, the value itself is shown, whatever it is.

    A value may be anything that a user passed. Where its text raises, that is said in its place.
    """

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        try:
            if conversion is None:
                return _value(value)
            return super().convert_field(value, conversion)
        except Exception as error:  # noqa: BLE001
            return _no_text(value, error)

    def format_field(self, value: Any, format_spec: str) -> Any:
        try:
            if isinstance(value, TilewrightError):
                return value._text()  # the other lines come after those of the whole
            return super().format_field(value, format_spec)
        except Exception as error:  # noqa: BLE001
            return _no_text(value, error)


def _no_text(value: Any, error: Exception) -> str:
    return f"<a {type(value).__name__} whose text raises {type(error).__name__}>"


_FORMATTER = _Formatter()


class TilewrightError(Exception):
    """Base of all errors of this package.

    `message` is a `str.format` template for the positional `arguments`; a callable argument is
    called when the error is read, except in a field with a conversion such as `{0!r}`. `hint` says
    what to do, `example` shows a case in which it occurs. Further keyword arguments are kept in
    `data`. `detail`, set by callers that know the context, returns more lines, which are shown
    below.
    """

    detail: Callable[[Any], str] | None = None

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
            return masked(self.message)
        return masked(_FORMATTER.vformat(self.message, self.arguments, {}))

    def __str__(self) -> str:
        text = self._text()
        for name in ("example", "hint"):
            more = self._joined(name)
            if more is not None:
                text += f"\n  {name}: {more}"
        details = self._details()
        return text if details is None else f"{text}\n{details}"

    _repr_html_ = html
    _render_traceback_ = traceback_lines

    @property
    def first_line(self) -> str:
        """The first line of its text."""
        return self._text().partition("\n")[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.first_line!r})"

    def _joined(self, name: str) -> str | None:
        """The example or hint, with those of the errors that its text has in it."""
        own = _value(getattr(self, name))
        inner = (e._joined(name) for e in self._errors())
        parts = dict.fromkeys(masked(str(part)) for part in (own, *inner) if part is not None)
        return "; ".join(parts) or None

    def _details(self) -> str | None:
        own = None if self.detail is None else self.detail(self)
        parts = (own, *(e._details() for e in self._errors()))
        return "\n".join(dict.fromkeys(part for part in parts if part)) or None

    def _errors(self) -> list[TilewrightError]:
        """The errors that its text has in it."""
        return [a for a in self.arguments if isinstance(a, TilewrightError)]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as texts and plain data: functions and programs do not cross processes."""
        text = self._text()
        data = {name: _plain(value) for name, value in self._all_data().items()}
        details = self._details()
        detail = None if details is None else partial(_given_text, details)
        state = {name: _plain(value) for name, value in vars(self).items()}
        state |= {name: self._joined(name) for name in ("example", "hint")}
        state |= {"message": text, "arguments": (), "data": data, "detail": detail}
        return _restored, (type(self), text), state

    def _all_data(self) -> Mapping[str, Any]:
        return self.data


def _restored(kind: type[TilewrightError], text: str) -> TilewrightError:
    """An error whose state is set next: `MemoryError.__new__` does not make kinds of several bases,
    and libraries that pickle tracebacks call that of the kind."""
    return Exception.__new__(kind, text)


class IRError(TilewrightError):
    """A node or expression without a meaning: mismatched dtypes, a wrong number of indices."""


class ParseError(TilewrightError):
    """Program text that does not parse; `data` has `line` and `column` if they are known."""


class VerifyError(TilewrightError):
    """A program that breaks a rule of the IR: out of bounds, uninitialised, carried dependence."""


class ScheduleError(TilewrightError):
    """A refused schedule step: a condition for its safety does not hold.

    The parts of its text are properties; unknown ones are `None` or empty.
    """

    about: Callable[[], Mapping[str, Any]] | None = None
    """More for `data`, set by whoever knows it; asked for when the first part is read."""

    def _text(self) -> str:
        if not self.arguments:
            return self.message
        names = self._part("names") or {}
        arguments = tuple([names.get(id(getattr(a, "handle", a)), a) for a in self.arguments])
        return _FORMATTER.vformat(self.message, arguments, {})

    @property
    def condition(self) -> str:
        """The condition that does not hold: the first line of the text."""
        return self._text()

    @property
    def found(self) -> Any:
        """The value that fails the condition."""
        return self._part("found")

    @property
    def expected(self) -> Any:
        """The value that the condition expects instead."""
        return self._part("expected")

    @property
    def place(self) -> Any:
        """The loop or block that is marked in the program."""
        return self._part("at")

    @property
    def primitive(self) -> str | None:
        """The name of the primitive that was asked for."""
        return self._part("primitive")  # type: ignore[no-any-return]

    @property
    def asked(self) -> str | None:
        """The step as Python text."""
        return self._part("asked")  # type: ignore[no-any-return]

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of the step by name, as a trace holds them."""
        return dict(self._part("given") or ())

    @property
    def handles(self) -> dict[str, str]:
        """The names of the loops and blocks in `given`, and the sampled integers."""
        return dict(self._part("handles") or ())

    @property
    def step(self) -> int | None:
        """The number of the step in its schedule."""
        return self._part("step")  # type: ignore[no-any-return]

    @property
    def func(self) -> Any:
        """The program to which the step was applied."""
        return self._part("func")

    @property
    def program(self) -> str | None:
        """Its text, with the place marked."""
        return self._part("program")  # type: ignore[no-any-return]

    @property
    def ended(self) -> str | None:
        """For an expired handle: where it was created, and which step consumed it."""
        return self._part("ended")  # type: ignore[no-any-return]

    @property
    def alternatives(self) -> list[Any]:
        """Legal values in place of the given one: numbers, loops, names."""
        return list(self._part("alternatives") or ())

    def as_data(self) -> dict[str, Any]:
        """All of it as JSON data; loops and blocks by their names."""
        return {
            "condition": self.condition,
            "found": _plain(self.found),
            "expected": _plain(self.expected),
            "place": _plain(self.place),
            "primitive": self.primitive,
            "asked": self.asked,
            "given": {name: _plain(value) for name, value in self.given.items()},
            "handles": self.handles,
            "step": self.step,
            "alternatives": [_plain(a) for a in self.alternatives],
            "example": _value(self.example),
            "hint": _value(self.hint),
            "program": self.program,
            "ended": self.ended,
        }

    def _part(self, name: str) -> Any:
        return _value(self._all_data().get(name))

    def _all_data(self) -> Mapping[str, Any]:
        if self.about is not None:
            about, self.about = self.about, None
            self.data = {**about(), **self.data}
        return self.data


@contextmanager
def told_of(subject: Callable[[], str]) -> Iterator[None]:
    """Add a line to errors that are raised inside: which of several things they are of."""
    try:
        yield
    except TilewrightError as error:
        before = error.detail

        def detail(found: TilewrightError) -> str:
            return f"  in: {subject()}" + ("" if before is None else f"\n{before(found)}")

        error.detail = detail
        raise


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """The words of `known` that are close to `word`, the closest first, three at most.

    Those that differ in case alone come first, then those of which it is a part (`inline` of
    `compute_inline`). Of short words many are close by chance: those begin alike and differ in
    length by one at most. Private names are for those who write one.
    """
    from difflib import get_close_matches

    names = [n for n in dict.fromkeys(known) if word.startswith("_") or not n.startswith("_")]
    short = len(word) <= _SHORT
    close = [
        name
        for name in get_close_matches(word, names, n=3)
        if not short or (name[:1] == word[:1] and abs(len(name) - len(word)) <= 1)
    ]
    same = [n for n in names if n.lower() == word.lower()]
    close.sort(key=lambda n: word not in n.split("_"))
    return list(dict.fromkeys([*same, *close]))[:3]


def similar(word: str, known: Iterable[str]) -> str | None:
    """The hint for a misspelt word: the words of `known` that are close to it, or `None`."""
    near = nearest(word, known)
    return f"did you mean {' or '.join(near)}?" if near else None


def checked_call(
    error: type[TilewrightError], hint: str | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: a call with arguments that do not fit raises `error`, not `TypeError`.

    The hint for a keyword that is unknown is what `hints` say of it, or the nearest name, else
    `hint`; the text then has the names that there are.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except TypeError:  # of the call, or of something that the function does
                bind(parameters, args, kwargs, error, function.__name__, hint)
                raise

        return call

    return decorated


@contextmanager
def system_errors(kind: type[TilewrightError], doing: str) -> Iterator[None]:
    """Raise `kind` for an `OSError` that is raised inside. `doing` is a gerund: what fails.

    Modules are imported where they are first used, so this may happen anywhere.
    """
    try:
        yield
    except OSError as error:
        raise kind("{0} failed: {1}", doing, error, hint=open_files_hint(error)) from error


_OPEN_FILES = 1024
"""The usual limit of open files of a process."""
STAGES_HINT = "compute parts of a long expression in stages of their own"


@contextmanager
def depth_errors(kind: type[TilewrightError], subject: str, done: str) -> Iterator[None]:
    """Raise `kind` where what is done to `subject` inside recurses too deeply.

    `done` is a participle. Trees of expressions and statements are visited by recursion.
    """
    try:
        yield
    except RecursionError as error:
        raise kind("{0} is nested too deeply to be {1}", subject, done, hint=STAGES_HINT) from error


def open_files_hint(error: OSError) -> str | None:
    """What to do where the system lets no more files be opened; `None` for other errors."""
    if error.errno == errno.ENFILE:
        return "all files that this system can have open are: end programs that have many"
    if error.errno != errno.EMFILE:
        return None
    limit = os.sysconf("SC_OPEN_MAX")
    more = max(_OPEN_FILES, 2 * limit)
    return f"close files, or raise the limit of {limit} open files: ulimit -n {more}"


def no_files_hint() -> str | None:
    """What to do if no file can be opened now, for errors that do not say that this is why."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return open_files_hint(error)
    return None


def bind(
    signature: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    error: type[TilewrightError],
    name: str,
    hint: str | None = None,
) -> dict[str, Any]:
    """The arguments of a call of the function `name` by parameter; raises `error` unless they fit.

    See `checked_call`.
    """
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as found:
        known = list(signature.parameters)
        unknown = next((word for word in kwargs if word not in known), None)
        said = hint
        if unknown is not None:
            from .hints import instead

            said = instead(name, unknown) or similar(unknown, known) or hint
        text = str(found)
        if unknown is not None:
            text = f"it takes no argument {unknown!r}"
            if similar(unknown, known) is None:
                text += f"; it takes {', '.join(known)}"
        elif len(args) > len(by_position := _by_position(signature)):
            text = f"found {len(args)} arguments; expected at most {len(by_position)}"
            if len(by_position) < len(known):
                text += f" ({', '.join(by_position)}), and others by name"
        raise error("{0}: {1}", name, text, hint=said) from None


def _by_position(signature: inspect.Signature) -> list[str]:
    """The parameters whose arguments need no name."""
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in signature.parameters.values() if p.kind not in by_name]


def _value(of: Any) -> Any:
    """What a function returns; of a value that is no function, itself."""
    return of() if inspect.isroutine(of) or isinstance(of, partial) else of


def _plain(value: Any) -> Any:
    """JSON data that say what a value is, whatever it is."""
    try:
        value = _value(value)
        for kind in (bool, int, float, str):
            if isinstance(value, kind):
                return kind(value)  # without what a subclass adds
        if value is None:
            return None
        if isinstance(value, (tuple, list)):
            return [_plain(v) for v in value]
        if isinstance(value, Mapping):
            return {str(key): _plain(v) for key, v in value.items()}
        return str(getattr(value, "name", value))
    except Exception as error:  # noqa: BLE001
        return _no_text(value, error)


def _given_text(text: str, error: TilewrightError) -> str:  # noqa: ARG001
    """A `detail` that is known."""
    return text


class TargetError(TilewrightError):
    """A target that is unknown, malformed, or needs what this machine does not have."""


class BuildError(TilewrightError):
    """Lowering or compiling failed."""


class NotTunedError(BuildError):
    """No policy that `build` permits has a schedule; carries the reasons of the lookup."""


class LockError(BuildError):
    """A lock file that cannot be read or was edited, or schedules that it locks and that changed.

    `data["changes"]` lists all that changed.
    """


class ArgumentError(TilewrightError):
    """An argument that a kernel was not compiled for: its shape, dtype, strides or device."""


class KernelError(TilewrightError):
    """A compiled kernel that could not run."""


class DeviceError(KernelError):
    """A device that refuses a kernel, or that has failed."""

    @property
    def code(self) -> int | None:
        """The number that the device's driver has for the error; `None` if it was asked nothing."""
        return self.data.get("code")

    @property
    def sticky(self) -> bool:
        """Whether this process cannot use the device any more."""
        return bool(self.data.get("sticky"))


class OutOfMemoryError(KernelError, MemoryError):
    """There is no memory for the workspace of a kernel, or for an array that a call takes."""


class ArtifactError(TilewrightError):
    """A compiled artifact that is damaged, of another version, or for another machine."""


class TrustError(ArtifactError):
    """An artifact that no accepted key has signed as it is, or a key that cannot be used."""


class ModelError(TilewrightError):
    """A model or graph is malformed, or asks for what its operators do not take."""


class UnsupportedError(ModelError):
    """A model needs what is not supported; `data["reasons"]` lists all of it."""


class GuardError(KernelError):
    """Data that a model computed is outside of what it was built for, an index of its range say."""


class ProviderError(TilewrightError):
    """A provider of parts of models that raises, or does not what it says; `data` names it."""


class DatabaseError(TilewrightError):
    """The tuning database is missing, locked, read-only, damaged or of a newer version."""


class TuningError(TilewrightError):
    """A tuning session that cannot start or continue."""


class ClusterError(TuningError):
    """A cluster without a scheduler, or without workers that measure; `data` names these."""

"""Targets, as all kinds of them are: a text form, classes of equals, and the registry of kinds.

A target has a text form, `cpu -mcpu=cascadelake -threads=1`: its kind and the options that the kind
takes. Two targets are equal if their texts are. Facts that the text does not spell (caches, for
instance) are fields of the kind's record that do not compare.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar

from ..base.display import html
from ..base.errors import TargetError, similar
from ..base.hints import KINDS, OPTIONS

Fact: TypeAlias = str | int | list[str] | None
"""A fact of a target, as JSON has it."""
_MAX_TEXT = 4096
_SHOWN = 80
"""Characters of a wrong value that an error shows."""


class _Named(ABCMeta):
    """`Target(text)` is the target that the text names."""

    def __call__(cls: type[Any], *texts: Any, **fields: Any) -> Any:
        if cls is Target and (len(texts) != 1 or fields):
            kind = texts[0] if texts else fields.pop("kind", "cpu")
            raise TargetError(
                "Target: expected one text such as `cpu -threads=1`, found {0}",
                f"{len(texts)} arguments" if not fields else f"options {', '.join(fields)}",
                hint=f"options are words of the text: {_text_of(kind, fields)}",
            )
        if len(texts) != 1 or fields:
            return super().__call__(*texts, **fields)
        return cls.of(texts[0] if isinstance(texts[0], Target) else _parse(texts[0]))


@dataclass(frozen=True, kw_only=True)
class Target(metaclass=_Named):
    """A place where kernels run. Each kind of target is a subclass, the record of its facts.

    `Target("cpu -threads=1")` is the target that a text names; type checkers want `parse` for it.

    `kind` is the first word of its text, `option_names` are the options that may follow, and
    `feature_names` the features that targets of the kind may have.

    `threads` is the number of this machine's processors that a call keeps busy, and 0 as long as
    that is left to the machine. `features` are those that code may use.
    """

    kind: ClassVar[str]
    option_names: ClassVar[tuple[str, ...]]
    feature_names: ClassVar[Collection[str]] = ()

    threads: int = 1
    features: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """The target that a text such as `cpu -mcpu=cascadelake -threads=1` names.

        Raises `TargetError` for an unknown kind, option, processor or feature, and where the record
        that is asked is not the kind's.
        """
        return cls.of(_parse(text))

    @classmethod
    @abstractmethod
    def from_options(cls, options: Mapping[str, str], text: str) -> Self:
        """The target of options by name. `text` is all of it, for errors. Raises `TargetError`."""

    @classmethod
    def option_of(cls, name: str) -> str | None:
        """The option that says what a name alone means: `-mcpu=znver4` of `znver4`.

        `None` where it is no name of this kind.
        """
        del name
        return None

    @classmethod
    def option_hint(cls, word: str) -> str | None:
        """The hint for a word that is no option: the options that are close to it."""
        name, equals, value = word.lstrip("-").partition("=")
        own = OPTIONS.get(name.replace("_", "-"))
        if own in cls.option_names:
            return f"write -{own}{equals or '='}{value}"
        meant = None if equals else cls.option_of(name)
        if meant is not None:
            return f"did you mean {meant}?"
        return similar(f"-{name}=", [f"-{option}=" for option in cls.option_names])

    @classmethod
    def of(cls, target: Target) -> Self:
        """`target`, which has to be of this kind. Raises `TargetError` where it is not."""
        if not isinstance(target, cls):
            raise TargetError("expected a target of kind {0}, found {1}", cls.kind, target)
        return target

    @abstractmethod
    def options(self) -> Iterator[str]:
        """The words of its text after the kind, in their canonical order."""

    @property
    @abstractmethod
    def resolved(self) -> bool:
        """Whether nothing is left to the machine."""

    @property
    @abstractmethod
    def compat_class(self) -> str:
        """The class of targets with the same legal code: equal texts run each other's code."""

    @property
    @abstractmethod
    def perf_class(self) -> str:
        """The class of targets whose timings are comparable."""

    @property
    @abstractmethod
    def hardware(self) -> dict[str, str]:
        """The names of the hardware, for people and for the records of measurements."""

    @property
    @abstractmethod
    def facts(self) -> dict[str, Fact]:
        """All that is known of it, for people."""

    @property
    def key(self) -> tuple[object, ...]:
        """All its fields, to keep things by that rest on more than its text.

        Equal targets may have other caches and rates, which rules and estimates read.
        """
        return (type(self), *(getattr(self, f.name) for f in fields(self)))

    @property
    def speeds(self) -> dict[str, str]:
        """How fast it does what, for people, where that is known."""
        return {}

    @property
    def vector_bits(self) -> int:
        """The width of its widest vectors in bits."""
        return 0

    @property
    def vector_registers(self) -> int:
        """The number of its vector registers."""
        return 0

    @property
    def cache_bytes(self) -> int:
        """The bytes of data that its caches may keep between calls."""
        return 0

    @property
    def caches(self) -> dict[str, int]:
        """The bytes of the caches that a core reaches, by their names, the nearest first."""
        return {}

    @property
    def bandwidths(self) -> dict[str, float]:
        """Bytes in a second that all its cores read from each memory, the nearest first."""
        return {}

    def memory_for(self, nbytes: int, scope: str) -> str:
        """The nearest memory that holds so many bytes of buffers of a scope, for people."""
        if scope == "register":
            return "registers"
        return next((name for name, size in self.caches.items() if nbytes <= size), "memory")

    def __str__(self) -> str:
        return " ".join([self.kind, *self.options()])

    _repr_html_ = html

    def __repr__(self) -> str:
        return f'Target("{self}")'

    def to_json(self) -> dict[str, Any]:
        """All of it for another process, the facts that its text does not spell included."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        return {"kind": self.kind, "fields": values}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """The target of `to_json`.

        Raises `TargetError` for an unknown kind, and where the record that is asked is not its.
        """
        record = _record_of(told["kind"])
        record.register_facts(told)
        # JSON has no tuples, and fields of a record, which has a hash, are no lists.
        values = {name: _tuples(value) for name, value in told["fields"].items()}
        return cls.of(record.from_fields(values))

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Self:
        """The target of its fields as they are in JSON, sequences as tuples."""
        return cls(**values)

    @classmethod
    def register_facts(cls, told: Mapping[str, Any]) -> None:
        """Register the facts that `to_json` of the kind has beside the fields."""


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


_KINDS: dict[str, type[Target]] = {}
_Record = TypeVar("_Record", bound=type[Target])


def register_kind(record: _Record) -> _Record:
    """Make a kind of target known, by its record. To be used as a decorator.

    The same class defined again, as by a notebook's cell that runs twice, takes the former's place.

    Raises `TargetError` where another record has its `kind`.
    """
    former = _KINDS.get(record.kind, record)
    if not same_definition(former, record):
        raise TargetError(
            "there is a kind of target {0!r} already, {1}.{2}",
            record.kind,
            former.__module__,
            former.__qualname__,
            hint="choose another name",
        )
    _KINDS[record.kind] = record
    return record


def same_definition(one: object, other: object) -> bool:
    """Whether two classes or functions are one, or come from one definition that ran twice."""
    names = [
        (getattr(x, "__module__", None), getattr(x, "__qualname__", None)) for x in (one, other)
    ]
    return one is other or (names[0] == names[1] and None not in names[0])


def registered_kinds() -> Mapping[str, type[Target]]:
    """The kinds of targets that are known, with their records."""
    return MappingProxyType(_KINDS)


def _record_of(kind: str, *options: str) -> type[Target]:
    """The record of a kind. Raises `TargetError` with what the name means, before its options."""
    if kind not in _KINDS:
        meant = ((name, record.option_of(kind)) for name, record in _KINDS.items())
        texts = (" ".join([name, option, *options]) for name, option in meant if option)
        raise TargetError(
            "unknown target kind {0!r}; known: {1}",
            kind,
            ", ".join(_KINDS),
            hint=KINDS.get(kind.partition("/")[0])
            or similar(kind, _KINDS)
            or next((f'write "{text}"' for text in texts), None),
        )
    return _KINDS[kind]


def no_text(found: object) -> TargetError:
    """The error for what is neither a target nor its text."""
    hint = '"cpu" is this machine'
    if isinstance(found, Mapping):
        options = dict(found)
        hint = f"write it as a text: {_text_of(options.pop('kind', 'cpu'), options)}"
    if type(found).__name__ == "TuningDatabase":
        hint = 'a database goes by its name, database=db, after a target: "cpu" is this machine'
    return TargetError(
        "target: expected a text or a tw.Target, found {0}", _shown(found), hint=hint
    )


def _text_of(kind: object, options: Mapping[Any, Any]) -> str:
    """The text of a target of these options, which are spelt as they are elsewhere."""
    words = [_shown(kind, str)]
    for name, value in options.items():
        option = _shown(name, str).replace("_", "-")
        words.append(f"-{OPTIONS.get(option, option)}={_shown(value, str)}")
    return f'"{" ".join(words)}"'


def _shown(value: object, text: Callable[[object], str] = repr) -> str:
    """The first characters of whatever was given for a target."""
    try:
        return text(value)[:_SHOWN]
    except Exception as error:  # noqa: BLE001 - of the user's class
        return f"a {type(value).__name__} without a text ({type(error).__name__})"


def _parse(text: str) -> Target:
    if not isinstance(text, str):
        raise no_text(text)
    words = text.split()
    if not words or len(text) > _MAX_TEXT:
        raise TargetError("expected a target such as `cpu`, found a text of {0} bytes", len(text))
    kind, *options = words
    record = _record_of(kind, *options)
    values: dict[str, str] = {}
    for word, after in zip(options, [*options, "-"][1:], strict=True):
        name, equals, value = word.removeprefix("-").partition("=")
        if word.startswith("-") and name in record.option_names and not value:
            raise TargetError(
                "target option -{0} has no value in {1!r}",
                name,
                text,
                hint=f"write -{name}={'VALUE' if after.startswith('-') else after}",
            )
        if not word.startswith("-") or name not in record.option_names or not equals:
            raise TargetError(
                "unknown target option {0!r} in {1!r}; known: {2}",
                word,
                text,
                ", ".join(f"-{o}=" for o in record.option_names),
                hint=record.option_hint(word),
            )
        if name in values:
            raise TargetError("target option -{0} is given twice in {1!r}", name, text)
        values[name] = value
    return record.from_options(values, text)


# Registries of what each kind of target has one of: a code generator, sketch rules, a model.

T = TypeVar("T")


class Registry(Generic[T]):
    """One `T` for each kind of target, by a function that returns it when it is first asked for.

    In errors, `noun` names it, and `register` the function that adds one from outside.
    """

    def __init__(self, noun: str, register: str, loaders: Mapping[str, Callable[[], T]]) -> None:
        self._noun, self._register = noun, register
        self._loaders = dict(loaders)
        self._loaded: dict[str, T] = {}

    def register(self, kind: str, load: Callable[[], T]) -> None:
        """Add that of a kind; the same function defined again takes the place of the former.

        Raises `TargetError` where the kind has another one already.
        """
        if not same_definition(self._loaders.get(kind, load), load):
            raise TargetError("targets of kind {0!r} have a {1} already", kind, self._noun)
        self._loaders[kind] = load
        self._loaded.pop(kind, None)

    def of(self, target: Target) -> T:
        """That of the kind of `target`. Raises `TargetError` where there is none."""
        return self.of_kind(target.kind)

    def of_kind(self, kind: str) -> T:
        """That of a kind. Raises `TargetError` where there is none."""
        if kind not in self._loaded:
            if kind not in self._loaders:
                raise TargetError(
                    "there is no {0} for targets of kind {1!r}; there is one for {2}",
                    self._noun,
                    kind,
                    ", ".join(self._loaders),
                    hint=f"{self._register} adds one",
                )
            self._loaded[kind] = self._loaders[kind]()
        return self._loaded[kind]

"""Registries of what each kind of target has one of: a code generator, sketch rules, a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from ..base.errors import TargetError
from .target import Target, same_definition

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

"""One try: its random choices, its folder, its story, and the ways in which it may fail."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from tilewright.base.errors import TilewrightError

T = TypeVar("T")


class Broken(Exception):
    """A promise that did not hold."""


@dataclass(frozen=True)
class Attempt:
    """A try. `folder` is empty at its start; what `note` is told survives the process."""

    rng: np.random.Generator
    folder: Path

    def pick(self, n: int) -> int:
        """A number from 0 to n-1."""
        return int(self.rng.integers(n))

    def choice(self, values: Sequence[T]) -> T:
        return values[self.pick(len(values))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def note(self, text: str) -> None:
        """Write down what is about to happen."""
        with story(self.folder).open("a", encoding="utf-8", errors="replace") as file:
            file.write(text[:2000] + "\n")


Attack = Callable[[Attempt], str]
"""Makes one try and returns what held, in a word or two. Raises `Broken`, or anything else that is
not to be."""


def story(folder: Path) -> Path:
    """Where the story of the try in `folder` is."""
    return folder.with_name("story.txt")


def attempt(kind: str, seed: int, number: int, folder: Path) -> Attempt:
    return Attempt(np.random.default_rng([seed, number, zlib.crc32(kind.encode())]), folder)


def refusal(action: Callable[[], object]) -> TilewrightError | None:
    """The typed error that an action ends with, whose text can be read; anything else passes on."""
    try:
        action()
    except TilewrightError as error:
        require(bool(str(error)), "an error without a text")
        return error
    return None


def require(condition: bool, what: str) -> None:
    """Raise `Broken` unless the condition holds."""
    if not condition:
        raise Broken(what)

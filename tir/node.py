"""The `@node` decorator: immutable records with slots, compared by identity.

Type checkers always see frozen records. At run time they are frozen only when the environment
has `TILEWRIGHT_CHECK=1`, because a frozen dataclass takes five times longer to build.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")

CHECK = os.environ.get("TILEWRIGHT_CHECK") == "1"


@dataclass_transform(frozen_default=True, eq_default=False)
def node(cls: type[T]) -> type[T]:
    """Make `cls` an immutable record that compares and hashes by identity.

    A `__repr__` that `cls` inherits is kept.
    """
    own_text = cls.__repr__ is not object.__repr__
    return dataclass(slots=True, eq=False, frozen=CHECK, repr=not own_text)(cls)

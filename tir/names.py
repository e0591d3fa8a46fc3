"""Names for printed programs: Python identifiers, unique within their scope."""

from __future__ import annotations

import re
from collections.abc import Mapping
from keyword import iskeyword

RESERVED = frozenset({"T", "tw", "range"})
"""Names that program text uses itself; nothing in a program is called so."""


def identifier(name: str, default: str = "v") -> str:
    """`name` as an ASCII identifier that is no keyword."""
    clean = re.sub(r"\W", "_", name, flags=re.ASCII) or default
    if clean[0].isdigit():
        clean = f"_{clean}"
    return f"{clean}_" if iskeyword(clean) else clean


def unique(name: str, taken: set[str]) -> str:
    """`name`, with a number if it is taken; takes it."""
    result, count = name, 0
    while result in taken:
        count += 1
        result = f"{name}_{count}"
    taken.add(result)
    return result


class Names:
    """Names of variables and buffers, by identity. A name that was never bound is free for good."""

    def __init__(self) -> None:
        self._names: dict[object, str] = {}
        self._used: set[str] = set(RESERVED)

    @property
    def given(self) -> Mapping[object, str]:
        """The names so far; things of different scopes may have the same."""
        return self._names

    def bind(self, thing: object, name: str) -> str:
        """A name for `thing` from here on, after `name` and different from those in use."""
        fresh = self._names[thing] = unique(identifier(name), self._used)
        return fresh

    def release(self, thing: object) -> None:
        """The scope of `thing` has ended: its name may be used again."""
        self._used.discard(self._names[thing])

    def of(self, thing: object, name: str) -> str:
        """The name of `thing`, which counts as free if it has no name yet."""
        known = self._names.get(thing)
        return self.bind(thing, name) if known is None else known

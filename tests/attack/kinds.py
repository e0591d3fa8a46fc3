"""The kinds of attacks, by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """Attacks of one kind: `module` (of this folder) has `prepare`, see `child`.

    `tries` are made by default, and are the share of the kind in any other number. Each may take
    `limit` seconds and `memory` bytes of addresses.
    """

    module: str
    tries: int
    limit: float = 30.0
    memory: int = 4 << 30


KINDS = {
    "database": Kind("database", 200),
    "records": Kind("records", 150),
    "manifests": Kind("manifests", 300),
    "libraries": Kind("libraries", 200),
    "signatures": Kind("signatures", 200),
    "locks": Kind("locks", 150),
    "cache": Kind("cache", 60),
    "gpu": Kind("gpu", 1500),
    "arrays": Kind("arrays", 3000),
    "programs": Kind("programs", 60, limit=120.0),
    "exact": Kind("exact", 60, limit=120.0),
}
FAULTY = Kind("faulty", 5, limit=3.0)
"""The kind that the tests of the harness run."""


def kind_of(name: str) -> Kind:
    return FAULTY if name == "faulty" else KINDS[name]


def total_tries(names: Iterable[str]) -> int:
    """How many tries these kinds have by default."""
    return sum(kind_of(name).tries for name in names)

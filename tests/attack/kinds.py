"""The kinds of attacks, by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """Attacks of one kind: `module` (of this folder) has `prepare`, see `child`.

    `tries` are made by default, and each may take `limit` seconds and `memory` bytes of addresses.
    """

    module: str
    tries: int
    limit: float = 60.0
    memory: int = 4 << 30


KINDS = {
    "database": Kind("database", 600),
    "records": Kind("records", 400),
    "manifests": Kind("manifests", 600),
    "libraries": Kind("libraries", 400),
    "cache": Kind("cache", 200),
    "arrays": Kind("arrays", 4000),
    "programs": Kind("programs", 40, limit=120.0),
    "kills": Kind("kills", 6, limit=180.0),
}

"""Files that are written whole: the old one or the new one is there at any moment."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """The path of a new file, which takes the place of the one at `path` when the block ends.

    It is beside that one, and is removed where the block raises. A process that is killed leaves it
    there, and the old file as it was.

    Raises `OSError`, and `ValueError` for a path with a NUL.
    """
    partial = path.with_name(f".tilewright-{secrets.token_hex(8)}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        with suppress(OSError, ValueError):
            partial.unlink(missing_ok=True)

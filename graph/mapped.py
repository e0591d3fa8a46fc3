"""Constants that are parts of files: nothing is read before it is used."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import ModelError

Array = np.ndarray[Any, Any]
State = tuple[int, int, int]
"""The inode of a file, its bytes, and the nanosecond of its last change."""


class Mapped(np.memmap[Any, Any]):
    """A read-only part of the file `path`, which was in `state` when it was mapped."""

    path: Path
    state: State


def mapped(path: Path, dtype: np.dtype[Any], shape: Sequence[int], offset: int) -> Array:
    """The array at a byte offset of a file, which must be that long."""
    state = _state(path)
    if 0 in shape:
        return np.zeros(shape, dtype)
    found = Mapped(path, dtype, mode="r", offset=offset, shape=tuple(shape))
    found.path, found.state = path, state
    return np.asarray(found)


def check_unchanged(arrays: Iterable[Array]) -> None:
    """Raise `ModelError` if a file that one of the arrays is a part of is not what it was."""
    files: dict[tuple[Path, State], None] = {}
    for array in arrays:
        of: object = array
        while isinstance(of, np.ndarray):
            if isinstance(of, Mapped) and hasattr(of, "state"):
                files[of.path, of.state] = None
            of = of.base
    for path, (inode, *state) in files:
        now = _state(path) if path.is_file() else None
        # One that was removed or replaced still has its old content here.
        if now is not None and now[0] == inode and now != (inode, *state):
            raise ModelError(
                "{0}, which has constants of the graph, has changed since it was imported", path,
                hint="import the model again",
            )  # fmt: skip


def _state(path: Path) -> State:
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns

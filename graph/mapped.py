"""Constants in memory of others: parts of files, of which nothing is read before it is used, and
tensors of other libraries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
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


class Shared:
    """The memory of a tensor, whose library counts by `writes` how often it was written."""

    def __init__(self, array: Array, writes: Callable[[], int]) -> None:
        self.array = array
        self.writes, self.seen = writes, writes()
        self.__array_interface__ = array.reshape(-1).view(np.uint8).__array_interface__


def shared(array: Array, writes: Callable[[], int]) -> Array:
    """A compact array, which is the same memory, and is not to be written any more."""
    if not array.size:
        return array
    return np.asarray(Shared(array, writes)).view(array.dtype).reshape(array.shape)


def mapped(path: Path, dtype: np.dtype[Any], shape: Sequence[int], offset: int) -> Array:
    """The array at a byte offset of a file, which must be that long."""
    state = _state(path)
    if 0 in shape:
        return np.zeros(shape, dtype)
    found = Mapped(path, dtype, mode="r", offset=offset, shape=tuple(shape))
    found.path, found.state = path, state
    return np.asarray(found)


def check_unchanged(arrays: Iterable[Array]) -> None:
    """Raise `ModelError` if the file or tensor that one of the arrays is of is not what it was."""
    files: dict[tuple[Path, State], None] = {}
    for array in arrays:
        of: object = array
        while isinstance(of, np.ndarray):
            if isinstance(of, Mapped) and hasattr(of, "state"):
                files[of.path, of.state] = None
            of = of.base
        if isinstance(of, Shared) and of.writes() != of.seen:
            raise written()
    for path, (inode, *state) in files:
        now = _state(path) if path.is_file() else None
        # One that was removed or replaced still has its old content here.
        if now is not None and now[0] == inode and now != (inode, *state):
            raise ModelError(
                "{0}, which has constants of the graph, has changed since it was imported", path,
                hint="import the model again",
            )  # fmt: skip


def can_be_written(array: Array) -> bool:
    """Whether the elements are in memory that others may write: of an array or a tensor."""
    of: object = array
    while isinstance(of, np.ndarray):
        if of.flags.writeable:
            return True
        of = of.base
    return isinstance(of, Shared)


def written() -> ModelError:
    return ModelError(
        "an array or tensor, a constant of the graph, was written since the graph was made",
        hint="make the graph again",
    )


def _state(path: Path) -> State:
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns

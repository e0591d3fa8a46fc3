"""The constants of a model's artifact: a file of bytes beside its code, which loading maps.

Its name is that of the code: no manifest names a file. The mapping is private and read-only. Pages
are read when they are used first, and processes share them. A file that a process maps is to be
replaced, as builds do it, and not written to: its bytes were checked when it was loaded.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeVar

import numpy as np

from ..base.checked_json import between
from ..base.errors import ArtifactError
from ..base.files import open_regular
from .host_memory import HOST_MEMORY
from .signature import MAX_BYTES

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Array = np.ndarray[Any, Any]
T = TypeVar("T", Array, bytes)
Size = Annotated[int, between(0, MAX_BYTES)]
PIECE_BYTES = 8 << 20
"""Of the weights that have a digest of their own: threads compute several at a time."""
_THREADS = 4
_HINT = "copy all files of the artifact again, or build it anew"


@dataclass(frozen=True)
class StoredFile:
    """What a manifest knows of a file beside the code: its bytes, and their SHA-256, hex."""

    size: Size
    sha256: str

    @staticmethod
    def of(content: ReadableBuffer) -> StoredFile:
        return StoredFile(memoryview(content).nbytes, digest_of_bytes(content))

    def mismatch(self, content: ReadableBuffer) -> tuple[str, str] | None:
        """The expected digest and that of the content, where they differ."""
        found = digest_of_bytes(content)
        return None if found == self.sha256 else (self.sha256, found)


@dataclass(frozen=True)
class StoredWeights:
    """What a manifest knows of the weights: the digests of their pieces of so many bytes."""

    size: Size
    piece_bytes: Annotated[int, between(1, MAX_BYTES)]
    sha256: tuple[str, ...]

    def validate(self) -> None:
        """Raise `ValueError` unless there is a digest for each piece."""
        if len(self.sha256) != -(-self.size // self.piece_bytes):
            raise ValueError(f"{len(self.sha256)} digests of {self.size} bytes")

    @staticmethod
    def of(content: Array) -> StoredWeights:
        return StoredWeights(content.nbytes, PIECE_BYTES, _digests(content.data, PIECE_BYTES))

    def mismatch(self, content: ReadableBuffer) -> tuple[str, str] | None:
        """The first digest that is expected, and that of the content, where they differ."""
        found = _digests(memoryview(content), self.piece_bytes)
        pairs = zip(self.sha256, found, strict=True)
        return next((pair for pair in pairs if pair[0] != pair[1]), None)


def weights_path(code: Path) -> Path:
    """The path of the weights of a model's code: `det.so.weights` beside `det.so`."""
    return code.with_name(code.name + ".weights")


def map_weights(path: Path, expected: StoredWeights) -> Array:
    """The bytes of the file, checked and mapped. Raises `ArtifactError`."""

    def mapped(file: BinaryIO, size: int) -> Array:
        held = mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        return np.frombuffer(held, np.uint8)

    return _checked(path, expected, mapped) if expected.size else np.empty(0, np.uint8)


def copy_weights(path: Path, expected: StoredWeights) -> Array:
    """A copy of the bytes of the file, which is checked: who writes to the file later changes
    nothing. Raises `ArtifactError`."""

    def copied(file: BinaryIO, size: int) -> Array:
        memory: Array = HOST_MEMORY.allocate(size)
        memory = memory[: file.readinto(memory.data)]  # type: ignore[attr-defined]
        memory.flags.writeable = False
        return memory

    return _checked(path, expected, copied)


def read_part(path: Path, expected: StoredFile) -> bytes:
    """The bytes of the file of a part, checked. Raises `ArtifactError`."""
    return _checked(path, expected, lambda file, size: file.read(size))


def _checked(
    path: Path, expected: StoredFile | StoredWeights, read: Callable[[BinaryIO, int], T]
) -> T:
    """What `read` returns of the file, checked. Raises `ArtifactError`."""
    try:
        with open_regular(path) as (file, size):
            content = read(file, size) if size == expected.size else None
    except FileNotFoundError:
        raise ArtifactError(
            "{0} does not exist, and the model needs it", path, hint=_HINT
        ) from None
    except ValueError as error:  # it was cut meanwhile
        raise ArtifactError("cannot map {0}: {1}", path, error, hint=_HINT) from error
    found = size if content is None else len(content)
    if content is None or found != expected.size:
        raise ArtifactError(
            "{0} is damaged: expected {1} bytes, found {2}", path, expected.size, found, hint=_HINT
        )
    held: Any = content
    if (digests := expected.mismatch(held)) is not None:
        raise ArtifactError(
            "{0} is not the file of the manifest: expected sha256 {1}, found {2}",
            path, *digests, hint=_HINT,
        )  # fmt: skip
    return content


def digest_of_bytes(content: ReadableBuffer) -> str:
    """SHA-256, hex, as manifests have it."""
    return hashlib.sha256(content).hexdigest()


def _digests(content: memoryview, piece: int) -> tuple[str, ...]:
    """The digests of the pieces of so many bytes."""
    pieces = [content[start : start + piece] for start in range(0, content.nbytes, piece)]
    if len(pieces) < 2:
        return tuple(map(digest_of_bytes, pieces))
    from concurrent.futures import ThreadPoolExecutor  # small weights do without

    with ThreadPoolExecutor(min(len(pieces), _THREADS, os.cpu_count() or 1)) as pool:
        return tuple(pool.map(digest_of_bytes, pieces))

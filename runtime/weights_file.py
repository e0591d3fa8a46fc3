"""The constants of a model's artifact: a file of bytes beside its code, which loading maps.

Its name is that of the code: no manifest names a file. The mapping is private and read-only. Pages
are read when they are used first, and processes share them. A file that a process maps is to be
replaced, as builds do it, and not written to: its bytes were checked when it was loaded.
"""

from __future__ import annotations

import hashlib
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from ..base.checked_json import between
from ..base.errors import ArtifactError
from ..base.files import open_regular
from .signature import MAX_BYTES

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Array = np.ndarray[Any, Any]
_HINT = "copy all files of the artifact again, or build it anew"


@dataclass(frozen=True)
class WeightsFile:
    """What a manifest knows of the file; there is none where a model has no constants."""

    size: Annotated[int, between(0, MAX_BYTES)]
    sha256: str


def weights_path(code: Path) -> Path:
    """The path of the weights of a model's code: `det.so.weights` beside `det.so`."""
    return code.with_name(code.name + ".weights")


def map_weights(path: Path, expected: WeightsFile) -> Array:
    """The bytes of the file, checked and mapped. Raises `ArtifactError`."""
    if not expected.size:
        return np.empty(0, np.uint8)
    mapped: mmap.mmap | None = None
    try:
        with open_regular(path) as (file, found):
            if found == expected.size:
                mapped = mmap.mmap(
                    file.fileno(), found, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ
                )
    except FileNotFoundError:
        raise ArtifactError(
            "{0} does not exist, and the model needs it", path, hint=_HINT
        ) from None
    except ValueError as error:  # it was cut meanwhile
        raise ArtifactError("cannot map {0}: {1}", path, error, hint=_HINT) from error
    if mapped is None:
        raise ArtifactError(
            "{0} is damaged: expected {1} bytes, found {2}", path, expected.size, found, hint=_HINT
        )
    digest = digest_of_bytes(mapped)
    if digest != expected.sha256:
        raise ArtifactError(
            "{0} is not the file of the manifest: expected sha256 {1}, found {2}",
            path, expected.sha256, digest, hint=_HINT,
        )  # fmt: skip
    return np.frombuffer(mapped, np.uint8)


def digest_of_bytes(content: ReadableBuffer) -> str:
    """SHA-256, hex, as manifests have it."""
    return hashlib.sha256(content).hexdigest()

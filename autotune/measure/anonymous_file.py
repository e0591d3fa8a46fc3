"""Files without a name: memory where the system has such files, else in the temporary folder."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress


def unnamed_file(label: str) -> int:
    """A descriptor of a new, empty file, which the caller closes. Raises `OSError`.

    `label` is what the system shows of it.
    """
    if hasattr(os, "memfd_create"):
        with suppress(OSError):  # a sandbox may refuse it
            return os.memfd_create(label)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())

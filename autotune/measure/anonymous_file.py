"""Files without a name: memory where the system has such files, else in the temporary folder."""

from __future__ import annotations

import os
import tempfile

from ...base.errors import open_files_hint


def unnamed_file(label: str) -> int:
    """A descriptor of a new, empty file, which the caller closes. Raises `OSError`.

    `label` is what the system shows of it.
    """
    if hasattr(os, "memfd_create"):
        try:
            return os.memfd_create(label)
        except OSError as error:  # a sandbox may refuse it
            if open_files_hint(error):  # no temporary file can be opened either
                raise
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())

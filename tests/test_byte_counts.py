"""Numbers of bytes as text, in one way everywhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.base.text import format_bytes

from .test_imports import sources

WRITTEN = re.compile(r"""\}\s?([KMGT]i?|k)B\b(?!/)|["']([KMGT]i?|k)B["']""")
"""A unit of bytes behind a number in a text, or in a table of units."""
ELSEWHERE = {
    "target/cuda.py",  # a part of a key, which has to stay as it is
}


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (768, "768 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (32 << 20, "32 MiB"),
        (999 << 10, "999 KiB"),
        (1_023_487, "999 KiB"),
        (1_023_488, "1000 KiB"),
        (1_023_590, "1000 KiB"),
        (1000 << 10, "1000 KiB"),
        (1_048_063, "1023 KiB"),
        (1_048_064, "1 MiB"),
        (1_048_575, "1 MiB"),
        (1 << 20, "1 MiB"),
        ((1 << 30) - 1, "1 GiB"),
        (1 << 70, "1048576 PiB"),
    ],
)
def test_bytes_for_people(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_no_other_file_writes_bytes(root: Path) -> None:
    """Neither as `f"{n / 1e6} MB"`, nor by a table of units."""
    found = {
        path.relative_to(root).as_posix()
        for path in sources(root)
        for line in path.read_text().splitlines()
        if WRITTEN.search(line)
    }
    assert found == ELSEWHERE | {"base/text.py"}

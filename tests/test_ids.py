"""Ids have one short form, which one function makes."""

from __future__ import annotations

import re
from pathlib import Path

from tilewright.base.text import short_id

_CUT = re.compile(
    r"\b(id|digest|workload|schedule|session|measurement|target|record)"
    r"(\[:\s*(\d|1\d)\]|(![rs])?:\.\d+\})|%\.(8|12)s"
)
"""An id that is cut in its own way."""


def test_short_ids() -> None:
    assert short_id("0123456789abcdef") == "0123456789ab"
    assert short_id("0123") == "0123"
    assert short_id("0123456789abcdef0123", beyond="0123456789ab") == "0123456789abcdef"


def test_no_file_cuts_ids_itself(root: Path) -> None:
    files = [f for f in root.rglob("*.py") if f.relative_to(root).parts[0] not in _OTHERS]
    assert len(files) > 200
    cut = {
        f"{file.relative_to(root)}: {match[0]}"
        for file in files
        for match in _CUT.finditer(file.read_text(encoding="utf-8"))
    }
    assert cut == set(), "write short_id(id)"
    for text in (
        "m.session[:8]",
        "{id:.8}",
        "{best.schedule.id[:12]}",
        "machine %.12s",
        "{id!r:.9}",
    ):
        assert _CUT.search(text), text


_OTHERS = {"tests", "benchmarks", "examples", "build", ".venv", "scripts", ".ci"}

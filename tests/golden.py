"""Golden files: texts that tests compare with, and write anew with `pytest --update`."""

from __future__ import annotations

from pathlib import Path


def check_golden(path: Path, text: str, *, update: bool) -> None:
    """Fail unless a file has a text; with `update`, write it."""
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"there is no {path.name}; write it with pytest --update"
    assert text == path.read_text(encoding="utf-8"), "the golden file differs: pytest --update"

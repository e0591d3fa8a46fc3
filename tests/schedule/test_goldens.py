"""Every golden file belongs to a test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def named_goldens() -> Iterator[str]:
    """The names in all calls `golden("...", ...)` of this folder."""
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "golden"
            ):
                name = node.args[0]
                assert isinstance(name, ast.Constant), f"{path.name}: the name must be a literal"
                yield str(name.value)


def test_each_golden_file_has_its_test(request: pytest.FixtureRequest) -> None:
    root = HERE / "goldens"
    files = {p.relative_to(root).with_suffix("").as_posix() for p in root.rglob("*.txt")}
    names = list(named_goldens())
    assert sorted(set(names)) == sorted(names), "a golden is named twice"
    orphans = files - set(names)
    if request.config.getoption("--update"):
        for name in orphans:
            (root / f"{name}.txt").unlink()
        return
    assert not orphans
    assert not set(names) - files, "write it with pytest --update"

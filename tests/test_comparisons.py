"""Expressions are not searched for by `==`, which builds an expression."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [
    path
    for path in sorted(ROOT.rglob("*.py"))
    if not any(part.startswith((".", "build")) for part in path.relative_to(ROOT).parts)
]
HOLD_EXPRESSIONS = {"args", "indices", "params"}
"""Attributes of the IR that are tuples with expressions among their elements."""


def searches(source: str) -> Iterator[int]:
    """The lines in which such a tuple is searched by `==`."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare(ops=ops, comparators=sides):
                for op, side in zip(ops, sides, strict=True):
                    if isinstance(op, ast.In | ast.NotIn) and _holds_expressions(side):
                        yield node.lineno
            case ast.Call(func=ast.Attribute(value=value, attr="index" | "count")):
                if _holds_expressions(value):
                    yield node.lineno
            case _:
                pass


def _holds_expressions(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in HOLD_EXPRESSIONS


@pytest.mark.parametrize("package", sorted({path.relative_to(ROOT).parts[0] for path in SOURCES}))
def test_expressions_are_looked_up_in_sets(package: str) -> None:
    lines = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in SOURCES
        if path.relative_to(ROOT).parts[0] == package
        for line in searches(path.read_text(encoding="utf-8"))
    ]
    assert lines == [], "look it up in set(...)"


def test_searches_are_found() -> None:
    assert list(searches("a in f.params\nb not in load.indices\nf.params.index(b)")) == [1, 2, 3]
    assert list(searches("a in set(f.params)\nb in f.allocs\nfor p in f.params: pass")) == []

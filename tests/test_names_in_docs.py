"""Files and modules that the documentation and docstrings name exist; ARCHITECTURE.md is short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .test_imports import PACKAGES

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
]
SOURCES = [
    path
    for path in sorted(ROOT.rglob("*.py"))
    if path.relative_to(ROOT).parts[0] in {*PACKAGES, "tests", "benchmarks", "scripts", "examples"}
    or path.parent == ROOT
]
ELSEWHERE = {
    "s_tir/meta_schedule/cost_model/xgb_model.py", "migrations/versions/NNNN_what.py", "vendor.py",
}  # fmt: skip
"""A file of TVM, a pattern, and a file of a reader."""

_FILE = re.compile(r"(?<![\w./-])((?:[\w-]+/)*[\w-]+\.py)\b(?!:)")
_FOLDER = re.compile(rf"`((?:{'|'.join(PACKAGES)}|tests|docs|benchmarks|scripts)/[\w/-]*)`")
_MODULE = re.compile(rf"`(?:tilewright\.)?((?:{'|'.join(PACKAGES)})(?:\.[a-z_]+)+)\b")


def files_named(text: str) -> Iterator[str]:
    """Names of files, as whole paths or their last parts."""
    yield from (m[1] for m in _FILE.finditer(text) if m[1] not in ELSEWHERE)


def is_file(name: str) -> bool:
    return any(path.as_posix().endswith(f"/{name.removeprefix('tilewright/')}") for path in SOURCES)


def is_module(dotted: str) -> bool:
    """Whether `package.module` or `package.module.name` is there."""
    package, *parts = dotted.split(".")
    place = ROOT / package
    for n, part in enumerate(parts):
        if (place / part).is_dir():
            place /= part
        elif (place / f"{part}.py").is_file():
            names = parts[n + 1 :]
            return len(names) <= 2 and all(_names(place / f"{part}.py", name) for name in names)
        else:
            return n == len(parts) - 1 and _names(place / "__init__.py", part)
    return True


def _names(path: Path, name: str) -> bool:
    return re.search(rf"\b{name}\b", path.read_text(encoding="utf-8")) is not None


def wrong_names(text: str) -> list[str]:
    """The names in a text of files, folders and modules that do not exist."""
    wrong = [name for name in files_named(text) if not is_file(name)]
    wrong += [m[1] for m in _FOLDER.finditer(text) if not (ROOT / m[1]).exists()]
    return wrong + [m[1] for m in _MODULE.finditer(text) if not is_module(m[1])]


def docstrings(path: Path) -> Iterator[str]:
    """The docstrings of a file, and the strings below attributes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                yield text


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_pages_name_what_there_is(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert wrong_names(text) == []


@pytest.mark.parametrize("package", [*PACKAGES, ""])
def test_docstrings_name_what_there_is(package: str) -> None:
    paths = (ROOT / package).rglob("*.py") if package else ROOT.glob("*.py")
    wrong = {
        str(path.relative_to(ROOT)): names
        for path in paths
        if (names := [name for text in docstrings(path) for name in wrong_names(text)])
    }
    assert wrong == {}


def test_no_docstring_says_gives() -> None:
    """Functions return; the first word of a docstring says so."""
    odd = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        for text in docstrings(path)
        if re.match(r"\s*Gives\b", text)
    ]
    assert odd == []


def test_architecture_is_short() -> None:
    lines = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 130
    assert [n for n, line in enumerate(lines, 1) if len(line) > 120] == []


def test_wrong_names_are_found() -> None:
    text = "`tir/gone.py` and gone.py, `tir/nothing/`, `codegen.gone.resolve`, `autotune.verify`"
    found = ["tir/gone.py", "gone.py", "tir/nothing/", "codegen.gone.resolve", "autotune.verify"]
    assert wrong_names(text) == found
    text = "`codegen.detect.nonexistent`, `codegen.detect.resolve.nonexistent`, `tir.ir.a.b.c`"
    assert wrong_names(text) == re.findall("`(.*?)`", text)
    good = "`tir/ir.py`, `lower.py`, `tir/`, `codegen.detect.resolve`, `tilewright.runtime.load`"
    assert wrong_names(good) == []

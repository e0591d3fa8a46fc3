"""The package as it is shipped: the wheel's contents, metadata, documentation that runs, checks."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import tilewright


@pytest.fixture(scope="module")
def pyproject(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def packages(pyproject: dict[str, Any]) -> list[str]:
    listed: list[str] = pyproject["tool"]["setuptools"]["packages"]
    return listed


def folder(root: Path, package: str) -> Path:
    return root.joinpath(*package.split(".")[1:])


def test_every_source_is_in_a_listed_package(root: Path, packages: list[str]) -> None:
    folders = {folder(root, package) for package in packages}
    assert all(any(path.glob("*.py")) for path in folders)
    homeless = [
        path.relative_to(root).as_posix()
        for top in root.glob("*/__init__.py")
        for path in top.parent.rglob("*.py")
        if path.parent not in folders
    ]
    assert homeless == []


@pytest.fixture(scope="module")
def source(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages with all their files, and of the files at the root."""
    copy = tmp_path_factory.mktemp("source")
    for path in root.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, copy)
        elif (path / "__init__.py").is_file():
            caches = shutil.ignore_patterns("__pycache__", ".*")
            shutil.copytree(path, copy / path.name, ignore=caches)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", folder, source], check=True, timeout=600)
    (path,) = folder.glob("*.whl")
    return path


def test_wheel_holds_all_files_of_the_packages_and_nothing_else(
    source: Path, wheel: Path, packages: list[str]
) -> None:
    folders = {folder(source, package) for package in packages} - {source}
    paths = {path for top in folders for path in top.rglob("*") if path.is_file()}
    paths |= {*source.glob("*.py"), source / "py.typed"}
    expected = {path.relative_to(source).as_posix() for path in paths}
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if ".dist-info/" not in n}
        (licence,) = (n for n in archive.namelist() if n.endswith("licenses/LICENSE"))
    assert names == {f"tilewright/{name}" for name in expected}
    assert licence.startswith(f"tilewright-{tilewright.__version__}.dist-info/")
    assert {Path(name).suffix for name in expected} >= {".css", ".js", ".json", ".gz", ".mako"}


USE = """
import tilewright as tw
from tilewright import ops
from tilewright.lab.report import report

print(tw.__file__, tw.__version__)
func = ops.add_relu_func(64)
with tw.TuningDatabase("tuning.db") as db:
    assert "<style>" in report(db)
    lab = tw.lab(func, "cpu -threads=1", db)
    assert "text/html" in lab._repr_mimebundle_()[0]
    lab.close()
print(tw.build(func, target="cpu -threads=1").origin)
"""
"""Reads what is no Python: migrations, styles, scripts, the shipped model."""


def test_an_unpacked_wheel_works(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    run = subprocess.run(
        [sys.executable, "-c", USE],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    place, origin = run.stdout.splitlines()
    assert place == f"{tmp_path / 'tilewright/__init__.py'} {tilewright.__version__}"
    assert origin.startswith("model:"), origin


def test_version_is_that_of_the_installation() -> None:
    assert version("tilewright") == tilewright.__version__


def modules() -> list[str]:
    """Every module of the installed package; migrations run only under alembic."""
    found = pkgutil.walk_packages(tilewright.__path__, "tilewright.")
    return [
        m.name for m in found if ".migrations" not in m.name and not m.name.endswith("__main__")
    ]


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings(name: str) -> None:
    if name.startswith("tilewright.torch_backend."):
        pytest.importorskip("torch")
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_doctests_would_be_noticed() -> None:
    module = type(tilewright)("sample", ">>> 1 + 1\n3\n")
    assert doctest.testmod(module, report=False).failed == 1


STYLE = {
    "B905": "pairs = list(zip([1], [2]))\n",
    "BLE001": "try:\n    x = 1\nexcept Exception:\n    x = 2\n",
    "C901": "def f(x):\n" + "".join(f"    if x == {i}: x += 1\n" for i in range(20)),
    "D100": "x = 1\n",
    "E501": f"x = '{'y' * 100}'\n",
    "ERA001": "# x = f(1)\n",
    "FIX002": "# TODO: later\n",
    "NPY002": "import numpy as np\nx = np.random.rand(3)\n",
    "S307": "x = eval('1')\n",
    "T201": "print(1)\n",
    "TID251": "import pickle\n",
}


@pytest.mark.parametrize("code", STYLE)
def test_style_check_refuses(root: Path, code: str) -> None:
    assert code in ruff(root, "tir/sample.py", STYLE[code])


def test_style_check_accepts(root: Path) -> None:
    assert ruff(root, "tir/sample.py", '"""A sample."""\n\nX = 1\n') == ""


def ruff(root: Path, path: str, source: str) -> str:
    command = [sys.executable, "-m", "ruff", "check", "--quiet", "--output-format=concise"]
    run = subprocess.run(
        [*command, "--stdin-filename", root / path, "-"],
        cwd=root,
        input=source,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.stderr == ""
    return run.stdout


TYPES = '''"""Each line marked with a code breaks that rule."""

import enum
from typing import Any


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def untyped(x): ...  # no-untyped-def


def generic(x: list) -> None: ...  # type-arg


def wrong() -> int:
    return "text"  # return-value


def vague(x: Any) -> int:
    return x  # no-any-return


def partial(colour: Colour) -> None:
    match colour:  # exhaustive-match
        case Colour.RED:
            pass


def unbound(x: int) -> int:
    if x > 1:
        y = 1
    return y  # possibly-undefined


def never(x: int) -> None:
    if isinstance(x, str):
        generic([x])  # unreachable


x = 1  # type: ignore  # unused-ignore
wrong().bit_length(1)  # call-arg
'''


def test_type_check_refuses(root: Path, tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text(TYPES)
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", tmp_path / "cache", sample],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    found = {
        (int(line.split(":")[1]), line.rpartition("[")[2].rstrip("]"))
        for line in run.stdout.splitlines()
        if ": error: " in line and line.startswith(str(sample))
    }
    expected = {
        (number, line.rpartition("# ")[2])
        for number, line in enumerate(TYPES.splitlines(), 1)
        if "  # " in line
    }
    assert expected <= found, run.stdout + run.stderr

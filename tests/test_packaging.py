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

BASE = ("model.json", "samples.jsonl.gz")


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
    rooms = {path.parent for path in root.glob("*/__init__.py")}
    homeless = [
        path.relative_to(root).as_posix()
        for room in rooms
        for path in room.rglob("*.py")
        if path.parent not in folders
    ]
    assert homeless == []


def test_wheel_holds_the_package_and_nothing_else(
    root: Path, packages: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "py.typed", "tests"):
        copy = shutil.copytree if (root / name).is_dir() else shutil.copy
        copy(root / name, source / name)
    expected = {"tilewright/py.typed", *(f"tilewright/autotune/model/cpu/base/{n}" for n in BASE)}
    base = Path("autotune", "model", "cpu", "base")
    shutil.copytree(root / base, source / base)
    for package in packages:
        (source / folder(Path(), package)).mkdir(parents=True, exist_ok=True)
        for path in [*folder(root, package).glob("*.py"), *folder(root, package).glob("*.mako")]:
            inside = path.relative_to(root)
            shutil.copy(path, source / inside)
            expected.add(f"tilewright/{inside.as_posix()}")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", tmp_path, source], check=True, timeout=600)

    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "installed")
    assert {n for n in names if ".dist-info/" not in n} == expected
    assert any(n.endswith("licenses/LICENSE") for n in names)

    code = "import tilewright; print(tilewright.__file__, tilewright.__version__)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "installed",
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.stdout.split() == [
        str(tmp_path / "installed/tilewright/__init__.py"),
        tilewright.__version__,
    ]


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

"""Who may import whom: the table of packages in ARCHITECTURE.md, read off the sources."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import tilewright
from tilewright.codegen.detect import resolve

from .measured import put_measured

GROUND = {"base", "target"}
FACTS = {"__version__"}  # of the root, known before anything is imported
TOP = {"__init__", "__main__"}
PACKAGES: dict[str, set[str]] = {
    "base": set(),
    "target": set(),
    "tir": set(),
    "runtime": set(),
    "tuning_db": set(),
    "schedule": {"tir"},
    "ops": {"tir"},
    "graph": {"tir", "runtime", "ops"},
    "importers": {"graph"},
    "codegen": {"tir", "runtime"},
    "autotune": {"tir", "schedule", "codegen", "runtime", "tuning_db"},
    "building": {"tir", "schedule", "codegen", "runtime", "tuning_db", "autotune", "graph"},
    "lab": {
        "tir",
        "schedule",
        "codegen",
        "runtime",
        "tuning_db",
        "autotune",
        "building",
        "graph",
    },
    "cli": {
        "tir",
        "schedule",
        "codegen",
        "runtime",
        "tuning_db",
        "autotune",
        "building",
        "lab",
        "graph",
        "importers",
    },
    "torch_backend": {"runtime", "tuning_db", "autotune", "building", "graph", "importers"},
}

GENERATORS = {"codegen/cpu", "codegen/cuda"}
"""Code generators: what is above `codegen` asks the code generator of a target, by the protocol."""
DEFERRED = {
    "base/display.py": "lab",
    "graph/ir.py": "importers",
    "graph/operators/foreign.py": "importers",
}
"""Files that import from a package above them nevertheless, when they are asked what it knows."""

# Libraries by the packages that may use them; these are free to all, and the standard library.
FREE = {"numpy", "_typeshed"}
LIBRARIES: dict[str, set[str]] = {
    "ml_dtypes": {"base", "tir", "codegen", "runtime"},
    "llvmlite": {"codegen"},
    "islpy": {"tir"},
    "sqlalchemy": {"tuning_db"},
    "alembic": {"tuning_db"},
    "xgboost": {"autotune"},
    "cyclonedx": {"building"},
    "packageurl": {"building"},
    "minisign": {"runtime"},
    "pycuda": {"runtime"},
    "dask": {"autotune"},
    "distributed": {"autotune"},
    "psutil": {"codegen", "tuning_db", "autotune"},
    "rich": {"autotune", "cli", "lab"},
    "typer": {"cli"},
    "htpy": {"lab"},
    "markupsafe": {"lab"},
    "IPython": {"autotune", "lab"},
    "anywidget": {"lab"},
    "traitlets": {"lab"},
    "matplotlib": {"lab"},
    "pandas": {"lab", "tuning_db", "autotune"},
    "onnx": {"importers"},
    "onnx_ir": {"importers"},
    "onnxruntime": {"runtime"},
    "openvino": {"runtime"},
    "torch": {"importers", "torch_backend"},
    "jax": {"importers"},
}


class Import(NamedTuple):
    """One import of a file: `level` dots, then `names`, the dotted paths that it may bind."""

    line: int
    level: int
    names: tuple[str, ...]


def imports(source: str) -> Iterator[Import]:
    """Every import of a source text, those inside functions and `TYPE_CHECKING` too.

    What a file looks for by `find_spec` or loads by `import_module` counts as well, if it says
    the name there.
    """
    for item in ast.walk(ast.parse(source)):
        match item:
            case ast.Import(names=names):
                yield Import(item.lineno, 0, tuple(a.name for a in names))
            case ast.ImportFrom(module=None, names=names, level=level):
                yield Import(item.lineno, level, tuple(a.name for a in names))
            case ast.ImportFrom(module=str(module), level=level):
                yield Import(item.lineno, level, (module,))
            case ast.Call(
                func=ast.Name(id="find_spec" | "import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                module = name.lstrip(".")
                yield Import(item.lineno, len(name) - len(module), (module,))
            case _:
                pass


def violations(path: str, source: str) -> list[str]:
    """The imports of `source`, a file at `path` from the root, that break the table, as text."""
    folders = path.split("/")[:-1]
    here = folders[0] if folders else path.removesuffix(".py")
    if here not in (PACKAGES if folders else GROUND | TOP):
        return [f"{path}: belongs to no package"]
    allowed = GROUND | PACKAGES.get(here, set()) | {DEFERRED.get(path, here)}
    found = []
    for line, level, names in imports(source):
        for name in names:
            problem = _problem(here, allowed, len(folders) + 1 - level, level, name)
            problem = problem or _reach(path, folders[: len(folders) + 1 - level], level, name)
            if problem is not None:
                found.append(f"{path}:{line}: {problem}")
    return found


def _reach(path: str, base: list[str], level: int, name: str) -> str | None:
    """Why `name`, relative to the folder `base`, may not be imported from above `codegen`."""
    if not level or path.startswith("codegen/"):
        return None
    reached = "/".join([*base, *name.split(".")])
    into = next((g for g in GENERATORS if f"{reached}/".startswith(f"{g}/")), None)
    return None if into is None else f"reaches into {into}; ask `generator_for(target)`"


def _problem(here: str, allowed: set[str], depth: int, level: int, name: str) -> str | None:
    """Why `name` may not be imported from the folder `depth` below the root, or `None`."""
    first = name.partition(".")[0]
    if level == 0:
        if first == "tilewright":
            return "imports its own package by name; imports are relative here"
        if first in FREE or first in sys.stdlib_module_names:
            return None
        return None if here in LIBRARIES.get(first, set()) else f"{here} may not use {first}"
    if depth < 0:
        return "reaches beyond the root"
    if depth > 0 or here in TOP:
        return None  # stays in its package, or is above all packages
    return None if first in allowed | FACTS else f"{here} may not import {first}"


def sources(root: Path) -> list[Path]:
    """All Python files of the package."""
    inside = [p for package in PACKAGES for p in (root / package).rglob("*.py")]
    return sorted([*root.glob("*.py"), *inside])


def test_packages_keep_to_the_table(root: Path) -> None:
    paths = sources(root)
    assert len(paths) > len(PACKAGES)
    broken = [
        line
        for path in paths
        for line in violations(path.relative_to(root).as_posix(), path.read_text())
    ]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("path", DEFERRED)
def test_exceptions_are_needed(root: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    above = DEFERRED[path]
    monkeypatch.delitem(DEFERRED, path)
    broken = violations(path, (root / path).read_text())
    assert broken
    assert all(line.endswith(f"may not import {above}") for line in broken)


def test_every_package_folder_is_listed(root: Path) -> None:
    packages = {p.parent.name for p in root.glob("*/__init__.py")}
    assert packages == set(PACKAGES)


@pytest.mark.parametrize(
    ("path", "source", "says"),
    [
        ("tir/ir.py", "from ..schedule import Trace", "tir may not import schedule"),
        ("tir/ir.py", "from .. import schedule", "tir may not import schedule"),
        ("tir/ir.py", "from .. import build", "tir may not import build"),
        ("tir/ir.py", "def f():\n    from ..compile import build", "tir may not import compile"),
        ("tir/deep/er.py", "from ...schedule import Trace", "tir may not import schedule"),
        ("runtime/module.py", "from ..tir import ir", "runtime may not import tir"),
        ("codegen/lower.py", "from ..schedule import x", "codegen may not import schedule"),
        ("ops/conv.py", "from ..schedule import x", "ops may not import schedule"),
        ("tuning_db/store.py", "from ..tir import x", "tuning_db may not import tir"),
        ("autotune/search/search.py", "from ... import cli", "autotune may not import cli"),
        ("autotune/search/search.py", "from tilewright.tir import ir", "imports are relative"),
        ("base/errors.py", "from ..tir import ir", "base may not import tir"),
        ("building/build.py", "import tilewright.tir", "imports are relative"),
        ("tir/ir.py", "from .... import x", "beyond the root"),
        ("tir/ir.py", "import llvmlite.ir", "tir may not use llvmlite"),
        ("runtime/array.py", "from sqlalchemy import select", "runtime may not use sqlalchemy"),
        ("tir/ir.py", "import leftpad", "tir may not use leftpad"),
        ("attic/old.py", "", "belongs to no package"),
        ("stray.py", "", "belongs to no package"),
        ("target/cpu.py", "from ..tir import ir", "target may not import tir"),
        (
            "autotune/session/session.py",
            "from ...codegen.cpu.llvm import x",
            "reaches into codegen/cpu",
        ),
        ("autotune/rules/a.py", "from ...codegen.cpu import llvm", "reaches into codegen/cpu"),
        ("building/build.py", "from ..codegen.cpu import link", "reaches into codegen/cpu"),
        ("tir/ir.py", 'import_module("..schedule.x", __package__)', "tir may not import schedule"),
        ("graph/ir.py", 'import_module("..lab", __package__)', "graph may not import lab"),
    ],
)
def test_the_table_bites(path: str, source: str, says: str) -> None:
    (found,) = violations(path, source)
    assert says in found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "tir/ir.py",
            "from . import node\nfrom .node import node\nfrom ..base.errors import IRError",
        ),
        ("tir/deep/er.py", "from .. import ir\nfrom ...base import dtypes\nfrom .x import y"),
        (
            "autotune/search/sketch.py",
            "from ...schedule import Trace\nfrom ...tuning_db import store",
        ),
        ("building/build.py", "from .autotune import tune\nfrom . import cli"),
        ("base/dtypes.py", "import numpy as np\nfrom .errors import IRError"),
    ],
)
def test_the_table_allows(path: str, source: str) -> None:
    assert violations(path, source) == []


@pytest.mark.parametrize(
    ("package", "above"),
    [
        ("rules", {"search", "measure", "session", "show"}),
        ("model", {"measure", "session", "show"}),
        ("search", {"measure", "session", "show"}),
        ("measure", {"session", "show"}),
    ],
)
def test_a_session_is_above_what_it_uses(root: Path, package: str, above: set[str]) -> None:
    """No package of `autotune` imports one that is above it."""
    inner = [path for path in sources(root) if path.parent == root / "autotune" / package]
    found = {
        f"{path.name}:{line}: {name}"
        for path in inner
        for line, level, names in imports(path.read_text())
        for name in names
        if level == 2 and name.split(".")[0] in above
    }
    assert inner
    assert found == set()


def test_libraries_are_declared_and_used(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = {_requirement(text) for text in (*project["dependencies"], *extras["cuda"])}
    names = ("notebook", "plot", "onnx", "bench", "cluster", "sbom", "sign")
    optional = [text for name in names for text in extras[name]]
    shown = {_requirement(text) for text in optional}
    used = {
        name.split(".")[0]
        for path in sources(root)
        for _, level, names in imports(path.read_text())
        for name in names
        if level == 0
    }
    libraries = used - set(sys.stdlib_module_names) - {"_typeshed", "packageurl"}  # of cyclonedx
    assert libraries - shown == declared
    assert libraries <= declared | shown


MODULES = {
    "xgboost-cpu": "xgboost",
    "ipython": "IPython",
    "onnx-ir": "onnx_ir",
    "cyclonedx-python-lib": "cyclonedx",
    "py-minisign": "minisign",
}
"""Libraries whose module has another name."""


def _requirement(text: str) -> str:
    name = text.partition(">")[0].strip()
    return MODULES.get(name, name)


def loaded_after(statement: str) -> set[str]:
    """Names of the modules that a new process has loaded after `statement`."""
    code = f"{statement}\nimport sys; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    return set(run.stdout.split())


HEAVY = {
    "numpy",
    "llvmlite",
    "islpy",
    "xgboost",
    "scipy",
    "sqlalchemy",
    "alembic",
    "typer",
    "rich",
    "psutil",
}


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = loaded_after("import tilewright")
    ours = {name for name in loaded if name.split(".")[0] == "tilewright"}
    light = (f"base.{name}" for name in ("display", "errors", "process", "text"))
    assert ours == {"tilewright", *(f"tilewright.{name}" for name in ("base", "lab", *light))}
    assert not loaded & HEAVY


def test_each_door_loads_its_own_packages_only() -> None:
    assert not loaded_after("from tilewright import te, Func, Target") & (HEAVY - {"numpy"})
    assert not loaded_after("from tilewright import Schedule, Trace") & (HEAVY - {"numpy"})
    assert not loaded_after("from tilewright import Module") & (HEAVY - {"numpy"})
    assert "xgboost" not in loaded_after("from tilewright import TuningDatabase")
    assert not loaded_after("from tilewright import build") & {"xgboost", "scipy", "typer"}


def test_a_build_without_a_database_loads_what_it_needs() -> None:
    loaded = loaded_after(
        "import tilewright as tw; from tilewright import ops; tw.build(ops.add_relu_func(8))"
    )
    assert "llvmlite" in loaded
    assert not loaded & (HEAVY - {"numpy", "llvmlite"})


def test_each_command_loads_what_it_needs(tmp_path: Path) -> None:
    """Each command of the shell answers at once; `db list` and `db best` the second time."""
    cache = {"TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache")}
    db = tmp_path / "tuning.db"
    func, target = tilewright.ops.add_relu_func(8), resolve("cpu")
    with tilewright.TuningDatabase(db) as database:
        put_measured(database, func, target, '{"version":1,"steps":[]}', 1e-6)

    def loaded(*words: object) -> set[str]:
        argv = ["tilewright", *map(str, words)]
        found = loaded_after(f"import os, sys; os.environ |= {cache}; sys.argv = {argv}{_CALL}")
        assert "typer" in found
        needless = {"pydantic", "sqlalchemy.dialects.postgresql", "tilewright.tir"}
        return found & (HEAVY - {"rich"} | needless)

    assert loaded("--help") == {"typer"}
    assert loaded("target") == {"typer", "llvmlite", "numpy"}
    of_database = {"typer", "sqlalchemy"}
    assert loaded("db", "list", "--db", db) > of_database
    assert loaded("db", "list", "--db", db) == of_database
    assert loaded("db", "best", "--db", db) > of_database
    assert loaded("db", "best", "--db", db) == of_database


_CALL = """
import contextlib, io
from tilewright.cli.main import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main()
"""


def test_runtime_ships_alone() -> None:
    loaded = loaded_after("import tilewright.runtime") - {"tilewright.lab"}  # `tw.lab`, light
    packages = {name.split(".")[1] for name in loaded if name.startswith("tilewright.")}
    assert packages <= {"runtime", *GROUND}


def test_lazy_names_are_those_that_type_checkers_see(root: Path) -> None:
    tree = ast.parse((root / "__init__.py").read_text())
    (guarded,) = [
        item
        for item in tree.body
        if isinstance(item, ast.If) and ast.unparse(item.test) == "TYPE_CHECKING"
    ]
    seen = {}
    for item in guarded.body:
        assert isinstance(item, ast.ImportFrom)
        for alias in item.names:
            home = f".{item.module}" if item.module else ""
            name = alias.asname or alias.name
            seen[name] = home if name in tilewright._HOMES else f"{home}.{alias.name}"
    assert seen == {**tilewright._HOMES, **tilewright._MODULES}


def test_every_public_name_resolves() -> None:
    for name in tilewright.__all__:
        assert getattr(tilewright, name) is not None
    assert set(tilewright.__all__) < set(dir(tilewright))
    with pytest.raises(AttributeError):
        _ = tilewright.tuna


def test_names_of_the_database_are_offered_before_they_are_loaded() -> None:
    code = "from tilewright import tuning_db as t; print(set(t.__all__) <= set(dir(t)), *vars(t))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    offered, *loaded = told.stdout.split()
    assert offered == "True"
    assert not {"Best", "values"} & set(loaded)
    for name in tilewright.tuning_db.__all__:
        assert getattr(tilewright.tuning_db, name) is not None
    with pytest.raises(AttributeError):
        _ = tilewright.tuning_db.best


def test_public_packages_load_when_they_are_named() -> None:
    """No other import came before it."""
    code = "import tilewright as tw; print(tw.tuning_db.Order.TIME, tw.T.__name__)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "time tilewright.tir.language\n"


def test_errors_are_public() -> None:
    defined = {
        name
        for name, value in vars(tilewright.base.errors).items()
        if isinstance(value, type) and issubclass(value, tilewright.TilewrightError)
    }
    assert defined <= set(tilewright.__all__)


def test_checks_are_on() -> None:
    assert os.environ["TILEWRIGHT_CHECK"] == "1"

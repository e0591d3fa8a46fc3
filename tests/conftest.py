"""Conditions of every test: run-time checks are on, and the code under test is this checkout."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

os.environ["TILEWRIGHT_CHECK"] = "1"  # read when tilewright is imported
os.environ.pop("COLUMNS", None)  # a terminal's, or what readline makes up for xdist's workers
os.environ.pop("LINES", None)
os.environ["TILEWRIGHT_CACHE_DIR"] = ""  # compile anew; tests of the cache name a folder
os.environ["TILEWRIGHT_MACHINE"] = "table"  # choices do not depend on how busy this machine is

import tilewright
from tilewright.autotune.config import TuneConfig
from tilewright.base.errors import TargetError
from tilewright.codegen.cpu.detection import host_target

from .commands import Result, Run
from .hosts import Processors, ReportsProcessors
from .long import thin

# Background jobs ignore interrupts, and what `nohup` starts ignores a closed terminal; so would the
# processes that tests start and end by these signals.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

ROOT = Path(__file__).resolve().parent.parent

if Path(tilewright.__file__).resolve().parent != ROOT:
    pytest.exit(
        f"tilewright is imported from {tilewright.__file__}, not from {ROOT}; "
        "install this checkout: make clean test",
        returncode=3,
    )

# The same examples in every run, and no test that depends on how fast the machine is.
hypothesis.settings.register_profile("suite", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("suite")

# Finals of two seconds are for times that somebody reads. In much shorter ones the program as
# written has no part where a busy machine makes one call of it long.
defaults: Any = TuneConfig.__init__
defaults.__defaults__ = tuple(0.5 if at == 2.0 else at for at in defaults.__defaults__)
assert TuneConfig() == TuneConfig(final_seconds=0.5)


class RootIsNoTestPackage:
    """Keeps pytest from importing the root's `__init__.py` again, under the name of the clone."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(
        self, path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        return pytest.Dir.from_parent(parent, path=path) if path == ROOT else None


@pytest.fixture(autouse=True)
def sketch_rules_end_with_their_test() -> Iterator[None]:
    """While there are rules of a user's, choices are not remembered: other tests would notice."""
    rules = "tilewright.autotune.rules.user_rules"
    before = dict(vars(sys.modules[rules])["SKETCH_RULES"]) if rules in sys.modules else {}
    yield
    if rules in sys.modules:
        registered = vars(sys.modules[rules])["SKETCH_RULES"]
        registered.clear()
        registered.update(before)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write golden files anew")


def pytest_configure(config: pytest.Config) -> None:
    try:
        host_target()
    except TargetError as error:
        raise pytest.UsageError(f"no processor to test: {error}") from error
    config.pluginmanager.register(RootIsNoTestPackage())
    processors, patch = Processors(), pytest.MonkeyPatch()
    processors.observe(patch)
    config.add_cleanup(patch.undo)
    config.pluginmanager.register(ReportsProcessors(processors))


@pytest.hookimpl(tryfirst=True)  # before what is marked `long` is left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    thin(items)


def pytest_collection_finish() -> None:
    """Keep the modules and items of the suite, which live to its end, out of later collections.

    Programs have next to no cycles (`tests/runtime/test_garbage.py`): looking for them is rarer.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository, which is the folder of the package."""
    return ROOT


@pytest.fixture
def aborting_llvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In child processes LLVM aborts at once; this one has the real library already."""
    import llvmlite.binding  # noqa: F401

    folder = tmp_path / "aborting"
    (folder / "llvmlite").mkdir(parents=True)
    text = "import os\nprint('LLVM ERROR: Cannot select', flush=True)\nos.abort()\n"
    (folder / "llvmlite" / "__init__.py").write_text(text, encoding="ascii")
    monkeypatch.syspath_prepend(folder)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process."""
    from tilewright.cli.main import main as command_line

    def command(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["tilewright", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            command_line()
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        return Result(int(ended.value.code or 0), out, err)

    return command

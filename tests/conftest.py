"""Conditions of every test: run-time checks are on, and the code under test is this checkout."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import hypothesis
import pytest

os.environ["TILEWRIGHT_CHECK"] = "1"  # read when tilewright is imported
os.environ.pop("COLUMNS", None)  # a terminal's, or what readline makes up for xdist's workers
os.environ.pop("LINES", None)
os.environ["TILEWRIGHT_CACHE_DIR"] = ""  # compile anew; tests of the cache name a folder
os.environ["TILEWRIGHT_MACHINE"] = "table"  # choices do not depend on how busy this machine is

import tilewright
from tilewright.autotune.search import drawing, remembered, search
from tilewright.autotune.search.sketch import Sketch, sketches
from tilewright.base.errors import TargetError
from tilewright.codegen.cpu.detection import host_target
from tilewright.codegen.disk_cache import location
from tilewright.target import Target
from tilewright.tir.ir import Func

from . import short_sessions
from .commands import Result, Run
from .hosts import Processors, ReportsProcessors
from .long import examples, thin

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

LONGEST = ("test_notebooks.py", "test_docs.py", "test_benchmarks.py", "test_examples.py")

# The same examples in every run, and no test that depends on how fast the machine is.
hypothesis.settings.register_profile(
    "suite", max_examples=examples(100), derandomize=True, database=None, deadline=None
)
hypothesis.settings.load_profile("suite")


class RootIsNoTestPackage:
    """Keeps pytest from importing the root's `__init__.py` again, under the name of the clone."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(
        self, path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        return pytest.Dir.from_parent(parent, path=path) if path == ROOT else None


@pytest.fixture(scope="session")
def choices_of_all_workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "choices"
    os.environ[short_sessions.CHOICES] = str(folder)
    return folder


@pytest.fixture
def patches(request: pytest.FixtureRequest) -> Callable[[], bool]:
    """Whether the test has replaced anything but arguments and variables that are not ours."""
    if "monkeypatch" not in request.fixturenames:
        return lambda: False
    patch = request.getfixturevalue("monkeypatch")
    return lambda: (
        any(target is not sys for target, *_ in patch._setattr)
        or any(
            names is not os.environ or str(name).startswith("TILEWRIGHT")
            for names, name, _ in patch._setitem
        )
    )


@pytest.fixture(autouse=True)
def choices_are_made_once(
    patches: Callable[[], bool], choices_of_all_workers: Path
) -> Iterator[None]:
    """What the cost model chooses for a program, it chooses once in a run.

    The name of a choice is a digest of all that it depends on, the sources of the rules among them:
    of all but what a test patches.
    """

    def place(environ: Mapping[str, str], kind: str) -> Path | None:
        own = location(environ, kind)
        return own if own or patches() else choices_of_all_workers

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remembered, "location", place)
        yield


@pytest.fixture
def made_once() -> Iterator[None]:
    """The sketches of a program are made once in a process, whatever else a test patches."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (drawing, search):
            patch.setattr(module, "sketches", short_sessions.sketches_made_once)
        yield


@pytest.fixture(autouse=True)
def sketches_are_made_once(patches: Callable[[], bool]) -> Iterator[None]:
    """The sketches of a program are made once in a process, but for tests that change how."""

    def made(func: Func, target: Target, *, inexact: bool = False) -> tuple[Sketch, ...]:
        make = sketches if patches() else short_sessions.sketches_made_once
        return make(func, target, inexact=inexact)

    with pytest.MonkeyPatch.context() as patch:
        for module in (drawing, search):
            patch.setattr(module, "sketches", made)
        yield


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
    """Leave a part of the tests out, and begin with those that take longest: none is left alone
    with them at the end."""
    thin(items)
    items.sort(key=lambda item: item.path.name not in LONGEST)


def pytest_collection_finish() -> None:
    """Keep the modules and items of the suite, which live to its end, out of later collections.

    Programs have next to no cycles (`tests/runtime/test_garbage.py`): looking for them is rarer.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


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
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], made_once: None) -> Run:
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

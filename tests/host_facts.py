"""What each test asked about the processor, so that a test that asked nothing is not run again.

`TILEWRIGHT_HOST` is the one thing in which the runs of `make test-hosts` differ. It is read by
`host_limit`, and so by `host_target`; child processes inherit it. A test is a deterministic
program: if it never asks for the processor, or is told the same, it passes on each that this
machine is taken for. A run notes for each test that passes:

    host           it read the processor itself, or ran child processes: always run again
    is NAME        it asked whether the processor is NAME (`resolve` fills in its caches)
    has a,b        it asked whether the processor has these features

and keeps what was noted with a digest of all files. Where `TILEWRIGHT_HOST` is set, tests whose
answers are known to be the same are deselected.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import pytest

from tilewright.codegen.cpu import detection
from tilewright.codegen.cpu.generator import CpuGenerator
from tilewright.runtime.host import HOST, host_limit
from tilewright.target import NATIVE, CpuTarget

Facts = set[str]
_HOST = "host"
_GENERATED = re.compile(r"\.|__pycache__$|build$|.*\.egg-info$")
"""Folders of which nothing is read: those that tools write, while tests run too."""
_KEY = "tilewright/host_facts"
DIGEST = "host_facts_digest"


class HostFacts:
    """A plugin that notes what tests ask about the processor, and leaves out what was answered."""

    def __init__(self, root: Path, digest: str | None = None) -> None:
        self.tests: dict[str, list[str]] = {}
        """What each test asked that passed and would pass as well on other processors."""
        self.modules: dict[str, Facts] = {}
        self.fixtures: dict[pytest.FixtureDef[Any], Facts] = {}
        self.noted: Facts | None = None
        """Where facts go now."""
        self.quiet = False
        self.importing: str | None = None
        self.passed = True
        self.left_out = 0
        self.host = detection.host_target()
        self.digest = digest or digest_of(root, self.host.threads)

    def observe(self, patch: pytest.MonkeyPatch) -> None:
        """Note what is asked in this process from now on."""
        self._replace(patch, detection.host_target, self._noting(detection.host_target))
        self._replace(patch, host_limit, self._noting(host_limit))
        resolve, check = CpuGenerator.resolve, CpuGenerator.check_runnable

        def resolved(generator: CpuGenerator, wanted: CpuTarget) -> CpuTarget:
            if self._is_detected():
                self.note(_HOST if wanted.mcpu == NATIVE else f"is {wanted.mcpu}")
            with self._silence():
                return resolve(generator, wanted)

        def checked(generator: CpuGenerator, target: CpuTarget) -> None:
            if self._is_detected():
                alien = target.arch != self.host.arch
                self.note(_HOST if alien else f"has {','.join(target.features)}")
            with self._silence():
                check(generator, target)

        patch.setattr(CpuGenerator, "resolve", resolved)
        patch.setattr(CpuGenerator, "check_runnable", checked)

    def _is_detected(self) -> bool:
        """Whether no test gives a machine, by `take_for`."""
        return hasattr(detection.host_target, "__wrapped__")

    def note(self, fact: str) -> None:
        """Note a fact. Raises `AssertionError` where the answer is kept for others, unseen."""
        if self.noted is None or self.quiet or _HOST in self.noted or fact in self.noted:
            return
        keeper = _keeper(sys._getframe(1), self.importing)
        assert keeper is None, (
            f"{keeper} keeps what it learns about the processor ({fact}): a later test would not "
            "be seen to ask. Ask outside, and pass it the target"
        )
        self.noted.add(fact)

    @contextmanager
    def _silence(self) -> Iterator[None]:
        before, self.quiet = self.quiet, True
        try:
            yield
        finally:
            self.quiet = before

    @contextmanager
    def noting_to(self, facts: Facts) -> Iterator[None]:
        """Add what is asked meanwhile to `facts`."""
        before, self.noted = self.noted, facts
        ended, children = _ended_children(), _children()
        try:
            yield
        finally:
            self.noted = before
            if _ended_children() != ended or _children() != children:
                facts.add(_HOST)

    def _noting(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(ask)
        def asked() -> Any:
            self.note(_HOST)
            return ask()

        if hasattr(ask, "__wrapped__"):
            asked.__wrapped__ = self._noting(ask.__wrapped__)
        return asked

    def _replace(self, patch: pytest.MonkeyPatch, old: object, new: object) -> None:
        """Put `new` wherever a module has `old`; modules that come later import `new`."""
        for module, name, value in _globals():
            if value is old:
                patch.setattr(module, name, new)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[DIGEST] = self.digest  # is computed once for all workers

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        if not isinstance(collector, pytest.Module):
            return (yield)
        facts = self.modules.setdefault(collector.nodeid, set())
        self.importing = str(collector.path)
        try:
            with self.noting_to(facts):
                return (yield)
        finally:
            self.importing = None

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Any:
        """What a fixture of several tests asked counts for each of them."""
        if fixturedef.scope == "function":
            return (yield)
        facts = self.fixtures.setdefault(fixturedef, set())
        try:
            with self.noting_to(facts):
                return (yield)
        finally:
            if self.noted is not None:
                self.noted |= facts

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: Any) -> None:
        if self.noted is not None:
            for definition in item._request._fixture_defs.values():
                self.noted |= self.fixtures.get(definition, set())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        module = item.getparent(pytest.Module)
        facts = set() if module is None else set(self.modules.get(module.nodeid, ()))
        self.passed = True
        with self.noting_to(facts):
            result = yield
        if self.passed and not differs(facts, self.host):
            self.tests[item.nodeid] = sorted(facts)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed &= report.outcome == "passed"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        if not os.environ.get(HOST):
            return
        known = self._recorded(config)
        same = {name for name, facts in known.items() if not differs(set(facts), self.host)}
        out = [item for item in items if item.nodeid in same]
        if out:
            config.hook.pytest_deselected(items=out)
            items[:] = [item for item in items if item.nodeid not in same]
            self.left_out = len(out)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["host_facts"] = self.tests
            output["left_out"] = self.left_out
        elif self.tests and hasattr(session.config, "cache"):
            tests = {**self._recorded(session.config), **self.tests}
            session.config.cache.set(_KEY, {"digest": self.digest, "tests": tests})

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})
        self.tests.update(output.get("host_facts", {}))
        self.left_out = max(self.left_out, output.get("left_out", 0))  # each collects them all

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left_out:
            terminalreporter.write_line(
                f"{self.left_out} tests passed as another processor, and ask nothing that differs"
            )

    def _recorded(self, config: Any) -> dict[str, list[str]]:
        found = config.cache.get(_KEY, None) if hasattr(config, "cache") else None
        recorded: dict[str, list[str]] = {}
        if found is not None and found["digest"] == self.digest:
            recorded = found["tests"]
        return recorded


def differs(facts: Facts, host: CpuTarget) -> bool:
    """Whether an answer on `host` may differ from that where a test does not depend on it."""
    for fact in facts:
        kind, _, value = fact.partition(" ")
        same_name = kind == "is" and value != host.mcpu
        all_there = kind == "has" and set(value.split(",")) - {""} <= set(host.features)
        if not (same_name or all_there):
            return True
    return False


def digest_of(root: Path, threads: int) -> str:
    """Of what else tests may depend on: the files below `root`, libraries, usable processors."""
    digest = hashlib.sha256(f"{sys.version} {threads}".encode())
    for name in sorted(f"{d.name} {d.version}" for d in distributions()):
        digest.update(f"{name}\n".encode())
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(n for n in folders if not _GENERATED.match(n))
        for path in (Path(folder, name) for name in sorted(files)):
            if not path.is_file():  # a link to nothing, as editors make them
                continue
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root)} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


def _ended_children() -> int:
    """Grows with each child process that has ended: none starts without a page fault."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def _children() -> set[tuple[str, str]]:
    """The child processes of Python, and how often each has waited: one that is asked does again.

    A server of databases, which is no Python, asks nothing.
    """
    return {(pid, _waits(pid)) for pid in _child_pids() if _is_python(int(pid))}


def _child_pids() -> set[str]:
    """Of all threads; read again where one ended meanwhile, whose children another has now."""
    while True:
        try:
            lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
        except (FileNotFoundError, ProcessLookupError):
            continue
        return {pid for pids in lists for pid in pids.split()}


def _waits(pid: str) -> str:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""
    return status.partition("\nvoluntary_ctxt_switches:")[2].partition("\n")[0]


def _is_python(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").samefile(sys.executable)
    except OSError:
        return False


def _keeper(frame: FrameType | None, importing: str | None) -> str | None:
    """The function or module that is asking, if it does so once for all tests."""
    kept = _cached_functions(len(sys.modules))
    while frame is not None and f"{os.sep}_pytest{os.sep}" not in frame.f_code.co_filename:
        code = frame.f_code
        spec = frame.f_globals.get("__spec__")  # pages of the docs run as modules without one
        imported = code.co_name == "<module>" and spec and code.co_filename != importing
        if imported or code in kept:
            return f"{code.co_qualname} of {code.co_filename}"
        frame = frame.f_back
    return None


@functools.lru_cache(maxsize=1)
def _cached_functions(_modules: int) -> set[CodeType]:
    """Functions of the package and its tests that keep their results, of all modules so far."""
    cached = (v for _, _, v in _globals() if isinstance(v, functools._lru_cache_wrapper))
    return {function.__wrapped__.__code__ for function in cached}


def _globals() -> Iterator[tuple[ModuleType, str, Any]]:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("tilewright", "tests"):
            yield from ((module, name, value) for name, value in list(vars(module).items()))

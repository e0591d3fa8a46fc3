"""Does some test notice when a condition is not checked? `python scripts/mutate_requires.py`.

Each `require(...)` and each `raise ScheduleError(...)` of the schedules is switched off in turn,
and so is each part of what is required (`a and b`) or refused (`if a or b: raise`). The tests are
run in which it has refused something or recorded a constraint. Conditions for which no test fails
are printed; the exit status is then 1. Sources are not touched: modules get switches when they are
imported. The tests are collected once; what is tried runs in forks.

    python scripts/mutate_requires.py                           # all, takes minutes
    python scripts/mutate_requires.py --only primitives/loops   # those of some files
"""

from __future__ import annotations

import argparse
import ast
import builtins
import importlib
import json
import os
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "schedule"
TESTS = "tests/schedule"
SECONDS = 120
"""Of processor time. What takes longer has failed: what was switched off had kept it short."""
BYTES = 16 << 30
"""Of address space, likewise."""
REQUIRING = ("require", "require_some", "require_number")
"""The functions that refuse. Where one is off, it gives back its first argument."""
FAILED = 1
BROKEN = 3


@dataclass(frozen=True)
class Site:
    """A place that refuses, named by its file and line, with its message."""

    name: str
    message: str


def main() -> int:
    """Try each site, and print those that no test is about."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--only", default="", help="files whose path has this in it")
    options.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    given = options.parse_args()
    sys.path.insert(0, str(ROOT))  # for processes that tests start, as `python -m pytest` does
    trial = Trial([s for s in sites() if given.only in s.name.partition(":")[0]], given.jobs)
    put_switches()
    code = pytest.main([TESTS, "-qq", "-s", "-p", "no:cacheprovider"], plugins=[trial])
    if not trial.done:
        return int(code) or BROKEN
    print(f"{len(trial.sites)} conditions, {len(trial.sites) - len(trial.missed)} noticed")
    return 1 if trial.missed else 0


# Switches in the sources


def sites() -> list[Site]:
    """All places that refuse in the package of schedules."""
    found: list[Site] = []
    for path in sorted(SOURCES.rglob("*.py")):
        with_switches(path, found)
    return found


def with_switches(path: Path, found: list[Site]) -> ast.Module:
    """The module in a file, with a switch at each site; `found` gets them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    _Switches(str(path.relative_to(ROOT)), found).visit(tree)
    return ast.fix_missing_locations(tree)


@dataclass
class _Switches(ast.NodeTransformer):
    path: str
    found: list[Site]

    def visit_Call(self, node: ast.Call) -> ast.Call:
        function = ast.unparse(node.func)
        if function not in REQUIRING:
            self.generic_visit(node)
            return node
        self._switch_parts(node.args[0], ast.And, neutral=True)
        self.generic_visit(node)
        name = self._site(node, node.args[1])
        arguments: list[ast.expr] = [ast.Constant(name), ast.Constant(function)]
        guarded = ast.Call(ast.Name("__require__", ast.Load()), arguments, [])
        return ast.copy_location(ast.Call(guarded, node.args, node.keywords), node)

    def visit_If(self, node: ast.If) -> ast.If:
        if type(node.body[-1]) is ast.Raise:
            self._switch_parts(node.test, ast.Or, neutral=False)
        self.generic_visit(node)
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        self.generic_visit(node)
        error = node.exc
        if not isinstance(error, ast.Call) or ast.unparse(error.func) != "ScheduleError":
            return node
        name = self._site(node, error.args[0])
        is_on = ast.Call(ast.Name("__is_on__", ast.Load()), [ast.Constant(name)], [])
        return ast.copy_location(ast.If(is_on, [node], []), node)

    def _switch_parts(self, condition: ast.expr, op: type[ast.boolop], *, neutral: bool) -> None:
        """Let each part of `condition` be replaced by what leaves it to the others."""
        if not isinstance(condition, ast.BoolOp) or type(condition.op) is not op:
            return
        for k, part in enumerate(condition.values):
            name = f"{self.path}:{part.lineno}:{part.col_offset + 1}"
            self.found.append(Site(name, ast.unparse(part)))
            arguments = [ast.Constant(name), part, ast.Constant(neutral)]
            call = ast.Call(ast.Name("__part__", ast.Load()), arguments, [])
            condition.values[k] = ast.copy_location(call, part)

    def _site(self, node: ast.stmt | ast.expr, message: ast.expr) -> str:
        text = message.value if isinstance(message, ast.Constant) else ast.unparse(message)
        self.found.append(Site(f"{self.path}:{node.lineno}", str(text)))
        return self.found[-1].name


def put_switches() -> None:
    """Let the modules of the package be imported with switches."""
    real = SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> CodeType | None:
        path = Path(self.path)
        if SOURCES not in path.parents:
            return real(self, fullname)
        return compile(with_switches(path, []), self.path, "exec", dont_inherit=True)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    vars(builtins).update(__require__=switched_require, __is_on__=is_on, __part__=switched_part)


@dataclass
class Switches:
    """The site that is off, and the tests in which each of the others did something."""

    off: str = ""
    test: str = ""
    seen: dict[str, dict[str, None]] = field(default_factory=dict)

    def note(self, name: str) -> None:
        self.seen.setdefault(name, {})[self.test] = None


SWITCHES = Switches()


def is_on(name: str) -> bool:
    """Whether a site that is about to raise may do so."""
    SWITCHES.note(name)
    return name != SWITCHES.off


def switched_part(name: str, value: Any, neutral: bool) -> Any:
    """`value`, or `neutral` where this part is switched off."""
    if name == SWITCHES.off:
        return neutral
    if type(value) is not bool or value is not neutral:
        SWITCHES.note(name)
    return value


def switched_require(name: str, function: str) -> Callable[..., Any]:
    """One of the functions that refuse, at a site."""
    module = importlib.import_module("tilewright.schedule.require")

    def noting(*args: Any, **kwargs: Any) -> Any:
        space = module.current_space()
        before = 0 if space is None else len(space.constraints)
        done = False
        try:
            value = getattr(module, function)(*args, **kwargs)
            done = True
        finally:
            if not done or (space is not None and len(space.constraints) > before):
                SWITCHES.note(name)
        return value

    return (lambda value, *_, **__: value) if name == SWITCHES.off else noting


# Running tests


@dataclass
class Trial:
    """A plugin that, in place of running the tests, runs them without each of `sites`."""

    sites: Sequence[Site]
    jobs: int
    missed: list[Site] = field(default_factory=list)
    done: bool = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed:
            return None  # pytest says what could not be collected
        tests = observed(session)
        if tests is None:
            raise session.Failed("no tests to go by")
        running: dict[int, Site] = {}
        for site in self.sites:
            if len(running) == self.jobs:
                self.finish(running)
            running[start(run_without, session, site, tests.get(site.name, ()))] = site
        while running:
            self.finish(running)
        self.done = True
        return True

    def finish(self, running: dict[int, Site]) -> None:
        """Wait for one of those that run."""
        process, status = os.wait()
        site = running.pop(process)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == BROKEN:
            raise SystemExit(f"{site.name}: this script fails")
        if status == 0:
            self.missed.append(site)
            print(f"{site.name}: {site.message}", flush=True)


def observed(session: pytest.Session) -> Mapping[str, Sequence[str]] | None:
    """The tests in which each site did something, those of few sites first.

    `None` where tests fail.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "observed.json"
        _, status = os.waitpid(start(observe, session, file), 0)
        if status != 0:
            return None
        found: dict[str, list[str]] = json.loads(file.read_text(encoding="utf-8"))
    count: dict[str, int] = {}
    for tests in found.values():
        for test in tests:
            count[test] = count.get(test, 0) + 1
    return {site: sorted(tests, key=lambda t: count[t]) for site, tests in found.items()}


def start(work: Callable[..., int], *args: Any) -> int:
    """Do `work` in a process of its own, which exits with what it returns; its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fork() or _work(work, *args)  # noqa: TID251 - tests were collected, none has run


def _work(work: Callable[..., int], *args: Any) -> NoReturn:
    code = BROKEN
    try:
        code = work(*args)
    finally:
        if code == BROKEN:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def observe(session: pytest.Session, file: Path) -> int:
    """Run all tests and note in which of them each site refuses, or records a constraint."""
    for test in failures(session, session.items):
        print(f"{test} fails as it is: mend it first", file=sys.stderr)
        return FAILED
    seen = {name: list(tests) for name, tests in SWITCHES.seen.items()}
    file.write_text(json.dumps(seen), encoding="utf-8")
    return 0


def run_without(session: pytest.Session, site: Site, tests: Sequence[str]) -> int:
    """Run `tests` with a site switched off."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    SWITCHES.off = site.name
    items = {item.nodeid: item for item in session.items}
    for _ in failures(session, [items[t] for t in tests]):
        return FAILED
    return 0


def failures(session: pytest.Session, items: Sequence[pytest.Item]) -> Iterator[str]:
    """Run tests one after the other; the names of those that fail."""
    session.config.pluginmanager.unregister(name="terminalreporter")
    for k, item in enumerate(items):
        SWITCHES.test = item.nodeid
        before = session.testsfailed
        following = items[k + 1] if k + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed > before:
            yield item.nodeid


if __name__ == "__main__":
    sys.exit(main())

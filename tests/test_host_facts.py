"""Tests that ask nothing that differs between processors are known, and left out as another one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tilewright.codegen.cpu import detection
from tilewright.codegen.detect import check_runnable, resolve
from tilewright.runtime.host import HOST
from tilewright.target import CPUS, CpuTarget

from .host_facts import HostFacts, differs, digest_of
from .hosts import take_for

x86 = pytest.mark.skipif(detection.host_target().arch != "x86_64", reason="they are x86-64")
OTHER = CpuTarget.named("x86-64-v2", threads=1)


@pytest.fixture
def facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostFacts:
    """A plugin of this test."""
    plugin = HostFacts(tmp_path)
    plugin.observe(monkeypatch)
    return plugin


@pytest.mark.parametrize(
    ("ask", "noted"),
    [
        (lambda: None, set()),
        (lambda: detection.host_target(), {"host"}),  # noqa: PLW0108  as it is when this is called
        (lambda: resolve("cpu"), {"host"}),
        (lambda: resolve("cpu -mcpu=cascadelake -threads=2"), {"is cascadelake"}),
        (lambda: check_runnable(replace(OTHER, features=())), {"has "}),
        (lambda: subprocess.run(["true"], check=True), {"host"}),
    ],
    ids=["nothing", "the processor", "its target", "a target", "whether it runs", "a process"],
)
def test_what_is_asked_is_noted(
    ask: Callable[[], object], noted: set[str], facts: HostFacts
) -> None:
    found: set[str] = set()
    with facts.noting_to(found):
        ask()
    assert found == noted


def test_a_child_that_waits_asks_nothing_until_it_is_asked(facts: HostFacts) -> None:
    echo = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
    command = [sys.executable, "-c", echo]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        stdin, stdout = child.stdin, child.stdout
        assert stdin is not None
        assert stdout is not None

        def ask() -> None:
            print("which?", file=stdin, flush=True)
            assert stdout.readline() == "which?\n"

        ask()  # it is there now
        time.sleep(0.1)  # and waits again
        idle, asked = set[str](), set[str]()
        with facts.noting_to(idle):
            pass
        with facts.noting_to(asked):
            ask()
            time.sleep(0.1)
        stdin.close()
    assert idle == set()
    assert asked == {"host"}


@cache
def kept() -> str:
    return str(detection.host_target())


def test_threads_may_end_while_children_are_counted(facts: HostFacts) -> None:
    done = threading.Event()

    def threads_that_end() -> None:
        while not done.is_set():
            short = [threading.Thread(target=bool) for _ in range(4)]
            for thread in short:
                thread.start()
            for thread in short:
                thread.join()

    busy = threading.Thread(target=threads_that_end)
    busy.start()
    found: set[str] = set()
    try:
        for _ in range(1000):  # about 1 in 1000 saw one that ended, when that was an error
            with facts.noting_to(found):
                pass
    finally:
        done.set()
        busy.join()
    assert found == set()


def test_answers_may_not_be_kept_for_later_tests(facts: HostFacts) -> None:
    text = r"^kept of .*test_host_facts.py keeps what it learns"
    with facts.noting_to(set()), pytest.raises(AssertionError, match=text):
        kept()


def test_a_machine_that_a_test_gives_is_no_question(
    facts: HostFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_for(monkeypatch, OTHER)
    found: set[str] = set()
    with facts.noting_to(found):
        assert detection.host_target() is OTHER
        assert resolve("cpu -threads=1").mcpu == OTHER.mcpu  # type: ignore[attr-defined]
        check_runnable(OTHER)
    assert found == set()


@pytest.mark.parametrize(
    ("noted", "differ"),
    [
        (set(), False),
        ({"host"}, True),
        ({"is cascadelake", "is haswell"}, False),
        ({"is cascadelake", "is x86-64-v2"}, True),
        ({"has "}, False),
        ({"has sse4.2,popcnt"}, False),
        ({"has sse4.2,avx"}, True),
    ],
)
def test_answers_that_may_differ(noted: set[str], differ: bool) -> None:
    assert differs(noted, OTHER) is differ


def test_any_change_of_a_file_counts(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / ".cache").mkdir()
    (tmp_path / "room" / "a.py").write_text("1")
    first = digest_of(tmp_path, 2)
    (tmp_path / ".cache" / "b").write_text("")
    (tmp_path / "room" / "__pycache__").mkdir()
    (tmp_path / "room" / "__pycache__" / "a.pyc").write_text("")
    assert digest_of(tmp_path, 2) == first != digest_of(tmp_path, 1)
    (tmp_path / "room" / ".#a.py").symlink_to("nowhere")
    assert digest_of(tmp_path, 2) == first
    (tmp_path / "room" / "building.py").write_text("")
    second = digest_of(tmp_path, 2)
    (tmp_path / "room" / "a.py").write_text("2")
    assert len({first, second, digest_of(tmp_path, 2)}) == 3


MODULE = """
import subprocess, sys, pytest
from dataclasses import replace
from tests.hosts import processor, runs
from tilewright.target import CpuTarget

@pytest.fixture(scope="module")
def shared():
    return processor("cpu")

def test_nothing(): pass
def test_host(): processor("cpu")
def test_by_a_fixture(shared): pass
def test_by_a_fixture_that_is_there(request): request.getfixturevalue("shared")
def test_another(): processor("cpu -mcpu=neoverse-n1 -threads=1")
def test_what_it_is_taken_for(): processor("cpu -mcpu=x86-64 -threads=1")
def test_runs(): assert runs(replace(CpuTarget.named("x86-64-v2", threads=1), features=()))
def test_process(): subprocess.run([sys.executable, "-c", ""], check=True)
def test_skipped(): pytest.skip("here")
"""


@x86
@pytest.mark.skipif(
    set(detection.host_target().features) <= CPUS["x86-64"].features,
    reason="no lesser one",
)
def test_such_tests_are_left_out_as_another_processor(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "test_asking.py"
    path.write_text(MODULE)

    inherited = {name: value for name, value in os.environ.items() if name != HOST}

    def run(*options: str, **environment: str) -> list[str]:
        command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--rootdir", str(root)]
        command += ["-c", str(root / "pyproject.toml"), "-o", f"cache_dir={tmp_path}/cache", "-rA"]
        done = subprocess.run(
            [*command, *options, str(path)],
            cwd=root,
            env={**inherited, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        lines = [line.partition("::") for line in done.stdout.splitlines()]
        return sorted(after.split()[0] for line, _, after in lines if line.startswith("PASSED"))

    everything = run("-n", "2")
    assert len(everything) == 8
    assert run() == everything
    left = run("-n", "2", **{HOST: "-mcpu=x86-64"})
    assert left == sorted(
        f"test_{name}"
        for name in ("host", "by_a_fixture", "by_a_fixture_that_is_there", "process",
                     "what_it_is_taken_for")
    )  # fmt: skip

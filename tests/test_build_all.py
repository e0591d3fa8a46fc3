"""`build_all`: several programs at once, in child processes, with the modules of `build`."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.autotune.measure import compile_in_child, worker_pool
from tilewright.autotune.measure.worker_process import Worker
from tilewright.autotune.rules.user_rules import SKETCH_RULES
from tilewright.autotune.search import unmeasured
from tilewright.codegen import cache as compiling
from tilewright.codegen.build import compile_func
from tilewright.codegen.disk_cache import LOCATION
from tilewright.tir.instruction_set import find_instruction

from .instruction_sets import forgotten

SERIAL = "cpu -threads=1"
PROGRAMS = (ops.matmul_func(6, 8, 5), ops.softmax_func(3, 20), ops.add_relu_func(33))


@pytest.fixture(autouse=True)
def no_own_instructions() -> Iterator[None]:
    with forgotten():
        yield


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(LOCATION, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def own_rule() -> Iterator[None]:
    def in_rows(draft: tw.Draft) -> None:
        draft.schedule.parallel(draft.schedule.get_loops(draft.schedule.get_block(0))[0])

    tw.sketch_rule(in_rows)
    yield
    del SKETCH_RULES["in_rows"]


def nothing_is_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("made in this process")

    monkeypatch.setattr(unmeasured, "model_trace", refuse)
    monkeypatch.setattr(unmeasured, "default_trace", refuse)
    monkeypatch.setattr(compiling, "compile_func", refuse)


def no_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process is started")

    monkeypatch.setattr(worker_pool, "Worker", refuse)


def text(module: tw.Module) -> str:
    return str(module.source("asm"))


@pytest.mark.parametrize("cached", [True, False])
def test_the_modules_are_those_of_single_builds(
    cached: bool, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The code of a child comes by message, with a cache on disk or without."""
    with monkeypatch.context() as patch:
        patch.setenv(LOCATION, "")
        expected = [tw.build(program, SERIAL) for program in PROGRAMS]
    if not cached:
        monkeypatch.setenv(LOCATION, "")
    scheduled = tw.Schedule(PROGRAMS[2])
    scheduled.vectorize(
        scheduled.split(scheduled.get_loops(scheduled.get_block("C"))[0], factors=[None, 8])[1]
    )
    made = list[str]()

    def counted(func: Any, *arguments: Any, **options: Any) -> Any:
        made.append(func.name)
        return compile_func(func, *arguments, **options)

    monkeypatch.setattr(compiling, "compile_func", counted)
    *found, by_hand = tw.build_all([*PROGRAMS, scheduled], SERIAL, jobs=2)
    assert 1 <= len(made) <= len(PROGRAMS), "a child has made the first, this process the last"
    assert made[0] == scheduled.func.name
    for one, other in zip(found, expected, strict=True):
        assert one.origin == other.origin
        assert one.signature == other.signature
        for source in ("asm", "tir", "llvm"):
            assert one.source(source) == other.source(source)
    assert folder.exists() is cached
    assert by_hand.origin.kind == "schedule"
    assert caplog.records == []
    a, b = np.ones((6, 5), np.float32), np.full((5, 8), 2, np.float32)
    c = np.empty((6, 8), np.float32)
    found[0](a, b, c)
    np.testing.assert_array_equal(c, np.full((6, 8), 10, np.float32))


def test_what_is_cached_needs_no_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = [tw.build(program, SERIAL) for program in PROGRAMS]
    no_process_is_started(monkeypatch)
    nothing_is_made_here(monkeypatch)
    again = tw.build_all(PROGRAMS, SERIAL, jobs=2)
    assert [text(m) for m in again] == [text(m) for m in first]


def test_a_program_that_is_there_twice_is_built_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_process_is_started(monkeypatch)  # for one kernel it is not worth it
    one, other = tw.build_all([PROGRAMS[0], ops.matmul_func(6, 8, 5)], SERIAL, jobs=2)
    assert text(one) == text(other)


def test_the_database_is_asked_once_for_each_program(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tw.TuningDatabase(tmp_path / "tuning.db") as database:
        best, relatives, asked = database.best, database.relatives, list[str]()

        def counted(name: str, ask: Any) -> Any:
            def call(*arguments: Any, **options: Any) -> Any:
                asked.append(name)
                return ask(*arguments, **options)

            return call

        monkeypatch.setattr(database, "best", counted("best", best))
        monkeypatch.setattr(database, "relatives", counted("relatives", relatives))
        modules = tw.build_all(PROGRAMS, SERIAL, database, jobs=2)
    assert asked == ["best", "relatives"] * len(PROGRAMS)
    assert [m.origin.kind for m in modules] == ["model"] * len(PROGRAMS)


@pytest.mark.parametrize("why", ["one job", "own rules", "own instructions"])
def test_without_processes_all_is_built_here(
    folder: Path, why: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    no_process_is_started(monkeypatch)
    if why == "own rules":
        request.getfixturevalue("own_rule")
    elif why == "own instructions":
        known = find_instruction("outer_4x8_fma")
        exec(  # as a script does
            "register('mine', known.semantics, known.implementation)",
            {"__name__": "__main__", "register": tw.register_intrin, "known": known},
        )
    modules = tw.build_all(
        PROGRAMS[1:], SERIAL, allow=("default",), jobs=1 if why == "one job" else 2
    )
    assert [m.origin.kind for m in modules] == ["default", "default"]


def test_a_child_that_dies_costs_a_warning(
    folder: Path, aborting_llvm: None, caplog: pytest.LogCaptureFixture
) -> None:
    modules = tw.build_all(PROGRAMS, SERIAL, jobs=2)
    assert [m.origin.kind for m in modules] == ["model"] * 3
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert 1 <= len(caplog.records) <= 3  # this process makes some


def test_errors_are_those_of_single_builds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(tw.BuildError, match="expected a program"):
        tw.build_all([*PROGRAMS, ops.matmul_func], SERIAL, jobs=2)  # type: ignore[list-item]
    with pytest.raises(tw.NotTunedError, match="matmul"):
        tw.build_all(PROGRAMS, SERIAL, allow=("record",), jobs=2)
    for jobs in (0, "2"):
        with pytest.raises(tw.BuildError, match=f"jobs={jobs!r}"):
            tw.build_all(PROGRAMS, SERIAL, jobs=jobs)  # type: ignore[arg-type]
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(tw.BuildError) as caught:
        tw.build_all(PROGRAMS, SERIAL, jobs=2)
    assert "jobs=1" in str(caught.value)


def test_an_empty_list_is_no_error() -> None:
    assert tw.build_all([], SERIAL) == []


def test_threads_may_build_at_the_same_time(folder: Path) -> None:
    """They wait for each other's turns in Python and in LLVM, and nothing else is shared."""
    programs = [*PROGRAMS, *(ops.matmul_func(n, 4, 4) for n in (2, 3))]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda p: tw.build(p, SERIAL), [*programs, *programs]))
    assert gc.isenabled()
    expected = [text(tw.build(program, SERIAL)) for program in programs]
    assert [text(module) for module in found] == [*expected, *expected]


def broken() -> tw.Func:
    x = te.placeholder((4,), name="x")
    return te.func([x, te.compute((4,), lambda i: x[i + 1], name="s")], name="broken")


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_names_the_program(folder: Path, jobs: int) -> None:
    with pytest.raises(tw.VerifyError) as error:
        tw.build_all([PROGRAMS[0], broken()], SERIAL, jobs=jobs)
    assert str(error.value).startswith("block s: index ")
    assert str(error.value).endswith("\n  in: program broken, number 2 of 2")


def test_programs_may_come_from_a_generator(folder: Path) -> None:
    modules = tw.build_all((p for p in PROGRAMS[1:]), SERIAL)
    assert [m.signature.name for m in modules] == ["softmax", "add_relu"]


@pytest.mark.parametrize("one", [PROGRAMS[0], tw.Schedule(PROGRAMS[0])])
def test_one_program_is_not_several(one: tw.Func | tw.Schedule) -> None:
    with pytest.raises(tw.BuildError, match=r"expected several, found '(Func|Schedule)'"):
        tw.build_all(one)  # type: ignore[arg-type]


def test_a_child_that_is_stopped_does_not_hold_its_caller(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send = Worker.send

    def send_and_stop(worker: Worker, *request: Any) -> None:
        send(worker, *request)
        os.kill(worker.process.pid, signal.SIGSTOP)

    monkeypatch.setattr(Worker, "send", send_and_stop)
    monkeypatch.setattr(compile_in_child, "_ASLEEP", 0.5)
    modules = tw.build_all(PROGRAMS[:2], SERIAL, jobs=2)
    assert [m.signature.name for m in modules] == [p.name for p in PROGRAMS[:2]]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "0.5 s" in caplog.text


def test_a_child_that_is_gone_at_once_is_a_build_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(pid: int) -> None:
        raise psutil.NoSuchProcess(pid)

    monkeypatch.setattr(psutil, "Process", gone)
    with pytest.raises(tw.BuildError) as caught:
        tw.build_all(PROGRAMS[:2], SERIAL, jobs=2)
    assert "jobs=1" in str(caught.value)

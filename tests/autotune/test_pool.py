"""Worker processes from outside: why they ended."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tilewright import TuningError
from tilewright.autotune.measure import worker_process
from tilewright.autotune.measure.program_text import program_fields
from tilewright.autotune.measure.protocol import Assembler, Message
from tilewright.autotune.measure.reference import new_memory
from tilewright.autotune.measure.worker_pool import (
    Handshake,
    Requeue,
    SupervisedWorker,
    describe,
    was_killed,
)
from tilewright.autotune.measure.worker_process import Died, TimedOut, Worker, turn
from tilewright.codegen.calling_convention import signature_of
from tilewright.codegen.cpu import checked_code
from tilewright.codegen.cpu.llvm import Emitted
from tilewright.codegen.detect import resolve
from tilewright.runtime.measure.supervisor import Child
from tilewright.target import CpuTarget

from .kernels import affine


@pytest.mark.parametrize(
    ("killed", "output", "kills", "expected"),
    [
        (signal.SIGKILL, "", 1, True),  # by the kernel: it counted one more
        (signal.SIGKILL, "", 0, False),  # by somebody
        (
            signal.SIGABRT,
            "terminate called after throwing 'std::bad_alloc'",
            0,
            True,
        ),
        (signal.SIGABRT, "LLVM ERROR: out of memory", 0, True),
        (0, "MemoryError", 0, True),
        (signal.SIGSEGV, "", 1, False),
        (signal.SIGABRT, "assertion failed", 0, False),
    ],
)
def test_deaths_for_want_of_memory_are_told_from_others(
    monkeypatch: pytest.MonkeyPatch, killed: int, output: str, kills: int, expected: bool
) -> None:
    monkeypatch.setattr(worker_process, "_out_of_memory_kills", lambda: 7 + kills)
    assert worker_process._is_out_of_memory(killed, output, 7) is expected


def test_the_kernel_counts_its_kills() -> None:
    assert worker_process._out_of_memory_kills() >= 0


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Died(-11, 11, False, ""), "the process ended with signal 11 (SIGSEGV)"),
        (
            Died(-9, 9, True, "so long"),
            "the process ended with signal 9 (SIGKILL), out of memory; it printed: so long",
        ),
        (Died(-63, 63, False, ""), "the process ended with signal 63 (unknown)"),
        (Died(3, 0, False, ""), "the process ended with exit status 3"),
        (
            Died(-9, 0, False, "", "a message that is not JSON"),
            "the process ended with a kill by its parent: a message that is not JSON",
        ),
        (TimedOut(0.5, ""), "not done within 0.5 s"),
    ],
)
def test_deaths_are_described(event: Died | TimedOut, text: str) -> None:
    assert describe(event) == text


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (signal.SIGKILL, True),
        (signal.SIGTERM, True),
        (signal.SIGHUP, True),
        (signal.SIGINT, True),
        (signal.SIGXCPU, True),
        (signal.SIGSEGV, False),
        (signal.SIGBUS, False),
        (signal.SIGILL, False),
        (signal.SIGFPE, False),
        (signal.SIGABRT, False),
        (0, False),
    ],
)
def test_kills_from_outside_are_told_from_faults(number: int, expected: bool) -> None:
    assert Died(-number, number, False, "").killed_from_outside is expected
    assert Died(-number, number, True, "").killed_from_outside is expected
    assert not was_killed(TimedOut(1.0, ""))


def owing(once: bool) -> SupervisedWorker:
    """A worker whose process has not taken up its program."""
    worker = SupervisedWorker("runner", {})
    worker._owed = [Handshake(Message({}), 1.0, "running the program", once=once)]
    return worker


def test_a_worker_that_is_killed_as_it_gets_ready_is_replaced_twice() -> None:
    worker = owing(once=True)
    for _ in range(2):
        assert isinstance(worker.receive(Died(-9, 9, False, "")), Requeue)
    with pytest.raises(TuningError, match="signal 9"):
        worker.receive(Died(-9, 9, False, ""))
    with pytest.raises(TuningError, match="signal 11"):
        owing(once=True).receive(Died(-11, 11, False, ""))


def dead(worker: Worker) -> Died:
    """The death of a worker that is asked for nothing more."""
    event = turn([worker], lambda: None)[-1][1]
    assert isinstance(event, Died)
    return event


def test_garbage_in_place_of_an_answer_is_a_fault_of_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def feed(_: Assembler, piece: bytes) -> list[Message]:
        raise TuningError("expected a message, found {0!r}", piece[:4])

    monkeypatch.setattr(Assembler, "feed", feed)
    worker = Worker(["compiler"], {})
    fields = {"do": "compile", **program_fields(affine(), resolve("cpu")), "text": "?"}
    worker.send(Message(fields), 60.0)
    died = dead(worker)
    assert "expected a message, found b'twm1'" in str(died)
    assert not died.killed_from_outside
    assert worker.process.returncode is not None


def test_a_worker_has_one_thread() -> None:
    """Those of numpy's libraries would wait actively as it starts."""
    worker = Worker(["compiler"], {})
    try:
        fields = program_fields(affine(), resolve("cpu -threads=1"))
        worker.send(Message({"way": None, "strict_fp": False, "cached": False, **fields}), 60.0)
        ((_, answer),) = turn([worker], lambda: None)
        assert isinstance(answer, Message)
        assert "error" not in answer.fields
        assert psutil.Process(worker.process.pid).num_threads() == 1
    finally:
        worker.kill()


def start_worker() -> None:
    Worker(["compiler"], {}).kill()


def start_measuring() -> None:
    Child(Path("no pack")).stop()


def start_llvm() -> None:
    emitted = Emitted("", "none", 0, 0, False, frozenset())
    checked_code._survive(emitted, CpuTarget.of(resolve("cpu")))


@pytest.mark.parametrize("start", [start_worker, start_measuring, start_llvm])
def test_children_start_without_threads_of_numpy(
    monkeypatch: pytest.MonkeyPatch, start: Callable[[], None]
) -> None:
    environments = list[dict[str, str]]()

    popen: Any = subprocess.Popen

    def started(*arguments: Any, env: dict[str, str], **options: Any) -> Any:
        environments.append(env)
        return popen(*arguments, env=env, **options)

    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "8")
    monkeypatch.setattr(subprocess, "Popen", started)
    start()
    (environment,) = environments
    assert environment["OPENBLAS_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == "1"


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_worker_that_cannot_start_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    before, children = open_files(), psutil.Process().children()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    started, reasons = [], set()
    for more in range(16):
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + more, hard))
        try:
            Worker(["compiler"], {}).kill()
            started.append(more)
        except TuningError as error:
            reasons.add(str(error).partition(":")[0])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert 0 < len(started) < 16
    assert reasons == {"cannot start a worker process"}
    assert open_files() == before
    assert psutil.Process().children() == children


def test_workers_need_no_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    Worker(["compiler"], {}).kill()
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(TuningError, match="cannot start a worker process: .*No space left"):
        Worker(["compiler"], {})
    signature = signature_of(affine())
    with pytest.raises(TuningError, match="no memory for .* results: .*No space left"):
        new_memory(signature)

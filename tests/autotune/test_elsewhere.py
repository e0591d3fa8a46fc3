"""Measuring on a machine elsewhere: pack, run, stop, run on, import."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright import ops
from tilewright.autotune.config import TuneConfig
from tilewright.autotune.measure.measure_result import MeasureConfig
from tilewright.autotune.measure.pack import write_pack
from tilewright.autotune.measure.pack_import import import_results
from tilewright.autotune.records import target_record
from tilewright.base.checked_json import sealed
from tilewright.base.errors import ArtifactError, BuildError, KernelError, TuningError
from tilewright.codegen.build import compile_func
from tilewright.codegen.compiled import Compiled
from tilewright.codegen.cuda.emulate_faults import Fault
from tilewright.codegen.cuda.generator import kernels_of
from tilewright.codegen.cuda.nvcc import nvcc
from tilewright.codegen.detect import resolve
from tilewright.runtime.cuda_driver import driver_error, use_driver
from tilewright.runtime.measure import supervisor
from tilewright.runtime.measure.pack import read_pack
from tilewright.runtime.measure.packed import Message, PackedBench
from tilewright.runtime.measure.results import read_results
from tilewright.runtime.measure.supervisor import Child, measure
from tilewright.target import Target
from tilewright.tir.ir import Func
from tilewright.tuning_db import Measurement, Outcome, Session, SessionStatus, Verification

from ..codegen.cuda.emulated import emulated_kernels
from ..refusals import refused
from ..runtime.cuda_double import H200, DoubleDevice, DoubleDriver, DoubleKernel, Launched
from ..runtime.cuda_double import Fault as Illegal

HERE = "cpu -mcpu=x86-64-v2 -threads=1"
TRIALS = 4
QUICK = TuneConfig(
    final_seconds=0.05, measure=MeasureConfig(sample_seconds=1e-4, timing_seconds=0.01)
)

pytestmark = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("cc", "gcc", "clang", "ld")), reason="no linker here"
)


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finals are held on a machine that is busy with other tests too."""
    monkeypatch.setattr(supervisor, "slowdown", lambda *_: 1.0)


def program() -> Func:
    return ops.matmul_func(24, 24, 24)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed") / "matmul"
    found = write_pack(
        program(), HERE, folder, trials=TRIALS, config=QUICK, compile_program=compile_func
    )
    assert found.built == TRIALS
    assert found.searched
    return folder


@pytest.fixture
def folder(packed: Path, tmp_path: Path) -> Path:
    """A copy of the pack, as on another machine."""
    shutil.copytree(packed, tmp_path / "pack")
    return tmp_path / "pack"


class Here:
    """Measures in this process."""

    def __init__(self, folder: Path) -> None:
        self._bench = PackedBench(folder)

    def ask(self, message: Message, seconds: float) -> Message:
        del seconds
        answer: dict[str, Any] = json.loads(json.dumps(self._bench.answer(message)))
        return answer

    def stop(self) -> None:
        pass


def ticking(step: float = 1.0) -> Callable[[], float]:
    """A clock that goes on by `step` whenever it is read."""
    numbers = iter(range(10_000))
    return lambda: step * next(numbers)


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a pack, with a digest that is right."""
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(sealed(data)))


def test_pack_run_stop_run_on_import(folder: Path, tmp_path: Path) -> None:
    out, location = tmp_path / "results.jsonl", tmp_path / "tuning.db"
    first = measure(folder, out, seconds=2.5, clock=ticking(), start=Here)
    assert len(first.candidates) == 2
    assert len(first.missing) == TRIALS - 2
    with tw.TuningDatabase(location) as database:
        assert import_results(out, database).missing == TRIALS - 2
        (session,) = database.records(Session)
        assert session.status is SessionStatus.INTERRUPTED
        again = measure(folder, out, start=Here)
        assert not again.missing
        assert len(again.runs) == 2
        assert again.candidates[0] == first.candidates[0]
        assert import_results(out, database).new > 0
        assert import_results(out, database).new == 0
        (session,) = database.records(Session)
        assert session.status is SessionStatus.FINISHED
        trials = [m for m in database.records(Measurement) if m.features]
        assert [m.outcome for m in trials] == [Outcome.OK] * TRIALS
        assert all(v.passed for v in database.records(Verification))
        assert len(again.finals) == 2
        lines = out.read_bytes()
        measure(folder, out, start=Here)  # nothing is left
        assert out.read_bytes() == lines
        target = resolve(HERE)
        (known,) = {m.target for m in trials}
        assert known == target_record(target).id
        assert tw.build(program(), HERE, database, allow=["record"]).origin.kind == "record"


def test_what_a_pack_knows_of_its_candidates_is_recorded(tmp_path: Path) -> None:
    programs = 0

    def compile_some(func: Func, target: Target) -> Compiled:
        nonlocal programs
        programs += 1
        if 4 <= programs <= 6:  # the first are the unscheduled programs
            raise BuildError("the compiler says no")
        return compile_func(func, target)

    folder, out = tmp_path / "pack", tmp_path / "results.jsonl"
    write_pack(program(), HERE, folder, trials=6, config=QUICK, compile_program=compile_some)
    results = measure(folder, out, start=Here)
    with tw.TuningDatabase(tmp_path / "tuning.db") as database:
        import_results(out, database)
        (session,) = database.records(Session)
        measured = database.records(Measurement)
        assert database.trials(session.id) == session.trials == 6
        trials = [m for m in measured if m.trial]
        assert Counter(m.outcome for m in trials) == {Outcome.OK: 3, Outcome.BUILD_ERROR: 3}
        assert len({m.created for m in trials}) == 6
        assert {m.trial for m in measured} == {True, False}
        assert sum(m.trial is False for m in measured) == len(results.finals[0]["samples"])
        assert all(m.predicted is not None for m in trials)
        assert {m.predicted for m in trials} == {c.predicted for c in results.pack.candidates}
        elapsed = [m.elapsed for m in sorted(measured, key=lambda m: m.created)]
        assert elapsed == sorted(e for e in elapsed if e is not None)
        assert elapsed[:3] == [0.0] * 3
        assert elapsed[-1] == session.elapsed
        (picture,) = tw.open_run(database, session.id).pictures.pictures.values()
        failed = [(t.outcome, t.reason) for t in picture.trials if t.outcome is not Outcome.OK]
        assert failed == [(Outcome.BUILD_ERROR, "the compiler says no")] * 3


def schedules(folder: Path) -> set[str]:
    return {c.schedule["trace"] for c in read_pack(folder).candidates}


def test_what_a_database_knows_is_not_packed_again(
    folder: Path, measured: Path, tmp_path: Path
) -> None:
    with tw.TuningDatabase(tmp_path / "tuning.db") as database:
        import_results(measured, database)
        found = write_pack(
            program(), HERE, tmp_path / "b", trials=TRIALS, compile_program=compile_func,
            database=database,
        )  # fmt: skip
        assert found.built == TRIALS
        assert not schedules(folder) & schedules(tmp_path / "b")
        out = tmp_path / "again.jsonl"
        measure(tmp_path / "b", out, start=Here)
        import_results(out, database)
        trials = {m.schedule for m in database.records(Measurement)}
        assert len(trials) == 2 * TRIALS


def test_what_is_known_of_other_sizes_warms_the_search(measured: Path, tmp_path: Path) -> None:
    func = ops.matmul_func(26, 26, 26)
    packs = []
    with tw.TuningDatabase(tmp_path / "tuning.db") as database:
        import_results(measured, database)
        for name, known in (("a", None), ("b", database)):
            write_pack(
                func, HERE, tmp_path / name, trials=TRIALS, compile_program=compile_func,
                database=known,
            )  # fmt: skip
            packs.append(schedules(tmp_path / name))
    assert packs[0] != packs[1]


INEXACT = 1e-2
"""An error that is accepted of inexact steps."""


def packed_within(tolerance: float | None, folder: Path) -> Path:
    func = ops.conv2d_func(c=16, h=16, w=16, o=16)
    write_pack(func, HERE, folder, trials=12, compile_program=compile_func, tolerance=tolerance)
    return folder


@pytest.fixture(scope="module")
def inexact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of which some candidates have inexact steps."""
    return packed_within(INEXACT, tmp_path_factory.mktemp("inexact") / "pack")


def test_a_tolerance_permits_inexact_steps(inexact: Path, tmp_path: Path) -> None:
    factors = []
    exact = packed_within(None, tmp_path / "exact")
    for folder, tolerance in ((exact, None), (inexact, INEXACT)):
        pack = read_pack(folder)
        assert pack.records["session"]["search"]["tolerance"] == pack.accepted_error == tolerance
        factors.append({c.error_factor for c in pack.candidates})
    assert factors[0] == {1.0}
    assert max(factors[1]) > 1
    with pytest.raises(TuningError):
        packed_within(-1.0, tmp_path / "c")


@pytest.mark.parametrize(("tolerance", "accepts"), [(1e-12, False), (INEXACT, True)])
def test_finals_are_of_candidates_within_the_tolerance(
    inexact: Path, tmp_path: Path, tolerance: float, accepts: bool
) -> None:
    """Inexact candidates run and have results, but may only be the best within the tolerance."""
    folder = tmp_path / "pack"
    shutil.copytree(inexact, folder)
    changed(folder / "pack.json", lambda pack: pack.update(accepted_error=tolerance))
    pack = read_pack(folder)
    assert pack.accepted_error == tolerance
    inexact_ones = {n for n, c in enumerate(pack.candidates) if c.error_factor > 1}
    out = tmp_path / "results.jsonl"
    measure(folder, out, start=Here)
    results = read_results(out)
    ran = inexact_ones & results.timed.keys()
    assert ran
    assert (ran <= results.accepted.keys()) is accepts
    assert results.accepted.keys() - inexact_ones == results.timed.keys() - inexact_ones
    for finals in results.finals:
        assert {int(n) for n in finals["samples"]} <= results.accepted.keys()


@pytest.mark.parametrize(("disturbed", "held"), [(1, 1), (2, 0)])
def test_disturbed_finals_are_held_again_and_else_not_written(
    folder: Path, tmp_path: Path, disturbed: int, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in sessions of `tune`: they would replace the times of the candidates."""
    factors = iter([200.0] * disturbed + [1.0])
    monkeypatch.setattr(supervisor, "slowdown", lambda *_: next(factors))
    told: list[str] = []
    slept: list[float] = []
    out = tmp_path / "results.jsonl"
    measure(folder, out, start=Here, tell=told.append, sleep=slept.append)
    assert len(read_results(out).finals) == held
    assert slept == [3.0]
    assert ("200 times as long" in told[-1]) is (held == 0)
    assert ("again when the machine is calm" in told[-1]) is (held == 0)
    monkeypatch.setattr(supervisor, "slowdown", lambda *_: 1.0)
    measure(folder, out, start=Here, tell=told.append)  # again, as it said
    assert len(read_results(out).finals) == 1


def test_moments_beyond_the_calendar_are_refused(folder: Path, tmp_path: Path) -> None:
    """Candidates that were not built have moments after that of their pack."""

    def never(pack: dict[str, Any]) -> None:
        pack["created"] = "9999-12-31T23:59:59.999999+00:00"
        failed = {"file": None, "outcome": "build_error", "error": "x", "resources": None}
        for candidate in pack["candidates"][1:]:
            candidate.update(failed)

    changed(folder / "pack.json", never)
    measure(folder, tmp_path / "results.jsonl", start=Here)
    with (
        tw.TuningDatabase(tmp_path / "tuning.db") as database,
        pytest.raises(ArtifactError),
    ):
        import_results(tmp_path / "results.jsonl", database)


@pytest.mark.parametrize("trace", ["[]", '{"version": 99, "steps": []}'])
def test_a_trace_of_no_schedule_is_refused(folder: Path, tmp_path: Path, trace: str) -> None:
    changed(folder / "pack.json", lambda d: d["candidates"][0]["schedule"].update(trace=trace))
    measure(folder, tmp_path / "results.jsonl", start=Here)
    with (
        tw.TuningDatabase(tmp_path / "tuning.db") as database,
        pytest.raises(ArtifactError),
    ):
        import_results(tmp_path / "results.jsonl", database)


def test_finals_that_a_later_run_owes_are_held_by_the_next(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the first run are without the candidates of the second."""
    out = tmp_path / "results.jsonl"
    monkeypatch.setattr(supervisor, "slowdown", lambda *_: 1.0)
    measure(folder, out, seconds=2.5, clock=ticking(), start=Here)
    monkeypatch.setattr(supervisor, "slowdown", lambda *_: 200.0)
    assert not measure(folder, out, start=Here, sleep=lambda _: None).missing
    assert [finals["run"] for finals in read_results(out).finals] == [0]
    monkeypatch.setattr(supervisor, "slowdown", lambda *_: 1.0)
    measure(folder, out, start=Here)
    assert [finals["run"] for finals in read_results(out).finals] == [0, 2]


def test_finals_are_of_as_many_as_find_memory(folder: Path, tmp_path: Path) -> None:
    class Narrow(Here):
        def ask(self, message: Message, seconds: float) -> Message:
            answer = super().ask(message, seconds)
            if message["do"] != "finals":
                return answer
            first, *others = answer["samples"]
            return {"samples": [first, *([] for _ in others)]}

    said: list[str] = []
    results = measure(folder, tmp_path / "results.jsonl", start=Narrow, tell=said.append)
    assert [len(finals["samples"]) for finals in results.finals] == [1]
    assert any("there was no memory for" in text for text in said), said
    with tw.TuningDatabase(tmp_path / "tuning.db") as database:
        import_results(tmp_path / "results.jsonl", database)
        assert tw.build(program(), HERE, database, allow=["record"]).origin.kind == "record"


def test_the_command_needs_numpy_alone(folder: Path, tmp_path: Path) -> None:
    """It runs where the libraries of compiling, learning and records are not."""
    missing = tmp_path / "missing"
    for name in ("llvmlite", "xgboost", "sqlalchemy", "islpy", "alembic", "typer", "psutil"):
        (missing / name).mkdir(parents=True)
        (missing / name / "__init__.py").write_text("raise ImportError('not here')\n")
    path = os.pathsep.join([str(missing), *sys.path])
    out = tmp_path / "results.jsonl"
    command = [sys.executable, "-m", "tilewright.runtime.measure", str(folder), "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": path}
    for seconds, status in (("0", 3), ("100", 0)):
        done = subprocess.run(
            [*command, "--seconds", seconds],
            env=environment, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stderr
    assert not read_results(out).missing
    (folder / "c0001.so").write_bytes(b"")
    out.unlink()
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert "c0001.so is damaged" in done.stderr
    assert len(read_results(out).candidates) == 1


class Killed(Child):
    """Candidate 1 ends its process."""

    def ask(self, message: Message, seconds: float) -> Message:
        if message.get("candidate") == 1:
            os.kill(self._process.pid, signal.SIGKILL)
        return super().ask(message, seconds)


class Blocked(Child):
    """Candidate 1 takes too long."""

    def ask(self, message: Message, seconds: float) -> Message:
        if message.get("candidate") == 1:
            os.kill(self._process.pid, signal.SIGSTOP)
            seconds = 0.1
        return super().ask(message, seconds)


@pytest.mark.parametrize(
    ("start", "outcome"), [(Killed, "crash"), (Blocked, "run_timeout")], ids=["killed", "blocked"]
)
def test_a_candidate_that_ends_the_process_costs_itself(
    folder: Path, tmp_path: Path, start: type[Child], outcome: str
) -> None:
    results = measure(folder, tmp_path / "results.jsonl", start=start)
    found = [results.candidates[n]["outcome"] for n in range(TRIALS)]
    assert found == ["ok", outcome, "ok", "ok"]
    with tw.TuningDatabase(tmp_path / "tuning.db") as database:
        import_results(tmp_path / "results.jsonl", database)
        failed = [m for m in database.records(Measurement) if m.outcome.value == outcome]
        assert [m.seconds for m in failed] == [None]


def test_the_process_that_measures_ends_with_the_command(folder: Path, tmp_path: Path) -> None:
    """It is stopped, as by a kernel that never ends, when the command is killed."""
    said = tmp_path / "said"
    code = (
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "from tilewright.runtime.measure.supervisor import Child\n"
        "child = Child(Path(sys.argv[1]))\n"
        "child.ask({'do': 'begin'}, 100)\n"
        "os.kill(child._process.pid, signal.SIGSTOP)\n"
        "Path(sys.argv[2]).write_text(str(child._process.pid))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", code, str(folder), str(said)]
    ended = subprocess.run(command, timeout=300, check=False)
    assert ended.returncode == -signal.SIGKILL
    status = Path("/proc", said.read_text(), "stat")
    deadline = time.monotonic() + 30
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.01)


def test_wrong_results_are_found(folder: Path, tmp_path: Path) -> None:
    """Another program's code, whose manifest and digests are right."""
    other = tmp_path / "other"
    i, j = (ops.matmul_func(24, 24, 24) for _ in range(2))
    text = str(i).replace("A[", "B[", 1)
    assert text != str(j)
    from tilewright.tir.parser import parse

    write_pack(parse(text), HERE, other, trials=1, compile_program=compile_func)
    for name in ("c0000.so", "c0000.so.json"):
        shutil.copy(other / name, folder / name.replace("0000", "0002"))
    sha256 = json.loads((other / "c0000.so.json").read_text())["code"]["sha256"]
    changed(folder / "pack.json", lambda d: d["candidates"][2]["file"].update(sha256=sha256))
    results = measure(folder, tmp_path / "results.jsonl", start=Here)
    assert results.candidates[2]["outcome"] == "wrong_result"
    assert "expected" in results.candidates[2]["error"]
    assert 2 not in results.timed


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: (f / "pack.json").unlink(), "is no pack"),
        (lambda f: (f / "pack.json").write_text("{}"), "damaged or changed"),
        (lambda f: (f / "pack.json").write_text('{"a": NaN}'), "not a JSON text"),
        (lambda f: (f / "reference.so").write_bytes(b"\x7fELF"), "is damaged"),
        (lambda f: (f / "reference.so.json").unlink(), "has no manifest"),
        (lambda f: shutil.copy(f / "c0000.so", f / "reference.so"), "expected"),
        (
            lambda f: changed(f / "pack.json", lambda d: d["reference"].update(name="../a.so")),
            "expected the name of a file in the folder",
        ),
        (
            lambda f: changed(f / "pack.json", lambda d: d["reference"].update(name="/etc/a.so")),
            "expected the name of a file in the folder",
        ),
        (lambda f: changed(f / "pack.json", lambda d: d.update(version=9)), "of version 9"),
        (lambda f: changed(f / "pack.json", lambda d: d.update(format="x")), "no pack"),
        (lambda f: changed(f / "pack.json", lambda d: d["limits"].update(slack=-1)), "more than 0"),
        (
            lambda f: changed(f / "pack.json", lambda d: d["limits"].update(run_timeout=1e308)),
            "limits.run_timeout: .*at most 10000000",
        ),
        (lambda f: changed(f / "pack.json", lambda d: d.update(seed=-1)), "pack: seed: "),
        (lambda f: changed(f / "pack.json", lambda d: d.update(tolerance=-1.0)), "at least 0"),
        (
            lambda f: changed(f / "pack.json", lambda d: d.update(tolerance=10**400)),
            "pack: tolerance: ",
        ),
        (
            lambda f: changed(
                f / "pack.json", lambda d: d["candidates"][0].update(error_factor=0.5)
            ),
            "expected 1 or more",
        ),
        (
            lambda f: changed(
                f / "pack.json", lambda d: d["candidates"][0].update(features=[10**400])
            ),
            r"candidates\[0\].features\[0\]: ",
        ),
        (
            lambda f: changed(f / "pack.json", lambda d: d["candidates"].append(3)),
            "expected an object",
        ),
    ],
)
def test_damaged_and_foreign_packs_are_refused(
    folder: Path, tmp_path: Path, change: Callable[[Path], object], says: str
) -> None:
    change(folder)
    with pytest.raises(ArtifactError, match=says) as caught:
        measure(folder, tmp_path / "results.jsonl", start=Here)
    assert caught.value.hint is not None


def test_a_pack_of_the_first_version_is_measured(folder: Path, tmp_path: Path) -> None:
    def first(data: dict[str, Any]) -> None:
        del data["accepted_error"]
        data["version"] = 1

    changed(folder / "pack.json", first)
    assert read_pack(folder).accepted_error is None
    measure(folder, tmp_path / "results.jsonl", start=Here)
    assert read_results(tmp_path / "results.jsonl").finals


def test_links_are_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "reference.so").rename(tmp_path / "elsewhere.so")
    (folder / "reference.so").symlink_to(tmp_path / "elsewhere.so")
    with pytest.raises(ArtifactError):
        measure(folder, tmp_path / "results.jsonl", start=Here)


@pytest.fixture(scope="module")
def measured(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("measured") / "results.jsonl"
    measure(packed, out, start=Here)
    return out


def _cut(lines: list[bytes]) -> list[bytes]:
    return [*lines[:-1], lines[-1][:20]]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda lines: [lines[0], lines[1], *lines[3:]], "damaged or changed"),
        (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], "damaged or changed"),
        (lambda lines: [*lines[:2], lines[2].replace(b'"ok"', b'"no"'), *lines[3:]], "changed"),
        (lambda lines: [b'{"digest":"1"}\n', *lines[1:]], "damaged or changed"),
        (lambda lines: [b"matmul, 3 ms\n"], "not a JSON text"),
        (lambda _: [], "has no results"),
    ],
)
def test_damaged_results_are_refused_and_stay(
    packed: Path,
    measured: Path,
    tmp_path: Path,
    damage: Callable[[list[bytes]], list[bytes]],
    says: str,
) -> None:
    out = tmp_path / "results.jsonl"
    content = b"".join(damage(measured.read_bytes().splitlines(keepends=True)))
    out.write_bytes(content)
    with tw.TuningDatabase(tmp_path / "tuning.db") as database:
        with pytest.raises(ArtifactError, match=says) as caught:
            import_results(out, database)
        assert caught.value.hint is not None
        assert not list(database.records(Measurement))
    if content:
        with pytest.raises(ArtifactError, match=says):
            measure(packed, out, start=Here)
    assert out.read_bytes() == content


def _finals(line: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"kind": "finals", "run": 0, "created": line["created"], **changes}


@pytest.mark.parametrize(
    "change",
    [
        lambda line: {**line, "samples": [10**400]},
        lambda line: {**line, "samples": [-1.0], "seconds": -1.0},
        lambda line: {**line, "samples": {"1": 2}},
        lambda line: {**line, "samples": "123"},
        lambda line: {**line, "seconds": 1e-9},
        lambda line: {**line, "run": True},
        lambda line: {**line, "created": "yesterday"},
        lambda line: {**line, "outcome": "great"},
        lambda line: {**line, "check": {**line["check"], "passed": "no"}},
        lambda line: {**line, "check": {**line["check"], "tolerance": "1"}},
        lambda line: {**line, "check": {**line["check"], "max_error": 1e30}},
        lambda line: {**line, "check": {**line["check"], "more": 1}},
        lambda line: _finals(line, samples=[[1.0]]),
        lambda line: _finals(line, samples={"0": [1e-3]}),
        lambda line: _finals(line, samples={}),
    ],
)
def test_lines_that_are_sealed_and_make_no_sense_are_refused(
    measured: Path, tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    """In place of the first candidate, with digests that are right."""
    out = tmp_path / "results.jsonl"
    lines = [json.loads(line) for line in measured.read_bytes().splitlines()[:3]]
    last = {k: v for k, v in change(lines[2]).items() if k != "digest"}
    lines[2] = sealed(last, lines[1]["digest"])
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with (
        tw.TuningDatabase(tmp_path / "tuning.db") as database,
        pytest.raises(ArtifactError, match="line 3 makes no sense"),
    ):
        import_results(out, database)


def test_a_number_that_is_too_large_is_refused(measured: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    out.write_bytes(measured.read_bytes().replace(b'"seconds":', b'"seconds":1e999,"s":', 1))
    with pytest.raises(ArtifactError, match="not a JSON text"):
        read_results(out)


def test_results_are_a_regular_file(folder: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with refused(ArtifactError, "a pipe"):
        read_results(pipe)
    for path in (pipe, Path("/dev/null")):
        with pytest.raises(ArtifactError, match="no regular file"):
            measure(folder, path, start=Here)


def test_a_full_disk_ends_it_with_what_was_written(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    whole = measure(folder, tmp_path / "whole.jsonl", start=Here)
    lines = (tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)
    room = len(b"".join(lines[:4])) - len(lines[3]) // 2  # in about the second candidate
    code = (
        "import resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))\n"
        "import runpy; sys.argv[0] = 'measure'\n"
        "runpy.run_module('tilewright.runtime.measure', run_name='__main__')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(folder), "--out", str(out)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode, ended
    assert "cannot write" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert read_results(out).candidates.keys() <= whole.candidates.keys()
    assert not measure(folder, out, start=Here).missing


def test_a_line_that_was_being_written_is_dropped(
    packed: Path, measured: Path, tmp_path: Path
) -> None:
    out = tmp_path / "results.jsonl"
    lines = measured.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(_cut(lines[:4])))
    with tw.TuningDatabase(tmp_path / "tuning.db") as database:
        found = import_results(out, database)
        assert found.cut
        assert (found.measurements, found.missing) == (1, TRIALS - 1)
    assert not measure(packed, out, start=Here).missing
    assert out.read_bytes().startswith(b"".join(lines[:3]))
    out.write_bytes(lines[0][:5])
    assert not measure(packed, out, start=Here).missing


def test_other_files_are_not_written_to(packed: Path, measured: Path, tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear reader")
    with pytest.raises(ArtifactError, match="has no results"):
        measure(packed, letter, start=Here)
    assert letter.read_text() == "Dear reader"
    other = tmp_path / "other"
    write_pack(ops.add_relu_func(64), HERE, other, trials=1, compile_program=compile_func)
    results = Path(shutil.copy(measured, tmp_path / "results.jsonl"))
    with pytest.raises(ArtifactError, match="results of another pack"):
        measure(other, results, start=Here)
    assert results.read_bytes() == measured.read_bytes()
    with pytest.raises(TuningError, match="there already"):
        write_pack(program(), HERE, other)


def test_a_pack_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fails(func: Func, target: Target) -> Compiled:
        raise tw.BuildError("no compiler")

    with pytest.raises(tw.BuildError, match="no compiler"):
        write_pack(program(), HERE, tmp_path / "pack", compile_program=fails)
    assert not list(tmp_path.iterdir())


class EmulatedDevice:
    """Compiles for a driver of our own, whose launches the emulator runs."""

    def __init__(self) -> None:
        self.driver = DoubleDriver([replace(H200, memory_bytes=1 << 28)])
        self.faults: list[Fault] = []
        self.images: list[bytes] = []

    def compile(self, func: Func, target: Target) -> Compiled:
        compiled = compile_func(func, target)
        kernels = dict[str, DoubleKernel]()
        for lowered, launches in zip(compiled.lowered, kernels_of(compiled), strict=True):
            kernels |= emulated_kernels(lowered, launches, self.faults)
        for kernel in kernels.values():
            kernel.seconds = 0.05  # one call is a sample
        self.driver.provide(compiled.image, kernels)
        self.images.append(compiled.image)
        return compiled


@pytest.fixture
def device() -> Iterator[EmulatedDevice]:
    try:
        nvcc()
    except tw.BuildError as error:
        pytest.skip(str(error))
    found = EmulatedDevice()
    with use_driver(found.driver):
        yield found


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(700, "crash"), pytest.param(702, "run_timeout", marks=pytest.mark.long)],
)
def test_gpus_through_the_driver(
    device: EmulatedDevice, tmp_path: Path, code: int, outcome: str
) -> None:
    """One candidate loses the device: it costs itself."""
    func, out = ops.add_relu_func(512), tmp_path / "results.jsonl"
    target = "cuda -arch=sm_90a"
    found = write_pack(func, target, tmp_path / "p", trials=3, compile_program=device.compile)
    assert found.built == 3
    assert (tmp_path / "p" / "c0000.cubin").is_file()
    last = read_pack(tmp_path / "p").candidates[2]
    assert last.file is not None

    def lose(_: Launched) -> None:
        raise Illegal(code)

    cubin = (tmp_path / "p" / last.file.name).read_bytes()
    (image,) = {i for i in device.images if cubin.startswith(i)}
    broken = device.driver.images[image].kernels
    device.driver.provide(image, {name: DoubleKernel(lose) for name in broken})

    def start(folder: Path) -> Here:
        device.driver.devices.clear()  # a new process finds a device that works
        return Here(folder)

    results = measure(tmp_path / "p", out, start=start)
    outcomes = [results.candidates[n]["outcome"] for n in range(3)]
    assert outcomes == ["ok", "ok", outcome]
    assert not device.faults
    assert len(results.finals) == 1
    with tw.TuningDatabase(tmp_path / "tuning.db") as database:
        import_results(out, database)
        (record,) = database.records(type(target_record(resolve("cpu"))))
        assert record.compat == "cuda/sm_90a"
        assert record.perf.startswith("cuda/sm_90a/NVIDIA-H200/132SMs")
        write_pack(
            func, target, tmp_path / "q", trials=3, compile_program=device.compile,
            database=database,
        )  # fmt: skip
    assert not schedules(tmp_path / "p") & schedules(tmp_path / "q")


def test_the_program_as_written_is_compared_with_the_host_of_who_packs(
    device: EmulatedDevice, tmp_path: Path
) -> None:
    func, folder = ops.softmax_func(6, 40), tmp_path / "p"
    write_pack(func, "cuda -arch=sm_90a", folder, trials=1, compile_program=device.compile)
    assert measure(folder, tmp_path / "right.jsonl", start=Here).candidates
    samples = read_pack(folder).samples
    assert samples is not None
    assert len(samples[0]["places"]) > 30

    def wrong(data: dict[str, Any]) -> None:
        for name in ("exact", "own"):
            data["samples"][0][name][3] = (0.5).hex()

    def change(name: str, n: int, value: object) -> Callable[[dict[str, Any]], object]:
        return lambda data: data["samples"][0][name].__setitem__(n, value)

    for number, (damage, says) in enumerate(
        [
            (wrong, "differs from float64 on the host: of"),
            (change("exact", 3, "a half"), "expected numbers of float32"),
            (change("places", 3, 240), "expected positions below 240"),
            (lambda data: data["samples"][0]["own"].pop(), "a number for each"),
            (lambda data: data["samples"].append({}), "2 samples, expected one of each output"),
        ]
    ):
        other = tmp_path / str(number)
        shutil.copytree(folder, other)
        changed(other / "pack.json", damage)
        with pytest.raises((ArtifactError, KernelError), match=says):
            measure(other, tmp_path / f"{number}.jsonl", start=Here)


@pytest.mark.parametrize(
    ("code", "outcome", "processes"), [(214, "crash", 2), (209, "build_error", 1)]
)
def test_code_that_the_device_does_not_load_costs_itself(
    device: EmulatedDevice,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    outcome: str,
    processes: int,
) -> None:
    """A device that is lost between candidates shows when the next one is loaded."""
    func, folder = ops.add_relu_func(512), tmp_path / "p"
    write_pack(func, "cuda -arch=sm_90a", folder, trials=4, compile_program=device.compile)
    whole, images, started = DoubleDevice.load, [], []

    def load(self: DoubleDevice, image: bytes) -> Any:
        images.append(image)
        if len(images) == 3:
            raise driver_error(code, "CUDA_ERROR_OF_TEST", "to load code")
        return whole(self, image)

    def start(folder: Path) -> Here:
        started.append(folder)
        device.driver.devices.clear()
        return Here(folder)

    monkeypatch.setattr(DoubleDevice, "load", load)
    results = measure(folder, tmp_path / "results.jsonl", start=start)
    outcomes = [results.candidates[n]["outcome"] for n in range(4)]
    assert outcomes == ["ok", outcome, "ok", "ok"]
    assert "CUDA_ERROR_OF_TEST" in results.candidates[1]["error"]
    assert len(started) == processes


def test_code_for_another_gpu_is_refused(device: EmulatedDevice, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    write_pack(
        ops.add_relu_func(64), "cuda -arch=sm_80", folder, trials=1, compile_program=device.compile
    )
    with pytest.raises((ArtifactError, KernelError), match="does not run on NVIDIA H200"):
        measure(folder, tmp_path / "results.jsonl", start=Here)

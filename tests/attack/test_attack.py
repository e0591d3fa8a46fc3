"""A few attacks of each kind, and the harness itself; `make test-long` makes a few thousand."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from ..guard_pages import guarded
from .attempt import Broken
from .bounded import Bounded, binary, cast, exactly, mismatch, reduce
from .report import Outcome, Report
from .supervisor import ROOT, run_kind

TRIES = {
    "database": 2,
    "records": 2,
    "manifests": 3,
    "libraries": 3,
    "signatures": 3,
    "locks": 3,
    "cache": 2,
    "gpu": 15,
    "arrays": 20,
    "programs": 1,
    "exact": 2,
}


@pytest.mark.parametrize(("kind", "tries"), TRIES.items())
def test_what_is_promised_holds(kind: str, tries: int) -> None:
    if kind == "signatures":
        pytest.importorskip("minisign", reason="py-minisign is not installed")
    report = Report(kind, 0)
    for outcome in run_kind(kind, 0, range(tries)):
        report.add(outcome)
    failures = "\n".join(map(report.failure_text, report.failures))
    assert not failures, f"{failures}\n{report.summary()}"
    assert report.held.total() == tries


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (1, "a promise"),
        (2, "unexpected KeyError"),
        (3, "the process ended with status -11"),
        (4, "nothing after 3 s"),
        (5, "unexpected MemoryError"),
    ],
)
def test_the_harness_notices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int, expected: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("FAULT", str(fault))
    (outcome,) = run_kind("faulty", 0, [7])
    assert outcome.failure is not None
    assert expected in outcome.failure
    assert outcome.story.startswith("way ")
    assert Path(outcome.kept, "file").read_text(encoding="ascii") == "damaged"


def test_a_crash_costs_one_try_and_a_try_is_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("FAULT", "0")
    first = list(run_kind("faulty", 3, range(3)))
    assert first == [*run_kind("faulty", 3, [0]), *run_kind("faulty", 3, [1, 2])]
    assert len({o.held for o in first}) == 3
    monkeypatch.setenv("FAULT", "3")
    assert [o.failure is None for o in run_kind("faulty", 3, range(2))] == [False, False]


@pytest.mark.parametrize(("fault", "status"), [("0", 0), ("1", 1)])
def test_the_command_says_what_it_did(tmp_path: Path, fault: str, status: int) -> None:
    code = "import sys; from tests.attack import __main__ as m, kinds; kinds.KINDS['faulty'] = "
    code += "kinds.FAULTY; sys.exit(m.main())"
    run = subprocess.run(
        [sys.executable, "-c", code, "faulty", "--tries", "2", "--seed", "5"],
        cwd=ROOT,
        env={**os.environ, "FAULT": fault, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == status, run.stderr
    assert ("again: python -m tests.attack faulty --seed 5 --only 1" in run.stdout) == bool(status)
    assert f"{2 - 2 * status} held" in run.stdout


def test_reports_count() -> None:
    report = Report("arrays", 4)
    report.add(Outcome(0, "right"))
    report.add(Outcome(1, failure="wrong", story="a story", kept="/somewhere"))
    assert "2 tried" in report.summary()
    assert "1 held (1 right), 1 failed" in report.summary()
    text = report.failure_text(report.failures[0])
    for part in ("wrong", "a story", "--seed 4 --only 1", "/somewhere"):
        assert part in text


@pytest.mark.parametrize("at_end", [True, False])
def test_guarded_arrays_see_stray_writes(at_end: bool) -> None:
    memory = guarded(np.arange(6, dtype=np.float32), at_end=at_end)
    memory.check("x")
    stray = memory.before[-1:] if at_end else memory.after[:1]
    stray[:] = 0
    with pytest.raises(Broken, match="1 bytes"):
        memory.check("x")


def test_guarded_arrays_keep_their_strides() -> None:
    source = np.arange(12, dtype=np.int16).reshape(3, 4)
    memory = guarded(source, (1, 5))
    assert memory.array.strides == (2, 10)
    np.testing.assert_array_equal(memory.array, source)


@pytest.mark.parametrize("direction", ["after", "before"])
def test_the_page_beside_a_guarded_array_cannot_be_read(direction: str) -> None:
    code = (
        "import ctypes, numpy as np; from tests.guard_pages import guarded\n"
        f"a = guarded(np.zeros(5, np.uint8), at_end={direction == 'after'}).array\n"
        f"ctypes.string_at(a.ctypes.data + ({5 if direction == 'after' else -1}), 1)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert run.returncode == -11


def test_bounds_grow_with_the_length_of_a_sum() -> None:
    errors = [reduce("sum", exactly(np.ones(n, np.float32)), 1).error for n in (4, 4000)]
    assert errors[0] is not None
    assert errors[1] is not None
    assert 0 < errors[0] < 1e-5 < 0.1 * errors[1]


def test_bounds_tell_wrong_from_rounded() -> None:
    x = exactly(np.array([1.0, 0.1], np.float32))
    total = binary("+", x, x)
    assert mismatch(np.array([2.0, 0.2], np.float32), total) is None
    assert mismatch(np.array([2.0, 0.2001], np.float32), total) is not None
    assert mismatch(np.array([2.0, np.nan], np.float32), total) is not None
    whole = Bounded("int32", np.array([1, 2], np.int32))
    assert mismatch(np.array([1, 3], np.int32), whole) is not None


def test_bounds_know_casts() -> None:
    odd = exactly(np.array([300.7, -5.0, np.nan, np.inf], np.float32))
    np.testing.assert_array_equal(cast("uint8", odd).value, np.array([255, 0, 0, 255], np.uint8))
    wide = Bounded("int32", np.array([257, -1], np.int32))
    np.testing.assert_array_equal(cast("uint8", wide).value, np.array([1, 255], np.uint8))
    narrow = cast("bfloat16", exactly(np.array([1.003], np.float32)))
    assert narrow.error is not None
    assert narrow.error[0] >= 0.003

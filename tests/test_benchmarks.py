"""The benchmarks run; what they find is not looked at here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.primitives import CASES, ELSEWHERE
from tilewright.schedule import PRIMITIVES


def run(root: Path, *arguments: object) -> str:
    """The output of a benchmark, which is run from the root."""
    command = [sys.executable, "-m", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kernels_beside_numpy(root: Path, tmp_path: Path) -> None:
    report, db = tmp_path / "report.json", tmp_path / "t.db"
    shown = run(
        root,
        "benchmarks.kernels",
        *("--quick", "--only", "relu(a + b)", "--only", "layer_norm"),
        *("--peers", "numpy", "--threads", 1, "--rounds", 2, "--trials", 1),
        *("--db", db, "--json", report),
    )
    assert "1 thread, ms per call" in shown
    results = json.loads(report.read_text())["results"]
    assert [r["case"] for r in results] == ["small layer_norm 512x768", "small relu(a + b), 16M"]
    for result in results:
        ours, numpy = result["peers"]["tilewright"], result["peers"]["numpy"]
        assert ours["failed"] is None
        assert ours["note"] == ""  # tuned, not the default
        assert ours["error"] < 1e-5
        assert len(ours["samples"]) == len(ours["kernel_samples"]) == len(numpy["samples"]) == 2
        assert result["best_peer"] == "numpy"
        assert result["speed"]["numpy"]["ratio"] > 0
        assert result["speed"]["roofline"]["ratio"] > 0


def test_an_unknown_kernel_is_named(root: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.kernels", "--only", "fft"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "matmul 1024^3" in done.stdout


def test_budgets(root: Path, tmp_path: Path) -> None:
    names = ("replay", "verify", "refuse", "lower", "llvm", "score", "lookup", "call")
    only = [word for name in names for word in ("--only", name)]
    report = tmp_path / "budgets.json"
    shown = run(root, "benchmarks.budgets", "--quick", *only, "--json", report)
    lines = json.loads(report.read_text())
    assert len(lines) >= len(names)
    assert all(line["measured"] > 0 for line in lines)
    assert all(line["what"].split(",")[0][:30] in shown for line in lines)


def test_costs_of_primitives(root: Path, tmp_path: Path) -> None:
    report = tmp_path / "primitives.json"
    shown = run(root, "benchmarks.primitives", "--repeats", 1, "--json", report)
    lines = json.loads(report.read_text())
    assert {"split", "compute_at", "rfactor", "parallel, refused"} <= {r["step"] for r in lines}
    assert all(r["microseconds"] > 0 for r in lines)
    assert all(r["step"] in shown for r in lines)


def test_every_primitive_has_a_case_or_a_reason() -> None:
    assert CASES.keys() | ELSEWHERE.keys() == PRIMITIVES.keys()
    assert not CASES.keys() & ELSEWHERE.keys()


def test_zero_trials_on_unseen_shapes(root: Path, tmp_path: Path) -> None:
    report = tmp_path / "zero.json"
    wanted = ("--seed", 5, "--count", 2, "--trials", 2, "--rounds", 2, "--json", report)
    shown = run(root, "benchmarks.zero", *wanted)
    found = json.loads(report.read_text())
    assert "seed 5" in shown
    assert found["seed"] == 5
    assert len(found["cases"]) == 2
    assert all(speed > 0 for case in found["cases"] for speed in case["speed"].values())


def test_measurements_of_random_shapes(root: Path, tmp_path: Path) -> None:
    wanted = ("--seed", 5, "--count", 2, "--trials", 2, "--db", tmp_path / "t.db")
    shown = run(root, "benchmarks.collect", *wanted)
    assert shown.count("best") == 2

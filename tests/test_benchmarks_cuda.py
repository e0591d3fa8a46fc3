"""The benchmark of GPU kernels, on a device that the emulator is."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from benchmarks import cuda, cuda_row, suite
from benchmarks.cuda_limits import Limit, copy_schedule, fma_schedule
from benchmarks.peers.tilewright import program
from tilewright.autotune.measure.numeric_check import tolerance_of
from tilewright.base.errors import DeviceError, TargetError
from tilewright.runtime import DeviceArray
from tilewright.runtime.cuda_driver import DeviceFacts, use_driver
from tilewright.runtime.measure.pack import read_pack
from tilewright.tir.interpreter import interpret

from .autotune.emulated_gpu import emulated_gpu
from .autotune.test_cuda_sessions import QUICK
from .runtime.cuda_double import DoubleDriver


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(cuda_row, "SAMPLE_SECONDS", 1e-5)
    with emulated_gpu():
        yield


def run(folder: Path, *arguments: str) -> int:
    files = ("--json", str(folder / "rows.jsonl"), "--db", str(folder / "t.db"))
    return cuda.main(["--quick", "--trials", "2", "--rounds", "2", *files, *arguments], QUICK)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    return {line["row"]: line for line in lines(folder) if "row" in line}


def test_rows_and_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--only", "relu(a + b) 64M", "--only", "matmul 2048") == 0
    first, *measured = lines(tmp_path)
    assert first["torch"] == "torch is not installed"
    assert first["run"]["target"] == "cuda -arch=sm_90a"
    assert [r["row"] for r in measured] == ["small relu(a + b) 64M", "small matmul 2048^3"]
    for row in measured:
        assert row["error"] is None
        assert row["tuning"]["trials"] == 2
        assert row["tuning"]["trials_per_second"] > 0
        assert row["origins"]["tilewright"].startswith("record")
        assert row["origins"]["zero"].startswith("model")
        assert row["errors"].keys() == {"tilewright", "zero"}
        assert 0 < max(row["errors"].values()) <= row["tolerance"]
        assert row["missing"] == dict.fromkeys(cuda_row.PEERS, "torch is not installed")
        assert row["samples"].keys() == {"tilewright", "zero", "copy", "fma"}
        assert all(len(samples) == 2 for samples in row["samples"].values())
        assert row["speed"]["zero"]["ratio"] > 0
    assert [r["shares"].keys() for r in measured] == [{"copy"}, {"copy", "fma"}]
    with tw.TuningDatabase(tmp_path / "t.db", create=False) as database:
        assert len(database.measurements()) >= 4
    shown = capsys.readouterr().out
    table = shown[shown.index("milliseconds a call") :]
    for row in measured:
        (line,) = (text for text in table.splitlines() if f" {row['row']} " in text)
        assert f" {row['seconds']['tilewright'] * 1e3:.3f} " in line
        assert f" {row['shares']['copy']:.0%} " in line
        assert "torch is not installed" in line


def test_it_goes_on_where_it_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    only = ("--only", "sum 64K", "--only", "sum 4K", "--only", "sum 256")

    def interrupted(case: suite.Case, bench: cuda_row.Bench) -> Iterator[dict[str, Any]]:
        if "4K" in case.name.replace("64K", ""):
            yield {"flops": 1.0}
            raise KeyboardInterrupt
        yield {"flops": 2.0}

    monkeypatch.setattr(cuda, "measured", interrupted)
    assert run(tmp_path, *only) == 130
    assert "small sum 64Kx1K" in capsys.readouterr().out  # the table is shown
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"row": "small sum 4K')  # was being written
    with pytest.raises(SystemExit, match="--resume goes on"):
        run(tmp_path, *only)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(cuda_row, "SAMPLE_SECONDS", 1e-5)
    assert run(tmp_path, *only, "--resume", "--seconds", "1e6") == 0
    assert [*rows(tmp_path)] == ["small sum 64Kx1K", "small sum 4Kx16K", "small sum 256x256K"]
    assert rows(tmp_path)["small sum 64Kx1K"]["flops"] == 2.0  # as it was
    assert "samples" in rows(tmp_path)["small sum 4Kx16K"]


def test_a_row_that_fails_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    true = suite.reference

    def wrong(case: suite.Case, arrays: list[suite.Array]) -> suite.Array:
        return true(case, arrays) + (case.op == "softmax")

    monkeypatch.setattr(suite, "reference", wrong)
    only = ("--only", "softmax 256x", "--only", "layer_norm 256x", "--trials", "0")
    assert run(tmp_path, *only) == 1
    failed, right = rows(tmp_path).values()
    assert "tilewright computes wrong results: error" in failed["error"]
    assert "samples" not in failed
    assert right["error"] is None
    assert "tuning" not in right
    assert right["origins"]["tilewright"].startswith("model")
    assert "wrong results" in capsys.readouterr().out


def test_nothing_is_run_on_a_device_that_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(case: suite.Case, bench: cuda_row.Bench) -> Iterator[dict[str, Any]]:
        yield {"flops": 1.0}
        raise DeviceError("an illegal address", sticky=True)

    monkeypatch.setattr(cuda, "measured", failing)
    assert run(tmp_path, "--only", "softmax") == 3
    (row,) = rows(tmp_path).values()
    assert "an illegal address" in row["error"]


def test_no_row_begins_that_would_not_end_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def slow(case: suite.Case, bench: cuda_row.Bench) -> Iterator[dict[str, Any]]:
        now[0] += 10.0
        yield {"flops": 1.0}

    monkeypatch.setattr(cuda, "measured", slow)
    monkeypatch.setattr(cuda, "monotonic", lambda: now[0])
    assert run(tmp_path, "--only", "softmax", "--seconds", "25") == 3  # a third would end at 30
    assert [row["took"] for row in rows(tmp_path).values()] == [10.0, 10.0]
    assert run(tmp_path, "--only", "softmax", "--seconds", "25", "--resume") == 0
    assert len(rows(tmp_path)) == 3


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("not a row\n")
    with pytest.raises(SystemExit, match="has no rows of this benchmark"):
        run(tmp_path, "--resume")
    assert (tmp_path / "rows.jsonl").read_text() == "not a row\n"
    assert run(tmp_path, "--only", "fft") == 2


class NoDevices(DoubleDriver):
    def facts(self) -> list[DeviceFacts]:
        raise TargetError("there are no devices")


def test_without_a_device(tmp_path: Path) -> None:
    with use_driver(NoDevices()), pytest.raises(SystemExit, match="there are no devices"):
        run(tmp_path)
    assert not (tmp_path / "rows.jsonl").exists()


def test_packs_for_a_machine_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "packs"
    wanted = ("--pack", str(folder), "--target", "cuda -arch=sm_90a", "--only", "sum 256")
    assert run(tmp_path, *wanted) == 0
    assert "2 of 2 compiled" in capsys.readouterr().out
    (packed,) = folder.iterdir()
    assert packed.name == "small-sum-256x256k"
    assert len(read_pack(packed).candidates) == 2
    before = packed.stat().st_mtime_ns
    assert run(tmp_path, *wanted) == 0
    assert packed.stat().st_mtime_ns == before
    assert not (tmp_path / "rows.jsonl").exists()


@pytest.mark.parametrize("case", cuda.CASES, ids=lambda case: case.name)
def test_results_are_compared_with_float64(case: suite.Case) -> None:
    """The program as written passes; one element that is off is found."""
    assert case.op == "matmul" or case.bytes >= 256 << 20
    small = case.shrunk()
    func, arrays = program(small), cuda_row.normal(small, 3)
    assert [(a.shape, a.dtype) for a in arrays] == [(s, np.dtype(d)) for s, d in small.arrays[:-1]]
    shape, dtype = small.arrays[-1]
    out = np.zeros(shape, dtype)
    interpret(func, *arrays, out)
    damaged = out.copy()
    damaged.reshape(-1)[-1] += out.dtype.type(1)
    found = cuda_row.errors(small, arrays, {"right": out, "damaged": damaged})
    assert found["right"] <= tolerance_of(func) < found["damaged"]


def test_errors_are_found_in_each_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_row, "_BLOCK", 64)
    for name in ("relu(a + b) 64M", "transposition 8Kx8K", "matmul 2048^3"):
        (case,) = (c.shrunk() for c in cuda.CASES if c.name == name)
        arrays = cuda_row.normal(case, 4)
        right = suite.reference(case, [a.astype(np.float64) for a in arrays])
        places = np.random.default_rng(5).integers(0, right.size, 20)
        results = {"right": right}
        for place in places:
            damaged = results[str(place)] = right.copy()
            damaged.reshape(-1)[place] += 1.0
        found = cuda_row.errors(case, arrays, results)
        assert found.pop("right") < 1e-12
        assert min(found.values()) > 0.05


def test_what_the_device_allows() -> None:
    a, x = (np.random.default_rng(6).standard_normal(n, np.float32) for n in (8192, 4096))
    w = np.arange(8, dtype=np.float32)
    copied, sums = (DeviceArray.of(np.zeros_like(like)) for like in (a, x))
    tw.build(copy_schedule(2), target="cuda")(DeviceArray.of(a), copied)
    np.testing.assert_array_equal(copied.numpy(), a)
    tw.build(fma_schedule(1, 8), target="cuda")(DeviceArray.of(x), DeviceArray.of(w), sums)
    np.testing.assert_allclose(sums.numpy(), x * w.sum(), rtol=1e-5)


def test_figures() -> None:
    (case,) = (c for c in cuda.CASES if c.name == "matmul 2048^3")
    samples = {
        "tilewright": [2.0, 2.0, 4.0],
        "zero": [4.0, 4.0, 8.0],
        "torch": [1.0, 1.0, 1.0],
        "torch.compile": [3.0, 3.0, 3.0],
        "copy": [1.0, 1.0, 1.0],
        "fma": [1.0, 1.0, 1.0],
    }
    limits = [Limit(name, lambda: None, work) for name, work in (("copy", 1e9), ("fma", 1e11))]
    found = cuda_row.figures(case, samples, limits)
    assert found["best_peer"] == "torch"
    assert found["speed"]["torch"] == {"ratio": 0.5, "spread": 0.0}
    assert found["speed"]["zero"]["ratio"] == 2.0
    assert found["shares"]["fma"] == pytest.approx(2 * 2048**3 / 2 / 1e11)
    assert found["shares"]["copy"] == pytest.approx(3 * 4 * 2048**2 / 2 / 1e9)
    shown = cuda.cells({"row": case.name, "error": None, **found})
    assert shown[5:9] == ["1000.000", "3000.000", "0.50x ±0.00", "50%"]


def test_what_is_needed_where_there_is_no_registry(root: Path) -> None:
    """All that the package needs, but what is there and what no session on a GPU imports."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    script = (root / "benchmarks" / "cuda_offline.sh").read_text()
    needed = [text.partition(";")[0] for text in project["dependencies"] if "== 'dar" not in text]
    missing = [text.partition(">")[0] for text in needed if f"'{text}'" not in script]
    assert missing == ["numpy", "llvmlite", "typer", "htpy", "markupsafe"]

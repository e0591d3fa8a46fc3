"""Sessions for GPUs, whose launches the emulator runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops
from tilewright.autotune.config import TuneConfig
from tilewright.autotune.measure.measure_result import MeasureConfig
from tilewright.cli.main import main
from tilewright.codegen.cuda import generator
from tilewright.runtime import cuda_runtime
from tilewright.runtime.cuda_memory import DeviceArray
from tilewright.tuning_db import Environment, Outcome, TargetRecord, Toolchain

from ..runtime.cuda_double import DoubleDriver
from .emulated_gpu import NVCC, emulated_gpu

QUICK = TuneConfig(
    rounds=2,
    final_seconds=0.1,
    measure=MeasureConfig(builders=1, run_timeout=1.0, max_samples=3, sample_seconds=1e-5),
)


@pytest.fixture
def gpu() -> Iterator[DoubleDriver]:
    with emulated_gpu() as driver:
        yield driver


@pytest.fixture
def database(tmp_path: Path) -> Iterator[tw.TuningDatabase]:
    with tw.TuningDatabase(tmp_path / "tuning.db") as opened:
        yield opened


@pytest.mark.usefixtures("gpu")
def test_a_session_and_the_build_that_takes_its_best(database: tw.TuningDatabase) -> None:
    func = ops.add_relu_func(1000)
    result = tw.tune(func, "cuda", trials=8, database=database, config=QUICK)
    assert result.trials == 8
    assert result.outcomes == {Outcome.OK: 8}
    assert result.best is not None
    taken = {"registers": 32, "stack_bytes": 8, "spill_store_bytes": 4, "spill_load_bytes": 4}
    for measured in database.measurements():
        (kernel,) = (measured.resources or {}).values()
        assert isinstance(kernel, dict)
        assert kernel.items() >= taken.items()
        assert kernel["threads"] * kernel["blocks"] <= 2048
        assert measured.environment == database.get(Environment, measured.environment).id
    module = tw.build(func, target="cuda", database=database)
    assert module.origin.kind == "record"
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(1000, np.float32) for _ in range(2))
    given = [DeviceArray.of(x) for x in (a, b, np.zeros_like(a))]
    module(*given)
    np.testing.assert_array_equal(given[2].numpy(), np.maximum(a + b, 0))


PROGRAM = """
from tilewright import ops


def rectified():
    return ops.add_relu_func(200)
"""


@pytest.mark.usefixtures("gpu")
def test_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    program, db = f"{tmp_path / 'program.py'}:rectified", ["--db", str(tmp_path / "tuning.db")]

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["tilewright", *arguments, *db])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        return capsys.readouterr().out

    taken = "add_relu_kernel: 32 registers, 8 stack bytes, 4 spill store bytes, 4 spill load bytes"
    tuned = run("tune", program, "--target", "cuda", "--trials", "4")
    assert "after 4 trials (4 ok)" in tuned
    assert taken in tuned
    assert taken in run("db", "explain", program, "--target", "cuda")
    best = json.loads(run("db", "best", "--json"))
    assert [b["target"] for b in best] == ["cuda -arch=sm_90a"]
    listed = json.loads(run("db", "list", "--json"))
    assert {m["target_text"] for m in listed} == {"cuda -arch=sm_90a"}
    assert {len(m["resources"]) for m in listed} == {1}
    assert taken in run("db", "show", best[0]["measurement"])


@pytest.mark.usefixtures("gpu")
def test_records_say_on_what_they_were_measured(
    database: tw.TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"sm_mhz": 1980, "power_watts": 310, "temperature_c": 41, "power_limit_watts": 700}
    monkeypatch.setattr(cuda_runtime, "device_state", lambda _: state)
    monkeypatch.setattr(generator, "power_limit", lambda _: 700)
    tw.tune(ops.add_relu_func(100), "cuda", trials=1, database=database, config=QUICK)
    (target,) = database.records(TargetRecord)
    assert target.text == "cuda -arch=sm_90a"
    assert target.compat == "cuda/sm_90a"
    assert target.perf == "cuda/sm_90a/NVIDIA-H200/132SMs/0GiB/700W"
    (toolchain,) = database.records(Toolchain)
    assert toolchain.generation == "ptxas 13.0"
    assert toolchain.versions["nvcc"] == "13.0.88"
    (environment,) = database.records(Environment)
    assert environment.facts.items() >= {**state, "driver": "13.0", "arch": "sm_90a"}.items()


_SCRIPT = """
import sys
sys.modules["llvmlite"] = None
import tilewright as tw
from tests.autotune.emulated_gpu import emulated_gpu
from tests.autotune.test_cuda_sessions import QUICK
from tilewright import ops
with emulated_gpu(), tw.TuningDatabase(sys.argv[1]) as database:
    print(tw.tune(ops.add_relu_func(100), "cuda", trials=1, database=database, config=QUICK))
"""


def test_a_session_imports_no_llvmlite(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _SCRIPT, str(tmp_path / "tuning.db")]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "(1 ok)" in done.stdout


@pytest.mark.usefixtures("gpu")
def test_a_session_with_the_compiler(
    database: tw.TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        versions = generator.versions()
    except tw.BuildError as error:
        pytest.skip(str(error))
    monkeypatch.setenv(NVCC, "1")
    result = tw.tune(ops.softmax_func(8, 40), "cuda", trials=2, database=database, config=QUICK)
    assert result.outcomes == {Outcome.OK: 2}, result.error
    (toolchain,) = database.records(Toolchain)
    assert toolchain.versions.items() >= versions.items()
    for measured in database.measurements():
        for kernel in (measured.resources or {}).values():
            assert isinstance(kernel, dict)
            assert kernel["registers"] not in (0, 32), "what ptxas reports"

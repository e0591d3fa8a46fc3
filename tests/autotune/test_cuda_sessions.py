"""Sessions for GPUs, whose launches the emulator runs."""

from __future__ import annotations

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
from tilewright.runtime.cuda_memory import DeviceArray
from tilewright.tuning_db import Outcome

from ..runtime.cuda_double import DoubleDriver
from .emulated_gpu import emulated_gpu

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
    module = tw.build(func, target="cuda", database=database)
    assert module.origin.kind == "record"
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(1000, np.float32) for _ in range(2))
    given = [DeviceArray.of(x) for x in (a, b, np.zeros_like(a))]
    module(*given)
    np.testing.assert_array_equal(given[2].numpy(), np.maximum(a + b, 0))


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

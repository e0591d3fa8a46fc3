"""Candidates for GPUs in processes of their own: each way to fail, and what goes on after it."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tilewright import ops
from tilewright.autotune.measure.measure_result import BuildRequest, MeasureConfig, MeasureResult
from tilewright.autotune.measure.measurer import Measurer
from tilewright.autotune.search.sketch import written
from tilewright.base.errors import TuningError
from tilewright.codegen.cuda.generator import CudaGenerator
from tilewright.codegen.detect import resolve
from tilewright.runtime.cuda_driver import use_driver
from tilewright.schedule import Schedule
from tilewright.target import CudaTarget
from tilewright.tuning_db import Outcome

from ..runtime.cuda_double import H200, DoubleDriver
from .emulated_gpu import FAULTS, MEMORY, NVCC, emulated_gpu
from .test_measure import gone

QUICK = MeasureConfig(
    builders=1, run_timeout=0.5, run_grace=0.5, max_samples=3, sample_seconds=1e-5
)


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with emulated_gpu():
        yield


@pytest.fixture
def measurer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Measurer]:
    """Kernels with blocks of 64, 128, 192, 320 and 416 threads fail."""
    faults = {"64": 700, "128": 702, "192": "endless", "320": "refused", "416": "wrong"}
    monkeypatch.setenv(FAULTS, json.dumps(faults))
    with Measurer(ops.add_relu_func(1000), resolve("cuda"), QUICK) as opened:
        yield opened


def request(threads: int) -> BuildRequest:
    sch = Schedule(ops.add_relu_func(1000))
    (i,) = sch.get_loops(sch.get_block("C"))
    block, thread = sch.split(i, factors=[None, threads])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return BuildRequest.of(sch.trace)


def measured(measurer: Measurer, threads: int) -> MeasureResult:
    ((_, result),) = measurer.measure([request(threads)], None)
    return result


def test_a_device_that_is_lost_costs_the_runner_and_the_candidate(measurer: Measurer) -> None:
    for threads, outcome, words in (
        (64, Outcome.CRASH, "illegal address"),
        (128, Outcome.RUN_TIMEOUT, "longer than the system allows"),
    ):
        good = measured(measurer, 32)
        assert (good.outcome, good.check and good.check.passed) == (Outcome.OK, True)
        before = measurer.processes[0]
        lost = measured(measurer, threads)
        assert (lost.outcome, lost.seconds) == (outcome, None)
        assert words in str(lost.error)
        assert gone(before)
    assert measured(measurer, 32).outcome is Outcome.OK


def test_a_candidate_with_wrong_results(measurer: Measurer) -> None:
    found = measured(measurer, 416)
    assert (found.outcome, found.seconds) == (Outcome.WRONG_RESULT, None)


def test_a_reference_with_wrong_results_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAULTS, json.dumps({"256": "wrong"}))  # blocks of the default binding
    with (
        Measurer(ops.add_relu_func(1000), resolve("cuda"), QUICK) as opened,
        pytest.raises(TuningError),
    ):
        opened.await_reference()


def test_a_kernel_that_never_ends_is_ended_with_its_runner(measurer: Measurer) -> None:
    measurer.await_reference()
    before = measurer.processes[0]
    found = measured(measurer, 192)
    assert (found.outcome, found.seconds) == (Outcome.RUN_TIMEOUT, None)
    assert gone(before)
    assert measured(measurer, 32).outcome is Outcome.OK


def test_a_launch_that_the_device_refuses_leaves_the_runner(measurer: Measurer) -> None:
    measurer.await_reference()
    before = measurer.processes[0]
    found = measured(measurer, 320)
    assert (found.outcome, found.seconds) == (Outcome.BUILD_ERROR, None)
    assert measurer.processes[0] == before
    assert measured(measurer, 32).outcome is Outcome.OK


def test_a_candidate_has_a_budget_of_the_memory_of_the_device() -> None:
    func = ops.softmax_func(20, 30)  # its default has a workspace
    for limit, outcome in ((1 << 10, Outcome.OUT_OF_MEMORY), (1 << 20, Outcome.OK)):
        with Measurer(func, resolve("cuda"), replace(QUICK, run_memory=limit)) as opened:
            trace = written(func, resolve("cuda")).trace.with_row(())
            ((_, found),) = opened.measure([BuildRequest.of(trace)], None)
            assert found.outcome is outcome, found.error
            if outcome is Outcome.OUT_OF_MEMORY:
                assert "a candidate may take 1024" in str(found.error)
                assert "MeasureConfig.run_memory" in str(found.error)


def test_arguments_that_the_device_has_no_memory_for() -> None:
    with (
        Measurer(ops.add_relu_func(MEMORY), resolve("cuda"), QUICK) as opened,
        pytest.raises(TuningError, match="no memory for its arguments of 3221225472 bytes"),
    ):
        opened.await_reference()


def test_a_builder_that_is_ended_takes_the_compiler_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, started = tmp_path / "bin" / "nvcc", tmp_path / "started"
    compiler.parent.mkdir()
    compiler.write_text(
        f"""#!/bin/sh
if [ "$1" = --version ]; then echo "release 13.0, V13.0.88"; exit; fi
sleep 600 &
echo $$ $! >> {started}
wait
"""
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv(NVCC, "1")
    with Measurer(
        ops.add_relu_func(1000), resolve("cuda"), replace(QUICK, build_timeout=0.5)
    ) as opened:
        (found,) = opened.build([request(32)])
        assert isinstance(found, MeasureResult)
        assert found.outcome is Outcome.BUILD_TIMEOUT
        building = [set(map(int, line.split())) for line in started.read_text().splitlines()]
        running = {p.pid for p in psutil.Process(opened.processes[0]).children(recursive=True)}
        ended = [pids for pids in building if not pids & running]
        assert len(ended) == 1
        assert all(gone(pid) for pid in ended[0])
        end = time.monotonic() + 30
        while not running and time.monotonic() < end:  # the runner compiles the reference
            running = {p.pid for p in psutil.Process(opened.processes[0]).children(recursive=True)}
            time.sleep(0.05)
        assert running
        assert list(tmp_path.glob("tilewright-*/*")), "files of the compiler that was ended"
    assert all(gone(pid) for pid in running)
    assert not list(tmp_path.glob("tilewright-*"))


def test_addresses_of_the_runner_are_not_limited(measurer: Measurer) -> None:
    assert measured(measurer, 32).outcome is Outcome.OK
    limit, _ = resource.prlimit(measurer.processes[0], resource.RLIMIT_AS)
    assert limit == resource.RLIM_INFINITY


def test_the_runner_has_the_device_that_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    target, generator = CudaTarget.named("sm_90a"), CudaGenerator()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with use_driver(DoubleDriver([H200, replace(H200, ordinal=1)], thread_uses=1)):
        assert generator.environment(target, runs=False) == {}
        assert generator.environment(target, runs=True) == {"CUDA_VISIBLE_DEVICES": "1"}
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-5f")
        assert generator.environment(target, runs=True) == {"CUDA_VISIBLE_DEVICES": "GPU-5f"}

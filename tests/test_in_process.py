"""Copies and pickles of what belongs to one process, and of what does not."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251 - a user may
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops
from tilewright.autotune.session.tuning_run import TuningRun
from tilewright.graph import Builder, TensorType
from tilewright.ops import matmul_func


def module(tmp_path: Path) -> tw.Module:
    return tw.build(matmul_func(4, 4, 4), "cpu -threads=1")


def loaded(tmp_path: Path) -> tw.Module:
    tw.build_library(matmul_func(4, 4, 4), tmp_path / "matmul.so", "cpu -threads=1")
    module: tw.Module = tw.load(tmp_path / "matmul.so")
    return module


def model(tmp_path: Path) -> tw.Model:
    b = Builder("model")
    x = b.input("x", TensorType("float32", (4,)))
    return tw.build(b.graph({"y": b.add("relu", x)}), "cpu -threads=1")


def database(tmp_path: Path) -> tw.TuningDatabase:
    return tw.TuningDatabase(tmp_path / "tuning.db")


def run(tmp_path: Path) -> TuningRun[object, None]:
    return TuningRun(lambda *_: None, lambda _: None)


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (module, tw.ArtifactError),
        (loaded, tw.ArtifactError),
        (model, tw.ArtifactError),
        (database, tw.DatabaseError),
        (run, tw.TuningError),
    ],
)
def test_what_belongs_to_its_process(made, error, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    value = made(tmp_path)
    assert copy.copy(value) is value
    assert copy.deepcopy({"layer": [value]})["layer"][0] is value
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(error) as refused:
            pickle.dumps([value], protocol)
        assert refused.value.hint
    if isinstance(value, tw.Module):
        a, c = np.ones((4, 4), np.float32), np.zeros((4, 4), np.float32)
        copy.deepcopy(value)(a, a, c)
        np.testing.assert_array_equal(c, 4 * np.ones((4, 4)))


def test_a_pool_of_processes_raises_the_error(tmp_path: Path) -> None:
    kernel = module(tmp_path)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool, pytest.raises(tw.ArtifactError):
        pool.submit(print, kernel).result()


def test_programs_and_schedules_are_pickled() -> None:
    """What the error of a module advises."""
    schedule = tw.Schedule(ops.matmul_func(4, 4, 4))
    schedule.split(schedule.get_loops(schedule.get_block(0))[0], factors=[2, None])
    for value in (schedule.func, schedule, schedule.trace):
        again = pickle.loads(pickle.dumps(value))
        assert type(again) is type(value)
    assert str(pickle.loads(pickle.dumps(schedule)).func) == str(schedule.func)

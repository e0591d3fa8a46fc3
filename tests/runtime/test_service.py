"""Programs in production: they are warmed up, their calls are counted, and nothing is printed."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder, TensorType
from tilewright.runtime import Argument
from tilewright.runtime.artifact import read_manifest
from tilewright.runtime.model import Model

from ..codegen.cuda.emulated import emulated_device
from .conftest import Probe

SERIAL = "cpu -threads=1"
X = Argument("x", "float32", (4,))
I = Argument("i", "int32", (3,), value_range=(5, 7))  # noqa: E741
Y = Argument("y", "float32", (4,), role="out")


def write(address: int, values: Any) -> None:
    ctypes.memmove(address, np.asarray(values, "f4").ctypes.data, 16)


class Writes(Probe):
    """A kernel that writes to its last argument what `values` yields."""

    values: Callable[[int], Any]

    def kernel(self, *values: Any) -> int:
        status = super().kernel(*values)
        write(values[-2], self.values(len(self.calls)))
        return status


def writes(values: Callable[[int], Any], *arguments: Argument) -> Writes:
    made = Writes(*arguments)
    made.values = values
    return made


def test_a_module_is_ready_once_it_is_warm() -> None:
    probe = writes(lambda _: [1, 2, 3, 4], X, I, Y)
    before = probe.mod.ready
    probe.mod.warm_up()
    assert (before, probe.mod.ready) == (False, True)
    assert len(probe.calls) == 2


def test_a_warm_up_refuses_results_that_change() -> None:
    probe = writes(lambda call: [1, 2, 3, call], X, Y)
    with pytest.raises(tw.ArtifactError):
        probe.mod.warm_up()
    assert not probe.mod.ready


def test_a_warm_up_sees_failures_and_what_is_written_beside(probe: Callable[..., Probe]) -> None:
    beside = Argument("y", "float32", (3,), role="out")
    with pytest.raises(tw.ArtifactError):
        writes(lambda _: [1, 2, 3, 4], X, beside).mod.warm_up()
    failing = probe(X, Y)
    failing.status = 1
    with pytest.raises(tw.KernelError):
        failing.mod.warm_up()
    assert not failing.mod.ready


def test_a_warm_up_does_not_take_memory_without_end() -> None:
    large = Argument("y", "float32", (1 << 29,), role="out")
    probe = Probe(X, large)
    with pytest.raises(tw.OutOfMemoryError):
        probe.mod.warm_up()
    assert (probe.calls, probe.mod.ready) == ([], False)


def test_calls_are_counted_if_asked_for() -> None:
    probe = writes(lambda _: [1, 2, 3, 4], X, Y)
    x, y = np.zeros(4, "f4"), np.empty(4, "f4")
    probe.mod(x, y)
    assert asdict(probe.mod.report()) == {
        "program": "probe", "ready": False, "kernels": {"schedule": 1}, "calls": None,
        "seconds": None, "errors": None,
    }  # fmt: skip
    probe.mod.count_calls()
    probe.mod(x, y)
    probe.mod(x, y, workspace=None)
    probe.mod(x, y, workspace=np.empty(64, "u1")[:0])
    probe.mod.count_calls()
    probe.mod.bind(x, y)()
    probe.mod.time(x, y, max_samples=3, budget_seconds=0.001)
    probe.status = 3
    for arguments in [(x, y), (x,), (x, x)]:
        with pytest.raises(tw.TilewrightError):
            probe.mod(*arguments)
    told = probe.mod.report()
    assert told.calls == 4
    assert told.errors == {"KernelError": 1, "ArgumentError": 2}
    assert told.seconds is not None
    assert 0 < told.seconds < 10


def test_no_call_of_eight_threads_is_lost() -> None:
    func = tw.ops.add_relu_func(64)
    module = tw.build(func, SERIAL, allow=("default",))
    module.count_calls()
    arrays = [np.ones(a.shape, a.dtype) for a in module.signature.arguments]

    def calls(_: int) -> None:
        own = [array.copy() for array in arrays]
        for _ in range(500):
            module(*own)
        with pytest.raises(tw.ArgumentError):
            module()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(calls, range(16)))
    told = module.report()
    assert (told.calls, told.errors) == (8000, {"ArgumentError": 16})


@pytest.fixture(scope="module")
def model() -> Model:
    """Rows of a table at indices."""
    b = Builder("rows")
    ids = b.input("ids", TensorType("int64", (3,)))
    table = b.constant(np.arange(8).reshape(2, 4), "float32")
    graph = b.graph({"y": b.add("take", table, ids, axis=0)})
    built = tw.build(graph, SERIAL, allow=("default",))
    assert isinstance(built, Model)
    return built


def test_a_model_is_warmed_up_and_counted(model: Model, capfd: pytest.CaptureFixture[str]) -> None:
    model.count_calls()
    model.warm_up()
    assert model.ready
    assert model(np.array([1, 0, 1])).tolist() == [[4, 5, 6, 7], [0, 1, 2, 3], [4, 5, 6, 7]]
    model(ids=np.array([1, 0, 1, 0])[:3])
    model.into(np.zeros(3, np.int64), out=np.empty((3, 4), "f4"))
    with pytest.raises(tw.GuardError):
        model(np.array([2, 0, 1]))
    told = model.report()
    assert (told.calls, told.errors) == (5, {"GuardError": 1})
    assert dict(told.kernels) == {"default": len(model.kernels)}
    assert str(told).startswith("rows: ready; kernels: ")
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(shutil.which("cc") is None, reason="no linker here")
def test_a_warm_up_compares_with_the_results_of_the_build(tmp_path: Path) -> None:
    sizes = {"small": 16, "large": 32}
    programs = [replace(tw.ops.add_relu_func(n), name=name) for name, n in sizes.items()]
    tw.build_library(programs, tmp_path / "ops.so", SERIAL, allow=("default",))
    library = tw.load(tmp_path / "ops.so", counting=True)
    fixture = library["small"].fixture
    assert fixture is not None
    library["small"].fixture = replace(fixture, seed=fixture.seed + 1)
    with pytest.raises(tw.ArtifactError):
        library.warm_up()
    states = [library.ready]
    library["small"].fixture = fixture
    library.warm_up()
    states.append(library.ready)
    assert states == [False, True]
    assert [report.calls for report in library.report().values()] == [2, 1]


@pytest.mark.parametrize("dtype", ["int64", "int8"])
def test_indices_of_two_tables_are_within_the_smaller_one(dtype: str) -> None:
    b = Builder("tables")
    where = b.input("where", TensorType(dtype, (64,)))
    small, large = (b.input(f"t{n}", TensorType("float32", (n, 4))) for n in (3, 500))
    rows = [b.add("take", table, where, axis=0) for table in (small, large)]
    model = tw.build(b.graph({"y": b.add("add", *rows)}), SERIAL)
    model.warm_up()
    assert model.ready


def test_sums_of_the_largest_floats_are_written(tmp_path: Path) -> None:
    """Regression: the sums were infinite, which is no JSON, and nothing was written."""
    b = Builder("mask")
    x = b.input("x", TensorType("float64", (256,)))
    least = b.constant(np.finfo("f8").min, "float64")
    hidden = b.add("where", b.add("less", x, b.constant(1.0, "float64")), least, x)
    path = tmp_path / "mask.so"
    tw.build_library(b.graph({"y": hidden}), path, SERIAL)
    assert tw.verify(path).passed
    (output,) = read_manifest(path).program.fixture.outputs  # type: ignore[union-attr]
    assert 0 < output.finite < 256


def test_a_kernel_of_a_device_is_warmed_up() -> None:
    with emulated_device() as faults:
        module = tw.build(tw.ops.add_relu_func(64), "cuda -arch=sm_90a", allow=("default",))
        module.warm_up()
        assert module.ready
        assert faults == []

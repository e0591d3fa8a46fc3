"""Graphs of which a device runs parts: the emulator is the device."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import BuildError, LockError, ProviderError, UnsupportedError
from tilewright.building.providers import DeviceProvider, provider_of
from tilewright.graph import Builder, Graph, TensorType
from tilewright.runtime.device_plan import Copy, Run, Wait, device_steps
from tilewright.runtime.partition_evidence import PartitionEvidence
from tilewright.runtime.partition_plan import ArrayType, PartitionPlan, PartPlan
from tilewright.runtime.partitioned import PartitionedModel

from ..autotune.emulated_gpu import emulated_gpu
from ..runtime.cuda_double import DoubleDevice
from .random_graphs import a_graph, compare
from .test_partition import registered  # noqa: F401  # a fixture

HOST = "cpu -threads=1"
GPU = "cuda -arch=sm_90a"
PLACED = {"matmul": "gpu", "tanh": "gpu", "add": "gpu", "softmax": "tilewright"}
"""Of `layers`, which are so small that nobody would ask a device else."""


@pytest.fixture(autouse=True)
def gpu(registered: Any) -> Iterator[DoubleDevice]:  # noqa: F811
    registered(DeviceProvider("gpu", GPU))
    with emulated_gpu() as driver:
        yield driver.device(0)


def layers() -> Graph:
    """Products and `tanh`, a softmax between them, and an output that the first part computes."""
    rng = np.random.default_rng(0)
    b = Builder("layers")
    x = b.input("x", TensorType("float32", (3, 8)))
    w = [b.constant(rng.standard_normal((8, 8)), "float32") for _ in range(2)]
    h = b.add("tanh", b.add("matmul", x, w[0]))
    y = b.add("add", b.add("matmul", b.add("softmax", h, axis=1), w[1]), h)
    return b.graph({"y": y, "h": h})


def built(graph: Graph, **options: Any) -> PartitionedModel:
    options.setdefault("providers", ["gpu", "tilewright"])
    model = tw.build(graph, HOST, **options)
    assert isinstance(model, PartitionedModel)
    return model


def rows(seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((3, 8)).astype(np.float32)


def test_a_device_and_the_host_compute_what_the_whole_does(
    gpu: DoubleDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = layers()
    model = built(graph, placement=PLACED)
    assert [part.provider for part in model.evidence.parts] == ["gpu", "tilewright", "gpu"]
    x, copied = rows(), list[int]()

    def counted(name: str, place: int) -> None:
        plain = getattr(DoubleDevice, name)

        def copy(self: DoubleDevice, *arguments: Any) -> None:
            copied.append(arguments[place].nbytes)
            plain(self, *arguments)

        monkeypatch.setattr(DoubleDevice, name, copy)

    model(x)  # takes memory, and copies weights
    counted("upload", 1)
    counted("download", 0)
    for result, wanted in zip(model(x), graph.reference(x), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
    # In: x and the softmax. Out: h, which the host reads too, and y.
    assert len(copied) == 4
    assert sum(copied) == model.evidence.copied_bytes == 4 * 96
    assert model.counts == {
        "runs": 2, "gpu": 4, "tilewright": 2, "transferred_bytes": 2 * 3 * 96,
        "copied_bytes": 2 * 4 * 96, "waits": 4,
    }  # fmt: skip
    assert {p.kernels is not None for p in model.evidence.parts} == {True}


def test_without_waits_the_results_are_wrong() -> None:
    """So the emulator sees what is not waited for."""
    graph = layers()
    model = built(graph, placement=PLACED)
    devices: Any = model._devices
    plan = devices.plan
    steps = tuple(step for step in plan.steps if not isinstance(step, Wait))
    assert len(plan.steps) - len(steps) == model.evidence.devices.waits == 2  # type: ignore[union-attr]
    x = rows()
    with devices.arenas() as arenas:
        arenas._plan = replace(plan, steps=steps)
    assert not np.allclose(model(x)[0], graph.reference(x)[0])


def test_a_value_is_copied_once_to_a_memory() -> None:
    found = tw.partition(layers(), ["gpu", "tilewright"], PLACED)
    evidence = found.evidence()
    assert evidence.devices is not None
    assert [(c.value, c.source, c.destination) for c in evidence.devices.copies] == [
        ("x", "", "gpu"), ("tanh", "gpu", ""), ("softmax", "", "gpu"), ("add", "gpu", ""),
    ]  # fmt: skip
    assert PartitionEvidence.from_json(evidence.to_json()) == evidence
    assert "host to gpu" in str(evidence)


def test_between_devices_values_go_through_the_host() -> None:
    kind = ArrayType("float32", (4,))
    parts = [
        PartPlan("a", (0,), (1,), (), ()),
        PartPlan("b", (1,), (2,), (1,), ()),
        PartPlan("a", (1, 2), (3,), (1, 2), ()),
    ]
    plan = PartitionPlan("two", (kind,) * 4, ("x",), (("y", 3),), (), tuple(parts))
    assert [*device_steps(plan, ("a", "b", "a"))] == [
        Copy(0, "", "a"), Run(0),
        Wait("a"), Copy(1, "a", ""), Copy(1, "", "b"), Run(1),
        Wait("b"), Copy(2, "b", ""), Copy(2, "", "a"), Run(2),
        Wait("a"), Copy(3, "a", ""),
    ]  # fmt: skip


def test_without_devices_nothing_changes() -> None:
    graph = layers()
    model = tw.build(
        graph, HOST, providers=["tilewright", "reference"], placement={"softmax": "reference"}
    )
    assert isinstance(model, PartitionedModel)
    assert model._devices is None
    assert "devices" not in model.evidence.to_json()
    assert "copied_bytes" not in model.counts


def test_values_on_a_device_share_memory() -> None:
    """The third product is written where the input was."""
    b = Builder("chain")
    value = b.input("x", TensorType("float32", (64,)))
    for _ in range(3):
        value = b.add("tanh", b.add("exp", value))
    model = built(b.graph({"y": value}), placement={"exp": "gpu", "tanh": "tilewright"})
    plan = model._devices.plan  # type: ignore[union-attr]
    arena = plan.arenas["gpu"]
    assert len(arena.values) == 6
    assert arena.bytes == 2 * 256
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    np.testing.assert_allclose(
        model(x), np.tanh(np.exp(np.tanh(np.exp(np.tanh(np.exp(x)))))), rtol=1e-5
    )


def test_the_host_goes_on_while_a_device_runs() -> None:
    """A part of the host that reads nothing of the device is between its part and the wait."""
    b = Builder("beside")
    x = b.input("x", TensorType("float32", (8,)))
    graph = b.graph({"y": b.add("exp", x), "z": b.add("tanh", x)})
    model = built(graph, placement={"exp": "gpu", "tanh": "tilewright"})
    steps = model._devices.plan.steps  # type: ignore[union-attr]
    assert [type(step).__name__ for step in steps] == ["Copy", "Run", "Run", "Wait", "Copy"]
    given = np.linspace(-1, 1, 8, dtype=np.float32)
    np.testing.assert_allclose(model(given), [np.exp(given), np.tanh(given)], rtol=1e-5)


@pytest.mark.parametrize("seed", [0, 16, 32, 37])
def test_any_cut_computes_what_the_whole_does(seed: int) -> None:
    case = a_graph(seed)
    rng = np.random.default_rng(seed)
    gpu = provider_of("gpu")
    kept = {node.operator for node in case.graph.nodes if gpu.refusal(node) is not None}
    placement = {
        node.operator: "reference" if node.operator in kept or rng.integers(3) == 0 else "gpu"
        for node in case.graph.nodes
    }
    model: Any = built(case.graph, providers=["gpu", "reference"], placement=placement)
    assert {part.provider for part in model.evidence.parts} == {"gpu", "reference"}
    for _ in range(2):  # the second call finds the memory of the first
        results = model(*case.arguments.values())
        compare("parts", case, results if isinstance(results, tuple) else (results,))
    assert model.counts["copied_bytes"] == 2 * model.evidence.copied_bytes


def test_views_constants_and_inputs_that_a_device_returns() -> None:
    b = Builder("same")
    x = b.input("x", TensorType("float32", (2, 6)))
    y = b.add("exp", x)
    graph = b.graph({"y": y, "flat": b.add("reshape", y, shape=(12,)), "x": x})
    model = built(graph, providers=["gpu"])
    given = np.arange(12, dtype=np.float32).reshape(2, 6)
    for result, wanted in zip(model(given), graph.reference(given), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5)


def test_threads_call_at_the_same_time() -> None:
    graph = layers()
    model = built(graph, placement=PLACED)

    def checked(seed: int) -> None:
        x = rows(seed)
        np.testing.assert_allclose(model(x)[0], graph.reference(x)[0], rtol=1e-4, atol=1e-5)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(checked, range(16)))


def test_memory_of_a_call_that_fails_is_not_used_again(registered: Any) -> None:  # noqa: F811
    graph, count = layers(), iter(range(9))

    class Sometimes(tw.Provider):
        name = "sometimes"

        def refusal(self, node: Any) -> str | None:
            return None

        def compile(self, graph: Graph, target: tw.Target) -> Any:
            def call(x: Any) -> Any:
                assert next(count) != 1
                return graph.reference(x)

            return call

    registered(Sometimes())
    model = built(
        graph, providers=["gpu", "sometimes"], placement={**PLACED, "softmax": "sometimes"}
    )
    for n in range(3):
        if n == 1:
            with pytest.raises(ProviderError):
                model(rows(n))
        else:
            wanted = graph.reference(rows(n))[0]
            np.testing.assert_allclose(model(rows(n))[0], wanted, rtol=1e-4, atol=1e-5)


def test_a_profile_has_the_parts_of_a_device() -> None:
    model = built(layers(), placement=PLACED)
    found = model.profile(rows())
    assert len([k for k in found.kernels if k.operators.endswith("by gpu")]) == 2


def test_what_a_device_does_not_run(tmp_path: Path) -> None:
    b = Builder("taken")
    x = b.input("x", TensorType("float32", (5,)))
    places = b.input("places", TensorType("int64", (2,)))
    graph = b.graph({"y": b.add("exp", b.add("take", x, places, axis=0))})
    with pytest.raises(UnsupportedError):
        tw.build(graph, HOST, providers=["gpu"])
    assert [p.provider for p in built(graph).evidence.parts] == ["tilewright", "gpu"]
    with pytest.raises(UnsupportedError):  # its parts are not stored
        tw.build_library(layers(), tmp_path / "net.so", HOST, providers=["gpu"])


def test_own_options_of_a_device_stay() -> None:
    own = DeviceProvider("other", GPU, allow=("default",), tolerance=0.5)
    found = own.with_options({"allow": ("record",), "tolerance": None, "strict_fp": True})
    assert found.options == {"allow": ("default",), "tolerance": 0.5, "strict_fp": True}


def test_the_kernels_of_a_device_are_locked(
    registered: Any,  # noqa: F811
    tmp_path: Path,
) -> None:
    """By a lock of its own, for its target, which the provider has."""
    graph = layers()
    found = tw.partition(graph, ["gpu", "tilewright"], PLACED)
    default: dict[str, Any] = {"allow": ["default"], "jobs": 1}
    host, device = (tw.freeze(found, target, **default) for target in (HOST, GPU))
    names = [
        {kernel for program in lock.programs for kernel in program.kernels}
        for lock in (host, device)
    ]
    assert min(map(len, names)) > 0
    assert not names[0] & names[1]
    with pytest.raises(LockError) as refused:
        built(graph, placement=PLACED, locked=host)
    assert refused.value.data["provider"] == "gpu"
    device.write(tmp_path / "gpu.lock")
    registered(DeviceProvider("gpu", GPU, locked=tmp_path / "gpu.lock"))
    for options in ({"locked": host}, {"allow": ("default",)}):
        model = built(graph, placement=PLACED, **options)
        told: list[Any] = [p.kernels for p in model.evidence.parts if p.provider == "gpu"]
        kernels = [kernel for evidence in told for kernel in evidence.kernels]
        assert {kernel.name for kernel in kernels} == names[1]
        assert all("locked" in kernel.detail for kernel in kernels)
        for result, wanted in zip(model(rows()), graph.reference(rows()), strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
    registered(DeviceProvider("gpu", GPU, locked=host))
    with pytest.raises(LockError):
        built(graph, placement=PLACED)


def test_a_device_that_is_none(registered: Any) -> None:  # noqa: F811
    registered(DeviceProvider("other", HOST))
    with pytest.raises(BuildError):
        tw.build(layers(), HOST, providers=["other"])


def test_a_report_has_the_kernels_of_devices_too() -> None:
    model = built(layers(), placement=PLACED)
    parts: list[Any] = [*model.parts]
    kernels = [len(part.evidence.kernels) for part in parts]
    assert len(kernels) == 3
    assert min(kernels) > 0
    assert sum(model.report().kernels.values()) == sum(kernels)

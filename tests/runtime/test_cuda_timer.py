"""Timing on CUDA devices, on the clock of a driver of our own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import OutOfMemoryError
from tilewright.runtime import Argument, Module, Origin, Signature
from tilewright.runtime.cuda_driver import use_driver
from tilewright.runtime.cuda_launch import KernelLaunch
from tilewright.runtime.cuda_memory import DeviceArray
from tilewright.runtime.cuda_runtime import cuda_module
from tilewright.runtime.cuda_timer import CudaTimer, timing_stream
from tilewright.target import Target

from .cuda_double import H200, DoubleDevice, DoubleDriver, DoubleKernel, Launched

IMAGE = b"an image"
ROOMY = replace(H200, memory_bytes=1 << 27, l2_bytes=1 << 16)
N = 1024
IN, OUT = Argument("A", "float32", (N,)), Argument("B", "float32", (N,), role="out")
SIGNATURE = Signature("f", (IN, OUT))
LAUNCH = KernelLaunch("double", (1, 1, 1), (N, 1, 1), (0, 1))
BLOCK = 2 * 4 * N
COPIES = 2 * ROOMY.l2_bytes // BLOCK


def twice(launched: Launched) -> None:
    launched.array(1, "float32", (N,))[...] = 2 * launched.array(0, "float32", (N,))


@pytest.fixture
def device() -> Iterator[DoubleDevice]:
    driver = DoubleDriver((ROOMY,))
    with use_driver(driver):
        yield driver.device(0)


def module(
    device: DoubleDevice,
    seconds: float,
    signature: Signature = SIGNATURE,
    run: Callable[[Launched], object] = twice,
) -> Module:
    device.driver.provide(IMAGE, {"double": DoubleKernel(run, seconds=seconds)})
    target = Target.parse("cuda -arch=sm_90a")
    return cuda_module(IMAGE, [(LAUNCH,)], signature, target, Origin("schedule"))


def arrays() -> tuple[DeviceArray, DeviceArray]:
    ones = np.ones(N, np.float32)
    return DeviceArray.of(ones), DeviceArray.of(0 * ones)


def addresses(device: DoubleDevice) -> Counter[int]:
    return Counter(launched.words[0] for launched in device.launches)


@pytest.mark.parametrize("seconds", [2e-6, 49e-6, 60e-6, 3e-3])
def test_a_sample_is_the_time_of_a_call(device: DoubleDevice, seconds: float) -> None:
    mod = module(device, seconds)
    timing = mod.time(*arrays(), min_samples=5, max_samples=5)
    assert timing.samples == pytest.approx([seconds] * 5)
    assert timing.repeats == pytest.approx(max(1, 1e-3 / seconds), rel=1.0)
    assert not device.graphs
    assert len(device.events) == 0


@pytest.mark.parametrize(("seconds", "captured"), [(2e-6, 1), (49e-6, 1), (51e-6, 0), (3e-3, 0)])
def test_short_kernels_are_replayed_from_a_graph(
    device: DoubleDevice, monkeypatch: pytest.MonkeyPatch, seconds: float, captured: int
) -> None:
    graphs, capture = [], device.capture

    def note(stream: int, submit: Callable[[], object]) -> int:
        graphs.append(capture(stream, submit))
        return graphs[-1]

    monkeypatch.setattr(device, "capture", note)
    module(device, seconds).time(*arrays(), min_samples=3, max_samples=3)
    assert len(graphs) == captured


@pytest.mark.parametrize("seconds", [2e-6, 60e-6])
def test_calls_take_copies_that_fill_the_cache_twice(device: DoubleDevice, seconds: float) -> None:
    a, b = arrays()
    seen = []

    def note(launched: Launched) -> None:
        twice(launched)
        seen.append(launched.array(1, "float32", (N,))[0])

    module(device, seconds, run=note).time(a, b, min_samples=3, max_samples=3)
    used = addresses(device)
    assert len(used) == COPIES + 1
    assert 2 * ROOMY.l2_bytes == COPIES * BLOCK
    assert max(used.values()) - min(used.values()) <= 1
    ordered = [launched.words[0] for launched in device.launches]
    turns = [ordered[n : n + COPIES + 1] for n in range(len(ordered) - COPIES)]
    assert all(len(set(turn)) == COPIES + 1 for turn in turns)
    assert set(seen) == {2}
    assert (b.numpy() == 2).all()


def test_copies_are_aligned_as_the_arrays_are(device: DoubleDevice) -> None:
    whole = DeviceArray.of(np.ones(N + 12, np.float32))
    a = DeviceArray(whole.view._replace(pointer=whole.view.pointer + 48, shape=(N,)), whole.memory)
    b = arrays()[1]
    module(device, 2e-6).time(a, b, min_samples=3, max_samples=3)
    offsets = [[address % 256 for address in seen.words] for seen in device.launches]
    assert len(addresses(device)) > 2
    assert all(found == [48, 0] for found in offsets)
    assert (b.numpy() == 2).all()


def test_large_arrays_are_not_copied(device: DoubleDevice) -> None:
    large = ROOMY.l2_bytes // 2 + 256
    signature = Signature("f", tuple(replace(a, shape=(large,)) for a in SIGNATURE.arguments))
    given = [DeviceArray.of(np.ones(large, np.float32)) for _ in range(2)]
    module(device, 2e-6, signature).time(*given, min_samples=3, max_samples=3)
    assert addresses(device).keys() == {given[0].view.pointer}


def test_a_call_without_arrays_is_timed(device: DoubleDevice) -> None:
    device.driver.provide(IMAGE, {"none": DoubleKernel(lambda _: None, seconds=3e-6)})
    launch = KernelLaunch("none", (1, 1, 1), (1, 1, 1), ())
    target = Target.parse("cuda -arch=sm_90a")
    mod = cuda_module(IMAGE, [(launch,)], Signature("f", ()), target, Origin("schedule"))
    assert mod.time().median == pytest.approx(3e-6)


def test_memory_of_copies_is_freed(device: DoubleDevice) -> None:
    given = arrays()
    module(device, 2e-6).time(*given)
    assert device.taken == BLOCK


def test_there_is_no_memory_for_copies(device: DoubleDevice) -> None:
    mod, given = module(device, 2e-6), arrays()
    other = device.allocate(device.facts.memory_bytes - device.taken - (33 << 20))
    device.facts = replace(device.facts, l2_bytes=1 << 20)
    with pytest.raises(OutOfMemoryError):
        mod.time(*given)
    device.free(other)
    assert mod.time(*given).median == pytest.approx(2e-6)


def with_workspace(device: DoubleDevice, size: int) -> Module:
    signature = replace(SIGNATURE, workspace_bytes=size)
    device.driver.provide(IMAGE, {"double": DoubleKernel(twice, seconds=2e-6)})
    launch, target = replace(LAUNCH, arguments=(0, 1, 2)), Target.parse("cuda -arch=sm_90a")
    return cuda_module(IMAGE, [(launch,)], signature, target, Origin("schedule"))


def test_calls_that_are_compared_share_the_memory_of_the_largest(device: DoubleDevice) -> None:
    """Of a device that has no memory for two of the workspaces, nor for a second set of copies."""
    device.facts = replace(device.facts, memory_bytes=(32 << 20) + (9 << 20), l2_bytes=1 << 20)
    given, most = arrays(), 0
    sizes = (2 << 20, 5 << 20, 3 << 20)
    calls = [with_workspace(device, size).bind(*given) for size in sizes]
    allocate = device.allocate

    def note(size: int) -> int:
        nonlocal most
        address = allocate(size)
        most = max(most, device.taken)
        return address

    device.allocate = note  # type: ignore[method-assign]
    timings = CudaTimer().time_interleaved(calls, rounds=3, min_sample_seconds=1e-5)
    for timing in timings:
        assert timing.samples == pytest.approx([2e-6] * 3)
    assert most == BLOCK + (32 << 20) + (5 << 20) + 2 * (1 << 20) // BLOCK * BLOCK
    assert (given[1].numpy() == 2).all()


def test_calls_with_arrays_of_their_own_are_compared(device: DoubleDevice) -> None:
    mod, (a, b), (c, d) = module(device, 2e-6), arrays(), arrays()
    CudaTimer().time_interleaved(
        [mod.bind(a, b), mod.bind(c, d)], rounds=2, min_sample_seconds=1e-3
    )
    assert len(addresses(device)) == 2 * (COPIES + 1)
    assert (b.numpy() == 2).all()
    assert (d.numpy() == 2).all()


def test_smaller_workspaces_make_room_for_those_of_timed_calls(device: DoubleDevice) -> None:
    device.facts = replace(device.facts, memory_bytes=(32 << 20) + (9 << 20))
    given = arrays()
    for size in (3 << 20, 4 << 20, 5 << 20):
        mod = with_workspace(device, size)
        mod(*given)
        assert mod.time(*given, max_samples=3).median == pytest.approx(2e-6)
        del mod
    assert {launched.words[2] for launched in device.launches}


def test_calls_are_timed_in_the_workspace_of_the_process(device: DoubleDevice) -> None:
    mod, given = with_workspace(device, 4096), arrays()
    mod(*given)
    mod.time(*given, min_samples=3, max_samples=3)
    mod(*given)
    assert device.taken == BLOCK + 4096
    device.synchronize()
    assert len({launched.words[2] for launched in device.launches}) == 1
    device.launches.clear()
    own = mod.workspace()
    CudaTimer().time_calls(mod.bind(*arrays(), workspace=own), min_samples=3, max_samples=3)
    assert {launched.words[2] for launched in device.launches} == {own.view.pointer}


def test_caches_are_flushed_before_each_sample(
    device: DoubleDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    mod, given, fills, fill = module(device, 7e-6), arrays(), [], device.fill

    def note(address: int, byte: int, size: int, stream: int) -> None:
        fills.append((size, stream, len(device.launches)))
        fill(address, byte, size, stream)

    monkeypatch.setattr(device, "fill", note)
    timing = mod.time(*given, min_samples=4, max_samples=4, flush_cache=True)
    assert timing.samples == pytest.approx([7e-6] * 4)
    assert timing.repeats == 1
    flushes = [f for f in fills if f[0] == 2 * ROOMY.l2_bytes]
    assert flushes == [(2 * ROOMY.l2_bytes, timing_stream(device), n) for n in (1, 2, 3, 4)]
    assert addresses(device).keys() == {given[0].view.pointer}


def test_earlier_work_is_done_before_a_sample(device: DoubleDevice) -> None:
    mod, given, stream = module(device, 2e-6), arrays(), device.new_stream()
    device.fill(given[0].view.pointer, 0, 4 * N, stream)
    mod.time(*given)
    assert not given[1].numpy().any()


def test_one_call_is_timed(device: DoubleDevice) -> None:
    call = module(device, 2e-6).bind(*arrays())
    assert CudaTimer().time_once(call) == pytest.approx(2e-6)
    assert len(device.launches) == 1


def test_functions_are_timed_on_the_default_stream(device: DoubleDevice) -> None:
    mod, (a, b) = module(device, 4e-6), arrays()
    timing = CudaTimer().time_calls(lambda: mod(a, b), min_samples=3, max_samples=3)
    assert timing.samples == pytest.approx([4e-6] * 3)
    assert {launched.stream for launched in device.launches} == {0}
    assert CudaTimer().time_once(lambda: mod(a, b)) == pytest.approx(4e-6)


def test_calls_are_timed_interleaved(device: DoubleDevice) -> None:
    fast, slow = module(device, 5e-6), module(device, 80e-6)
    calls: list[Any] = [m.bind(*arrays()) for m in (fast, slow)]
    a, b = arrays()
    calls.append(lambda: fast(a, b))
    timings = CudaTimer().time_interleaved(calls, rounds=6, min_sample_seconds=1e-3)
    for timing, seconds in zip(timings, (5e-6, 80e-6, 5e-6), strict=True):
        assert timing.samples == pytest.approx([seconds] * 6)
    assert not device.graphs
    assert not device.events


def test_hopeless_kernels_are_dropped(device: DoubleDevice) -> None:
    timing = module(device, 60e-6).time(*arrays(), stop_above=1e-6, max_samples=20)
    assert timing.stopped
    assert len(timing.samples) == 5


def test_values_are_checked_once(device: DoubleDevice) -> None:
    index = Argument("A", "int32", (4,), value_range=(0, 8))
    device.driver.provide(IMAGE, {"double": DoubleKernel(lambda _: None, seconds=2e-6)})
    launch, target = replace(LAUNCH, arguments=(0,)), Target.parse("cuda -arch=sm_90a")
    mod = cuda_module(IMAGE, [(launch,)], Signature("f", (index,)), target, Origin("schedule"))
    assert mod.time(DeviceArray.of(np.arange(4, dtype=np.int32))).median == pytest.approx(2e-6)

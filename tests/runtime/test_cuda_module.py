"""Calls of modules on CUDA devices, through a driver of our own."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright import ops
from tilewright.autotune.measure.numeric_check import arguments_of
from tilewright.base import dtypes
from tilewright.base.errors import (
    ArgumentError,
    DeviceError,
    OutOfMemoryError,
    TargetError,
)
from tilewright.codegen.calling_convention import signature_of
from tilewright.runtime import Argument, Module, Origin, Signature
from tilewright.runtime.cuda_driver import driver, use_driver
from tilewright.runtime.cuda_kernel import CudaKernel
from tilewright.runtime.cuda_launch import KernelLaunch, KernelResources
from tilewright.runtime.cuda_memory import DeviceArray, cuda_memory
from tilewright.runtime.cuda_runtime import cuda_module
from tilewright.runtime.signature import Packing
from tilewright.target import Target

from ..refusals import refused
from .cuda_arrays import Exported, Foreign, Interfaced, Library
from .cuda_double import H200, DoubleDevice, DoubleDriver, DoubleKernel, Fault, Launched

IMAGE = b"an image"
SM_90A = Target.parse("cuda -arch=sm_90a")
N = 32
VECTORS = tuple(Argument(name, "float32", (N,)) for name in "AB")
OUT = Argument("C", "float32", (N,), role="out")
AXPY = Signature("axpy", (*VECTORS, OUT, Argument("s", "float32", kind="scalar")))
LAUNCH = KernelLaunch("axpy_0", (1, 1, 1), (N, 1, 1), (0, 1, 2, 3))


def axpy(launched: Launched) -> None:
    a, b, c = (launched.array(n, "float32", (N,)) for n in range(3))
    c[...] = a + b * launched.number(3, "float32")


@pytest.fixture
def double() -> Iterator[DoubleDriver]:
    other = DoubleDriver((H200, replace(H200, ordinal=1, name="NVIDIA H200 NVL")))
    other.provide(IMAGE, {"axpy_0": DoubleKernel(axpy)})
    with use_driver(other):
        yield other


@pytest.fixture
def device(double: DoubleDriver) -> DoubleDevice:
    return double.device(0)


def module(
    signature: Signature = AXPY,
    launches: tuple[KernelLaunch, ...] = (LAUNCH,),
    *others: tuple[KernelLaunch, ...],
    **options: Any,
) -> Module:
    return cuda_module(IMAGE, [launches, *others], signature, SM_90A, Origin("schedule"), **options)


def vectors(make: Callable[[Any], Any] = DeviceArray.of) -> list[Any]:
    a, b = np.arange(N, dtype=np.float32), np.full(N, 3, np.float32)
    return [make(a), make(b), make(np.zeros(N, np.float32))]


def expected(s: float = 2.0) -> Any:
    return np.arange(N, dtype=np.float32) + np.float32(3 * s)


MAKERS: dict[str, Callable[[Any], Any]] = {
    "ours": DeviceArray.of,
    "DLPack": Exported,
    "interface": Interfaced,
    "C functions": lambda values: Library().array(values),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_call_computes(double: DoubleDriver, make: Callable[[Any], Any]) -> None:
    a, b, c = vectors(make)
    module()(a, b, c, 2.0)
    assert (c.numpy() == expected()).all()


def test_a_call_returns_before_its_kernels_are_done(device: DoubleDevice) -> None:
    a, b, c = vectors()
    mod = module()
    mod(a, b, c, 2.0)
    memory = device.array(c.view.pointer, "float32", (N,))
    assert not memory.any()
    mod.synchronize()
    assert (memory == expected()).all()


def test_a_launch_has_the_extents_of_its_kernel(device: DoubleDevice) -> None:
    launch = KernelLaunch("axpy_0", (7, 6, 5), (4, 3, 2), (0, 1, 2, 3), 100 << 10)
    module(launches=(launch,))(*vectors(), 2.0)
    (seen,) = device.launches
    assert (seen.grid, seen.block, seen.shared_bytes) == ((7, 6, 5), (4, 3, 2), 100 << 10)


def test_kernels_run_in_their_order(double: DoubleDriver) -> None:
    def increase(launched: Launched) -> None:
        launched.array(0, "float32", (N,))[...] += 1

    double.provide(IMAGE, {"axpy_0": DoubleKernel(axpy), "more": DoubleKernel(increase)})
    more = KernelLaunch("more", (1, 1, 1), (N, 1, 1), (2,))
    a, b, c = vectors()
    module(launches=(LAUNCH, more, more))(a, b, c, 2.0)
    assert (c.numpy() == expected() + 2).all()


def test_a_function_without_kernels_does_nothing(device: DoubleDevice) -> None:
    module(launches=())(*vectors(), 2.0)
    assert not device.launches


NUMBERS: dict[str, Any] = {
    "bool": True,
    "int8": -3,
    "int16": -300,
    "int32": -(2**31),
    "int64": -(2**63),
    "uint8": 200,
    "uint16": 60000,
    "uint32": 2**32 - 1,
    "uint64": 2**64 - 1,
    "float8_e4m3fn": 1.5,
    "float8_e5m2": -1.5,
    "float16": 2.5,
    "bfloat16": -1e30,
    "float32": 1 / 3,
    "float64": 1 / 3,
}


def test_numbers_arrive_as_they_are(double: DoubleDriver) -> None:
    found = {}

    def note(launched: Launched) -> None:
        found.update({d: launched.number(n, d) for n, d in enumerate(NUMBERS)})

    double.provide(IMAGE, {"note": DoubleKernel(note)})
    signature = Signature("f", tuple(Argument(d, d, kind="scalar") for d in NUMBERS))
    launch = KernelLaunch("note", (1, 1, 1), (1, 1, 1), tuple(range(len(NUMBERS))))
    mod = module(signature, (launch,))
    mod(*NUMBERS.values())
    mod.synchronize()
    assert NUMBERS.keys() == set(dtypes.SCALARS)
    assert found == {d: dtypes.to_numpy(d).type(value) for d, value in NUMBERS.items()}


# Streams


def streams_of(device: DoubleDevice) -> list[int]:
    return [launched.stream for launched in device.launches]


class OfTorch:
    def __init__(self, stream: int) -> None:
        self.cuda_stream = stream


class OfCupy:
    def __init__(self, stream: int) -> None:
        self.ptr = stream


class OfPycuda:
    def __init__(self, stream: int) -> None:
        self.handle = stream


class OfProtocol:
    def __init__(self, stream: int) -> None:
        self.stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream


@pytest.mark.parametrize("kind", [int, OfTorch, OfCupy, OfPycuda, OfProtocol])
def test_a_call_runs_on_the_stream_given(device: DoubleDevice, kind: Any) -> None:
    stream, mod = device.new_stream(), module()
    mod(*vectors(), 2.0, stream=kind(stream))
    mod(*vectors(), 2.0, stream=kind(0))
    mod(*vectors(), 2.0, stream=kind(1))
    mod.bind(*vectors(), 2.0, stream=kind(stream))()
    assert streams_of(device) == [stream, 0, 0, stream]


@pytest.mark.parametrize("stream", ["main", 1.5, -1, 2**64, object(), OfTorch(-1), [0]])
def test_other_objects_are_no_streams(double: DoubleDriver, stream: Any) -> None:
    with pytest.raises(ArgumentError):
        module()(*vectors(), 2.0, stream=stream)


def test_a_call_runs_where_the_library_of_its_arrays_works(device: DoubleDevice) -> None:
    library, mod = Library(), module()
    library.stream = device.new_stream()
    mod(*vectors(library.array), 2.0)
    library.stream = 0
    mod(*vectors(library.array), 2.0)
    a, b, c = vectors(Interfaced)
    b.stream = device.new_stream()
    mod(a, b, c, 2.0)
    mod(*vectors(Exported), 2.0)
    assert streams_of(device) == [*list(device.streams)[1:2], 0, b.stream, 0]


def test_arrays_that_tell_no_stream_are_ordered_by_their_exporter(device: DoubleDevice) -> None:
    a, b, c = vectors(Exported)
    module()(a, b, c, 2.0)
    stream = device.new_stream()
    module()(a, b, c, 2.0, stream=stream)
    assert a.streams == b.streams == c.streams == [1, stream]


def produce(device: DoubleDevice, array: Any, value: int, stream: int) -> None:
    """Fill an array on a stream, some time."""
    device.fill(array.view.pointer, value, 4 * N, stream)


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("kind", ["C functions", "interface"])
def test_a_call_comes_after_the_work_of_its_arrays(
    device: DoubleDevice, kind: str, bound: bool
) -> None:
    library, (stream, other) = Library(), (device.new_stream(), device.new_stream())
    a, b, c = vectors(library.array if kind == "C functions" else Interfaced)
    library.stream = other
    for array in (a, b, c):
        array.stream = other
    produce(device, a, 0x40, other)
    mod = module()
    if bound:
        mod.bind(a, b, c, 0.0, stream=stream)()
    else:
        mod(a, b, c, 0.0, stream=stream)
    device.synchronize_stream(stream)
    found = device.array(c.view.pointer, "float32", (N,))
    assert (found.view(np.uint32) == 0x40404040).all()


def test_a_stream_does_not_wait_for_itself(device: DoubleDevice) -> None:
    library = Library()
    library.stream = device.new_stream()
    module()(*vectors(library.array), 2.0)
    assert not device.events


def test_another_thread_may_take_the_last_event(device: DoubleDevice) -> None:
    class Taken(list[int]):
        """There was an event when it was asked for, and there is none when it is taken."""

        def __bool__(self) -> bool:
            return True

    library, mod = Library(), module()
    library.stream = device.new_stream()
    kernel = mod._kernel
    assert isinstance(kernel, CudaKernel)
    kernel._events = Taken()
    mod(*vectors(library.array), 2.0, stream=device.new_stream())
    assert len(device.events) == len(kernel._events) == 1


# What is refused


def strided() -> Any:
    a = DeviceArray.of(np.zeros((N, 2), np.float32))
    return DeviceArray(a.view._replace(shape=(N,), strides=(8,)), a.memory)


def shifted(step: int) -> Any:
    a = DeviceArray.of(np.zeros(N + 8, np.float32))
    view = a.view._replace(pointer=a.view.pointer + step, shape=(N,))
    return DeviceArray(view, a.memory)


class Raising:
    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **_options: Any) -> object:
        raise BufferError("it requires a gradient")


class RaisingInterface:
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise RuntimeError("it requires a gradient")


def interfaced(**changes: Any) -> Any:
    """An array whose interface has other fields."""
    own = Interfaced(np.zeros(N, np.float32))
    fields = {**own.__cuda_array_interface__, **changes}
    return type("Told", (), {"__cuda_array_interface__": fields, "own": own})()


def foreign(array: Foreign) -> Any:
    device = driver().device(0)
    assert isinstance(device, DoubleDevice)
    device.foreign.add(array.view.pointer)
    return array


def of_host() -> Any:
    array = Exported(np.zeros(N, np.float32))
    array.device = 1
    return array


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "numpy": (
        lambda: np.zeros(N, np.float32),
        r"expected memory on cuda:0, found a numpy array on the host\n.*torch.from_numpy\(A\).cuda",
    ),
    "host": (
        of_host,
        r"expected memory on cuda:0, found an array on cpu:0\n.*torch.as_tensor\(A, d",
    ),
    "list": (lambda: [0.0] * N, r"expected an array, found list\n.*DeviceArray.of\(A\)"),
    "ordinal": (
        lambda: Exported(np.zeros(N, np.float32), 1),
        r"expected memory on cuda:0, found an array on cuda:1\n.*copy it to cuda:0 first",
    ),
    "our ordinal": (
        lambda: DeviceArray.of(np.zeros(N, np.float32), 1),
        "expected memory on cuda:0, found an array on cuda:1\n.*cuda.set_device.1.",
    ),
    "its ordinal": (
        lambda: Interfaced(np.zeros(N, np.float32), 1),
        "expected memory on cuda:0, found an array on cuda:1\n.*cuda.set_device.1.",
    ),
    "nowhere": (lambda: interfaced(data=(4096, False)), "found memory of no device"),
    "context": (
        lambda: foreign(Interfaced(np.zeros(N, np.float32))),
        "found an array in another context of that device\n.*import pycuda.autoprimaryctx",
    ),
    "dtype": (lambda: DeviceArray.of(np.zeros(N)), "expected dtype float32, found float64"),
    "typestr": (lambda: interfaced(typestr="<c8"), "expected dtype float32, found typestr '<c8'"),
    "shape": (lambda: DeviceArray.of(np.zeros(5, np.float32)), r"expected shape \(32,\)"),
    "strides": (strided, r"expected a compact row-major array, found strides of \(8,\) bytes"),
    "alignment": (lambda: shifted(4), "expected an address that is a multiple of 16 bytes"),
    "raising": (Raising, "Raising does not export its memory: it requires a gradient"),
    "raising interface": (RaisingInterface, "does not export its memory: it requires a gradient"),
    "version": (lambda: interfaced(version=4), "exported by version 4 .*, known up to 3"),
    "mask": (lambda: interfaced(mask=1), "expected a plain array, found a masked array"),
    "null": (lambda: interfaced(data=(0, False)), "a null pointer to its elements"),
    "no shape": (lambda: interfaced(shape=None), "is malformed: TypeError"),
    "negative": (lambda: interfaced(shape=(-1,)), "is malformed: ValueError"),
    "rank": (lambda: interfaced(strides=(4, 4)), "is malformed: ValueError"),
    "dimensions": (lambda: interfaced(shape=(1,) * 65), "is malformed: ValueError"),
    "address": (lambda: interfaced(data=(1 << 64, False)), "is malformed: ValueError"),
    "no interface": (lambda: interfaced(typestr=None), "is malformed: TypeError"),
    "stream": (lambda: interfaced(stream=-(2**31)), "is malformed: ValueError"),
    "no pair": (lambda: interfaced(data=7), "is malformed: TypeError"),
}


@pytest.mark.parametrize(("make", "says"), WRONG.values(), ids=WRONG)
def test_wrong_arrays_are_refused(device: DoubleDevice, make: Callable[[], Any], says: str) -> None:
    _, b, c = vectors()
    mod = module()
    for call in (mod, mod.bind):
        with pytest.raises(ArgumentError, match=f"argument A: .*{says}"):
            call(make(), b, c, 2.0)
    assert not device.launches


@pytest.mark.parametrize("make", [Exported, Interfaced])
def test_results_are_not_written_to_read_only_arrays(
    double: DoubleDriver, make: Callable[[Any], Any]
) -> None:
    a, b, c = vectors(make)
    module()(a.changed(read_only=True), b, c, 2.0)
    with pytest.raises(ArgumentError):
        module()(a, b, c.changed(read_only=True), 2.0)


def test_arrays_may_be_exactly_aligned(device: DoubleDevice) -> None:
    module()(shifted(16), *vectors()[1:], 2.0)
    assert len(device.launches) == 1


def test_outputs_overlap_with_nothing(double: DoubleDriver) -> None:
    a, b, c = vectors()
    module()(a, a, c, 2.0)
    with pytest.raises(ArgumentError):
        module()(a, b, a, 2.0)


def test_calls_take_the_arguments_of_the_signature(double: DoubleDriver) -> None:
    with refused(ArgumentError, "axpy", "4", "A, B, C, s", "3"):
        module()(*vectors())
    with pytest.raises(ArgumentError):
        module()(*vectors(), 2.0, steam=0)  # type: ignore[call-arg]


def test_arrays_of_any_strides_and_dtypes_are_read_and_written(double: DoubleDriver) -> None:
    memory, rng = cuda_memory(0), np.random.default_rng(0)
    for dtype in dtypes.SCALARS:
        values = rng.integers(0, 2, (3, 4, 5)).astype(dtypes.to_numpy(dtype))
        array = DeviceArray.of(values)
        assert (array.numpy() == values).all()
        turned = array.view._replace(shape=(5, 3), strides=(values.itemsize, 20 * values.itemsize))
        assert (memory.read(turned) == values[:, 0].T).all()
        back = turned._replace(
            pointer=turned.pointer + 4 * values.itemsize,
            strides=(-values.itemsize, 20 * values.itemsize),
        )
        assert (memory.read(back) == values[:, 0, ::-1].T).all()
        memory.write(back, 0)
        values[:, 0] = 0
        assert (array.numpy() == values).all()


def test_arrays_of_no_elements(device: DoubleDevice) -> None:
    shape = (4, 0)
    signature = Signature("f", (Argument("A", "float32", shape), replace(OUT, shape=shape)))
    none = np.zeros(shape, np.float32)
    for make in (DeviceArray.of, Exported, Interfaced):
        a = make(none)
        module(signature, ())(a, make(none))
        assert a.numpy().shape == shape
    assert not device.taken


def test_memory_is_freed(device: DoubleDevice) -> None:
    a, b, c = vectors()
    mod = module(replace(AXPY, workspace_bytes=4096))
    mod(a, b, c, 2.0)
    assert device.taken == 3 * 4 * N + 4096
    del a, b, c
    gc.collect()
    assert device.taken == 4096


# Values, packing, binding


def test_indices_are_checked_once_the_device_has_them(device: DoubleDevice) -> None:
    index = Argument("A", "int32", (4,), value_range=(0, 8))
    signature, launch = Signature("f", (index,)), replace(LAUNCH, arguments=(0,))
    device.driver.provide(IMAGE, {"axpy_0": DoubleKernel(lambda _: None)})
    mod, a = module(signature, (launch,)), DeviceArray.of(np.arange(4, dtype=np.int32))
    call = mod.bind(a)
    call()
    device.fill(a.view.pointer, 9, 16, device.new_stream())
    for wrong in (lambda: mod(a), call, lambda: mod.bind(a)):
        with refused(ArgumentError, "A", "0", "7", "151587081"):
            wrong()
    assert len(device.launches) == 1
    module(signature, (launch,), trust_indices=True)(a)


def test_operands_are_packed_on_the_device(double: DoubleDriver) -> None:
    def turn(launched: Launched) -> None:
        launched.array(1, "float32", (4, 2))[...] = launched.array(0, "float32", (2, 4)).T

    double.provide(IMAGE, {"axpy_0": DoubleKernel(axpy), "turn": DoubleKernel(turn)})
    operand = Argument("W", "float32", (2, 4), constant=True)
    packed = replace(operand, shape=(4, 2), packing=Packing("f_pack_W", operand, "BA"))
    own = replace(LAUNCH, arguments=())
    double.provide(IMAGE, {"axpy_0": DoubleKernel(lambda _: None), "turn": DoubleKernel(turn)})
    launch = KernelLaunch("turn", (1, 1, 1), (8, 1, 1), (0, 1))
    mod = module(Signature("f", (packed,)), (own,), (launch,))
    values = np.arange(8, dtype=np.float32).reshape(2, 4)
    made = mod.pack("W", DeviceArray.of(values))
    assert mod.layouts == {"W": "BA"}
    assert (made.numpy() == values.T).all()
    mod(made)
    with pytest.raises(ArgumentError, match="it is packed ahead of the calls: pass module.pack"):
        mod(DeviceArray.of(values))


def test_a_bound_call_has_its_own_parameters(double: DoubleDriver) -> None:
    mod, first, second = module(), vectors(), vectors()
    calls = [mod.bind(*first, 2.0), mod.bind(*second, 4.0)]
    for call in (*calls, *calls):
        call()
    assert (first[2].numpy() == expected(2.0)).all()
    assert (second[2].numpy() == expected(4.0)).all()


def test_threads_call_at_once(double: DoubleDriver) -> None:
    mod, given = module(replace(AXPY, workspace_bytes=64)), [vectors() for _ in range(8)]

    def work(number: int) -> None:
        for _ in range(50):
            mod(*given[number], float(number))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, (_, _, c) in enumerate(given):
        assert (c.numpy() == expected(float(number))).all()


# Workspaces


def with_workspace(device: DoubleDevice, size: int = 4096) -> Module:
    """A module whose kernel writes its workspace, then reads it."""

    def write(launched: Launched) -> None:
        launched.array(0, "float32", (N,))[...] = launched.number(1, "float32")

    def read(launched: Launched) -> None:
        launched.array(0, "float32", (N,))[...] = launched.array(1, "float32", (N,))

    device.driver.provide(IMAGE, {"write": DoubleKernel(write), "read": DoubleKernel(read)})
    signature = Signature("f", (OUT, Argument("s", "float32", kind="scalar")), size)
    return module(
        signature,
        (
            KernelLaunch("write", (1, 1, 1), (N, 1, 1), (2, 1)),
            KernelLaunch("read", (1, 1, 1), (N, 1, 1), (0, 2)),
        ),
    )


def workspaces(device: DoubleDevice) -> list[int]:
    return [seen.words[0] for seen in device.launches if seen.symbol == "write"]


def out() -> DeviceArray:
    return DeviceArray.of(np.zeros(N, np.float32))


def test_calls_on_a_stream_use_one_workspace(device: DoubleDevice) -> None:
    mod, stream = with_workspace(device), device.new_stream()
    results = [out() for _ in range(3)]
    for number, c in enumerate(results):
        mod(c, float(number), stream=stream)
    assert len(set(workspaces(device))) == 1
    assert [c.numpy()[0] for c in results] == [0, 1, 2]


def test_calls_on_two_streams_use_two_workspaces(device: DoubleDevice) -> None:
    mod, streams = with_workspace(device), [device.new_stream(), device.new_stream()]
    results = [out() for _ in range(6)]
    for number, c in enumerate(results):
        mod(c, float(number), stream=streams[number % 2])
    assert len(set(workspaces(device))) == 2
    assert [c.numpy()[0] for c in results] == [0, 1, 2, 3, 4, 5]


def test_a_workspace_whose_call_is_done_serves_another_stream(device: DoubleDevice) -> None:
    mod, streams = with_workspace(device), [device.new_stream(), device.new_stream()]
    for stream in (*streams, *streams):
        mod(out(), 1.0, stream=stream)
        device.synchronize_stream(stream)
    assert len(set(workspaces(device))) == 1


def test_a_workspace_is_waited_for_where_memory_is_short(device: DoubleDevice) -> None:
    size = device.facts.memory_bytes * 3 // 4 // 64 * 64
    mod, streams = with_workspace(device, size), [device.new_stream(), device.new_stream()]
    results = [out() for _ in range(4)]
    for number, c in enumerate(results):
        mod(c, float(number), stream=streams[number % 2])
    device.synchronize_stream(streams[1])
    assert len(set(workspaces(device))) == 1
    assert [c.numpy()[0] for c in results] == [0, 1, 2, 3]


def test_a_stream_with_the_handle_of_a_freed_one_waits(device: DoubleDevice) -> None:
    mod, stream = with_workspace(device), device.new_stream()
    first, second = out(), out()
    mod(first, 1.0, stream=stream)
    device.streams[stream] = type(device.streams[stream])(blocking=False)
    mod(second, 2.0, stream=stream)
    device.synchronize_stream(stream)
    assert first.numpy()[0] == 1


def test_a_larger_workspace_takes_the_place_of_a_smaller_one(device: DoubleDevice) -> None:
    small, large = with_workspace(device, 4096), with_workspace(device, 8192)
    c = out()
    for mod in (small, large, small):
        mod(c, 1.0)
    gc.collect()
    assert device.taken == 8192 + 4 * N
    assert len(device.events) == 1


def test_there_is_no_memory_for_a_workspace(device: DoubleDevice) -> None:
    mod = with_workspace(device, 1 << 30)
    with pytest.raises(OutOfMemoryError):
        mod(out(), 1.0)
    with pytest.raises(OutOfMemoryError):
        mod.workspace()


def test_a_caller_may_own_the_workspace(device: DoubleDevice) -> None:
    mod = with_workspace(device)
    assert mod.workspace_bytes == 4096
    own, c = mod.workspace(), out()
    mod(c, 3.0, workspace=own)
    mod.bind(c, 4.0, workspace=own)()
    assert workspaces(device) == [own.view.pointer] * 2
    assert c.numpy()[0] == 4
    with pytest.raises(ArgumentError):
        mod(c, 3.0, workspace=out_bytes(64))
    with refused(ArgumentError, "workspace", "0"):
        mod(c, 3.0, workspace=np.zeros(4096, np.uint8))


def out_bytes(size: int) -> DeviceArray:
    return DeviceArray.of(np.zeros(size, np.uint8))


def test_graphs_have_workspaces_of_their_own(device: DoubleDevice) -> None:
    mod, stream, c = with_workspace(device), device.new_stream(), out()
    says = r"into a graph.*\n.*workspace=module.workspace\(\)"
    with pytest.raises(ArgumentError, match=says):  # there is none yet
        device.capture(stream, lambda: mod(c, 1.0, stream=stream))
    mod(c, 1.0)
    with pytest.raises(ArgumentError, match=says):  # one of another stream
        device.capture(stream, lambda: mod(c, 1.0, stream=stream))
    mod(c, 1.0, stream=stream)
    with pytest.raises(ArgumentError):
        device.capture(stream, lambda: mod(c, 1.0, stream=stream))
    mod.synchronize()
    device.launches.clear()
    own = mod.workspace()
    graph = device.capture(stream, lambda: mod(c, 2.0, stream=stream, workspace=own))
    assert not device.launches
    device.replay(graph, stream)
    assert c.numpy()[0] == 2


# What devices refuse, and how they fail


def test_resources(double: DoubleDriver) -> None:
    double.provide(
        IMAGE, {"axpy_0": DoubleKernel(axpy, registers=64, local_bytes=16, shared_bytes=32)}
    )
    launch = replace(LAUNCH, grid=(8, 2, 1), block=(128, 2, 1), shared_bytes=96)
    found = {
        "registers": 64,
        "local_bytes": 16,
        "shared_bytes": 128,
        "threads": 256,
        "blocks": 16,
        "blocks_per_sm": 4,
        "occupancy": 0.5,
    }
    assert module(launches=(launch,)).resources == {"axpy_0": found}
    told = replace(launch, resources=KernelResources(64, 16, 8, 12, 32))
    spills = {"spill_store_bytes": 8, "spill_load_bytes": 12}
    assert module(launches=(told,)).resources == {"axpy_0": {**found, **spills}}


REFUSED: dict[str, tuple[DoubleKernel, KernelLaunch, str]] = {
    "registers": (
        DoubleKernel(axpy, registers=128, max_threads=512),
        replace(LAUNCH, block=(1024, 1, 1)),
        "NVIDIA H200 cannot launch axpy_0: it has a block of 1024 threads with 128 registers each, "
        "at most 512 threads\n.*schedule that takes less",
    ),
    "shared memory": (
        DoubleKernel(axpy, shared_bytes=200 << 10),
        replace(LAUNCH, shared_bytes=100 << 10),
        "it has 307200 bytes of shared memory, at most 232448 a block\n.*schedule that takes less",
    ),
    "name": (DoubleKernel(axpy), replace(LAUNCH, symbol="axpy_1"), "refuses to find axpy_1"),
}


@pytest.mark.parametrize(("kernel", "launch", "says"), REFUSED.values(), ids=REFUSED)
def test_kernels_beyond_the_device_are_refused_when_loaded(
    double: DoubleDriver, kernel: DoubleKernel, launch: KernelLaunch, says: str
) -> None:
    double.provide(IMAGE, {"axpy_0": kernel})
    with pytest.raises(DeviceError, match=says) as caught:
        module(launches=(launch,))
    assert not caught.value.sticky


def test_code_for_another_architecture_is_refused(double: DoubleDriver) -> None:
    other = Target.parse("cuda -arch=sm_80")
    with pytest.raises(TargetError):
        cuda_module(IMAGE, [(LAUNCH,)], AXPY, other, Origin("schedule"))
    double.provide(IMAGE, {"axpy_0": DoubleKernel(axpy)}, arch="sm_80")
    again = r"\n  hint: build it anew for this device"
    with pytest.raises(TargetError):
        module()
    with pytest.raises(TargetError, match=f"does not load code .*CUDA_ERROR_INVALID_IMAGE{again}"):
        cuda_module(b"damaged", [(LAUNCH,)], AXPY, SM_90A, Origin("schedule"))


def test_a_module_is_on_one_device(double: DoubleDriver) -> None:
    double.thread_uses = 1
    mod = module()
    double.thread_uses = 0
    given = [DeviceArray.of(a.numpy(), 1) for a in vectors()]
    mod(*given, 2.0)
    assert (given[2].numpy() == expected()).all()
    with pytest.raises(ArgumentError):
        mod(*vectors(), 2.0)
    assert mod.device == 1
    assert module(ordinal=1).device == 1
    assert module().device == 0
    with refused(TargetError, "7"):
        module(ordinal=7)


def test_an_illegal_address_loses_the_device(device: DoubleDevice) -> None:
    def fail(_: Launched) -> None:
        raise Fault

    device.driver.provide(IMAGE, {"axpy_0": DoubleKernel(fail)})
    given, mod = vectors(), module()
    mod(*given, 2.0)
    says = "an access to an illegal address, asked .*CUDA_ERROR_ILLEGAL_ADDRESS\n.*start another"
    later: list[Callable[[], object]] = [
        mod.synchronize,
        lambda: mod(*given, 2.0),
        mod.bind(*given, 2.0),
        given[2].numpy,
        lambda: DeviceArray.of(np.zeros(4)),
        module,
    ]
    for call in later:
        with pytest.raises(DeviceError, match=says) as caught:
            call()
        assert caught.value.sticky
        assert caught.value.code == 700
    later.clear()
    gc.collect()  # what it had is not freed, and nothing is raised


def test_wild_addresses_are_found(device: DoubleDevice) -> None:
    a, b, c = vectors()
    c.view = c.view._replace(pointer=c.view.pointer + 4096)
    mod = module()
    mod(a, b, c, 2.0)
    with pytest.raises(DeviceError, match="illegal address"):
        mod.synchronize()


def test_a_kernel_that_never_ends(device: DoubleDevice) -> None:
    device.driver.provide(IMAGE, {"axpy_0": DoubleKernel(axpy, endless=True)})
    mod, given = module(), vectors()
    mod(*given, 2.0)
    with pytest.raises(DeviceError) as caught:
        mod.synchronize(0.05)
    assert caught.value.sticky
    device.released.set()
    mod.synchronize(30)


def test_a_wait_with_an_end_raises_what_the_device_reports(device: DoubleDevice) -> None:
    def fail(_: Launched) -> None:
        raise Fault(719)

    device.driver.provide(IMAGE, {"axpy_0": DoubleKernel(fail)})
    mod = module()
    mod(*vectors(), 2.0)
    with pytest.raises(DeviceError, match="a kernel that failed"):
        mod.synchronize(30)


def test_memory_that_is_not_there(double: DoubleDriver) -> None:
    with pytest.raises(OutOfMemoryError):
        DeviceArray.of(np.zeros(1 << 24, np.float32))


def test_text_of_a_source_is_asked_for(double: DoubleDriver) -> None:
    mod = module(sources={"cuda": lambda: "__global__"})
    assert mod.source("cuda") == "__global__"
    with pytest.raises(ArgumentError):
        mod.source("ptx")


def test_arrays_show_what_they_are(double: DoubleDriver) -> None:
    assert (
        repr(DeviceArray.of(np.zeros((2, 3), np.int8), 1)) == "<DeviceArray (2, 3) int8 on cuda:1>"
    )
    assert len(DeviceArray.of(np.zeros((2, 3)))) == 2


class OfTorchLibrary(Exported):
    __module__ = "torch"


REMEDIES: dict[str, tuple[Callable[[Any], Any], dict[str, str]]] = {
    "torch": (
        OfTorchLibrary,
        {
            "dtype": "pass A.to(torch.float32)",
            "strides": "pass A.contiguous()",
            "transposed": "pass A.T.contiguous() if it is to be transposed",
            "alignment": "pass A.clone()",
            "overlap": "torch.empty((4, 8), dtype=torch.float32, device='cuda')",
        },
    ),
    "cupy": (
        Exported,
        {
            "dtype": "pass A.astype(cupy.float32)",
            "strides": "pass cupy.ascontiguousarray(A)",
            "transposed": "pass cupy.ascontiguousarray(A.T) if it is to be transposed",
            "alignment": "pass A.copy()",
            "overlap": "cupy.empty((4, 8), cupy.float32)",
        },
    ),
    "ours": (
        DeviceArray.of,
        {
            "dtype": "pass DeviceArray.of(A.numpy().astype(numpy.float32))",
            "strides": "pass DeviceArray.of(A.numpy())",
            "transposed": "pass DeviceArray.of(A.numpy().T) if it is to be transposed",
            "alignment": "pass DeviceArray.of(A.numpy())",
            "overlap": "DeviceArray.of(numpy.empty((4, 8), numpy.float32))",
        },
    ),
}


@pytest.mark.parametrize("library", REMEDIES)
@pytest.mark.parametrize("wrong", REMEDIES["torch"][1])
def test_remedies_are_of_the_library(double: DoubleDriver, library: str, wrong: str) -> None:
    make, remedies = REMEDIES[library]
    a = make(np.zeros((9, 8), np.float32))

    def part(**changes: Any) -> Any:
        if library != "ours":
            return a.changed(**changes)
        return DeviceArray(a.view._replace(**changes), a.memory)

    right = part(shape=(4, 8), strides=None)
    given = {
        "dtype": lambda: make(np.zeros((4, 8))),
        "strides": lambda: part(shape=(4, 8), strides=(64, 4)),
        "transposed": lambda: part(shape=(8, 4), strides=None),
        "alignment": lambda: part(shape=(4, 8), strides=None, pointer=a.view.pointer + 4),
        "overlap": lambda: right,
    }[wrong]()
    role: Any = "out" if wrong == "overlap" else "in"
    arguments = (replace(OUT, name="A", shape=(4, 8), role=role), replace(OUT, shape=(4, 8)))
    mod = module(Signature("f", arguments), ())
    with pytest.raises(ArgumentError, match=re.escape(remedies[wrong])):
        mod(given, right if wrong == "overlap" else make(np.zeros((4, 8), np.float32)))


def test_arguments_of_sessions_are_aligned_as_those_of_callers(double: DoubleDriver) -> None:
    func = ops.add_relu_func(33)
    memory = cuda_memory(0)
    arguments = arguments_of(func, signature_of(func), 7, memory)
    views = [memory.view(value, "A") for value in arguments.values]
    assert [view.pointer % 256 for view in views] == [0, 0, 0]
    assert arguments.stray_write() is None
    memory.write(views[2]._replace(shape=(34,)), 0)
    assert arguments.stray_write() == "C"
    arguments.reset()
    assert np.isnan(arguments.outputs[0]).all()


# Modules that were made where there was no device


def test_a_late_module_loads_when_it_is_called() -> None:
    told = replace(LAUNCH, resources=KernelResources(64, 16, 8, 12, 32))
    with use_driver(DoubleDriver(())):
        with refused(TargetError, "0"):
            module()
        mod = module(launches=(told,), late=True)
        found = mod.resources["axpy_0"]
        asks: list[Callable[[], object]] = [lambda: mod(None, None, None, 2.0), lambda: mod.device]
        for ask in asks:
            with pytest.raises(TargetError) as caught:
                ask()
            assert "tw.build_library" in str(caught.value)
    other = DoubleDriver()
    kernel = DoubleKernel(axpy, registers=64, local_bytes=16, shared_bytes=32)
    other.provide(IMAGE, {"axpy_0": kernel})
    with use_driver(other):
        given = vectors()
        mod(*given, 2.0)
        assert (given[2].numpy() == expected()).all()
        assert mod.device == 0
        assert mod.resources["axpy_0"].keys() == found.keys()
        assert [mod.resources["axpy_0"][k] for k in found] == [*found.values()]


def test_a_late_module_is_refused_by_another_device() -> None:
    mod = module(late=True)
    with (
        use_driver(DoubleDriver([replace(H200, capability=(8, 0), name="NVIDIA A100")])),
        pytest.raises(TargetError) as caught,
    ):
        mod(*[np.zeros(N, np.float32)] * 3, 2.0)
    assert "cuda -arch=sm_80" in str(caught.value)


def test_threads_load_a_late_module_once() -> None:
    mod, other = module(late=True), DoubleDriver()
    other.provide(IMAGE, {"axpy_0": DoubleKernel(axpy)})
    with use_driver(other):
        threads = [threading.Thread(target=lambda: mod.device) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(other.device(0).modules) == 1

"""The border to pycuda and to the driver's library, in whose place is a library of our own."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import ArgumentError, DeviceError, OutOfMemoryError, TargetError
from tilewright.runtime import Argument, Origin, Signature, cuda_pycuda
from tilewright.runtime.cuda_driver import Driver, Function, Place, driver, use_driver
from tilewright.runtime.cuda_launch import KernelLaunch
from tilewright.runtime.cuda_memory import DeviceArray
from tilewright.runtime.cuda_pycuda import PycudaDevice, PycudaDriver, open_driver
from tilewright.runtime.cuda_runtime import cuda_module
from tilewright.target import Target

from ..refusals import refused
from .cuda_stub import build_stub, missing_tools

LACKING = missing_tools()
needs_tools = pytest.mark.skipif(LACKING is not None, reason=f"there is no {LACKING}")
N = 1000
AXPY = Signature(
    "axpy",
    (
        Argument("X", "float32", (N,)),
        Argument("Y", "float32", (N,), role="inout"),
        Argument("a", "float32", kind="scalar"),
        Argument("n", "int32", kind="scalar"),
    ),
)
LAUNCH = KernelLaunch("axpy", (1, 2, 3), (8, 4, 2), (0, 1, 2, 3), 64 << 10)
SM_90A = Target.parse("cuda -arch=sm_90a")


class Cuda:
    """What pycuda.driver says of the devices of the stub."""

    class Error(Exception):
        pass

    class Device:
        def __init__(self, ordinal: int) -> None:
            self.ordinal = ordinal

        @staticmethod
        def count() -> int:
            return 2

        def name(self) -> str:
            return f"Stub {self.ordinal}"

        def compute_capability(self) -> tuple[int, int]:
            return (8, 0) if self.ordinal else (9, 0)

        def total_memory(self) -> int:
            return 1 << 36

        def pci_bus_id(self) -> str:
            return f"0000:0{self.ordinal + 1}:00.0"

        def get_attribute(self, attribute: str) -> int:
            return {"MULTIPROCESSOR_COUNT": 132}.get(attribute, 232448)

    class _Names:
        def __getattr__(self, name: str) -> str:
            return name

    device_attribute = _Names()

    @staticmethod
    def init() -> None:
        pass

    @staticmethod
    def get_driver_version() -> int:
        return 13010


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stub(tmp_path_factory.mktemp("stub"))


@pytest.fixture
def stub(library: Path) -> Iterator[Any]:
    """The stub, without an error, and with as many objects after the test as before."""
    loaded = ctypes.CDLL(str(library))
    loaded.stub_reset()
    loaded.stub_last.restype = ctypes.POINTER(ctypes.c_uint * 7)
    yield loaded
    loaded.stub_reset()


@pytest.fixture
def opened(library: Path, stub: Any) -> PycudaDriver:
    return PycudaDriver(Cuda, ctypes.CDLL(str(library)), ctypes.PyDLL(str(library)))


@pytest.fixture
def device(opened: PycudaDriver) -> PycudaDevice:
    return opened.device(0)


@needs_tools
def test_devices_are_described(opened: PycudaDriver) -> None:
    first, second = opened.facts()
    assert (first.name, first.arch, first.sms) == ("Stub 0", "sm_90", 132)
    assert (second.name, second.arch, second.pci_bus_id) == ("Stub 1", "sm_80", "0000:02:00.0")
    assert (first.driver_version, first.shared_bytes) == ((13, 1), 232448)
    assert opened.device(1).facts == second
    assert opened.device(1) is opened.device(1)
    with pytest.raises(TargetError):
        opened.device(2)


@needs_tools
def test_a_thread_uses_the_device_of_its_context(
    opened: PycudaDriver, device: PycudaDevice, stub: Any
) -> None:
    assert opened.current() == 0
    second = opened.device(1)
    second.synchronize()
    assert opened.current() == 1
    device.synchronize()
    assert opened.current() == 1
    assert stub.stub_depth() == 1


@needs_tools
def test_memory(device: PycudaDevice) -> None:
    address = device.allocate(64)
    assert address % 256 == 0
    values, found = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    device.upload(address, values)
    device.copy(address + 32, address, 32, 0)
    device.fill(address, 0, 8, 0)
    device.download(found, address)
    assert (found == [0, 0, *range(2, 8), *range(8)]).all()
    device.free(address)
    assert device.memory_info() == (1 << 35, 1 << 36)
    with pytest.raises(OutOfMemoryError):
        device.allocate(1 << 31)


@needs_tools
def test_places_of_memory(device: PycudaDevice) -> None:
    assert device.place_of(16384) == Place(0)
    assert device.place_of(4096) == Place(1)
    assert device.place_of(12288) == Place(0, primary=False)
    assert device.place_of(8192) is None
    assert device.place_of(16) is None


@needs_tools
def test_kernels_are_described(device: PycudaDevice, stub: Any) -> None:
    module = device.load(b"STUB of an image")
    axpy, wide = device.function(module, "axpy"), device.function(module, "wide")
    assert axpy._replace(handle=0) == Function(0, "axpy", 24, 0, 128, 1024)
    assert wide._replace(handle=0) == Function(0, "wide", 255, 16, 0, 256)
    assert device.resident_blocks(axpy, 256, 0) == 8
    assert device.resident_blocks(axpy, 256, 1 << 16) == 7
    device.allow_shared(axpy, 100_000)
    assert stub.stub_dynamic_shared() == 100_000
    with pytest.raises(DeviceError):
        device.allow_shared(axpy, 1_000_000)
    with refused(DeviceError, "other"):
        device.function(module, "other")
    device.unload(module)
    with pytest.raises(DeviceError, match="CUDA_ERROR_INVALID_IMAGE") as caught:
        device.load(b"damaged")
    assert caught.value.code == 200


@needs_tools
@pytest.mark.parametrize("current", [None, 0, 1])
def test_a_module_computes(opened: PycudaDriver, stub: Any, current: int | None) -> None:
    device = opened.device(0)
    x, y = np.arange(N, dtype=np.float32), np.ones(N, np.float32)
    with use_driver(opened):
        mod = cuda_module(b"STUB", [(LAUNCH,)], AXPY, SM_90A, Origin("schedule"))
        a, b = DeviceArray.of(x), DeviceArray.of(y)
        stub.stub_reset()
        if current is not None:
            opened.device(current).synchronize()
        mod(a, b, 0.5, N, stream=0xABCDE0)
    assert stub.stub_depth() == 1
    assert opened.current() == (current or 0)
    assert (b.numpy() == y + 0.5 * x).all()
    assert list(stub.stub_last().contents) == [1, 2, 3, 8, 4, 2, 64 << 10]
    words = ctypes.cast(stub.stub_last(), ctypes.POINTER(ctypes.c_uint64))
    assert words[4] == 0xABCDE0  # behind the seven extents
    assert words[5] == device._context
    assert stub.stub_dynamic_shared() == 64 << 10


@needs_tools
def test_another_context_stays_current(opened: PycudaDriver, device: PycudaDevice) -> None:
    opened.device(1).synchronize()
    address = device.allocate(8)
    assert device.place_of(16384) == Place(0)
    device.free(address)
    assert opened.current() == 1


@needs_tools
def test_any_thread_may_call(device: PycudaDevice, stub: Any) -> None:
    addresses: list[int] = []
    thread = threading.Thread(target=lambda: addresses.append(device.allocate(64)))
    thread.start()
    thread.join()
    device.free(*addresses)


@needs_tools
def test_streams_and_events(device: PycudaDevice, stub: Any) -> None:
    before = stub.stub_objects()
    stream, event = device.new_stream(), device.new_event()
    start, end = device.new_event(timed=True), device.new_event(timed=True)
    device.record(event, stream)
    device.wait(stream, event)
    assert not device.is_done(event)
    assert device.is_done(start)
    device.record(start, stream)
    device.record(end, 0)
    assert device.seconds(start, end) == 0.25e-3
    with pytest.raises(DeviceError):
        device.seconds(start, event)
    assert not device.is_capturing(stream)
    device.synchronize_stream(stream)
    device.synchronize()
    for made in (event, start, end):
        device.free_event(made)
    device.free_stream(stream)
    assert stub.stub_objects() == before


@needs_tools
def test_graphs(opened: PycudaDriver, device: PycudaDevice, stub: Any) -> None:
    gc.collect()  # what earlier tests left to it
    before = stub.stub_objects()
    replay_twice(opened, device)
    gc.collect()
    assert stub.stub_objects() == before


def replay_twice(opened: PycudaDriver, device: PycudaDevice) -> None:
    stream = device.new_stream()
    with use_driver(opened):
        mod = cuda_module(b"STUB", [(LAUNCH,)], AXPY, SM_90A, Origin("schedule"))
        x, y = DeviceArray.of(np.ones(N, np.float32)), DeviceArray.of(np.zeros(N, np.float32))

    def submit() -> None:
        assert device.is_capturing(stream)
        mod(x, y, 1.0, N, stream=stream)
        mod(x, y, 1.0, N, stream=stream)

    graph = device.capture(stream, submit)
    assert not y.numpy().any()
    device.replay(graph, stream)
    device.replay(graph, stream)
    assert (y.numpy() == 4).all()
    device.free_graph(graph)

    def fail() -> None:
        raise ArgumentError("no")

    with pytest.raises(ArgumentError):
        device.capture(stream, fail)
    assert not device.is_capturing(stream)
    with pytest.raises(DeviceError):
        device.capture(0, fail)
    device.free_stream(stream)


@needs_tools
def test_an_illegal_address_is_sticky(opened: PycudaDriver, stub: Any) -> None:
    launch = KernelLaunch("fault", (1, 1, 1), (1, 1, 1), ())
    with use_driver(opened):
        mod = cuda_module(b"STUB", [(launch,)], Signature("f", ()), SM_90A, Origin("schedule"))
    mod()
    for call in (mod, mod.synchronize, mod.bind()):
        with pytest.raises(DeviceError, match=r"CUDA_ERROR_ILLEGAL_ADDRESS \(700\)") as caught:
            call()
        assert caught.value.sticky


@needs_tools
def test_too_many_threads(device: PycudaDevice) -> None:
    function = device.function(device.load(b"STUB"), "wide")
    launch = KernelLaunch("wide", (1, 1, 1), (512, 1, 1), ())
    with pytest.raises(DeviceError):
        device.launcher([(function, launch)])(0, [(ctypes.c_void_p * 0)()], 0)


# What is missing


def module_of(**names: Any) -> dict[str, Any]:
    """Entries of `sys.modules` that make pycuda one with these names in its `driver`."""
    package, inner = ModuleType("pycuda"), ModuleType("pycuda.driver")
    inner.__dict__.update(names)
    package.driver = inner  # type: ignore[attr-defined]
    return {"pycuda": package, "pycuda.driver": inner}


def failing(text: str) -> Any:
    def fail() -> None:
        raise Cuda.Error(text)

    return fail


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (True, r"there is no pycuda.*\n  hint: pip install 'tilewright\[cuda\]'.*check"),
        (
            False,
            r"no driver .* \(libcuda.so.1 is missing\), and no pycuda\n.*the driver.*; pip inst",
        ),
    ],
)
def test_there_is_no_pycuda(monkeypatch: pytest.MonkeyPatch, found: bool, says: str) -> None:
    monkeypatch.setattr(sys, "path", [p for p in sys.path if not Path(p, "pycuda").exists()])
    monkeypatch.delitem(sys.modules, "pycuda", raising=False)
    monkeypatch.setattr(cuda_pycuda, "_has_library", lambda: found)
    with pytest.raises(TargetError, match=says):
        driver()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("libcuda.so.1: cannot open shared object file", "no driver of NVIDIA.*install the driver"),
        ("undefined symbol: cuGraphicsGL", "pycuda does not load: undefined.*build it for this"),
    ],
)
def test_pycuda_does_not_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    package = tmp_path / "pycuda"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "driver.py").write_text(f"raise ImportError({text!r}, name='pycuda._driver')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pycuda", raising=False)
    with pytest.raises(TargetError, match=f"(?s){says}"):
        driver()


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (
            {"init": failing("no CUDA-capable device"), "Error": Cuda.Error},
            "does not start: no CUDA-capable device\n.*nvidia-smi",
        ),
        (
            {
                "init": Cuda.init,
                "Error": Cuda.Error,
                "Device": SimpleNamespace(count=lambda: 0),
            },
            "no device of NVIDIA that this process may use\n.*CUDA_VISIBLE_DEVICES",
        ),
    ],
)
def test_there_is_no_device(
    monkeypatch: pytest.MonkeyPatch, names: dict[str, Any], says: str
) -> None:
    for name, module in module_of(**names).items():
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(TargetError, match=says):
        driver()


# pycuda itself

CODE = """
import numpy as np
from tilewright.runtime import Argument, Origin, Signature
from tilewright.runtime.cuda_driver import driver
from tilewright.runtime.cuda_launch import KernelLaunch
from tilewright.runtime.cuda_memory import DeviceArray
from tilewright.runtime.cuda_runtime import cuda_module
from tilewright.target import Target

print(*(f"{f.name} {f.arch} {f.sms} {f.pci_bus_id}" for f in driver().facts()), sep=", ")
x = Argument("X", "float32", (4,))
y = Argument("Y", "float32", (4,), role="inout")
a, n = Argument("a", "float32", kind="scalar"), Argument("n", "int32", kind="scalar")
launch = KernelLaunch("axpy", (1, 1, 1), (4, 1, 1), (0, 1, 2, 3))
target = Target.parse("cuda -arch=sm_90a")
mod = cuda_module(b"STUB", [(launch,)], Signature("f", (x, y, a, n)), target, Origin("schedule"))
given = [DeviceArray.of(np.full(4, v, np.float32)) for v in (2, 1)]
mod(*given, 3.0, 4)
print(given[1].numpy(), mod.device)
"""


@needs_tools
@pytest.mark.skipif(find_spec("pycuda") is None, reason="there is no pycuda")
@pytest.mark.parametrize("devices", [2, 0])
def test_pycuda_finds_the_devices(library: Path, devices: int) -> None:
    variables = {"LD_LIBRARY_PATH": str(library.parent), "STUB_DEVICES": str(devices)}
    run = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if devices:
        found = "Stub 0 sm_90 132 0000:01:00.0, Stub 1 sm_80 132 0000:02:00.0\n[7. 7. 7. 7.] 0\n"
        assert (run.stdout, run.stderr) == (found, "")
    else:
        assert "TargetError: the driver of NVIDIA's devices does not start" in run.stderr


def test_the_driver_of_a_machine_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Driver] = []

    def open_once() -> Driver:
        opened.append(object.__new__(PycudaDriver))
        return opened[-1]

    monkeypatch.setattr(cuda_pycuda, "open_driver", open_once)
    monkeypatch.setattr("tilewright.runtime.cuda_driver._driver", [])
    assert driver() is driver()
    assert len(opened) == 1
    assert open_driver is not open_once

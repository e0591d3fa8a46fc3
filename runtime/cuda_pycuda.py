"""The driver of this machine: the one file that knows pycuda and the driver's library.

pycuda starts the driver and describes the devices. Its contexts, allocations, streams and events
serve only the thread that made them, it launches on streams of its own alone, and its object of a
primary context is not released as one when it goes away. A module is called from any thread and on
streams of other libraries, so these are handles here, and functions of the same library are called
through ctypes.

Functions and numbers: CUDA Driver API, cuda.h of CUDA 11.8 to 13.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from typing import Any

import numpy as np

from ..base.errors import TargetError, TilewrightError
from .cuda_driver import (
    Device,
    DeviceFacts,
    Driver,
    Function,
    Launcher,
    Place,
    driver_error,
)
from .cuda_launch import KernelLaunch

LIBRARY = "libcuda.so.1"
_CHECK = (
    'without a device, name an architecture, "cuda -arch=sm_90a": tilewright check emulates and '
    "compiles for it, tilewright measure pack makes what another machine measures"
)
_INSTALL = f"pip install 'tilewright[cuda]' (pycuda is compiled, by the toolkit); {_CHECK}"
_P, _ADDRESS = c_void_p, c_uint64
# Handles are pointers; addresses of the device are integers of 64 bits.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuGetErrorName": (c_int, _P),
    "cuDeviceGet": (_P, c_int),
    "cuDevicePrimaryCtxRetain": (_P, c_int),
    "cuCtxGetDevice": (_P,),
    "cuCtxSetCurrent": (_P,),
    "cuCtxPushCurrent_v2": (_P,),
    "cuCtxPopCurrent_v2": (_P,),
    "cuCtxSynchronize": (),
    "cuMemAlloc_v2": (_P, c_size_t),
    "cuMemFree_v2": (_ADDRESS,),
    "cuMemGetInfo_v2": (_P, _P),
    "cuMemcpyHtoD_v2": (_ADDRESS, _P, c_size_t),
    "cuMemcpyDtoH_v2": (_P, _ADDRESS, c_size_t),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, c_size_t, _P),
    "cuMemsetD8Async": (_ADDRESS, c_ubyte, c_size_t, _P),
    "cuPointerGetAttribute": (_P, c_int, _ADDRESS),
    "cuModuleLoadData": (_P, _P),
    "cuModuleUnload": (_P,),
    "cuModuleGetFunction": (_P, _P, c_char_p),
    "cuFuncGetAttribute": (_P, c_int, _P),
    "cuFuncSetAttribute": (_P, c_int, c_int),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (_P, _P, c_int, c_size_t),
    "cuLaunchKernel": (_P, *(c_uint,) * 7, _P, _P, _P),
    "cuStreamCreate": (_P, c_uint),
    "cuStreamDestroy_v2": (_P,),
    "cuStreamSynchronize": (_P,),
    "cuStreamIsCapturing": (_P, _P),
    "cuStreamWaitEvent": (_P, _P, c_uint),
    "cuEventCreate": (_P, c_uint),
    "cuEventDestroy_v2": (_P,),
    "cuEventRecord": (_P, _P),
    "cuEventQuery": (_P,),
    "cuEventElapsedTime": (_P, _P, _P),
    "cuStreamBeginCapture_v2": (_P, c_int),
    "cuStreamEndCapture": (_P, _P),
    "cuGraphInstantiateWithFlags": (_P, _P, c_uint64),
    "cuGraphLaunch": (_P, _P),
    "cuGraphDestroy": (_P,),
    "cuGraphExecDestroy": (_P,),
}
_NOT_READY, _INVALID_VALUE = 600, 1
_STREAM_NON_BLOCKING, _EVENT_DISABLE_TIMING = 1, 2
_CAPTURE_RELAXED = 2  # the garbage collector may free memory meanwhile
_POINTER_CONTEXT, _POINTER_MEMORY_TYPE, _POINTER_ORDINAL = 1, 2, 9
_MEMORYTYPE_DEVICE = 2
_MAX_THREADS, _SHARED_BYTES, _LOCAL_BYTES, _REGISTERS, _MAX_DYNAMIC_SHARED = 0, 1, 3, 4, 8


def open_driver() -> Driver:
    """The driver of this machine. Raises `TargetError` where there is none, or no pycuda."""
    try:
        import pycuda.driver as cuda
    except ImportError as error:
        raise _missing(error) from error
    try:
        cuda.init()
        count = cuda.Device.count()
    except cuda.Error as error:
        raise TargetError(
            "the driver of NVIDIA's devices does not start: {0}",
            error,
            hint=f"nvidia-smi shows whether there is a device that this process may use; {_CHECK}",
        ) from error
    if not count:
        raise TargetError(
            "there is no device of NVIDIA that this process may use",
            hint=f"CUDA_VISIBLE_DEVICES may hide them; {_CHECK}",
        )
    return PycudaDriver(cuda, ctypes.CDLL(LIBRARY), ctypes.PyDLL(LIBRARY))


def _missing(error: ImportError) -> TargetError:
    no_pycuda = error.name == "pycuda"
    if LIBRARY in str(error) or (no_pycuda and not _has_library()):
        return TargetError(
            "there is no driver of NVIDIA's devices on this machine ({0} is missing){1}",
            LIBRARY,
            ", and no pycuda" if no_pycuda else "",
            hint="install the driver, or start the container with its devices; "
            f"{_INSTALL if no_pycuda else _CHECK}",
        )
    if no_pycuda:
        return TargetError(
            "there is no pycuda, which runs kernels on devices of NVIDIA", hint=_INSTALL
        )
    return TargetError(
        "pycuda does not load: {0}",
        error,
        hint="build it for this Python and this toolkit: pip install --no-binary pycuda pycuda",
    )


def _has_library() -> bool:
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


class PycudaDriver(Driver):
    """The devices that pycuda finds."""

    def __init__(self, cuda: Any, library: ctypes.CDLL, held: ctypes.PyDLL) -> None:
        """`held` is the library too; its functions are called without releasing the GIL."""
        self._cuda = cuda
        self.call = _Calls(library)
        self.current_context = held.cuCtxGetCurrent
        self.current_context.argtypes, self.current_context.restype = (_P,), c_int
        self._facts = [self._describe(n) for n in range(cuda.Device.count())]
        self._devices: dict[int, PycudaDevice] = {}

    def device(self, ordinal: int) -> PycudaDevice:
        if ordinal not in range(len(self._facts)):
            raise TargetError(
                "there is no device {0}: this process may use {1}",
                ordinal,
                ", ".join(f"{f.ordinal} ({f.name})" for f in self._facts),
                hint="CUDA_VISIBLE_DEVICES may hide it",
            )
        if ordinal not in self._devices:
            # Kept until the process ends: other libraries use the same one.
            handle, context = c_int(), c_void_p()
            self.call("cuDeviceGet", byref(handle), ordinal, doing="to find a device")
            self.call("cuDevicePrimaryCtxRetain", byref(context), handle, doing="its context")
            self._devices[ordinal] = PycudaDevice(self, self._facts[ordinal], context.value or 0)
        return self._devices[ordinal]

    def current(self) -> int:
        context, found = c_void_p(), c_int()
        if self.current_context(byref(context)) or not context.value:
            return 0
        self.call("cuCtxGetDevice", byref(found), doing="to name the device of a thread")
        return found.value

    def facts(self) -> list[DeviceFacts]:
        return list(self._facts)

    def _describe(self, ordinal: int) -> DeviceFacts:
        device, attribute = self._cuda.Device(ordinal), self._cuda.device_attribute
        version = self._cuda.get_driver_version()
        major, minor = device.compute_capability()

        def fact(name: str) -> int:
            return int(device.get_attribute(getattr(attribute, name)))

        return DeviceFacts(
            ordinal=ordinal,
            name=device.name(),
            capability=(major, minor),
            sms=fact("MULTIPROCESSOR_COUNT"),
            memory_bytes=device.total_memory(),
            l2_bytes=fact("L2_CACHE_SIZE"),
            shared_bytes=fact("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            sm_shared_bytes=fact("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
            block_registers=fact("MAX_REGISTERS_PER_BLOCK"),
            sm_registers=fact("MAX_REGISTERS_PER_MULTIPROCESSOR"),
            block_threads=fact("MAX_THREADS_PER_BLOCK"),
            sm_threads=fact("MAX_THREADS_PER_MULTIPROCESSOR"),
            pci_bus_id=device.pci_bus_id(),
            driver_version=(version // 1000, version % 1000 // 10),
        )


class _Calls:
    """The functions of the driver's library; a result other than 0 is raised.

    The arguments of an error say what was asked for, as those of `driver_error` do.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self.functions = {name: getattr(library, name) for name in FUNCTIONS}
        for name, function in self.functions.items():
            function.argtypes, function.restype = FUNCTIONS[name], c_int

    def __call__(self, name: str, *arguments: Any, doing: str) -> None:
        code = self.functions[name](*arguments)
        if code:
            raise self.error(code, doing)

    def error(self, code: int, doing: str, *details: Any) -> TilewrightError:
        name = c_char_p()
        self.functions["cuGetErrorName"](code, byref(name))
        text = (name.value or b"an unknown error").decode("ascii", "replace")
        return driver_error(code, f"{text} ({code})", doing, *details)


class PycudaDevice(Device):
    """A device by its primary context.

    A thread that uses no device has it as its current one from the first call on, as with CUDA's
    own runtime. Where another one is current, it is so again after each call.
    """

    def __init__(self, driver: PycudaDriver, facts: DeviceFacts, context: int) -> None:
        self.facts, self._driver, self._call = facts, driver, driver.call
        self._context, self._current = context, driver.current_context

    def _do(self, name: str, *arguments: Any, doing: str, details: tuple[Any, ...] = ()) -> None:
        """Call a function in the context, which nearly always is current."""
        here, function = c_void_p(), self._call.functions[name]
        if not self._current(byref(here)) and here.value == self._context:
            code = function(*arguments)
        else:
            with self._entered():
                code = function(*arguments)
        if code:
            raise self._call.error(code, doing, *details)

    @contextmanager
    def _entered(self) -> Iterator[_Calls]:
        call, here = self._call, c_void_p()
        if not self._current(byref(here)) and here.value is None:
            call("cuCtxSetCurrent", self._context, doing="to use its context")
            yield call
            return
        call("cuCtxPushCurrent_v2", self._context, doing="to use its context")
        try:
            yield call
        finally:
            call("cuCtxPopCurrent_v2", byref(here), doing="to leave its context")

    # Memory

    def allocate(self, size: int) -> int:
        found, details = c_uint64(), (size,)
        self._do(
            "cuMemAlloc_v2", byref(found), size, doing="to allocate {0} bytes", details=details
        )
        return found.value

    def free(self, address: int) -> None:
        self._do("cuMemFree_v2", address, doing="to free memory")

    def memory_info(self) -> tuple[int, int]:
        free, total = c_size_t(), c_size_t()
        self._do("cuMemGetInfo_v2", byref(free), byref(total), doing="to count its memory")
        return free.value, total.value

    def upload(self, address: int, source: np.ndarray[Any, Any]) -> None:
        data, size = source.ctypes.data, source.nbytes
        self._do("cuMemcpyHtoD_v2", address, data, size, doing="to copy to the device")

    def download(self, destination: np.ndarray[Any, Any], address: int) -> None:
        data, size = destination.ctypes.data, destination.nbytes
        self._do("cuMemcpyDtoH_v2", data, address, size, doing="to copy from the device")

    def copy(self, destination: int, source: int, size: int, stream: int) -> None:
        arguments = destination, source, size, stream
        self._do("cuMemcpyDtoDAsync_v2", *arguments, doing="to copy within the device")

    def fill(self, address: int, byte: int, size: int, stream: int) -> None:
        self._do("cuMemsetD8Async", address, byte, size, stream, doing="to fill memory")

    def place_of(self, address: int) -> Place | None:
        kind, ordinal, context = c_uint(), c_int(), c_void_p()
        with self._entered() as call:
            ask = call.functions["cuPointerGetAttribute"]
            code = ask(byref(kind), _POINTER_MEMORY_TYPE, address)
            if code == _INVALID_VALUE or (not code and kind.value != _MEMORYTYPE_DEVICE):
                return None
            code = code or ask(byref(ordinal), _POINTER_ORDINAL, address)
            if code:
                raise call.error(code, "to find memory")
            # Memory of pools has no context.
            code = ask(byref(context), _POINTER_CONTEXT, address)
        known = not code and context.value is not None and ordinal.value == self.facts.ordinal
        return Place(ordinal.value, primary=not known or context.value == self._context)

    # Code

    def load(self, image: bytes) -> int:
        module = c_void_p()
        self._do("cuModuleLoadData", byref(module), image, doing="to load code")
        return module.value or 0

    def unload(self, module: int) -> None:
        self._do("cuCtxSynchronize", doing="to wait before code is unloaded")
        self._do("cuModuleUnload", module, doing="to unload code")

    def function(self, module: int, symbol: str) -> Function:
        found, details = c_void_p(), (symbol,)
        arguments = byref(found), module, symbol.encode()
        self._do("cuModuleGetFunction", *arguments, doing="to find {0}", details=details)
        handle = found.value or 0
        return Function(
            handle,
            symbol,
            registers=self._attribute(handle, _REGISTERS),
            local_bytes=self._attribute(handle, _LOCAL_BYTES),
            shared_bytes=self._attribute(handle, _SHARED_BYTES),
            max_threads=self._attribute(handle, _MAX_THREADS),
        )

    def _attribute(self, function: int, number: int) -> int:
        value = c_int()
        self._do("cuFuncGetAttribute", byref(value), number, function, doing="to describe code")
        return value.value

    def allow_shared(self, function: Function, size: int) -> None:
        doing, details = "to give {0} {1} bytes of shared memory", (function.symbol, size)
        arguments = function.handle, _MAX_DYNAMIC_SHARED, size
        self._do("cuFuncSetAttribute", *arguments, doing=doing, details=details)

    def resident_blocks(self, function: Function, threads: int, shared_bytes: int) -> int:
        name, found = "cuOccupancyMaxActiveBlocksPerMultiprocessor", c_int()
        arguments = byref(found), function.handle, threads, shared_bytes
        self._do(name, *arguments, doing="to count blocks")
        return found.value

    def launcher(self, launches: Sequence[tuple[Function, KernelLaunch]]) -> Launcher:
        fixed = [(f.handle, *k.grid, *k.block, k.shared_bytes) for f, k in launches]
        functions, current, context = self._call.functions, self._current, self._context
        launch, wait = functions["cuLaunchKernel"], functions["cuStreamWaitEvent"]
        record = functions["cuEventRecord"]

        def submit(stream: int, parameters: Sequence[Any], event: int) -> None:
            code = wait(stream, event, 0) if event else 0
            if code:
                raise self._call.error(code, "to order a stream")
            for numbers, pointers in zip(fixed, parameters, strict=True):
                code = launch(*numbers, stream, pointers, None)
                if code:
                    symbol = launches[fixed.index(numbers)][1].symbol
                    raise self._call.error(code, "to launch {0}", symbol)
            code = record(event, stream) if event else 0
            if code:
                raise self._call.error(code, "to record an event")

        def start(stream: int, parameters: Sequence[Any], event: int) -> None:
            here = c_void_p()
            if not current(byref(here)) and here.value == context:
                submit(stream, parameters, event)
                return
            with self._entered():
                submit(stream, parameters, event)

        return start

    # Streams, events and graphs

    def new_stream(self) -> int:
        return self._made("cuStreamCreate", _STREAM_NON_BLOCKING, doing="to make a stream")

    def free_stream(self, stream: int) -> None:
        self._do("cuStreamDestroy_v2", stream, doing="to free a stream")

    def synchronize_stream(self, stream: int) -> None:
        self._do("cuStreamSynchronize", stream, doing="to wait for a stream")

    def is_capturing(self, stream: int) -> bool:
        status = c_int()
        self._do("cuStreamIsCapturing", stream, byref(status), doing="to describe a stream")
        return status.value != 0

    def new_event(self, *, timed: bool = False) -> int:
        flags = 0 if timed else _EVENT_DISABLE_TIMING
        return self._made("cuEventCreate", flags, doing="to make an event")

    def free_event(self, event: int) -> None:
        self._do("cuEventDestroy_v2", event, doing="to free an event")

    def record(self, event: int, stream: int) -> None:
        self._do("cuEventRecord", event, stream, doing="to record an event")

    def wait(self, stream: int, event: int) -> None:
        self._do("cuStreamWaitEvent", stream, event, 0, doing="to order a stream")

    def is_done(self, event: int) -> bool:
        with self._entered() as call:
            code = call.functions["cuEventQuery"](event)
        if code not in (0, _NOT_READY):
            raise call.error(code, "to ask for an event")
        return bool(code == 0)

    def seconds(self, start: int, end: int) -> float:
        milliseconds = c_float()
        self._do("cuEventElapsedTime", byref(milliseconds), start, end, doing="to read a time")
        return milliseconds.value * 1e-3

    def synchronize(self) -> None:
        self._do("cuCtxSynchronize", doing="to wait for all work")

    def capture(self, stream: int, submit: Callable[[], object]) -> int:
        graph, executable = c_void_p(), c_void_p()
        doing = "to make a graph"
        with self._entered() as call:
            call("cuStreamBeginCapture_v2", stream, _CAPTURE_RELAXED, doing=doing)
            try:
                try:
                    submit()
                finally:
                    code = call.functions["cuStreamEndCapture"](stream, byref(graph))
                if code:
                    raise call.error(code, doing)
                call("cuGraphInstantiateWithFlags", byref(executable), graph, 0, doing=doing)
            finally:
                if graph.value:
                    call("cuGraphDestroy", graph, doing=doing)
        return executable.value or 0

    def replay(self, graph: int, stream: int) -> None:
        self._do("cuGraphLaunch", graph, stream, doing="to launch a graph")

    def free_graph(self, graph: int) -> None:
        self._do("cuGraphExecDestroy", graph, doing="to free a graph")

    def _made(self, name: str, flags: int, *, doing: str) -> int:
        handle = c_void_p()
        self._do(name, byref(handle), flags, doing=doing)
        return handle.value or 0

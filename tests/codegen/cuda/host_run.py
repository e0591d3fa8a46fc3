"""Run the text of kernels on the processor: what the compiler for GPUs reads means what it says.

Threads of a block run in turn, up to their next barrier, in different orders. The host's compiler
reads the text, with the toolkit's own headers of narrow floats.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.errors import BuildError
from tilewright.codegen.build import compiled_signature
from tilewright.codegen.cuda.kernels import Emitted, emit
from tilewright.codegen.cuda.nvcc import nvcc
from tilewright.codegen.generator import Part
from tilewright.codegen.lower import lower
from tilewright.target import CudaTarget
from tilewright.tir.ir import Buffer, Func

TARGET = CudaTarget.named("sm_90a")
SHIM = Path(__file__).parent / "host_threads.h"
STRIDES = (1, 7)
"""Orders of the threads of a block: each so many after the one before."""
POISON = 0xFF
CHANGED: dict[str, str] = {}
"""What is put in place of parts of the text."""
_FLAGS = ("-O1", "-std=c++17", "-w", "-fwrapv", "-ffp-contract=off", "-shared", "-fPIC")


@cache
def toolkit() -> Path:
    """The folder of the toolkit's headers; skips the test where there is none, or no g++."""
    try:
        command = [nvcc(), "--dryrun", "-E", "-x", "cu", "/dev/null"]
    except BuildError as error:
        pytest.skip(str(error))
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    top = re.search(r"^#\$ TOP=(.*)$", said, re.MULTILINE)
    include = Path(top[1] if top else "/usr/local/cuda", "include")
    if shutil.which("g++") is None or not (include / "cuda_runtime.h").exists():
        pytest.skip("the text of kernels runs here by g++ with the headers of the CUDA toolkit")
    return include


def emitted(func: Func, target: CudaTarget = TARGET, *, strict_fp: bool = False) -> Emitted:
    """The text of a scheduled program."""
    signature = compiled_signature(func, target)
    part = Part(lower(func, target, strict_fp=strict_fp), signature)
    return emit([part], target, strict_fp=strict_fp)


def run_text(func: Func, folder: Path, *arguments: Any) -> None:
    """Run a scheduled program's text on arrays and numbers; outputs are written in place.

    Each order of threads has to give the same bits.
    """
    text = emitted(func)
    (entry,) = text.entry_points
    library = _library(text, folder)
    results = [_run(library, entry, func, arguments, stride) for stride in STRIDES]
    for first, *others in zip(*results, strict=True):
        for other in others:
            np.testing.assert_array_equal(first.view(np.uint8), other.view(np.uint8))
    for array, result in zip(arguments, results[0], strict=True):
        if isinstance(array, np.ndarray):
            array[...] = result.reshape(array.shape)


def _library(text: Emitted, folder: Path) -> ctypes.CDLL:
    calls = [
        f'extern "C" void call_{k.symbol}(void** a) {{ host::invoke({k.symbol}, a); }}'
        for entry in text.entry_points
        for k in entry.kernels
    ]
    number = len(list(folder.glob("*.cpp")))  # a path is loaded once
    source, library = folder / f"kernel{number}.cpp", folder / f"kernel{number}.so"
    kernels = text.text
    for old, new in CHANGED.items():
        kernels = kernels.replace(old, new)
    source.write_text("\n".join([f'#include "{_headers(folder.parent)}"', kernels, *calls, ""]))
    _compile(source, library)
    return ctypes.CDLL(str(library))


@cache
def _headers(folder: Path) -> Path:
    """A copy of the shim beside its compiled form, which the compiler takes."""
    header = folder / SHIM.name
    shutil.copy(SHIM, header)
    _compile(header, header.with_name(f"{header.name}.gch"), "-x", "c++-header")
    return header


def _compile(source: Path, output: Path, *options: str) -> None:
    command = ["g++", *_FLAGS, f"-I{toolkit()}", *options, "-o", str(output), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:] + source.read_text()


def _run(
    library: ctypes.CDLL, entry: Any, func: Func, arguments: Any, stride: int
) -> list[np.ndarray[Any, Any]]:
    """Copies of the arguments after a run."""
    copies = list[np.ndarray[Any, Any]]()
    for p, a in zip(func.params, arguments, strict=True):
        if isinstance(p, Buffer):
            copies.append(np.ascontiguousarray(a).copy().reshape(-1))
        else:
            copies.append(np.array([a], dtypes.to_numpy(p.dtype)))
    workspace = np.full(entry.workspace_bytes + 16, POISON, np.uint8)
    places = [*(c.ctypes.data for c in copies), workspace.ctypes.data]
    for k in entry.kernels:
        slots = list[Any]()
        for n in k.arguments:
            scalar = n < len(func.params) and not isinstance(func.params[n], Buffer)
            slots.append(copies[n].ctypes.data if scalar else _slot(places[n]))
        keep = [s for s in slots if not isinstance(s, int)]
        addresses = [s if isinstance(s, int) else ctypes.addressof(s) for s in slots]
        pointers = (ctypes.c_void_p * max(len(slots), 1))(*addresses)
        grid, block = (ctypes.c_uint * 3)(*k.grid), (ctypes.c_uint * 3)(*k.block)
        function = getattr(library, f"call_{k.symbol}")
        right = library.launch(function, pointers, grid, block, stride) == 0
        assert right, "a barrier or a shuffle diverges"
        del keep
    return copies


def _slot(address: int) -> Any:
    return ctypes.c_void_p(address)

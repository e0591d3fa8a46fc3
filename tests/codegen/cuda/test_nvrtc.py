"""NVRTC in place of nvcc: where it is looked for, what it is asked, and what it makes."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import pytest

from tilewright.base.errors import BuildError
from tilewright.codegen.build import compile_func
from tilewright.codegen.cache import _compiler, key
from tilewright.codegen.cuda import generator, nvcc, nvrtc
from tilewright.codegen.cuda.generator import CudaGenerator, kernels_of
from tilewright.target import CudaTarget

from . import schedules

TARGET = CudaTarget.named("sm_90a")
LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'f' for 'sm_90a'
ptxas info    : Function properties for f
ptxas         .     0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
"""
WARNING = "kernel.cu(2): warning #63-D: shift count is too large\n"


class Library:
    """An NVRTC that notes its options; `log` is what it says."""

    def __init__(self, log: str = LOG, status: int = 0) -> None:
        self.log, self.status = log.encode() + b"\0", status
        self.options: list[str] = []
        self.open = 0

    def nvrtcVersion(self, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = 13, 1
        return 0

    def nvrtcCreateProgram(self, program: Any, text: bytes, *_: object) -> int:
        program._obj.value, self.text = 7, text
        self.open += 1
        return 0

    def nvrtcDestroyProgram(self, program: Any) -> int:
        self.open -= 1
        return 0

    def nvrtcCompileProgram(self, _: object, count: int, options: Any) -> int:
        self.options = [option.decode() for option in options[:count]]
        return self.status

    def __getattr__(self, name: str) -> Callable[..., int]:
        content = {"ProgramLog": self.log, "CUBIN": b"\x7fELF..", "PTX": b".version 9\0"}
        wanted = content[name.removeprefix("nvrtcGet").removesuffix("Size")]

        def size(_: object, result: Any) -> int:
            result._obj.value = len(wanted)
            return 0

        def get(_: object, memory: Any) -> int:
            ctypes.memmove(memory, wanted, len(wanted))
            return 0

        return size if name.endswith("Size") else get


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    monkeypatch.setattr(nvrtc, "_library", lambda: found)
    monkeypatch.setattr(nvrtc, "_include_folders", list)
    return found


def no_nvcc() -> str:
    raise BuildError("there is no nvcc", hint="install the toolkit")


def test_what_it_is_asked(library: Library) -> None:
    cubin = nvrtc.compile_cubin("code", TARGET, strict_fp=True)
    assert cubin.image == b"\x7fELF.."
    assert [k.spill_load_bytes for k in cubin.resources.values()] == [8]
    flags = ["--std=c++17", "--diag-suppress=177,186,550", "--ptxas-options=-v"]
    assert library.options == ["--gpu-architecture=sm_90a", *flags, "--fmad=false"]
    assert nvrtc.compile_ptx("code", TARGET) == ".version 9"
    assert library.options == ["--gpu-architecture=compute_90a", *flags]
    nvrtc.compile_ptx("code", TARGET, lines=True)
    assert library.options[-1] == "--generate-line-info"
    assert library.open == 0


def test_warnings_and_refusals_are_errors(library: Library) -> None:
    library.log = WARNING.encode() + library.log
    with pytest.raises(BuildError):
        nvrtc.compile_cubin("code", TARGET)
    library.log, library.status = b'could not open source file "cuda_fp16.h"\0', 6
    with pytest.raises(BuildError) as error:
        nvrtc.compile_cubin("code", TARGET)
    assert "nvidia-cuda-runtime" in str(error.value)
    assert library.open == 0


def test_it_is_taken_where_nvcc_is_missing(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    func = schedules.elementwise(16)
    monkeypatch.setattr(nvcc, "nvcc", lambda: "/usr/bin/nvcc")
    monkeypatch.setattr(nvcc, "version", lambda: "13.1.80")
    _compiler.cache_clear()
    name = key(func, TARGET, strict_fp=False)
    monkeypatch.setattr(nvcc, "nvcc", no_nvcc)
    _compiler.cache_clear()
    assert generator.versions() == {"nvrtc": "13.1"}
    tools = CudaGenerator().tools()
    assert (tools.generation, tools.versions) == ("ptxas 13.1", {"nvrtc": "13.1"})
    assert key(func, TARGET, strict_fp=False) != name
    _compiler.cache_clear()


def test_without_either_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "nvcc", no_nvcc)
    monkeypatch.setattr(nvrtc, "_load", lambda _: None)
    with pytest.raises(BuildError) as error:
        compile_func(schedules.elementwise(16), TARGET)
    assert "install the toolkit; or NVRTC: pip install nvidia-cuda-nvrtc" in str(error.value)


@pytest.mark.parametrize("name", ["elementwise", "matmul", "softmax", "transpose"])
def test_kernels_compile(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not nvrtc.is_there():
        pytest.skip("no NVRTC on this machine")
    monkeypatch.setattr(nvcc, "nvcc", no_nvcc)
    func = {
        "elementwise": lambda: schedules.elementwise(4099, "bfloat16", lanes=8),
        "matmul": lambda: schedules.matmul(65, 31, 19),
        "softmax": lambda: schedules.softmax(6, 100),
        "transpose": lambda: schedules.transpose(45, 70),
    }[name]()
    found = compile_func(func, TARGET)
    CudaGenerator().check(found)
    for kernel in (k for kernels in kernels_of(found) for k in kernels):
        assert kernel.resources is not None
        assert kernel.resources.registers > 0
    assert ".target sm_90a" in found.source("ptx")


def test_the_lines_of_ptx_are_those_of_the_text() -> None:
    """What the double takes for granted, of a real library: PTX says where its lines come from."""
    if not nvrtc.is_there():
        pytest.skip("no NVRTC on this machine")
    text = """\
extern "C" __global__ void f(float* a, int n) {
  for (int i = 0; i < n; ++i)
    a[i] = a[i] * 2.0f;
}
"""
    located = nvrtc.compile_ptx(text, TARGET, lines=True)
    assert "kernel.cu" in located
    assert {2, 3} <= {int(line) for line in re.findall(r"\.loc\s+\d+\s+(\d+)", located)}
    plain = nvrtc.compile_ptx(text, TARGET)
    assert ".loc" not in plain
    assert _instructions(located) == _instructions(plain)


def _instructions(ptx: str) -> list[str]:
    """The instructions of PTX, without what only says where they come from."""
    lines = (line.split("//")[0].strip() for line in ptx.splitlines())
    return [line for line in lines if line.endswith(";") and not line.startswith((".", "@"))]


def test_what_it_refuses_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    if not nvrtc.is_there():
        pytest.skip("no NVRTC on this machine")
    with pytest.raises(BuildError, match=r"(?s)NVRTC refuses the kernel for cuda -arch=sm_90a.*x"):
        nvrtc.compile_cubin('extern "C" __global__ void f() { x = 1; }', TARGET)
    with pytest.raises(BuildError, match="shift count is too large"):
        nvrtc.compile_cubin('extern "C" __global__ void f(int* a) { *a = 1 << 40; }', TARGET)

"""Builds for GPUs: texts, cubins, artifacts, limits, and what is missing on a machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tilewright import ops
from tilewright.base.errors import ArtifactError, BuildError, TargetError
from tilewright.base.files import replace_files
from tilewright.building.build import build, build_library
from tilewright.codegen.build import compile_func, compiled_signature
from tilewright.codegen.cache import decode, encode
from tilewright.codegen.compiled import Compiled
from tilewright.codegen.cuda import generator, nvrtc
from tilewright.codegen.cuda import nvcc as nvcc_module
from tilewright.codegen.cuda.generator import CudaGenerator, kernels_of
from tilewright.codegen.cuda.kernels import Emitted, emit
from tilewright.codegen.cuda.nvcc import compile_cubin, nvcc, resources_of, version
from tilewright.codegen.generator import Part, generator_for
from tilewright.codegen.lower import lower
from tilewright.runtime import cuda_driver, cuda_pycuda
from tilewright.runtime.artifact import read_artifact
from tilewright.runtime.cuda_driver import Driver, use_driver
from tilewright.runtime.cuda_launch import KernelResources
from tilewright.runtime.manifest import Provenance
from tilewright.runtime.module import Origin
from tilewright.target import CudaTarget
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tuning_db import TuningDatabase

from ...runtime.cuda_double import DoubleDriver
from . import schedules
from .host_run import emitted
from .test_text import GROUPS, SCHEDULED, functions, program

GOLDENS = Path(__file__).parent / "goldens"
TARGET = CudaTarget.named("sm_90a")
ARCHS = ("sm_80", "sm_90a")


@pytest.fixture
def compiler() -> str:
    try:
        return nvcc()
    except BuildError as error:
        pytest.skip(str(error))


@cache
def compiled() -> Compiled:
    return compile_func(schedules.matmul(65, 31, 19), TARGET)


KERNELS = {
    "matmul": lambda: schedules.matmul(128, 96, 64, lanes=4),
    "matmul_odd": lambda: schedules.matmul(65, 31, 19),
    "transpose": lambda: schedules.transpose(45, 70),
    "elementwise": lambda: schedules.elementwise(4099, "bfloat16", lanes=8),
    "softmax_by_warps": lambda: schedules.softmax(6, 100),
    "softmax_by_blocks": lambda: schedules.softmax(3, 500, rows=1, threads=128),
    "sum_in_two_launches": lambda: schedules.sum_in_two_launches(5, 1000),
    "conv": lambda: schedules.conv(1, 3, 9, 4, 16),
}


@pytest.mark.parametrize("name", KERNELS)
def test_golden_text(name: str, request: pytest.FixtureRequest) -> None:
    text = emitted(KERNELS[name]()).text
    path = GOLDENS / f"{name}.cu"
    if request.config.getoption("--update"):
        path.write_text(text)
    assert path.read_text() == text


def test_each_golden_text_has_its_program() -> None:
    assert {path.stem for path in GOLDENS.glob("*.cu")} == set(KERNELS)


def together(funcs: dict[str, Func], target: CudaTarget) -> Emitted:
    """The text of several functions."""
    parts = list[Part]()
    for n, func in enumerate(funcs.values()):
        named = replace(func, name=f"f{n}")
        parts.append(Part(lower(named, target), compiled_signature(named, target)))
    return emit(parts, target, strict_fp=False)


@pytest.mark.part(1)
@pytest.mark.parametrize("arch", ARCHS)
def test_schedules_compile_without_spills(arch: str, compiler: str) -> None:
    target = CudaTarget.named(arch)
    text = together({name: make() for name, make in SCHEDULED.items()}, target)
    found = compile_cubin(text.text, target).resources
    assert set(found) == {k.symbol for entry in text.entry_points for k in entry.kernels}
    for symbol, resources in found.items():
        spilled = resources.spill_store_bytes, resources.spill_load_bytes, resources.stack_bytes
        assert spilled == (0, 0, 0), symbol


@pytest.mark.parametrize("arch", ARCHS)
def test_all_expressions_compile_without_warnings(arch: str, compiler: str) -> None:
    target = CudaTarget.named(arch)
    programs = {group: program(group)[0] for group in GROUPS} | {"functions": functions()[0]}
    compile_cubin(together(programs, target).text, target)


UNUSED = """
@tw.script
def f(A: T.Buffer((8,), "uint8"), C: T.Buffer((8,), "uint8")):
    R = T.alloc((8,), "uint8", scope="local")
    for t in T.thread("threadIdx.x", 8):
        x = A[t] + A[7 - t]
        R[t] = A[t]
        C[t] = T.select(A[t] >= 0, A[t], 1)
"""


def test_variables_that_nothing_reads_and_conditions_that_always_hold_compile(
    compiler: str,
) -> None:
    compile_cubin(together({"f": parse(UNUSED)}, TARGET).text, TARGET)


def test_compiled_code_has_the_launches_of_its_kernels(compiler: str) -> None:
    ((kernel,),) = kernels_of(compiled())
    assert (kernel.symbol, kernel.grid, kernel.block) == ("matmul_kernel", (3, 1, 1), (64, 1, 1))
    assert (kernel.arguments, kernel.shared_bytes) == ((0, 1, 2), 2144)
    assert kernel.resources is not None
    assert 16 <= kernel.resources.registers <= 128
    generator = generator_for(TARGET)
    generator.check(compiled())
    assert ".target sm_90a" in compiled().source("ptx")
    assert compiled().source("cuda") == compiled().text
    assert 'T.barrier("block")' in compiled().source("tir")


def test_images_are_checked(compiler: str) -> None:
    generator = generator_for(TARGET)
    with pytest.raises(ArtifactError, match="no cubin"):
        generator.check(replace(compiled(), image=b"!<arch>"))
    image = compiled().image.replace(b"matmul_kernel", b"matmul_kernal")
    with pytest.raises(ArtifactError):
        generator.check(replace(compiled(), image=image))


def test_workspaces_hold_what_passes_from_launch_to_launch(compiler: str) -> None:
    func = schedules.sum_in_two_launches(5, 1000)
    found = compile_func(func, TARGET)
    ((first, second),) = kernels_of(found)
    assert found.signature.workspace_bytes == 256
    assert (first.arguments, second.arguments) == ((0, 2), (1, 2))
    assert (first.grid, second.grid) == ((4, 5, 1), (1, 1, 1))


def test_strict_code_fuses_nothing(compiler: str) -> None:
    func = schedules.matmul(32, 32, 8)
    fused = compile_func(func, TARGET)
    signature = compiled_signature(func, TARGET)
    strict = decode(encode(compile_func(func, TARGET, strict_fp=True)), signature, TARGET)
    assert fused.image != strict.image
    assert "fma.rn.f32" in fused.source("ptx")
    assert "fma.rn.f32" not in strict.source("ptx")


def test_artifacts_are_a_cubin_and_a_manifest(compiler: str, tmp_path: Path) -> None:
    generator = CudaGenerator()
    content = [(compiled(), Provenance(Origin("schedule")))]
    path = tmp_path / "matmul.cubin"
    replace_files(generator.files(content, path, {"nvcc": version()}, intermediate=False))
    manifest, code = read_artifact(path)
    assert code.startswith(compiled().image)
    assert str(manifest.target) == "cuda -arch=sm_90a"
    with pytest.raises(BuildError):
        generator.check_files(tmp_path / "matmul.so", TARGET, intermediate=False)
    with pytest.raises(BuildError):
        generator.check_files(path, TARGET, intermediate=True)
    with pytest.raises(BuildError):
        generator.check_files(path, TARGET, intermediate=False, linker="ld")


def test_what_the_compiler_refuses_is_shown(compiler: str) -> None:
    with pytest.raises(BuildError, match=r"(?s)nvcc refuses the kernel for cuda -arch=sm_90a.*x"):
        compile_cubin('extern "C" __global__ void f() { x = 1; }', TARGET)
    with pytest.raises(BuildError, match="shift count is too large"):
        compile_cubin('extern "C" __global__ void f(int* a) { *a = *a << 40; }', TARGET)


def test_without_a_compiler_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    monkeypatch.setattr(nvrtc, "_load", lambda _: None)
    with pytest.raises(BuildError, match="neither nvcc nor NVRTC on this machine") as error:
        compile_func(schedules.elementwise(16), TARGET)
    assert "install the CUDA toolkit" in str(error.value)


REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_90a'
ptxas info    : Function properties for one
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 8 bytes cumulative stack size, 4096 bytes smem
ptxas info    : Compiling entry function 'two' for 'sm_90a'
ptxas info    : Function properties for two
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
"""


def test_reports_of_ptxas_are_read() -> None:
    assert resources_of(REPORT) == {
        "one": KernelResources(255, 8, 12, 16, 4096),
        "two": KernelResources(10),
    }
    with pytest.raises(BuildError):
        resources_of(REPORT.replace("registers", "things"))


def refused(func: Func, *words: str, arch: str = "sm_90a") -> None:
    with pytest.raises(BuildError) as error:
        emitted(func, CudaTarget.named(arch))
    assert [word for word in words if word not in str(error.value)] == [], str(error.value)


def test_launches_beyond_the_limits_are_refused() -> None:
    refused(schedules.elementwise(1 << 20, threads=2048), "2048 threads in a block", "allows 1024")
    tall = schedules.transpose(32 * 65536, 32)
    refused(
        tall, "65536 iterations along blockIdx.y", "allows 65535", "bind the loop to blockIdx.x"
    )


def test_shared_memory_beyond_the_limit_is_refused() -> None:
    func = schedules.matmul(32, 32, 4000, step=1000)
    refused(func, "256000 bytes of shared memory", "allows 232448", "smaller tiles")
    smaller = schedules.matmul(32, 32, 4000, step=500)
    emitted(smaller)
    refused(smaller, "128000 bytes of shared memory", "allows 101376", arch="sm_86")


def test_the_device_is_asked_where_no_architecture_is_named() -> None:
    with pytest.raises(TargetError) as error:
        compile_func(schedules.elementwise(16), "cuda")
    assert error.value.hint is not None


def test_nothing_on_the_way_imports_llvm() -> None:
    code = """
import sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        assert not name.startswith("llvmlite"), "llvmlite is imported"
sys.meta_path.insert(0, Refused())
import tilewright as tw
from tilewright import ops
from tilewright.schedule import Schedule
from tilewright.codegen.build import compiled_signature
from tilewright.codegen.generator import Part, generator_for
from tilewright.codegen.lower import lower
sch = Schedule(ops.add_relu_func(64))
sch.bind(sch.get_loops(sch.get_block("C"))[0], "threadIdx.x")
target = tw.Target.parse("cuda -arch=sm_90a")
part = Part(lower(sch.func, target), compiled_signature(sch.func, target))
emitted = generator_for(target).emit([part], target, strict_fp=False)
print(emitted.text)
from tilewright.runtime.cuda_runtime import cuda_module
assert not any(name.startswith("llvmlite") for name in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "add_relu_kernel" in done.stdout


def test_libraries_are_built_where_there_is_no_device(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the estimate, or by what is recorded; nothing that this machine times belongs to them."""
    del compiler

    def none() -> CudaTarget:
        raise TargetError("there is no device")

    monkeypatch.setattr(generator, "host_target", none)
    program = ops.add_relu_func(4099)
    with TuningDatabase(tmp_path / "tuning.db") as db:
        library = build_library(program, tmp_path / "f.cubin", str(TARGET), db)
    assert library.origin.kind == "model"
    manifest, _ = read_artifact(tmp_path / "f.cubin")
    assert manifest.target == TARGET
    assert CudaGenerator().timed_on(TARGET) is TARGET


def test_modules_for_no_device_are_loaded_when_they_are_called(
    compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del compiler

    def none() -> Driver:
        raise TargetError("there is no driver", hint="install it")

    monkeypatch.setattr(cuda_driver, "_driver", [])
    monkeypatch.setattr(cuda_pycuda, "open_driver", none)
    with pytest.raises(TargetError, match=r"there is no driver\n  hint: install it$"):
        build(ops.add_relu_func(4099), "cuda")  # the device is asked for
    mod = build(ops.add_relu_func(4099), str(TARGET))
    assert "add_relu_kernel" in mod.source("cuda")
    assert ".entry add_relu_kernel" in mod.source("ptx")
    (taken,) = mod.resources.values()
    assert taken["registers"] > 0
    assert 0 < taken["occupancy"] <= 1
    a = np.zeros(4099, np.float32)
    asks: list[Callable[[], object]] = [
        lambda: mod(a, a, a),
        lambda: mod.bind(a, a, a),
        lambda: mod.time(a, a, a),
        lambda: mod.device,
        mod.synchronize,
    ]
    for ask in asks:
        with pytest.raises(TargetError) as error:
            ask()
        assert str(error.value) == (
            f"add_relu is compiled for {TARGET}, and does not load here: there is no driver\n"
            "  hint: tw.build_library writes it to a file for a machine with such a device; "
            "install it"
        )


def test_modules_for_another_device_than_that_which_is_here_are_refused(compiler: str) -> None:
    del compiler
    with (
        use_driver(DoubleDriver()),
        pytest.raises(TargetError) as error,
    ):
        build(ops.add_relu_func(4099), "cuda -arch=sm_80")
    assert error.value.hint == "build it for this device: cuda -arch=sm_90"


def test_what_a_compiler_says_may_be_in_any_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    wrong = folder / "nvcc"
    wrong.write_text("#!/bin/sh\nprintf 'release V1.2, \\351\\n'\nprintf '\\351\\377' >&2\n")
    wrong.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert version() == "1.2"
    with pytest.raises(BuildError, match="nvcc refuses the kernel"):
        compile_cubin("", TARGET)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"NVCC_APPEND_FLAGS": "--no-such"}, "unset NVCC_APPEND_FLAGS"),
        ({"NVCC_APPEND_FLAGS": "", "NVCC_PREPEND_FLAGS": "--no-such"}, "unset NVCC_PREPEND_FLAGS"),
    ],
)
def test_a_refusal_names_the_variables_that_change_nvcc(
    variables: dict[str, str], said: str, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del compiler
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BuildError, match=said):
        compile_cubin("", TARGET)


def test_a_refusal_says_that_the_host_compiler_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = tmp_path / "bin" / "nvcc"
    wrong.parent.mkdir()
    wrong.write_text("#!/bin/sh\nexit 1\n")
    wrong.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="install g"):
        compile_cubin("", TARGET)


def test_a_compiler_that_makes_no_code_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _nvcc(tmp_path, "echo release V1.2, ; : > kernel.cubin")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(BuildError):
        compile_func(schedules.matmul(32, 32, 8), TARGET)


@pytest.mark.parametrize("interrupted", [True, False])
def test_what_nvcc_has_started_ends_with_the_call(
    interrupted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = tmp_path / "ids"
    _nvcc(tmp_path, f"sh -c 'echo $$ > {ids}; sleep 300; true' & wait")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    if interrupted:
        alarm = signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 1)
        try:
            with pytest.raises(KeyboardInterrupt):
                compile_cubin("", TARGET)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, alarm)
    else:
        monkeypatch.setattr(nvcc_module, "_SECONDS", 1)
        with pytest.raises(BuildError):
            compile_cubin("", TARGET)
    child = Path("/proc", ids.read_text().strip(), "stat")
    deadline = time.monotonic() + 30
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _nvcc(home: Path, script: str) -> None:
    """A program in the place of nvcc."""
    path = home / "bin" / "nvcc"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)

"""A machine that is taken for a lesser one runs no instruction that the lesser one lacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tilewright import ops
from tilewright.autotune.search.unmeasured import default_trace
from tilewright.codegen.build import compile_func
from tilewright.codegen.cpu.detection import host_target
from tilewright.runtime.host import HOST
from tilewright.target import CpuTarget
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

from ..instructions import Assembler, beyond, widest
from ..long import first_of

BUILDS = """
import json, sys
import numpy as np
import llvmlite.binding as llvm
import tilewright as tw
from tilewright import ops
from tilewright.codegen.cpu.detection import host_target
from tilewright.base.errors import TargetError

try:
    host_target()
except TargetError as error:
    print(json.dumps({"refused": str(error)}))
    sys.exit()

texts = {}
emit = llvm.TargetMachine.emit_object

def seen(machine, module):  # of kernels, and of call glue
    texts[f"emitted {len(texts)}"] = machine.emit_assembly(module)
    return emit(machine, module)

llvm.TargetMachine.emit_object = seen
arrays = {"float32": np.float32, "int8": np.int8, "uint8": np.uint8, "int32": np.int32}
for func in (
    ops.matmul_func(17, 50, 9, bias=True, epilogue="relu"),
    ops.int8_matmul_func(10, 48, 16),
    ops.softmax_func(5, 37),
    ops.conv2d_func(c=4, h=8, w=9, o=16),
):
    for how, module in (("build", tw.build(func)), ("schedule", tw.build(tw.Schedule(func)))):
        texts[f"{how} {func.name}"] = module.source("asm")
        module(*(np.zeros(a.shape, arrays[a.dtype]) for a in module.signature.arguments))
print(json.dumps(texts))
"""
"""A script that builds and calls without naming a target, and prints the assembly of all code."""


@pytest.mark.skipif(host_target().arch != "x86_64", reason="these processors are x86-64")
@pytest.mark.parametrize(
    "name", first_of(["x86-64-v2", "x86-64-v3", "haswell", "x86-64-v4", "cascadelake"], 2)
)
def test_code_keeps_to_the_processor_that_the_machine_is_taken_for(name: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", BUILDS],
        env={**os.environ, HOST: f"-mcpu={name}"},
        capture_output=True,
        text=True,
        check=True,
    )
    texts = json.loads(run.stdout)
    target = CpuTarget.named(name, threads=2)
    if "refused" in texts:
        assert "does not have" in texts.pop("refused")
        for func in (
            ops.matmul_func(17, 50, 9, bias=True, epilogue="relu"),
            ops.int8_matmul_func(10, 48, 16),
            ops.softmax_func(5, 37),
        ):
            scheduled = default_trace(func, target).apply(func).func
            texts[f"default {func.name}"] = compile_func(scheduled, target).source("asm")
    else:
        assert {text.split()[0] for text in texts} == {"build", "schedule", "emitted"}
    assembler = Assembler(target)
    for what, text in texts.items():
        assert beyond(text, target) == [], what
        if assembler.present:
            assert assembler.refused(text) == [], what
    vectors = [widest(text) for what, text in texts.items() if not what.startswith("emitted")]
    assert max(vectors) == target.vector_bits


@pytest.mark.parametrize(
    "text", ["generic", "neoverse-n1", "neoverse-v1", "neoverse-v1 -mattr=-sve"]
)
def test_code_for_arm_keeps_to_its_features(text: str) -> None:
    """Masks are what SVE has instructions for."""
    target = CpuTarget.parse(f"cpu -mcpu={text} -threads=1")
    code = compile_func(masked(), target).source("asm")
    assert beyond(code, target) == []
    assert bool(beyond(code, CpuTarget.named("generic"))) is ("sve" in target.features)


def masked() -> Func:
    """Elements of a vector that a mask in memory names."""
    return parse("""
def f(X: T.Buffer((4,), "float32"), N: T.Buffer((4,), "int64"), Y: T.Buffer((4,), "float32")):
    T.store(Y[T.ramp(0, 1, 4)], X[T.ramp(0, 1, 4)], mask=N[T.ramp(0, 1, 4)] > T.broadcast(0, 4))
""")


@pytest.mark.parametrize(
    ("instruction", "features"),
    [
        ("addps\t%xmm0, %xmm1", ()),
        ("vaddps\t%xmm0, %xmm1, %xmm2", ("avx",)),
        ("vaddps\t%ymm0, %ymm1, %ymm2", ("avx",)),
        ("vpaddd\t%ymm0, %ymm1, %ymm2", ("avx2",)),
        ("vaddps\t%zmm0, %zmm1, %zmm2", ("avx512f",)),
        ("vaddps\t%xmm0, %xmm17, %xmm2", ("avx512vl",)),
        ("vfmadd231ps\t(%rdi), %ymm1, %ymm2", ("fma",)),
        ("{vex}\tvpdpbusd\t%ymm0, %ymm1, %ymm2", ("avxvnni",)),
        ("vpdpbusd\t%zmm0, %zmm1, %zmm2", ("avx512vnni",)),
        ("vdpbf16ps\t%zmm0, %zmm1, %zmm2", ("avx512bf16",)),
        ("vmulph\t%zmm0, %zmm1, %zmm2", ("avx512fp16",)),
        ("tdpbusd\t%tmm2, %tmm1, %tmm0", ("amx-int8",)),
        ("pshufb\t%xmm1, %xmm2", ("ssse3",)),
        ("pmulld\t%xmm1, %xmm2", ("sse4.1",)),
        ("pcmpgtq\t%xmm1, %xmm2", ("sse4.2",)),
        ("shlxq\t%rax, %rbx, %rcx", ("bmi2",)),
        ("andnl\t%eax, %ebx, %ecx", ("bmi",)),
        ("popcntl\t%eax, %ebx", ("popcnt",)),
    ],
)
def test_instructions_beyond_a_processor_are_seen(
    instruction: str, features: tuple[str, ...]
) -> None:
    changes = ",".join(f"+{name}" for name in features)
    plain = CpuTarget.parse("cpu -mcpu=x86-64")
    target = CpuTarget.parse(f"cpu -mcpu=x86-64 -mattr={changes}") if features else plain
    text = f"f:\n\t{instruction}\t# of a comment: %zmm0\n\tretq\n"
    for name, wanted in ((target, 0), (plain, len(features))):
        assembler = Assembler(name)
        assert (len(beyond(text, name)) > 0) is (wanted > 0)
        if assembler.present:
            assert (len(assembler.refused(text)) > 0) is (wanted > 0)

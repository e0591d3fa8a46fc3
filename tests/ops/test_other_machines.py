"""Every operator, compiled for other architectures and run by an emulator, against numpy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops
from tilewright.codegen.cpu.generator import runs_parallel

from ..emulator import ARM, MACHINES, Call, header_of, run
from ..long import first_of
from . import other_machines
from .cases import GROUPS, Cases

WAYS = (
    ("neoverse-n1", "model"),
    ("generic", "model"),
    ("neoverse-v1", "model"),
    ("cortex-a76", "default"),
    ("riscv64", "model"),
    ("wasm32", "model"),
    ("wasm32 -mattr=-simd128", "default"),
)


def needs(mcpu: str) -> None:
    """Skip the test where there is nothing that runs code for a processor."""
    if (missing := MACHINES[mcpu].missing) is not None:
        pytest.skip(missing)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("way", first_of(range(len(WAYS))))
def test_operators(group: str, way: int, tmp_path: Path) -> None:
    """Each case for one of the targets in turn; `python -m tests.ops.other_machines` tries all."""
    needs(WAYS[way][0])
    cases = list(getattr(Cases(), group)())
    turns = [(n + n // len(WAYS)) % len(WAYS) for n in range(len(cases))]
    own = [case for case, turn in zip(cases, turns, strict=True) if turn == way]
    assert own
    other_machines.check(own, *WAYS[way], tmp_path)


@pytest.mark.parametrize("mcpu", ["riscv64", "riscv64 -mattr=+v", "wasm32"])
def test_some_of_each_kind(mcpu: str, tmp_path: Path) -> None:
    """A product, a convolution, a reduction, and an operator on elements."""
    needs(mcpu)
    groups = (Cases().products(), Cases().convolutions(), Cases().reductions(), Cases().elements())
    other_machines.check([next(iter(group)) for group in groups], mcpu, "default", tmp_path)


def test_no_operator_is_left_out() -> None:
    cases = Cases()
    for group in GROUPS:
        list(getattr(cases, group)())
    assert cases.covered == set(ops.__all__) - {"ACTIVATIONS"}


@pytest.mark.parametrize("mcpu", ["neoverse-n1", "riscv64"])
def test_loops_on_several_threads(mcpu: str, tmp_path: Path) -> None:
    """OpenMP's runtime for the machine is linked to them."""
    needs(mcpu)
    cases = [c for c in (*Cases().products(), *Cases().rows()) if "float32" in c.name][:2]
    kernels = [other_machines.compiled(case.func, mcpu, "default", "k", 3) for case in cases]
    assert any(map(runs_parallel, kernels))
    other_machines.check(cases, mcpu, "default", tmp_path, threads=3)


@ARM.needed
def test_object_files_that_libraries_are_made_of(tmp_path: Path) -> None:
    mcpu, case = "neoverse-n1", next(Cases().products())
    func = replace(case.func, name="product")  # a C program has a `main` of its own
    target, code = f"cpu -mcpu={mcpu} -threads=1", tmp_path / "m.o"
    built = tw.build_library(func, code, target, allow=("model",), object_file=True)
    kernel = other_machines.compiled(func, mcpu, "model", func.name)
    assert built.files[2].read_text(encoding="utf-8") == header_of(kernel, "m.o")
    result = np.zeros(case.wanted[0].shape, np.float32)
    call = Call(replace(kernel, image=code.read_bytes()), [*case.inputs, result])
    ((found,),) = run([call], mcpu, tmp_path)
    np.testing.assert_allclose(found, case.wanted[0], rtol=1e-5, atol=1e-5)

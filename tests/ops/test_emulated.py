"""Every operator, compiled for 64-bit ARM and run by an emulator, against numpy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops
from tilewright.codegen.cpu.generator import runs_parallel

from ..emulator import Call, emulated, header_of, run
from ..long import first_of
from . import aarch64
from .cases import GROUPS, Cases

WAYS = (
    ("neoverse-n1", "model"),
    ("generic", "model"),
    ("neoverse-v1", "model"),
    ("cortex-a76", "default"),
)


@emulated
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("way", first_of(range(len(WAYS))))
def test_operators(group: str, way: int, tmp_path: Path) -> None:
    """Each case for one of the processors in turn; `python -m tests.ops.emulated` tries all."""
    cases = list(getattr(Cases(), group)())
    turns = [(n + n // len(WAYS)) % len(WAYS) for n in range(len(cases))]
    own = [case for case, turn in zip(cases, turns, strict=True) if turn == way]
    assert own
    emulated.check(own, *WAYS[way], tmp_path)


def test_no_operator_is_left_out() -> None:
    cases = Cases()
    for group in GROUPS:
        list(getattr(cases, group)())
    assert cases.covered == set(ops.__all__) - {"ACTIVATIONS"}


@emulated
def test_loops_on_several_threads(tmp_path: Path) -> None:
    """OpenMP's runtime for the machine is linked to them."""
    cases = [c for c in (*Cases().products(), *Cases().rows()) if "float32" in c.name][:6]
    assert runs_parallel(emulated.compiled(cases[0].func, "neoverse-n1", "model", "k", 3))
    emulated.check(cases, "neoverse-n1", "model", tmp_path, threads=3)


@emulated
def test_object_files_that_libraries_are_made_of(tmp_path: Path) -> None:
    mcpu, case = "neoverse-n1", next(Cases().products())
    func = replace(case.func, name="product")  # a C program has a `main` of its own
    target, code = f"cpu -mcpu={mcpu} -threads=1", tmp_path / "m.o"
    built = tw.build_library(func, code, target, allow=("model",), object_file=True)
    kernel = emulated.compiled(func, mcpu, "model", func.name)
    assert built.files[1].read_text(encoding="utf-8") == header_of(kernel, "m.o")
    result = np.zeros(case.wanted[0].shape, np.float32)
    call = Call(replace(kernel, image=code.read_bytes()), [*case.inputs, result])
    ((found,),) = run([call], mcpu, tmp_path)
    np.testing.assert_allclose(found, case.wanted[0], rtol=1e-5, atol=1e-5)

"""A processor is a row of the table, which can be added from outside of the package."""

from __future__ import annotations

import json

import pytest

from tilewright import ops
from tilewright.autotune.measure.compile_in_child import compile_in_child
from tilewright.base.errors import TargetError
from tilewright.building.choose import Choices
from tilewright.codegen.build import compile_func
from tilewright.codegen.cpu.generator import assembly
from tilewright.codegen.detect import resolve
from tilewright.target import CPUS, Cpu, CpuTarget, Target

from ..instructions import beyond, widest

TEXT = "cpu -mcpu=bdver2 -threads=1"


def test_a_row_is_all_that_a_processor_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Piledriver: AVX and FMA of 128 and 256 bits, without AVX2. LLVM knows its name."""
    with pytest.raises(TargetError):
        resolve(TEXT)
    features = CPUS["x86-64-v2"].features | {"avx", "fma", "f16c"}
    monkeypatch.setitem(CPUS, "bdver2", Cpu(features, 16 << 10, 2 << 20, 8 << 20))
    target = CpuTarget.of(resolve(TEXT))
    assert (target.vector_bits, target.vector_registers, target.l1_bytes) == (256, 16, 16 << 10)
    choice = next(Choices(ops.matmul_func(64, 64, 64), target, None, ("model",)))
    chosen = choice.scheduled(target)
    code = assembly(compile_func(chosen, target))
    assert "vfmadd" in code
    assert widest(code) == 256
    assert beyond(code, target) == []
    apart = compile_in_child(chosen, target)
    assert (apart.target, apart.image) == (target, compile_func(chosen, target).image)


def test_other_processes_get_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    features = CPUS["x86-64-v2"].features | {"avx"}
    monkeypatch.setitem(CPUS, "bdver2", Cpu(features, 16 << 10, 2 << 20, 8 << 20))
    target = resolve(f"{TEXT} -mattr=+fma")
    data = json.loads(json.dumps(target.to_json()))
    row = CPUS.pop("bdver2")
    again = Target.from_json(data)
    assert CPUS["bdver2"] == row
    assert vars(again) == vars(target)
    assert (again, hash(again), str(again)) == (target, hash(target), str(target))


def test_a_target_that_is_left_to_the_machine_is_data_too() -> None:
    target = CpuTarget.parse("cpu")
    assert Target.from_json(target.to_json()) == target

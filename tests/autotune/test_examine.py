"""`tilewright check`: candidates are examined, and faults in them are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

import tilewright as tw
from tilewright import ops
from tilewright.autotune import examine as examining
from tilewright.autotune.examine import Examined, examine
from tilewright.codegen.compiled import Compiled
from tilewright.codegen.cuda.generator import CudaGenerator
from tilewright.codegen.cuda.nvcc import nvcc
from tilewright.schedule import Trace
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

GPU = "cuda -arch=sm_90a"
HERE = "cpu -mcpu=x86-64-v2 -threads=1"


@pytest.fixture
def compiler() -> None:
    try:
        nvcc()
    except tw.BuildError as error:
        pytest.skip(str(error))


def test_candidates_for_processors_run_as_compiled_code() -> None:
    found = list(examine(ops.matmul_func(16, 16, 16), HERE, candidates=1))
    assert len(found) > 1
    assert {(e.ran, e.problems) for e in found} == {("compiled", ())}
    assert all(e.drawn.predicted is not None and e.drawn.predicted > 0 for e in found)
    assert {e.resources for e in found} == {None}


@pytest.mark.usefixtures("compiler")
def test_candidates_for_gpus_are_emulated() -> None:
    found = list(examine(ops.add_relu_func(512), GPU, candidates=1))
    assert {(e.ran, e.problems) for e in found} == {("emulated", ())}
    for e in found:
        assert e.spills == 0
        assert e.most("registers") in range(1, 256)
        assert e.occupancy is not None
        assert 0 < e.occupancy <= 1


@pytest.mark.usefixtures("compiler")
def test_large_programs_are_compiled_alone() -> None:
    (first, *_) = examine(ops.add_relu_func(1 << 22), GPU, candidates=1)
    assert first.ran == "no"
    assert first.problems == ()
    assert first.most("registers") is not None


def with_faults(patch: pytest.MonkeyPatch) -> None:
    """Every program has a race."""
    emulate = CudaGenerator.emulate

    def faulty(self: CudaGenerator, *given: Any) -> tuple[str, ...]:
        return (*emulate(self, *given), "launch 0: race between threads")

    patch.setattr(CudaGenerator, "emulate", faulty)


def with_other_values(patch: pytest.MonkeyPatch) -> None:
    """Every candidate is that of another program."""

    def applied(trace: Trace, func: Func) -> Func:
        return trace.apply(parse(str(func).replace("A[", "B["))).func

    patch.setattr(examining, "_applied", applied)


def with_spills(patch: pytest.MonkeyPatch) -> None:
    """Every kernel spills."""
    resources = CudaGenerator.resources

    def spilling(self: CudaGenerator, compiled: Compiled) -> dict[str, dict[str, int]]:
        told = resources(self, compiled)
        return {name: {**taken, "spill_store_bytes": 8} for name, taken in told.items()}

    patch.setattr(CudaGenerator, "resources", spilling)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (with_faults, "race between threads"),
        (with_other_values, "wrong values: C"),
    ],
)
def test_planted_faults_are_found(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], says: str
) -> None:
    plant(monkeypatch)
    found: list[Examined] = list(examine(ops.add_relu_func(512), GPU, candidates=1))
    assert found
    for e in found:
        assert len(e.problems) == 1
        assert says in e.problems[0]
        assert e.verdict == "wrong"


@pytest.mark.usefixtures("compiler")
def test_a_candidate_that_spills_is_slow_and_right(monkeypatch: pytest.MonkeyPatch) -> None:
    with_spills(monkeypatch)
    found = list(examine(ops.add_relu_func(512), GPU, candidates=1))
    assert {(e.verdict, e.problems, e.remarks[-1]) for e in found} == {
        ("slow", (), "a spill of 8 bytes a thread")
    }


def test_a_candidate_that_does_not_compile_here_is_not_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> NoReturn:
        raise tw.BuildError("nvcc refuses the kernel", hint="install g++: nvcc calls it")

    monkeypatch.setattr(examining, "compile_func", refuse)
    found = list(examine(ops.add_relu_func(512), HERE, candidates=1))
    assert {(e.verdict, e.problems) for e in found} == {("not checked", ())}
    assert all("install g++" in (e.failure or "") for e in found)


def test_a_candidate_that_did_not_run_is_not_checked() -> None:
    (first, *_) = examine(ops.add_relu_func(1 << 22), HERE, candidates=1)
    assert (first.ran, first.verdict, first.failure) == ("no", "not checked", None)

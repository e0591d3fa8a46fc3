"""Compiling in a child: the same code, and a BuildError where it ends instead of answering."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tilewright import BuildError, Schedule, build_library, ops, te
from tilewright.autotune.measure.compile_in_child import (
    CompileRequest,
    compile_in_child,
    compile_in_children,
)
from tilewright.autotune.measure.program_text import program_fields
from tilewright.autotune.measure.worker_process import Worker
from tilewright.autotune.search.remembered import recalled
from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.cache import is_cached
from tilewright.codegen.compiled import Compiled
from tilewright.codegen.detect import resolve
from tilewright.codegen.disk_cache import LOCATION
from tilewright.tir.instruction_set import find_instruction
from tilewright.tir.ir import Func
from tilewright.tir.printer import func_text

from ..hosts import processor
from ..instruction_sets import forgotten
from .kernels import affine, matmul

SERIAL = resolve("cpu -threads=1")


@pytest.mark.parametrize(
    "target", ["cpu -threads=1", "cpu -mcpu=x86-64-v2 -threads=1", "cpu -mcpu=x86-64-v3 -threads=2"]
)
def test_a_child_compiles_what_this_process_would(target: str) -> None:
    func = Schedule(matmul()).func
    apart = compile_in_child(func, resolve(target), strict_fp=True)
    here = compile_func(func, resolve(target), strict_fp=True)
    assert apart.image == here.image
    contracted = compile_func(func, resolve(target)).image
    assert (apart.image != contracted) is processor(target).fma
    assert (apart.signature, apart.target) == (here.signature, here.target)
    assert apart.launches == here.launches


def test_its_code_loads() -> None:
    assert to_module(compile_in_child(affine(), SERIAL)).signature.name == "affine"


@pytest.mark.usefixtures("aborting_llvm")
def test_a_child_that_aborts_is_a_build_error() -> None:
    with pytest.raises(BuildError) as refused:
        compile_in_child(affine(), SERIAL)
    assert "signal 6 (SIGABRT); it printed: LLVM ERROR: Cannot select" in str(refused.value)


@pytest.mark.parametrize("kills", [1, 2])
def test_a_child_that_is_killed_is_asked_again_once(
    kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, left = Worker.send, iter(range(kills))

    def send_and_kill(worker: Worker, *request: Any) -> None:
        send(worker, *request)
        if next(left, None) is not None:
            worker.process.kill()

    monkeypatch.setattr(Worker, "send", send_and_kill)
    if kills == 1:
        assert compile_in_child(affine(), SERIAL).signature.name == "affine"
    else:
        with pytest.raises(BuildError) as error:
            compile_in_child(affine(), SERIAL)
        assert error.value.hint is not None
    assert list(left) == []


def test_what_the_child_refuses_is_passed_on() -> None:
    func = matmul()
    with pytest.raises(BuildError):
        compile_in_child(type(func)("fma", func.params, func.allocs, func.body), SERIAL)


@pytest.fixture
def instructions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in a folder of its own that registers the instruction `mine`, imported here."""
    name = "instructions_of_a_stranger"
    (tmp_path / f"{name}.py").write_text(
        "import tilewright as tw\n"
        "from tilewright.tir.instruction_set import find_instruction\n"
        "known = find_instruction('outer_4x8_fma')\n"
        "tw.register_intrin('mine', known.semantics, known.implementation)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with forgotten():
        importlib.import_module(name)
        yield name
    del sys.modules[name]


def tensorized() -> Func:
    sch = Schedule(ops.matmul_func(8, 16, 5))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, j0, i1, j1 = sch.tile((i, j), (4, 8))
    sch.reorder(i0, j0, k, i1, j1)
    sch.decompose_reduction(block, k)
    sch.tensorize(i1, "mine")
    return sch.func


def test_a_child_imports_what_registers_instructions(instructions: str, tmp_path: Path) -> None:
    target = resolve("cpu -mcpu=haswell -threads=1")
    assert program_fields(tensorized(), target)["modules"] == [instructions]
    assert compile_in_child(tensorized(), target).image == compile_func(tensorized(), target).image
    build_library(Schedule(tensorized()), tmp_path / "k.o", target, object_file=True)
    assert (tmp_path / "k.o").exists()


def test_programs_with_instructions_of_a_module_are_built_in_parallel(
    instructions: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOCATION, str(tmp_path / "cache"))
    product = ops.matmul_func(6, 8, 5)
    requests = [CompileRequest(tensorized()), CompileRequest(product, "model")]
    given, searched = compile_in_children(requests, SERIAL, 2)
    assert isinstance(given, Compiled)
    assert isinstance(searched, Compiled)
    assert is_cached(tensorized(), SERIAL)
    assert given.image == compile_func(tensorized(), SERIAL).image
    schedule = recalled(product, SERIAL, "model")
    assert schedule is not None
    assert searched.scheduled == (func_text(schedule.func),)
    assert searched.image == compile_func(schedule.func, SERIAL).image


def test_this_process_does_requests_too() -> None:
    """Children begin with the first, and it with the last."""
    requests = [CompileRequest(ops.matmul_func(n, 8, 5)) for n in (2, 3)]
    first, last = compile_in_children(requests, SERIAL, 2, own=lambda number: f"number {number}")
    assert isinstance(first, Compiled)
    assert last == "number 1"


def test_instructions_of_a_script_cannot_be_imported(instructions: str) -> None:
    record = find_instruction("mine")
    assert record is not None
    object.__setattr__(record, "home", "__main__")
    with pytest.raises(BuildError):
        compile_in_child(tensorized(), SERIAL)


def test_a_child_that_cannot_start_is_a_build_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/there/is/no/such/python")
    with pytest.raises(BuildError):
        compile_in_child(affine(), SERIAL)


def test_the_size_of_its_workspace_comes_with_it() -> None:
    x = te.placeholder((9000,), name="x")
    doubled = te.compute((9000,), lambda i: x[i] * 2, name="doubled")
    y = te.compute((9000,), lambda i: doubled[8999 - i], name="y")
    apart = compile_in_child(te.func([x, y], name="reversed"), SERIAL)
    assert apart.signature.workspaces == (36032,)

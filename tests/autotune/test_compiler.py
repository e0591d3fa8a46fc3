"""Compiling in a child: the same code, and a BuildError where it ends instead of answering."""

from __future__ import annotations

import signal

import pytest

from tilewright import BuildError, Schedule, te
from tilewright.autotune.measure import compiler
from tilewright.autotune.measure.compiler import compile_apart
from tilewright.autotune.measure.worker_process import Died
from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.detect import resolve

from ..hosts import processor
from .kernels import affine, matmul

SERIAL = resolve("cpu -threads=1")


@pytest.mark.parametrize(
    "target", ["cpu -threads=1", "cpu -mcpu=x86-64-v2 -threads=1", "cpu -mcpu=x86-64-v3 -threads=2"]
)
def test_a_child_compiles_what_this_process_would(target: str) -> None:
    func = Schedule(matmul()).func
    apart = compile_apart(func, resolve(target), strict_fp=True)
    here = compile_func(func, resolve(target), strict_fp=True)
    assert apart.image == here.image
    contracted = compile_func(func, resolve(target)).image
    assert (apart.image != contracted) is processor(target).fma
    assert (apart.signature, apart.target) == (here.signature, here.target)
    assert apart.launches == here.launches


def test_its_code_loads() -> None:
    assert to_module(compile_apart(affine(), SERIAL)).signature.name == "affine"


@pytest.mark.usefixtures("aborting_llvm")
def test_a_child_that_aborts_is_a_build_error() -> None:
    with pytest.raises(BuildError, match="cannot compile affine for cpu") as refused:
        compile_apart(affine(), SERIAL)
    assert "signal 6 (SIGABRT); it printed: LLVM ERROR: Cannot select" in str(refused.value)


def test_a_child_that_is_killed_is_asked_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = Died(0, signal.SIGKILL, out_of_memory=False, output="")
    ask, deaths = compiler._asked, [killed]
    monkeypatch.setattr(compiler, "_asked", lambda m: deaths.pop() if deaths else ask(m))
    assert compile_apart(affine(), SERIAL).signature.name == "affine"
    assert not deaths
    monkeypatch.setattr(compiler, "_asked", lambda _: killed)
    with pytest.raises(
        BuildError, match=r"SIGKILL(.|\n)*hint: the process was killed from outside"
    ):
        compile_apart(affine(), SERIAL)


def test_what_the_child_refuses_is_passed_on() -> None:
    func = matmul()
    with pytest.raises(BuildError, match="a kernel cannot be named fma: it calls the function"):
        compile_apart(type(func)("fma", func.params, func.allocs, func.body), SERIAL)


def test_a_child_that_cannot_start_is_a_build_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/there/is/no/such/python")
    with pytest.raises(BuildError, match="cannot compile affine in a child: cannot start"):
        compile_apart(affine(), SERIAL)


def test_the_size_of_its_workspace_comes_with_it() -> None:
    x = te.placeholder((9000,), name="x")
    doubled = te.compute((9000,), lambda i: x[i] * 2, name="doubled")
    y = te.compute((9000,), lambda i: doubled[8999 - i], name="y")
    apart = compile_apart(te.func([x, y], name="reversed"), SERIAL)
    assert apart.signature.workspaces == (36032,)

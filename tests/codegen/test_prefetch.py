"""Prefetches reach machine code, and are harmless wherever they point."""

from __future__ import annotations

import pytest

from tilewright.codegen.build import compile_func, to_module
from tilewright.errors import BuildError
from tilewright.tir.ir import Buffer, For, Func, Prefetch, Var, seq, store
from tilewright.tir.parser import parse

from .machinery import SERIAL, check


def program(index: str, loop: str = "range(64)") -> Func:
    return parse(
        f"""
@tw.script
def f(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    for i in {loop}:
        T.prefetch(A[{index}])
        C[i] = A[i]
"""
    )


@pytest.mark.parametrize("loop", ["range(64)", "T.vectorized(64)", "T.unrolled(64)"])
@pytest.mark.parametrize(
    "index", ["i + 16", "i * 4096 - 1000000000000", "i * 123456789123456", "3 - i"]
)
def test_it_computes_the_same(index: str, loop: str) -> None:
    check(program(index, loop))


def test_on_threads() -> None:
    check(program("i + 16", "T.parallel(64)"), target="cpu -threads=2")


def test_an_instruction_is_emitted() -> None:
    module = to_module(compile_func(program("i + 16"), SERIAL))
    assert "llvm.prefetch" in module.source("llvm")
    assert "prefetch" in module.source("asm")


def test_internal_buffers_have_no_memory_to_prefetch() -> None:
    i = Var("i")
    a, c = Buffer("A", (4,), "float32"), Buffer("C", (4,), "float32")
    body = For(i, 4, seq(Prefetch(a, (i,)), store(a, (i,), 0.0), store(c, (i,), a[i])))
    with pytest.raises(BuildError, match="A is prefetched and is no parameter"):
        compile_func(Func("f", (c,), (a,), body), SERIAL)

"""Prefetches reach machine code, and are harmless wherever they point."""

from __future__ import annotations

import pytest

from tilewright.base.errors import BuildError
from tilewright.codegen.build import compile_func, to_module
from tilewright.tir.ir import Buffer, For, Func, Prefetch, Var, const, seq, store
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


INTERNAL = """
@tw.script
def f(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    B = T.alloc((64,), "float32")
    for i in range(8):
        {outside}
        for j in range(8):
            B[i * 8 + j] = A[i * 8 + j]
        for j in range(8):
            {inside}
            C[i * 8 + j] = B[i * 8 + j]
"""


@pytest.mark.parametrize("outside", ["T.prefetch(A[i])", "T.prefetch(B[i * 8 + 8])"])
@pytest.mark.parametrize("inside", ["T.prefetch(A[i])", "T.prefetch(B[i * 8 + j + 4])"])
def test_internal_buffers_are_where_their_prefetches_see_them(outside: str, inside: str) -> None:
    check(parse(INTERNAL.format(outside=outside, inside=inside)))


def test_what_is_never_read_is_not_prefetched() -> None:
    i = Var("i")
    a, c = Buffer("A", (4,), "float32"), Buffer("C", (4,), "float32")
    body = For(i, 4, seq(Prefetch(a, (i,)), store(c, (i,), 1.0)))
    module = to_module(compile_func(Func("f", (c,), (a,), body), SERIAL))
    assert "prefetch" not in module.source("llvm")


def test_registers_have_no_memory_to_prefetch() -> None:
    a = Buffer("A", (4,), "float32", scope="register")
    c = Buffer("C", (4,), "float32")
    body = seq(store(a, (0,), 0.0), Prefetch(a, (const(0),)), store(c, (0,), a[0]))
    with pytest.raises(BuildError):
        compile_func(Func("f", (c,), (a,), body), SERIAL)

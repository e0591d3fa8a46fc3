"""The LLVM IR that is written: what it says once, and what it has to say again."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tilewright.codegen.build import compile_func
from tilewright.codegen.calling_convention import signature_of
from tilewright.codegen.cpu import llvm
from tilewright.codegen.lower import lower
from tilewright.tir.ir import Func, Seq, Store
from tilewright.tir.parser import parse

from ..hosts import processor
from .machinery import check

TARGET = processor("cpu -mcpu=skylake-avx512 -threads=1")

TILE = """
def f(A: T.Buffer((8, 64), "float32"), B: T.Buffer((64, 16), "float32"),
      C: T.Buffer((8, 16), "float32")):
    R = T.alloc((2, 16), "float32", scope="register")
    for i in range(4):
        for i1 in T.unrolled(2):
            for j in T.vectorized(16):
                R[i1, j] = 0.0
        for k0 in range(16):
            for k1 in T.unrolled(4):
                for i1 in T.unrolled(2):
                    for j in T.vectorized(16):
                        R[i1, j] = R[i1, j] + A[i * 2 + i1, k0 * 4 + k1] * B[k0 * 4 + k1, j]
        for i1 in T.unrolled(2):
            for j in T.vectorized(16):
                C[i * 2 + i1, j] = R[i1, j]
"""
"""The product of two matrices with a tile of two rows in registers."""

SUM = """
def f(A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
    C[0] = 0
    C[1] = 1
    for i in T.unrolled(3):
        C[0] = C[0] + A[1] * C[1]
        C[A[2] - A[2] + 1] = C[0]
    C[2] = C[0]
    C[3] = C[1]
"""
"""Copies of a body that read one element again and others that were written since."""

LET = """
def f(A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
    for i in T.unrolled(4):
        x = 3 - i
        C[i] = A[x]
"""
"""Copies of a body in which one variable has several values."""


def emitted(func: Func) -> str:
    text: str = llvm.emit(lower(func, TARGET), signature_of(func), TARGET)[0]
    return text


def innermost(text: str) -> str:
    """The longest loop of one basic block."""
    blocks = re.findall(
        r"^(loop(?:-\d+)?\.\d+):[^\n]*\n(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL
    )
    bodies: list[str] = [body for label, body in blocks if f"label %{label}" in body]
    return max(bodies, key=len)


def test_a_block_reads_and_writes_its_registers_once() -> None:
    body = innermost(emitted(parse(TILE)))
    assert body.count(" load <16 x float>, ptr") == 2 + 4  # the tile, and four rows of B
    assert body.count("store <16 x float>") == 2
    assert body.count("load float,") == 2 * 4
    assert body.count("call <16 x float> @llvm.fmuladd") == 2 * 4
    assert "fadd" not in body


@pytest.mark.parametrize("text", [TILE, SUM, LET], ids=["tile", "sum", "let"])
def test_what_is_read_again_is_what_was_written(text: str) -> None:
    check(parse(text))


@pytest.mark.parametrize("threads", [1, 2])
def test_what_threads_have_written_is_read_again(threads: int) -> None:
    func = parse("""
def f(A: T.Buffer((8,), "int32"), C: T.Buffer((2,), "int32")):
    T.inplace(A)
    C[0] = A[0]
    for i in T.parallel(8):
        A[i] = T.int32(i) + 100
    C[1] = A[0]
""")
    assert isinstance(func.body, Seq)
    first, between, last = func.body.stmts
    assert isinstance(first, Store)
    assert isinstance(last, Store)
    again = Store(last.buffer, last.indices, first.value)  # one node, as simplifying leaves it
    func = replace(func, body=Seq((first, between, again)))
    check(func, target=f"cpu -threads={threads}")


def test_copies_of_a_body_read_an_element_once_until_it_is_written() -> None:
    text = emitted(parse(SUM))
    # A[1] and, as it is written in two places, A[2] twice.
    assert len(re.findall(r"load i32, ptr %v\d+, align 4, !invariant", text)) == 3
    assert len(re.findall(r"load i32, ptr %\w+, align 4$", text, re.MULTILINE)) == 3 * 3 + 2


IN_MEMORY = """
def f(A: T.Buffer((8, 64), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        C[i] = 0.0
        for k in range(64):
            C[i] = C[i] + A[i, k]
"""


def test_accumulators_end_up_in_machine_registers() -> None:
    """A loop that accumulates neither loads nor stores its total, in memory as it may be."""
    for text in (TILE, IN_MEMORY):
        compiled = compile_func(parse(text), TARGET)
        body = innermost(compiled.source("llvm"))
        assert "phi" in body
        assert "store" not in body


def test_functions_of_vectors_are_inlined() -> None:
    text = """
def f(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    for i in T.vectorized(64):
        C[i] = T.exp(A[i])
"""
    assert "call" not in compile_func(parse(text), TARGET).source("asm")

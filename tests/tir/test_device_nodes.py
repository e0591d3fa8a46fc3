"""Nodes of lowered programs of devices: text, structure, and what one thread cannot run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilewright.base.errors import IRError, ParseError, VerifyError
from tilewright.tir.equality import structural_equal, structural_hash
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Broadcast, Buffer, Func, Store, WarpShuffle, const, warp_shuffle
from tilewright.tir.parser import parse
from tilewright.tir.wellformed import check_structure

from ..refusals import refused

PROGRAM = """
@tw.script
def total(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for t in T.thread("threadIdx.x", 64, dtype="int32"):
        with T.scratch((64,), "float32", scope="shared") as S:
            T.store(S[t], T.load(A[t], dtype="float32"))
            T.barrier("block")
            x = T.load(S[63 - t], dtype="float32")
            T.barrier("warp")
            T.store(B[t], x + T.warp_shuffle(x, 16))
"""


def test_they_are_printed_and_parsed() -> None:
    func = parse(PROGRAM)
    text = str(func)
    assert 'T.barrier("block")' in text
    assert "T.warp_shuffle(x, 16)" in text
    again = parse(text)
    assert structural_equal(func, again)
    assert structural_hash(func) == structural_hash(again)
    check_structure(func)
    for before, after in (("block", "warp"), ("16)", "8)")):
        assert not structural_equal(func, parse(text.replace(before, after)))


@pytest.mark.parametrize("bad", ["T.barrier(3)", 'T.barrier("grid")', "T.barrier()"])
def test_texts_of_other_barriers_are_refused(bad: str) -> None:
    with pytest.raises(ParseError):
        parse(PROGRAM.replace('T.barrier("block")', bad))


@pytest.mark.parametrize("xor", [0, 32, -1])
def test_shuffles_reach_another_lane_of_the_warp(xor: int) -> None:
    with pytest.raises(IRError):
        warp_shuffle(const(1.0, "float32"), xor)


def test_shuffles_take_one_element() -> None:
    vector = Broadcast(const(1.0, "float32"), 4, "float32x4")
    with pytest.raises(IRError):
        warp_shuffle(vector, 1)
    func = parse(PROGRAM)
    wrong = WarpShuffle(const(1.0, "float64"), 1, "float32")
    with pytest.raises(VerifyError):
        check_structure(with_value(func, wrong))


def with_value(func: Func, value: WarpShuffle) -> Func:
    out = func.params[1]
    assert isinstance(out, Buffer)
    return replace(func, body=Store(out, (const(0),), value))


@pytest.mark.parametrize(("node", "left"), [("Barrier", ""), ("WarpShuffle", "T.barrier")])
def test_the_interpreter_runs_programs_as_they_were_before(node: str, left: str) -> None:
    lines = [line for line in PROGRAM.splitlines() if not left or left not in line]
    func = parse("\n".join(lines))
    with refused(VerifyError, node) as error:
        interpret(func, np.zeros(64, np.float32), np.zeros(64, np.float32))
    assert "before lowering" in str(error.value)


def test_narrow_indices_are_of_lowered_programs() -> None:
    text = """
@tw.script
def one(A: T.Buffer((64,), "float32")):
    for t in T.serial(64, dtype="int32"):
        with T.block("A"):
            v = T.axis.spatial(64, T.int64(t))
            A[v] = 0.0
"""
    with pytest.raises(VerifyError):
        check_structure(parse(text))

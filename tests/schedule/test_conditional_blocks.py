"""Blocks under conditions: what they read is seen by steps, and what they may not store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .machinery import check_compiled, check_meaning

HEAD = """@tw.script
def f(
    A: T.Buffer((16,), "float32"),
    X: T.Buffer((16, 4), "float32"),
    C: T.Buffer((16,), "float32"),
):
    B = T.alloc((16,), "float32")
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi] * 2.0
"""
READS = {
    "where": """
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            T.where(B[15 - i] < 0.0)
            C[vi] = A[vi]
""",
    "if": """
    for i in range(16):
        if B[15 - i] < 0.0:
            with T.block("C"):
                vi = T.axis.spatial(16, i)
                C[vi] = A[vi]
""",
    "else": """
    for i in range(16):
        if ~(B[15 - i] < 0.0):
            pass
        else:
            with T.block("C"):
                vi = T.axis.spatial(16, i)
                C[vi] = A[vi]
""",
    "around a nest": """
    for j in range(4):
        if B[j * 4 + 3] < 0.0:
            for i in range(4):
                with T.block("C"):
                    vj = T.axis.spatial(4, j)
                    vi = T.axis.spatial(4, i)
                    C[vj * 4 + vi] = A[vj * 4 + vi]
""",
    "a binding": """
    for i in range(16):
        x = B[15 - i]
        if x < 0.0:
            with T.block("C"):
                vi = T.axis.spatial(16, i)
                C[vi] = A[vi]
""",
    "in the body": """
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            if B[15 - vi] < 0.0:
                C[vi] = A[vi]
""",
}


def program(consumer: str) -> Func:
    func = parse(HEAD + consumer.strip("\n"))
    verify(func)
    return func


def loop(sch: Schedule, block: str) -> Any:
    return sch.get_loops(sch.get_block(block))[0]


STEPS: dict[str, Callable[[Schedule], object]] = {
    "merge": lambda s: s.merge(loop(s, "B"), loop(s, "C")),
    "compute_at": lambda s: s.compute_at(s.get_block("B"), loop(s, "C")),
    "reverse_compute_at": lambda s: s.reverse_compute_at(s.get_block("C"), loop(s, "B")),
    "compute_inline": lambda s: s.compute_inline(s.get_block("B")),
    "transform_layout": lambda s: s.transform_layout(
        s.get_block("B"), ("write", 0), lambda i: (i % 4, i // 4)
    ),
    "set_scope": lambda s: s.set_scope(s.get_block("B"), 0, "local"),
    "cache_read": lambda s: s.cache_read(s.get_block("C"), 0, "local"),
    "pack": lambda s: s.pack(s.get_block("C"), 0, "Aa", [4]),
    "cache_write": lambda s: s.cache_write(s.get_block("B"), 0, "local"),
    "read_at": lambda s: s.read_at(loop(s, "C"), s.get_block("C"), 0, "local"),
    "reindex": lambda s: s.reindex(s.get_block("C"), ("read", 0)),
    "pipeline": lambda s: (
        s.compute_at(s.get_block("B"), loop(s, "C")),
        s.pipeline(loop(s, "C"), [0, 1]),
    ),
    "split": lambda s: s.parallel(s.split(loop(s, "C"), [None, 3])[0]),
}
REFUSED = {"merge", "reverse_compute_at", "reindex"}
"""Steps that the order of the accesses, 15 - i, or a read that may not happen forbids."""


@pytest.mark.grid
@pytest.mark.parametrize("form", READS)
@pytest.mark.parametrize("step", STEPS)
def test_what_a_condition_reads_is_seen(form: str, step: str) -> None:
    func = program(READS[form])
    sch = Schedule(func)
    assert sch.get_consumers(sch.get_block("B")) == (sch.get_block("C"),)
    try:
        STEPS[step](sch)
    except ScheduleError:
        assert step in REFUSED
        return
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


WRITES = {
    "if": """
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            if B[vi] < 0.0:
                C[vi] = A[vi]
""",
    "if around": """
    for i in range(16):
        if i % 3 > 0:
            with T.block("C"):
                vi = T.axis.spatial(16, i)
                C[vi] = A[vi] + B[vi]
""",
    "elif": """
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            if B[vi] < 0.0:
                C[vi] = A[vi]
            elif A[vi] > 1.0:
                C[vi] = 7.0
""",
    "an inner loop's if": """
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            for k in range(4):
                if X[vi, k] < 0.0:
                    C[vi] = X[vi, k] + B[vi]
""",
    "an inner loop that may be empty": """
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            for k in range(vi - 12):
                C[vi] = X[vi, k] + B[vi]
""",
    "a reduction": """
    for i in range(16):
        if i > 2:
            for k in range(4):
                with T.block("C"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        C[vi] = B[vi]
                    C[vi] = C[vi] + X[vi, vk]
""",
}
COPIES: dict[str, Callable[[Schedule], object]] = {
    "cache_write": lambda s: s.cache_write(s.get_block("C"), 0, "local"),
    "write_at": lambda s: s.write_at(loop(s, "C"), s.get_block("C"), 0, "local"),
    "reindex": lambda s: s.reindex(s.get_block("C"), ("write", 0)),
    "reindex_cache_write": lambda s: s.reindex_cache_write(
        s.get_block("C"), 0, "local", lambda i, *_: (i,)
    ),
}


@pytest.mark.parametrize("form", WRITES)
@pytest.mark.parametrize("step", COPIES)
def test_no_copy_goes_over_what_is_not_stored(form: str, step: str) -> None:
    sch = Schedule(program(WRITES[form]))
    with pytest.raises(ScheduleError):
        COPIES[step](sch)
    assert sch.func is sch.original


CERTAIN = {
    "both branches": """
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            if vi < 5:
                C[vi] = A[vi]
            else:
                C[vi] = B[vi]
""",
    "a choice": """
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            C[vi] = T.select(B[vi] < 0.0, A[vi], 1.0)
""",
    "terms": """
    for i, k in T.grid(16, 4):
        if B[k] > 0.0:
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = 0.0
                C[vi] = C[vi] + X[vi, vk]
""",
}


@pytest.mark.parametrize("form", CERTAIN)
@pytest.mark.parametrize("step", ["cache_write", "write_at"])
def test_what_is_stored_for_certain_is_copied(form: str, step: str) -> None:
    sch = Schedule(program(CERTAIN[form]))
    COPIES[step](sch)
    verify(sch.func)
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


PART = """
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            T.where(i < 9)
            C[vi] = {} + A[vi]
"""
SUM = """
    S = T.alloc((16,), "float32")
    for i, k in T.grid(16, 4):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = 0.0
            S[vi] = S[vi] + X[vi, vk]
"""


def test_a_part_of_a_result_is_not_inlined_as_all_of_it() -> None:
    sch = Schedule(program(PART.format("B[vi]")))
    with pytest.raises(ScheduleError):
        sch.reverse_compute_inline(sch.get_block("C"))
    allocs, sums = SUM.strip("\n").split("\n", 1)
    text = HEAD.partition("    B = ")[0] + allocs + "\n" + sums + PART.format("S[vi]")
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError):
        sch.fuse_reduction_epilogue(sch.get_block("S"), sch.get_block("C"))

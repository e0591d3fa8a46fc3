"""Refusals of programs that `te` does not make, each for one reason and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse


def program(body: str, *, signature: str = "", inplace: str = "") -> Func:
    """Blocks of 4 elements, from A to C by way of an internal B."""
    head = signature or 'A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")'
    lines = ["@tw.script", f"def program({head}):"]
    lines += [f"    T.inplace({inplace})"] if inplace else []
    lines += ['    B = T.alloc((4,), "int32")']
    lines += ["    " + line for line in body.strip("\n").split("\n")]
    return parse("\n".join(lines))


def block(name: str, statement: str, kind: str = "spatial", loop: str = "i") -> str:
    return f"""
for {loop} in range(4):
    with T.block("{name}"):
        vi = T.axis.{kind}(4, {loop})
        {statement}""".strip("\n")


def refused(func: Func, message: str, step: Callable[[Schedule], Any]) -> None:
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match=message):
        step(sch)
    assert sch.func is func


def test_opaque_iterations() -> None:
    func = program(block("B", "B[vi] = A[vi]", "opaque") + "\n" + block("C", "C[vi] = B[vi]"))
    refused(
        func,
        "block B has opaque iteration variables",
        lambda s: s.cache_write(s.get_block("B"), 0, "global"),
    )


def test_a_reduction_without_init() -> None:
    func = program(
        """
for i, k in T.grid(4, 4):
    with T.block("C"):
        vi, vk = T.axis.remap("SR", [i, k])
        C[vi] = C[vi] + A[vk]
""",
        inplace="C",
    )
    refused(
        func,
        "block C is a reduction whose init was split off",
        lambda s: s.cache_write(s.get_block("C"), 0, "global"),
    )


def test_a_block_that_reads_what_it_writes() -> None:
    func = program(block("C", "C[vi] = C[vi] * A[vi]"), inplace="C")
    refused(
        func,
        "block C reads C, which it writes",
        lambda s: s.cache_write(s.get_block("C"), 0, "global"),
    )


def test_what_is_updated_in_place_by_one_that_does_not_read_it() -> None:
    func = program(
        block("B", "B[vi] = C[vi] + A[vi]") + "\n" + block("C", "C[vi] = B[vi]"),
        inplace="C",
    )
    refused(
        func,
        "C is updated in place",
        lambda s: s.cache_write(s.get_block("C"), 0, "global"),
    )


def test_what_nobody_reads_has_no_place_to_go() -> None:
    func = program(block("B", "B[vi] = A[vi]") + "\n" + block("C", "C[vi] = A[vi]"))
    refused(func, "block B has no consumer", lambda s: s.compute_inline(s.get_block("B")))
    refused(
        func,
        "block B has no consumer",
        lambda s: s.compute_at(s.get_block("B"), s.get_loops(s.get_block("C"))[0]),
    )


def test_inlining_that_grows_beyond_measure() -> None:
    a = te.placeholder((4,), "int32", name="A")
    tensor: te.Tensor = a
    for n in range(14):
        tensor = te.compute((4,), lambda i, t=tensor: t[i] + t[i], name=f"B{n}")
    sch = Schedule(te.func([a, tensor]))
    with pytest.raises(ScheduleError, match="would grow to"):
        for n in range(13):
            sch.compute_inline(sch.get_block(f"B{n}"))


@pytest.mark.parametrize("name", ["B", "C"])
def test_stores_at_other_than_plain_iterations(name: str) -> None:
    func = program(block("B", "B[3 - vi] = A[vi]") + "\n" + block("C", "C[vi] = B[vi]"))
    refused(
        func,
        "block B must store at its plain iteration variables",
        (lambda s: s.compute_inline(s.get_block("B")))
        if name == "B"
        else (lambda s: s.reverse_compute_inline(s.get_block("C"))),
    )


def test_an_epilogue_that_repeats_what_it_reads() -> None:
    func = program(
        block("B", "B[vi] = A[vi]")
        + """
for i, j in T.grid(4, 4):
    with T.block("C"):
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = B[vi]
""",
        signature='A: T.Buffer((4,), "int32"), C: T.Buffer((4, 4), "int32")',
    )
    refused(
        func,
        "block C stores at iteration variables that do not index B",
        lambda s: s.reverse_compute_inline(s.get_block("C")),
    )


def test_an_epilogue_that_overwrites_what_others_read() -> None:
    func = program(
        block("B", "B[vi] = A[vi]")
        + "\n"
        + block("D", "D[vi] = C[vi]")
        + "\n"
        + block("C", "C[vi] = B[vi]"),
        signature='A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32"), '
        'D: T.Buffer((4,), "int32")',
        inplace="C",
    )
    refused(
        func,
        "block D reads what block C overwrites",
        lambda s: s.reverse_compute_inline(s.get_block("C")),
    )


def test_elements_that_several_stores_write() -> None:
    func = program(
        """
for i in range(2):
    with T.block("B"):
        vi = T.axis.spatial(2, i)
        B[vi] = A[vi]
        B[vi + 2] = A[vi]
"""
        + block("C", "C[vi] = B[vi]"),
    )
    refused(
        func,
        "it cannot be shown which elements of B block B writes",
        lambda s: s.cache_write(s.get_block("B"), 0, "global"),
    )


def test_loops_are_reordered_from_one_on() -> None:
    func = program(block("C", "C[vi] = A[vi]"))
    refused(func, "reorder takes at least one loop", lambda s: s.reorder())

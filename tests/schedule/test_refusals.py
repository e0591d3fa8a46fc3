"""Refusals of programs that `te` does not make, each for one reason and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.base.errors import ScheduleError
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
    with pytest.raises(ScheduleError):
        for n in range(13):
            sch.compute_inline(sch.get_block(f"B{n}"))


def test_stores_of_more_iterations_than_indices() -> None:
    func = program(
        """
for i, j in T.grid(4, 4):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi] = A[vi] + T.cast("int32", vj)
"""
        + block("C", "C[vi] = B[vi]")
    )
    refused(
        func,
        "not known to determine its iteration variables vi, vj",
        lambda s: s.compute_inline(s.get_block("B")),
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
        "not known to determine its iteration variables vi, vj",
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


THREE = 'A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32"), X: T.Buffer((4,), "int32")'


def test_first_contents_that_the_next_iteration_overwrites() -> None:
    func = program(
        block("B", "B[vi] = X[vi]")
        + """
for t in range(2):
    for i in range(4):
        with T.block("C"):
            vt, vi = T.axis.remap("SS", [t, i])
            C[vt, vi] = B[vi]
    for i in range(4):
        with T.block("X"):
            vt = T.axis.opaque(2, t)
            vi = T.axis.spatial(4, i)
            X[vi] = 7
""",
        signature='X: T.Buffer((4,), "int32"), C: T.Buffer((2, 4), "int32")',
        inplace="X",
    )
    refused(
        func,
        "in which block X updates it",
        lambda s: s.compute_inline(s.get_block("B")),
    )


def test_a_consumer_of_what_is_still_summed_up_in_the_loop() -> None:
    func = program(
        """
for i in range(4):
    with T.block("S"):
        vs = T.axis.spatial(1, 0)
        vi = T.axis.reduce(4, i)
        with T.init():
            S[vs] = 0
        S[vs] = S[vs] + A[vi]
    with T.block("B"):
        vi = T.axis.spatial(4, i)
        B[vi] = A[vi]
"""
        + block("C", "C[vi] = B[vi] + S[0]"),
        signature='A: T.Buffer((4,), "int32"), S: T.Buffer((1,), "int32"), '
        'C: T.Buffer((4,), "int32")',
    )
    refused(
        func,
        "in which block S updates it",
        lambda s: s.reverse_compute_inline(s.get_block("C")),
    )


@pytest.mark.parametrize(
    ("between", "last", "message"),
    [
        (
            block("X", "X[vi] = A[vi] * 3"),
            block("C", "C[vi] = B[vi] + X[vi]"),
            "block X, which block C needs, is computed after loop i",
        ),
        (
            block("X", "X[vi] = C[vi] * 3"),
            block("C", "C[vi] = B[vi]"),
            "block X reads what block C overwrites",
        ),
    ],
)
def test_a_consumer_does_not_pass_by_what_has_first_contents(
    between: str, last: str, message: str
) -> None:
    func = program("\n".join((block("B", "B[vi] = A[vi]"), between, last)),
                   signature=THREE, inplace="X, C")  # fmt: skip
    refused(
        func,
        message,
        lambda s: s.reverse_compute_at(s.get_block("C"), *s.get_loops(s.get_block("B"))),
    )


def test_a_reduction_that_would_follow_its_input_backwards() -> None:
    func = program(
        """
for i in range(4):
    with T.block("B"):
        vi = T.axis.spatial(4, 3 - i)
        B[vi] = A[vi]
for k in range(4):
    with T.block("C"):
        vc = T.axis.spatial(1, 0)
        vk = T.axis.reduce(4, k)
        with T.init():
            C[vc] = 0
        C[vc] = C[vc] + B[vk]
"""
    )
    refused(
        func,
        "block C would not start its reduction with its init",
        lambda s: s.reverse_compute_at(s.get_block("C"), *s.get_loops(s.get_block("B"))),
    )


def test_a_part_of_a_reduction_between_others() -> None:
    func = program(
        """
for k in range(2):
    for l in range(2):
        with T.block("C"):
            vc = T.axis.spatial(1, 0)
            vk = T.axis.reduce(4, k * 2 + l)
            with T.init():
                C[vc] = 0
            C[vc] = C[vc] + A[vk]
    with T.block("X"):
        vi = T.axis.spatial(2, k)
        X[vi] = A[vi]
""",
        signature=THREE,
    )
    refused(
        func,
        "loop k of the reduction is shared with other blocks",
        lambda s: s.rfactor(s.get_loops(s.get_block("C"))[1]),
    )


def test_a_unit_has_no_loops_that_repeat_it() -> None:
    func = program(
        """
for i, j in T.grid(4, 2):
    with T.block("C"):
        vi = T.axis.spatial(4, i)
        C[vi] = A[vi]
"""
    )
    refused(
        func,
        "loop j is part of no iteration of block C",
        lambda s: s.blockize(s.get_loops(s.get_block("C"))[1]),
    )


def test_a_unit_has_no_opaque_iterations() -> None:
    func = program(
        """
for i, k in T.grid(2, 4):
    with T.block("C"):
        vi = T.axis.opaque(2, i)
        vk = T.axis.reduce(4, k)
        with T.init():
            C[vi] = 0
        C[vi] = C[vi] + A[vk]
"""
    )
    refused(
        func,
        "block C has opaque iteration variables, which must run in order",
        lambda s: s.blockize(s.get_loops(s.get_block("C"))[0]),
    )


def test_a_sum_under_a_condition_is_not_padded() -> None:
    func = program(
        """
if n < 2:
    for i, k in T.grid(4, 4):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = 0
            C[vi] = C[vi] + A[vk]
""",
        signature='n: T.int64, A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")',
    )
    refused(
        func,
        "block C does not run in all of its iterations",
        lambda s: s.pad_einsum(s.get_block("C"), [3, 3]),
    )


@pytest.mark.parametrize(
    "step",
    [
        lambda s, i: s.split(i, factors=[None, 2]),
        lambda s, i: s.loop_partition(i, at=2),
    ],
    ids=["split", "loop_partition"],
)
def test_stores_outside_of_blocks_stay(step: Callable[[Schedule, Any], Any]) -> None:
    func = program(block("B", "B[vi] = A[vi]") + "\n    C[i] = A[i]")
    refused(
        func,
        r"a statement outside of any block cannot be scheduled: C\[i\] = A\[i\]",
        lambda s: step(s, *s.get_loops(s.get_block("B"))),
    )


def test_a_pipeline_of_a_reduction_whose_first_iteration_is_guarded() -> None:
    func = program(
        """
for k in range(4):
    with T.block("B"):
        vk = T.axis.spatial(2, k // 2)
        B[vk] = A[vk]
    with T.block("C"):
        T.where(k % 2 == 1)
        vc = T.axis.spatial(1, 0)
        vk = T.axis.reduce(2, k // 2)
        with T.init():
            C[vc] = 0
        C[vc] = C[vc] + B[vk]
"""
    )
    refused(
        func,
        "it cannot be shown that the reduction of block C starts with the first iteration of "
        "loop k",
        lambda s: s.double_buffer(s.get_block("B"), *s.get_loops(s.get_block("B"))),
    )


def test_a_pipeline_of_a_reduction_that_runs_backwards() -> None:
    func = program(
        """
for k in range(4):
    with T.block("B"):
        vk = T.axis.spatial(4, 3 - k)
        B[vk] = A[vk]
    with T.block("C"):
        vc = T.axis.spatial(1, 0)
        vk = T.axis.reduce(4, 3 - k)
        with T.init():
            C[vc] = 0
        C[vc] = C[vc] + B[vk]
"""
    )
    refused(
        func,
        "it cannot be shown that the reduction of block C starts with the first iteration of "
        "loop k",
        lambda s: s.double_buffer(s.get_block("B"), *s.get_loops(s.get_block("B"))),
    )


@pytest.mark.parametrize("body", ["pass", "T.prefetch(A[vk])"])
def test_a_reduction_that_stores_nothing_has_no_partial_results(body: str) -> None:
    func = program(f"""
for i, k in T.grid(1, 4):
    with T.block("B"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            B[vi] = 0
        {body}
for i in range(4):
    with T.block("C"):
        vi = T.axis.spatial(4, i)
        C[vi] = B[0]
""")
    refused(
        func,
        "block B must be a reduction by sum",
        lambda s: s.rfactor(s.get_loops(s.get_block("B"))[1]),
    )


@pytest.mark.parametrize(
    "step",
    [
        lambda s: s.rfactor(s.get_loops(s.get_block("C"))[1]),
        lambda s: s.decompose_reduction(s.get_block("C"), s.get_loops(s.get_block("C"))[0]),
        lambda s: s.split_reduction(s.get_loops(s.get_block("C"))[1], 2),
    ],
    ids=["rfactor", "decompose_reduction", "split_reduction"],
)
def test_a_reduction_has_the_same_elements_in_all_iterations(
    step: Callable[[Schedule], Any],
) -> None:
    """The verifier refuses such a program; no step makes one with free variables of it."""
    func = parse("""
def f(A: T.Buffer((4, 4), "int32"), C: T.Buffer((4, 4), "int32")):
    for i, k in T.grid(4, 4):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi, vk] = 0
            C[vi, vk] = C[vi, vk] + A[vi, vk]
""")
    refused(func, "block C stores to other elements of C in each iteration", step)

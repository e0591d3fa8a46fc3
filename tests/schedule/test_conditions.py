"""Steps on programs with conditions and ordered updates, as people write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from ..long import examples
from .machinery import check_compiled, check_meaning, check_random, run
from .programs import loops
from .random_guards import is_verified, with_guards
from .random_programs import a_program


@settings(max_examples=examples(150))
@given(st.integers(0, 1 << 32))
def test_what_the_verifier_accepts_the_interpreter_accepts(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def pick(n: int) -> int:
        return int(rng.integers(n))

    func = with_guards(a_program(pick), pick)
    if is_verified(func):
        run(func, seed, extremes=True)


MASKED = """
def masked(A: T.Buffer((7, 6), "int32"), M: T.Buffer((7, 6), "int32"), C: T.Buffer((7,), "int32"),
           D: T.Buffer((7,), "int32")):
    B = T.alloc((7,), "int32")
    for i, k in T.grid(7, 6):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.where(M[i, k] > 0)
            with T.init():
                B[vi] = 0
            B[vi] = B[vi] + A[vi, vk]
    for i in range(7):
        with T.block("C"):
            vi = T.axis.spatial(7, i)
            C[vi] = B[vi] * 2
    for i in range(7):
        with T.block("D"):
            vi = T.axis.spatial(7, i)
            T.where(M[i, 0] > 0)
            D[vi] = C[vi] + 1
"""
STEPS: dict[str, Callable[[Schedule], Any]] = {
    "decomposed": lambda s: s.decompose_reduction(s.get_block("B"), loops(s, "B")[1]),
    "tail of terms": lambda s: s.split(loops(s, "B")[1], [None, 4]),
    "tail of rows": lambda s: s.split(loops(s, "B")[0], [None, 4]),
    "tail under data": lambda s: s.vectorize(s.split(loops(s, "D")[0], [None, 4])[1]),
    "fused": lambda s: s.split(s.fuse(*loops(s, "B")), [None, 5]),
    "moved": lambda s: s.reverse_compute_at(s.get_block("C"), loops(s, "B")[0]),
    "producer moved": lambda s: s.compute_at(s.get_block("B"), loops(s, "C")[0]),
    "moved under data": lambda s: s.reverse_compute_at(
        s.get_block("D"), s.split(loops(s, "C")[0], [None, 4])[0]
    ),
    "cut": lambda s: s.loop_partition(s.split(loops(s, "D")[0], [None, 4])[0]),
}


@pytest.mark.parametrize("step", STEPS)
def test_conditions_stay_with_what_they_are_about(step: str) -> None:
    func = parse(MASKED)
    sch = Schedule(func)
    STEPS[step](sch)
    assert sch.func is not func
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


NEVER = """
def never(A: T.Buffer((2, 3), "int32"), S: T.Buffer((2,), "int32")):
    for u, i, k in T.grid(1, 2, 3):
        with T.block("S"):
            vu, vi, vk = T.axis.remap("SSR", [u, i, k])
            T.where({where})
            with T.init():
                S[vi] = 0
            S[vi] = S[vi] + A[vi, vk]
"""


@pytest.mark.parametrize("where", ["u >= 1", "i > u", "u < i"])
@pytest.mark.parametrize("others", [0, 5])
def test_elements_left_out_stay_so_where_their_loop_is_part_of_a_longer_one(
    where: str, others: int
) -> None:
    func = parse(NEVER.format(where=where))
    sch = Schedule(func)
    u, i, k = loops(sch, "S")
    sch.reorder(i, u, k)
    if others:
        outer, _ = sch.split(k, [None, others])
        u = sch.fuse(u, outer)
    else:
        u = sch.fuse(u, k)
    sch.decompose_reduction(sch.get_block("S"), u)
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


@pytest.mark.parametrize("where", ["vk >= 3", "vk < 0", "vk > 7", "k > i + 2"])
def test_a_reduction_without_terms_is_its_init(where: str) -> None:
    assert run(parse(NEVER.format(where=where)))["S"].tolist() == [0, 0]


@pytest.mark.parametrize("step", [Schedule.fuse, Schedule.reorder])
def test_a_scheduled_condition_that_never_holds_is_read_again(step: Any) -> None:
    func = parse(NEVER.format(where="u >= 1"))
    sch = Schedule(func)
    u, i, k = loops(sch, "S")
    sch.reorder(i, u, k)
    for _ in range(2):
        step(sch, *loops(sch, "S")[1:])
        again = parse(str(sch.func))
        assert str(again) == str(sch.func)
        check_meaning(func, again)
        if step is Schedule.fuse:
            sch.split(loops(sch, "S")[1], [None, 2])


def test_loops_of_one_iteration_decide_no_first_term() -> None:
    func = parse("""
def rows(A: T.Buffer((7, 2), "int32"), S: T.Buffer((7,), "int32")):
    for i, k in T.grid(7, 2):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = 0
            S[vi] = S[vi] + A[vi, vk]
""")
    sch = Schedule(func)
    inner = sch.split(sch.fuse(*loops(sch, "S")), [4, 1, 4])[2]
    sch.split(inner, [3, None, 1], perfect=False)
    verify(sch.func)
    check_meaning(func, sch.func)


REFUSED: dict[str, tuple[str, Callable[[Schedule], Any]]] = {
    "results that others keep": (
        "block D",
        lambda s: s.cache_write(s.get_block("D"), 0, "global"),
    ),
    "partial results": ("must be a reduction by", lambda s: s.rfactor(loops(s, "B")[1])),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_condition_leaves_out_is_not_made_up(case: str) -> None:
    reason, step = REFUSED[case]
    refused(parse(MASKED), step, reason)


def refused(func: Func, step: Callable[[Schedule], Any], reason: str) -> None:
    sch = Schedule(func)
    with pytest.raises(ScheduleError) as error:
        step(sch)
    assert reason in str(error.value)
    assert sch.func is func


INLINE = """
def masked(A: T.Buffer((4,), "int32"), M: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
    B = T.alloc((4,), "int32")
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi] * 2
    for i in range(4):
        {around}
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                T.where({where})
                C[vi] = B[vi] + 1
"""


@pytest.mark.parametrize(
    ("around", "where", "reason"),
    [
        ("for u in range(1):", "M[i] > 0", "must only store values"),
        ("for u in range(1):", "i > 1", "does not run in all of its iterations"),
        ("if M[i] > 0:", "True", "must only store values"),
        ("if i > 1:", "True", "does not run in all of its iterations"),
    ],
)
def test_a_consumer_that_leaves_elements_out_is_not_inlined(
    around: str, where: str, reason: str
) -> None:
    func = parse(INLINE.format(around=around, where=where))
    verify(func)
    refused(func, lambda s: s.reverse_compute_inline(s.get_block("C")), reason)


def test_an_ordered_update_reads_what_its_earlier_iterations_stored() -> None:
    func = parse("""
def decay(A: T.Buffer((3, 5), "int32"), Z: T.Buffer((3,), "int32")):
    for i in range(3):
        with T.block("start"):
            vi = T.axis.spatial(3, i)
            Z[vi] = 1
    for i, k in T.grid(3, 5):
        with T.block("Z"):
            vi, vk = T.axis.remap("SO", [i, k])
            Z[vi] = Z[vi] // 2 + A[vi, vk]
""")
    verify(func)
    refused(
        func,
        lambda s: s.distinguish_updates(s.get_block("Z"), 0),
        "does not update each element of Z by itself",
    )


def test_an_update_under_a_condition_keeps_the_other_elements() -> None:
    func = parse("""
def some(A: T.Buffer((4,), "int32"), Z: T.Buffer((4,), "int32")):
    for i in range(4):
        with T.block("start"):
            vi = T.axis.spatial(4, i)
            Z[vi] = 1
    for i in range(4):
        with T.block("Z"):
            vi = T.axis.spatial(4, i)
            if A[vi] > 0:
                Z[vi] = Z[vi] * 2
""")
    check_random(check_compiled, func, func)
    refused(
        func,
        lambda s: s.distinguish_updates(s.get_block("Z"), 0),
        "does not update each element of Z by itself",
    )

"""merge, fission, add_unit_loop: statements side by side in one loop or in several."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func
from tilewright.tir.verify import verify

from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled, check_meaning
from .programs import chain, elementwise, loops, matmul, matmul_relu, rowsum, stencil


def lagging(n: int = 16, ahead: int = 0) -> Func:
    """B = A * 2, then C[i] = B[i - 1 + ahead] + B[i], from the first element on."""
    a = te.placeholder((n,), "int32", name="A")
    b = te.compute((n,), lambda i: a[i] * 2, name="B")
    c = te.compute(
        (n,), lambda i: b[te.minimum(te.maximum(i - 1 + ahead, 0), n - 1)] + b[i], name="C"
    )
    return te.func([a, c], name="lagging")


def planes(n: int = 6, m: int = 8) -> Func:
    """B = A + 1, C = B * 2, D = C - A, all of two dimensions."""
    a = te.placeholder((n, m), "int32", name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((n, m), lambda i, j: b[i, j] * 2, name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] - a[i, j], name="D")
    return te.func([a, d], name="planes")


def test_merge_of_a_chain(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        merged = sch.merge(loops(sch, "B")[0], loops(sch, "C")[0])
        sch.parallel(merged)

    golden("merge/chain", chain(), script)


def test_merge_of_three_nests_two_deep(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        inner = [loops(sch, name)[1] for name in "BCD"]
        sch.vectorize(sch.merge(*inner))

    golden("merge/three", planes(), script)


def test_merge_of_outer_loops_only(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, j, r = loops(sch, "C")
        sch.reorder(i, r, j)
        sch.merge(i, loops(sch, "D")[0])

    golden("merge/outer", matmul_relu(), script)


def test_merge_where_a_later_nest_lags_behind(golden: Golden) -> None:
    golden("merge/lag", lagging(), lambda s: s.merge(loops(s, "B")[0], loops(s, "C")[0]))


def test_fission_of_what_compute_at_made(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, _ = loops(sch, "D")
        sch.compute_at(sch.get_block("C"), i)
        sch.compute_at(sch.get_block("B"), i)
        first, *others = sch.fission(i)
        assert first is i
        assert len(others) == 2

    golden("fission/all", planes(), script)


def test_fission_behind_a_block(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, _ = loops(sch, "D")
        b = sch.get_block("B")
        sch.compute_at(sch.get_block("C"), i)
        sch.compute_at(b, i)
        sch.parallel(i)
        sch.fission(i, [b])

    golden("fission/after", planes(), script)


def test_fission_of_a_reduction_from_its_init(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, r = loops(sch, "S")
        sch.decompose_reduction(sch.get_block("S"), r)
        sch.fission(i)

    golden("fission/init", rowsum(), script)


def test_fission_undoes_merge() -> None:
    sch = Schedule(chain())
    before = str(sch.func)
    i = sch.merge(loops(sch, "B")[0], loops(sch, "C")[0])
    assert str(sch.func) != before
    sch.fission(i)
    assert str(sch.func).replace("i_1", "i") == before


def test_unit_loops(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        i, _ = loops(sch, "B")
        outer = sch.add_unit_loop(i)
        inner = sch.add_unit_loop(sch.get_block("B"))
        sch.bind(outer, "blockIdx.x")
        sch.unroll(inner)

    golden("add_unit_loop/loop_and_block", elementwise(), script)


def test_steps_on_nests_are_right_when_compiled() -> None:
    sch = Schedule(planes())
    i = sch.merge(loops(sch, "B")[0], loops(sch, "C")[0], loops(sch, "D")[0])
    sch.add_unit_loop(i)
    sch.fission(i, [sch.get_block("B")])
    verify(sch.func)
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


def test_loops_of_symbolic_extents() -> None:
    sch = Schedule(planes(), symbolic=True)
    i, _ = loops(sch, "B")
    k, _ = loops(sch, "C")
    t = sch.sample_perfect_tile(i, n=2)
    i0, _ = sch.split(i, factors=t)
    k0, _ = sch.split(k, factors=t)
    sch.fission(sch.merge(i0, k0))
    assert len(loops(sch, "C")) == 3


def test_extents_that_may_differ_become_a_constraint() -> None:
    a = te.placeholder((12,), "int32", name="A")
    b = te.compute((12,), lambda i: a[i] + 1, name="B")
    c = te.compute((12,), lambda i: a[i] * 2, name="C")
    sch = Schedule(te.func([a, b, c], name="two"), symbolic=True)
    (i,), (k,) = loops(sch, "B"), loops(sch, "C")
    i0, _ = sch.split(i, factors=sch.sample_perfect_tile(i, n=2))
    k0, _ = sch.split(k, factors=sch.sample_perfect_tile(k, n=2))
    sch.merge(i0, k0)
    assert sch.space is not None
    assert any("loop {0} has {1} iterations" in c.message for c in sch.space.constraints)


def test_a_nest_that_reads_ahead_is_not_merged() -> None:
    sch = Schedule(lagging(ahead=2))
    with pytest.raises(ScheduleError):
        sch.merge(loops(sch, "B")[0], loops(sch, "C")[0])


def test_a_sum_is_not_merged_with_what_needs_all_of_it() -> None:
    sch = Schedule(matmul_relu(8, 12, 8))
    i, _, r = loops(sch, "C")
    sch.reorder(r, i)
    with pytest.raises(ScheduleError):
        sch.merge(r, loops(sch, "D")[0])


def test_a_loop_that_hands_values_back_is_not_cut() -> None:
    sch = Schedule(stencil(16))
    (i,) = loops(sch, "C")
    i0, _ = sch.split(i, factors=[None, 2])
    sch.compute_at(sch.get_block("B"), i0)
    with pytest.raises(ScheduleError):
        sch.fission(i0)


def test_what_merge_asks_of_loops() -> None:
    sch = Schedule(planes())
    (b0, b1), (c0, c1), (d0, _) = (loops(sch, name) for name in "BCD")
    with refused(ScheduleError, "1"):
        sch.merge(b0)
    with refused(ScheduleError, "i, i"):
        sch.merge(b0, b0)
    with pytest.raises(ScheduleError):
        sch.merge(b0, c1)
    with pytest.raises(ScheduleError):
        sch.merge(b0, d0)
    with pytest.raises(ScheduleError):
        sch.merge(c0, b0)
    with pytest.raises(ScheduleError):
        sch.merge(b0, b1)
    sch.parallel(c0)
    with pytest.raises(ScheduleError):
        sch.merge(b0, c0)


def test_loops_to_merge_have_one_extent() -> None:
    sch = Schedule(stencil(18))
    with pytest.raises(ScheduleError) as refusal:
        sch.merge(loops(sch, "B")[0], loops(sch, "C")[0])
    assert refusal.value.place.name == "i"


def test_loops_of_one_nest_are_not_merged_with_another_loop_of_it() -> None:
    sch = Schedule(planes())
    i, j = loops(sch, "C")
    sch.compute_at(sch.get_block("B"), i)
    b = loops(sch, "B")[-1]
    with refused(ScheduleError, "j"):
        sch.merge(b, j, loops(sch, "D")[0])


def test_nests_are_merged_from_their_outermost_loops_on() -> None:
    sch = Schedule(planes())
    i, j = loops(sch, "C")
    sch.compute_at(sch.get_block("B"), i)
    with pytest.raises(ScheduleError):
        sch.merge(j, loops(sch, "D")[1])


@pytest.mark.parametrize("step", ["merge", "fission"])
def test_bound_and_annotated_loops_stay(step: str) -> None:
    def apply(sch: Schedule) -> None:
        if step == "merge":
            sch.merge(loops(sch, "B")[0], loops(sch, "C")[0])
        else:
            sch.fission(loops(sch, "C")[0])

    sch = Schedule(planes())
    sch.bind(loops(sch, "C")[0], "blockIdx.x")
    loop = "loop i of block C" if step == "merge" else "loop i"
    with pytest.raises(ScheduleError, match=f"{loop} is bound to a thread axis; {step} it before"):
        apply(sch)
    sch = Schedule(planes())
    sch.annotate(loops(sch, "C")[0], "key", 1)
    with pytest.raises(ScheduleError):
        apply(sch)


def test_what_fission_asks_of_its_cuts() -> None:
    sch = Schedule(planes())
    i, _ = loops(sch, "C")
    with pytest.raises(ScheduleError):
        sch.fission(i)
    sch.compute_at(sch.get_block("B"), i)
    with pytest.raises(ScheduleError):
        sch.fission(i, [sch.get_block("D")])
    with pytest.raises(ScheduleError):
        sch.fission(i, [sch.get_block("C")])
    with pytest.raises(ScheduleError):
        sch.fission(i, [])


def test_no_unit_loop_in_a_vectorized_one() -> None:
    sch = Schedule(elementwise())
    sch.vectorize(loops(sch, "B")[1])
    with pytest.raises(ScheduleError):
        sch.add_unit_loop(sch.get_block("B"))


def test_unit_loops_do_not_nest_without_end() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError):
        for _ in range(64):
            sch.add_unit_loop(sch.get_block("C"))
    assert len(loops(sch, "C")) == 64

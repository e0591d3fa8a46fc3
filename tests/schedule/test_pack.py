"""`pack` and `transform_layout`."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.schedule.find import find_block
from tilewright.tir import te
from tilewright.tir.ir import Const, Select, Store
from tilewright.tir.verify import verify

from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled, check_meaning
from .programs import chain, loops, matmul, matmul_relu


def test_panels(golden: Golden) -> None:
    golden("pack/panels", matmul(), lambda s: s.pack(s.get_block("C"), 1, "BAb", [4]))


def test_padding(golden: Golden) -> None:
    golden("pack/padding", matmul(), lambda s: s.pack(s.get_block("C"), 1, "BAb", [5]))


@pytest.mark.parametrize(("limits", "padding"), [((3, 9), 3), ((-9, -2), -3), ((-2, 5), 0)])
def test_padding_is_within_the_range_of_values(limits: tuple[int, int], padding: int) -> None:
    p = te.placeholder((6,), "int32", name="P", value_range=limits)
    a = te.placeholder((limits[1] - limits[0],), "int32", name="A")
    b = te.compute((6,), lambda i: a[p[i].astype("int64") - limits[0]], name="B")
    sch = Schedule(te.func([p, a, b], name="gather"))
    block = sch.get_block("B")
    reads = list(dict.fromkeys(r.buffer.name for r in find_block(sch.func, block).reads))
    packed = sch.pack(block, reads.index("P"), "Aa", [4])
    verify(sch.func)
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)
    (made,) = sch.func.allocs
    assert made.value_range == limits
    body = find_block(sch.func, packed).body
    assert isinstance(body, Store)
    assert isinstance(body.value, Select)
    assert isinstance(body.value.other, Const)
    assert body.value.other.value == padding


def test_transpose(golden: Golden) -> None:
    golden("pack/transpose", matmul(), lambda s: s.pack(s.get_block("C"), 0, "BA", []))


def test_two_inner_parts(golden: Golden) -> None:
    golden("pack/tiles", matmul(), lambda s: s.pack(s.get_block("C"), 0, "ABba", [2, 3]))


def test_pack_at_a_loop(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("C")
        packed = sch.pack(block, 1, "BAb", [4])
        i, j, k = sch.get_loops(block)
        j0, j1 = sch.split(j, factors=[None, 4])
        sch.reorder(j0, i, k, j1)
        sch.compute_at(packed, j0)

    golden("pack/at", matmul(), script)


def test_layout_of_an_intermediate(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("C")
        sch.transform_layout(block, ("write", 0), lambda i, j: (j // 4, i, j % 4))

    golden("transform_layout/panels", matmul_relu(), script)


def test_layout_by_a_mix_of_indices(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        sch.transform_layout(sch.get_block("D"), ("read", 0), lambda i, j: (i * 12 + j,))

    golden("transform_layout/flat", matmul_relu(), script)


@pytest.mark.parametrize("layout", ["AB1", "AAB", "A", "BAbb", "BAc"])
def test_layout_that_does_not_name_the_dimensions(layout: str) -> None:
    sch = Schedule(matmul())
    with refused(ScheduleError, "2", "B"):
        sch.pack(sch.get_block("C"), 1, layout, [4])


def test_number_of_factors() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError):
        sch.pack(sch.get_block("C"), 1, "BAb", [4, 2])


def test_factor_that_is_not_positive() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError):
        sch.pack(sch.get_block("C"), 1, "BAb", [0])


def test_written_in_the_same_nest() -> None:
    sch = Schedule(chain())
    sch.compute_at(sch.get_block("B"), loops(sch, "C")[0])
    with pytest.raises(ScheduleError):
        sch.pack(sch.get_block("C"), 0, "A", [])


def test_layout_of_a_parameter() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError):
        sch.transform_layout(sch.get_block("C"), ("read", 0), lambda i, j: (j, i))


def test_map_that_loses_elements() -> None:
    sch = Schedule(matmul_relu())
    with pytest.raises(ScheduleError):
        sch.transform_layout(sch.get_block("C"), ("write", 0), lambda i, j: (i // 2, j // 2))


def test_map_of_open_sizes_that_no_rule_covers() -> None:
    sch = Schedule(chain(), symbolic=True)
    block = sch.get_block("C")
    sch.pack(block, 0, "Aa", [sch.sample_categorical([2, 4])])
    with pytest.raises(ScheduleError) as refusal:
        sch.transform_layout(block, ("read", 0), lambda i, j: (i * 5 + j,))
    assert "use indices of the forms i, i // c and i % c" in str(refusal.value)


def test_map_by_an_open_size() -> None:
    sch = Schedule(chain(), symbolic=True)
    t = sch.sample_categorical([2, 4])
    with refused(ScheduleError, "B"):
        sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i: (i + t,))


def test_map_of_many_elements_that_no_rule_covers() -> None:
    sch = Schedule(chain(1 << 23))
    with pytest.raises(ScheduleError):
        sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i: (i + 1,))


def test_map_of_another_rank() -> None:
    sch = Schedule(matmul_relu())
    with pytest.raises(ScheduleError):
        sch.transform_layout(sch.get_block("C"), ("write", 0), lambda i: (i,))


def test_map_below_zero() -> None:
    sch = Schedule(matmul_relu())
    with pytest.raises(ScheduleError):
        sch.transform_layout(sch.get_block("C"), ("write", 0), lambda i, j: (i - 1, j))


def test_what_is_no_buffer() -> None:
    sch = Schedule(matmul_relu())
    with pytest.raises(ScheduleError):
        sch.transform_layout(sch.get_block("C"), ("both", 0), lambda i, j: (j, i))

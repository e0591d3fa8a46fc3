"""Names of the program survive the steps that make loops, and are in no record."""

from __future__ import annotations

import tilewright as tw
from tilewright import te
from tilewright.schedule import Schedule
from tilewright.schedule.loop_names import fused_name


def conv1d(ic: str = "ic", k: str = "k") -> tw.Func:
    x = te.placeholder((2, 8, 66), name="x")
    w = te.placeholder((16, 8, 3), name="w")
    channel, tap = te.reduce_axis(8, name=ic), te.reduce_axis(3, name=k)

    def value(n: te.Expr, oc: te.Expr, l: te.Expr) -> te.Expr:  # noqa: E741 - as users write it
        return te.sum(x[n, channel, l + tap] * w[oc, channel, tap], axis=(channel, tap))

    return te.func([x, w, te.compute((2, 16, 64), value, name="y")], name="conv1d")


def names(sch: Schedule, block: str = "y") -> list[str]:
    return [loop.name for loop in sch.get_loops(sch.get_block(block))]


def test_loops_of_a_layout_are_called_after_what_they_are_of() -> None:
    sch = Schedule(conv1d())
    y = sch.get_block("y")
    sch.transform_block_layout(y, lambda a, b, c, d, e: (c, a * 16 + b, e, d // 2, d % 2))
    assert names(sch) == ["l", "n_oc", "k", "ic_0", "ic_1"]
    sch.transform_block_layout(y, lambda a, b, c, d, e: (b, a, c, d, e))
    assert names(sch) == ["n_oc", "l", "k", "ic_0", "ic_1"]


def test_placed_blocks_and_copies_have_the_names_of_the_program() -> None:
    sch = Schedule(conv1d())
    outer = sch.get_loops(sch.get_block("y"))[0]
    copy = sch.cache_write(sch.get_block("y"), 0, "global")
    sch.reverse_compute_at(copy, outer)
    assert [loop.name for loop in sch.get_loops(copy)][1:] == ["n", "oc", "l"]


def test_fused_loops_name_each_once() -> None:
    assert fused_name(["i", "j"]) == "i_j_fused"
    assert fused_name(["i_j_fused", "k"]) == "i_j_k_fused"
    assert len(fused_name([f"long_name_{n}" for n in range(9)])) < 40


def test_names_are_in_no_trace() -> None:
    traces = []
    for func in (conv1d(), conv1d("a", "b")):
        sch = Schedule(func)
        loops = sch.get_loops(sch.get_block("y"))
        sch.split(sch.fuse(*loops[:3]), factors=[None, 8])
        traces.append(sch.trace.to_json(notes=False))
    assert traces[0] == traces[1]

"""Copies between blocks of one loop nest: `cache_read`, `cache_write` and `reindex` there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .conftest import Golden
from .machinery import check_compiled, check_meaning, check_replays
from .programs import chain, loops, matmul_relu, stencil

Step = Callable[[Any], Any]

STEPS: dict[str, Step] = {
    "cache_read": lambda s: s.cache_read("C", 0, "local"),
    "reindex read": lambda s: s.reindex("C", ("read", 0)),
    "reindex_cache_read": lambda s: s.reindex_cache_read(
        "C", 0, "local", lambda i: (i // 4, i % 4)
    ),
    "cache_write": lambda s: s.cache_write("B", 0, "local"),
    "reindex write": lambda s: s.reindex("B", ("write", 0)),
    "reindex_cache_write": lambda s: s.reindex_cache_write(
        "B", 0, "local", lambda i: (i % 4, i // 4)
    ),
}


def tiles(
    extra: str = "",
    read: str = "B[vi] + 1",
    write: str = "B[vi] = A[vi] * 3",
    later: str = "B[15 - vi]",
) -> Func:
    """B in tiles of four, of which C reads what is there by then, and D all of it later."""
    return parse(f"""
@tw.script
def tiles(A: T.Buffer((16,), "int32"), C: T.Buffer((16,), "int32"), D: T.Buffer((16,), "int32")):
    B = T.alloc((16,), "int32")
    for i in range(4):
        for x in range(4):
            with T.block("B"):
                vi = T.axis.spatial(16, i * 4 + x)
                {write}
        {extra}
        for x in range(4):
            with T.block("C"):
                vi = T.axis.spatial(16, i * 4 + x)
                C[vi] = {read}
    for i in range(16):
        with T.block("D"):
            vi = T.axis.spatial(16, i)
            D[vi] = {later}
""")


def correct(sch: Schedule) -> None:
    verify(sch.func)
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)
    check_replays(sch.original, sch)


def test_read(golden: Golden) -> None:
    golden("cache_read/nest", tiles(), STEPS["cache_read"])


def test_write(golden: Golden) -> None:
    golden("cache_write/nest", tiles(), STEPS["cache_write"])


def test_read_by_a_map(golden: Golden) -> None:
    golden("reindex_cache_read/nest", tiles(), STEPS["reindex_cache_read"])


def test_write_by_a_map(golden: Golden) -> None:
    golden("reindex_cache_write/nest", tiles(), STEPS["reindex_cache_write"])


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("first", ["serial", "parallel", "unroll"])
def test_tiles_of_any_kind(step: Step, first: str) -> None:
    sch: Any = Schedule(tiles())
    if first != "serial":
        getattr(sch, first)(loops(sch, "C")[0])
    step(sch)
    correct(sch)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_producer_that_was_moved(step: Step) -> None:
    sch: Any = Schedule(chain())
    sch.compute_at("B", loops(sch, "C")[0])
    step(sch)
    correct(sch)


@pytest.mark.parametrize("step", ["cache_read", "cache_write", "reindex write"])
def test_windows_that_overlap(step: str) -> None:
    sch: Any = Schedule(stencil())
    sch.compute_at("B", sch.split(loops(sch, "C")[0], factors=[None, 4])[0])
    STEPS[step](sch)
    correct(sch)


@pytest.mark.parametrize("step", ["cache_read", "reindex", "cache_write"])
def test_sums_of_a_tile(step: str) -> None:
    sch: Any = Schedule(matmul_relu(4, 6, 3))
    sch.compute_at("C", loops(sch, "D")[0])
    if step == "cache_write":
        sch.cache_write("C", 0, "global")
        sch.decompose_reduction("C", sch.get_loops("C")[-1])
    elif step == "cache_read":
        sch.cache_read("D", 0, "global")
    else:
        sch.reindex("D", ("read", 0))
    correct(sch)


def test_all_who_read_a_copy(golden: Golden) -> None:
    def script(sch: Any) -> None:
        copy = sch.cache_read("C", 0, "global", consumers=["D"])
        sch.cache_write(copy, 0, "local")

    golden("cache_read/nest_and_later", tiles(), script)


@pytest.mark.parametrize("step", ["read_at", "write_at"])
def test_at_the_loop_that_both_are_in(step: str) -> None:
    sch: Any = Schedule(tiles())
    block = "C" if step == "read_at" else "B"
    copy = getattr(sch, step)(loops(sch, block)[0], block, 0, "local")
    assert loops(sch, block)[0] in sch.get_loops(copy)
    correct(sch)


BLOCK = """
        for x in range(4):
            with T.block("{0}"):
                vi = T.axis.spatial(16, i * 4 + x)
                {1}"""


def in_part(condition: str, read: str) -> Func:
    """B where a condition holds, of which C and D read some."""
    write = f"T.where({condition})\n                B[vi] = A[vi] * 3"
    return tiles(read=f"B[{read}]", write=write, later="B[0]")


@pytest.mark.parametrize("step", ["cache_read", "cache_write"])
def test_a_part_of_a_tile(step: str) -> None:
    sch: Any = Schedule(in_part("x < 2", "vi - vi % 4"))
    STEPS[step](sch)
    correct(sch)


@pytest.mark.parametrize(
    ("func", "steps", "words"),
    [
        (tiles(BLOCK.format("E", "B[vi] = A[vi] * 5")), ["cache_read"], "does not follow"),
        (tiles(BLOCK.format("E", "B[vi] = A[vi] * 5")), ["cache_write"], "also written by block E"),
        (in_part("x % 2 == 0", "vi - vi % 2"), STEPS, "beyond|does not|not run in all"),
    ],
    ids=["overwritten, read", "overwritten, write", "every other element"],
)
def test_what_has_no_copy(func: Func, steps: list[str], words: str) -> None:
    for step in steps:
        sch: Any = Schedule(func)
        with pytest.raises(ScheduleError, match=words):
            STEPS[step](sch)
        assert sch.func is func


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_what_keeps_a_window_only(step: Step) -> None:
    sch: Any = Schedule(stencil())
    sch.compute_at("B", loops(sch, "C")[0])
    sch.rolling_buffer("B", 0)
    with pytest.raises(ScheduleError):
        step(sch)
    correct(sch)


@pytest.mark.parametrize("step", ["cache_read", "cache_write"])
def test_lanes_have_no_loops_inside(step: str) -> None:
    sch: Any = Schedule(chain())
    i = loops(sch, "C")[0]
    sch.compute_at("B", i)
    sch.unroll(sch.get_loops("B")[-1])
    sch.vectorize(i)
    with pytest.raises(ScheduleError):
        STEPS[step](sch)

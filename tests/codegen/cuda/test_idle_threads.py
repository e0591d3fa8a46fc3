"""Loops that few threads of a launch run are warned of, with the step that helps."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

import tilewright as tw
from tilewright import ops
from tilewright.autotune import examine as examining
from tilewright.codegen.cuda.nvcc import nvcc
from tilewright.codegen.passes.idle_threads import idle_threads
from tilewright.schedule import Schedule, Trace
from tilewright.tir.ir import Func, Var

GPU = "cuda -arch=sm_90a"


def copied(*, height: int = 4, bound: int = 2, fused: bool = True) -> Schedule:
    """Rows reversed through shared memory, whose copy has its two last axes bound so far.

    Each block has a tile of 8 rows and 32 columns, and `height` * 32 threads.
    """
    x = tw.te.placeholder((64, 32), name="X")
    func = tw.te.func([x, tw.te.compute((64, 32), lambda i, j: x[i, 31 - j], name="Y")], name="f")
    sch = Schedule(func)
    block = sch.get_block("Y")
    copy = sch.cache_read(block, 0, "shared")
    i, j = sch.get_loops(block)
    tiles, rows = sch.split(i, factors=[None, 8])
    sch.compute_at(copy, tiles)
    sch.bind(tiles, "blockIdx.x")
    _in_threads(sch, [rows, j], height)
    if bound:
        _in_threads(sch, sch.get_loops(copy)[-2:], height, bound)
    elif fused:
        sch.fuse(*sch.get_loops(copy)[-2:])
    return sch


def _in_threads(sch: Schedule, loops: Sequence[Var], height: int, bound: int = 2) -> None:
    _, y, x = sch.split(sch.fuse(*loops), factors=[None, height, 32])
    sch.bind(x, "threadIdx.x")
    if bound == 2:
        sch.bind(y, "threadIdx.y")


def test_a_copy_that_is_bound_has_no_remark() -> None:
    assert idle_threads(copied().func) == ()


def test_an_unbound_copy_is_named_with_its_launch_and_the_step() -> None:
    (remark,) = idle_threads(copied(bound=0, fused=False).func)
    assert remark == (
        "X_shared: 1 of the 128 threads of a block run its 256 iterations of ax0, ax1 in the "
        "launch over i_0, as these loops are not bound to threadIdx.y and threadIdx.x: "
        "_, ty, tx = sch.split(sch.fuse(ax0, ax1), factors=[None, 4, 32]); "
        'sch.bind(ty, "threadIdx.y"); sch.bind(tx, "threadIdx.x")'
    )


def test_the_step_that_is_named_helps() -> None:
    sch = copied(bound=0, fused=False)
    (remark,) = idle_threads(sch.func)
    copy = sch.get_loops(sch.get_block("X_shared"))
    names = {"sch": sch, **{loop.name: loop for loop in copy}}
    exec(remark.split(": ", 2)[2], names)
    assert idle_threads(sch.func) == ()


def test_a_copy_that_lacks_one_axis_runs_in_some_threads() -> None:
    (remark,) = idle_threads(copied(bound=1).func)
    assert remark.startswith("X_shared: 32 of the 128 threads of a block run its 8 iterations")
    assert remark.endswith('factors=[None, 4]); sch.bind(ty, "threadIdx.y")')
    assert idle_threads(copied(bound=1, height=1).func) == ()


def test_what_threads_hold_in_part_is_combined_by_all() -> None:
    """The rule's own step, an unbound reduction beside phases, is for shuffles."""
    sch = Schedule(ops.reduction_func("sum", 8, 64))
    block = sch.get_block("Y")
    _, lanes = sch.split(sch.get_loops(block)[1], factors=[None, 32])
    partial = sch.rfactor(lanes, 1)
    sch.set_scope(partial, 0, "shared")
    row = sch.get_loops(block)[0]
    sch.compute_at(partial, row)
    sch.bind(row, "blockIdx.x")
    sch.bind(sch.get_loops(partial)[-2], "threadIdx.x")
    assert idle_threads(sch.func) == ()


@pytest.fixture
def compiler() -> None:
    try:
        nvcc()
    except tw.BuildError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("compiler")
def test_builds_warn_also_from_the_cache(caplog: pytest.LogCaptureFixture) -> None:
    slow = copied(bound=0)
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "tilewright.building.build"):
            tw.build(slow, target=GPU)
        (record,) = caplog.records
        assert record.getMessage().startswith("f: X_shared: 1 of the 128 threads")
    caplog.clear()
    tw.build(copied(), target=GPU)
    assert not caplog.records


@pytest.mark.usefixtures("compiler")
def test_candidates_that_are_checked_carry_remarks(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = copied(bound=0)

    def applied(trace: Trace, func: Func) -> Func:
        del trace, func
        return slow.func

    monkeypatch.setattr(examining, "_applied", applied)
    for e in examining.examine(slow.original, GPU, candidates=1):
        assert (e.ran, e.problems) == ("emulated", ())
        (remark,) = e.remarks
        assert remark in examining.as_json(e)["remarks"]

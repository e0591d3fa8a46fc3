"""Loops and blocks are found where they are."""

from __future__ import annotations

import pytest

import tilewright as tw
from tilewright import ops
from tilewright.schedule.find import blocks_in, find_path, nests_in
from tilewright.tir.ir import For

PROGRAMS = {
    "matmul": ops.matmul_func(8, 8, 8),
    "softmax": ops.softmax_func(8, 16),
    "layer_norm": ops.layer_norm_func(4, 8),
}


def tiled(func: tw.Func) -> tw.Func:
    """Tails of tiles have conditions around their blocks."""
    sch = tw.Schedule(func)
    for block in blocks_in(func.body):
        sch.split(sch.get_loops(sch.get_block(block.label.name))[0], [None, 3])
    return sch.func


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("scheduled", [False, True])
def test_nests_are_the_loops_on_the_way_to_blocks(name: str, scheduled: bool) -> None:
    func = tiled(PROGRAMS[name]) if scheduled else PROGRAMS[name]
    nests = list(nests_in(func.body))
    assert [block for block, _ in nests] == list(blocks_in(func.body))
    for block, loops in nests:
        path = find_path(func.body, block.label) or ()
        assert loops == tuple(s for s in path if type(s) is For)
        assert loops

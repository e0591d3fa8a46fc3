"""How blocks use their inputs and outputs, as the rules see it."""

from __future__ import annotations

from tilewright.autotune.rules.access_patterns import inputs_of, outputs_of
from tilewright.schedule import Schedule
from tilewright.schedule.find import find_block
from tilewright.tir.parser import parse

TWICE = """
@tw.script
def f(A: T.Buffer((9,), "float32"), B: T.Buffer((8,), "float32"),
      C: T.Buffer((8, 2), "float32"), D: T.Buffer((8, 2), "float32")):
    U = T.alloc((8, 2), "float32")
    V = T.alloc((8, 2), "float32")
    for i in range(8):
        with T.block("b"):
            x = T.axis.spatial(8, i)
            U[x, 0] = A[x] + A[x + 1]
            U[x, 1] = B[x]
            V[x, 0] = B[x]
            V[x, 1] = A[x]
    for i, j in T.grid(8, 2):
        with T.block("c"):
            x = T.axis.spatial(8, i)
            y = T.axis.spatial(2, j)
            C[x, y] = U[x, y]
            D[x, y] = V[x, y]
"""


def test_buffers_are_numbered_as_in_steps_whatever_regions_they_have() -> None:
    sch = Schedule(parse(TWICE))
    label = sch.get_block("b")
    block = find_block(sch.func, label)
    assert len(block.reads) > len(inputs_of(block)) == 2
    assert len(block.writes) > len(outputs_of(block)) == 2
    for n, out in enumerate(outputs_of(block)):
        before = set(sch.func.allocs)
        sch.set_scope(label, n, "local")
        assert before - set(sch.func.allocs) == {out.buffer}
    for n, source in enumerate(inputs_of(block)):
        copy = sch.cache_read(label, n, "global")
        assert {r.buffer for r in find_block(sch.func, copy).reads} == {source.buffer}

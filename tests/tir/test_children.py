"""The children of nodes are those that rewrites meet, in their order."""

from __future__ import annotations

from typing import Any

from tilewright.tir.parser import parse
from tilewright.tir.visit import _LISTED, CHILDREN, children, walk

from .random_programs import random_func

VECTORS = """
@tw.script
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "int32"), n: T.int32):
    for i in T.unrolled(2):
        T.store(A[T.ramp(0, 1, 4)], T.load(A[T.ramp(4, 1, 4)],
            mask=T.ramp(0, 1, 4) < T.broadcast(3, 4)), mask=T.ramp(0, 1, 4) < T.broadcast(3, 4))
        A[i] = T.cast("float32", B[i]) + A[i + 1]
        T.barrier("block")
"""


def met(node: Any) -> list[Any]:
    found: list[Any] = []

    def see(child: Any) -> Any:
        found.append(child)
        return child

    CHILDREN[type(node)](node, see)
    return found


def test_children_are_what_rewrites_meet() -> None:
    kinds = set[type]()
    for func in (parse(VECTORS), *map(random_func, range(8))):
        for node in walk(func):
            kinds.add(type(node))
            assert [*map(id, children(node))] == [*map(id, met(node))]
    assert kinds.issuperset(_LISTED)

"""What may differ between threads of a block, and between those of a warp."""

from __future__ import annotations

import pytest

from tilewright.codegen.passes.launches import Varying, launches_of
from tilewright.codegen.passes.rewrite import statements
from tilewright.tir.ir import BarrierScope, If
from tilewright.tir.parser import parse

BLOCK, WARP = BarrierScope.BLOCK, BarrierScope.WARP


@pytest.mark.parametrize(
    ("condition", "threads", "varies"),
    [
        ("b < 3", 32, set()),
        ("k < n", 32, set()),
        ("same < 9", 32, set()),
        ("ty < 2", 32, {BLOCK}),
        ("row < 2", 32, {BLOCK}),
        ("ty < 2", 64, {BLOCK}),
        ("ty < 2", 16, {BLOCK, WARP}),
        ("row < 2", 48, {BLOCK, WARP}),
        ("tx < 2", 32, {BLOCK, WARP}),
        ("tx + ty < 2", 1, {BLOCK, WARP}),
        ("tx + k < 2", 1, set()),
        ("element < 1.0", 32, {BLOCK, WARP}),
        ("A[0] < 1.0", 32, {BLOCK, WARP}),
    ],
)
def test_conditions(condition: str, threads: int, varies: set[BarrierScope]) -> None:
    func = parse(
        f"""
def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), n: T.int64):
    for b in T.thread("blockIdx.x", 4):
        for ty in T.thread("threadIdx.y", 4):
            for tx in T.thread("threadIdx.x", {threads}):
                for k in range(8):
                    with T.let(b + k) as same:
                        with T.let(ty + same) as row:
                            with T.let(A[same]) as element:
                                if {condition}:
                                    B[0] = element
""".lstrip()
    )
    (launch,) = launches_of(func)
    (branch,) = [s for s in statements(launch.code) if type(s) is If]
    varying = Varying(launch)
    assert {scope for scope in BarrierScope if varying(branch.cond, scope)} == varies

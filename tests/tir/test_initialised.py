"""Reads that are shown to find stored elements."""

from __future__ import annotations

import pytest

from tilewright.base.errors import VerifyError
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify


@pytest.mark.parametrize(
    ("store", "read", "right"),
    [
        ("vi", "P[vi] + 1", True), ("7 - vi", "6 - P[vi]", True),
        ("vi", "T.int64(Q[vi]) + 1", True),
        ("vi", "P[vi] + 2", False), ("7 - vi", "5 - P[vi]", False), ("vi", "P[3 - vi] + 1", False),
    ],
)  # fmt: skip
def test_conditions_on_data_bound_the_indices_that_they_make(
    store: str, read: str, right: bool
) -> None:
    func = parse(f"""
@tw.script
def picked(
    A: T.Buffer((5,), "int32"),
    P: T.Buffer((4,), "int64", value_range=(0, 5)),
    Q: T.Buffer((4,), "int32", value_range=(0, 5)),
    S: T.Buffer((4,), "int32"),
):
    B = T.alloc((8,), "int32")
    for i, j in T.grid(3, 2):
        with T.block("B"):
            vi = T.axis.spatial(5, i * 2 + j)
            T.where(i * 2 + j < 5)
            B[{store}] = A[vi]
    for i in range(4):
        with T.block("S"):
            vi = T.axis.spatial(4, i)
            S[vi] = T.select((P[vi] < 4) & (Q[vi] < 4), B[{read}], 0)
""")
    if right:
        verify(func)
    else:
        with pytest.raises(VerifyError):
            verify(func)


@pytest.mark.parametrize(
    ("dtype", "added", "below"),
    [("uint8", 252, 4), ("int8", 124, 0), ("int32", 2**31 - 4, 0), ("uint32", 2**32 - 4, 4)],
)
def test_conditions_on_what_wraps_around_bound_nothing(dtype: str, added: int, below: int) -> None:
    func = parse(f"""
@tw.script
def picked(
    Q: T.Buffer((8,), "{dtype}", value_range=(0, 8)), X: T.Buffer((8,), "float32"),
    Y: T.Buffer((8,), "float32"),
):
    B = T.alloc((8,), "float32")
    for i in range(4):
        B[i] = X[i]
    for i in range(8):
        Y[i] = T.select(Q[i] + T.{dtype}({added}) < T.{dtype}({below}), B[T.int64(Q[i])], 0.0)
""")
    with pytest.raises(VerifyError):
        verify(func)


@pytest.mark.parametrize("place", ["{}", "7 - {}", "{} + 2"])
def test_conditions_that_are_stored_again_in_each_iteration(place: str) -> None:
    stored, read = place.format("vj"), place.format("vi")
    verify(
        parse(f"""
@tw.script
def guarded(A: T.Buffer((3, 4), "int32"), M: T.Buffer((3,), "int32"), S: T.Buffer((3,), "int32")):
    C = T.alloc((8,), "bool")
    for i, k in T.grid(3, 4):
        for j in range(1):
            with T.block("C"):
                vj = T.axis.spatial(3, i + j)
                C[{stored}] = M[vj] > 0
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                if C[{read}]:
                    S[vi] = 0
            if C[{read}]:
                S[vi] = S[vi] + A[vi, vk]
""")
    )


@pytest.mark.parametrize(
    ("rows", "size", "right"), [(3, 49, True), (3, 48, False), (2304, 49, True)]
)
def test_digits_of_a_number_whose_loops_are_cut_off(rows: int, size: int, right: bool) -> None:
    func = parse(f"""
@tw.script
def apart(X: T.Buffer(({rows}, 49), "float32"), Y: T.Buffer(({rows}, 7, 7), "float32")):
    B = T.alloc(({rows}, 1, 7, 7), "float32")
    for f in range({2 * rows + 2}):
        for t in range(32):
            with T.block("B"):
                vo = T.axis.spatial({rows}, f // 2)
                vi = T.axis.spatial({size}, f % 2 * 32 + t)
                T.where((f // 2 < {rows}) & (f % 2 * 32 + t < {size}))
                B[vo, 0, vi // 7, vi % 7] = X[vo, vi]
    for o, y, x in T.grid({rows}, 7, 7):
        with T.block("Y"):
            vo, vy, vx = T.axis.remap("SSS", [o, y, x])
            Y[vo, vy, vx] = B[vo, 0, vy, vx]
""")
    if right:
        verify(func)
    else:
        with pytest.raises(VerifyError):
            verify(func)

"""Lanes picked from two vectors, and columns of squares that are held in registers."""

from __future__ import annotations

import pytest

from tilewright.base.errors import BuildError, IRError, VerifyError
from tilewright.codegen.build import compile_func
from tilewright.tir.ir import Broadcast, Func, Shuffle, Store, const, shuffle
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .machinery import SERIAL, check, check_passes

WIDE = "cpu -mcpu=skylake-avx512 -threads=1"


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "uint64", "bool"])
@pytest.mark.parametrize("order", [[0, 1], [7, 0, 3, 4], [5] * 8, [6, 4, 2, 0, 1]])
def test_values(dtype: str, order: list[int]) -> None:
    func = parse(f"""
def f(X: T.Buffer((8,), "{dtype}"), Y: T.Buffer(({len(order)},), "{dtype}")):
    Y[T.ramp(0, 1, {len(order)})] = T.shuffle(X[T.ramp(0, 1, 4)], X[T.ramp(4, 1, 4)], {order})
""")
    verify(func)
    check(func)


def test_what_is_no_shuffle() -> None:
    a = Broadcast(const(1.0, "float32"), 4, "float32x4")
    b = Broadcast(const(1), 4, "int64x4")
    with pytest.raises(IRError):
        shuffle(a, b, (0, 1))
    with pytest.raises(IRError):
        shuffle(a, a, (0, 8))
    func = parse("""
def f(X: T.Buffer((4,), "float32")):
    X[T.ramp(0, 1, 4)] = T.broadcast(T.float32(1.0), 4)
""")
    assert isinstance(func.body, Store)
    wrong = Shuffle(a, a, (0, 9), "float32x2")
    with pytest.raises(VerifyError):
        verify(Func("f", func.params, (), Store(func.body.buffer, func.body.indices, wrong)))


def square(width: int, dtype: str = "float32", rows: str = "r") -> Func:
    """Y is X, turned around its diagonal through registers."""
    return parse(f"""
def f(X: T.Buffer(({width}, {width}), "{dtype}"), Y: T.Buffer(({width}, {width}), "{dtype}")):
    R = T.alloc(({width}, {width}), "{dtype}", scope="register")
    for r in T.unrolled({width}):
        for c in T.vectorized({width}):
            R[{rows}, c] = X[{rows}, c]
    for r in T.unrolled({width}):
        for c in T.vectorized({width}):
            Y[r, c] = R[c, r]
""")


@pytest.mark.parametrize("width", [2, 4, 8, 16])
@pytest.mark.parametrize("dtype", ["float32", "int16", "bfloat16"])
def test_columns(width: int, dtype: str) -> None:
    check(square(width, dtype), target=WIDE)


def test_each_vector_takes_as_many_shuffles_as_its_width_has_bits() -> None:
    code = check(square(16), target=WIDE)
    assert code.source("llvm").count("shufflevector") == 16 * 4
    assert "vgather" not in code.source("asm")


def test_passes_agree() -> None:
    check_passes(square(8))


def test_squares_one_after_the_other() -> None:
    check(
        parse("""
def f(X: T.Buffer((4, 16), "float32"), Y: T.Buffer((16, 4), "float32")):
    R = T.alloc((4, 4), "float32", scope="register")
    for b in T.unrolled(4):
        for r in T.unrolled(4):
            for c in T.vectorized(4):
                R[r, c] = X[r, b * 4 + c]
        for r in T.unrolled(4):
            for c in T.vectorized(4):
                Y[b * 4 + r, c] = R[c, r]
""")
    )


@pytest.mark.parametrize(
    ("rows", "lanes"), [*((r, 16) for r in (1, 2, 3, 7, 8, 12, 16)), *((r, 3) for r in (2, 3, 4))]
)
def test_columns_of_other_shapes_than_squares(rows: int, lanes: int) -> None:
    code = check(
        parse(f"""
def f(X: T.Buffer(({rows}, {lanes}), "float32"), Y: T.Buffer(({lanes}, {rows}), "float32")):
    R = T.alloc(({lanes}, {rows}), "float32", scope="register")
    for r in T.unrolled({rows}):
        for c in T.vectorized({lanes}):
            R[c, r] = X[r, c]
    for c in T.unrolled({lanes}):
        for r in T.vectorized({rows}):
            Y[c, r] = R[c, r]
"""),
        target=WIDE,
    )
    assert "vscatter" not in code.source("asm")


@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float32"])
@pytest.mark.parametrize("rows", [2, 4, 8])
def test_rows_lane_after_lane(rows: int, dtype: str) -> None:
    code = check(
        parse(f"""
def f(X: T.Buffer(({rows}, 16), "{dtype}"), Y: T.Buffer(({16 * rows},), "{dtype}")):
    R = T.alloc(({rows}, 16), "{dtype}", scope="register")
    for r in T.unrolled({rows}):
        for c in T.vectorized(16):
            R[r, c] = X[r, c]
    for c in T.vectorized({16 * rows}):
        Y[c] = R[c % {rows}, c // {rows}]
"""),
        target=WIDE,
    )
    assert "gather" not in code.source("llvm")


def test_bytes_of_four_rows_are_turned_within_sections() -> None:
    func = parse("""
def f(X: T.Buffer((4, 100), "int8"), Y: T.Buffer((64,), "int8")):
    R = T.alloc((4, 16), "int8", scope="register")
    for r in T.unrolled(4):
        for c in T.vectorized(16):
            R[r, c] = X[r, c]
    for c in T.vectorized(64):
        Y[c] = R[c % 4, c // 4]
""")
    code = check(func, target=WIDE).source("asm")
    assert "vpshufb" in code
    assert "vpunpck" not in code


def test_columns_of_a_tail() -> None:
    """Masked elements were never stored."""
    check(
        parse("""
def f(X: T.Buffer((3, 16), "float32"), Y: T.Buffer((16, 3), "float32")):
    R = T.alloc((16, 8), "float32", scope="register")
    for r in T.unrolled(3):
        for c in T.vectorized(16):
            R[c, r] = X[r, c]
    for c in T.unrolled(16):
        for r in T.vectorized(8):
            if r < 3:
                Y[c, r] = R[c, r]
""")
    )


@pytest.mark.parametrize("order", ["r", "3 - r"])
def test_vectors_that_are_never_stored_are_masked_off(order: str) -> None:
    check(
        parse(f"""
def f(n: T.int64, X: T.Buffer((4, 4), "float32"), Y: T.Buffer((4, 4), "float32")):
    R = T.alloc((4, 4), "float32", scope="register")
    for r in T.unrolled(4):
        for c in T.vectorized(4):
            Y[r, c] = X[r, c]
    for c in T.unrolled(4):
        for r in T.vectorized(4):
            if r < n - n:
                Y[c, r] = R[{order}, c]
""")
    )


def test_a_diagonal_is_no_column() -> None:
    func = parse("""
def f(X: T.Buffer((4, 4), "float32"), Y: T.Buffer((4,), "float32")):
    R = T.alloc((4, 4), "float32", scope="register")
    for r in T.unrolled(4):
        for c in T.vectorized(4):
            R[r, c] = X[r, c]
    for c in T.vectorized(4):
        Y[c] = R[c, c]
""")
    with pytest.raises(BuildError):
        compile_func(func, SERIAL)


def test_an_odd_number_of_vectors_is_interleaved() -> None:
    func = parse("""
def f(X: T.Buffer((3, 16), "float32"), Y: T.Buffer((48,), "float32")):
    R = T.alloc((3, 16), "float32", scope="register")
    for r in T.unrolled(3):
        for c in T.vectorized(16):
            R[r, c] = X[r, c]
    for k in T.unrolled(3):
        for c in T.vectorized(16):
            Y[k * 16 + c] = R[(k * 16 + c) % 3, (k * 16 + c) // 3]
""")
    assert check(func, target=WIDE).source("llvm").count("shufflevector") == 3 * 2


def test_a_vector_begins_at_an_index_in_a_register() -> None:
    check(
        parse("""
def f(
    X: T.Buffer((64,), "int16"),
    I: T.Buffer((5,), "int32", value_range=(0, 56)),
    Y: T.Buffer((5, 8), "int16"),
):
    R = T.alloc((1,), "int32", scope="register", value_range=(0, 56))
    for i in range(5):
        R[0] = I[i]
        for c in T.vectorized(8):
            Y[i, c] = X[T.int64(R[0]) + c]
""")
    )

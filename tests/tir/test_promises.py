"""Spatial iterations of blocks are independent of each other, or the program is refused."""

from __future__ import annotations

import re

import pytest

from tilewright.base.errors import VerifyError
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify


def program(body: str) -> str:
    lines = "\n".join(" " * 12 + line for line in body.splitlines())
    return f"""
def main(
    A: T.Buffer((8, 8), "int32"),
    B: T.Buffer((64,), "int32"),
    N: T.Buffer((64,), "int32", value_range=(0, 64)),
):
    T.inplace(A, B)
    for i, j in T.grid(7, 7):
        with T.block("P"):
            vi, vj = T.axis.remap("SS", [i, j])
{lines}
"""


@pytest.mark.parametrize(
    ("body", "of", "example"),
    [
        (
            "A[vi + 1, vj] = A[vi, vj + 1] + 1",
            "vi, which is spatial, .* elements of A",
            r"vi=0 writes A\[1, 1\], iteration vi=1 reads it",
        ),
        (
            "A[vi, vj] = A[vi, vj + 1] + 1",
            "vj, which is spatial, .* elements of A",
            r"vj=0 reads A\[0, 1\], iteration vj=1 writes it",
        ),
        (
            "B[vi] = B[vi] + A[vi, vj]",
            "vj, which is spatial, .* elements of B",
            r"at vi=0: iteration vj=0 .* B\[0\], iteration vj=1 .* it",
        ),
        (
            "B[vi * 6 + vj] = A[vi, vj]",
            "vi, which is spatial, .* elements of B",
            r"vi=0 writes B\[6\], iteration vi=1 writes it",
        ),
        ("B[N[vi * 8 + vj]] = A[vi, vj]", "vi, which is spatial, .* elements of B", ""),
        (
            "A[vi, vj] = B[vi]\nA[vi + 1, vj] = B[vj]",
            "vi, which is spatial, .* elements of A",
            r"vi=0 writes A\[1, 0\], iteration vi=1 writes it",
        ),
    ],
)
def test_spatial_iterations_that_meet_are_refused(body: str, of: str, example: str) -> None:
    with pytest.raises(VerifyError, match=f"block P: .* {of}") as refusal:
        verify(parse(program(body)))
    assert "T.axis.opaque where its iterations have to run in order" in str(refusal.value)
    assert re.search(example, str(refusal.value))


@pytest.mark.parametrize(
    "body",
    [
        "A[vj, vi] = A[vj, vi] + 1",
        "B[vi * 8 + vj] = B[vi * 8 + vj] + A[vi, vj]",
        "B[vi * 8 + vj] = A[vi, vj] + A[vi + 1, vj + 1]",
        "A[(vi * 7 + vj) // 8, (vi * 7 + vj) % 8] = B[vi]",
        "A[vi, vj] = B[vi]\nB[vi * 7 + vj + 15] = A[vi, vj] + B[vi]",
        "A[vi, (vi + vj) % 8] = B[vi]",
        "A[vi, vj] = B[N[vi * 8 + vj]]",
    ],
)
def test_spatial_iterations_that_keep_apart_are_right(body: str) -> None:
    verify(parse(program(body)))


@pytest.mark.parametrize("kind", ["reduce", "opaque"])
def test_others_may_meet(kind: str) -> None:
    text = program("B[vi] = B[vi] + A[vi, vj]")
    verify(parse(text.replace('"SS"', f'"S{kind[0].upper()}"')))


def test_internal_buffers_may_be_used_again() -> None:
    verify(
        parse("""
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    C = T.alloc((2,), "int32")
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi % 2] = A[vi]
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = C[vi % 2]
""")
    )


GUARDED = """
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i, j in T.grid(8, 4):
        with T.block("P"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.where({guard})
            B[vi * 2 + vj] = A[vi]
"""


def test_a_predicate_says_which_iterations_there_are() -> None:
    verify(parse(GUARDED.format(guard="(i < 3) & (j < 2)")))
    with pytest.raises(VerifyError):
        verify(parse(GUARDED.format(guard="(i < 3) & (j < 3)")))


SKEWED = """
@tw.script
def skewed(A: T.Buffer((8, 8), "float32")):
    T.inplace(A)
    for i in range(1, 7):
        for j in range(1, 7):
            with T.block("S"):
                vi = T.axis.spatial(8, i)
                vj = T.axis.spatial(8, j)
                A[vi, vj] = A[vi - 1, vj + 1]
"""


def test_the_example_is_of_iterations_that_run() -> None:
    """Those of the whole domain begin at 0."""
    with pytest.raises(VerifyError) as error:
        verify(parse(SKEWED))
    assert "example: iteration vi=1 writes A[1, 2], iteration vi=2 reads it" in str(error.value)


def test_a_read_is_shown_without_arithmetic_of_numbers() -> None:
    with pytest.raises(VerifyError) as error:
        verify(parse(SKEWED.replace("    T.inplace(A)\n", "")))
    assert "in program text by T.inplace(A)" in str(error.value)


def test_the_example_of_an_index_that_is_cast() -> None:
    func = parse(
        """
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in range(8):
        with T.block("P"):
            v = T.axis.spatial(8, i)
            B[T.int64(T.int32(v)) // 2] = A[v]
"""
    )
    with pytest.raises(VerifyError) as caught:
        verify(func)
    assert "v=0 writes B[0], iteration v=1 writes it" in str(caught.value)


TILED = """
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i, j_0, j_1 in T.grid(4, 2, 2):
        with T.block("P"):
            vi = T.axis.spatial(4, i)
            vj = T.axis.spatial(4, j_0 * 2 + j_1)
            T.where(j_0 * 2 + j_1 < 2)
            B[vi * 2 + vj] = A[vi]
"""


def test_predicates_of_loops_that_steps_made_are_not_known() -> None:
    """That no more than two of the four `vj` run is seen by nobody: nothing is said of them."""
    verify(parse(TILED))


def gathering(stored: str, declaration: str) -> str:
    """A program that stores a value to `I` and reads `A` at it."""
    parameter, allocation = ("", "I = T.alloc") if declaration == "internal" else ("I: ", "")
    buffer = '((8,), "int32", value_range=(0, 8))'
    own = f"    {allocation}{buffer}\n" if allocation else ""
    own += "    T.inplace(I)\n" if declaration == "in place" else ""
    return f"""
def main(
    A: T.Buffer((8,), "float32"),
    V: T.Buffer((8,), "int32"),
{f"    {parameter}T.Buffer{buffer}," if parameter else ""}
    B: T.Buffer((8,), "float32"),
):
{own}    for i in T.serial(8):
        with T.block("I"):
            vi = T.axis.remap("S", [i])
            I[vi] = {stored}
    for i in T.serial(8):
        with T.block("B"):
            vi = T.axis.remap("S", [i])
            B[vi] = A[I[vi]]
"""


@pytest.mark.parametrize("declaration", ["internal", "an output", "in place"])
def test_what_is_stored_to_a_buffer_with_a_range_is_in_it(declaration: str) -> None:
    for stored in ("T.int32(T.minimum(T.maximum(T.int64(V[vi]), 0), 7))", "T.int32(vi)", "7"):
        verify(parse(gathering(stored, declaration)))
    for stored in (
        "V[vi]",
        "T.int32(T.minimum(T.maximum(T.int64(V[vi]), 0), 8))",
        "T.int32(vi) - 1",
        "8",
    ):
        with pytest.raises(VerifyError):
            verify(parse(gathering(stored, declaration)))

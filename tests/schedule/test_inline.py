"""`compute_inline` and `reverse_compute_inline`."""

from __future__ import annotations

import pytest

from tilewright.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

from .conftest import Golden
from .machinery import check_compiled, check_meaning, check_replays
from .programs import chain, matmul_relu, stencil


def test_inline(golden: Golden) -> None:
    golden("compute_inline/chain", chain(), lambda s: s.compute_inline(s.get_block("B")))


def test_inline_into_several_reads(golden: Golden) -> None:
    golden("compute_inline/stencil", stencil(), lambda s: s.compute_inline(s.get_block("B")))


def test_inline_of_a_unit() -> None:
    sch = Schedule(chain())
    block = sch.get_block("B")
    sch.blockize(sch.split(sch.get_loops(block)[0], factors=[None, 4])[1])
    with pytest.raises(ScheduleError, match="block B must only store values, one to"):
        sch.compute_inline(block)


def test_epilogue_of_a_sum_in_two_blocks() -> None:
    sch = Schedule(matmul_relu())
    sch.decompose_reduction(sch.get_block("C"), sch.get_loops(sch.get_block("C"))[2])
    with pytest.raises(ScheduleError, match="result of one block, found C_init, C"):
        sch.reverse_compute_inline(sch.get_block("D"))


def test_inline_into_a_reduction(golden: Golden) -> None:
    golden("compute_inline/reduction", scaled(), lambda s: s.compute_inline(s.get_block("B")))


def test_reverse_inline(golden: Golden) -> None:
    golden(
        "reverse_compute_inline/chain",
        chain(),
        lambda s: s.reverse_compute_inline(s.get_block("C")),
    )


def test_reverse_inline_of_a_transpose(golden: Golden) -> None:
    golden(
        "reverse_compute_inline/transpose",
        turned(),
        lambda s: s.reverse_compute_inline(s.get_block("C")),
    )


def test_inline_of_several_results(golden: Golden) -> None:
    golden("compute_inline/several", several(), lambda s: s.compute_inline(s.get_block("P")))


def test_reverse_inline_of_one_of_several_results(golden: Golden) -> None:
    golden(
        "reverse_compute_inline/several",
        several(shown=True),
        lambda s: s.reverse_compute_inline(s.get_block("C")),
    )


def test_reverse_inline_of_a_block_of_several_results() -> None:
    func = several_after()
    sch = Schedule(func)
    sch.reverse_compute_inline(sch.get_block("P"))
    check_meaning(func, sch.func)
    check_replays(func, sch)
    check_compiled(func, sch.func)


def test_inline_of_several_results_of_which_one_is_a_parameter() -> None:
    sch = Schedule(several(shown=True))
    with pytest.raises(ScheduleError, match="block P writes P, a parameter of the function"):
        sch.compute_inline(sch.get_block("P"))


def test_reverse_inline_beside_what_it_reads() -> None:
    a = te.placeholder((6,), "int32", name="A")
    p, q = te.compute((6,), lambda i: (a[i] + 1, a[i] * 3), name=("P", "Q"))
    c = te.compute((6,), lambda i: p[5 - i] * q[i], name="C")
    sch = Schedule(te.func([a, p, c], name="beside"))
    with pytest.raises(ScheduleError, match="block P reads P, which it writes"):
        sch.reverse_compute_inline(sch.get_block("C"))


def test_inline_of_two_stores_to_one_buffer() -> None:
    func = parse("""
@tw.script
def twice(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
    B = T.alloc((8, 2), "int32")
    for i in T.serial(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi, 0] = A[vi]
            B[vi, 1] = A[vi] + 1
    for i in T.serial(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi, vi % 2]
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match="store values, one to each buffer that it writes"):
        sch.compute_inline(sch.get_block("B"))


def test_inline_of_a_parameter() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError, match="block C writes C, a parameter of the function"):
        sch.compute_inline(sch.get_block("C"))


def test_inline_of_a_reduction() -> None:
    sch = Schedule(matmul_relu())
    with pytest.raises(
        ScheduleError, match="block C is a reduction: only a block that st"
    ) as error:
        sch.compute_inline(sch.get_block("C"))
    assert "hint: compute_at moves it\n" in str(error.value)


def test_reverse_inline_into_a_reduction() -> None:
    sch = Schedule(matmul_relu())
    with pytest.raises(ScheduleError, match="block C is a reduction, which its consumer cannot"):
        sch.reverse_compute_inline(sch.get_block("D"))


def test_reverse_inline_of_a_reduction() -> None:
    sch = Schedule(scaled())
    with pytest.raises(ScheduleError, match="block S is a reduction: only a block") as error:
        sch.reverse_compute_inline(sch.get_block("S"))
    assert "hint: reverse_compute_at moves it\n" in str(error.value)


def test_reverse_inline_at_other_places() -> None:
    sch = Schedule(stencil())
    with pytest.raises(ScheduleError, match="block C must read B at its plain iteration variables"):
        sch.reverse_compute_inline(sch.get_block("C"))


def test_reverse_inline_of_inputs_alone() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError, match="block B must read the result of one block"):
        sch.reverse_compute_inline(sch.get_block("B"))


def test_reverse_inline_with_another_reader() -> None:
    a = te.placeholder((6,), "int32", name="A")
    b = te.compute((6,), lambda i: a[i] + 1, name="B")
    c = te.compute((6,), lambda i: b[i] * 2, name="C")
    d = te.compute((6,), lambda i: b[i] * 3, name="D")
    sch = Schedule(te.func([a, c, d], name="fork"))
    with pytest.raises(ScheduleError, match="B is read by other blocks too"):
        sch.reverse_compute_inline(sch.get_block("C"))


def several(shown: bool = False) -> Func:
    """P = A + 1 and Q = A * 3, then C = P[0, j] * Q, or of Q alone where P is an output."""
    a = te.placeholder((6, 4), "int32", name="A")
    p, q = te.compute((6, 4), lambda i, j: (a[i, j] + 1, a[i, j] * 3), name=("P", "Q"))
    if shown:
        c = te.compute((6, 4), lambda i, j: q[i, j] * 2, name="C")
        return te.func([a, p, c], name="several")
    c = te.compute((6, 4), lambda i, j: p[0, j] * q[i, j], name="C")
    return te.func([a, c], name="several")


def several_after() -> Func:
    """B = A * 2, then P = B + 1 and Q = B * 3."""
    a = te.placeholder((6,), "int32", name="A")
    b = te.compute((6,), lambda i: a[i] * 2, name="B")
    p, q = te.compute((6,), lambda i: (b[i] + 1, b[i] * 3), name=("P", "Q"))
    return te.func([a, p, q], name="several")


def scaled() -> Func:
    """The sums of the rows of A * 2."""
    a = te.placeholder((6, 4), "int32", name="A")
    b = te.compute((6, 4), lambda i, j: a[i, j] * 2, name="B")
    r = te.reduce_axis(4, name="r")
    s = te.compute((6,), lambda i: te.sum(b[i, r], axis=r), name="S")
    return te.func([a, s], name="scaled")


def turned() -> Func:
    """B = A + 1, then C the transpose of B * 2."""
    a = te.placeholder((6, 4), "int32", name="A")
    b = te.compute((6, 4), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((4, 6), lambda i, j: b[j, i] * 2, name="C")
    return te.func([a, c], name="turned")


def numbered(step: int) -> Func:
    """A block that stores at a number of two digits, of which `step` are told apart."""
    return parse(f"""
def numbered(A: T.Buffer((3, 4), "float32"), C: T.Buffer(({2 * step + 4},), "float32")):
    B = T.alloc(({2 * step + 4},), "float32")
    for h, l in T.grid(3, 4):
        with T.block("B"):
            vh, vl = T.axis.remap("SS", [h, l])
            B[vh * {step} + vl] = A[vh, vl] * 2.0
    for i in range({2 * step + 4}):
        with T.block("C"):
            vi = T.axis.spatial({2 * step + 4}, i)
            C[vi] = B[vi] + 1.0
""")


def test_reverse_inline_into_what_stores_at_a_number_of_two_digits() -> None:
    func = numbered(4)
    sch = Schedule(func)
    sch.reverse_compute_inline(sch.get_block("C"))
    assert "B" not in {b.name for b in sch.func.allocs}
    check_meaning(func, sch.func)


@pytest.mark.parametrize(
    ("place", "value", "size"),
    [
        ("vh * 2 + vl", "A[vh, vl]", 8),
        ("vh // 2", "A[0, 0]", 2),
        ("vh * 3 + vh", "A[vh, 0]", 9),
        ("vh", "A[vh, vl]", 3),
    ],
)
def test_reverse_inline_into_what_stores_elements_twice(place: str, value: str, size: int) -> None:
    text = str(numbered(4)).replace("16", str(size)).replace("12", str(size))
    stored, other = "B[vh * 4 + vl] = A[vh, vl] * 2.0", f"B[{place}] = {value} * 2.0"
    assert stored in text
    sch = Schedule(parse(text.replace(stored, other)))
    with pytest.raises(ScheduleError, match="at its plain iteration variables, or at numbers of"):
        sch.reverse_compute_inline(sch.get_block("C"))

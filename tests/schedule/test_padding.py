"""`pad_einsum` and `decompose_padding`."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled, check_meaning
from .programs import chain, elementwise, loops, matmul, matmul_relu


def test_pad_all_dimensions(golden: Golden) -> None:
    func = matmul(7, 10, 9)
    sch = golden("pad_einsum/all", func, lambda s: s.pad_einsum(s.get_block("C"), [4, 4, 4]))
    check_compiled(func, sch.func)


def test_pad_the_sum(golden: Golden) -> None:
    func = matmul(dtype="float32")
    golden("pad_einsum/sum", func, lambda s: s.pad_einsum(s.get_block("C"), [1, 1, 4]))


def test_pad_one_operand_of_integers(golden: Golden) -> None:
    golden("pad_einsum/one_operand", weighted("int32"), lambda s: s.pad_einsum(
        s.get_block("S"), [1, 4]))  # fmt: skip


def test_what_is_padded_already_stays() -> None:
    sch = Schedule(matmul(8, 12, 12))
    assert sch.pad_einsum(sch.get_block("C"), [8, 4, 3]) == ()
    assert sch.func is sch.original


def test_padded_loops_split_without_predicates() -> None:
    sch = Schedule(matmul(7, 10, 9))
    block = sch.get_block("C")
    sch.pad_einsum(block, [4, 4, 4])
    for loop in sch.get_loops(block):
        sch.split(loop, factors=[None, 4], perfect=True)
    check_meaning(sch.original, sch.func)


def test_after_a_step_that_left_two_nests_in_the_place_of_one() -> None:
    sch = Schedule(sums_of_sums())
    sch.rfactor(loops(sch, "B")[1], 0)
    sch.pad_einsum(sch.get_block("C"), [8])
    check_meaning(sch.original, sch.func)


def test_open_padding() -> None:
    sch = Schedule(matmul(), symbolic=True)
    p = sch.sample_categorical([1, 2, 8])
    with pytest.raises(ScheduleError):
        sch.pad_einsum(sch.get_block("C"), [1, 1, p])


def test_copies_that_are_made_always(golden: Golden) -> None:
    func = matmul(8, 10, 12)
    golden("pad_einsum/always", func, lambda s: s.pad_einsum(s.get_block("C"), [1, 4, 4], True))


def test_open_padding_with_copies_always() -> None:
    func = matmul(7, 10, 9)
    sch = Schedule(func, symbolic=True)
    block = sch.get_block("C")
    p = sch.sample_categorical([2, 3, 8])
    assert len(sch.pad_einsum(block, [p, p, 1], always=True)) == 3
    for loop in sch.get_loops(block)[:2]:
        sch.split(loop, factors=[None, p], perfect=True)
    for value in (2, 3, 8):
        check_meaning(func, sch.trace.with_row([value]).apply(func).func)


def test_open_padding_that_may_be_none() -> None:
    sch = Schedule(matmul(), symbolic=True)
    p = sch.sample_categorical([1, 2])
    sch.pad_einsum(sch.get_block("C"), [p, 1, 1], always=True)
    assert sch.space is not None
    assert any("> 1" in str(c.condition) for c in sch.space.constraints)


def test_sum_whose_terms_need_not_vanish() -> None:
    sch = Schedule(weighted("float32"))
    with pytest.raises(ScheduleError):
        sch.pad_einsum(sch.get_block("S"), [1, 4])


def test_number_of_paddings() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError):
        sch.pad_einsum(sch.get_block("C"), [4, 4])


@pytest.mark.parametrize("padding", [0, -4])
def test_padding_that_is_not_positive(padding: int) -> None:
    sch = Schedule(matmul())
    with refused(ScheduleError, padding):
        sch.pad_einsum(sch.get_block("C"), [1, 1, padding])


def test_padding_out_of_proportion() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError):
        sch.pad_einsum(sch.get_block("C"), [1, 1, 4096])


def test_loop_that_is_split_already() -> None:
    sch = Schedule(matmul())
    block = sch.get_block("C")
    sch.split(sch.get_loops(block)[2], factors=[None, 5])
    with pytest.raises(ScheduleError):
        sch.pad_einsum(block, [1, 1, 4])


def test_loop_that_is_parallel_already() -> None:
    sch = Schedule(matmul())
    block = sch.get_block("C")
    sch.parallel(sch.get_loops(block)[0])
    with pytest.raises(ScheduleError):
        sch.pad_einsum(block, [3, 1, 1])


def test_nest_shared_with_others() -> None:
    sch = Schedule(matmul_relu())
    block = sch.get_block("C")
    sch.compute_at(block, loops(sch, "D")[0])
    with pytest.raises(ScheduleError) as refusal:
        sch.pad_einsum(block, [1, 5, 4])
    assert "pad_einsum comes before compute_at moves" in str(refusal.value)


def test_sum_in_the_place_of_first_contents() -> None:
    sch = Schedule(sums_after_first_contents())
    sch.pad_einsum(sch.get_block("S"), [3, 4])
    check_meaning(sch.original, sch.func)


def test_iterations_that_say_nothing_of_the_result() -> None:
    sch = Schedule(matmul(4, 4, 4))
    block = sch.get_block("C")
    sch.transform_block_layout(block, lambda i, j, k: (i, j, k, 0))
    sch.pad_einsum(block, [1, 1, 1, 1])
    with pytest.raises(ScheduleError):
        sch.pad_einsum(block, [1, 1, 1, 2])


def test_open_parts_of_a_sum() -> None:
    sch = Schedule(row_sums(lambda a, i, r: a[i, r]), symbolic=True)
    _, r = loops(sch, "S")
    outer, _ = sch.split(r, factors=sch.sample_perfect_tile(r, 2))
    partial = sch.rfactor(outer, 0)
    with pytest.raises(ScheduleError):
        sch.pad_einsum(partial, [4] * len(sch.get_loops(partial)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("vj = T.axis.spatial(4, 0)", "vj = T.axis.spatial(4, i)", "of its own with 4 iterations"),
        ("vi = T.axis.spatial(4, i)", "vi = T.axis.spatial(8, i)", "of its own with 8 iterations"),
        ("# guard", "T.where(i < 3)", "of its own with 4 iterations"),
    ],
)
def test_loops_that_are_not_for_one_dimension_alone(old: str, new: str, message: str) -> None:
    sch = Schedule(parse(PRODUCTS.replace(old, new)))
    with pytest.raises(ScheduleError, match=f"vi of block C is i; expected a loop {message}"):
        sch.pad_einsum(sch.get_block("C"), [3, 1, 1])


PRODUCTS = """
@tw.script
def f(A: T.Buffer((8, 4), "int32"), C: T.Buffer((8, 4), "int32")):
    for i, k in T.grid(4, 4):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            vj = T.axis.spatial(4, 0)
            vk = T.axis.reduce(4, k)
            # guard
            with T.init():
                C[vi, vj] = 0
            C[vi, vj] = C[vi, vj] + A[vi, vk]
"""


def test_maximum() -> None:
    a = te.placeholder((4, 6), "int32", name="A")
    r = te.reduce_axis(6, name="r")
    m = te.compute((4,), lambda i: te.max(a[i, r], axis=r), name="M")
    sch = Schedule(te.func([a, m], name="rowmax"))
    with pytest.raises(ScheduleError):
        sch.pad_einsum(sch.get_block("M"), [1, 4])


def test_sum_of_sums() -> None:
    sch = Schedule(row_sums(lambda a, i, r: a[i, r] + 1))
    with pytest.raises(ScheduleError):
        sch.pad_einsum(sch.get_block("S"), [1, 4])


def test_index_that_is_not_plain() -> None:
    sch = Schedule(row_sums(lambda a, i, r: a[i, 5 - r]))
    with refused(ScheduleError, "A", "5 - vr"):
        sch.pad_einsum(sch.get_block("S"), [1, 4])


def test_a_result_at_an_index_that_is_not_plain() -> None:
    func = parse("""
@tw.script
def beside(A: T.Buffer((6, 4), "float32"), Y: T.Buffer((6, 7), "float32")):
    for i, r in T.grid(6, 4):
        with T.block("Y"):
            vi, vr = T.axis.remap("SR", [i, r])
            with T.init():
                Y[vi, vi + 1] = 0.0
            Y[vi, vi + 1] = Y[vi, vi + 1] + A[vi, vr]
""")
    verify(func)
    sch = Schedule(func)
    with pytest.raises(ScheduleError):
        sch.pad_einsum(sch.get_block("Y"), [4, 1])


def test_index_without_an_end() -> None:
    a, places = te.placeholder((9, 4), "int32", name="A"), te.placeholder((7,), "int64", name="P")
    r = te.reduce_axis(4, name="r")
    sums = te.compute((7,), lambda i: te.sum(a[te.maximum(places[i], 0), r], axis=r), name="S")
    sch = Schedule(te.func([a, places, sums], name="rows"))
    with pytest.raises(ScheduleError):
        sch.pad_einsum(sch.get_block("S"), [4, 1])


def windows(size: int = 10, stride: int = 1) -> Func:
    x, w = te.placeholder((4, 24), "float32", name="X"), te.placeholder((4, 3), "float32", name="W")
    c, k = te.reduce_axis(4, name="c"), te.reduce_axis(3, name="k")
    y = te.compute((size,), lambda i: te.sum(x[c, i * stride + k] * w[c, k], axis=[c, k]), name="Y")
    return te.func([x, w, y])


@pytest.mark.parametrize(
    ("size", "stride", "padding", "padded"),
    [(20, 1, 16, [34]), (22, 1, 16, [34]), (10, 2, 16, [33]), (11, 2, 12, [25]), (10, 1, 16, [])],
)
def test_windows_are_padded_where_they_move_beyond_the_input(
    size: int, stride: int, padding: int, padded: list[int]
) -> None:
    sch = Schedule(windows(size, stride))
    block = sch.get_block("Y")
    *ins, _ = sch.pad_einsum(block, [padding, 1, 1])
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)
    shapes = [b.shape for b in sch.func.allocs if b.name == "X_pad"]
    assert shapes == [(4, n) for n in padded]
    assert len(ins) == len(padded)


def test_indices_that_are_read_are_padded() -> None:
    a = te.placeholder((9, 4), "int32", name="A")
    places = te.placeholder((7,), "int32", name="P", value_range=(2, 9))
    r = te.reduce_axis(4, name="r")
    sums = te.compute((7,), lambda i: te.sum(a[places[i], r], axis=r), name="S")
    sch = Schedule(te.func([a, places, sums], name="rows"))
    sch.pad_einsum(sch.get_block("S"), [4, 1])
    verify(sch.func)
    check_meaning(sch.original, sch.func)
    assert "A[T.int64(P_pad[vi]), vr]" in str(sch.func)


@pytest.mark.parametrize(
    ("size", "padding", "index", "least"),
    [
        (10, [4, 1, 1], lambda i, j, r: 9 - i, -2),
        (12, [4, 1, 1], lambda i, j, r: 11 - i - r, -2),
        (14, [4, 1, 1], lambda i, j, r: 13 - i - r, None),
        (7, [4, 1, 1], lambda i, j, r: (9 - i) // 2 + r, -1),
        (15, [1, 4, 1], lambda i, j, r: i - j + 5, -2),
        (15, [4, 1, 1], lambda i, j, r: i - j + 5, None),
        (10, [4, 1, 1], lambda i, j, r: i - i // 2, None),
    ],
)
def test_inputs_are_not_padded_before_their_first_element(
    size: int, padding: list[int], index: Any, least: int | None
) -> None:
    a, b = te.placeholder((size,), "float32", name="A"), te.placeholder((3, 6), name="B")
    r = te.reduce_axis(3, name="r")
    c = te.compute((10, 6), lambda i, j: te.sum(a[index(i, j, r)] * b[r, j], axis=r), name="C")
    sch = Schedule(te.func([a, b, c], name="f"))
    if least is None:
        sch.pad_einsum(sch.get_block("C"), padding)
        verify(sch.func)
        check_meaning(sch.original, sch.func)
        return
    with refused(ScheduleError, "A", least):
        sch.pad_einsum(sch.get_block("C"), padding)
    assert sch.func is sch.original


@pytest.mark.parametrize(
    ("limits", "place", "message"),
    [((2, 9), lambda p: p - 2, r"P\[vi\] - 2, which could be -2"), ((2, 9), lambda p: 8 - p, None)],
)
def test_what_indices_are_padded_with_is_an_index(
    limits: tuple[int, int], place: Any, message: str | None
) -> None:
    a = te.placeholder((7, 4), "int32", name="A")
    places = te.placeholder((7,), "int64", name="P", value_range=limits)
    r = te.reduce_axis(4, name="r")
    sums = te.compute((7,), lambda i: te.sum(a[place(places[i]), r], axis=r), name="S")
    sch = Schedule(te.func([a, places, sums], name="rows"))
    if message is not None:
        with pytest.raises(ScheduleError, match=message):
            sch.pad_einsum(sch.get_block("S"), [4, 1])
        return
    sch.pad_einsum(sch.get_block("S"), [4, 1])
    verify(sch.func)
    check_meaning(sch.original, sch.func)
    assert [b.shape for b in sch.func.allocs if b.name == "A_pad"] == [(9, 4)]


def test_windows_along_a_sum() -> None:
    sch = Schedule(windows())
    with pytest.raises(ScheduleError):
        sch.pad_einsum(sch.get_block("Y"), [1, 1, 4])


def test_input_of_which_only_a_part_is_known_to_be_written() -> None:
    sch = Schedule(matmul_of_a_copy())
    sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i, j: (i * 2, j))
    with pytest.raises(ScheduleError):
        sch.pad_einsum(sch.get_block("C"), [1, 4])


def test_fill_then_copy(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("P")
        sch.decompose_padding(block, sch.get_loops(block)[0])

    sch = golden("decompose_padding/around", padded(), script)
    check_compiled(padded(), sch.func)


def test_fill_inside_of_a_loop(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("P")
        i, j = sch.get_loops(block)
        _, j1 = sch.split(j, factors=[None, 4])
        sch.vectorize(j1)
        sch.parallel(i)
        sch.decompose_padding(block, sch.get_loops(block)[1])

    sch = golden("decompose_padding/tiles", padded(), script)
    check_compiled(padded(), sch.func)


def test_of_a_packed_copy(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.pad_einsum(sch.get_block("C"), [1, 1, 4])[0]
        sch.decompose_padding(block, sch.get_loops(block)[1])

    golden("decompose_padding/copy", matmul(), script)


def test_block_that_pads_nothing() -> None:
    sch = Schedule(elementwise())
    block = sch.get_block("B")
    with pytest.raises(ScheduleError):
        sch.decompose_padding(block, sch.get_loops(block)[0])


def test_unit_of_padding() -> None:
    sch = Schedule(padded())
    i, j = loops(sch, "P")
    block = sch.blockize(j)
    with pytest.raises(ScheduleError):
        sch.decompose_padding(block, i)


def test_border_that_is_read() -> None:
    a = te.placeholder((8,), "int32", name="A")
    p = te.compute((8,), lambda i: te.select(i < 3, a[i], a[0]), name="P")
    sch = Schedule(te.func([a, p], name="repeated"))
    with pytest.raises(ScheduleError):
        sch.decompose_padding(sch.get_block("P"), loops(sch, "P")[0])


def test_selection_in_a_reduction() -> None:
    text = PRODUCTS.replace("C[vi, vj] + A[vi, vk]", "T.select(vk < 2, C[vi, vj] + A[vi, vk], 0)")
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError):
        sch.decompose_padding(sch.get_block("C"), loops(sch, "C")[0])


def test_condition_that_always_holds() -> None:
    sch = Schedule(selected(lambda i: i < 8))
    with pytest.raises(ScheduleError):
        sch.decompose_padding(sch.get_block("P"), loops(sch, "P")[0])


def test_condition_that_never_holds() -> None:
    sch = Schedule(selected(lambda i: (i < 3) & (i >= 5)))
    with pytest.raises(ScheduleError):
        sch.decompose_padding(sch.get_block("P"), loops(sch, "P")[0])


def test_condition_that_is_no_box() -> None:
    sch = Schedule(selected(lambda i: i % 2 < 1))
    with pytest.raises(ScheduleError):
        sch.decompose_padding(sch.get_block("P"), loops(sch, "P")[0])


def test_loop_around_other_blocks() -> None:
    sch = Schedule(padded())
    block = sch.get_block("P")
    (i, _) = loops(sch, "Q")
    sch.compute_at(block, i)
    with pytest.raises(ScheduleError):
        sch.decompose_padding(block, i)


def test_loop_of_another_block() -> None:
    sch = Schedule(padded())
    with pytest.raises(ScheduleError):
        sch.decompose_padding(sch.get_block("P"), loops(sch, "Q")[0])


def row_sums(term: Any) -> Func:
    """S[i] = sum of term(A, i, r)."""
    a = te.placeholder((4, 6), "int32", name="A")
    r = te.reduce_axis(6, name="r")
    s = te.compute((4,), lambda i: te.sum(term(a, i, r), axis=r), name="S")
    return te.func([a, s], name="row_sums")


def weighted(dtype: str) -> Func:
    """S[i] = sum of A[i, r] * w[i]."""
    a = te.placeholder((4, 6), dtype, name="A")
    w = te.placeholder((4,), dtype, name="w")
    r = te.reduce_axis(6, name="r")
    s = te.compute((4,), lambda i: te.sum(a[i, r] * w[i], axis=r), name="S")
    return te.func([a, w, s], name="weighted")


def sums_after_first_contents() -> Func:
    """F = what S starts with, then S = the sums of the rows of A."""
    return parse("""
@tw.script
def f(A: T.Buffer((4, 6), "int32"), S: T.Buffer((4,), "int32"), F: T.Buffer((4,), "int32")):
    T.inplace(S)
    for i in range(4):
        with T.block("F"):
            vi = T.axis.spatial(4, i)
            F[vi] = S[vi]
    for i, r in T.grid(4, 6):
        with T.block("S"):
            vi, vr = T.axis.remap("SR", [i, r])
            with T.init():
                S[vi] = 0
            S[vi] = S[vi] + A[vi, vr]
""")


def matmul_of_a_copy() -> Func:
    """C[i] = sum of B[i, r], where B is computed."""
    a = te.placeholder((4, 6), "int32", name="A")
    b = te.compute((4, 6), lambda i, j: a[i, j] + 1, name="B")
    r = te.reduce_axis(6, name="r")
    c = te.compute((4,), lambda i: te.sum(b[i, r], axis=r), name="C")
    return te.func([a, c], name="sums")


def sums_of_sums() -> Func:
    """B[i] = sum of A[i, r], then C = the sum of B * B."""
    a = te.placeholder((5, 6), "int32", name="A")
    r, k = te.reduce_axis(6, name="r"), te.reduce_axis(5, name="k")
    b = te.compute((5,), lambda i: te.sum(a[i, r], axis=r), name="B")
    c = te.compute((), lambda: te.sum(b[k] * b[k], axis=k), name="C")
    return te.func([a, c], name="sums")


def padded() -> Func:
    """P = A with a border of 7, then Q = P * 2."""
    a = te.placeholder((6, 9), "int32", name="A")

    def value(i: Any, j: Any) -> Any:
        inside = (i >= 1) & (i < 7) & (j >= 2) & (j < 11)
        return te.select(inside, a[i - 1, j - 2], 7)

    p = te.compute((8, 12), value, name="P")
    q = te.compute((8, 12), lambda i, j: p[i, j] * 2, name="Q")
    return te.func([a, q], name="padded")


def selected(condition: Any) -> Func:
    """P = A where a condition on the index holds, 0 elsewhere; then Q = P + 1."""
    a = te.placeholder((8,), "int32", name="A")
    p = te.compute((8,), lambda i: te.select(condition(i), a[i], 0), name="P")
    q = te.compute((8,), lambda i: p[i] + 1, name="Q")
    return te.func([a, q], name="selected")


def test_of_a_chain_without_a_sum() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError):
        sch.pad_einsum(sch.get_block("B"), [3])


def test_a_copy_in_digits_that_is_larger_than_what_it_holds_is_refused() -> None:
    """Of its 6 columns 5 are written; the padded block would read the last one."""
    a, b = te.placeholder((6, 2), "int32", name="A"), te.placeholder((6, 5), "int32", name="B")
    k = te.reduce_axis(6, name="k")
    c = te.compute((2, 5), lambda i, j: te.sum(a[k, i] * b[k, j], axis=k), name="C")
    sch = Schedule(te.func([a, b, c]))
    block = sch.get_block("C")
    sch.reindex_cache_read(block, 1, "local", lambda i, j, k: (k, j // 2, i, j % 2))
    with pytest.raises(ScheduleError):
        sch.pad_einsum(block, [1, 2, 1])


@pytest.mark.parametrize(
    ("condition", "shrinks"),
    [
        ("vi * 3 - 2 >= 1", True),
        ("128 - vi * -4611686018427387904 >= -9223372036854775808", False),
        ("vi * 4611686018427387904 < 4611686018427387905", False),
    ],
)
def test_conditions_that_wrap_around_bound_nothing(condition: str, shrinks: bool) -> None:
    """As int64, 2 * 2**62 is less than 1: a sum is no longer monotonic."""
    sch = Schedule(
        parse(f"""
def f(A: T.Buffer((3,), "int32"), B: T.Buffer((3,), "int32")):
    for i in range(3):
        with T.block("B"):
            vi = T.axis.spatial(3, i)
            B[vi] = T.select({condition}, A[vi], 0)
""")
    )
    block = sch.get_block("B")
    (loop,) = sch.get_loops(block)
    if shrinks:
        sch.decompose_padding(block, loop)
        check_meaning(sch.original, sch.func)
    else:
        with pytest.raises(ScheduleError):
            sch.decompose_padding(block, loop)

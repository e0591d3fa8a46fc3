"""`merge_reduction`: a nest that stores what a reduction starts from becomes its init."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir.equality import structural_equal
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .conftest import Golden
from .machinery import check_meaning
from .programs import chain, loops, matmul, matmul_relu, rowsum

HEAD = """
@tw.script
def rows(
    A: T.Buffer((6, 8), "int32"),
    X: T.Buffer((6,), "int32"),
    C: T.Buffer((6,), "int32"),
    D: T.Buffer((6,), "int32"),
):
    T.inplace(C)
    B = T.alloc((6,), "int32")
"""
FIRST = """
for i in range(6):
    with T.block("first"):
        vi = T.axis.spatial(6, i)
        C[vi] = 0
"""
BETWEEN = """
for i in range(6):
    with T.block("between"):
        vi = T.axis.spatial(6, i)
        D[vi] = X[vi]
"""
SUM = """
for i, k in T.grid(6, 8):
    with T.block("sum"):
        vi, vk = T.axis.remap("SR", [i, k])
        C[vi] = C[vi] + A[vi, vk]
"""


def program(*nests: str, head: str = HEAD) -> Func:
    """The nests one after the other."""
    lines = "".join(nests).split("\n")
    return parse(head + "\n".join("    " + line for line in lines if line) + "\n")


def merged(func: Func) -> None:
    """Make "first" the init of "sum" in `func`: the result is right, and means the same."""
    sch = Schedule(func)
    sch.merge_reduction(sch.get_block("first"), sch.get_block("sum"))
    verify(sch.func)
    check_meaning(sch.original, sch.func)


def refused(func: Func, message: str) -> None:
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match=message):
        sch.merge_reduction(sch.get_block("first"), sch.get_block("sum"))
    assert sch.func is func


HAND_WRITTEN = """
@tw.script
def biased(
    A: T.Buffer((6, 5), "float32"),
    B: T.Buffer((5, 4), "float32"),
    bias: T.Buffer((4,), "float32"),
    C: T.Buffer((6, 4), "float32"),
    D: T.Buffer((4,), "float32"),
):
    for x, y in T.grid(4, 6):
        with T.block("start"):
            vx, vy = T.axis.remap("SS", [x, y])
            C[vy, vx] = bias[vx]
    for j in range(4):
        with T.block("double"):
            vj = T.axis.spatial(4, j)
            D[vj] = bias[vj] * 2.0
    for i, k, j in T.grid(6, 5, 4):
        with T.block("sum"):
            vi, vk, vj = T.axis.remap("SRS", [i, k, j])
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def test_a_condition_leaves_out_terms_alone() -> None:
    guarded = SUM.replace("C[vi] =", "if (vk < 4) & (vi != 2):\n            C[vi] =")
    merged(program(FIRST, guarded))


def test_nests_that_were_written_apart(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        sch.merge_reduction(sch.get_block("start"), sch.get_block("sum"))

    golden("merge_reduction/written", parse(HAND_WRITTEN), script)


def test_the_init_of_tiles_comes_back(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("C")
        i, j, k = sch.get_loops(block)
        i0, i1 = sch.split(i, factors=[None, 4])
        j0, j1 = sch.split(j, factors=[None, 4])
        k0, k1 = sch.split(k, factors=[None, 5])
        sch.reorder(i0, j0, k0, k1, i1, j1)
        sch.parallel(i0)
        init = sch.decompose_reduction(block, k0)
        sch.vectorize(j1)
        sch.merge_reduction(init, block)

    golden("merge_reduction/tiles", matmul(), script)


@pytest.mark.parametrize("func", [matmul(), matmul_relu(), rowsum()], ids=lambda f: f.name)
def test_it_undoes_decompose_reduction(func: Func) -> None:
    name = "S" if func.name == "rowsum" else "C"
    for k in range(len(loops(Schedule(func), name))):
        sch = Schedule(func)
        block = sch.get_block(name)
        init = sch.decompose_reduction(block, sch.get_loops(block)[k])
        sch.merge_reduction(init, block)
        assert structural_equal(sch.func, func)
        with pytest.raises(ScheduleError):
            sch.get_loops(init)


def test_an_init_that_reads_comes_back_as_it_was() -> None:
    func = program(
        SUM.replace(
            "        C[vi] =", "        with T.init():\n            C[vi] = X[vi]\n        C[vi] ="
        )
    )
    sch = Schedule(func)
    block = sch.get_block("sum")
    init = sch.decompose_reduction(block, sch.get_loops(block)[1])
    sch.merge_reduction(init, block)
    assert structural_equal(sch.func, func)


def test_fused_loops() -> None:
    """Which elements a fused loop visits is decided exactly."""
    sch = Schedule(matmul())
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    sch.fuse(i, j)
    init = sch.decompose_reduction(block, k)
    sch.merge_reduction(init, block)
    verify(sch.func)
    check_meaning(sch.original, sch.func)


@pytest.mark.parametrize("of_tile", [False, True])
def test_open_sizes(of_tile: bool) -> None:
    sch = Schedule(matmul(), symbolic=True)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, factors=sch.sample_perfect_tile(i, 2))
    k0, k1 = sch.split(k, factors=sch.sample_perfect_tile(k, 2))
    sch.reorder(i0, j, k0, i1, k1)
    before = sch.func
    init = sch.decompose_reduction(block, k0 if of_tile else i0)
    sch.merge_reduction(init, block)
    assert structural_equal(sch.func, before)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("for i in range(6):", "for i in T.parallel(6):"),
        ("i in range(6)", "o, i in T.grid(3, 6)"),
        ("C[vi] = 0", "C[vi] = X[vi] + T.int32(vi)"),
        (
            "for i in range(6):\n    with T.block",
            "for i0 in range(2):\n  for i1 in range(3):\n    with T.block",
        ),
    ],
    ids=["parallel", "repeated", "values", "split"],
)
def test_nests_of_any_form(old: str, new: str) -> None:
    first = FIRST.replace(old, new)
    if "i0" in new:
        first = first.replace("(6, i)", "(6, i0 * 3 + i1)")
    merged(program(first, BETWEEN, SUM))


def test_single_elements() -> None:
    """An index that is a number, and iterations of one value that index nothing."""
    sums = """
for k in range(8):
    with T.block("sum"):
        vk = T.axis.reduce(8, k)
        C[2] = C[2] + A[1, vk]
"""
    first = FIRST.replace("6", "1").replace("C[vi] = 0", "C[2] = T.int32(vi + 7)")
    merged(program(first, sums))
    refused(
        program(first.replace("C[2]", "C[3]"), sums),
        "block first stores to C at index 3 and block sum at index 2",
    )


INSIDE = """
for o in T.parallel(2):
    for i in range(3):
        with T.block("first"):
            vi = T.axis.spatial(6, o * 3 + i)
            B[vi] = X[vi]
    for k, i in T.grid(8, 3):
        with T.block("sum"):
            vi = T.axis.spatial(6, o * 3 + i)
            vk = T.axis.reduce(8, k)
            B[vi] = B[vi] + A[vi, vk]
    for i in range(3):
        with T.block("last"):
            vi = T.axis.spatial(6, o * 3 + i)
            D[vi] = B[vi]
"""


def test_within_a_loop_around_both() -> None:
    merged(program(INSIDE))


def test_each_iteration_around_both_starts_what_it_sums() -> None:
    late = INSIDE.replace("T.parallel(2)", "range(2)").replace("o * 3 + i)\n            B", "i)\n  "
                          "          B").replace("range(3)", "range(6)", 1)  # fmt: skip
    refused(program(late), "block first may store to elements of B that block sum does not")


def test_a_reduction_that_a_loop_around_both_is_part_of() -> None:
    both = """
for k in range(8):
    for i in range(6):
        with T.block("first"):
            vi = T.axis.spatial(6, i)
            C[vi] = 0
    for i in range(6):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            C[vi] = C[vi] + A[vi, vk]
"""
    refused(program(both), "loop k of the reduction is around block first too")


REMAP = 'vi, vk = T.axis.remap("SR", [i, k])'
BOUND = "vi = T.axis.spatial(6, {0})\n        vk = T.axis.reduce(8, {1})"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"SR", [i, k]', '"SS", [i, k]', "block sum must be a reduction"),
        ('"SR", [i, k]', '"OR", [i, k]', "block sum must be a reduction, of spatial and"),
        ("        C[vi] = C", "        with T.init():\n            C[vi] = 1\n        C[vi] = C",
         "block sum has an init already"),
        ("C[vi] = C[vi] +", "D[vi] = D[vi] +", "first stores to C, block sum to D; expected the"),
        ("C[vi] + A", "C[vi] + C[vk % 6] + A", "block sum accesses C at 2 different places"),
        ("C[vi] = C[vi] + A[vi, vk]", "D[vi] = 0\n        C[vi] = C[vi] + A[vi, vk]",
         "block sum must store one value"),
        ("C[vi]", "C[vi // 2 * 2]", "block sum must store at its plain iteration variables"),
        ("C[vi] = C[vi]", "C[2] = C[2]", "block sum must store at its plain iteration variables"),
        ("C[vi]", "C[vk % 6]", "block sum must store at its plain iteration variables"),
        ("grid(6, 8)", "grid(5, 8)", "vi of block first has 6 values and vi of block sum has 5"),
        ("        C[vi] =", "        T.where(k < 7)\n        C[vi] =", "sum runs under a"),
        ("    with", "  if k < 7:\n    with", "block sum runs under a condition in its loops"),
        ("for i, k in T.grid(6, 8)", "for i, k, u in T.grid(6, 8, 2)",
         "block sum visits each of its points once"),
        ("(6, 8)", "(6, 0)", "loop k has no iteration"),
    ],
)  # fmt: skip
def test_sums_that_take_no_init(old: str, new: str, message: str) -> None:
    sums = SUM.replace(old, new)
    refused(program(FIRST, sums), message)


def test_a_loop_of_elements_and_reduction() -> None:
    fused = SUM.replace("i, k in T.grid(6, 8)", "f in range(48)")
    fused = fused.replace(REMAP, BOUND.format("f // 8", "f % 8"))
    refused(program(FIRST, fused), "loop f is part of both the reduction and the elements")


def test_a_sum_of_some_elements() -> None:
    some = SUM.replace(REMAP, BOUND.format("i", "k")).replace("grid(6", "grid(5")
    refused(program(FIRST, some), "block first may store to elements of C that block sum does not")


def test_where_a_reduction_starts() -> None:
    backwards = SUM.replace(REMAP, BOUND.format("5 - i", "7 - k"))
    refused(program(FIRST, backwards), "the first value of vk in block sum is 7; it must be 0")
    merged(program(FIRST, SUM.replace(REMAP, BOUND.format("5 - i", "(k * 3) % 8"))))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("spatial", "opaque", "block first must be spatial"),
        ("        C[vi]", "        with T.init():\n            D[vi] = 0\n        C[vi]",
         "block first must be spatial, and store what a reduction starts from in its body"),
        ("C[vi] = 0", "C[vi] = C[vi] * 2", "block first reads C, which it writes"),
        ("        C[vi] = 0", "        C[vi] = 0\n        D[vi] = 0", "first must store one value"),
        ("C[vi]", "C[5 - vi]", "block first must store at its plain iteration variables"),
        ("C[vi]", "C[2]", "block first must store at its plain iteration variables"),
        ("(6, i)", "(3, i)", "vi of block first has 3 values and vi of block sum has 6"),
        ("range(6)", "range(5)", "block sum may store to elements of C that block first does not"),
        ("        C[vi]", "        T.where(i < 5)\n        C[vi]", "block first runs under a cond"),
        ("    with", "  if i < 5:\n    with", "block first runs under a condition in its loops"),
        ("i in range(6)", "u, i in T.grid(0, 6)", "loop u has no iteration"),
    ],
)  # fmt: skip
def test_what_is_no_init(old: str, new: str, message: str) -> None:
    first = FIRST.replace(old, new)
    if "(3, i)" in new:
        first = first.replace("range(6)", "range(3)")
    refused(program(first, SUM), message)


def test_the_init_comes_before() -> None:
    refused(program(SUM, FIRST), "block first is not in a statement before the one with block sum")
    branches = "if n > 0:" + "else:".join(n.replace("\n", "\n    ") + "\n" for n in (FIRST, SUM))
    head = HEAD.replace("def rows(", "def rows(\n    n: T.int32,")
    refused(program(branches.replace("\n    \n", "\n"), head=head), "first runs under a condition")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("X[vi]", "C[vi]", "block between uses C where block sum starts from it"),
        ("D[vi]", "C[vi]", "block between uses C where block sum starts from it"),
        ("D[vi] = X[vi]", "B[vi] = X[vi]", "block between writes B, which block first reads"),
    ],
)
def test_what_is_in_between(old: str, new: str, message: str) -> None:
    first = FIRST.replace("C[vi] = 0", "C[vi] = B[vi]") if "B" in new else FIRST
    before = BETWEEN.replace("D", "B").replace("between", "before")
    refused(program(before, first, BETWEEN.replace(old, new), SUM), message)


def test_what_is_next_to_the_sum() -> None:
    """A reader in the reduction's nest; cut off from it, it is no more in the way."""
    reader = """
    with T.block("reader"):
        vi = T.axis.spatial(6, i)
        D[vi] = C[vi]
"""
    sums = SUM.replace("for i, k in T.grid(6, 8):\n", "for i in range(6):\n  for k in range(8):\n")
    func = program(FIRST, sums, reader.replace("    with", "  with", 1).strip("\n"))
    refused(func, "block reader uses C where block sum starts from it")
    sch = Schedule(func)
    sch.fission(loops(sch, "reader")[0])
    sch.merge_reduction(sch.get_block("first"), sch.get_block("sum"))
    check_meaning(sch.original, sch.func)


def test_a_map_takes_no_init() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError) as refusal:
        sch.merge_reduction(sch.get_block("B"), sch.get_block("C"))
    assert refusal.value.place.name == "C"

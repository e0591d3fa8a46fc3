"""Which loop of the program runs a line of assembly: as LLVM's comments say, and as stores show."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw
from tilewright import ops
from tilewright.codegen.build import compile_func, lower_parts
from tilewright.codegen.compiled import Compiled
from tilewright.codegen.cpu.assembly_loops import loops_of_lines
from tilewright.codegen.detect import resolve
from tilewright.codegen.generator import Part, generator_for
from tilewright.codegen.program_loops import ProgramLoops
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

TARGETS = ["x86-64-v2", "x86-64-v3", "skylake-avx512", "neoverse-n1"]


def target(mcpu: str, threads: int = 1) -> tw.Target:
    return resolve(f"cpu -mcpu={mcpu} -threads={threads}")


def names_of_lines(compiled: Compiled, func: Func) -> list[tuple[str, str]]:
    """The lines of an assembly, each with the name of its loop."""
    program = ProgramLoops(func)
    loops = generator_for(compiled.target).loops_of_lines(compiled, program)
    assert loops is not None
    lines = compiled.source("asm").split("\n")
    names = ["" if n is None else program.loops[n].var.name for n in loops]
    return list(zip(names, lines, strict=True))


def product(sizes: tuple[int, int, int] = (60, 72, 64), *, parallel: bool = False) -> tw.Schedule:
    """A product whose sums are in registers: rows are unrolled, columns are vectors."""
    sch = tw.Schedule(ops.matmul_func(*sizes))
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    i0, i1 = sch.split(i, factors=[None, 4])
    j0, j1 = sch.split(j, factors=[None, 16])
    sch.reorder(i0, j0, k, i1, j1)
    sch.unroll(i1)
    sch.vectorize(j1)
    copy = sch.cache_write(c, 0, "register")
    sch.reverse_compute_at(copy, j0)
    *_, rows, columns = sch.get_loops(copy)
    sch.unroll(rows)
    sch.vectorize(columns)
    if parallel:
        sch.parallel(i0)
    return sch


MARKED = """
def marked(A: T.Buffer((64,), "int32"), B: T.Buffer((64, 32), "int32"), n: T.int64):
    for i in range(64):
        A[i] = 1001
        for j in {j}:
            B[i, j * 2] = 1002
        for k in range(16):
            B[i, k * 2 + 1] = 1003
            for m in {m}:
                A[k + m * 16] = B[i, m] * 1004
    for r in range(64):
        if r < n:
            A[r] = A[r] + 1005
"""
"""Loops with a number of its own in each."""


@pytest.mark.parametrize("mcpu", TARGETS[:3])
@pytest.mark.parametrize(
    ("j", "m"),
    [("range(16)", "range(4)"), ("T.unrolled(16)", "T.unrolled(4)")],
    ids=["", "unrolled"],
)
def test_lines_are_of_the_loop_that_their_numbers_are_in(mcpu: str, j: str, m: str) -> None:
    func = parse(MARKED.format(j=j, m=m))
    found: dict[str, set[str]] = {}
    for name, line in names_of_lines(compile_func(func, target(mcpu)), func):
        for number in re.findall(r"\$(100\d)\b", line):
            found.setdefault(number, set()).add(name)
    unrolled = "unroll" in j
    wanted = {
        "1001": {"i"},
        "1002": {"i" if unrolled else "j"},
        "1003": {"k"},
        "1004": {"k" if unrolled else "m"},
        "1005": {"r"},
    }
    assert found == wanted


@pytest.mark.parametrize("mcpu", TARGETS)
@pytest.mark.parametrize("parallel", [False, True])
def test_of_a_tiled_product(mcpu: str, parallel: bool) -> None:
    sch = product(parallel=parallel)
    found = names_of_lines(compile_func(sch.func, target(mcpu, 2)), sch.func)
    products = {n for n, line in found if re.search(r"\t(v?f?madd\w*ps|v?mulps|fmla)\t", line)}
    assert products == {"k"}
    names = {name for name, _ in found}
    assert {"i_0", "j_0", "k"} <= names
    assert not names & {"i_1", "j_1"}
    outside = [line for name, line in found if not name]
    assert any(line.strip() == "ret" or line.strip() == "retq" for line in outside)


def test_calls_that_share_out_iterations_are_of_no_loop() -> None:
    sch = product(parallel=True)
    found = names_of_lines(compile_func(sch.func, target("x86-64-v3", 2)), sch.func)
    shared = [name for name, line in found if "xadd" in line or "GOMP_parallel" in line]
    assert shared
    assert set(shared) == {""}


def test_edges_of_a_peeled_loop_are_of_that_loop() -> None:
    func = parse("""
def padded(A: T.Buffer((200,), "int32"), B: T.Buffer((200,), "int32")):
    for i in range(200):
        B[i] = A[T.maximum(i - 20, 0)] * 1001
""")
    found = names_of_lines(compile_func(func, target("x86-64-v3")), func)
    assert [name for name, line in found if line.startswith(".LBB")] == ["i", "i"]
    assert {name for name, line in found if "imull" in line} == {"", "i"}  # that of A[0] is hoisted


def images(func: Func, on: tw.Target) -> list[bytes]:
    """The machine code of a program as it is made, and as it is without the names of loops."""
    generator = generator_for(on)
    parts = lower_parts(func, on).parts
    assert parts[0].loops
    bare = [Part(part.func, part.signature) for part in parts]
    kinds = (parts, bare)
    emitted = [generator.emit(kind, on, strict_fp=False) for kind in kinds]
    assert ["%loop-" in texts[0].text for texts in emitted] == [True, False]
    return [generator.compile(e, on).image for e in emitted]


KERNELS: dict[str, Callable[[], Func]] = {
    "tiled": lambda: product().func,
    "parallel": lambda: product(parallel=True).func,
    "softmax": lambda: ops.softmax_func(16, 64),
    "layer_norm": lambda: ops.layer_norm_func(16, 64),
    "conv": lambda: ops.conv2d_func(1, 4, 8, 8, 4, 3, 3),
    "marked": lambda: parse(MARKED.format(j="range(16)", m="T.unrolled(4)")),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mcpu", ["x86-64-v2", "skylake-avx512", "neoverse-n1"])
def test_names_of_loops_leave_the_machine_code_as_it_is(kernel: str, mcpu: str) -> None:
    named, bare = images(KERNELS[kernel](), target(mcpu, 2))
    assert named == bare


@pytest.mark.part(4)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mcpu", TARGETS)
def test_every_loop_of_the_code_is_of_the_program(kernel: str, mcpu: str) -> None:
    func = KERNELS[kernel]()
    found = names_of_lines(compile_func(func, target(mcpu)), func)
    labels = {line.partition(":")[0]: name for name, line in found if re.match(r"\.LBB", line)}
    at: dict[str, int] = {}
    for n, (name, line) in enumerate(found):
        at.setdefault(line.partition(":")[0], n)
        branch = re.search(r"\b(?:j\w+|b(?:\.\w+)?|cbn?z)\s.*(\.LBB\w+)$", line)
        if branch is not None and branch[1] in at:  # back to a line above: a loop
            assert labels[branch[1]], branch[1]
            assert name, line


VERBOSE = """\
f:                                      # @f
# %bb.0:                                # %entry.1
	xorl	%eax, %eax
.LBB0_1:                                # %loop-0.2
                                        # =>This Loop Header: Depth=1
                                        #     Child Loop BB0_2 Depth 2
	movl	%eax, %ecx
.LBB0_2:                                # %loop-1.5
                                        #   Parent Loop BB0_1 Depth=1
                                        # =>  This Inner Loop Header: Depth=2
	incl	%ecx
	jne	.LBB0_2
# %bb.3:                                # %done-0.6
                                        #   in Loop: Header=BB0_1 Depth=1
	incl	%eax                            # imm = 0x1
	jne	.LBB0_1
# %bb.4:                                # %done.3
	retq
.Lfunc_end0:
                                        # -- End function
"""
"""Loop 1 in loop 0, as LLVM writes it."""


def plain(verbose: str) -> str:
    lines = (re.sub(r"\s*(#|//).*", "", line) for line in verbose.split("\n"))
    return "\n".join(line for line in lines if line)


def loops(verbose: str, around: Any = ((), (0,))) -> list[int | None] | None:
    return loops_of_lines(plain(verbose), verbose, around)


NESTED = [None, None, 0, 0, 1, 1, 1, 0, 0, None, None]


def test_blocks_by_their_comments() -> None:
    assert loops(VERBOSE) == NESTED
    arm = VERBOSE.replace("# ", "// ")
    assert loops(arm) == NESTED


def test_what_llvm_adds_is_of_the_loop_around() -> None:
    unnamed = VERBOSE.replace("# %loop-1.5", "#").replace("# %loop-0.2", "# %take.2")
    assert loops(unnamed) == [None] * len(NESTED)
    assert loops(VERBOSE.replace("# %loop-1.5", "# %copy.5")) == [
        None if n is None else 0 for n in NESTED
    ]
    assert loops(VERBOSE.replace("loop-0.2", "loop-0.2.us.preheader.split")) == NESTED


def test_two_loops_that_llvm_made_one_are_the_outer_one() -> None:
    one = """\
f:                                      # @f
.LBB0_1:                                # %loop-1.5
                                        # =>This Inner Loop Header: Depth=1
	incl	%ecx
	jne	.LBB0_1
# %bb.2:                                # %done-0.6
                                        #   in Loop: Header=BB0_1 Depth=1
	incl	%eax
	jne	.LBB0_1
"""
    assert loops(one) == [None, 0, 0, 0, 0, 0]
    assert loops(one, ((), ())) == [None, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("text", [
    VERBOSE.replace("\tincl\t%ecx", "\tdecl\t%ecx"), f"{VERBOSE}\tnop\n",
    VERBOSE.replace("\tretq\n", ""),
])  # fmt: skip
def test_other_code_tells_nothing(text: str) -> None:
    assert loops_of_lines(plain(VERBOSE), text, ((), (0,))) is None


def test_numbers_of_no_loop_are_none() -> None:
    assert loops(VERBOSE.replace("loop-1.5", "loop-99.5")) == [n and 0 for n in NESTED]


def test_loops_of_a_program_are_numbered_in_order() -> None:
    program = ProgramLoops(parse(MARKED.format(j="range(16)", m="range(4)")))
    assert [loop.var.name for loop in program.loops] == ["i", "j", "k", "m", "r"]
    assert program.around == [(), (0,), (0,), (0, 2), ()]

"""Which loop of the program runs a line of PTX: of written texts, and of compiled kernels."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import tilewright as tw
from tilewright import ops
from tilewright.base.errors import BuildError
from tilewright.codegen.build import compile_func
from tilewright.codegen.cuda.ptx_loops import loops_of_lines
from tilewright.codegen.generator import generator_for
from tilewright.codegen.program_loops import ProgramLoops
from tilewright.tir.ir import Func

from . import schedules

TARGET = tw.Target.parse("cuda -arch=sm_90a")
LOCATED = """\
.visible .entry kernel(
)
{
	.loc	1 3 0
	mov.u32 	%r1, %ctaid.x;
$L__BB0_1:
	.loc	1 11 7
	ld.global.f32 	%f1, [%rd1];
$L__BB0_2:
$L__tmp0:
	.loc	2 5 3, function_name $L__info_string0, inlined_at 1 12 9
	fma.rn.f32 	%f2, %f1, %f1, %f2;
	.loc	1 11 3
	@%p1 bra 	$L__BB0_2;
	st.global.f32 	[%rd1], %f2;
	.loc	1 10 3
	@%p2 bra 	$L__BB0_1;
	.loc	1 15 1
	ret;
}
	.file	1 "/tmp/kernel.cu"
	.section	.debug_str
	{
$L__info_string0:
	.b8 95
	}
"""
"""Loop 1, whose `for` is in line 11, in loop 0 of line 10."""
FORS = {10: 0, 11: 1}
AROUND: list[tuple[int, ...]] = [(), (0,)]
NESTED = [None, None, None, None, 0, 0, 1, 1, 1, 0, 0, None, None, None]


def plain(located: str) -> str:
    code = located.partition("\t.file")[0]
    return "".join(
        line for line in code.splitlines(True) if not re.match(r"\s*(\.loc|\$L__tmp)", line)
    )


def loops(located: str, around: list[tuple[int, ...]] = AROUND) -> list[int | None] | None:
    return loops_of_lines(plain(located), located, FORS, around)


def test_loops_are_known_by_the_lines_of_their_branches() -> None:
    assert loops(LOCATED) == NESTED


def test_what_is_not_known_is_of_the_loop_around() -> None:
    only_outer = [None if n is None else 0 for n in NESTED]
    assert loops(LOCATED.replace(".loc	1 11 3", ".loc	1 0 3")) == only_outer
    assert loops(LOCATED.replace(".loc	1 11 3", ".loc	2 11 3")) == only_outer
    inlined = ".loc	1 11 3, function_name $L__info_string0, inlined_at 1 12 9"
    assert loops(LOCATED.replace(".loc	1 11 3", inlined)) == only_outer
    assert loops(LOCATED, [(), ()]) == only_outer  # they are not in each other
    none = LOCATED.replace(".loc	1 10 3", ".loc	1 9 3").replace(
        ".loc	1 11 3", ".loc	1 9 3"
    )
    assert loops(none) == [None] * len(NESTED)


def test_a_loop_of_several_branches_is_one_if_they_agree() -> None:
    two = LOCATED.replace("	st.global", "	@%p3 bra 	$L__BB0_2;\n	st.global")
    assert loops(two) == [*NESTED[:9], 1, *NESTED[9:]]
    unlike = two.replace("	@%p3", "	.loc	1 10 3\n	@%p3")
    assert set(loops(unlike) or []) == {None, 0}


def test_loops_with_several_first_blocks_are_none() -> None:
    into = LOCATED.replace("$L__BB0_1:", "	@%p5 bra 	$L__BB0_2;\n$L__BB0_1:")
    found = loops(into)
    assert found is not None
    assert 0 not in found


def test_other_code_tells_nothing() -> None:
    assert loops_of_lines(plain(LOCATED) + "	ret;\n", LOCATED, FORS, AROUND) is None
    chosen = LOCATED.replace("	ret;", "	brx.idx 	%r1, $L_targets;")
    assert loops(chosen) is None


def needs_a_compiler() -> None:
    try:
        generator_for(TARGET).tools()
    except BuildError as error:
        pytest.skip(f"nothing compiles for GPUs here: {error.message}")


def names_of_lines(func: Func) -> list[tuple[str, str]]:
    compiled, program = compile_func(func, TARGET), ProgramLoops(func)
    found = generator_for(TARGET).loops_of_lines(compiled, program)
    assert found is not None
    names = ("" if n is None else program.loops[n].var.name for n in found)
    return list(zip(names, compiled.source("ptx").split("\n"), strict=True))


def test_of_a_product() -> None:
    needs_a_compiler()
    sch = tw.Schedule(ops.matmul_func(64, 64, 4096))
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    _, inner = sch.split(k, factors=[None, 512])
    sch.unroll(sch.split(inner, factors=[None, 4])[1])
    found = names_of_lines(sch.func)
    assert {name for name, line in found if "fma.rn.f32" in line} == {"k_1_0"}
    branches = [name for name, line in found if re.search(r"\sbra\b", line)]
    assert branches == ["k_1_0", "k_0"]
    assert {name for name, line in found if "ctaid" in line or "ret;" in line} == {""}


KERNELS: dict[str, Callable[[], Func]] = {
    "matmul": lambda: schedules.matmul(64, 32, 24),
    "matmul of bfloat16": lambda: schedules.matmul(32, 32, 16, "bfloat16", lanes=4),
    "softmax": lambda: schedules.softmax(6, 100),
    "sum in two launches": lambda: schedules.sum_in_two_launches(5, 1000),
}


@pytest.mark.part(2)
@pytest.mark.parametrize("kernel", KERNELS)
def test_line_information_leaves_the_code_as_it_is(kernel: str) -> None:
    needs_a_compiler()
    found = names_of_lines(KERNELS[kernel]())
    loops = {f.var.name for f in ProgramLoops(KERNELS[kernel]()).loops}
    assert {name for name, _ in found} <= loops | {""}

"""The hot block of assembly texts: written ones of each kind, and those of compiled kernels."""

from __future__ import annotations

import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.base.errors import BuildError
from tilewright.codegen.build import compile_func
from tilewright.codegen.generator import generator_for
from tilewright.codegen.hot_block import hot_block
from tilewright.codegen.program_loops import ProgramLoops

from .test_assembly_loops import product

AVX2 = """\
kernel:
	xorl	%eax, %eax
.LBB0_1:
	vmovups	(%rdi,%rax), %ymm0
	vaddps	(%rsi,%rax), %ymm0, %ymm0
	addq	$32, %rax
	jne	.LBB0_1
.LBB0_2:                                # outer
	xorl	%ecx, %ecx
.LBB0_3:                                # inner
	vbroadcastss	(%rdi,%rcx,4), %ymm1
	vfmadd231ps	(%rsi), %ymm1, %ymm2
	vfmadd231ps	32(%rsi), %ymm1, %ymm3
	incq	%rcx
	cmpq	$64, %rcx
	jne	.LBB0_3
	vaddps	%ymm2, %ymm3, %ymm3
	vaddps	%ymm2, %ymm3, %ymm3
	vaddps	%ymm2, %ymm3, %ymm3
	incq	%rdx
	jb	.LBB0_2
	retq
"""
NEON = """\
kernel:
.LBB0_1:
	ldr	q1, [x0, x8]
	fmla	v0.4s, v1.4s, v2.s[0]
	subs	x9, x9, #1
	b.ne	.LBB0_1
.LBB0_2:
	fadd	s0, s0, s1
	fadd	s0, s0, s1
	cbnz	x9, .LBB0_2
	ret
"""
PTX = """\
.visible .entry kernel(
	.param .u64 kernel_param_0
)
{
	mov.u32 	%r1, %ctaid.x;
$L__BB0_1:
	ld.global.f32 	%f1, [%rd1];
	fma.rn.f32 	%f2, %f1, %f1, %f2;
	add.s32 	%r2, %r2, 1;
	setp.lt.s32 	%p1, %r2, 64;
	@%p1 bra 	$L__BB0_1;
	bra.uni 	$L__BB0_3;
$L__BB0_2:
	mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 	{%f3, %f4}, {%r3}, {%r4}, {%f3, %f4};
	@!%p2 bra 	$L__BB0_2;
$L__BB0_3:
	ret;
}
"""


def lines_of(text: str) -> list[str]:
    block = hot_block(text)
    assert block is not None
    return [text.split("\n")[n].strip() for n in block]


def test_the_innermost_loop_with_most_arithmetic() -> None:
    found = lines_of(AVX2)
    assert found[0].startswith(".LBB0_3:")
    assert found[-1] == "jne\t.LBB0_3"
    assert sum("vfmadd" in line for line in found) == 2


def test_vectors_count_before_scalars() -> None:
    assert "fmla\tv0.4s, v1.4s, v2.s[0]" in lines_of(NEON)
    scalar = NEON.replace("fmla\tv0.4s, v1.4s, v2.s[0]", "mov\tx1, x2")
    assert lines_of(scalar)[0] == ".LBB0_2:"


def test_threads_of_gpus() -> None:
    assert lines_of(PTX)[0] == "$L__BB0_2:"
    threads = PTX.replace("mma.sync", "ldmatrix.sync")
    assert lines_of(threads)[0] == "$L__BB0_1:"


@pytest.mark.parametrize(
    "text",
    ["", "no assembly at all", "a:\n\tjmp\ta", ".LBB0_1:\n\tmovq %rax, %rbx\n\tjne .LBB0_1",
     "\tjne\t.LBB0_1\n.LBB0_1:\n\tvaddps %ymm0, %ymm0, %ymm0"],
)  # fmt: skip
def test_no_loop_computes(text: str) -> None:
    assert hot_block(text) is None


@pytest.mark.parametrize(
    ("instruction", "counts"),
    [
        ("vfmadd213pd %zmm1, %zmm2, %zmm3", True),
        ("vpdpbusd %ymm1, %ymm2, %ymm3", True),
        ("vpaddd %ymm1, %ymm2, %ymm3", True),
        ("mulps %xmm1, %xmm2", True),
        ("vdpbf16ps %zmm1, %zmm2, %zmm3", True),
        ("tdpbssd %tmm1, %tmm2, %tmm3", True),
        ("sdot v0.4s, v1.16b, v2.16b", True),
        ("bfmmla v0.4s, v1.8h, v2.8h", True),
        ("wgmma.mma_async.sync.aligned.m64n64k16 {%f1};", True),
        ("vaddss %xmm1, %xmm2, %xmm3", True),
        ("fma.rn.f32 %f1, %f2, %f3, %f4;", True),
        ("add.rn.bf16 %f1, %f2, %f3;", True),
        ("add.s32 %r1, %r2, 1;", False),
        ("mad.lo.s32 %r1, %r2, 1;", False),
        ("addq $1, %rax", False),
        ("vmovups %ymm1, %ymm2", False),
        ("vpmaskmovd %ymm1, %ymm2, (%rax)", False),
        ("vpermps %ymm1, %ymm2, %ymm3", False),
        ("vpxor %ymm1, %ymm2, %ymm3", False),
        ("add x1, x2, x3", False),
        ("mul w1, w2, w3", False),
    ],
)
def test_what_is_arithmetic(instruction: str, counts: bool) -> None:
    text = f".L1:\n\t{instruction}\n\tjne\t.L1"
    assert (hot_block(text) is not None) is counts


@pytest.mark.parametrize("mcpu", ["x86-64-v2", "x86-64-v3", "skylake-avx512", "neoverse-n1"])
def test_of_a_compiled_product_it_is_the_reduction(mcpu: str) -> None:
    sch = product((64, 64, 64))
    c = sch.get_block("C")
    sch.decompose_reduction(c, sch.get_loops(c)[2])
    target = tw.Target.parse(f"cpu -mcpu={mcpu} -threads=1")
    found = lines_of(compile_func(sch.func, target).source("asm"))
    adds = [line for line in found if line.startswith(("vfmadd", "fmla", "addps"))]
    assert len(adds) == 4 * 16 * 32 // (target.vector_bits)


def two_stages(n: int) -> tw.Schedule:
    """The gelu of a matrix, and its product with another one."""
    x, w = (te.placeholder((n, n), "float32", name=name) for name in "XW")
    g = te.compute((n, n), lambda i, j: te.gelu(x[i, j]), name="G")
    k = te.reduce_axis(n, name="k")
    y = te.compute((n, n), lambda i, j: te.sum(g[i, k] * w[k, j], axis=k), name="Y")
    return tw.Schedule(te.func([x, w, y], name="two"))


@pytest.mark.parametrize("mcpu", ["x86-64-v3", "skylake-avx512", "neoverse-n1"])
@pytest.mark.parametrize("vectors", [False, True])
def test_of_several_stages_it_is_the_one_that_runs_most(mcpu: str, vectors: bool) -> None:
    sch = two_stages(256)
    if vectors:  # those of the other stage, whose loop has more instructions too
        sch.vectorize(sch.split(sch.get_loops(sch.get_block("G"))[-1], factors=[None, 16])[1])
    sch.parallel(sch.get_loops(sch.get_block("Y"))[0])
    target = tw.Target.parse(f"cpu -mcpu={mcpu} -threads=2")
    compiled, program = compile_func(sch.func, target), ProgramLoops(sch.func)
    loops = generator_for(target).loops_of_lines(compiled, program)
    assert loops is not None
    block = hot_block(compiled.source("asm"), loops, program)
    assert block is not None
    number = loops[block.start]
    assert number is not None
    assert program.loops[number].var.name == "k"
    assert program.iterations(n for n in loops if n is not None)[number] == 256**3


def test_lanes_and_copies_do_not_count_as_iterations_but_threads_do() -> None:
    sch = tw.Schedule(ops.matmul_func(8, 32, 64))
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.reorder(i, k, j)
    sch.parallel(i)
    sch.vectorize(j)
    assert ProgramLoops(sch.func).iterations([1]) == {1: 8 * 64}
    assert ProgramLoops(sch.func).iterations([0, 1]) == {0: 8, 1: 8 * 64}
    assert ProgramLoops(sch.func).iterations([0, 1, 2]) == {0: 8, 1: 8 * 64, 2: 8 * 64 * 32}


def test_of_a_compiled_kernel_of_a_gpu_it_is_the_reduction() -> None:
    target = tw.Target.parse("cuda -arch=sm_90a")
    try:
        generator_for(target).tools()
    except BuildError as error:
        pytest.skip(f"nothing compiles for GPUs here: {error.message}")
    sch = tw.Schedule(ops.matmul_func(64, 64, 64))
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    _, inner = sch.split(k, factors=[None, 4])
    sch.unroll(inner)
    found = lines_of(compile_func(sch.func, target).source("ptx"))
    products = sum(line.startswith("fma.rn.f32") for line in found)
    assert products >= 4  # the compiler may unroll further
    assert products % 4 == 0

"""Building kernels: memory, threads, names, and programs that are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilewright import ops, te
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.sketch import sketches
from tilewright.base.errors import ArtifactError, BuildError, KernelError, TargetError
from tilewright.codegen import lower as lowering
from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.compiled import compiled_from
from tilewright.codegen.cpu.generator import runs_parallel
from tilewright.codegen.cpu.llvm import parse
from tilewright.codegen.cpu.lowering import passes
from tilewright.codegen.detect import resolve
from tilewright.runtime.signature import MAX_BYTES, WORKSPACE_ALIGNMENT, Signature
from tilewright.schedule import Schedule
from tilewright.tir.ir import Buffer, For, ForKind, Func, Store, Var, load
from tilewright.tir.parser import parse as parse_program
from tilewright.tir.visit import walk

from ..hosts import processor
from ..refusals import refused
from .machinery import SERIAL, check, check_passes

HUGE = 1 << 43


def chain(n: int, m: int) -> Func:
    """C[i] = the sum over j of B[i, j] = A[i] + j."""
    a = te.placeholder((n,), "float32", name="A")
    b = te.compute((n, m), lambda i, j: a[i] + te.cast(j, "float32"), name="B")
    r = te.reduce_axis(m, name="r")
    c = te.compute((n,), lambda i: te.sum(b[i, r], axis=r), name="C")
    return te.func([a, c], name="chain")


def with_scratch(n: int, m: int) -> Schedule:
    """Each row of B is made where it is used, the rows in parallel."""
    sch = Schedule(chain(n, m))
    i = sch.get_loops(sch.get_block("C"))[0]
    sch.compute_at(sch.get_block("B"), i)
    sch.parallel(i)
    return sch


def test_memory_that_is_not_there_is_an_error() -> None:
    module = to_module(compile_func(chain(1, HUGE), SERIAL))
    with pytest.raises(KernelError, match="no memory"):
        module(np.zeros(1, np.float32), np.zeros(1, np.float32))


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_that_a_thread_does_not_get_is_an_error(threads: int) -> None:
    module = to_module(compile_func(with_scratch(4, HUGE).func, f"cpu -threads={threads}"))
    with pytest.raises(KernelError, match="no memory"):
        module(np.zeros(4, np.float32), np.zeros(4, np.float32))


@pytest.mark.parametrize("m", [7, 9000])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_threads_have_scratch_memory_of_their_own(n: int, m: int) -> None:
    func = with_scratch(n, m).func
    module = to_module(compile_func(func, "cpu -threads=2"))
    a, c = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    for _ in range(20):
        module(a, c)
        np.testing.assert_allclose(c, a * m + m * (m - 1) / 2, rtol=1e-3)


def test_only_parallel_kernels_for_several_threads_have_loops_of_theirs() -> None:
    func = with_scratch(4, 5).func
    assert runs_parallel(compile_func(func, "cpu -threads=2"))
    assert not runs_parallel(compile_func(func, "cpu -threads=1"))
    assert not runs_parallel(compile_func(chain(4, 5), "cpu -threads=2"))


@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("extent", [1, 2, 7, 40, 1001])
def test_threads_share_all_iterations(extent: int, threads: int) -> None:
    """Each share is taken in portions, and by whichever thread is free."""
    x = te.placeholder((extent,), "int32", name="X")
    y = te.compute((extent,), lambda i: x[i] * 3 + te.cast(i, "int32"), name="Y")
    sch = Schedule(te.func([x, y], name="shares"))
    sch.parallel(sch.get_loops(sch.get_block("Y"))[0])
    module = to_module(compile_func(sch.func, f"cpu -threads={threads}"))
    values = np.arange(extent, dtype=np.int32)
    for _ in range(20):
        found = np.full(extent, -1, np.int32)
        module(values, found)
        np.testing.assert_array_equal(found, values * 3 + values)


def test_a_parallel_loop_in_a_parallel_loop_is_serial() -> None:
    a = te.placeholder((3, 4), "float32", name="A")
    c = te.compute((3, 4), lambda i, j: a[i, j] * 2, name="C")
    sch = Schedule(te.func([a, c], name="f"))
    sch.parallel(sch.get_loops(sch.get_block("C"))[0])
    body = sch.func.body
    assert isinstance(body, For)
    nested = replace(body, body=replace(body.body, kind=ForKind.PARALLEL))  # type: ignore[type-var]
    check(replace(sch.func, body=nested), target="cpu -threads=2")


def test_internal_buffers_shrink_to_what_is_alive() -> None:
    steps = dict[str, Func]()
    lowering.lower(with_scratch(6, 8).func, resolve(SERIAL), watcher=steps.__setitem__)
    shapes = {n.buffer.shape for n in walk(steps["compact"]) if type(n).__name__ == "Alloc"}
    assert shapes == {(1, 8)}
    check_passes(with_scratch(6, 8).func)


def test_the_trace_sees_the_program_after_each_pass() -> None:
    names: list[str] = []
    lowering.lower(chain(2, 3), resolve(SERIAL), watcher=lambda name, _: names.append(name))
    assert names == ["", *(p.name for p in passes(processor(SERIAL)))]


def test_strict_arithmetic_keeps_the_order_of_sums() -> None:
    names: list[str] = []
    lowering.lower(
        chain(2, 3), resolve(SERIAL), strict_fp=True, watcher=lambda name, _: names.append(name)
    )
    assert {p.name for p in passes(processor(SERIAL))} - set(names) == {
        "tree_reduce",
        "partial_sums",
    }


def test_sources_of_a_module() -> None:
    module = to_module(compile_func(chain(2, 3), SERIAL, name="renamed"))
    assert "i32 @renamed(" in module.source("llvm")
    assert "renamed:" in module.source("asm")
    assert "def chain(" in module.source("tir")
    assert module.signature.name == "renamed"


def test_unrolling_too_far_is_refused() -> None:
    a = te.placeholder((1 << 40,), "float32", name="A")
    c = te.compute((1 << 40,), lambda i: a[i], name="C")
    func = te.func([a, c], name="f")
    assert isinstance(func.body, For)
    unrolled = replace(func, body=replace(func.body, kind=ForKind.UNROLL))
    with refused(BuildError, "1099511627776"):
        compile_func(unrolled, SERIAL)


def test_registers_need_constant_indices() -> None:
    sch = Schedule(chain(2, 3))
    sch.cache_write(sch.get_block("B"), 0, "register")
    with pytest.raises(BuildError):
        compile_func(sch.func, SERIAL)


def test_loops_bound_to_a_gpu_are_refused() -> None:
    sch = Schedule(chain(2, 3))
    sch.bind(sch.get_loops(sch.get_block("B"))[0], "blockIdx.x")
    with pytest.raises(BuildError) as error:
        compile_func(sch.func, SERIAL)
    assert str(error.value).endswith("sch.parallel(loop) and sch.vectorize(loop)")


def test_open_decisions_are_refused() -> None:
    func = chain(2, 3)
    first = next(n for n in walk(func) if isinstance(n, For))
    n = Var("n")
    stores = next(s for s in walk(func) if isinstance(s, Store))
    open_func = replace(func, body=For(first.var, n, stores))
    with pytest.raises(BuildError):
        compile_func(open_func, SERIAL)


def test_variables_outside_of_their_loops_are_refused() -> None:
    func = chain(2, 3)
    block = next(n for n in walk(func) if type(n).__name__ == "Block")
    with pytest.raises(BuildError):
        compile_func(replace(func, body=block), SERIAL)


def test_code_for_another_machine_is_not_loaded() -> None:
    compiled = compile_func(chain(2, 3), "cpu -mcpu=neoverse-n1 -threads=1")
    assert compiled.image[:4] == b"\x7fELF"
    with pytest.raises(TargetError):
        to_module(compiled)


def test_text_that_is_no_module_is_refused() -> None:
    with pytest.raises(BuildError):
        parse("define i32 @f() { ret i64 0 }")


def test_more_threads_than_iterations() -> None:
    a = te.placeholder((3,), "int32", name="A")
    c = te.compute((3,), lambda i: a[i] + 1, name="C")
    sch = Schedule(te.func([a, c], name="f"))
    sch.parallel(sch.get_loops(sch.get_block("C"))[0])
    check(sch.func, target="cpu -threads=16")


def test_expressions_nested_too_deeply_are_refused() -> None:
    a, c = Buffer("A", (3,), "float32"), Buffer("C", (3,), "float32")
    i = Var("i")
    total: te.Expr = a[i]
    for _ in range(2000):
        total = total + 1.0
    func = Func("f", (a, c), (), For(i, 3, Store(c, (i,), total)))
    with pytest.raises(BuildError):
        compile_func(func, SERIAL)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *(
            (n, "cannot be the name of a function in C")
            for n in ("größe", "_init", "__x", "int", "uint8_t")
        ),
        ("memset", "calls the function of that name"),
    ],
)
def test_names_that_no_kernel_can_have(name: str, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        compile_func(replace(chain(2, 3), name=name), SERIAL)
    compile_func(replace(chain(2, 3), name=name), SERIAL, name="kernel")


def total(count: int) -> Func:
    """The sum of `count` - 1 numbers."""
    numbers = [te.scalar("int32", f"s{n}") for n in range(count - 1)]
    terms: list[te.Expr] = list(numbers)
    while len(terms) > 1:
        rest = terms[len(terms) & ~1 :]
        terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)] + rest
    return te.func([*numbers, te.compute((1,), lambda i: terms[0], name="y")], name="total")


def test_a_kernel_has_as_many_arguments_as_a_call_takes() -> None:
    module = to_module(compile_func(total(1023), SERIAL))
    y = np.zeros(1, np.int32)
    module(*range(1022), y)
    assert y[0] == 1021 * 1022 // 2
    module.bind(*range(1, 1023), y)()
    assert y[0] == 1022 * 1023 // 2
    with pytest.raises(BuildError):
        compile_func(total(1024), SERIAL)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2**63,), "x is too large: its shape .9223372036854775808,. or strides reach beyond"),
        ((2**61,), "x is too large"),
        ((2**40, 2**40), "x is too large"),
        ((1,) * 65, "x has 65 dimensions, and an array at most 64"),
    ],
)
def test_tensors_that_no_array_is_are_refused(shape: tuple[int, ...], message: str) -> None:
    x, y, i = Buffer("x", shape, "int64"), Buffer("y", (4,), "int64"), Var("i")
    program = Func("f", (x, y), (), For(i, 4, Store(y, (i,), load(x, (0,) * len(shape)))))
    with pytest.raises(BuildError, match=message):
        compile_func(program, SERIAL)


def test_a_range_of_values_ends_where_integers_do() -> None:
    x = te.placeholder((4,), "int64", name="x", value_range=(-(2**70), 2**70))
    y = te.compute((4,), lambda i: x[i], name="y")
    signature = compile_func(te.func([x, y], name="f"), SERIAL).signature
    assert signature.arguments[0].value_range == (-(2**63), 2**64)
    assert Signature.from_json(signature.to_json()) == signature


def test_a_form_with_workspaces_beyond_every_array_is_refused() -> None:
    compiled = compile_func(ops.add_relu_func(8), "cpu -threads=1")
    size = MAX_BYTES // WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT
    form = {**compiled.form, "workspaces": [size]}
    with pytest.raises(ArtifactError):
        compiled_from(form, compiled.signature, compiled.target, (), "", compiled.image)


def test_registers_of_a_loop_that_only_digits_of_it_index() -> None:
    func = parse_program("""
@tw.script
def add(A: T.Buffer((20, 8, 9, 2), "int32"), B: T.Buffer((20, 8, 9, 2), "int32")):
    R = T.alloc((20, 8, 9, 2), "int32", scope="register")
    for i in range(160):
        for k in T.unrolled(2):
            for j in T.vectorized(16):
                with T.block("R"):
                    v0 = T.axis.spatial(20, i // 8)
                    v1 = T.axis.spatial(8, i % 8)
                    v2 = T.axis.spatial(9, j)
                    v3 = T.axis.spatial(2, k)
                    T.where(j < 9)
                    R[v0, v1, v2, v3] = A[v0, v1, v2, v3] + 1
        for j in T.unrolled(2):
            for k in T.vectorized(16):
                with T.block("B"):
                    v0 = T.axis.spatial(20, i // 8)
                    v1 = T.axis.spatial(8, i % 8)
                    v2 = T.axis.spatial(9, j * 8 + k // 2)
                    v3 = T.axis.spatial(2, k % 2)
                    T.where(j * 16 + k < 18)
                    B[v0, v1, v2, v3] = R[v0, v1, v2, v3]
""")
    a = np.arange(20 * 8 * 9 * 2, dtype=np.int32).reshape(20, 8, 9, 2)
    b = np.empty_like(a)
    to_module(compile_func(func, SERIAL))(a, b)
    np.testing.assert_array_equal(b, a + 1)


@pytest.mark.parametrize("columns", [10, 12])
@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
def test_narrow_transposed_matrices_are_packed_through_registers(columns: int, cpu: str) -> None:
    """The vectors of the last columns reach beyond the matrix, where a selection reads nothing."""
    x, w = te.placeholder((8, 64), name="x"), te.placeholder((columns, 64), name="w")
    k = te.reduce_axis(64, name="k")
    product = te.compute((8, columns), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="y")
    func = te.func([x, w, product])
    target = resolve(f"cpu -mcpu={cpu} -threads=2")
    for sketch in sketches(func, target):
        for row in Rowspace(sketch).sample(np.random.default_rng(0), 2).tolist():
            compile_func(sketch.trace.with_row(row).apply(func).func, target)

"""Kernels that compute in a workspace: its size, who uses which part, and who provides it."""

from __future__ import annotations

import ctypes
import re
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.base.errors import BuildError
from tilewright.codegen.build import compile_func, compiled_signature, to_module
from tilewright.codegen.cache import decode, encode
from tilewright.codegen.calling_convention import sized
from tilewright.codegen.compiled import Compiled
from tilewright.codegen.cpu.elf import read_object
from tilewright.codegen.cpu.generator import runs_parallel
from tilewright.codegen.cpu.glue import make_glue
from tilewright.codegen.cpu.llvm_memory import STACK_BUFFER_BYTES, STACK_BYTES
from tilewright.codegen.detect import resolve
from tilewright.runtime.argument_checks import ctypes_parameters
from tilewright.runtime.host_memory import HOST_MEMORY
from tilewright.runtime.kernel import NativeKernel
from tilewright.runtime.signature import OK, UNUSABLE_WORKSPACE, Argument, Signature
from tilewright.runtime.workspace import Pool
from tilewright.schedule import Schedule
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

from ..emulator import ARM, Call, run
from .machinery import SERIAL, check

LARGE = 5000
"""Numbers of float32 that do not fit on the stack."""
BYTES = -(-LARGE * 4 // 64) * 64


def stages(count: int, n: int = LARGE) -> Func:
    """`count` steps one after the other, each in a buffer that is alive for two steps."""
    lines = [f'def stages(A: T.Buffer(({n},), "float32"), C: T.Buffer(({n},), "float32")):']
    for k in range(count):
        lines += [f'    B{k} = T.alloc(({n},), "float32")']
    for k in range(count):
        lines += [f"    for i in range({n}):"]
        lines += [f"        B{k}[i] = {f'B{k - 1}' if k else 'A'}[{n - 1} - i] + 1.0"]
    lines += [f"    for i in range({n}):", f"        C[i] = B{count - 1}[i]"]
    return parse("\n".join(lines))


def in_loops() -> Schedule:
    """Two stages whose rows are made where they are used, in two loops."""
    a = te.placeholder((4, LARGE), name="A")
    b = te.compute((4, LARGE), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((4, LARGE), lambda i, j: b[i, LARGE - 1 - j] + 1, name="C")
    d = te.compute((4, LARGE), lambda i, j: c[i, j] * 3, name="D")
    e = te.compute((4, LARGE), lambda i, j: d[i, LARGE - 1 - j] - 1, name="E")
    sch = Schedule(te.func([a, c, e], name="in_loops"))
    for producer, consumer in (("B", "C"), ("D", "E")):
        row = sch.get_loops(sch.get_block(consumer))[0]
        sch.compute_at(sch.get_block(producer), row)
    return sch


def parallel(sch: Schedule) -> Schedule:
    for name in "CE":
        sch.parallel(sch.get_loops(sch.get_block(name))[0])
    return sch


def sizes(func: Func, target: str = SERIAL) -> tuple[int, ...]:
    return compile_func(func, target).signature.workspaces


def test_what_is_small_stays_on_the_stack() -> None:
    few = STACK_BYTES // STACK_BUFFER_BYTES
    assert sizes(stages(few, STACK_BUFFER_BYTES // 4)) == (0,)
    assert sizes(stages(few + 1, STACK_BUFFER_BYTES // 4)) == (STACK_BUFFER_BYTES,)
    assert sizes(stages(1, STACK_BUFFER_BYTES // 4 + 1)) == (STACK_BUFFER_BYTES + 64,)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_buffers_of_one_scope_lie_side_by_side(count: int) -> None:
    compiled = check(stages(count), rtol=1e-6)
    assert compiled.signature.workspace_bytes == count * BYTES


def test_buffers_of_loops_that_follow_each_other_share_their_bytes() -> None:
    compiled = check(in_loops().func, rtol=1e-6)
    assert compiled.signature.workspace_bytes == BYTES


@pytest.mark.parametrize("threads", [2, 3, 16])
def test_each_thread_has_a_part_of_its_own(threads: int) -> None:
    compiled = check(parallel(in_loops()).func, target=f"cpu -threads={threads}", rtol=1e-6)
    assert runs_parallel(compiled)
    assert compiled.signature.workspace_bytes == min(threads, 4) * BYTES


def test_a_parallel_loop_of_one_thread_is_a_loop() -> None:
    assert sizes(parallel(in_loops()).func) == (BYTES,)


def test_parts_of_threads_are_kept_apart_from_what_they_share() -> None:
    """B is used by all threads, D by the one that made it."""
    sch = in_loops()
    shared = Schedule(sch.original)
    row = shared.get_loops(shared.get_block("E"))[0]
    shared.compute_at(shared.get_block("D"), row)
    shared.parallel(row)
    shared.parallel(shared.get_loops(shared.get_block("C"))[0])
    compiled = check(shared.func, target="cpu -threads=2", rtol=1e-6)
    whole = 4 * LARGE * 4  # all rows of B at once
    assert compiled.signature.workspace_bytes == whole + 2 * BYTES


def test_kernels_allocate_nothing() -> None:
    for func, target in ((stages(3), SERIAL), (parallel(in_loops()).func, "cpu -threads=2")):
        found = read_object(compile_func(func, target).image)
        assert not found.undefined & {"malloc", "aligned_alloc", "calloc", "free"}


def test_too_many_bytes_are_refused() -> None:
    with pytest.raises(BuildError):
        sized(Signature("f", ()), [2**63 - 64])


def function(compiled: Compiled) -> tuple[Any, Any]:
    """The kernel as C calls it, and what has to be held."""
    module = to_module(compiled)
    types = ctypes_parameters(compiled.signature)
    kernel = module._kernel
    assert isinstance(kernel, NativeKernel)
    return ctypes.CFUNCTYPE(ctypes.c_int32, *types)(kernel.address), module


def test_a_kernel_refuses_a_workspace_that_it_cannot_use() -> None:
    call, _module = function(compile_func(stages(1), SERIAL))
    a, c = np.ones(LARGE, np.float32), np.zeros(LARGE, np.float32)
    memory = HOST_MEMORY.allocate(BYTES + 64)
    start = memory.ctypes.data
    for workspace in (None, start + 1, start + 32):
        assert call(a.ctypes.data, c.ctypes.data, workspace) == UNUSABLE_WORKSPACE
        assert not c.any()
    for workspace in (start, start + 64):
        assert call(a.ctypes.data, c.ctypes.data, workspace) == OK
        assert (c == 2).all()


def test_arguments_of_all_kinds_pass_through() -> None:
    """With a workspace the kernel that C calls hands its arguments to another function."""
    n = te.scalar("int8", "n")
    flag = te.scalar("bool", "flag")
    h = te.scalar("float16", "h")
    x = te.scalar("float64", "x")
    u = te.scalar("uint16", "u")
    b = te.compute(
        (LARGE,),
        lambda i: (
            te.select(flag, te.cast(n, "float64") * x, te.cast(u, "float64"))
            + te.cast(h, "float64")
            + te.cast(i, "float64")
        ),
        name="B",
    )
    c = te.compute((LARGE,), lambda i: b[LARGE - 1 - i] + b[i], name="C")
    func = te.func([n, flag, h, x, u, c], name="kinds")
    out = np.zeros(LARGE)
    for yes in (True, False):
        values = [np.int8(-7), yes, np.float16(0.25), 0.5, np.uint16(65_000)]
        compiled = check(func, [*values, out])
        assert compiled.signature.workspace_bytes == -(-LARGE * 8 // 64) * 64


def packed() -> Func:
    """A program that computes two stages of its constant operand alone."""
    w = te.placeholder((LARGE,), name="W", constant=True)
    x = te.placeholder((LARGE,), name="X")
    first = te.compute((LARGE,), lambda i: w[LARGE - 1 - i] * 2, name="first")
    second = te.compute((LARGE,), lambda i: first[LARGE - 1 - i] + first[i], name="second")
    c = te.compute((LARGE,), lambda i: second[LARGE - 1 - i] * x[i], name="C")
    return te.func([w, x, c], name="packed")


def test_what_packs_an_operand_has_a_workspace_of_its_own() -> None:
    compiled = compile_func(packed(), SERIAL)
    assert compiled.signature.workspaces == (0, BYTES)
    module = to_module(compiled)
    rng = np.random.default_rng(0)
    weights, values = rng.random((2, LARGE), np.float32)
    operand, found = module.pack("W", weights), np.zeros(LARGE, np.float32)
    module(operand, values, found)
    np.testing.assert_allclose(found, 2 * (weights + weights[::-1]) * values, rtol=1e-6)


@pytest.mark.parametrize("func", [stages(2), packed()], ids=["kernel", "packer"])
def test_a_cached_kernel_has_its_sizes(func: Func) -> None:
    target = resolve(SERIAL)
    compiled = compile_func(func, target)
    assert any(compiled.signature.workspaces)
    assert (
        decode(encode(compiled), compiled_signature(func, target), target).signature
        == compiled.signature
    )


@ARM.needed
def test_programs_in_c_provide_workspaces(tmp_path: Path) -> None:
    """Between margins that must not change, for each thread and for what packs an operand."""
    arm, rng = "cpu -mcpu=neoverse-n1", np.random.default_rng(0)
    x, rows = rng.random(LARGE, np.float32), rng.random((4, LARGE), np.float32)
    w, weights = np.zeros(LARGE, np.float32), rng.random(LARGE, np.float32)
    calls = [
        Call(compile_func(stages(2), f"{arm} -threads=1", name="k0"), [x, w]),
        Call(
            compile_func(parallel(in_loops()).func, f"{arm} -threads=3", name="k1"),
            [rows, np.zeros_like(rows), np.zeros_like(rows)],
        ),
        Call(compile_func(packed(), f"{arm} -threads=1", name="k2"), [weights, x, w]),
    ]
    sizes = [call.compiled.signature.workspaces for call in calls]
    assert sizes == [(2 * BYTES,), (3 * BYTES,), (0, BYTES)]
    (one,), (_, two), (three,) = run(calls, "neoverse-n1", tmp_path)
    np.testing.assert_allclose(one, x + 2, rtol=1e-6)
    np.testing.assert_allclose(two, (rows * 2 + 1) * 3 - 1, rtol=1e-6)
    np.testing.assert_allclose(three, 2 * (weights + weights[::-1]) * x, rtol=1e-6)


@pytest.mark.parametrize("target", [SERIAL, "cpu -threads=2"])
def test_threads_that_call_one_module_do_not_share(target: str) -> None:
    module = to_module(compile_func(parallel(in_loops()).func, target))
    wrong = []

    def calls(number: int) -> None:
        a = np.full((4, LARGE), number, np.float32)
        c, e = np.zeros_like(a), np.zeros_like(a)
        for _ in range(50):
            e[...] = -1
            module(a, c, e)
            if not (e == (number * 2 + 1) * 3 - 1).all():
                wrong.append(number)

    threads = [threading.Thread(target=calls, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


class Rig:
    """Glue around a kernel that notes its values, over a pool."""

    def __init__(self, size: int, *arguments: Argument) -> None:
        self.signature = Signature("probe", arguments, size)
        self.calls: list[tuple[Any, ...]] = []
        self.held: list[int] = []
        self.deferred = 0
        self.status = 0
        types = ctypes_parameters(self.signature)
        self.function = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(self.kernel)
        address = ctypes.cast(self.function, ctypes.c_void_p).value
        assert address is not None
        self.pool = Pool(HOST_MEMORY)
        made = make_glue(address, self.signature, self.slow, self.fail, pool=self.pool)
        assert made is not None
        self.call = made

    def kernel(self, *values: Any) -> int:
        self.calls.append(values)
        self.held.append(len(self.pool))
        return self.status

    def slow(self, *_: Any) -> None:
        self.deferred += 1

    def fail(self, status: int) -> None:
        raise ValueError(status)


X = Argument("x", "float32", (4,))
INDEX = Argument("i", "int32", (4,), value_range=(0, 9))


def test_the_glue_takes_a_workspace_and_gives_it_back() -> None:
    rig = Rig(256, X)
    x = np.zeros(4, np.float32)
    rig.call(x)
    assert rig.deferred == 1  # there is none yet
    rig.pool.append(HOST_MEMORY.allocate(192))
    rig.call(x)
    assert rig.deferred == 2  # it is too small
    rig.pool += [HOST_MEMORY.allocate(256), HOST_MEMORY.allocate(320)]
    before = list(rig.pool)
    for _ in range(3):
        rig.call(x)
    assert rig.deferred == 2
    assert rig.calls == [(x.ctypes.data, before[-1].ctypes.data)] * 3
    assert rig.held == [2, 2, 2]
    assert all(a is b for a, b in zip(rig.pool, before, strict=True))


def test_the_glue_gives_it_back_whatever_comes() -> None:
    rig = Rig(64, X, INDEX)
    rig.pool.append(HOST_MEMORY.allocate(64))
    x, index = np.zeros(4, np.float32), np.zeros(4, np.int32)
    rig.status = 3
    with pytest.raises(ValueError, match="3"):
        rig.call(x, index)
    assert len(rig.pool) == 1
    index[2] = 9
    rig.call(x, index)
    assert (rig.deferred, len(rig.calls), len(rig.pool)) == (1, 1, 1)


def test_the_glue_keeps_no_workspace_alive() -> None:
    rig = Rig(64, X)
    memory = HOST_MEMORY.allocate(64)
    rig.pool.append(memory)
    before = sys.getrefcount(memory)
    for _ in range(100):
        rig.call(np.zeros(4, np.float32))
    assert sys.getrefcount(memory) == before


def test_a_build_is_called_through_the_glue() -> None:
    module = tw.build(Schedule(stages(2)), SERIAL)
    a, c = np.arange(LARGE, dtype=np.float32), np.zeros(LARGE, np.float32)
    wanted = a + 2
    for _ in range(3):
        c[...] = 0
        module(a, c)
        assert (c == wanted).all()
    assert module.workspace_bytes == 2 * BYTES
    c[...] = 0
    module(a, c, workspace=HOST_MEMORY.allocate(2 * BYTES))
    assert (c == wanted).all()


@pytest.mark.parametrize(
    ("threads", "stacked", "workspace_bytes"), [(8, ["512"], 0), (300, [], 300 * 64)]
)
def test_parallel_loops_share_their_counters(
    threads: int, stacked: list[str], workspace_bytes: int
) -> None:
    lines = ['def loops(A: T.Buffer((1024,), "int32")):']
    for _ in range(5):
        lines += ["    for i in T.parallel(1024):", "        A[i] = A[i] * 3 + 1"]
    compiled = compile_func(parse("\n".join(lines)), f"cpu -threads={threads}")
    assert compiled.signature.workspace_bytes == workspace_bytes
    allocated = re.findall(r"alloca \[(\d+) x i8\]", str(compiled.text))
    assert allocated == stacked
    found = np.arange(1024, dtype=np.int32)
    expected = found.copy()
    module = to_module(compiled)
    for _ in range(3):
        module(found)
        for _ in range(5):
            expected = expected * 3 + 1
    np.testing.assert_array_equal(found, expected)

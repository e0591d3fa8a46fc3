"""Products of matrices, with and without a unit for them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.base.errors import BuildError, IRError, VerifyError
from tilewright.codegen.build import compile_func
from tilewright.codegen.cpu.linking import link
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Func, Matmul, Ramp, Store, const, load, matmul
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from ..hosts import runs
from ..refusals import refused
from .machinery import SERIAL, check, random_arguments

PLAIN = "cpu -mcpu=x86-64-v3 -threads=1"
AMX = "cpu -mcpu=sapphirerapids -threads=1"
INT8 = ("int32", "uint8", "int8")


def program(dtypes: tuple[str, str, str] = INT8, shape: tuple[int, ...] = (16, 16, 16, 4)) -> Func:
    """C += A * B of whole buffers; `shape` has the rows, columns, steps and those of a group."""
    rows, columns, depth, group = shape
    acc, x, y = dtypes
    sums, left, right = (
        f"{name}[T.ramp(0, 1, {count})]"
        for name, count in (
            ("C", rows * columns), ("A", rows * depth * group), ("B", columns * depth * group)
        )
    )  # fmt: skip
    return parse(f"""
def f(
    A: T.Buffer(({rows * depth * group},), "{x}"),
    B: T.Buffer(({columns * depth * group},), "{y}"),
    C: T.Buffer(({rows * columns},), "{acc}"),
):
    T.inplace(C)
    {sums} = T.matmul({sums}, {left}, {right}, {rows}, {group})
""")


def tiles(steps: int = 2) -> Func:
    """A tile in registers: rows of A lie apart, and so do those of the result."""
    return parse(f"""
def f(
    A: T.Buffer(({1024 * steps},), "uint8"),
    B: T.Buffer(({1024 * steps},), "int8"),
    C: T.Buffer((512,), "int32"),
):
    T.inplace(C)
    R = T.scratch((256,), "int32", scope="register")
    R[T.ramp(0, 1, 256)] = T.broadcast(T.int32(0), 256)
    for k in range({steps}):
        R[T.ramp(0, 1, 256)] = T.matmul(
            R[T.ramp(0, 1, 256)],
            A[T.broadcast(k * 64, 1024) + T.ramp(0, 1, 1024) // T.broadcast(64, 1024)
              * T.broadcast({64 * steps}, 1024) + T.ramp(0, 1, 1024) % T.broadcast(64, 1024)],
            B[T.ramp(k * 1024, 1, 1024)], 16, 4)
    C[T.broadcast(8, 256) + T.ramp(0, 1, 256) // T.broadcast(16, 256) * T.broadcast(32, 256)
      + T.ramp(0, 1, 256) % T.broadcast(16, 256)] = R[T.ramp(0, 1, 256)]
""")


@pytest.mark.parametrize("target", [SERIAL, PLAIN, "cpu -mcpu=x86-64 -threads=1"])
@pytest.mark.parametrize(
    ("dtypes", "shape"),
    [
        (INT8, (16, 16, 16, 4)),
        (("int32", "int8", "uint8"), (16, 16, 16, 4)),
        (("int32", "int8", "int8"), (16, 16, 16, 4)),
        (("int32", "uint8", "uint8"), (16, 16, 16, 4)),
        (("float32", "bfloat16", "bfloat16"), (16, 16, 16, 2)),
        (INT8, (3, 5, 2, 4)),
        (("float64", "float32", "float32"), (2, 1, 3, 1)),
    ],
)
def test_values(dtypes: tuple[str, str, str], shape: tuple[int, ...], target: str) -> None:
    func = program(dtypes, shape)
    verify(func)
    check(func, target=target, rtol=1e-2 if "bfloat16" in dtypes else None)


@pytest.mark.parametrize("target", [SERIAL, PLAIN])
def test_rows_that_lie_apart(target: str) -> None:
    check(tiles(), target=target)


def test_what_is_computed_is_multiplied_too() -> None:
    func = parse("""
def f(A: T.Buffer((1024,), "int8"), B: T.Buffer((1024,), "int8"), C: T.Buffer((256,), "int32")):
    C[T.ramp(0, 1, 256)] = T.matmul(
        T.broadcast(T.int32(3), 256), A[T.ramp(0, 1, 1024)] ^ B[T.ramp(0, 1, 1024)],
        A[T.ramp(0, 1, 1024)], 16, 4)
""")
    for target in (SERIAL, PLAIN):
        check(func, target=target)


def test_a_matrix_times_itself() -> None:
    """The instruction refuses one register for both factors."""
    func = parse("""
def f(A: T.Buffer((1024,), "int8"), C: T.Buffer((256,), "int32")):
    C[T.ramp(0, 1, 256)] = T.matmul(
        T.broadcast(T.int32(1), 256), A[T.ramp(0, 1, 1024)], A[T.ramp(0, 1, 1024)], 16, 4)
""")
    assert "tdp" not in check(func, target=AMX).source("asm")


def test_what_was_stored_since_is_loaded_again() -> None:
    func = parse("""
def f(A: T.Buffer((1024,), "int8"), B: T.Buffer((1024,), "int8"), C: T.Buffer((512,), "int32")):
    T.inplace(A)
    C[T.ramp(0, 1, 256)] = T.matmul(
        T.broadcast(T.int32(0), 256), A[T.ramp(0, 1, 1024)], B[T.ramp(0, 1, 1024)], 16, 4)
    A[17] = T.int8(3)
    C[T.ramp(256, 1, 256)] = T.matmul(
        T.broadcast(T.int32(0), 256), A[T.ramp(0, 1, 1024)], B[T.ramp(0, 1, 1024)], 16, 4)
""")
    code = check(func, target=AMX).source("asm")
    assert code.count("tileloadd") == 3


@pytest.mark.parametrize("threads", [1, 2])
def test_what_threads_have_stored_is_loaded_again(threads: int) -> None:
    func = parse("""
def f(A: T.Buffer((1024,), "int8"), B: T.Buffer((1024,), "int8"), C: T.Buffer((512,), "int32")):
    T.inplace(A)
    C[T.ramp(0, 1, 256)] = T.matmul(
        T.broadcast(T.int32(0), 256), A[T.ramp(0, 1, 1024)], B[T.ramp(0, 1, 1024)], 16, 4)
    for i in T.parallel(1024):
        A[i] = T.int8(3)
    C[T.ramp(256, 1, 256)] = T.matmul(
        T.broadcast(T.int32(0), 256), A[T.ramp(0, 1, 1024)], B[T.ramp(0, 1, 1024)], 16, 4)
""")
    check(func, target=f"cpu -threads={threads}")


@pytest.mark.parametrize("target", [SERIAL, PLAIN])
@pytest.mark.parametrize(("dtype", "lanes"), [("bool", 128), ("float64", 16), ("int8", 100)])
@pytest.mark.parametrize("streams", [False, True])
def test_what_is_wider_than_a_row_is_no_matrix_for_that(
    dtype: str, lanes: int, target: str, streams: bool
) -> None:
    func = parse(f"""
def f(A: T.Buffer(({lanes},), "{dtype}"), B: T.Buffer(({lanes},), "{dtype}")):
    T.func_attr({{"stream": {[1] if streams else []}}})
    B[T.ramp(0, 1, {lanes})] = A[T.ramp(0, 1, {lanes})]
""")
    compiled = check(func, target=target)
    assert ("movnt" in compiled.source("asm")) == (streams and lanes % 16 == 0)


@pytest.mark.parametrize(
    ("dtypes", "group", "cpu", "instruction"),
    [
        (INT8, 4, "sapphirerapids", "tdpbusd"),
        (("int32", "int8", "uint8"), 4, "sapphirerapids", "tdpbsud"),
        (("int32", "int8", "int8"), 4, "sapphirerapids", "tdpbssd"),
        (("int32", "uint8", "uint8"), 4, "sapphirerapids", "tdpbuud"),
        (("float32", "bfloat16", "bfloat16"), 2, "graniterapids", "tdpbf16ps"),
    ],
)
def test_the_unit_is_used_where_the_target_has_it(
    dtypes: tuple[str, str, str], group: int, cpu: str, instruction: str
) -> None:
    func = program(dtypes, (16, 16, 16, group))
    rtol = 1e-2 if "bfloat16" in dtypes else None
    assert instruction in check(func, target=f"cpu -mcpu={cpu} -threads=1", rtol=rtol).source("asm")
    small = program(dtypes, (16, 8, 16, group))
    for other, target in ((func, "cooperlake"), (small, cpu)):
        assert "tdp" not in compile_func(other, f"cpu -mcpu={target} -threads=1").source("asm")


def test_tiles_stay_in_registers_through_a_loop() -> None:
    code = check(tiles(), target=AMX).source("asm")
    (body,) = [block for block in re.split(r"\n\.L\w+:", code) if "tdpbusd" in block]
    assert "tilestored" not in body.partition("tdpbusd")[0]
    assert [code.count(f"\t{name}") for name in ("tilezero", "tileloadd", "tilestored")] == [
        1,
        2,
        1,
    ]


def test_exact_floats_do_without_a_unit_that_rounds_otherwise() -> None:
    func = program(("float32", "bfloat16", "bfloat16"), (16, 16, 16, 2))
    assert "tdp" not in compile_func(func, AMX, strict_fp=True).source("asm")
    check(func, random_arguments(func), strict_fp=True)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no linker here")
def test_a_library_asks_for_the_registers_by_itself(tmp_path: Path) -> None:
    """In a process that nothing but ctypes and numpy runs in, as in a program in C.

    A processor without them runs the library of what it has; the request is in the code then.
    """
    func = tiles()
    code = compile_func(func, AMX).source("asm")
    assert "callq\tsyscall@PLT" in code
    assert ".quad\ttilewright.request_tiles" in code.partition(".ctors")[2]
    compiled = compile_func(func, AMX if runs(AMX) else SERIAL)
    path = tmp_path / "f.so"
    path.write_bytes(link(compiled.image, compiled.target))
    a, b, c = random_arguments(func)
    np.savez(tmp_path / "in.npz", a=a, b=b, c=c)
    script = f"""
import ctypes, numpy as np
given = np.load("{tmp_path}/in.npz")
a, b, c = given["a"], given["b"], given["c"]
assert ctypes.CDLL("{path}").f(*(ctypes.c_void_p(x.ctypes.data) for x in (a, b, c)), None) == 0
np.save("{tmp_path}/out.npy", c)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    interpret(func, a, b, c)
    assert (np.load(tmp_path / "out.npy") == c).all()


def test_a_kernel_may_have_any_name_in_c() -> None:
    assert "tdpbusd" in compile_func(tiles(), AMX, name="request_tiles").source("asm")
    with refused(BuildError, "syscall"):
        compile_func(tiles(), AMX, name="syscall")


def test_no_matrix_of_vectors() -> None:
    func = parse("""
def f(A: T.Buffer((4,), "uint8"), B: T.Buffer((8, 4), "int8"), C: T.Buffer((8,), "int32")):
    for i in T.vectorized(8):
        C[i] = T.matmul(T.int32(i), A[T.ramp(0, 1, 4)], B[i, T.ramp(0, 1, 4)], 1, 4)
""")
    with pytest.raises(BuildError):
        compile_func(func, SERIAL)


def test_lanes_that_make_no_matrices() -> None:
    func = program()
    assert isinstance(func.body, Store)
    found = func.body.value
    assert isinstance(found, Matmul)
    with pytest.raises(IRError):
        matmul(found.acc, found.x, found.y, 16, 3)
    few = load(found.x.buffer, (Ramp(const(0), const(1), 3, "int64x3"),))  # type: ignore[attr-defined]
    with pytest.raises(IRError, match="cannot be summed in uint8"):
        matmul(few, found.x, found.y, 16, 4)
    wrong = Matmul(found.acc, few, found.y, 16, 4, "int32x256")
    with refused(VerifyError, "16", "uint8x3", "int8x1024"):
        verify(Func("f", func.params, (), Store(func.body.buffer, func.body.indices, wrong)))

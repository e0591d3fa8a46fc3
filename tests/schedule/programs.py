"""Small programs that schedules are tried on."""

from __future__ import annotations

from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func, Var
from tilewright.tir.parser import parse


def matmul(n: int = 8, m: int = 12, k: int = 10, dtype: str = "int32") -> Func:
    """C = A @ B."""
    a = te.placeholder((n, k), dtype, name="A")
    b = te.placeholder((k, m), dtype, name="B")
    r = te.reduce_axis(k, name="r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.func([a, b, c], name="matmul")


def matmul_relu(n: int = 8, m: int = 12, k: int = 10, dtype: str = "float32") -> Func:
    """D = maximum(A @ B + bias, 0)."""
    a = te.placeholder((n, k), dtype, name="A")
    b = te.placeholder((k, m), dtype, name="B")
    bias = te.placeholder((m,), dtype, name="bias")
    r = te.reduce_axis(k, name="r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    d = te.compute((n, m), lambda i, j: te.maximum(c[i, j] + bias[j], 0), name="D")
    return te.func([a, b, bias, d], name="matmul_relu")


def elementwise(n: int = 16, m: int = 12, dtype: str = "int32") -> Func:
    """B = A * 2 + 1."""
    a = te.placeholder((n, m), dtype, name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2 + 1, name="B")
    return te.func([a, b], name="elementwise")


def chain(n: int = 16, dtype: str = "int32") -> Func:
    """B = A * 2, then C = B + 1."""
    a = te.placeholder((n,), dtype, name="A")
    b = te.compute((n,), lambda i: a[i] * 2, name="B")
    c = te.compute((n,), lambda i: b[i] + 1, name="C")
    return te.func([a, c], name="chain")


def stencil(n: int = 18, dtype: str = "int32") -> Func:
    """B = A * 2, then C[i] = B[i] + B[i + 1] + B[i + 2]."""
    a = te.placeholder((n,), dtype, name="A")
    b = te.compute((n,), lambda i: a[i] * 2, name="B")
    c = te.compute((n - 2,), lambda i: b[i] + b[i + 1] + b[i + 2], name="C")
    return te.func([a, c], name="stencil")


def rowsum(n: int = 8, m: int = 12, dtype: str = "int32") -> Func:
    """S[i] = sum of A[i, :]."""
    a = te.placeholder((n, m), dtype, name="A")
    r = te.reduce_axis(m, name="r")
    s = te.compute((n,), lambda i: te.sum(a[i, r], axis=r), name="S")
    return te.func([a, s], name="rowsum")


def diagonal() -> Func:
    """B[i, i] = A[i]."""
    return parse("""
def diagonal(A: T.Buffer((8,), "float32"), B: T.Buffer((8, 8), "float32")):
    for i in range(8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, i])
            B[vi, vj] = A[vi]
""")


def loops(sch: Schedule, block: str) -> tuple[Var, ...]:
    """The loops around the block of that name."""
    return sch.get_loops(sch.get_block(block))

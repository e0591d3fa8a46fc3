"""Programs of instructions: semantics and implementation of each family."""

from __future__ import annotations

from .instruction import Product, Programs
from .parser import parse


def product(name: str, p: Product) -> Programs:
    """Sums of products: of a row that all columns share, or of matrices."""
    return _dot(name, p) if (p.rows, p.depth) == (1, 1) else _matmul(name, p)


def _dot(name: str, p: Product) -> Programs:
    """C[j] += A[k] * B[j, k]"""
    lanes, group, count = p.columns, p.group, p.count
    signature = f'C: T.Buffer(({lanes},), "{p.acc}")'
    semantics = f"""
def {name}(A: T.Buffer(({group},), "{p.x}"), B: T.Buffer(({lanes}, {group}), "{p.y}"), {signature}):
    T.inplace(C)
    for j, k in T.grid({lanes}, {group}):
        with T.block("C"):
            vj, vk = T.axis.remap("SR", [j, k])
            C[vj] = C[vj] + T.{p.acc}(A[vk]) * T.{p.acc}(B[vj, vk])
"""
    sums = f"C[T.ramp(0, 1, {lanes})]"
    implementation = f"""
def {name}(A: T.Buffer(({group},), "{p.x}"), B: T.Buffer(({count},), "{p.y}"), {signature}):
    T.inplace(C)
    {sums} = T.dot({sums}, A[T.ramp(0, 1, {group})], B[T.ramp(0, 1, {count})])
"""
    return parse(semantics), parse(implementation)


def _matmul(name: str, p: Product) -> Programs:
    """C[i, j] += A[i, k, s] * B[k, j, s]"""
    rows, columns, depth, group = p.rows, p.columns, p.depth, p.group
    semantics = f"""
def {name}(A: T.Buffer(({rows}, {depth}, {group}), "{p.x}"),
           B: T.Buffer(({depth}, {columns}, {group}), "{p.y}"),
           C: T.Buffer(({rows}, {columns}), "{p.acc}")):
    T.inplace(C)
    for i, j, k, s in T.grid({rows}, {columns}, {depth}, {group}):
        with T.block("C"):
            vi, vj, vk, vs = T.axis.remap("SSRR", [i, j, k, s])
            C[vi, vj] = C[vi, vj] + T.{p.acc}(A[vi, vk, vs]) * T.{p.acc}(B[vk, vj, vs])
"""
    x, y, acc = rows * p.steps, columns * p.steps, rows * columns
    operands = f"C[T.ramp(0, 1, {acc})], A[T.ramp(0, 1, {x})], B[T.ramp(0, 1, {y})]"
    implementation = f"""
def {name}(A: T.Buffer(({x},), "{p.x}"), B: T.Buffer(({y},), "{p.y}"),
           C: T.Buffer(({acc},), "{p.acc}")):
    T.inplace(C)
    C[T.ramp(0, 1, {acc})] = T.matmul({operands}, {rows}, {group})
"""
    return parse(semantics), parse(implementation)


def outer(name: str, rows: int, lanes: int) -> Programs:
    """C[i, j] += A[i] * B[j] in float32, `rows` vectors of `lanes`: a fused multiply-add each."""
    head = (
        f'A: T.Buffer(({rows},), "float32"), B: T.Buffer(({lanes},), "float32"), '
        f'C: T.Buffer(({rows}, {lanes}), "float32")'
    )
    semantics = f"""
def {name}({head}):
    T.inplace(C)
    for i, j in T.grid({rows}, {lanes}):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = C[vi, vj] + A[vi] * B[vj]
"""
    vector = f"T.ramp(0, 1, {lanes})"
    lines = "\n".join(
        f"    C[{i}, {vector}] = C[{i}, {vector}] + T.broadcast(A[{i}], {lanes}) * B[{vector}]"
        for i in range(rows)
    )
    implementation = f"""
def {name}({head}):
    T.inplace(C)
{lines}
"""
    return parse(semantics), parse(implementation)


def zero(name: str, dtype: str, rows: int, columns: int) -> Programs:
    """C[i, j] = 0"""
    count = rows * columns
    semantics = f"""
def {name}(C: T.Buffer(({rows}, {columns}), "{dtype}")):
    for i, j in T.grid({rows}, {columns}):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.{dtype}(0)
"""
    implementation = f"""
def {name}(C: T.Buffer(({count},), "{dtype}")):
    C[T.ramp(0, 1, {count})] = T.broadcast(T.{dtype}(0), {count})
"""
    return parse(semantics), parse(implementation)


def copy(name: str, dtype: str, rows: int, columns: int) -> Programs:
    """B[i, j] = A[i, j]"""
    count = rows * columns
    semantics = f"""
def {name}(A: T.Buffer(({rows}, {columns}), "{dtype}"),
           B: T.Buffer(({rows}, {columns}), "{dtype}")):
    for i, j in T.grid({rows}, {columns}):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
"""
    implementation = f"""
def {name}(A: T.Buffer(({count},), "{dtype}"), B: T.Buffer(({count},), "{dtype}")):
    B[T.ramp(0, 1, {count})] = A[T.ramp(0, 1, {count})]
"""
    return parse(semantics), parse(implementation)

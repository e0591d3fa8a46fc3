"""Instructions of two by two elements, which tiles of random programs may be."""

from __future__ import annotations

from tilewright.tir.instruction_set import register_intrin
from tilewright.tir.parser import parse


def outer_product(dtype: str) -> str:
    """C[i, j] += A[i] * B[j], the rows as vectors."""
    name = f"outer_2x2_{dtype}"
    head = f'''def {name}(
    A: T.Buffer((2,), "{dtype}"), B: T.Buffer((2,), "{dtype}"), C: T.Buffer((2, 2), "{dtype}")
):
    T.inplace(C)
'''
    rows = "".join(
        f"    C[{i}, T.ramp(0, 1, 2)] = "
        f"C[{i}, T.ramp(0, 1, 2)] + T.broadcast(A[{i}], 2) * B[T.ramp(0, 1, 2)]\n"
        for i in range(2)
    )
    semantics = f"""{head}    for i, j in T.grid(2, 2):
        C[i, j] = C[i, j] + A[i] * B[j]
"""
    register_intrin(name, parse(semantics), parse(head + rows))
    return name


def dot_product(dtype: str) -> str:
    """C[j] += sum over k of A[k] * B[j, k]."""
    name = f"dot_2x2_{dtype}"
    head = """def {0}(
    A: T.Buffer((2,), "{1}"), B: T.Buffer({2}, "{1}"), C: T.Buffer((2,), "{1}")
):
    T.inplace(C)
"""
    semantics = (
        head.format(name, dtype, "(2, 2)")
        + """    for j, k in T.grid(2, 2):
        C[j] = C[j] + A[k] * B[j, k]
"""
    )
    sums = "C[T.ramp(0, 1, 2)]"
    line = f"    {sums} = T.dot({sums}, A[T.ramp(0, 1, 2)], B[T.ramp(0, 1, 4)])\n"
    register_intrin(name, parse(semantics), parse(head.format(name, dtype, "(4,)") + line))
    return name


SMALL = tuple(
    make(dtype) for make in (outer_product, dot_product) for dtype in ("int32", "float32")
)
"""Their names."""

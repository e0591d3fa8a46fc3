"""A matrix product: what to compute, not how.

tilewright tune examples/matmul.py:matmul -p n=512 --trials 64 --db tuning.db
tilewright build examples/matmul.py:matmul -p n=512 --db tuning.db -o matmul.so
"""

import tilewright as tw
from tilewright import te


def matmul(n: int = 1024, m: int = 1024, k: int = 1024, dtype: str = "float32") -> tw.Func:
    """C = A @ B with A (n, k), B (k, m) and C (n, m)."""
    A = te.placeholder((n, k), dtype, name="A")
    B = te.placeholder((k, m), dtype, name="B")
    r = te.reduce_axis(k, name="r")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return te.func([A, B, C], name="matmul")

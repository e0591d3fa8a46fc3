"""Softmax of the rows of a matrix: several stages, which a schedule may fuse.

tilewright tune examples/softmax.py:softmax -p n=256 -p m=1000 --trials 32 --db tuning.db
"""

import tilewright as tw
from tilewright import te


def softmax(n: int = 1024, m: int = 1024, dtype: str = "float32") -> tw.Func:
    """Y = exp(X - max(X)) / sum(exp(X - max(X))) along the second axis; X and Y (n, m)."""
    X = te.placeholder((n, m), dtype, name="X")
    r = te.reduce_axis(m, name="r")
    largest = te.compute((n,), lambda i: te.max(X[i, r], axis=r), name="largest")
    E = te.compute((n, m), lambda i, j: te.exp(X[i, j] - largest[i]), name="E")
    total = te.compute((n,), lambda i: te.sum(E[i, r], axis=r), name="total")
    Y = te.compute((n, m), lambda i, j: E[i, j] / total[i], name="Y")
    return te.func([X, Y], name="softmax")

"""A convolution with padding, a bias and a relu: one program, three stages.

tilewright tune examples/conv2d.py:conv2d -p c=32 -p size=28 --trials 64 --db tuning.db
"""

import tilewright as tw
from tilewright import te


def conv2d(
    c: int = 64, o: int = 64, size: int = 56, kernel: int = 3, dtype: str = "float32"
) -> tw.Func:
    """Y = relu(conv(X, W) + bias) with X (1, c, size, size), W (o, c, kernel, kernel), bias (o,).

    Images are padded with zeros, so that Y has the size of X; `kernel` is odd.
    """
    p = kernel // 2
    X = te.placeholder((1, c, size, size), dtype, name="X")
    W = te.placeholder((o, c, kernel, kernel), dtype, name="W")
    bias = te.placeholder((o,), dtype, name="bias")
    padded = te.compute(
        (1, c, size + 2 * p, size + 2 * p),
        lambda n, i, y, x: te.select(
            (y >= p) & (y < size + p) & (x >= p) & (x < size + p), X[n, i, y - p, x - p], 0.0
        ),
        name="padded",
    )
    i = te.reduce_axis(c, name="i")
    dy = te.reduce_axis(kernel, name="dy")
    dx = te.reduce_axis(kernel, name="dx")
    conv = te.compute(
        (1, o, size, size),
        lambda n, f, y, x: te.sum(padded[n, i, y + dy, x + dx] * W[f, i, dy, dx], axis=[i, dy, dx]),
        name="conv",
    )
    Y = te.compute(
        (1, o, size, size),
        lambda n, f, y, x: te.maximum(conv[n, f, y, x] + bias[f], 0.0),
        name="Y",
    )
    return te.func([X, W, bias, Y], name="conv2d")

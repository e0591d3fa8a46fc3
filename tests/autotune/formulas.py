"""Programs that no operator of this package makes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tilewright import ops
from tilewright.tir import te
from tilewright.tir.ir import Expr, Func

FORMULAS: dict[str, Callable[[], Func]] = {}


def formula(make: Callable[[], Func]) -> Callable[[], Func]:
    """List what makes a program, which all tests then have as one object."""
    FORMULAS[make.__name__] = once = cache(make)
    return once


def tensor(name: str, *shape: int, dtype: str = "float32") -> te.Tensor:
    return te.placeholder(shape, dtype, name=name)


@formula
def rows_of_a_batch() -> Func:
    """A product whose rows are those of two dimensions, packed across their border."""
    a, b = tensor("A", 4, 100, 32), tensor("B", 32, 33)
    k = te.reduce_axis(32, name="k")
    y = te.compute((4, 100, 33), lambda n, i, j: te.sum(a[n, i, k] * b[k, j], axis=k), name="Y")
    return te.func([a, b, y], name="rows_of_a_batch")


@formula
def sums_of_channels() -> Func:
    """Reduced dimensions with one between them that is not."""
    x = tensor("X", 3, 5, 6, 7)
    n, p, q = (te.reduce_axis(s, name=v) for s, v in ((3, "n"), (6, "p"), (7, "q")))
    y = te.compute((5,), lambda c: te.sum(x[n, c, p, q], axis=[n, p, q]), name="Y")
    return te.func([x, y], name="sums_of_channels")


@formula
def global_average_pooling() -> Func:
    x = tensor("X", 20, 7, 7)
    p, q = te.reduce_axis(7, name="p"), te.reduce_axis(7, name="q")
    return te.func([x, te.compute((20,), lambda c: te.sum(x[c, p, q], axis=[p, q]) / 49, name="Y")])


@formula
def sums_of_short_rows() -> Func:
    """Reduced dimensions whose last one is shorter than a vector, and not next to the others."""
    x = tensor("X", 40, 5, 3)
    n, q = te.reduce_axis(40, name="n"), te.reduce_axis(3, name="q")
    return te.func([x, te.compute((5,), lambda c: te.sum(x[n, c, q], axis=[n, q]), name="Y")])


@formula
def part_of_a_plane() -> Func:
    x = tensor("X", 4, 20, 24)
    p, q = te.reduce_axis(18, name="p"), te.reduce_axis(20, name="q")
    y = te.compute((4,), lambda c: te.max(x[c, p + 1, q + 2], axis=[p, q]), name="Y")
    return te.func([x, y])


@formula
def dilated_grouped_convolution() -> Func:
    x, w = tensor("X", 8, 13, 21), tensor("W", 12, 4, 3, 3)
    c, p, q = (te.reduce_axis(s, name=v) for s, v in ((4, "c"), (3, "p"), (3, "q")))
    y = te.compute(
        (12, 9, 17),
        lambda o, i, j: te.sum(
            x[o // 6 * 4 + c, i + p * 2, j + q * 2] * w[o, c, p, q], axis=[c, p, q]
        ),
        name="Y",
    )
    return te.func([x, w, y])


@formula
def convolutions_of_bytes_that_are_added() -> Func:
    """Of one input, with windows of 3 by 3 and without."""
    x, w, v = (
        tensor(name, *shape, dtype="int8")
        for name, shape in (("X", (1, 16, 5, 12)), ("W", (24, 16, 3, 3)), ("V", (24, 16, 1, 1)))
    )
    y, z = ops.conv2d(x, w, padding=1, name="Y"), ops.conv2d(x, v, name="Z")
    return te.func([x, w, v, ops.add(y, z, name="S")])


@formula
def convolutions_of_groups_one_after_the_other() -> Func:
    x, w, v = tensor("X", 1, 8, 5, 12), tensor("W", 32, 4, 3, 3), tensor("V", 8, 8, 3, 3)
    y = ops.conv2d(x, w, padding=1, groups=2, epilogue="relu", name="Y")
    z = ops.conv2d(y, v, padding=1, groups=4, name="Z")
    return te.func([x, w, v, ops.add(x, z, name="S")])


@formula
def convolution_of_volumes() -> Func:
    x, w = tensor("X", 3, 5, 6, 19), tensor("W", 5, 3, 2, 3, 3)
    c, o, p, q = (te.reduce_axis(s, name=v) for s, v in ((3, "c"), (2, "o"), (3, "p"), (3, "q")))
    y = te.compute(
        (5, 4, 4, 17),
        lambda f, d, i, j: te.sum(x[c, d + o, i + p, j + q] * w[f, c, o, p, q], axis=[c, o, p, q]),
        name="Y",
    )
    return te.func([x, w, y])


@formula
def rotary_embedding() -> Func:
    x, c, s = tensor("X", 7, 3, 32), tensor("C", 7, 32), tensor("S", 7, 32)

    def turned(i: te.Expr, h: te.Expr, d: te.Expr) -> te.Expr:
        low, high = x[i, h, te.maximum(d - 16, 0)], x[i, h, te.minimum(d + 16, 31)]
        return x[i, h, d] * c[i, d] + te.select(d < 16, -high, low) * s[i, d]

    return te.func([x, c, s, te.compute((7, 3, 32), turned, name="Y")])


@formula
def squared_distances() -> Func:
    a, b = tensor("A", 19, 24), tensor("B", 35, 24)
    k = te.reduce_axis(24, name="k")
    y = te.compute(
        (19, 35), lambda i, j: te.sum((a[i, k] - b[j, k]) * (a[i, k] - b[j, k]), axis=k), name="Y"
    )
    return te.func([a, b, y])


@formula
def products_of_columns() -> Func:
    """A product of a matrix with itself: it reads one buffer at two places."""
    a = tensor("A", 24, 37)
    k = te.reduce_axis(24, name="k")
    y = te.compute((37, 37), lambda i, j: te.sum(a[k, i] * a[k, j], axis=k), name="Y")
    return te.func([a, y])


@formula
def product_of_halves() -> Func:
    """Operands that are cast, both of them."""
    a, b = tensor("A", 21, 18, dtype="float16"), tensor("B", 18, 35, dtype="float16")
    k = te.reduce_axis(18, name="k")

    def element(i: Expr, j: Expr) -> Expr:
        return te.sum(te.cast(a[i, k], "float32") * te.cast(b[k, j], "float32"), axis=k)

    return te.func([a, b, te.compute((21, 35), element, name="Y")], name="product_of_halves")


@formula
def product_of_activations() -> Func:
    """An operand that is computed element by element, and lies across the vectors."""
    a, b = tensor("A", 21, 18), tensor("B", 35, 18)
    r = te.compute((35, 18), lambda i, j: te.maximum(b[i, j], 0.0) * 2, name="R")
    k = te.reduce_axis(18, name="k")
    y = te.compute((21, 35), lambda i, j: te.sum(a[i, k] * r[j, k], axis=k), name="Y")
    return te.func([a, b, y], name="product_of_activations")


@formula
def products_of_rows() -> Func:
    a = tensor("A", 21, 35)
    e = te.compute((21, 35), lambda i, k: te.exp(a[i, k]), name="E")
    k = te.reduce_axis(35, name="k")
    y = te.compute((21, 21), lambda i, j: te.sum(e[i, k] * e[j, k], axis=k), name="Y")
    return te.func([a, y])


@formula
def softmax_of_columns() -> Func:
    x = tensor("X", 3, 10, 20)
    k, r = te.reduce_axis(10, name="k"), te.reduce_axis(10, name="r")
    m = te.compute((3, 20), lambda i, j: te.max(x[i, k, j], axis=k), name="M")
    e = te.compute((3, 10, 20), lambda i, t, j: te.exp(x[i, t, j] - m[i, j]), name="E")
    s = te.compute((3, 20), lambda i, j: te.sum(e[i, r, j], axis=r), name="S")
    return te.func([x, te.compute((3, 10, 20), lambda i, t, j: e[i, t, j] / s[i, j], name="Y")])


@formula
def squeeze_and_excite() -> Func:
    """Rows that share what is reduced from all of them."""
    x, a, b = tensor("X", 20, 5, 5), tensor("A", 18, 20), tensor("B", 20, 18)
    p, q, k, r = (te.reduce_axis(s, name=v) for s, v in ((5, "p"), (5, "q"), (20, "k"), (18, "r")))
    s = te.compute((20,), lambda c: te.sum(x[c, p, q], axis=[p, q]) / 25, name="S")
    z = te.compute((18,), lambda i: te.maximum(te.sum(a[i, k] * s[k], axis=k), 0.0), name="Z")
    g = te.compute((20,), lambda c: te.sigmoid(te.sum(b[c, r] * z[r], axis=r)), name="G")
    return te.func([x, a, b, te.compute((20, 5, 5), lambda c, i, j: x[c, i, j] * g[c], name="Y")])


@formula
def attention_of_one_query() -> Func:
    """A row has more than one element of a reduction that it needs."""
    q, k, v = tensor("Q", 3, 16), tensor("K", 3, 37, 16), tensor("V", 3, 37, 16)
    d, m, t, o = (
        te.reduce_axis(s, name=n) for s, n in ((16, "d"), (37, "m"), (37, "t"), (37, "o"))
    )
    s = te.compute((3, 37), lambda h, j: te.sum(q[h, d] * k[h, j, d], axis=d) * 0.25, name="S")
    high = te.compute((3,), lambda h: te.max(s[h, m], axis=m), name="M")
    e = te.compute((3, 37), lambda h, j: te.exp(s[h, j] - high[h]), name="E")
    z = te.compute((3,), lambda h: te.sum(e[h, t], axis=t), name="Z")
    y = te.compute((3, 16), lambda h, j: te.sum(e[h, o] * v[h, o, j], axis=o) / z[h], name="Y")
    return te.func([q, k, v, y])


@formula
def residual_and_norm() -> Func:
    a, b, c = tensor("A", 9, 16), tensor("B", 16, 48), tensor("C", 9, 48)
    k, p, q = (te.reduce_axis(s, name=v) for s, v in ((16, "k"), (48, "p"), (48, "q")))
    d = te.compute((9, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="D")
    z = te.compute((9, 48), lambda i, j: d[i, j] + c[i, j], name="Z")
    m = te.compute((9,), lambda i: te.sum(z[i, p], axis=p) / 48, name="M")
    v = te.compute((9,), lambda i: te.sum((z[i, q] - m[i]) * (z[i, q] - m[i]), axis=q), name="V")
    y = te.compute((9, 48), lambda i, j: (z[i, j] - m[i]) * te.rsqrt(v[i] / 48 + 1e-5), name="Y")
    return te.func([a, b, c, y])


@formula
def concatenation() -> Func:
    a, b = tensor("A", 9, 20), tensor("B", 9, 13)
    y = te.compute(
        (9, 33),
        lambda i, j: te.select(j < 20, a[i, te.minimum(j, 19)], b[i, te.maximum(j - 20, 0)]),
        name="Y",
    )
    return te.func([a, b, y])


def transposed_convolution(stride: int) -> tuple[list[te.Tensor], te.Tensor]:
    """One whose windows do not overlap: each of its digits is a variable of its own."""
    x, w = tensor("X", 6, 5, 19), tensor("W", 6, 5, stride, stride)
    c = te.reduce_axis(6, name="c")
    y = te.compute(
        (5, 5 * stride, 19 * stride),
        lambda i, y, z: te.sum(
            x[c, y // stride, z // stride] * w[c, i, y % stride, z % stride], axis=c
        ),
        name="Y",
    )
    return [x, w], y


@formula
def transposed_convolution_by_2() -> Func:
    inputs, y = transposed_convolution(2)
    b = tensor("B", 5)
    r = te.compute((5, 10, 38), lambda i, j, k: te.maximum(y[i, j, k] + b[i], 0.0), name="R")
    return te.func([*inputs, b, r])


@formula
def transposed_convolution_by_3() -> Func:
    inputs, y = transposed_convolution(3)
    return te.func([*inputs, y])


@formula
def transposed_convolution_by_4() -> Func:
    inputs, y = transposed_convolution(4)
    return te.func([*inputs, y])


@formula
def transposed_convolution_of_bytes() -> Func:
    """Channels last: dot products of bytes, whose result has its digits in the middle."""
    x, w = tensor("X", 5, 9, 32, dtype="int8"), tensor("W", 2, 2, 20, 32, dtype="int8")
    c = te.reduce_axis(32, name="c")
    y = te.compute(
        (10, 18, 20),
        lambda y, z, i: te.sum(
            x[y // 2, z // 2, c].astype("int32") * w[y % 2, z % 2, i, c].astype("int32"), axis=c
        ),
        name="Y",
    )
    return te.func([x, w, y])


@formula
def product_of_repeated_pixels() -> Func:
    x, w = tensor("X", 9, 6, 10), tensor("W", 7, 9)
    c = te.reduce_axis(9, name="c")
    y = te.compute(
        (7, 12, 20), lambda i, y, z: te.sum(x[c, y // 2, z // 2] * w[i, c], axis=c), name="Y"
    )
    return te.func([x, w, y])


@formula
def sub_pixel_convolution() -> Func:
    x, w = tensor("X", 4, 8, 22), tensor("W", 12, 4, 3, 3)
    c, p, q = (te.reduce_axis(s, name=v) for s, v in ((4, "c"), (3, "p"), (3, "q")))
    y = te.compute(
        (3, 12, 40),
        lambda i, y, z: te.sum(
            x[c, y // 2 + p, z // 2 + q] * w[i * 4 + y % 2 * 2 + z % 2, c, p, q], axis=[c, p, q]
        ),
        name="Y",
    )
    return te.func([x, w, y])


def clamped(index: Expr, extent: int) -> Expr:
    return te.minimum(te.maximum(index, 0), extent - 1)


@formula
def clamped_stencils() -> Func:
    """Nine points of nine points, with borders that repeat."""
    a = x = tensor("X", 23, 37)
    for name in ("First", "Second"):
        a = te.compute(
            (23, 37),
            lambda i, j, a=a: (
                sum(
                    (
                        a[clamped(i + d, 23), clamped(j + e, 37)]
                        for d in (-1, 0, 1)
                        for e in (-1, 0, 1)
                    ),
                    te.const(0.0, "float32"),
                )
                * 0.1
            ),
            name=name,
        )
    return te.func([x, a], name="clamped_stencils")


@formula
def wrapped_stencils() -> Func:
    """Stencils of three dimensions whose borders are next to each other."""
    a = x = tensor("X", 5, 7, 33)
    for name in ("First", "Second"):
        a = te.compute(
            (5, 7, 33),
            lambda i, j, k, a=a: (
                a[(i + 1) % 5, j, k] + a[i, (j + 6) % 7, k] - a[i, j, (k + 1) % 33]
            ),
            name=name,
        )
    return te.func([x, a], name="wrapped_stencils")


@formula
def down_and_up() -> Func:
    """A plane at half its size, and what is lost by that."""
    x = tensor("X", 22, 36)
    small = te.compute(
        (11, 18),
        lambda i, j: x[i * 2, j * 2] * 0.5 + x[clamped(i * 2 - 1, 22), j * 2 + 1] * 0.5,
        name="Small",
    )
    large = te.compute(
        (22, 36),
        lambda i, j: small[i // 2, j // 2] + small[clamped((i + 1) // 2, 11), j // 2],
        name="Large",
    )
    y = te.compute((22, 36), lambda i, j: x[i, j] - large[i, j] * 0.5, name="Y")
    return te.func([x, y], name="down_and_up")


@formula
def edges_of_channels() -> Func:
    """Two stages read by one, which has a dimension that they lack."""
    x = tensor("X", 3, 19, 41)
    grey = te.compute((19, 41), lambda i, j: x[0, i, j] + x[1, i, j] * x[2, i, j], name="Grey")
    across = te.compute(
        (19, 41), lambda i, j: grey[i, clamped(j + 1, 41)] - grey[i, clamped(j - 1, 41)], name="Ax"
    )
    down = te.compute(
        (19, 41), lambda i, j: grey[clamped(i + 1, 19), j] - grey[clamped(i - 1, 19), j], name="Dn"
    )
    y = te.compute(
        (3, 19, 41),
        lambda c, i, j: (
            x[c, i, j] - across[i, j] * down[i, clamped(j + 2, 41)] + across[i, clamped(j - 2, 41)]
        ),
        name="Y",
    )
    return te.func([x, y], name="edges_of_channels")


@formula
def opened_plane() -> Func:
    """The largest of the smallest elements of clamped windows, which are reductions."""
    a = x = tensor("X", 17, 35)
    for name, combine in (("Eroded", te.min), ("Opened", te.max)):
        r, q = te.reduce_axis(3, name="r"), te.reduce_axis(2, name="q")
        a = te.compute(
            (17, 35),
            lambda i, j, a=a, r=r, q=q, combine=combine: combine(
                a[clamped(i + r - 1, 17), clamped(j + q - 1, 35)], axis=[r, q]
            ),
            name=name,
        )
    return te.func([x, a], name="opened_plane")


@formula
def mean_of_padded_windows() -> Func:
    """A stage that repeats the border, windows of it, and what follows."""
    x = tensor("X", 15, 22)
    pad = te.compute((17, 24), lambda i, j: x[clamped(i - 1, 15), clamped(j - 1, 22)], name="Pad")
    r, q = te.reduce_axis(3, name="r"), te.reduce_axis(3, name="q")
    total = te.compute((15, 22), lambda i, j: te.sum(pad[i + r, j + q], axis=[r, q]), name="Total")
    y = te.compute((15, 22), lambda i, j: total[i, j] / 9.0, name="Y")
    return te.func([x, y], name="mean_of_padded_windows")


@formula
def gravity() -> Func:
    """Few interleaved columns, read at two points, share the distance."""
    p, m, j = tensor("P", 37, 3), tensor("M", 37), te.reduce_axis(37, name="j")

    def force(i: Expr, c: Expr) -> Expr:
        x, y, z = (p[j, n] - p[i, n] for n in range(3))
        q = te.rsqrt(x * x + y * y + z * z + 0.01)
        return te.sum(m[j] * (p[j, c] - p[i, c]) * q * q * q, axis=j)

    return te.func([p, m, te.compute((37, 3), force, name="Y")], name="gravity")


@formula
def drag_of_pairs() -> Func:
    """Two buffers are read at two points each."""
    p, v, j = tensor("P", 21, 2), tensor("V", 21, 2), te.reduce_axis(21, name="j")

    def force(i: Expr, c: Expr) -> Expr:
        return te.sum((p[j, 0] - p[i, 1]) * (v[j, c] - v[i, c]) + p[i, c], axis=j)

    return te.func([p, v, te.compute((21, 2), force, name="Y")], name="drag_of_pairs")


@formula
def colour_matrix() -> Func:
    x, m, k = tensor("X", 5, 19, 3), tensor("M", 3, 3), te.reduce_axis(3, name="k")
    y = te.compute((5, 19, 3), lambda i, j, c: te.sum(m[c, k] * x[i, j, k], axis=k), name="Y")
    return te.func([x, m, y], name="colour_matrix")


@formula
def norms_of_short_vectors() -> Func:
    x, k = tensor("X", 45, 4), te.reduce_axis(4, name="k")
    s = te.compute((45,), lambda i: te.sum(x[i, k] * x[i, k], axis=k), name="S")
    return te.func([x, te.compute((45,), lambda i: te.sqrt(s[i]), name="Y")])


@formula
def complex_product() -> Func:
    a, b = tensor("A", 35, 2), tensor("B", 35, 2)

    def part(i: Expr, c: Expr) -> Expr:
        real = a[i, 0] * b[i, 0] - a[i, 1] * b[i, 1]
        return te.select(c == 0, real, a[i, 0] * b[i, 1] + a[i, 1] * b[i, 0])

    return te.func([a, b, te.compute((35, 2), part, name="Y")], name="complex_product")


@formula
def chroma() -> Func:
    """Few interleaved columns of a spatial block, an odd number of them."""
    x = tensor("X", 3, 41, 3)

    def channel(i: Expr, j: Expr, c: Expr) -> Expr:
        y = x[i, j, 0] * 0.3 + x[i, j, 1] * 0.6 + x[i, j, 2] * 0.1
        return te.select(c == 0, y, x[i, j, 2 - c] - y)

    return te.func([x, te.compute((3, 41, 3), channel, name="Y")], name="chroma")


@formula
def softmax_of_a_batch() -> Func:
    """Rows of two dimensions, one of them short."""
    x = tensor("X", 5, 3, 37)
    return te.func([x, ops.softmax(x, name="Y")], name="softmax_of_a_batch")

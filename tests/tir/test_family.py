"""The digest that is blind to sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright import ops
from tilewright.tir import te
from tilewright.tir.equality import family_hash
from tilewright.tir.ir import Func

Make = Callable[[], Func]
RELATIVES: dict[str, tuple[Make, Make]] = {
    "matmul": (lambda: ops.matmul_func(8, 12, 16), lambda: ops.matmul_func(1024, 1000, 7)),
    "bias": (
        lambda: ops.matmul_func(8, 12, 16, bias=True, epilogue="relu"),
        lambda: ops.matmul_func(9, 13, 17, bias=True, epilogue="relu"),
    ),
    "int8_matmul": (lambda: ops.int8_matmul_func(8, 12, 16), ops.int8_matmul_func),
    "softmax": (lambda: ops.softmax_func(4, 10), lambda: ops.softmax_func(40, 100)),
    "mean": (lambda: ops.layer_norm_func(4, 10), lambda: ops.layer_norm_func(40, 768)),
    "mean in float16": (
        lambda: ops.layer_norm_func(4, 10, dtype="float16"),
        lambda: ops.layer_norm_func(40, 768, dtype="float16"),
    ),
    "windows": (
        lambda: ops.conv2d_func(c=4, h=8, w=8, o=8, padding=1),
        lambda: ops.conv2d_func(c=6, h=56, w=57, o=9, kernel=5, padding=2),
    ),
    "strides": (
        lambda: ops.conv2d_func(c=4, h=8, w=8, o=8, stride=2, padding=1),
        lambda: ops.conv2d_func(c=4, h=9, w=9, o=8, stride=3, padding=1),
    ),
    "roots": (
        lambda: ops.attention_func(batch=2, heads=2, sequence=8, dim=4),
        lambda: ops.attention_func(batch=3, heads=4, sequence=16, dim=24),
    ),
}


@pytest.mark.parametrize("name", RELATIVES)
def test_sizes_do_not_count(name: str) -> None:
    one, other = RELATIVES[name]
    assert family_hash(one()) == family_hash(other())


def scaled(factor: float, dtype: str = "float32", strides: tuple[int, int] | None = None) -> Func:
    x = te.placeholder((8, 8), dtype, name="x", strides=strides)
    y = te.compute((8, 8), lambda i, j: x[i, j] * factor, name="y")
    return te.func([x, y], name="scaled")


def test_names_do_not_count() -> None:
    a, b = te.placeholder((8, 8), "float32", name="a"), te.placeholder((8, 8), "float32", name="z")
    one = te.func([a, te.compute((8, 8), lambda i, j: a[i, j] * 3.0, name="o")], name="one")
    two = te.func([b, te.compute((8, 8), lambda p, q: b[p, q] * 3.0, name="t")], name="two")
    assert family_hash(one) == family_hash(two)


def test_what_is_no_size_counts() -> None:
    others = [
        scaled(3.0),
        scaled(3.5),
        scaled(3.0, dtype="float64"),
        scaled(3.0, strides=(16, 1)),
        scaled(3.0, strides=(1, 8)),
        ops.matmul_func(8, 8, 8),
        ops.matmul_func(8, 8, 8, dtype="float64"),
        ops.matmul_func(8, 8, 8, bias=True),
        ops.matmul_func(8, 8, 8, constant_b=True),
        ops.matmul_func(8, 8, 8, transpose_b=True),
        ops.reduction_func("sum", 8, 8, axis=0),
        ops.reduction_func("sum", 8, 8, axis=1),
        ops.conv2d_func(c=4, h=8, w=8, o=8, padding=0),
        ops.conv2d_func(c=4, h=8, w=8, o=8, stride=2),
        ops.conv2d_func(c=4, h=8, w=8, o=8, padding=1),
        ops.matmul_func(8, 8, 0),
    ]
    assert len({family_hash(f) for f in others}) == len(others)


def test_the_digest_is_the_same_everywhere_and_always() -> None:
    """A digest that changes hides relatives in every database that people have."""
    assert (
        family_hash(ops.matmul_func(8, 12, 16))
        == "07d4c5e93f578ea257a098b040e0a8a417a957d2691425fd59949b2e0f94ccab"
    )

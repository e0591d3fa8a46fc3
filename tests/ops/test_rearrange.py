from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import IRError, ops
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.printer import func_text


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [((3, 4), (2, 6)), ((2, 3, 4), (-1,)), ((24,), (2, -1, 3)), ((0, 3), (3, 0)), ((1,), ()),
     ((5,), (1, 5, 1)), ((0, 2), (0, 7))],
)  # fmt: skip
def test_reshape(run: Any, make: Any, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    x = make(shape, "int8")
    np.testing.assert_array_equal(run(lambda t: ops.reshape(t, wanted), x), x.reshape(wanted))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concatenate(run: Any, make: Any, axis: int) -> None:
    shapes = [[3, 4], [3, 4], [3, 4]]
    for shape, extent in zip(shapes, (2, 0, 5), strict=True):
        shape[axis] = extent
    arrays = [make(tuple(s), d) for s, d in zip(shapes, ("int8", "float32", "int16"), strict=True)]
    out = run(lambda *t: ops.concatenate(t, axis), *arrays)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, np.concatenate(arrays, axis))
    one = run(lambda t: ops.concatenate([t], axis), arrays[2])
    np.testing.assert_array_equal(one, arrays[2])


def test_many_are_concatenated_without_deep_recursion(run: Any, make: Any) -> None:
    arrays = [make((1 + k % 3,)) for k in range(40)]
    out = run(lambda *t: ops.concatenate(t, 0), *arrays)
    np.testing.assert_array_equal(out, np.concatenate(arrays))
    many = [te.placeholder((1 + k % 3,), "float32", name=f"x{k}") for k in range(1500)]
    assert ops.concatenate(many, 0).extents == (3000,)
    assert func_text(te.func([*many, ops.concatenate(many, 0)])).count("x1499") > 1


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_stack(run: Any, make: Any, axis: int) -> None:
    arrays = [make((3, 4)) for _ in range(3)]
    out = run(lambda *t: ops.stack(t, axis), *arrays)
    np.testing.assert_array_equal(out, np.stack(arrays, axis))


@pytest.mark.parametrize("widths", [((0, 0), (0, 0)), ((1, 0), (0, 2)), ((2, 3), (1, 1))])
def test_pad(run: Any, make: Any, widths: Any) -> None:
    x = make((3, 4), "int16")
    out = run(lambda t: ops.pad(t, widths, -7), x)
    np.testing.assert_array_equal(out, np.pad(x, widths, constant_values=-7))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_take(make: Any, axis: int, dtype: str) -> None:
    x = make((4, 5, 6))
    rows = np.array([[3, 0], [1, 1], [2, 3]], dtype)
    t = te.placeholder(x.shape, name="x")
    r = te.placeholder(rows.shape, dtype, name="rows", value_range=(0, 4))
    wanted = np.take(x, rows, axis)
    out = np.empty_like(wanted)
    interpret(te.func([t, r, ops.take(t, r, axis)]), x, rows, out)
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(run: Any, axis: int) -> None:
    indices = np.array([[0, 2], [3, -1], [1, 9]], np.int64)
    out = run(lambda t: ops.one_hot(t, 4, axis=axis, dtype="float16"), indices)
    assert out.dtype == np.float16
    wanted = np.expand_dims(indices, axis) == np.arange(4).reshape(
        [4 if d == axis % 3 else 1 for d in range(3)]
    )
    np.testing.assert_array_equal(out, wanted)


X, Y = te.placeholder((2, 3), name="x"), te.placeholder((2, 2), name="y")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ops.reshape(X, (4, 2)),
        lambda: ops.reshape(X, (-1, 4)),
        lambda: ops.reshape(X, (-1, -1)),
        lambda: ops.reshape(X, (0, -1)),
        lambda: ops.concatenate([X, Y]),
        lambda: ops.concatenate([]),
        lambda: ops.concatenate([X, X], 2),
        lambda: ops.stack([X, Y]),
        lambda: ops.stack([]),
        lambda: ops.stack([X], 3),
        lambda: ops.pad(X, [(1, 1)]),
        lambda: ops.pad(X, [(1, 1), (0, -1)]),
        lambda: ops.take(X, X),
        lambda: ops.one_hot(X, 4, axis=3),
    ],
)
def test_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(IRError):
        wrong()

"""The memory of processors: arrays become views, and views arrays."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.runtime import Argument
from tilewright.runtime.host_memory import HOST_MEMORY
from tilewright.runtime.memory import View

Array = np.ndarray[Any, Any]
SHAPES: list[Callable[[Array], Array]] = [
    lambda a: a,
    lambda a: a[::-1],
    lambda a: a[::-2, ::-1, 1::2],
    lambda a: a.T[:, ::-1],
    lambda a: a[0, 0, :1].reshape(()),
    lambda a: a[:0, ::-1],
]


@pytest.mark.parametrize("part", SHAPES)
@pytest.mark.parametrize("dtype", ["bool", "int16", "bfloat16", "float64"])
def test_a_view_is_of_the_same_elements(part: Callable[[Array], Array], dtype: str) -> None:
    whole = np.arange(24).reshape(4, 2, 3).astype(dtypes.to_numpy(dtype))
    array = part(whole)
    view = HOST_MEMORY.view(array, "a")
    again = HOST_MEMORY.array(view)
    assert (again.shape, again.strides, again.dtype) == (array.shape, array.strides, array.dtype)
    np.testing.assert_array_equal(again, array)
    assert view.is_compact == array.flags.c_contiguous
    HOST_MEMORY.write(view, 0)
    assert (array == 0).all()


def test_what_may_not_be_written_stays_so() -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    again = HOST_MEMORY.array(HOST_MEMORY.view(array, "a"))
    assert not again.flags.writeable


def test_an_array_holds_the_memory_that_it_is_in() -> None:
    array = HOST_MEMORY.empty(Argument("a", "float32", (5, 2)))
    assert type(array) is np.ndarray
    assert (array.shape, array.dtype, array.flags.c_contiguous) == ((5, 2), np.float32, True)
    assert HOST_MEMORY.view(array, "a").pointer % 64 == 0

    class Owner:
        pass

    owner = Owner()
    held = weakref.ref(owner)
    view = View(HOST_MEMORY.view(array, "a").pointer, "float32", (10,), None, False, owner)
    other = HOST_MEMORY.array(view)[2:].reshape(4, 2)
    del view, owner
    gc.collect()
    assert held() is not None
    del other
    gc.collect()
    assert held() is None

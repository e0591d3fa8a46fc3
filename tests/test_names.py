"""Names that users of numpy, TVM and Triton type first: `docs/from` has what is written here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.tir.numpy_protocol import ufunc

UFUNCS = sorted({f.__name__ for f in vars(np).values() if isinstance(f, np.ufunc)})


@pytest.mark.parametrize("name", UFUNCS)
def test_functions_of_numpy_work_or_are_refused(name: str) -> None:
    """On an element: a value of the same kind, or an error."""
    function = getattr(np, name)
    x: Any = te.placeholder((4,), "float32", name="X")[0]
    try:
        found = ufunc(function, "__call__", [x] * function.nin, {})
    except tw.IRError:
        return
    assert isinstance(found, te.Expr)


def test_functions_of_arrays_are_told_apart_from_programs() -> None:
    for name in ("savetxt", "sort", "linalg"):
        with pytest.raises(AttributeError, match=f"numpy.{name} is for arrays"):
            getattr(te, name)


NUMPY = """
    add arange argmax array broadcast_to concatenate convolve cumsum deg2rad diag dot
    einsum empty expand_dims eye fabs fix flip full heaviside hstack inf isclose linspace matmul
    mean moveaxis nan_to_num nanmax ones outer pad pi piecewise ptp ravel repeat reciprocal reshape
    rint roll split squeeze stack std sum swapaxes take tensordot tile trace transpose tril triu
    var vdot zeros
"""
TVM = """
    all alloc_buffer any assume call_extern ceildiv comm_reducer create_prim_func decl_buffer
    evaluate extern gradient handle if_then_else isfinite launch_thread likely match_buffer
    max_value min_value power prim_func scan size_var tag_scope thread_axis thread_binding truncdiv
    truncmod var
"""
TRITON = """
    arange assume atomic_add bitcast cat cdiv clamp constexpr cumsum debug_barrier device_print dot
    fdiv fma full load make_block_ptr max multiple_of num_programs program_id rand reduce softmax
    static_assert static_range store trans where zeros
"""


@pytest.mark.parametrize(
    ("page", "names"), [("numpy", NUMPY), ("tvm", TVM), ("triton", TRITON)], ids=lambda v: v[:6]
)
def test_pages_have_the_names_of_other_libraries(page: str, names: str) -> None:
    text = (Path(__file__).parent.parent / f"docs/from/{page}.md").read_text(encoding="utf-8")
    assert set(names.split()) <= set(re.findall(r"\w+", text))

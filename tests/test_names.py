"""Names that users of numpy, TVM and Triton type first: each is there, or its error says what is.

The lists are of functions on elements, of tensors as a whole, and of what stands in programs. What
computes on arrays outside of a program (`np.savetxt`) is told so.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import T, te
from tilewright.base.hints import INSTEAD
from tilewright.tir.numpy_protocol import ufunc

UFUNCS = sorted({f.__name__ for f in vars(np).values() if isinstance(f, np.ufunc)})
ON_BITS = {"bitwise_count", "frexp", "gcd", "isnat", "lcm", "nextafter", "spacing"}
"""What needs the bits of a float, or a loop: these are told to be for arrays."""
TVM_TE = """
    abs acos acosh add all any argmax argmin asin asinh atan atan2 atanh bitwise_and bitwise_not
    bitwise_or bitwise_xor ceil ceildiv comm_reducer compute const cos cosh create_prim_func
    create_schedule decl_buffer div divide erf exp extern extern_primfunc floor floordiv floormod
    fmod gradient hybrid hypot if_then_else indexdiv indexmod infinity isfinite isinf isnan ldexp
    likely log log10 log1p log2 logical_and logical_not logical_or max max_value maximum min
    min_value minimum mod multiply nearbyint placeholder pow power prod reduce_axis round rsqrt
    scan shift_left shift_right sigmoid sin sinh size_var sqrt subtract sum tag_scope tan tanh
    thread_axis trace trunc truncdiv truncmod var
"""
TOPI = """
    arange broadcast_to cast clip concatenate cumprod cumsum einsum expand_dims fast_exp_ flip
    full full_like gather identity_ layer_norm leaky_relu log_softmax matmul mean one_hot
    ones_like pad prod relu repeat reshape rsqrt scale_shift_ sigmoid sign softmax softplus split
    squeeze stack strided_slice take tensordot tile transpose trilu_ where zeros_like
"""
NUMPY = """
    amax amin arange argmax argmin array average broadcast_to clip concatenate convolve correlate
    count_nonzero cumprod cumsum diag diagonal diff dot einsum empty expand_dims eye fix flip full
    full_like hstack identity inf inner isclose isneginf isposinf linspace max mean meshgrid min
    moveaxis nan nan_to_num nanmax nanmin nansum newaxis ones ones_like outer pad pi piecewise prod
    ptp ravel repeat reshape roll round split squeeze stack std sum swapaxes take
    take_along_axis tensordot tile trace transpose tri tril triu var vdot vstack where zeros
    zeros_like
"""
TRITON = """
    abs arange atomic_add bitcast broadcast_ cast cat cdiv ceil clamp constexpr cos cumsum
    debug_barrier device_print div_rn dot erf exp exp2 fdiv floor fma full load log log2
    make_block_ptr max maximum min minimum multiple_of num_programs program_id rand randn reduce
    rsqrt sigmoid sin softmax sqrt sqrt_rn static_assert static_range store sum trans where zeros
"""
TVM_SCRIPT = """
    Cast alloc_buffer alloc_local alloc_shared assume axis block call_extern ceildiv evaluate
    float32 floordiv floormod grid handle if_then_else init isfinite isinf isnan launch_thread
    match_buffer max max_value min min_value parallel power prim_func reads sblock select serial
    thread_binding truncdiv unrolled vectorized where writes
"""


def words(text: str) -> list[str]:
    return [word for word in text.split() if not word.endswith("_")]


@pytest.mark.parametrize("name", [*words(TVM_TE), *words(TOPI), *words(NUMPY)])
def test_te_has_it_or_says_what_to_write(name: str) -> None:
    assert (name in te.__all__) != (name in INSTEAD["te"])
    if name not in te.__all__:
        with pytest.raises(AttributeError, match=f"{name!r}; write "):
            getattr(te, name)


@pytest.mark.parametrize("name", [*words(TRITON), *words(TVM_SCRIPT)])
def test_programs_have_it_or_say_what_to_write(name: str) -> None:
    assert name == "where" or hasattr(T, name) != (name in INSTEAD["script"])
    if not hasattr(T, name):
        with pytest.raises(AttributeError, match=f"T has no attribute {name!r}; write "):
            getattr(T, name)
        with pytest.raises(tw.ParseError, match="hint: write "):
            tw.script(PROGRAM.format(name))


PROGRAM = """
def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = T.{}(A[vi])
"""


@pytest.mark.parametrize("name", UFUNCS)
def test_functions_of_numpy_work_or_say_what_to_write(name: str) -> None:
    """On an element: a value of the same kind, or an error that names `te`."""
    function = getattr(np, name)
    x: Any = te.placeholder((4,), "float32", name="X")[0]
    try:
        found = ufunc(function, "__call__", [x] * function.nin, {})
    except tw.IRError as error:
        refused = str(error)
    else:
        assert isinstance(found, te.Expr)
        return
    if name in ON_BITS:
        assert "the functions of te take expressions" in refused
    else:
        assert "hint: write " in refused or "take" in refused.partition("\n")[0]


def test_arrays_are_told_apart_from_programs() -> None:
    for name in ("savetxt", "sort", "linalg"):
        with pytest.raises(AttributeError, match=f"numpy.{name} is for arrays"):
            getattr(te, name)


FORMULAS = ("deg2rad", "fabs", "heaviside", "rad2deg", "reciprocal", "rint")


@pytest.mark.parametrize("name", FORMULAS)
def test_the_formulas_compute_what_they_stand_for(name: str) -> None:
    """The hints of functions that are not there, with those of numpy in place of te's."""
    x, b = np.linspace(-4, 4, 42), np.linspace(3, -1, 42)
    function = getattr(np, name)
    names = {"np": np, "math": math, "x": x, "h": b, "a": x, "b": b}
    found = eval(INSTEAD["te"][name].replace("te.", "np."), names)
    np.testing.assert_allclose(found, function(*(x, b)[: function.nin]), rtol=1e-13)

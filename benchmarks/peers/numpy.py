"""numpy, with the BLAS that it was built with."""

from __future__ import annotations

import numpy as np

from .. import suite
from ..suite import Array, Case
from .call import Call, returning

VERSION = np.__version__


def prepare(case: Case, arrays: list[Array], threads: int) -> Call | None:
    """The call for a case; `None` for convolutions, which numpy has none of."""
    del threads  # set before numpy was loaded
    p = case.params
    if case.op in {"matmul", "int8_matmul"} and "epilogue" not in p:
        if case.op == "int8_matmul":
            return None  # it has no such product: a loop without BLAS
        c = suite.output(case)
        a, b = arrays
        return Call(lambda: np.matmul(a, b, out=c), lambda: c)
    if case.op == "add_relu":
        c = suite.output(case)
        a, b = arrays
        zero = np.float32(0)
        return Call(lambda: np.maximum(np.add(a, b, out=c), zero, out=c), lambda: c)
    if case.op == "sum":
        c = suite.output(case)
        return Call(lambda: np.sum(arrays[0], axis=p["axis"], out=c), lambda: c)
    if case.op == "transpose":
        c = suite.output(case)
        return Call(lambda: np.copyto(c, arrays[0].T), lambda: c)
    if case.op == "conv2d":
        return None
    return returning(lambda: suite.reference(case, arrays), lambda c: c)

"""The calling convention of a `Func`: what the compiled kernel takes."""

from __future__ import annotations

from typing import cast

from ..errors import BuildError
from ..runtime.signature import Argument, Role, Signature
from ..tir.ir import Block, Buffer, Func, Store, Var
from ..tir.visit import walk


def signature_of(func: Func, name: str | None = None) -> Signature:
    """The parameters of `func` in order; those that are stored to are outputs.

    Raises `BuildError` where a shape is not a constant.
    """
    written: set[Buffer] = set()
    for n in walk(func):
        if type(n) is Store:
            written.add(n.buffer)
        elif type(n) is Block:
            written.update(r.buffer for r in n.writes)
    arguments = tuple(_argument(func, p, written) for p in func.params)
    return Signature(func.name if name is None else name, arguments)


def _argument(func: Func, p: Buffer | Var, written: set[Buffer]) -> Argument:
    if isinstance(p, Var):
        return Argument(p.name, p.dtype, kind="scalar")
    if not all(isinstance(n, int) for n in p.shape):
        raise BuildError(
            "the shape of parameter {0} is not known: {1}",
            p.name,
            p.shape,
            hint="give the decisions of the schedule their values before building it",
        )
    role = "in"
    if p in func.inplace:
        role = "inout"
    elif p in written:
        role = "out"
    return Argument(
        p.name,
        p.dtype,
        cast("tuple[int, ...]", p.shape),
        p.strides,
        cast(Role, role),
        constant=p.constant,
        value_range=p.value_range,
    )

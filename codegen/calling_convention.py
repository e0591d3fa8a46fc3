"""The calling convention of a `Func`: the arguments of the compiled kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from ..base.checked_json import MAX_INTEGER, MIN_INTEGER
from ..base.errors import BuildError
from ..runtime.signature import (
    Argument,
    Packing,
    Role,
    Signature,
    limit_exceeded,
)
from ..tir.ir import Block, Buffer, Func, Store, Var
from ..tir.visit import walk


def signature_of(
    func: Func,
    name: str | None = None,
    packings: Mapping[Buffer, Packing] | None = None,
) -> Signature:
    """The parameters of `func` in order; those that are stored to are outputs.

    `packings` are those of packed operands. Raises `BuildError` if a shape is not constant, and for
    more arguments, dimensions or bytes than a call can pass.
    """
    written: set[Buffer] = set()
    for n in walk(func):
        if type(n) is Store:
            written.add(n.buffer)
        elif type(n) is Block:
            written.update(r.buffer for r in n.writes)
    arguments = [_argument(func, p, written) for p in func.params]
    for n, p in enumerate(func.params):
        if packings and isinstance(p, Buffer) and p in packings:
            packing = packings[p]
            arguments[n] = replace(
                arguments[n], name=packing.operand.name, constant=True, packing=packing
            )
    return _within_limits(Signature(func.name if name is None else name, tuple(arguments)))


def sized(signature: Signature, workspaces: Sequence[int]) -> Signature:
    """`signature` with the workspaces of its symbols, in bytes.

    Raises `BuildError` if no call can pass them.
    """
    return _within_limits(signature.with_workspaces(workspaces))


def _within_limits(signature: Signature) -> Signature:
    beyond = limit_exceeded(signature)
    if beyond is not None:
        raise BuildError(
            "{0}", beyond, hint="pass one tensor for many arguments, and parts of large tensors"
        )
    return signature


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
        value_range=_integers_of(p.value_range),
    )


def _integers_of(value_range: tuple[int, int] | None) -> tuple[int, int] | None:
    """A range without the numbers that no integer is: a declared one may have any bounds."""
    if value_range is None:
        return None
    low, high = value_range
    return max(low, MIN_INTEGER), min(high, MAX_INTEGER)

"""Lowered programs of one launch, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import dedent, indent
from typing import Any

import numpy as np

from tilewright.base import dtypes
from tilewright.codegen.cuda.emulate import Emulation, emulate
from tilewright.codegen.cuda.emulate_faults import FaultKind
from tilewright.tir.ir import Buffer, Func
from tilewright.tir.parser import parse
from tilewright.tir.wellformed import check_structure


def kernel(
    params: str,
    code: str,
    *,
    threads: int | tuple[int, ...] = 64,
    blocks: int = 1,
    shared: str = "",
    offsets: Sequence[int] | None = None,
    inplace: str = "",
) -> Func:
    """A launch of `code`, in which `b` is the block and `t` (and `ty`, `tz`) the thread.

    Buffers are written as `A float32 64; B int8 16`. Without offsets, shared buffers stand one
    behind the other.
    """
    arrays = [_declared(p) for p in params.split(";")]
    scratch = [_declared(s) for s in shared.split(";") if s]
    if offsets is None:
        offsets, end = [], 0
        for _, dtype, size in scratch:
            offsets.append(end)
            end += -(-dtypes.nbytes(dtype) * size // 16) * 16
    head = ", ".join(f'{name}: T.Buffer(({n},), "{dtype}")' for name, dtype, n in arrays)
    lines = [f'for b in T.thread("blockIdx.x", {blocks}):'] if blocks > 1 else []
    depth = len(lines)
    lines += [
        "    " * depth + f'{name} = T.scratch(({n},), "{dtype}", scope="shared")'
        for name, dtype, n in scratch
    ]
    extents = threads if isinstance(threads, tuple) else (threads,)
    names = list(zip(("t", "ty", "tz"), "xyz", extents, strict=False))
    for name, axis, n in reversed(names):
        more = f', annotations={{"shared": {list(offsets)}}}' if axis == "x" and scratch else ""
        lines.append("    " * depth + f'for {name} in T.thread("threadIdx.{axis}", {n}{more}):')
        depth += 1
    lines.append(indent(dedent(code).strip("\n"), "    " * depth))
    body = indent("\n".join(lines), "    ")
    marks = f"    T.inplace({inplace})\n" if inplace else ""
    func = parse(f"@tw.script\ndef kernel({head}):\n{marks}{body}\n")
    check_structure(func)
    return func


def _declared(text: str) -> tuple[str, str, int]:
    name, dtype, size = text.split()
    return name, dtype, int(size)


def arguments(func: Func, seed: int = 0) -> list[Any]:
    """Small random numbers for the parameters, all of which are arrays."""
    rng = np.random.default_rng(seed)
    found = []
    for p in func.params:
        assert isinstance(p, Buffer)
        (size,) = p.shape
        assert isinstance(size, int)
        found.append(rng.integers(0, 10, size).astype(dtypes.to_numpy(p.dtype)))
    return found


def run(func: Func, **options: Any) -> Emulation:
    """An emulation with random arguments."""
    return emulate(func, *arguments(func), **options)


def kinds(found: Emulation) -> list[FaultKind]:
    """The kinds of the faults, in order."""
    return [f.kind for f in found.faults]

"""Compiling a program and comparing what it computes with the interpreter."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tilewright.base import dtypes
from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.compiled import Compiled
from tilewright.codegen.detect import resolve
from tilewright.codegen.lower import lower
from tilewright.runtime.signature import WORKSPACE_ALIGNMENT
from tilewright.target import CpuTarget
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Buffer, Func, Var

from ..hosts import runs
from ..instructions import beyond
from ..strided import laid_out

Array: TypeAlias = np.ndarray[Any, Any]
MARGIN = 64
"""Bytes before and after an output that a kernel must leave alone."""
SERIAL = "cpu -threads=1"


def check(
    func: Func,
    arguments: list[Any] | None = None,
    *,
    original: Func | None = None,
    target: str = SERIAL,
    rtol: float | None = None,
    strict_fp: bool = False,
) -> Compiled:
    """Compile `func` and require that it computes what the interpreter gives for `original`.

    Code for a target that this machine is not is looked at, and that for this machine is run.
    """
    arguments = random_arguments(func) if arguments is None else arguments
    expected = copied(arguments)
    interpret(func if original is None else original, *expected)
    compiled = compile_func(func, target, strict_fp=strict_fp)
    found = run(runnable(func, compiled, strict_fp=strict_fp), arguments)
    for p, x, y in zip(func.params, expected, found, strict=True):
        if isinstance(x, np.ndarray):
            assert_close(x, y, rtol, p.name)
    return compiled


def runnable(func: Func, compiled: Compiled, *, strict_fp: bool = False) -> Compiled:
    """`compiled` where this machine executes it, else `func` compiled for this machine.

    What is not executed has to do with the instructions of its target.
    """
    if runs(compiled.target):
        return compiled
    assert beyond(compiled.source("asm"), CpuTarget.of(compiled.target)) == []
    threads = compiled.target.threads
    return compile_func(func, f"cpu -threads={threads}", strict_fp=strict_fp)


def run(compiled: Compiled, arguments: list[Any]) -> list[Any]:
    """The arguments after a call; they and the workspace lie between margins that must not change.

    The workspace holds what makes numbers that are read before they are written show.
    """
    guarded = [guard(a) if isinstance(a, np.ndarray) else (a, None) for a in arguments]
    workspace, around = guarded_workspace(compiled.signature.workspace_bytes)
    to_module(compiled)(*(a for a, _ in guarded), workspace=workspace)
    for _, margins in [*guarded, (workspace, around)]:
        if margins is not None:
            assert (margins[:MARGIN] == 0xA5).all(), "written before the start"
            assert (margins[-MARGIN:] == 0xA5).all(), "written behind the end"
    return [a for a, _ in guarded]


def guarded_workspace(size: int) -> tuple[Array, Array]:
    """A workspace of that size with margins around it, and the bytes of all of it."""
    space = np.full(size + 2 * MARGIN + WORKSPACE_ALIGNMENT, 0xA5, np.uint8)
    start = -space.ctypes.data % WORKSPACE_ALIGNMENT
    space = space[start : start + size + 2 * MARGIN]
    return space[MARGIN:-MARGIN], space


def guard(a: Array) -> tuple[Array, Array | None]:
    """A copy of a compact array with margins around it, and the bytes of all of it."""
    if not a.flags.c_contiguous:
        return a, None
    space = np.full(a.nbytes + 2 * MARGIN, 0xA5, np.uint8)
    copy = space[MARGIN : MARGIN + a.nbytes].view(a.dtype).reshape(a.shape)
    copy[...] = a
    return copy, space


def check_passes(func: Func, target: str = SERIAL) -> None:
    """Require that the program computes the same, in the interpreter, after each lowering pass."""
    arguments = random_arguments(func)
    expected = copied(arguments)
    interpret(func, *expected)
    steps: list[tuple[str, Func]] = []
    lower(func, resolve(target), watcher=lambda name, f: steps.append((name, f)))
    for name, step in steps:
        found = copied(arguments)
        flat = []
        for n, (p, before) in enumerate(zip(step.params, func.params, strict=True)):
            if not (isinstance(p, Buffer) and isinstance(before, Buffer) and len(p.shape) == 1):
                flat.append(found[n])
            elif before.strides is None or before.shape == p.shape:
                flat.append(found[n].reshape(-1))
            else:
                (extent,) = p.shape
                assert isinstance(extent, int)
                memory = np.zeros(extent, found[n].dtype)
                steps_in_bytes = [s * memory.itemsize for s in before.strides]
                view = np.lib.stride_tricks.as_strided(memory, found[n].shape, steps_in_bytes)
                view[...] = found[n]
                found[n] = view
                flat.append(memory)
        interpret(step, *flat)
        for p, x, y in zip(func.params, expected, found, strict=True):
            if isinstance(x, np.ndarray):
                assert_close(x, y, None, f"{p.name} after {name}")


def copied(arguments: list[Any]) -> list[Any]:
    """Copies of the arrays; numbers as they are."""
    return [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]


def random_arguments(func: Func, seed: int = 0) -> list[Any]:
    """Small random numbers for the parameters."""
    rng = np.random.default_rng(seed)
    return [
        random_array(p, rng) if isinstance(p, Buffer) else random_scalar(p, rng)
        for p in func.params
    ]


def random_array(b: Buffer, rng: np.random.Generator) -> Array:
    """An array of a buffer's shape; uncompact ones are views."""
    shape = tuple(int(n) for n in b.shape)  # type: ignore[arg-type]
    kind, dtype = dtypes.info(b.dtype).kind, dtypes.to_numpy(b.dtype)
    low, high = b.value_range or (0 if kind in ("uint", "bool") else -9, 10)
    if kind == "bool":
        values: Array = rng.integers(0, 2, shape).astype(dtype)
    elif kind == "float":
        values = rng.uniform(-3, 3, shape).astype(dtype)
    else:
        values = rng.integers(low, high, shape).astype(dtype)
    return laid_out(values, b.strides)


def random_scalar(v: Var, rng: np.random.Generator) -> Any:
    if dtypes.is_float(v.dtype):
        return float(dtypes.to_numpy(v.dtype).type(rng.uniform(-2, 2)))
    return bool(rng.integers(2)) if dtypes.is_bool(v.dtype) else int(rng.integers(0, 5))


def assert_close(expected: Array, found: Array, rtol: float | None, what: str) -> None:
    """Equal, or close for floats: by default to a few units in the last place of the largest."""
    dtype = dtypes.from_numpy(expected.dtype)
    if not dtypes.is_float(dtype):
        np.testing.assert_array_equal(found, expected, err_msg=what)
        return
    if rtol is None:
        rtol = 32 * 2.0 ** -(dtypes.info(dtype).mantissa + 1)
    x, y = (a.astype(np.float64) for a in (expected, found))
    size = np.abs(x[np.isfinite(x)]).max(initial=1.0)
    np.testing.assert_allclose(y, x, rtol=rtol, atol=rtol * size, err_msg=what)

"""Check a lowered program: its form, and in the emulator against the program before lowering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ...base import dtypes
from ...base.errors import VerifyError
from ...target import CudaTarget
from ...tir.equality import flat
from ...tir.interpreter import interpret
from ...tir.ir import (
    INDEX,
    NARROW_INDEX,
    Alloc,
    Barrier,
    BarrierScope,
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Let,
    Load,
    Op,
    Ramp,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    WarpShuffle,
)
from ...tir.visit import children, nested, stored_buffers
from ..lower import lower
from ..passes.arena import KEY
from ..passes.launches import AXES, BLOCK_AXES, Launch, Varying, launch_of
from .emulate import Emulation, emulate, shared_offsets, strided
from .emulate_batch import Array
from .kernels import is_move

ROUNDINGS = 32
"""Units in the last place by which floats may differ: the order of a sum is not specified."""


@dataclass(frozen=True)
class Difference:
    """A wrong output: where it differs most, and in how many elements."""

    name: str
    index: tuple[int, ...]
    found: Any
    expected: Any
    count: int

    def __str__(self) -> str:
        return (
            f"{self.name}{list(self.index)} is {self.found}, expected {self.expected}"
            f" ({self.count} elements differ)"
        )


@dataclass(frozen=True)
class Check:
    """A lowered program, what its emulation found, and where its results are wrong."""

    lowered: Func
    emulation: Emulation
    differences: tuple[Difference, ...]

    @property
    def right(self) -> bool:
        return not (self.emulation.faults or self.differences)

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.emulation.faults, *self.differences)))


def check_program(
    func: Func,
    target: CudaTarget,
    arguments: Sequence[Any],
    *,
    tolerance: float | None = None,
) -> Check:
    """Lower a program for a resolved target, emulate it, and compare with the interpreter.

    Arguments are numpy arrays and numbers in the order of the parameters; they are not changed. A
    float may deviate by `tolerance` times the sum of its size and the largest of the output; by
    default this is `ROUNDINGS` units in the last place. Raises `BuildError` where `func` cannot be
    lowered, and `VerifyError` where it is wrong itself.
    """
    return check_lowered(lower(func, target), func, arguments, tolerance)


def check_lowered(
    lowered: Func, func: Func, arguments: Sequence[Any], tolerance: float | None = None
) -> Check:
    """Emulate a lowered program and compare with the interpreter on `func`: `check_program`.

    Raises `VerifyError` where it is not in the form of a lowered program.
    """
    check_form(lowered)
    expected, found = _copied(arguments), _copied(arguments)
    interpret(func, *expected)
    emulation = emulate(lowered, *found)
    outputs = stored_buffers(func)
    differences = [
        difference
        for p, a, b in zip(func.params, found, expected, strict=True)
        if isinstance(p, Buffer) and p in outputs
        for difference in [_difference(p, a, b, tolerance)]
        if difference is not None
    ]
    return Check(lowered, emulation, tuple(differences))


def _copied(arguments: Sequence[Any]) -> list[Any]:
    """Copies of arrays that have the same strides; numbers as they are."""
    return [_copy(a) if isinstance(a, np.ndarray) else a for a in arguments]


def _copy(array: Array) -> Array:
    span = dtypes.span_bytes(
        array.shape, [s // array.itemsize for s in array.strides], dtypes.from_numpy(array.dtype)
    )
    memory = np.zeros(max(span // array.itemsize, 1), array.dtype)
    copy = strided(memory, array.shape, array.strides)
    copy[...] = array
    return copy


def _difference(
    param: Buffer, found: Array, expected: Array, tolerance: float | None
) -> Difference | None:
    if not dtypes.is_float(param.dtype):
        error = np.where(found == expected, 0.0, 1.0)
        limit: Array = np.zeros(1)
    else:
        a, b = found.astype(np.float64), expected.astype(np.float64)
        finite = np.isfinite(b)
        if tolerance is None:
            tolerance = ROUNDINGS * 2.0 ** -(dtypes.info(param.dtype).mantissa + 1)
        with np.errstate(all="ignore"):
            error = np.abs(a - b)
            error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, error)
            error = np.where(np.isnan(error), np.inf, error)
            limit = tolerance * (
                np.where(finite, np.abs(b), 0.0) + np.abs(b[finite]).max(initial=0.0)
            )
    wrong = error > limit
    if not wrong.any():
        return None
    worst = np.unravel_index(np.argmax(np.where(wrong, error, -1.0)), wrong.shape)
    index = tuple(int(n) for n in worst)
    return Difference(param.name, index, found[index], expected[index], int(wrong.sum()))


# Check that a program has the form of a last lowered one: see `codegen/cuda/lowering.py`.
#
# Whether accesses race, leave their buffer or read what is unwritten is up to the emulator.

_STATEMENTS = (Seq, For, If, Let, Alloc, Store, Barrier)
_EXPRESSIONS = (Var, Const, Binary, Call, Cast, Select, Load, WarpShuffle)
_MOVE_LANES = (2, 4, 8, 16)
_MOVE_BYTES = (4, 8, 16)


def check_form(func: Func) -> None:
    """Raise `VerifyError` unless the emulator and the printer of kernels can take `func`."""
    for b in (*func.params, *func.allocs):
        if isinstance(b, Buffer):
            _require_flat(b, "global")
    for stmt in flat(func.body):
        _require_launch(stmt)
        launch = launch_of(stmt)
        shared_offsets(launch)
        _Checker(launch).code(launch.code, frozenset())


def _require_launch(stmt: Stmt) -> None:
    """The loops over axes in order, all buffers of the block between blocks and threads."""
    done = -1
    while isinstance(stmt, For | Alloc) and not (type(stmt) is For and stmt.thread is None):
        if type(stmt) is Alloc:
            if stmt.buffer.scope != "shared":
                break
            _require_flat(stmt.buffer, "shared")
            if done >= len(BLOCK_AXES):
                _refuse(f"the shared buffer {stmt.buffer.name} inside of loops over threads")
            done = max(done, len(BLOCK_AXES) - 1)
        elif type(stmt) is For:
            assert stmt.thread is not None
            number = AXES.index(stmt.thread)
            if number <= done:
                _refuse(f"the loop over {stmt.thread} where it stands")
            _require_extent(stmt)
            done = number
            keys = {key for key, _ in stmt.annotations}
            if keys - ({KEY} if number == len(AXES) - 1 else set()):
                _refuse(f"the loop over {stmt.thread} with the annotations {sorted(keys)}")
        stmt = stmt.body


class _Checker:
    """Checks the code of a launch; `varies` are the scopes in which threads may not be together."""

    def __init__(self, launch: Launch) -> None:
        self.varying = Varying(launch)

    def code(self, s: Stmt, varies: frozenset[BarrierScope]) -> None:
        if type(s) not in _STATEMENTS:
            _refuse(f"{type(s).__name__} in the code of a thread")
        together = BarrierScope.WARP not in varies
        if type(s) is For:
            if s.kind not in (ForKind.SERIAL, ForKind.UNROLL):
                _refuse(f"the loop {s.var.name} of kind {s.kind} in the code of a thread")
            if s.annotations:
                _refuse(f"the annotation {s.annotations[0][0]} of the loop {s.var.name}")
            _require_extent(s)
        elif type(s) is Alloc:
            _require_flat(s.buffer, "local", "register")
        elif type(s) is Barrier and s.scope in varies:
            _refuse(f"a barrier of the {s.scope} where not all its threads are")
        elif type(s) is Store:
            self.store(s, together)
        elif type(s) is Let:
            self.scalar(s.value, shuffles=together)
        elif type(s) is If:
            self.scalar(s.cond)
            varies |= {scope for scope in BarrierScope if self.varying(s.cond, scope)}
        for child in nested(s):
            self.code(child, varies)

    def store(self, s: Store, together: bool) -> None:
        if s.mask is not None:
            _refuse(f"a store to {s.buffer.name} with a mask")
        if is_move(s):
            if type(s.value) is not Load or s.value.mask is not None:
                _refuse(f"a store of a vector to {s.buffer.name} that is no move")
            ends = (s.buffer, s.indices), (s.value.buffer, s.value.indices)
            if len({self.lanes(*end) for end in ends}) != 1 or len({b.dtype for b, _ in ends}) != 1:
                _refuse(f"a move to {s.buffer.name} of other lanes than it has")
            return
        self.index(s.buffer, s.indices)
        self.scalar(s.value, shuffles=together)

    def lanes(self, buffer: Buffer, indices: tuple[Expr, ...]) -> int:
        """The lanes of one side of a move."""
        ramp = indices[0]
        if type(ramp) is not Ramp or type(ramp.stride) is not Const or ramp.stride.value != 1:
            _refuse(f"a move of {buffer.name} with other elements than adjacent ones")
        if ramp.lanes not in _MOVE_LANES:
            _refuse(f"a move of {ramp.lanes} lanes")
        if ramp.lanes * dtypes.nbytes(buffer.dtype) not in _MOVE_BYTES:
            _refuse(f"a move of {ramp.lanes} lanes of {buffer.dtype}")
        self.index(buffer, (ramp.base, *indices[1:]))
        return ramp.lanes

    def index(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        if len(indices) != 1 or indices[0].dtype not in (INDEX, NARROW_INDEX):
            _refuse(f"an element of {buffer.name} with other than one index of int64 or int32")
        self.scalar(indices[0])

    def scalar(self, e: Expr, *, shuffles: bool = False) -> None:
        """An expression, in which shuffles may stand where all threads of the warp compute it."""
        if type(e) not in _EXPRESSIONS or dtypes.info(e.dtype).lanes != 1:
            _refuse(f"{type(e).__name__} of {e.dtype} in the code of a thread")
        if type(e) is WarpShuffle and not shuffles:
            _refuse("a shuffle where not all threads of the warp may be")
        if type(e) is Load:
            if e.mask is not None:
                _refuse(f"a load of {e.buffer.name} with a mask")
            self.index(e.buffer, e.indices)
        elif type(e) is Binary and e.op in (Op.AND, Op.OR) and e.dtype == "bool":
            self.scalar(e.a, shuffles=shuffles)
            self.scalar(e.b)  # C++ computes it only where the first does not decide
        elif type(e) is Select:
            for part in (e.cond, e.then, e.other):
                self.scalar(part, shuffles=shuffles and part is e.cond)
        else:
            for child in children(e):
                if isinstance(child, Expr):
                    self.scalar(child, shuffles=shuffles)


def _require_flat(b: Buffer, *scopes: str) -> None:
    if b.scope not in scopes:
        _refuse(f"{b.name} of scope {b.scope} where {' or '.join(scopes)} is expected")
    if len(b.shape) != 1 or b.strides is not None or b.align or b.swizzle is not None:
        _refuse(f"{b.name} with other than one dimension of adjacent elements")


def _require_extent(f: For) -> None:
    if type(f.extent) is not int or f.extent < 1:
        _refuse(f"the loop {f.var.name} of {f.extent} iterations")


def _refuse(what: str) -> NoReturn:
    raise VerifyError(
        "{0} is not in the form of a lowered program",
        what,
        hint="codegen/cuda/lowering.py has the form; `lower` returns programs in it",
    )

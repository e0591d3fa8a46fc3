"""Check that a program has the form of a last lowered one: see `codegen/cuda/lowering.py`.

Whether accesses race, leave their buffer or read what is unwritten is up to the emulator.
"""

from __future__ import annotations

from typing import NoReturn

from tilewright.base import dtypes
from tilewright.base.errors import VerifyError
from tilewright.codegen.cuda.emulate import shared_offsets
from tilewright.codegen.cuda.kernels import is_move
from tilewright.codegen.passes.arena import KEY
from tilewright.codegen.passes.launches import AXES, BLOCK_AXES, Launch, Varying, launch_of
from tilewright.tir.equality import flat
from tilewright.tir.ir import (
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
from tilewright.tir.visit import children, nested

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

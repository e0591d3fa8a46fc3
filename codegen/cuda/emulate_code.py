"""The code of a launch as functions of the active threads of a batch.

Each node is compiled once. An expression becomes a function that returns an array with an element
for each active thread, or with one that all of them have. Arrays that it returns never change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import numpy as np

from ...base import dtypes
from ...base.errors import VerifyError
from ...tir import array_arithmetic
from ...tir.ir import (
    INDEX,
    NARROW_INDEX,
    WARP,
    Alloc,
    Barrier,
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    For,
    ForKind,
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
from .emulate_batch import Active, Array
from .emulate_faults import Action, FaultKind
from .emulate_memory import Access, GlobalAccess, LocalAccess, LocalMemory, Place, SharedAccess
from .emulate_state import State

Value: TypeAlias = Callable[[Active], Array]
Run: TypeAlias = Callable[[Active], None]

_UNDEFINED = frozenset({Op.FLOORDIV, Op.MOD})
"""Operators on integers that are undefined for some operands."""
_LANES = (2, 4, 8, 16)
_MOVE_BYTES = (4, 8, 16)


class Code:
    """Compiles code of a launch to functions that run on its state."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._place: Place
        self._operations: Counter[str] = Counter()

    # Statements

    def statement(self, s: Stmt) -> Run:
        compile_statement = _STATEMENTS.get(type(s))
        if compile_statement is None:
            _refuse(f"{type(s).__name__} in the code of a thread")
        return compile_statement(self, s)

    def seq(self, s: Seq) -> Run:
        runs = [self.statement(x) for x in s.stmts]

        def run(active: Active) -> None:
            for step in runs:
                step(active)

        return run

    def loop(self, s: For) -> Run:
        if s.kind not in (ForKind.SERIAL, ForKind.UNROLL) or type(s.extent) is not int:
            _refuse(f"the loop {s.var.name} in the code of a thread")
        numbers = np.arange(s.extent, dtype=s.var.dtype).reshape(-1, 1)
        body, values, var = self.statement(s.body), self.state.values, s.var

        def run(active: Active) -> None:
            for number in numbers:
                values[var] = number
                body(active)

        return run

    def store(self, s: Store) -> Run:
        if s.mask is not None or len(s.indices) != 1:
            _refuse(f"a store to {s.buffer.name} with a mask or other than one index")
        place, start = self._enter(s)
        index, lanes = self.index(s.indices[0])
        if lanes > 1 and not (type(s.value) is Load and type(s.value.indices[0]) is Ramp):
            _refuse(f"a store of a vector to {s.buffer.name} that is no move")
        value = self.expr(s.value)
        access = self.access(place, s.buffer, Action.WRITE, lanes, s.indices[0])
        note = start()

        def run(active: Active) -> None:
            note(active)
            stored = value(active)
            access.store(active, index(active), stored)

        return run

    def branch(self, s: If) -> Run:
        _, start = self._enter(s)
        cond = self.expr(s.cond)
        note = start()
        then = self.statement(s.then)
        other = None if s.other is None else self.statement(s.other)

        def run(active: Active) -> None:
            note(active)
            holds = cond(active)
            if holds.all():
                then(active)
            elif not holds.any():
                if other is not None:
                    other(active)
            else:
                then(active.where(holds))
                if other is not None:
                    other(active.where(~holds))

        return run

    def let(self, s: Let) -> Run:
        _, start = self._enter(s)
        value = self.expr(s.value)
        note = start()
        body, values, var = self.statement(s.body), self.state.values, s.var

        def run(active: Active) -> None:
            note(active)
            values[var] = active.full(value(active))
            body(active)

        return run

    def alloc(self, s: Alloc) -> Run:
        if s.buffer.scope not in ("local", "register"):
            _refuse(f"{s.buffer.name} of scope {s.buffer.scope} in the code of a thread")
        memory = self.state.locals[s.buffer] = LocalMemory(s.buffer)
        body = self.statement(s.body)

        def run(active: Active) -> None:
            memory.clear()
            body(active)

        return run

    def barrier(self, s: Barrier) -> Run:
        place, start = self._enter(s)
        note, state, scope = start(), self.state, s.scope

        def run(active: Active) -> None:
            note(active)
            state.wait(place, active, scope)

        return run

    def _enter(self, s: Stmt) -> tuple[Place, Callable[[], Run]]:
        """The place of a statement, and what is called after its expressions are compiled.

        That returns a function that counts an execution of them.
        """
        place = self._place = self.state.place(s)
        operations = self._operations = Counter()
        counts = place.counts

        def start() -> Run:
            each = dict(operations)

            def note(active: Active) -> None:
                counts.executions += active.count
                if each:
                    counts.operate(each, active.count)

            return note

        return place, start

    # Accesses

    def index(self, e: Expr) -> tuple[Value, int]:
        """An index, and the lanes of the move that it is of."""
        if type(e) is not Ramp:
            return self.expr(e), 1
        if type(e.stride) is not Const or e.stride.value != 1 or e.lanes not in _LANES:
            _refuse(f"a move of {e.lanes} lanes with stride {e.stride}")
        return self.expr(e.base), e.lanes

    def access(
        self, place: Place, buffer: Buffer, action: Action, lanes: int, index: Expr
    ) -> Access:
        if lanes > 1 and lanes * dtypes.nbytes(buffer.dtype) not in _MOVE_BYTES:
            _refuse(f"a move of {lanes} lanes of {buffer.dtype}")
        dtype = dtypes.info(index.dtype).scalar
        if dtype not in (INDEX, NARROW_INDEX):
            _refuse(f"an index of {dtype}")
        state = self.state
        site = state.site(place, buffer, action)
        if buffer in state.locals:
            return LocalAccess(state, site, lanes, dtype, state.locals[buffer])
        if state.shared is not None and buffer in state.shared.number:
            return SharedAccess(state, site, lanes, dtype, state.shared)
        if buffer not in state.memories:
            _refuse(f"the buffer {buffer.name} where it is not declared")
        return GlobalAccess(state, site, lanes, dtype, state.memories[buffer])

    # Expressions

    def expr(self, e: Expr) -> Value:
        compile_expr = _EXPRESSIONS.get(type(e))
        if compile_expr is None:
            _refuse(f"{type(e).__name__} in the code of a thread")
        return compile_expr(self, e)

    def var(self, e: Var) -> Value:
        values = self.state.values
        return lambda active: active.of(values[e])

    def const(self, e: Const) -> Value:
        value = array_arithmetic.constant(e.value, e.dtype)
        return lambda _: value

    def binary(self, e: Binary) -> Value:
        facts = dtypes.info(e.a.dtype)
        self._operations[facts.scalar] += 1
        a, b = self.expr(e.a), self.expr(e.b)
        function = array_arithmetic.binary(e.op, facts.scalar)
        if e.op not in _UNDEFINED or facts.kind == "float":
            return lambda active: function(a(active), b(active))
        place, state = self._place, self.state

        def run(active: Active) -> Array:
            x, y = a(active), b(active)
            wrong = y == 0
            if wrong.any():
                lanes = active.lanes[np.broadcast_to(wrong, active.count)]
                state.fault(FaultKind.UNDEFINED, place, Action.COMPUTE, lanes)
            return function(x, y)

        return run

    def call(self, e: Call) -> Value:
        self._operations[e.dtype] += 1
        function = array_arithmetic.call(e.fn, e.dtype)
        args = [self.expr(x) for x in e.args]
        return lambda active: function(*[x(active) for x in args])

    def cast(self, e: Cast) -> Value:
        self._operations[e.dtype] += 1
        value = self.expr(e.value)
        function = array_arithmetic.cast(e.value.dtype, e.dtype)
        return lambda active: function(value(active))

    def select(self, e: Select) -> Value:
        cond = self.expr(e.cond)
        then, other = self._side(e.then), self._side(e.other)
        dtype = dtypes.to_numpy(e.dtype)

        def run(active: Active) -> Array:
            holds = cond(active)
            if holds.all():
                return then(active)
            if not holds.any():
                return other(active)
            result = np.empty(active.count, dtype)
            result[holds] = then(active.where(holds))
            result[~holds] = other(active.where(~holds))
            return result

        return run

    def _side(self, e: Expr) -> Value:
        """A side of a select, whose operations are counted for the threads that take it."""
        outer, self._operations = self._operations, Counter()
        value, operations = self.expr(e), dict(self._operations)
        self._operations = outer
        counts = self._place.counts
        if not operations:
            return value

        def run(active: Active) -> Array:
            counts.operate(operations, active.count)
            return value(active)

        return run

    def load(self, e: Load) -> Value:
        if e.mask is not None or len(e.indices) != 1:
            _refuse(f"a load of {e.buffer.name} with a mask or other than one index")
        index, lanes = self.index(e.indices[0])
        access = self.access(self._place, e.buffer, Action.READ, lanes, e.indices[0])
        return lambda active: access.load(active, index(active))

    def shuffle(self, e: WarpShuffle) -> Value:
        value, xor, place, state = self.expr(e.value), e.xor, self._place, self.state

        def run(active: Active) -> Array:
            batch = active.batch
            place.counts.shuffles += active.groups(WARP)
            state.require_together(FaultKind.DIVERGENT_SHUFFLE, place, active, batch.warp)
            partner, absent = batch.partners(xor)
            if absent is not None:
                lanes = active.lanes[active.of(absent)]
                if len(lanes):
                    state.fault(FaultKind.ABSENT_LANE, place, Action.SHUFFLE, lanes)
            here = active.full(value(active))
            return here if here.shape[0] == 1 else here[active.of(partner)]

        return run


def _refuse(what: str) -> NoReturn:
    raise VerifyError(
        "{0} is not in the form of a lowered program",
        what,
        hint="codegen/cuda/lowering.py has the form; the emulator runs what `lower` returns",
    )


_STATEMENTS: dict[type, Callable[[Code, Any], Run]] = {
    Seq: Code.seq,
    For: Code.loop,
    Store: Code.store,
    If: Code.branch,
    Let: Code.let,
    Alloc: Code.alloc,
    Barrier: Code.barrier,
}
_EXPRESSIONS: dict[type, Callable[[Code, Any], Value]] = {
    Var: Code.var,
    Const: Code.const,
    Binary: Code.binary,
    Call: Code.call,
    Cast: Code.cast,
    Select: Code.select,
    Load: Code.load,
    WarpShuffle: Code.shuffle,
}

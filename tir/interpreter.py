"""The interpreter: the oracle of what a program means.

It runs any `Func`, scheduled or lowered, one element at a time, and checks everything on the way:
bounds of each access, reads of elements that were never written, division by zero. Each node is
compiled once to a closure without parameters. A vector expression is compiled to a closure that
returns the value of the lane in slot 0, so that lanes that a `Select` does not take are never
evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NoReturn, cast

import numpy as np

from ..base import dtypes
from ..base.errors import VerifyError
from . import arithmetic
from .call_arguments import check, check_values, elements, scalar, shape_of, write_back
from .ir import (
    INDEX,
    UNORDERED,
    Alloc,
    Barrier,
    Binary,
    Block,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Dim,
    Dot,
    Expr,
    For,
    Func,
    If,
    Iter,
    IterKind,
    Let,
    Load,
    Matmul,
    Op,
    Prefetch,
    Ramp,
    Select,
    Seq,
    Shuffle,
    Stmt,
    Store,
    Var,
    WarpShuffle,
    matrices,
)
from .visit import stored_buffers

Value = Callable[[], Any]
Action = Callable[[], None]


def interpret(
    func: Func,
    *arguments: Any,
    order: Literal["forward", "shuffled"] = "forward",
    seed: int = 0,
) -> None:
    """Run `func` on numpy arrays and numbers in the order of its parameters.

    Outputs are written in place. With `order="shuffled"` the iterations of parallel, vectorized and
    thread loops run in a random order. Raises `ArgumentError` for arguments that do not match, and
    `VerifyError` for an access out of bounds, a read of an element that was not written, an integer
    division by zero, and an iteration variable that leaves its extent; outputs are unchanged then.
    """
    outputs = stored_buffers(func)
    machine = _Machine(np.random.default_rng(seed) if order == "shuffled" else None)
    check(func, arguments, outputs)
    check_values(func, arguments)
    for param, argument in zip(func.params, arguments, strict=True):
        if isinstance(param, Var):
            machine.slots[machine.slot(param)] = scalar(param, argument)
        elif param in outputs and param not in func.inplace:
            machine.allocate(param)()
        else:
            machine.data[param] = elements(argument)
    for buffer in func.allocs:
        machine.allocate(buffer)()
    run = machine.statement(func.body)
    with np.errstate(all="ignore"):
        run()
    for param, argument in zip(func.params, arguments, strict=True):
        if param in outputs:
            write_back(machine.data[cast(Buffer, param)], argument)


class _Machine:
    """Variables in slots (0 is the lane), buffers as flat lists with `None` for unwritten."""

    def __init__(self, rng: np.random.Generator | None) -> None:
        self.slots: list[Any] = [0]
        self.data: dict[Buffer, list[Any]] = {}
        self.rng = rng
        self._slot: dict[Expr, int] = {}
        self._extents: dict[Expr, Dim] = {}
        self._place = "outside of blocks"

    def slot(self, var: Var) -> int:
        if var not in self._slot:
            self._slot[var] = len(self.slots)
            self.slots.append(None)
        return self._slot[var]

    def allocate(self, buffer: Buffer) -> Action:
        """An action that makes the buffer unwritten."""
        size = int(np.prod(shape_of(buffer), dtype=np.int64))
        data = self.data.setdefault(buffer, [])

        def clear() -> None:
            data[:] = [None] * size

        return clear

    # Statements

    def statement(self, s: Stmt) -> Action:
        try:
            compile_statement = _STATEMENTS[type(s)]
        except KeyError:
            raise self.unknown(s) from None
        return compile_statement(self, s)

    def seq(self, s: Seq) -> Action:
        actions = [self.statement(x) for x in s.stmts]

        def run() -> None:
            for action in actions:
                action()

        return run

    def loop(self, s: For) -> Action:
        extent, slots, k = self.dim(s.extent), self.slots, self.slot(s.var)
        self._extents[s.var] = s.extent
        body = self.statement(s.body)
        rng = self.rng if s.kind in UNORDERED else None

        def run() -> None:
            count = range(extent())
            for i in count if rng is None else rng.permutation(count).tolist():
                slots[k] = i
                body()

        return run

    def block(self, s: Block) -> Action:
        place, self._place = self._place, f"in block {s.label.name!r}"
        here = self._place
        predicate = None if s.predicate is None else self.expr(s.predicate)
        iters = [
            (self.slot(i.var), i.var.name, self.expr(i.value), self.dim(i.extent))
            for i in s.iters
            if not self.same(i)
        ]
        zero = [self.slot(i.var) for i in s.iters if i.kind is IterKind.REDUCE]
        body = self.statement(s.body)
        init = None if s.init is None else self.statement(s.init)
        self._place = place
        slots = self.slots

        def run() -> None:
            if predicate is not None and not predicate():
                return
            for k, name, value, extent in iters:
                x = value()
                if not 0 <= x < extent():
                    raise VerifyError(
                        "{0} {1} is {2}, expected within [0, {3})", here, name, x, extent()
                    )
                slots[k] = x
            if init is not None:
                for k in zero:
                    if slots[k]:
                        break
                else:
                    init()
            body()

        return run

    def same(self, i: Iter) -> bool:
        """Whether an iteration variable is a loop's, within its extent; it then shares its slot."""
        loop, extent = self._extents.get(i.value), i.extent
        if not (isinstance(loop, int) and isinstance(extent, int) and loop <= extent):
            return False
        self._slot[i.var] = self._slot[i.value]
        return True

    def store(self, s: Store) -> Action:
        data, position = self.data[s.buffer], self.position(s.buffer, s.indices)
        value, slots = self.expr(s.value), self.slots
        mask = None if s.mask is None else self.expr(s.mask)
        parts = [*s.indices, s.value, *(() if s.mask is None else (s.mask,))]
        lanes = max(dtypes.info(p.dtype).lanes for p in parts)

        def one() -> None:
            if mask is None or mask():
                data[position()] = value()

        def many() -> None:
            stores: list[tuple[int, Any]] = []
            for lane in range(lanes):
                slots[0] = lane
                result = value()
                if mask is None or mask():
                    stores.append((position(), result))
            for k, result in stores:
                data[k] = result

        return one if lanes == 1 else many

    def prefetch(self, s: Prefetch) -> Action:
        """Nothing but the evaluation of the indices, which may read buffers."""
        indices = [self.expr(i) for i in s.indices]

        def run() -> None:
            for index in indices:
                index()

        return run

    def branch(self, s: If) -> Action:
        cond, then = self.expr(s.cond), self.statement(s.then)
        other = None if s.other is None else self.statement(s.other)

        def run() -> None:
            if cond():
                then()
            elif other is not None:
                other()

        return run

    def let(self, s: Let) -> Action:
        slots, k, value = self.slots, self.slot(s.var), self.expr(s.value)
        lanes = dtypes.info(s.var.dtype).lanes
        body = self.statement(s.body)

        def one() -> None:
            slots[k] = value()
            body()

        def many() -> None:
            values = []
            for lane in range(lanes):
                slots[0] = lane
                values.append(value())
            slots[k] = values
            body()

        return one if lanes == 1 else many

    def alloc(self, s: Alloc) -> Action:
        clear = self.allocate(s.buffer)
        body = self.statement(s.body)

        def run() -> None:
            clear()
            body()

        return run

    # Expressions

    def expr(self, e: Expr) -> Value:
        try:
            compile_expr = _EXPRESSIONS[type(e)]
        except KeyError:
            raise self.unknown(e) from None
        return compile_expr(self, e)

    def unknown(self, n: Stmt | Expr) -> VerifyError:
        """The refusal of a node that one thread cannot run by itself, or that is none."""
        hint = None
        if isinstance(n, (Barrier, WarpShuffle)):
            hint = "interpret the program as it was before lowering; the emulator runs this one"
        return VerifyError("{0} cannot be run {1}", type(n).__name__, self._place, hint=hint)

    def dim(self, d: Dim) -> Value:
        if isinstance(d, int):
            return lambda: d
        return self.expr(d)

    def var(self, e: Var) -> Value:
        slots, k = self.slots, self.bound(e)
        if dtypes.info(e.dtype).lanes == 1:
            return lambda: slots[k]
        return lambda: slots[k][slots[0]]

    def bound(self, e: Expr) -> int:
        """The slot of a variable that has a value."""
        if e not in self._slot:
            raise VerifyError("variable {0} has no value {1}", e, self._place)
        return self._slot[e]

    def const(self, e: Const) -> Value:
        value = arithmetic.constant(e.value, dtypes.info(e.dtype).scalar)
        return lambda: value

    def binary(self, e: Binary) -> Value:
        a, b = self.expr(e.a), self.expr(e.b)
        facts = dtypes.info(e.a.dtype)
        function = arithmetic.binary(e.op, facts.scalar)
        if e.op in (Op.FLOORDIV, Op.MOD) and facts.kind != "float":
            return self.checked(e, function, a, b)
        return lambda: function(a(), b())

    def checked(self, e: Binary, function: arithmetic.Function, a: Value, b: Value) -> Value:
        place = self._place

        def run() -> Any:
            x, y = a(), b()
            try:
                return function(x, y)
            except ZeroDivisionError:
                raise VerifyError(
                    "integer division by zero {0}: {1} {2} 0", place, x, e.op.value,
                    hint="guard it with select",
                ) from None  # fmt: skip

        return run

    def call(self, e: Call) -> Value:
        function = arithmetic.call(e.fn, dtypes.info(e.dtype).scalar)
        if len(e.args) == 1:
            a = self.expr(e.args[0])
            return lambda: function(a())
        args = [self.expr(x) for x in e.args]
        return lambda: function(*[x() for x in args])

    def cast(self, e: Cast) -> Value:
        value = self.expr(e.value)
        function = arithmetic.cast(dtypes.info(e.value.dtype).scalar, dtypes.info(e.dtype).scalar)
        return lambda: function(value())

    def select(self, e: Select) -> Value:
        cond, then, other = self.expr(e.cond), self.expr(e.then), self.expr(e.other)
        return lambda: then() if cond() else other()

    def ramp(self, e: Ramp) -> Value:
        base, stride, slots = self.expr(e.base), self.expr(e.stride), self.slots
        scalar = dtypes.info(e.dtype).scalar
        add, mul = arithmetic.binary(Op.ADD, scalar), arithmetic.binary(Op.MUL, scalar)
        lane = arithmetic.cast("int64", scalar)
        return lambda: add(base(), mul(lane(slots[0]), stride()))

    def broadcast(self, e: Broadcast) -> Value:
        return self.expr(e.value)

    def shuffle(self, e: Shuffle) -> Value:
        a, b, slots = self.expr(e.a), self.expr(e.b), self.slots
        order, lanes = e.order, dtypes.info(e.a.dtype).lanes

        def run() -> Any:
            lane = slots[0]
            from_b, slots[0] = divmod(order[lane], lanes)
            found = b() if from_b else a()
            slots[0] = lane
            return found

        return run

    def dot(self, e: Dot) -> Value:
        acc, parts = self.expr(e.acc), (self.expr(e.x), self.expr(e.y))
        slots, scalar = self.slots, dtypes.info(e.dtype).scalar
        add, mul = arithmetic.binary(Op.ADD, scalar), arithmetic.binary(Op.MUL, scalar)
        facts = [dtypes.info(p.dtype) for p in (e.x, e.y)]
        casts = [arithmetic.cast(f.scalar, scalar) for f in facts]
        lanes = [f.lanes for f in facts]
        own = dtypes.info(e.dtype).lanes
        group = max(lanes) // own

        def run() -> Any:
            lane, total = slots[0], acc()
            first = lane % own * group
            for k in range(first, first + group):
                factors = []
                for part, convert, count in zip(parts, casts, lanes, strict=True):
                    slots[0] = k % count
                    factors.append(convert(part()))
                total = add(total, mul(*factors))
            slots[0] = lane
            return total

        return run

    def matmul(self, e: Matmul) -> Value:
        acc, x, y = self.expr(e.acc), self.expr(e.x), self.expr(e.y)
        slots, scalar = self.slots, dtypes.info(e.dtype).scalar
        add, mul = arithmetic.binary(Op.ADD, scalar), arithmetic.binary(Op.MUL, scalar)
        of_x, of_y = (arithmetic.cast(dtypes.info(p.dtype).scalar, scalar) for p in (e.x, e.y))
        columns, depth = matrices(e.acc, e.x, e.y, e.rows, e.group) or (1, 0)
        group = e.group

        def run() -> Any:
            lane, total = slots[0], acc()
            i, j = divmod(lane, columns)
            for k in range(depth):
                for s in range(group):
                    slots[0] = (i * depth + k) * group + s
                    left = of_x(x())
                    slots[0] = (k * columns + j) * group + s
                    total = add(total, mul(left, of_y(y())))
            slots[0] = lane
            return total

        return run

    def load(self, e: Load) -> Value:
        data, position = self.data[e.buffer], self.position(e.buffer, e.indices)
        buffer, place = e.buffer, self._place
        shape = shape_of(buffer)

        def run() -> Any:
            k = position()
            value = data[k]
            if value is None:
                raise VerifyError(
                    "{0}{1} is read {2} and was never written", buffer.name,
                    _text(np.unravel_index(k, shape)), place,
                )  # fmt: skip
            return value

        if e.mask is None:
            return run
        mask, nothing = self.expr(e.mask), arithmetic.constant(0, buffer.dtype)
        return lambda: run() if mask() else nothing

    def position(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Value:
        """The flat position of an element, checked against the bounds."""
        shape, place = shape_of(buffer), self._place
        steps = [int(np.prod(shape[k + 1 :], dtype=np.int64)) for k in range(len(shape))]
        values = [self.expr(i) for i in indices]

        def fail() -> NoReturn:
            raise VerifyError(
                "{0}{1} is accessed {2}, out of bounds of its shape {3}", buffer.name,
                _text([v() for v in values]), place, shape,
            )  # fmt: skip

        if all(type(i) is Var and i.dtype == INDEX for i in indices):
            return self.direct([self.bound(i) for i in indices], shape, steps, fail)
        dims = list(zip(values, shape, steps, strict=True))

        def run() -> int:
            k = 0
            for value, size, step in dims:
                i = value()
                if not 0 <= i < size:
                    fail()
                k += i * step
            return k

        return run

    def direct(
        self, places: list[int], shape: tuple[int, ...], steps: list[int], fail: Value
    ) -> Value:
        """The flat position where each index is a variable."""
        slots, dims = self.slots, list(zip(places, shape, steps, strict=True))

        def run() -> int:
            at = 0
            for k, size, step in dims:
                i = slots[k]
                if not 0 <= i < size:
                    fail()
                at += i * step
            return at

        return run


_STATEMENTS: dict[type, Callable[[_Machine, Any], Action]] = {
    Seq: _Machine.seq,
    For: _Machine.loop,
    Block: _Machine.block,
    Store: _Machine.store,
    Prefetch: _Machine.prefetch,
    If: _Machine.branch,
    Let: _Machine.let,
    Alloc: _Machine.alloc,
}
_EXPRESSIONS: dict[type, Callable[[_Machine, Any], Value]] = {
    Var: _Machine.var,
    Const: _Machine.const,
    Binary: _Machine.binary,
    Call: _Machine.call,
    Cast: _Machine.cast,
    Select: _Machine.select,
    Ramp: _Machine.ramp,
    Broadcast: _Machine.broadcast,
    Dot: _Machine.dot,
    Matmul: _Machine.matmul,
    Shuffle: _Machine.shuffle,
    Load: _Machine.load,
}


def _text(indices: Any) -> str:
    return f"[{', '.join(str(int(i)) for i in indices)}]"

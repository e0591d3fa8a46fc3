"""Verify the structure of programs: definitions and scopes, dtypes, shapes, unique names.

Strides that put more than one element of an array in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from ..base import dtypes
from ..base.errors import VerifyError
from . import affine
from .bounds import variables
from .ir import (
    BITWISE,
    COMPARISONS,
    HARDWARE_AXES,
    INDEX,
    NARROW_INDEX,
    SCOPES,
    SHIFTS,
    STREAM,
    SUMS,
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
    ForKind,
    Func,
    If,
    Label,
    Let,
    Load,
    Matmul,
    Op,
    Prefetch,
    Ramp,
    Reduce,
    Region,
    Select,
    Seq,
    Shuffle,
    Stmt,
    Store,
    Var,
    WarpShuffle,
    integers,
    matrices,
)
from .nests import holds_block
from .visit import children, stored_buffers, walk


def check_structure(func: Func, *, lowering: bool = False) -> None:
    """Raise `VerifyError` if `func` is not well formed.

    While it is `lowering`, an index of registers may depend on the loops of an instruction, which a
    later pass replaces.
    """
    checker = _Checker(func, lowering=lowering)
    checker.stmt(func.body, checker.parameters)


def _is_of_device(func: Func) -> bool:
    """Whether `func` is a lowered program of a device, whose indices may be narrow."""
    kinds = {n.kind if type(n) is For else type(n) for n in walk(func)}
    return ForKind.THREAD in kinds and Block not in kinds


class _Checker:
    def __init__(self, func: Func, *, lowering: bool) -> None:
        self.func = func
        self.lowering = lowering
        self.parameters = {p for p in func.params if isinstance(p, Var)}
        self.buffers: set[Buffer] = set()
        self.bound: set[Var] = set(self.parameters)
        self.labels: set[Label] = set()
        self.index_dtypes = (INDEX, NARROW_INDEX) if _is_of_device(func) else (INDEX,)
        self.where = f"function {func.name}"
        arrays = [p for p in func.params if isinstance(p, Buffer)]
        if len(set(func.params)) != len(func.params):
            self.fail("a parameter appears twice")
        for b in (*arrays, *func.allocs):
            self.declare(b)
        for b in arrays:
            if b.scope != "global":
                self.fail("parameter {0} has the scope {1}; expected global", b.name, b.scope,
                          hint="cache_read copies it to a buffer of that scope")  # fmt: skip
            if b.align:
                self.fail("parameter {0} has align; only internal buffers are padded", b.name)
            if b.swizzle is not None:
                self.fail("parameter {0} has a swizzle; only internal buffers are", b.name)
        for b in func.inplace:
            if b not in arrays:
                self.fail("{0} is in place and no parameter", b.name)
        self.streamed(dict(func.annotations).get(STREAM, []))

    def fail(self, message: str, *arguments: Any, hint: str | None = None) -> NoReturn:
        template = message.format(*[f"{{{k}}}" for k in range(1, len(arguments) + 1)])
        raise VerifyError("{0}: " + template, self.where, *arguments, hint=hint)

    def streamed(self, numbers: Any) -> None:
        params = self.func.params
        arrays = [n for n, p in enumerate(params) if isinstance(p, Buffer)]
        if type(numbers) is not list or any(type(n) is not int or n not in arrays for n in numbers):
            self.fail("the annotation {0} is {1}; expected a list of the numbers of parameters "
                      "that are arrays, of {2}", STREAM, repr(numbers), arrays)  # fmt: skip

    def declare(self, b: Buffer) -> None:
        if b in self.buffers:
            self.fail("buffer {0} is declared twice", b.name)
        self.buffers.add(b)
        if b.scope not in SCOPES:
            self.fail("buffer {0} has the scope {1}; expected one of {2}", b.name, b.scope,
                      ", ".join(SCOPES))  # fmt: skip
        if dtypes.info(b.dtype).lanes != 1:
            self.fail("buffer {0} has elements of {1}; expected a scalar dtype", b.name, b.dtype)
        for n in b.shape:
            if isinstance(n, int) and n < 0:
                self.fail("buffer {0} has the negative shape {1}", b.name, b.shape)
        if b.strides is not None and len(b.strides) != len(b.shape):
            self.fail("buffer {0} has {1} strides for {2} dimensions", b.name, len(b.strides),
                      len(b.shape))  # fmt: skip
        if b.strides is not None:
            self.strided(b, b.strides)
        if b.align:
            self.aligned(b)
        if b.swizzle is not None:
            self.swizzled(b, *b.swizzle)
        if b.value_range is not None and not dtypes.is_integer(b.dtype):
            self.fail("buffer {0} of {1} has a value_range", b.name, b.dtype)

    def strided(self, b: Buffer, strides: tuple[int, ...]) -> None:
        if any(s < 0 for s in strides):
            self.fail("buffer {0} has the strides {1}; expected none negative", b.name, strides)
        if not all(isinstance(n, int) for n in b.shape) or not may_share(
            integers(b.shape), strides
        ):
            return
        if b in stored_buffers(self.func.body) or b in self.func.inplace:
            self.fail("{0} is written, and by its strides {1} elements of its shape {2} share "
                      "memory", b.name, strides, b.shape, hint=APART)  # fmt: skip

    def aligned(self, b: Buffer) -> None:
        if b.strides is not None:
            self.fail("buffer {0} has strides of its own, and align to widen them", b.name)
        axes = [axis for axis, _, _ in b.align]
        if len(set(axes)) < len(axes) or not all(0 <= a < len(b.shape) - 1 for a in axes):
            self.fail("buffer {0} aligns the axes {1}; expected different ones before the last of "
                      "its {2} dimensions", b.name, axes, len(b.shape))  # fmt: skip
        for axis, factor, offset in b.align:
            if not 0 <= offset < factor:
                self.fail("buffer {0} aligns axis {1} to {2} more than multiples of {3}; expected "
                          "0 to {4} more", b.name, axis, offset, factor, factor - 1)  # fmt: skip

    def swizzled(self, b: Buffer, axis: int, by: int, rows: int, width: int) -> None:
        if b.strides is not None:
            self.fail("buffer {0} has strides of its own, and a swizzle", b.name)
        rank = len(b.shape)
        if axis == by or not (0 <= axis < rank and 0 <= by < rank):
            self.fail("buffer {0} swizzles axis {1} by axis {2}; expected two of {3}",
                      b.name, axis, by, rank)  # fmt: skip
        if rows < 1 or rows & (rows - 1) or width < 1:
            self.fail("buffer {0} swizzles {1} rows in parts of {2} elements; expected a power of "
                      "two and a positive number", b.name, rows, width)  # fmt: skip

    def bind(self, v: Var, what: str) -> None:
        if v in self.bound:
            self.fail("variable {0} is bound twice, here by {1}", v.name, what)
        self.bound.add(v)

    def stmt(self, s: Stmt, scope: set[Var]) -> None:
        match s:
            case Seq():
                for child in s.stmts:
                    self.stmt(child, scope)
            case For():
                self.loop(s, scope)
            case Block():
                self.block(s, scope)
            case Store():
                self.store(s, scope)
            case Prefetch():
                self.prefetch(s, scope)
            case Barrier():
                pass
            case If():
                self.around_no_block(s)
                self.condition(s.cond, scope)
                self.stmt(s.then, scope)
                if s.other is not None:
                    self.stmt(s.other, scope)
            case Let():
                self.around_no_block(s)
                self.expr(s.value, scope)
                self.bind(s.var, "a let")
                if s.value.dtype != s.var.dtype:
                    self.fail("{0} of {1} is bound to a value of {2}", s.var.name, s.var.dtype,
                              s.value.dtype)  # fmt: skip
                self.stmt(s.body, scope | {s.var})
            case Alloc():
                self.declare(s.buffer)
                self.stmt(s.body, scope)
                if s.buffer.scope == "register" and not self.lowering:
                    self.registers(s)
            case _:
                self.fail("{0} is no statement", type(s).__name__)

    def around_no_block(self, s: If | Let) -> None:
        """What stands around a block says where it runs, and nothing that is in memory."""
        if holds_block(s):
            self.fail(
                "{0} around a block; expected loops alone",
                f"{s.var.name} is bound" if isinstance(s, Let) else "a condition stands",
                hint="put a condition into the block's predicate, or into its body where it reads "
                "memory, as the parser does",
            )

    def store(self, s: Store, scope: set[Var]) -> None:
        self.access(s.buffer, s.indices, s.mask, scope, "stored to")
        self.expr(s.value, scope)
        if dtypes.info(s.value.dtype).scalar != s.buffer.dtype:
            self.fail("a value of {0} is stored to {1} of {2}", s.value.dtype, s.buffer.name,
                      s.buffer.dtype)  # fmt: skip

    def prefetch(self, s: Prefetch, scope: set[Var]) -> None:
        self.access(s.buffer, s.indices, None, scope, "prefetched")
        if s.buffer.scope == "register":
            self.fail("{0} is prefetched and is held in registers", s.buffer.name)
        if any(dtypes.info(i.dtype).lanes != 1 for i in s.indices):
            self.fail("{0} is prefetched at a vector of indices", s.buffer.name)

    def loop(self, s: For, scope: set[Var]) -> None:
        self.dim(s.extent, f"the extent of loop {s.var.name}")
        self.bind(s.var, "a loop")
        if s.var.dtype not in self.index_dtypes:
            self.fail("loop variable {0} has dtype {1}; expected {2}", s.var.name, s.var.dtype,
                      INDEX)  # fmt: skip
        if (s.thread is not None) is not (s.kind is ForKind.THREAD):
            self.fail("loop {0} is {1} and has thread axis {2}", s.var.name, s.kind.value, s.thread)
        if s.thread is not None and s.thread not in HARDWARE_AXES:
            self.fail("loop {0} is bound to {1}; expected one of {2}", s.var.name, s.thread,
                      ", ".join(HARDWARE_AXES))  # fmt: skip
        self.stmt(s.body, scope | {s.var})

    def block(self, s: Block, scope: set[Var]) -> None:
        before, self.where = self.where, f"block {s.label.name}"
        if s.label in self.labels:
            self.fail("its label appears twice")
        self.labels.add(s.label)
        if s.predicate is not None:
            self.condition(s.predicate, scope)
            self.no_memory(s.predicate, "predicate")
        for i in s.iters:
            self.dim(i.extent, f"the extent of {i.var.name}")
            self.index(i.value, scope, f"the value of {i.var.name}")
            self.no_memory(i.value, f"value of {i.var.name}")
        self.starts_once(s)
        inner = set(self.parameters)
        for i in s.iters:
            self.bind(i.var, "a block")
            inner.add(i.var)
        for r in (*s.reads, *s.writes):
            self.region(r, inner)
        for body in (s.init, s.body):
            if body is not None:
                self.stmt(body, inner)
        self.where = before

    def no_memory(self, e: Expr, what: str) -> None:
        """Iteration variables and predicates hold while a block runs, whatever that stores.

        So `reads` has all memory that a block reads.
        """
        for n in walk(e):
            if type(n) is Load:
                self.fail(
                    "the {0} reads {1}: {2}; expected an expression of loops, variables and "
                    "scalar parameters", what, n.buffer.name, e,
                    hint=f"read {n.buffer.name} in the body of the block",
                )  # fmt: skip

    def starts_once(self, s: Block) -> None:
        """An init runs before iterations that other loops visit first: they leave it the same."""
        if s.init is None:
            return
        stored = stored_buffers(s.body)
        for n in walk(s.init):
            if type(n) is Load and n.buffer in stored:
                self.fail(
                    "its init reads {0}, which the block stores to; expected memory that it "
                    "leaves as it is", n.buffer.name,
                    hint=f"store the init of {n.buffer.name} in a block of its own, before",
                )  # fmt: skip

    def region(self, r: Region, scope: set[Var]) -> None:
        self.known(r.buffer, "declared as accessed")
        if len(r.ranges) != len(r.buffer.shape):
            self.fail("a region of {0} has {1} ranges; expected {2}", r.buffer.name, len(r.ranges),
                      len(r.buffer.shape))  # fmt: skip
        for x in r.ranges:
            self.index(x.min, scope, f"a region of {r.buffer.name}")
            self.dim(x.extent, f"a region of {r.buffer.name}")

    def registers(self, s: Alloc) -> None:
        """Each index of a register buffer is constant after unrolling and vectorising."""
        fixed: set[Var] = set()

        def visit(n: Any) -> None:
            match n:
                case For():
                    one = isinstance(n.extent, int) and n.extent == 1
                    if one or n.kind in (ForKind.UNROLL, ForKind.VECTOR):
                        fixed.add(n.var)
                case Load() | Store() if n.buffer is s.buffer:
                    self.constant_indices(s.buffer, n.indices, fixed)
                case Block():
                    return
                case _:
                    pass
            for child in children(n):
                visit(child)

        visit(s.body)

    def constant_indices(self, b: Buffer, indices: tuple[Expr, ...], fixed: set[Var]) -> None:
        for i in indices:
            for v in variables(i):
                if v not in fixed:
                    self.fail(
                        "an index of register buffer {0} depends on {1}", b.name, v.name,
                        hint=f"unroll or vectorize the loop over {v.name}",
                    )  # fmt: skip

    def known(self, b: Buffer, how: str) -> None:
        if b not in self.buffers:
            self.fail("buffer {0} is {1} and is neither a parameter nor allocated", b.name, how,
                      hint="add it to the function's params or allocs")  # fmt: skip

    def access(
        self, b: Buffer, indices: tuple[Expr, ...], mask: Expr | None, scope: set[Var], how: str
    ) -> None:
        self.known(b, how)
        if len(indices) != len(b.shape):
            self.fail("{0} has {1} dimensions and is {2} with {3} indices", b.name, len(b.shape),
                      how, len(indices))  # fmt: skip
        for i in indices:
            self.index(i, scope, f"an index of {b.name}")
        if mask is not None:
            self.condition(mask, scope)

    def dim(self, n: Dim, what: str) -> None:
        if isinstance(n, Expr):
            self.fail("{0} is {1}; expected an integer", what, n)
        if n < 0:
            self.fail("{0} is {1}; expected at least 0", what, n)

    def index(self, e: Expr, scope: set[Var], what: str) -> None:
        self.expr(e, scope)
        if dtypes.info(e.dtype).scalar not in self.index_dtypes:
            self.fail("{0} has dtype {1}; expected {2}", what, e.dtype, INDEX)

    def condition(self, e: Expr, scope: set[Var]) -> None:
        self.expr(e, scope)
        if not dtypes.is_bool(e.dtype):
            self.fail("a condition has dtype {0}; expected bool", e.dtype)

    def expr(self, e: Expr, scope: set[Var]) -> None:
        if type(e) is Const:
            return
        if type(e) is Var:
            if e not in scope:
                self.undefined(e, scope)
            return
        if type(e) is Load:
            self.access(e.buffer, e.indices, e.mask, scope, "loaded from")
            if dtypes.info(e.dtype).scalar != e.buffer.dtype:
                self.fail("a load of {0} from {1} of {2}", e.dtype, e.buffer.name, e.buffer.dtype)
            return
        if type(e) is Reduce:
            self.fail("a reduction expression is left ({0})", e.combiner,
                      hint="te.func makes blocks of reductions")  # fmt: skip
        for x in children(e):
            self.expr(x, scope)
        self.types(e)

    def undefined(self, v: Var, scope: set[Var]) -> NoReturn:
        known = ", ".join(sorted({x.name for x in scope})) or "none"
        if v in self.bound:
            self.fail(
                "variable {0} is used outside of what binds it; variables here: {1}", v.name, known,
                hint="a block's body sees only its iteration variables and scalar parameters",
            )  # fmt: skip
        self.fail("variable {0} is not defined; variables here: {1}", v.name, known)

    def types(self, e: Expr) -> None:
        """The dtypes of operands fit the expression."""
        match e:
            case Binary():
                wrong = e.a.dtype != e.b.dtype or (e.op in COMPARISONS) is not (
                    dtypes.is_bool(e.dtype) and e.op not in BITWISE and e.op not in (Op.MIN, Op.MAX)
                )
                if wrong or (e.op not in COMPARISONS and e.dtype != e.a.dtype):
                    self.fail("{0} of {1} and {2} gives {3}", e.op.value, e.a.dtype, e.b.dtype,
                              e.dtype)  # fmt: skip
                if e.op in SHIFTS and not dtypes.is_integer(e.dtype):
                    self.fail("{0} of {1}; expected integers", e.op.value, e.dtype)
            case Select():
                if not dtypes.is_bool(e.cond.dtype) or not (
                    e.then.dtype == e.other.dtype == e.dtype
                ):
                    self.fail("select by {0} of {1} and {2} gives {3}", e.cond.dtype, e.then.dtype,
                              e.other.dtype, e.dtype)  # fmt: skip
            case Call():
                if any(a.dtype != e.dtype for a in e.args):
                    self.fail("{0} of {1} gives {2}", e.fn, [a.dtype for a in e.args], e.dtype)
            case Ramp() | Broadcast() | Dot() | Matmul() | Shuffle():
                self.lanes(e)
            case WarpShuffle():
                if e.dtype != e.value.dtype or dtypes.info(e.dtype).lanes != 1:
                    self.fail("a warp shuffle of {0} gives {1}", e.value.dtype, e.dtype)
            case Cast():
                if dtypes.info(e.value.dtype).lanes != dtypes.info(e.dtype).lanes:
                    self.fail("a cast of {0} to {1}", e.value.dtype, e.dtype)
            case _:
                pass

    def lanes(self, e: Ramp | Broadcast | Dot | Matmul | Shuffle) -> None:
        """The lanes of operands make those of the expression."""
        match e:
            case Ramp() | Broadcast():
                inner = e.base.dtype if isinstance(e, Ramp) else e.value.dtype
                if dtypes.vector(inner, e.lanes) != e.dtype:
                    self.fail("{0} lanes of {1} make {2}", e.lanes, inner, e.dtype)
            case Dot():
                lanes, *others = (dtypes.info(p.dtype).lanes for p in (e.acc, e.x, e.y))
                group = max(others) // lanes
                fits = lanes * group == max(others) and {max(others), group}.issuperset(others)
                if e.dtype != e.acc.dtype or dtypes.info(e.dtype).scalar not in SUMS or not fits:
                    self.fail("a dot product of {0} and {1}, added to {2}, gives {3}", e.x.dtype,
                              e.y.dtype, e.acc.dtype, e.dtype)  # fmt: skip
            case Matmul():
                shape = matrices(e.acc, e.x, e.y, e.rows, e.group)
                if e.dtype != e.acc.dtype or dtypes.info(e.dtype).scalar not in SUMS or not shape:
                    self.fail("a product of {0} rows of {1} and {2}, added to {3}, gives {4}",
                              e.rows, e.x.dtype, e.y.dtype, e.acc.dtype, e.dtype)  # fmt: skip
            case Shuffle():
                info = dtypes.info(e.a.dtype)
                wanted = dtypes.vector(info.scalar, len(e.order))
                inside = all(0 <= k < 2 * info.lanes for k in e.order)
                if e.a.dtype != e.b.dtype or e.dtype != wanted or not inside:
                    self.fail("a shuffle of {0} and {1} to lanes {2} gives {3}", e.a.dtype,
                              e.b.dtype, e.order, e.dtype)  # fmt: skip


APART = "declare strides that keep its elements apart; what is only read may share memory"
"""The hint of an error about a written array."""


def may_share(shape: Sequence[int], strides: Sequence[int] | None) -> bool:
    """Whether two elements of an array have one place, or it takes too long to exclude it.

    They have if the places of two indices differ by nothing: `strides` times a difference in which
    not all is 0, and each part is smaller than its extent.
    """
    if strides is None or 0 in shape:
        return False
    dims = sorted((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1)
    reach = 0
    for step, extent in dims:
        if step <= reach:
            break
        reach += step * (extent - 1)
    else:
        return False  # each step is beyond all that the smaller ones reach
    names = [f"d{k}" for k in range(len(dims))]
    within = [f"{-n} < {d} < {n}" for d, (_, n) in zip(names, dims, strict=True)]
    place = " + ".join(f"{step} * {d}" for d, (step, _) in zip(names, dims, strict=True))
    some = " or ".join(f"{d} != 0" for d in names)
    return not affine.unsatisfiable(names, [*within, f"{place} = 0", f"({some})"])

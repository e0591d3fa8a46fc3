"""Verify reduce iterations: they update the same elements, in a way in which no order matters.

A block with reduce variables combines what is there with a value that does not depend on it: by
one associative and commutative operator for each buffer that it stores to, or as the best by
comparisons of a value, and of a key among equal ones. If these are kept, or replaced, in the order
of visits, the loops must run the iterations in order, and steps that would not are refused. No
store has a reduce variable in its indices. Steps reorder and divide such iterations, so they rely
on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

from ..base import dtypes
from ..base.errors import VerifyError
from .bounds import variables
from .ir import (
    INDEX,
    UNORDERED,
    Alloc,
    Binary,
    Block,
    Buffer,
    Cast,
    Dot,
    Expr,
    For,
    Func,
    If,
    IterKind,
    Let,
    Load,
    Matmul,
    Op,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    as_expr,
)
from .polynomial import ONE
from .simplify import Simplifier
from .structure import same
from .updates import OPERATORS, updates_in
from .visit import nested, stored_buffers, substitute, walk


def check_reductions(func: Func) -> None:
    """Raise `VerifyError` for a store of a block with reduce variables that is no such update.

    Also for elements that are reduced over nothing: no visit would run their init.
    """
    for block, loops in _blocks(func.body, ()):
        if any(i.kind is IterKind.REDUCE for i in block.iters):
            _Iteration(block, loops).check()
            _check_begins(block)


def _check_begins(block: Block) -> None:
    empty = [i for i in block.iters if i.extent == 0]
    if block.init is not None and empty and all(i.kind is IterKind.REDUCE for i in empty):
        raise VerifyError(
            "block {0} reduces nothing: {1} has no iterations, and its init never runs",
            block.label.name,
            empty[0].var.name,
            hint="store the value of the init in a block of its own",
        )


def orders_visits(block: Block) -> bool:
    """Whether the order of the reduce iterations of a block decides among equal values."""
    if not any(i.kind is IterKind.REDUCE for i in block.iters):
        return False
    iteration = _Iteration(block, None)
    try:
        iteration.check()
    except VerifyError:
        return False
    return iteration.ordered


def blocks_that_order_visits(func: Func) -> list[Block]:
    return [n for n in walk(func) if type(n) is Block and orders_visits(n)]


def _blocks(root: Stmt, loops: tuple[For, ...]) -> Iterator[tuple[Block, tuple[For, ...]]]:
    """The blocks below a statement, each with the loops around it in the block that it is in."""
    if type(root) is Block:
        yield root, loops
        loops = ()
    inside = (*loops, root) if type(root) is For else loops
    for s in nested(root):
        yield from _blocks(s, inside)


def _in_order(block: Block, loops: tuple[For, ...]) -> bool:
    """Whether loops run the reduce iterations of `block` in ascending order."""
    number: Expr = as_expr(0)
    for i in block.iters:
        if i.kind is IterKind.REDUCE:
            number = number * i.extent + i.value
    extents = {f.var: f.extent for f in loops if isinstance(f.extent, int)}
    left = dict(Simplifier({v: (0, n - 1) for v, n in extents.items()}).poly(number))
    left.pop(ONE, None)
    reach = 0
    for f in reversed(loops):
        times = left.pop(f.var, 0) if f.var in extents else 0
        if times and (times <= reach or f.kind in UNORDERED):
            return False
        reach += times * (extents.get(f.var, 1) - 1)
    return not left


class _Old(NamedTuple):
    """An element that the block stores to, combined by `op` with values independent of it.

    `op` is `None` of the element itself, `dtype` that in which it is combined.
    """

    load: Load
    op: Op | None
    dtype: str


class _Iteration:
    """The updates of one iteration of `block`, whose `loops`, if unknown, run them in order.

    They are `ordered` if they have to.
    """

    def __init__(self, block: Block, loops: tuple[For, ...] | None) -> None:
        self.block = block
        self.loops = loops
        self.ordered = False
        self.reduce = {i.var for i in block.iters if i.kind is IterKind.REDUCE}
        self.parts = tuple(part for part in (block.init, block.body) if part is not None)
        self.outputs = {b for part in self.parts for b in stored_buffers(part)}
        self.kinds: dict[Buffer, str] = {}
        """By what each buffer is updated: all its updates are by the same."""
        self.bound: dict[Expr, _Old | None] = {}
        """The variables that depend on what is stored; `None` of those that are no update."""
        self.values: dict[Var, Expr] = {}
        """What other variables are."""

    def check(self) -> None:
        for n in (n for part in self.parts for n in walk(part)):
            match n:
                case Store():
                    self.place(n)
                case Let() if not variables(n.value).isdisjoint(self.reduce):
                    self.reduce.add(n.var)
                case Block():
                    follow = (i for i in n.iters if not variables(i.value).isdisjoint(self.reduce))
                    self.reduce.update(i.var for i in follow)
                case _:
                    pass
        wrong = self.stmt(self.block.body)
        if wrong is not None:
            self.refuse(wrong)

    def place(self, s: Store) -> None:
        """A reduction is into elements that do not differ between reduce iterations."""
        used = self.reduce & variables(*s.indices)
        if used:
            name = min(v.name for v in used)
            raise VerifyError(
                "block {0}: stores to {1}[{2}], an element for each iteration of the reduce axis "
                "{3}; expected one for all of its iterations",
                self.block.label.name, s.buffer.name, lambda: ", ".join(map(str, s.indices)), name,
                hint="declare the axis by T.axis.spatial where each of its iterations stores to "
                "elements of its own, by T.axis.opaque where they have to run in order",
            )  # fmt: skip

    def refuse(self, s: Store) -> NoReturn:
        others = self.kinds.get(s.buffer)
        also = "" if others is None else f", which it also updates by {others}"
        raise VerifyError(
            "block {0}: its reduce iterations run in any order, and {1} is no update that allows "
            "this{2}; expected X = X op value, by one op of {3} for all stores to X, whose value "
            "and condition do not depend on what the block stores",
            self.block.label.name, lambda: str(s).strip(), also,
            ", ".join(sorted(op.value for op in OPERATORS)),
            hint="declare the axis by T.axis.opaque where its iterations have to run in order, and "
            "store what they start from in a block before, not by T.init",
        )  # fmt: skip

    # Statements: the first store that is no update

    def stmt(self, s: Stmt) -> Store | None:
        match s:
            case Seq():
                known = dict(self.kinds)
                return self.joint(s, next(self.failures(s.stmts), None), known)
            case Let():
                known = dict(self.kinds)
                if not self.independent(s.value):
                    self.bound[s.var] = self.form(s.value)
                else:
                    self.values[s.var] = substitute(s.value, self.values)
                return self.joint(s, self.stmt(s.body), known)
            case For():
                return self.stmt(s.body) if self.independent(as_expr(s.extent)) else _a_store(s)
            case If():
                if not self.independent(s.cond):
                    return _a_store(s)
                branches = (s.then,) if s.other is None else (s.then, s.other)
                return next(self.failures(branches), None)
            case Alloc():
                return self.stmt(s.body)
            case Block():
                if s.predicate is not None and not self.independent(s.predicate):
                    return _a_store(s)
                parts = (s.body,) if s.init is None else (s.init, s.body)
                return next(self.failures(parts), None)
            case Store():
                return None if self.store(s) else s
            case _:
                return None

    def failures(self, stmts: tuple[Stmt, ...]) -> Iterator[Store]:
        return (wrong for s in stmts if (wrong := self.stmt(s)) is not None)

    def joint(self, s: Stmt, wrong: Store | None, known: dict[Buffer, str]) -> Store | None:
        """Nothing if all of `s` are updates of several results together, else what is `wrong`."""
        if wrong is None:
            return None
        found = updates_in(s, self.outputs, carried=self.differs)
        ordered = found is None and (self.loops is None or _in_order(self.block, self.loops))
        if ordered:
            found = updates_in(s, self.outputs, numbered=True, carried=self.differs)
        if found is None:
            return wrong
        self.ordered = self.ordered or ordered
        self.kinds = known
        fits = all(self.agrees(p.buffer, u.combiner.name) for u in found.updates for p in u.places)
        return None if fits else wrong

    def differs(self, e: Expr) -> bool:
        """Whether an integer is shown to differ between all iterations that update an element.

        It does if all their variables are digits of it.
        """
        e = substitute(e, self.values)
        extents = {i.var: i.extent for i in self.block.iters if isinstance(i.extent, int)}
        s = Simplifier({v: (0, n - 1) for v, n in extents.items()})
        while type(e) is Cast and dtypes.is_integer(e.value.dtype):
            low, high = s.interval(s.poly(e.value))
            least, most = dtypes.int_limits(e.dtype)
            if not least <= low <= high <= most:
                return False
            e = e.value
        if e.dtype != INDEX or any(type(n) is Load for n in walk(e)) or not s.fits(s.poly(e)):
            return False
        moving = {i.var for i in self.block.iters if i.kind is not IterKind.SPATIAL}
        moving -= {v for v, n in extents.items() if n == 1}
        digits: list[tuple[int, Var]] = []
        for atom, c in s.poly(e).items():
            parts = atom if isinstance(atom, tuple) else (atom,)
            if variables(*parts).isdisjoint(moving):
                continue
            if not isinstance(atom, Var) or atom not in extents:
                return False
            digits.append((abs(c), atom))
        reach = 0
        for c, v in sorted(digits, key=lambda digit: digit[0]):
            if c <= reach:
                return False
            reach += c * (extents[v] - 1)
        return {v for _, v in digits} == moving

    def store(self, s: Store) -> bool:
        """Whether `s` is an update."""
        if not all(map(self.independent, (*s.indices, *(() if s.mask is None else (s.mask,))))):
            return False
        old = self.form(s.value)
        if type(old) is not _Old or old.dtype != s.value.dtype or not _is_at(old.load, s):
            return False
        return old.op is None or self.agrees(s.buffer, old.op.value)

    def agrees(self, buffer: Buffer, kind: str) -> bool:
        return self.kinds.setdefault(buffer, kind) == kind

    # Expressions

    def independent(self, e: Any) -> bool:
        """Whether `e` has nothing of what the block stores."""
        return not any(
            (type(n) is Load and n.buffer in self.outputs) or n in self.bound for n in walk(e)
        )

    def form(self, e: Expr) -> _Old | None:
        """`e` as an update of an element, or that element; `None` if it is something else."""
        match e:
            case Var():
                return self.bound.get(e)
            case Load() if e.buffer in self.outputs and e.mask is None:
                return _Old(e, None, e.dtype) if all(map(self.independent, e.indices)) else None
            case Binary():
                return self.combined(e)
            case Dot() | Matmul():
                plain = self.independent(e.x) and self.independent(e.y)
                return _with(self.form(e.acc), Op.ADD) if plain else None
            case Select():
                return self.chosen(e)
            case Cast():
                return _cast(self.form(e.value), e)
            case _:
                return None

    def combined(self, e: Binary) -> _Old | None:
        if self.independent(e.b):
            return _with(self.form(e.a), Op.ADD if e.op is Op.SUB else e.op)
        return _with(self.form(e.b), e.op) if self.independent(e.a) else None

    def chosen(self, e: Select) -> _Old | None:
        """Either side updates the element, or keeps it."""
        a, b = self.form(e.then), self.form(e.other)
        if a is None or b is None or not self.independent(e.cond):
            return None
        alike = (
            a.dtype == b.dtype
            and _is_at(a.load, b.load)
            and (a.op is b.op or a.op is None or b.op is None)
        )
        return (b if a.op is None else a) if alike else None


def _a_store(s: Stmt) -> Store | None:
    return next((n for n in walk(s) if type(n) is Store), None)


def _with(old: _Old | None, op: Op) -> _Old | None:
    """`old` combined with one more value."""
    if old is None or op not in OPERATORS or old.op not in (None, op):
        return None
    return old._replace(op=op)


def _cast(old: _Old | None, e: Cast) -> _Old | None:
    """`old` in a wider dtype, and back: a wrapped or rounded result is that of a narrow operator.

    The minimum and maximum of integers are not: these may be beyond the narrow ones.
    """
    if old is None:
        return None
    exact = all(map(dtypes.is_integer, (old.load.dtype, e.dtype)))
    if not exact and not all(map(dtypes.is_float, (old.load.dtype, e.dtype))):
        return None
    back = e.dtype == old.load.dtype and not (exact and old.op in (Op.MIN, Op.MAX))
    wider = dtypes.info(e.dtype).bits > dtypes.info(old.dtype).bits
    return old._replace(dtype=e.dtype) if back or wider else None


def _is_at(a: Load | Store, b: Load | Store) -> bool:
    """Whether both are of the same element."""
    return a.buffer is b.buffer and all(map(same, a.indices, b.indices))

"""Match tiles of a program to instructions, and instantiate the implementation on their regions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from ..base import dtypes
from ..base.errors import IRError
from .instruction import Instruction, elements
from .ir import (
    INDEX,
    Binary,
    Block,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    For,
    Load,
    Op,
    Ramp,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    binary,
    const,
    integers,
    seq,
)
from .piecewise import linear
from .polynomial import Ranges
from .simplify import NO_RANGES, Simplifier
from .structure import same
from .visit import children, rewrite_children, substitute, walk


class Tile(NamedTuple):
    """Loops, outermost first, with their extents, around one store."""

    loops: tuple[tuple[Var, int], ...]
    store: Store


def tile_of(stmt: Stmt) -> Tile | None:
    """`stmt` as loops around one store, blocks among them undone; `None` if it is not that."""
    loops: list[tuple[Var, int]] = []
    values: dict[Any, Any] = {}
    while isinstance(stmt, (For, Block)):
        if isinstance(stmt, Block):
            if stmt.init is not None or stmt.predicate is not None:
                return None
            values |= {i.var: substitute(i.value, values) for i in stmt.iters}
        elif isinstance(stmt.extent, int):
            loops.append((stmt.var, stmt.extent))
        else:
            return None
        stmt = stmt.body
    if type(stmt) is not Store:
        return None
    return Tile(tuple(loops), substitute(stmt, values))


class Operand(NamedTuple):
    """A region in the place of a parameter: its first element, and what one step along each of the
    parameter's dimensions adds to each index."""

    buffer: Buffer
    first: tuple[Expr, ...]
    steps: tuple[tuple[int, ...], ...]


class Mismatch(NamedTuple):
    """Why a tile does not match an instruction: a template and its arguments."""

    message: str
    arguments: tuple[Any, ...]


Operands: TypeAlias = Mapping[Buffer, Operand]


def match(stmt: Stmt, instruction: Instruction, ranges: Ranges = NO_RANGES) -> Operands | Mismatch:
    """The regions that `stmt` uses for the buffers of the semantics, if it computes just that."""
    tile, wanted = tile_of(stmt), tile_of(instruction.semantics.body)
    assert wanted is not None
    sizes = [n for _, n in wanted.loops]
    if tile is None:
        return Mismatch("it is no nest of loops around a single store", ())
    if [n for _, n in tile.loops] != sizes:
        return Mismatch(
            "its loops have the extents {0}, those of the instruction {1}",
            ([n for _, n in tile.loops], sizes),
        )
    matcher = _Matcher(wanted, tile, ranges)
    if not matcher.stores():
        return matcher.reason or Mismatch(
            "it computes {0}, the instruction {1}", (tile.store, wanted.store)
        )
    return matcher.operands


class _Matcher:
    """Walks two stores side by side and notes which region stands for which buffer."""

    def __init__(self, wanted: Tile, found: Tile, ranges: Ranges) -> None:
        self.wanted, self.found = wanted, found
        self.ranges = {**ranges, **{v: (0, n - 1) for v, n in found.loops}}
        own = [v for v, _ in found.loops]
        self.own = own
        self.places = {v: own[k] for k, (v, _) in enumerate(wanted.loops)}
        self.operands: dict[Buffer, Operand] = {}
        self.reason: Mismatch | None = None

    def stores(self) -> bool:
        a, b = self.wanted.store, self.found.store
        if b.mask is not None or not self.access(a, b) or not self.values(a.value, b.value):
            return False
        return self.apart(a.buffer)

    def apart(self, output: Buffer) -> bool:
        """Whether different elements of the output are different ones of its region, and no input
        may share them."""
        written = self.operands[output]
        sharing = [p.name for p, o in self.operands.items() if o.buffer is written.buffer]
        if len(sharing) > 1:
            self.reason = Mismatch(
                "{0} stands for {1} of the instruction", (written.buffer.name, ", ".join(sharing))
            )
            return False
        places = {
            tuple(
                sum(i * step[x] for i, step in zip(at, written.steps, strict=True))
                for x in range(len(written.first))
            )
            for at in product(*map(range, integers(output.shape)))
        }
        if len(places) < elements(output):
            self.reason = Mismatch(
                "it stores {0} values to {1} elements of {2}",
                (elements(output), len(places), written.buffer.name),
            )
        return self.reason is None

    def values(self, a: Expr, b: Expr) -> bool:
        if a.dtype != b.dtype:
            return False
        match a, b:
            case Load(), Load():
                return b.mask is None and self.access(a, b)
            case Binary(), Binary():
                return self.binary(a, b)
            case Const(), Const():
                return same(a, b)
            case Call(), Call():
                return a.fn == b.fn and self.all(a.args, b.args)
            case (Cast(), Cast()) | (Select(), Select()):
                return self.all(children(a), children(b))
            case _:
                return False

    def all(self, xs: Sequence[Expr], ys: Sequence[Expr]) -> bool:
        return all(self.values(x, y) for x, y in zip(xs, ys, strict=True))

    def binary(self, a: Binary, b: Binary) -> bool:
        if a.op is not b.op:
            return False
        before, reason = dict(self.operands), self.reason
        if self.all((a.a, a.b), (b.a, b.b)):
            return True
        if a.op not in _COMMUTATIVE:
            return False
        first, self.reason = self.reason, reason
        self.operands = before
        if self.all((a.a, a.b), (b.b, b.a)):
            return True
        self.reason = self.reason or first
        return False

    def access(self, a: Load | Store, b: Load | Store) -> bool:
        if a.buffer.dtype != b.buffer.dtype:
            return False
        first: list[Expr] = []
        columns: list[Mapping[Var, Any]] = []
        for e in b.indices:
            parts = linear(e, self.own, self.ranges)
            if parts is None or not all(isinstance(c, int) for c in parts.coefficients.values()):
                self.reason = Mismatch(
                    "an index of {0}, {1}, is not linear in the loops", (b.buffer.name, e)
                )
                return False
            first.append(parts.constant)
            columns.append(parts.coefficients)
        used = [self.places[v] for v in a.indices]  # type: ignore[index]
        moving = [v for v in self.own if v not in set(used) and any(v in c for c in columns)]
        if moving:
            return False
        steps = tuple(tuple(c.get(v, 0) for c in columns) for v in used)
        new = Operand(b.buffer, tuple(first), steps)
        old = self.operands.setdefault(a.buffer, new)
        return (
            old.buffer is new.buffer
            and old.steps == new.steps
            and all(map(self.equal, old.first, new.first))
        )

    def equal(self, a: Expr, b: Expr) -> bool:
        return not Simplifier(self.ranges).poly(binary(Op.SUB, a, b))


_COMMUTATIVE = frozenset({Op.ADD, Op.MUL, Op.MIN, Op.MAX, Op.AND, Op.OR, Op.XOR})


def accesses(instruction: Instruction) -> Iterator[tuple[Buffer, tuple[int, ...]]]:
    """The elements (counted in order of the buffer) that the implementation takes in one piece,
    with the parameter of the semantics: those of a vector, or of a row of a matrix."""
    params = dict(zip(instruction.implementation.params, instruction.semantics.params, strict=True))
    for n in walk(instruction.implementation.body):
        if type(n) is Load or type(n) is Store:
            param = params[n.buffer]
            assert isinstance(param, Buffer)
            found, size = _elements(n), instruction.unit.row_bytes // dtypes.nbytes(n.buffer.dtype)
            yield from ((param, found[k : k + size]) for k in range(0, len(found), size))


def offsets(param: Buffer, which: tuple[int, ...], steps: tuple[int, ...]) -> list[int]:
    """How far elements of a parameter are from its first one, by a step for each dimension."""
    found = [0] * len(which)
    below = elements(param)
    for size, step in zip(param.shape, steps, strict=True):
        assert isinstance(size, int)
        below //= size
        found = [at + e // below % size * step for at, e in zip(found, which, strict=True)]
    return found


def _elements(n: Load | Store) -> tuple[int, ...]:
    """The elements of an access at constant indices, lane by lane."""
    lanes = max((dtypes.info(i.dtype).lanes for i in n.indices), default=1)
    found = [0] * lanes
    for e, size in zip(n.indices, n.buffer.shape, strict=True):
        assert isinstance(size, int)
        found = [at * size + i for at, i in zip(found, _lanes(e, lanes), strict=True)]
    return tuple(found)


def _lanes(e: Expr, lanes: int) -> list[int]:
    match e:
        case Const():
            return [int(e.value)] * lanes
        case Ramp(base=Const(value=first), stride=Const(value=step)):
            return [int(first) + int(step) * k for k in range(lanes)]
        case _:
            raise IRError("the index {0} of an instruction is neither a number nor a ramp", e)


def written(instruction: Instruction, operands: Operands) -> Stmt:
    """The implementation on `operands`, whose buffers have one dimension."""
    params = dict(zip(instruction.implementation.params, instruction.semantics.params, strict=True))

    def place(n: Load | Store) -> tuple[Buffer, tuple[Expr, ...]]:
        param = params[n.buffer]
        assert isinstance(param, Buffer)
        operand = operands[param]
        return operand.buffer, (_index(param, _elements(n), operand),)

    def visit(n: Any) -> Any:
        if type(n) is Load:
            return Load(*place(n), n.dtype)
        if type(n) is Store:
            return Store(*place(n), visit(n.value))
        return n if type(n) is Buffer else rewrite_children(n, visit)

    return seq(*(visit(s) for s in stores(instruction)))


def stores(instruction: Instruction) -> Iterator[Store]:
    """The stores of an implementation. Raises `IRError` for any other statement."""
    body = instruction.implementation.body
    for s in body.stmts if type(body) is Seq else (body,):
        if type(s) is not Store:
            raise IRError(
                "{0}: the implementation must be stores one after the other, found {1}",
                instruction.name, type(s).__name__,
            )  # fmt: skip
        yield s


def _index(param: Buffer, which: tuple[int, ...], operand: Operand) -> Expr:
    (first,) = operand.first
    found = offsets(param, which, tuple(s for (s,) in operand.steps))
    start = first + found[0]
    lanes = len(found)
    if lanes == 1:
        return start
    many = dtypes.vector(INDEX, lanes)
    step = found[1] - found[0]
    if all(at == found[0] + step * k for k, at in enumerate(found)):
        return Ramp(start, const(step), lanes, many)
    return _scattered(param, which, operand, many)


def _scattered(param: Buffer, which: tuple[int, ...], operand: Operand, many: str) -> Expr:
    """An index for lanes that are not evenly spaced: each dimension's digit times its step."""
    lanes = len(which)
    step = which[1] - which[0]
    number = Ramp(const(which[0]), const(step), lanes, many)

    def spread(value: int) -> Expr:
        return Broadcast(const(value), lanes, many)

    total: Expr = Broadcast(operand.first[0], lanes, many)
    below = elements(param)
    for size, (by,) in zip(param.shape, operand.steps, strict=True):
        assert isinstance(size, int)
        below //= size
        digit = Binary(Op.FLOORDIV, number, spread(below), many)
        digit = Binary(Op.MOD, digit, spread(size), many)
        total = Binary(Op.ADD, total, Binary(Op.MUL, digit, spread(by), many), many)
    return total

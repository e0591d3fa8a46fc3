"""Instructions: one record each, which schedules, rules, estimates and emitters read.

A pair of small programs says what an instruction computes. The `semantics` is a loop nest around
one store; its buffers stand for regions of other buffers. The `implementation` does the same in
straight-line vector code. A block is an instance of the instruction if its loops and its store are
those of the semantics (`instruction_match`). Lowering then replaces it by the implementation.

The other fields say what it multiplies, which features it requires, what it costs, and how it is
emitted. `instruction_set` is the registry.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from ..base import dtypes
from ..target import Target
from .ir import Buffer, Dot, Func, Matmul, Store, integers, matrices

KEY = "tensor_intrin"
"""The annotation of a block that is an instruction, with its name."""

Programs: TypeAlias = tuple[Func, Func]
"""The semantics and the implementation of an instruction."""


@dataclass(frozen=True)
class Product:
    """A matrix product that is added to sums: acc[i, j] += x[i, k, s] * y[k, j, s].

    Dtypes are in the order of the operands of `Dot` and `Matmul`. `rows`, `columns`, `depth` and
    `group` are the extents of i, j, k and s. A `Dot` has one row, which all columns share, and a
    depth of one.
    """

    acc: str
    x: str
    y: str
    rows: int
    columns: int
    depth: int
    group: int

    @property
    def dtypes(self) -> tuple[str, str, str]:
        return self.acc, self.x, self.y

    @property
    def steps(self) -> int:
        """The number of products added to each sum."""
        return self.depth * self.group

    @property
    def count(self) -> int:
        """The number of all products."""
        return self.rows * self.columns * self.steps


@dataclass(frozen=True)
class Unit:
    """The execution unit of instructions in one kind of target, and its registers.

    A register has `rows` of `row_bytes`, which may be apart in memory. Vector registers have one
    row, as wide as the target's vectors. There are `registers` of them, or as many as the target
    has for vectors. `emitter` is the key of the unit's emitter in the code generator.
    """

    name: str
    emitter: str
    rows: int
    row_bytes: int
    registers: int | None = None
    kind: str = "cpu"

    def registers_of(self, target: Target) -> int:
        return target.vector_registers if self.registers is None else self.registers


VECTORS = Unit("vectors", "intrinsic", rows=1, row_bytes=64)
"""Vector instructions, called as LLVM intrinsics."""


@dataclass(frozen=True)
class Cost:
    """The cost of an instruction on one core.

    One can begin every `cycles`, and its result may be added to after `latency` cycles. Each
    contiguous run of memory of an operand costs `run_loads` vector loads.
    """

    cycles: float
    latency: float
    run_loads: float = 0.0


@dataclass(frozen=True, eq=False)
class Instruction:
    """An instruction.

    `programs` returns its semantics and implementation, which have the same buffers as parameters,
    up to their shapes. `product` is the product that it computes, if it is one.

    A target of the unit's kind has the instruction if it has all features of one of the
    alternatives in `requires`, or if that is empty. Rules and estimates use instructions with a
    `cost`. `code` is what the unit's emitter writes for the product, for instance an LLVM
    intrinsic; without it, code is generated from the implementation. `init` and `write` are the
    names of the instructions that set its sums to zero and copy them to memory. `home` is the
    user's module that registered it.
    """

    name: str
    programs: Callable[[], Programs]
    product: Product | None = None
    unit: Unit = VECTORS
    requires: tuple[tuple[str, ...], ...] = ()
    cost: Cost | None = None
    code: str = ""
    init: str = ""
    write: str = ""
    home: str | None = None

    @cached_property
    def _programs(self) -> Programs:
        return self.programs()

    @property
    def semantics(self) -> Func:
        return self._programs[0]

    @property
    def implementation(self) -> Func:
        return self._programs[1]

    @cached_property
    def text(self) -> str:
        """All fields but `home`, for digests."""
        facts = self.unit, self.requires, self.cost, self.code, self.init, self.write
        return "\0".join([self.name, *map(str, self._programs), *map(repr, facts)])

    def runs_on(self, target: Target) -> bool:
        """Whether the target has the required features."""
        if self.unit.kind != target.kind:
            return False
        present = frozenset(target.features)
        return not self.requires or any(present.issuperset(names) for names in self.requires)


def product_of(e: Dot | Matmul) -> Product | None:
    """The product that a vector expression computes; `None` if its lanes do not match."""
    acc, x, y = (dtypes.info(p.dtype) for p in (e.acc, e.x, e.y))
    if isinstance(e, Dot):
        size = 1, acc.lanes, 1, max(x.lanes, y.lanes) // acc.lanes
    else:
        inner = matrices(e.acc, e.x, e.y, e.rows, e.group)
        if inner is None:
            return None
        size = e.rows, *inner, e.group
    return Product(acc.scalar, x.scalar, y.scalar, *size)


def product_in(implementation: Func) -> Product | None:
    """The product that an implementation is, if its columns share its rows; else `None`."""
    body = implementation.body
    e = body.value if type(body) is Store else None
    if type(e) is Dot:
        x, y, columns = (dtypes.info(p.dtype).lanes for p in (e.x, e.y, e.acc))
        if x == y and columns > 1:
            return None
        return product_of(e if x <= y else Dot(e.acc, e.y, e.x, e.dtype))
    return product_of(e) if type(e) is Matmul else None


def elements(b: Buffer) -> int:
    """The elements of a buffer of an instruction."""
    return math.prod(integers(b.shape))

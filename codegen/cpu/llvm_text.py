"""LLVM IR as text: types, constants, and a builder that appends instructions to basic blocks.

Text is several times faster to produce than `llvmlite.ir` and covers all of LLVM's language. A
value is the text of an operand; its type is that of the expression it stands for.

bfloat16, float8 and float16 values are held as bits in integers, bool as i1 (i8 in memory).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import copysign
from typing import Any, TypeVar

import numpy as np

from ...base import dtypes
from ...base.errors import BuildError
from ...target import CpuTarget
from ...tir.instruction import Instruction
from ...tir.ir import Buffer, Expr, Var
from ..passes.intervals import Intervals

T = TypeVar("T")
_SCALAR = {"bool": "i1", "float32": "float", "float64": "double"}
NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Floats that are held as their bits."""


def lanes_of(llvm: str, lanes: int) -> str:
    """The LLVM type of `lanes` values of the scalar type `llvm`."""
    return llvm if lanes == 1 else f"<{lanes} x {llvm}>"


@cache
def value_type(dtype: str) -> str:
    """The type that a value of `dtype` has in registers."""
    facts = dtypes.info(dtype)
    return lanes_of(_SCALAR.get(facts.scalar, f"i{facts.bits}"), facts.lanes)


@cache
def operand_type(dtype: str) -> str:
    """The type of a value of `dtype` in arithmetic: half if it is computed as float16."""
    facts = dtypes.info(dtype)
    return lanes_of("half", facts.lanes) if facts.scalar == "float16" else value_type(dtype)


@cache
def memory_type(dtype: str) -> str:
    """The type that a value of `dtype` has in memory."""
    facts = dtypes.info(dtype)
    return lanes_of("i8", facts.lanes) if facts.kind == "bool" else value_type(dtype)


def constant(value: float, dtype: str) -> str:
    """A number as an operand of `dtype`, the same in each lane."""
    return _constant(value, copysign(1.0, value) if value == 0 else 1.0, dtype)


@cache
def _constant(value: float, sign: float, dtype: str) -> str:  # noqa: ARG001  zeros are equal
    facts = dtypes.info(dtype)
    if facts.scalar in NARROW:
        text = str(_narrow_bits(value, facts.scalar))
    elif facts.kind == "float":
        text = _float_text(value, facts.scalar)
    elif facts.kind == "bool":
        text = "true" if value else "false"
    else:
        text = str(int(value))
    return text if facts.lanes == 1 else splat(text, dtypes.info(dtype).scalar)


def splat(text: str, scalar: str) -> str:
    """A constant vector with the constant `text` in each lane."""
    return f"splat ({value_type(scalar)} {text})"


def _float_text(value: float, scalar: str) -> str:
    if scalar == "float32":
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _narrow_bits(value: float, scalar: str) -> int:
    with np.errstate(over="ignore", invalid="ignore"):
        bits = np.array(value, dtypes.to_numpy(scalar))
    return int(bits.view(f"u{bits.itemsize}"))


class BasicBlock:
    """A label and its instructions; `end` is the terminator, once it is known.

    An empty line is no instruction. The contents of memory that are known at the current point are
    kept for reuse: `loads` has what was read of a buffer, `held` the operand that a register has
    and the number of the line that stored it (`None`: it was read), `tiles` what was loaded of a
    buffer as matrices. `pure` has the values of instructions without effects.
    """

    __slots__ = ("end", "held", "label", "lines", "loads", "pure", "tiles")

    def __init__(self, label: str) -> None:
        self.label = label
        self.lines: list[str] = []
        self.end = "unreachable"
        self.loads: dict[Buffer, dict[Expr, str]] = {}
        self.held: dict[Buffer, tuple[str, int | None]] = {}
        self.pure: dict[str, str] = {}
        self.tiles: dict[Buffer, dict[str, str]] = {}

    def __str__(self) -> str:
        lines = [f"  {line}" for line in self.lines if line]
        return "\n".join([f"{self.label}:", *lines, f"  {self.end}"])


class Level:
    """The body of a loop (or function): its first block, and index values computed in it.

    Instructions in `head` dominate all of the body, so `known` values can be reused anywhere in it.
    `loop` is the loop of the program that it is, if any: blocks are named after it.
    """

    __slots__ = ("head", "known", "loop")

    def __init__(self, head: BasicBlock, loop: int | None = None) -> None:
        self.head = head
        self.loop = loop
        self.known: dict[object, str] = {}


class Module:
    """State shared by the functions of a module: declarations, helpers, finished functions.

    `instructions` are those whose `code` it calls. `loops` are the numbers of the loops of the
    program (`lower.py`).
    """

    def __init__(self, name: str, target: CpuTarget, strict_fp: bool) -> None:
        self.name = name
        self.target = target
        self.fast = "" if strict_fp else "contract "
        self.f16c = "f16c" in target.features
        self.float16 = "avx512fp16" in target.features
        self.inputs: frozenset[Buffer] = frozenset()
        self.streamed: frozenset[Buffer] = frozenset()
        self.reads: dict[Expr, bool] = {}
        self.loops: Mapping[Var, int] = {}
        self.intervals = Intervals({})
        self.bits: dict[Var, int] = {}
        """Of how many bits the sizes of variables are, as far as it is known."""
        self.declarations: dict[str, str] = {}
        self.functions: list[str] = []
        self.parallel = False
        self.instructions: set[Instruction] = set()

    def declare(self, name: str, text: str) -> None:
        """Add the declaration (or definition of a helper) `text` of `name`, once."""
        self.declarations.setdefault(name, text)


class Builder:
    """A function under construction: its blocks, the current block, and open loops.

    `tiles` are the buffers in registers that a matrix unit accumulates into. `counters` are those
    of parallel loops, on the stack.
    """

    def __init__(self, module: Module, *, in_parallel: bool = False) -> None:
        self.module = module
        self.in_parallel = in_parallel
        self.streams = False
        self.blocks: list[BasicBlock] = []
        self.levels: list[Level] = []
        self._stack: list[str] = []
        self.values: dict[Var, tuple[str, int]] = {}
        self.pointers: dict[Buffer, str] = {}
        self.tiles: set[Buffer] = set()
        self.slots: list[int] = []
        self.slots_in_use = 0
        self.stacked: dict[Buffer, str] = {}
        self.stack_bytes = 0
        self.counters: str | None = None
        self._count = 0
        self.block = self.start(self.new_block("entry"))
        self.levels.append(Level(self.block))

    @property
    def depth(self) -> int:
        """The number of loops that are open."""
        return len(self.levels) - 1

    def value_of(self, var: Var) -> tuple[str, int]:
        """The operand that holds a variable, and the depth of the loop that it changes in."""
        found = self.values.get(var)
        if found is None:
            raise BuildError("the variable {0} is used outside of its loop", var.name)
        return found

    def name(self, hint: str = "v") -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def new_block(self, hint: str) -> BasicBlock:
        """A block of the current loop that is not in the function yet; `start` puts it there."""
        return self.block_of(hint, self.levels[-1].loop if self.levels else None)

    def block_of(self, hint: str, loop: int | None) -> BasicBlock:
        """A block that is named after a loop of the program, as `assembly_loops.py` reads it."""
        return BasicBlock(self.name(f"{hint}." if loop is None else f"{hint}-{loop}."))

    def start(self, block: BasicBlock) -> BasicBlock:
        """Append to `block` from now on."""
        self.blocks.append(block)
        self.block = block
        return block

    def op(self, text: str) -> str:
        """Append an instruction with a value."""
        self._count += 1
        value = f"%v{self._count}"
        self.block.lines.append(f"{value} = {text}")
        return value

    def pure(self, text: str) -> str:
        """The value of an instruction without effects, appended once to the block."""
        value = self.block.pure.get(text)
        if value is None:
            value = self.block.pure[text] = self.op(text)
        return value

    def do(self, text: str) -> None:
        """Append an instruction without a value."""
        self.block.lines.append(text)

    def jump(self, to: BasicBlock) -> None:
        self.block.end = f"br label %{to.label}"

    def branch(self, cond: str, then: BasicBlock, other: BasicBlock) -> None:
        self.block.end = f"br i1 {cond}, label %{then.label}, label %{other.label}"

    def op_at(self, depth: int, text: str) -> str:
        """The value of a pure instruction, computed once at the head of the loop at `depth`."""
        level = self.levels[depth]
        value = level.known.get(text)
        if value is None:
            value = level.known[text] = f"%{self.name()}"
            level.head.lines.append(f"{value} = {text}")
        return value

    def alloca(self, llvm_type: str, count: int, align: int) -> str:
        """Stack memory for the whole call, from the function's first block."""
        value = f"%{self.name()}"
        number = "" if count == 1 else f", i64 {count}"
        self._stack.append(f"  {value} = alloca {llvm_type}{number}, align {align}")
        return value

    def text(self) -> str:
        label, _, rest = str(self.blocks[0]).partition("\n")
        return "\n".join([label, *self._stack, rest, *map(str, self.blocks[1:])])


class Emitters(dict[type, Callable[[Builder, Any], T]]):
    """Functions that compile nodes, by type of node."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __missing__(self, key: type) -> Callable[[Builder, Any], T]:
        raise BuildError("{0} of type {1} cannot be compiled", self.what, key.__name__)


def calling(b: Builder, name: str, result: str, *arguments: tuple[str, str]) -> str:
    """The call of a function of LLVM or a library, which is declared: an instruction.

    `result` is an LLVM type, an argument a type and an operand, with attributes in front of it.
    """
    types, texts = [t for t, _ in arguments], [f"{t} {text}" for t, text in arguments]
    b.module.declare(name, f"declare {result} @{name}({', '.join(types)})")
    return f"call {result} @{name}({', '.join(texts)})"


def call(b: Builder, name: str, result: str, dtype: str, *args: str) -> str:
    """A call of the LLVM intrinsic `name`, overloaded for `result`, on arguments of `dtype`."""
    t = operand_type(dtype)
    full = f"{name}.{suffix(result)}"
    return b.op(calling(b, full, operand_type(result), *((t, a) for a in args)))


def shuffled(llvm: str, x: str, y: str, order: Sequence[int]) -> str:
    """A shuffle of two vectors of the type `llvm`: an instruction. Lanes below 0 are any."""
    lanes = ", ".join("i32 poison" if k < 0 else f"i32 {k}" for k in order)
    return f"shufflevector {llvm} {x}, {llvm} {y}, <{len(order)} x i32> <{lanes}>"


def spread(b: Builder, text: str, scalar: str, lanes: int, *, pure: bool = False) -> str:
    """An operand of the LLVM type `scalar` in each of `lanes` lanes."""
    t, order = lanes_of(scalar, lanes), lanes_of("i32", lanes)
    if not text.startswith("%"):
        return f"splat ({scalar} {text})"
    append = b.pure if pure else b.op
    first = append(f"insertelement {t} poison, {scalar} {text}, i64 0")
    return append(f"shufflevector {t} {first}, {t} poison, {order} zeroinitializer")


@cache
def suffix(dtype: str) -> str:
    """How the names of LLVM's overloaded intrinsics spell `dtype`."""
    facts = dtypes.info(dtype)
    scalar = operand_type(facts.scalar)
    text = {"half": "f16", "float": "f32", "double": "f64"}.get(scalar, scalar)
    return text if facts.lanes == 1 else f"v{facts.lanes}{text}"

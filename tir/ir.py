"""The loop-level tensor IR: its nodes, and what they mean.

Semantics, written once. The interpreter is the oracle for them.

Values
    Index arithmetic (loop variables, shapes, extents) is int64. Integers wrap around (two's
    complement). `//` and `%` floor, on integers and floats. `/` divides floats; integers are cast
    to float64 first. A shift moves all bits out where its count is negative, or the width or more:
    it leaves 0, or -1 of a negative number shifted right, as numpy does. Float to integer
    saturates, NaN becomes 0; integer to narrower integer wraps. MIN and MAX return NaN if an
    operand is NaN, and of 0 and -0 the first (on GPUs any). Comparisons with NaN are false, NE is
    true. AND, OR, XOR are bitwise on integers and logical on bool; both sides are evaluated.
    `Select` evaluates its condition and then only the side it takes.
    Python scalars are weak: they take the dtype of the other side; otherwise numpy 2 promotes.
    Integers are compared exactly, also a signed one with a uint64, whose common dtype is float64.
    bfloat16, float16 and float8 arithmetic is done in float32 and rounded to nearest even after
    every operation, unless the expression says otherwise by casts.

Statements
    `Seq` runs in order. `For` runs its body for var = 0 .. extent-1: in order when its kind is
    SERIAL or UNROLL; in any order or at once when it is PARALLEL, VECTOR or THREAD, which is legal
    only where no iteration depends on another. `Let` binds a variable in its body. `Prefetch`
    changes nothing and touches no memory, but evaluates its indices.

Launches
    A statement at the top of a function with THREAD loops in it is one launch on a device, and the
    loops are bound to its axes. An axis is bound once on a path, and has one extent in a launch.
    Launches run in order: each finds what the former ones wrote.
    The iterations of `blockIdx` axes are blocks, those of `threadIdx` axes the threads of a block.
    Blocks share nothing that one of them writes. A nest of loops over threads is a phase. What a
    phase writes to shared or global memory the next phase of the block finds, so a cooperative copy
    has thread loops of its own, beside those that compute, and serial loops stand around phases. A
    statement that no loop over an axis is around runs where that axis is 0.
    None of this changes what a program computes: loops mean what they mean anywhere. Barriers are
    derived when a program is lowered. `Barrier` and `WarpShuffle` are in lowered programs only,
    whose threads run at once: `codegen/cuda/lowering.py` defines these.

Blocks
    A `Block` isolates one computation. Its body sees only its own iteration variables (and scalar
    parameters), never a loop variable. At each visit every `Iter.var` takes the value of its
    `Iter.value`, an expression of the loop variables; if `predicate` (of the loop variables) is
    false the visit does nothing. Neither reads memory, and around a block stand loops of constant
    extents, `Seq` and `Alloc` alone: a condition that reads memory is an `If` in the body.
    `init`, if there is one, runs before the body at visits in which all REDUCE iteration variables
    are zero: their zero point comes first for each point of the others, and a predicate does not
    exclude it alone. So this leaves out elements (`False` beside conditions says that these never
    hold, and that no element is left), and a condition that leaves out terms of a
    reduction is an `If` in the body. Program text may have it in `T.where`: what depends on reduce
    loops there, and may be false at their zero point, becomes an `If` around the body.
    SPATIAL iterations are independent of each other; REDUCE iterations update the same elements,
    whose indices they are not in, by `OPERATORS` or `COMBINERS` of values that do not depend on
    these elements, in unspecified order; OPAQUE ones run in order. `reads` and `writes` cover all
    elements that the body and init touch.
    Several visits with the same values recompute the same result, but for updates: blocks with
    REDUCE axes, or that read elements which they store to. Their loops visit each point once, and
    all terms of a reduction, which may be cut in parts: blocks that store to the same buffers, one
    after another. In each iteration of outer loops all this may happen anew, if an init, or another
    block before, stores there what is updated.

Buffers
    An element must be written before it is read, except in parameters that are inputs. Internal
    buffers (`Func.allocs`, `Alloc`) start uninitialised. Scope `register` asks for every element to
    be held in registers: after unrolling and vectorising each index must be constant.
    In a launch, each block has its own buffers of scope `shared`, and each thread its own of scope
    `local` or `register`. A `local` or `register` buffer that more than one phase uses is owned:
    each of its elements is used by one thread in all phases of the launch, and an element of a
    `shared` buffer likewise by one block.
    Zero-size buffers and loops of extent 0 are legal and do nothing.

Reductions
    are associative and commutative by definition, fma contraction is allowed (`strict_fp` forbids
    both when a program is compiled).

Shapes and extents (`Dim`) are Python integers, or expressions over decision variables when a
schedule is symbolic.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from types import EllipsisType, GeneratorType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..base import dtypes
from ..base.display import html
from ..base.errors import IRError
from ..base.hints import Hinted, instead
from .node import node

INDEX = "int64"
NARROW_INDEX = "int32"
"""The dtype of indices and loop variables that lowering has shown to fit it."""
SCOPES = ("global", "local", "register", "shared")
"""What a buffer may be: memory of all, of a thread, its registers, memory of a block."""
HARDWARE_AXES = tuple(f"{unit}Idx.{axis}" for unit in ("block", "thread") for axis in "xyz")
"""What a loop may be bound to: the blocks of a launch, and the threads of a block."""
WARP = 32
"""Threads of a warp, which are consecutive in their block."""


class Op(StrEnum):
    """Binary operators. Comparisons and logic give bool."""

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    FLOORDIV = "//"
    MOD = "%"
    MIN = "min"
    MAX = "max"
    AND = "&"
    OR = "|"
    XOR = "^"
    SHL = "<<"
    SHR = ">>"
    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


COMPARISONS = frozenset({Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE})
BITWISE = frozenset({Op.AND, Op.OR, Op.XOR})
SHIFTS = frozenset({Op.SHL, Op.SHR})
ARITHMETIC = frozenset(Op) - COMPARISONS - BITWISE - SHIFTS

ON_NUMBERS: dict[Op, Callable[[Any, Any], Any]] = {
    Op.ADD: operator.add, Op.SUB: operator.sub, Op.MUL: operator.mul, Op.DIV: operator.truediv,
    Op.FLOORDIV: operator.floordiv, Op.MOD: operator.mod, Op.MIN: min, Op.MAX: max,
    Op.AND: operator.and_, Op.OR: operator.or_, Op.XOR: operator.xor,
    Op.SHL: operator.lshift, Op.SHR: operator.rshift,
    Op.EQ: operator.eq, Op.NE: operator.ne,
    Op.LT: operator.lt, Op.LE: operator.le, Op.GT: operator.gt, Op.GE: operator.ge,
}  # fmt: skip
"""The operators on Python numbers, which neither wrap around nor keep NaN in `min` and `max`."""

FLOAT_FUNCTIONS = {
    "exp": 1, "exp2": 1, "expm1": 1, "log": 1, "log1p": 1, "sqrt": 1, "rsqrt": 1, "cbrt": 1,
    "sin": 1, "cos": 1, "asin": 1, "acos": 1, "atan": 1, "sinh": 1, "cosh": 1, "tanh": 1,
    "asinh": 1, "acosh": 1, "atanh": 1, "erf": 1, "sigmoid": 1,
    "floor": 1, "ceil": 1, "trunc": 1, "round": 1, "pow": 2, "atan2": 2, "hypot": 2,
}  # fmt: skip
"""Intrinsic functions on floats and their number of arguments."""
ROUNDINGS = frozenset({"floor", "ceil", "trunc", "round"})
"""Those that return whole numbers, exactly; `round` takes ties to the even one."""
_SHOWN = 24
"""The longest argument that a hint repeats, in characters."""
PAIR_HINT = "te.argmax and te.argmin return (index, value): write te.argmax(x, axis=r)[0], or [1]"
"""The hint of errors that find such a pair in the place of an expression."""
SUMS = frozenset({"int32", "int64", "uint32", "uint64", "float32", "float64"})
"""The dtypes in which `Dot` and `Matmul` add."""
FUNCTIONS = FLOAT_FUNCTIONS | {"abs": 1, "neg": 1, "not": 1}
"""All intrinsic functions; `neg` and `abs` take any number, `not` bool (logical) or integers."""


NUMPY_OPERATORS = {
    "add": Op.ADD, "subtract": Op.SUB, "multiply": Op.MUL, "divide": Op.DIV,
    "floor_divide": Op.FLOORDIV, "remainder": Op.MOD,
    "bitwise_and": Op.AND, "bitwise_or": Op.OR, "bitwise_xor": Op.XOR,
    "left_shift": Op.SHL, "right_shift": Op.SHR,
    "equal": Op.EQ, "not_equal": Op.NE,
    "less": Op.LT, "less_equal": Op.LE, "greater": Op.GT, "greater_equal": Op.GE,
}  # fmt: skip
"""The operators by numpy's names of them."""


class ForKind(StrEnum):
    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTOR = "vectorized"
    UNROLL = "unrolled"
    THREAD = "thread"


class BarrierScope(StrEnum):
    """Which threads wait for each other."""

    BLOCK = "block"
    WARP = "warp"


UNORDERED = frozenset({ForKind.PARALLEL, ForKind.VECTOR, ForKind.THREAD})
"""Loops whose iterations may run in any order."""


class IterKind(StrEnum):
    SPATIAL = "spatial"
    REDUCE = "reduce"
    OPAQUE = "opaque"


def _forward(op: Op) -> Callable[[Expr, Operand], Expr]:
    """The method for `self op other`."""
    return lambda self, other: binary(op, self, other)


def _reflected(op: Op) -> Callable[[Expr, Operand], Expr]:
    """The method for `other op self`."""
    return lambda self, other: binary(op, other, self)


class Expr(Hinted):
    """Base of expressions. `dtype` may carry lanes. `==` and the other operators build nodes."""

    __slots__ = ()
    dtype: str
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise IRError(
            "the truth of a symbolic expression is not known while a program is built",
            hint="min and max are te.minimum(a, b) and te.maximum(a, b); a choice is "
            "te.select(condition, a, b); conditions are combined with & | ~",
        )

    def __float__(self) -> float:
        raise IRError(
            "an expression has no value while a program is built",
            hint="the functions of te take expressions: te.sqrt, te.exp, te.cast(x, dtype)",
        )

    __int__ = __complex__ = __float__

    __add__, __radd__ = _forward(Op.ADD), _reflected(Op.ADD)
    __sub__, __rsub__ = _forward(Op.SUB), _reflected(Op.SUB)
    __mul__, __rmul__ = _forward(Op.MUL), _reflected(Op.MUL)
    __truediv__, __rtruediv__ = _forward(Op.DIV), _reflected(Op.DIV)
    __floordiv__, __rfloordiv__ = _forward(Op.FLOORDIV), _reflected(Op.FLOORDIV)
    __mod__, __rmod__ = _forward(Op.MOD), _reflected(Op.MOD)
    __and__, __rand__ = _forward(Op.AND), _reflected(Op.AND)
    __or__, __ror__ = _forward(Op.OR), _reflected(Op.OR)
    __xor__, __rxor__ = _forward(Op.XOR), _reflected(Op.XOR)
    __lshift__, __rlshift__ = _forward(Op.SHL), _reflected(Op.SHL)
    __rshift__, __rrshift__ = _forward(Op.SHR), _reflected(Op.SHR)
    __lt__, __le__ = _forward(Op.LT), _forward(Op.LE)
    __gt__, __ge__ = _forward(Op.GT), _forward(Op.GE)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return binary(Op.EQ, self, other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return binary(Op.NE, self, other)  # type: ignore[arg-type]

    def __neg__(self) -> Expr:
        return call("neg", self)

    def __invert__(self) -> Expr:
        return call("not", self)

    def __abs__(self) -> Expr:
        return call("abs", self)

    def __round__(self, digits: int | None = None) -> Expr:
        raise IRError(
            "round(x) of Python makes an integer of a number; this is an expression of a program",
            hint="write te.round(x), or te.cast(te.round(x), dtype) for an integer",
        )

    def __floor__(self) -> Expr:
        raise _of_python("floor")

    def __ceil__(self) -> Expr:
        raise _of_python("ceil")

    def __trunc__(self) -> Expr:
        raise _of_python("trunc")

    def __pow__(self, other: Operand) -> Expr:
        return power(self, other)

    def __rpow__(self, other: Operand) -> Expr:
        return power(other, self)

    def __pos__(self) -> Expr:
        return self

    def __divmod__(self, other: Operand) -> tuple[Expr, Expr]:
        return self // other, self % other

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Expr:
        from .numpy_protocol import ufunc as applied

        return applied(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, _: Any, args: Any, kwargs: Any) -> Expr:
        from .numpy_protocol import array_function

        return array_function(function, args, kwargs)

    if not TYPE_CHECKING:  # type checkers then still know what there is

        def __index__(self) -> int:
            raise IRError(
                "an expression has no value while a program is built, and is no index or count",
                hint="what is indexed by it is a placeholder, and a loop over it is a reduction: "
                "te.sum(x, axis=te.reduce_axis(n))",
            )

    def _instead(self, name: str) -> str | None:
        from .numpy_protocol import function_hint

        return instead("Expr", name) or function_hint(name)

    def __repr__(self) -> str:
        from .printer import expr_text

        return expr_text(self)

    def astype(self, dtype: str | type[np.generic]) -> Expr:
        """This value cast to `dtype`, a name or a dtype of numpy."""
        from .te_arguments import dtype_name

        return cast(dtype if isinstance(dtype, str) else dtype_name(dtype), self)


def _of_python(name: str) -> IRError:
    """The error for a function of Python's numbers."""
    return IRError(
        "{0} of Python computes numbers; this is an expression of a program", name,
        hint=f"write te.{name}(x)",
    )  # fmt: skip


Dim: TypeAlias = int | Expr
Operand: TypeAlias = Expr | int | float | bool


class _Marked(Expr):
    """A slot beside the fields of a record."""

    __slots__ = ("_is_handle",)


@node
class Var(_Marked):
    """A variable: of a loop, of a block's iteration, a scalar parameter or a decision.

    Lowering makes loops of parts of a loop: `origin` is the variable of the scheduled loop.
    A variable that a schedule returned is the handle of a loop. Python may ask whether it is the
    same as another one: `handle in loops`, `handle == other`.
    """

    name: str
    dtype: str = INDEX
    origin: Var | None = None
    __hash__ = object.__hash__

    def mark_handle(self) -> None:
        """Say that a schedule returned it."""
        object.__setattr__(self, "_is_handle", True)

    @property
    def is_handle(self) -> bool:
        return getattr(self, "_is_handle", False)

    @property
    def referent(self) -> Var:
        """The variable that this one stands for."""
        return self

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return NotImplemented if self._is_no_operand(other) else binary(Op.EQ, self, other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return NotImplemented if self._is_no_operand(other) else binary(Op.NE, self, other)  # type: ignore[arg-type]

    def _is_no_operand(self, other: object) -> bool:
        """Whether this is a handle, and the other something that is not compared by value."""
        return not isinstance(other, (Expr, int, float, np.generic)) and self.is_handle


@node
class Const(Expr):
    value: int | float | bool
    dtype: str


@node
class Binary(Expr):
    op: Op
    a: Expr
    b: Expr
    dtype: str

    def __bool__(self) -> bool:
        """Whether handles are the same. Raises `IRError` for all other expressions."""
        match self:
            case Binary(Op.EQ | Op.NE, Var() as a, Var() as b) if a.is_handle or b.is_handle:
                return (a.referent is b.referent) is (self.op is Op.EQ)
            case _:
                return Expr.__bool__(self)


@node
class Call(Expr):
    """An intrinsic function of `FUNCTIONS`."""

    fn: str
    args: tuple[Expr, ...]
    dtype: str


@node
class Cast(Expr):
    value: Expr
    dtype: str


@node
class Select(Expr):
    cond: Expr
    then: Expr
    other: Expr
    dtype: str


@node
class Load(Expr):
    """`buffer[indices]`; one index may be a vector after lowering. Lanes off in `mask` give 0."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    dtype: str
    mask: Expr | None = None


@node
class Ramp(Expr):
    """The vector `base + [0, 1, .., lanes-1] * stride`; lowered programs only."""

    base: Expr
    stride: Expr
    lanes: int
    dtype: str


@node
class Broadcast(Expr):
    """`value` in each of `lanes` lanes; lowered programs only."""

    value: Expr
    lanes: int
    dtype: str


@node
class Dot(Expr):
    """`acc` plus the sums of products of groups of lanes of `x` and `y`; lowered programs only.

    Lane l is acc[l] + x[l*g]*y[l*g] + .. + x[l*g+g-1]*y[l*g+g-1], for g times as many lanes in `x`
    or `y` as in `acc`. An operand of just g lanes is the same for all groups. Products and sums are
    in the dtype of `acc`; floats are added in any order and may be fused and flushed to zero where
    denormal, as instructions for it do.
    """

    acc: Expr
    x: Expr
    y: Expr
    dtype: str


@node
class Matmul(Expr):
    """The matrix `acc` plus the product of the matrices `x` and `y`; lowered programs only.

    With r `rows`, c columns, d steps and g of `group`, lane i*c + j is acc[i*c + j] plus the sum
    over k < d and s < g of x[(i*d + k)*g + s] * y[(k*c + j)*g + s]: `y` has the columns of its
    steps in groups. The lanes of the operands tell c and d. Products and sums are those of `Dot`.
    """

    acc: Expr
    x: Expr
    y: Expr
    rows: int
    group: int
    dtype: str


@node
class Shuffle(Expr):
    """The lanes `order` of those of `a` and `b`, counted through both; lowered programs only."""

    a: Expr
    b: Expr
    order: tuple[int, ...]
    dtype: str


@node
class WarpShuffle(Expr):
    """The scalar `value` as the thread computes it whose lane in the warp is this one's xor `xor`.

    Lowered programs of devices only.
    """

    value: Expr
    xor: int
    dtype: str


@node
class Reduce(Expr):
    """A reduction of `values` over `axes`, in tensor expressions only (`te` makes blocks of it).

    `combiner` is a key of `COMBINERS` in `combiners.py`; `index` picks one of several results.
    """

    combiner: str
    values: tuple[Expr, ...]
    axes: tuple[Iter, ...]
    index: int
    dtype: str


@node
class Buffer:
    """A dense array. `strides` in elements, none negative; `None` is compact row-major. Those of a
    buffer that is written keep its elements apart.

    What is computed of a `constant` operand alone may be computed ahead of the calls. `value_range`
    (low, high), high exclusive, bounds the integers it holds. `align` pads an internal one: (axis,
    factor, offset) widens the stride of `axis` to `offset` more than a multiple of `factor`.
    `swizzle` of an internal one, (axis, by, rows, width), puts the element with index a along
    `axis` and b along `by` in the place that is `(a // width ^ b % rows) * width + a % width` along
    `axis`.
    """

    name: str
    shape: tuple[Dim, ...]
    dtype: str
    strides: tuple[int, ...] | None = None
    scope: str = "global"
    constant: bool = False
    value_range: tuple[int, int] | None = None
    align: tuple[tuple[int, int, int], ...] = ()
    swizzle: tuple[int, int, int, int] | None = None

    def __getitem__(self, indices: Any) -> Load:
        return load(self, indices if isinstance(indices, tuple) else (indices,))

    def __repr__(self) -> str:
        from .expr_printer import buffer_summary

        return buffer_summary(self)


@node
class Label:
    """The identity of a block, kept through rewrites; `name` is for display."""

    name: str

    def __repr__(self) -> str:
        from .expr_printer import shortened

        return f"<Label {shortened(self.name)}>"


@node
class Iter:
    """A block's iteration variable over [0, extent), bound to `value` at each visit.

    `value` reads no memory: the variable keeps it while the block stores.
    """

    var: Var
    extent: Dim
    kind: IterKind
    value: Expr

    def __repr__(self) -> str:
        from .expr_printer import iter_text

        return f"<Iter {iter_text(self)}>"


@node
class Range:
    """`extent` elements from `min` on."""

    min: Expr
    extent: Dim


@node
class Region:
    buffer: Buffer
    ranges: tuple[Range, ...]

    def __repr__(self) -> str:
        from .expr_printer import region_text

        return f"<Region {region_text(self)}>"


Annotations: TypeAlias = tuple[tuple[str, Any], ...]
"""Pairs of a name and a JSON value, in order of name."""
STREAM = "stream"
"""The annotation of a function with the numbers of parameters that are written past the caches."""


class Stmt:
    """Base of statements."""

    __slots__ = ()

    def __str__(self) -> str:
        from .printer import stmt_text

        return stmt_text(self)

    def __repr__(self) -> str:
        """A line; `str` has all of it."""
        from .expr_printer import stmt_summary

        return stmt_summary(str(self))


@node
class Store(Stmt):
    """`buffer[indices] = value`; lanes off in `mask` are not written."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None


@node
class Prefetch(Stmt):
    """A hint that `buffer[indices]` is wanted soon. The element is not touched.

    It may lie outside of the buffer, which is not held in registers; the indices are scalar.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]


@node
class Barrier(Stmt):
    """Threads wait for all threads of the block, or of the warp, and find what these wrote before.

    Lowered programs of devices only.
    """

    scope: BarrierScope


@node
class For(Stmt):
    """`thread` is the hardware axis of a THREAD loop, such as `blockIdx.x`."""

    var: Var
    extent: Dim
    body: Stmt
    kind: ForKind = ForKind.SERIAL
    thread: str | None = None
    annotations: Annotations = ()


@node
class Block(Stmt):
    label: Label
    iters: tuple[Iter, ...]
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    body: Stmt
    init: Stmt | None = None
    predicate: Expr | None = None
    annotations: Annotations = ()


@node
class Seq(Stmt):
    stmts: tuple[Stmt, ...]


@node
class If(Stmt):
    cond: Expr
    then: Stmt
    other: Stmt | None = None


@node
class Let(Stmt):
    var: Var
    value: Expr
    body: Stmt


@node
class Alloc(Stmt):
    """`buffer` lives in `body`; lowered programs only."""

    buffer: Buffer
    body: Stmt


@node
class Func(Hinted):
    """A program. `params` in the order of the call; those that are stored to are outputs.

    `inplace` lists the outputs whose contents at entry are read. `allocs` are internal buffers.
    """

    name: str
    params: tuple[Buffer | Var, ...]
    allocs: tuple[Buffer, ...]
    body: Stmt
    inplace: tuple[Buffer, ...] = ()
    annotations: Annotations = ()

    _repr_html_ = html

    def __str__(self) -> str:
        from .printer import func_text

        return func_text(self)

    def __repr__(self) -> str:
        """A line; `str` has the program."""
        from .expr_printer import func_summary

        return func_summary(self)


Node: TypeAlias = Expr | Stmt | Func

TRUE = Const(True, "bool")
FALSE = Const(False, "bool")
_SMALL = tuple(Const(i, INDEX) for i in range(257))


def const(value: int | float | bool, dtype: str = INDEX) -> Const:
    """A constant of `dtype` (scalar). Integers must fit; raises `IRError` where they do not."""
    if dtype == INDEX and type(value) is int and 0 <= value < 257:
        return _SMALL[value]
    kind = dtypes.info(dtype).kind
    if kind == "bool":
        return TRUE if value else FALSE
    if kind == "float":
        return Const(float(value), dtype)
    low, high = dtypes.int_limits(dtype)
    if isinstance(value, float) and not (math.isfinite(value) and value.is_integer()):
        raise IRError(
            "{0!r} is not an integer and does not fit {1}", value, dtype, hint="cast one side"
        )
    if not low <= int(value) <= high:
        raise IRError("{0!r} does not fit {1} ([{2}, {3}])", value, dtype, low, high)
    return Const(int(value), dtype)


def as_expr(value: Operand, dtype: str | None = None) -> Expr:
    """`value` as an expression. A Python scalar gets `dtype`, or bool, int64, float32."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, np.generic):  # before float: numpy.float64 is one
        return const(value.item(), dtypes.from_numpy(value.dtype))
    if isinstance(value, bool):
        return const(value, dtype or "bool")
    if isinstance(value, int):
        return const(value, dtype or INDEX)
    if isinstance(value, float):
        return const(value, dtype or "float32")
    raise IRError(
        "{0!r} of type {1} is not an expression; expected an expression or a number",
        value,
        type(value).__name__,
        hint=_of_what(value),
    )


def _of_what(value: object) -> str | None:
    """A hint where a whole array, a part of one or a pair is given."""
    from .te_arguments import PAIR_HINT, Pair

    if isinstance(value, Pair):
        return PAIR_HINT
    if isinstance(value, (slice, EllipsisType)):
        return "an element has one index for each dimension: X[0, j], not X[0, :]"
    if isinstance(value, GeneratorType):
        return "a loop over elements is an axis: te.sum(X[i, r], axis=r) with r = te.reduce_axis(n)"
    if hasattr(value, "ndim"):
        return "operators and functions work on elements: X[i, j], not X"
    return None


def unify(a: Operand, b: Operand) -> tuple[Expr, Expr]:
    """Both operands in their common dtype: Python scalars are weak, numpy 2 promotes the rest."""
    if not isinstance(a, Expr):
        if isinstance(a, np.generic):
            return unify(as_expr(a), b)
        if isinstance(b, Expr):
            return _weak(a, b), b if _keeps(a, b) else cast("float64", b)
        return unify(as_expr(a), b)
    if not isinstance(b, Expr):
        if isinstance(b, np.generic):
            return unify(a, as_expr(b))
        return (a if _keeps(b, a) else cast("float64", a)), _weak(b, a)
    if a.dtype == b.dtype:
        return a, b
    x, y = dtypes.info(a.dtype), dtypes.info(b.dtype)
    if x.lanes != y.lanes and x.lanes != 1 and y.lanes != 1:
        raise IRError("{0} and {1} have different lanes", a.dtype, b.dtype)
    scalar = dtypes.promote(x.scalar, y.scalar)
    lanes = max(x.lanes, y.lanes)
    return _widen(cast(scalar, a), lanes), _widen(cast(scalar, b), lanes)


def _keeps(scalar: Operand, other: Expr) -> bool:
    """Whether `other` keeps its dtype beside a Python scalar: integers do not beside a float."""
    return not isinstance(scalar, float) or dtypes.is_float(other.dtype)


def _weak(scalar: Operand, other: Expr) -> Expr:
    facts = dtypes.info(other.dtype)
    if not isinstance(scalar, (bool, int, float)):
        return _widen(as_expr(scalar), facts.lanes)
    dtype = facts.scalar
    if isinstance(scalar, float) and facts.kind != "float":
        dtype = "float64"
    elif isinstance(scalar, int) and not isinstance(scalar, bool) and facts.kind == "bool":
        dtype = INDEX
    return _widen(const(scalar, dtype), facts.lanes)


def _widen(value: Expr, lanes: int) -> Expr:
    facts = dtypes.info(value.dtype)
    if facts.lanes == lanes:
        return value
    return Broadcast(value, lanes, dtypes.vector(facts.scalar, lanes))


def binary(op: Op, a: Operand, b: Operand) -> Expr:
    """`a op b` with promotion; index arithmetic on constants folds, and so do x+0, x*1, x*0.

    Raises `IRError` if the dtypes do not go with the operator.
    """
    if type(b) is int and isinstance(a, Expr) and a.dtype == INDEX:
        b = const(b)  # most arithmetic, of indices: the rest takes three times as long
    elif type(a) is int and isinstance(b, Expr) and b.dtype == INDEX:
        a = const(a)
    else:
        given = a, b
        a, b = unify(a, b)
        if a.dtype != b.dtype:
            a, b = unify(a, b)
        if op in COMPARISONS and all(map(_is_integer, given)) and dtypes.is_float(a.dtype):
            return _compare_signs(op, *map(as_expr, given))
    dtype = a.dtype
    if dtype == INDEX:
        folded = _fold_index(op, a, b)
        if folded is not None:
            return folded
        if op is not Op.DIV:
            return Binary(op, a, b, "bool" if op in COMPARISONS else INDEX)
    facts = dtypes.info(dtype)
    if op in COMPARISONS:
        return Binary(op, a, b, dtypes.vector("bool", facts.lanes))
    if op is Op.DIV and facts.kind != "float":
        wide = dtypes.vector("float64", facts.lanes)
        return Binary(op, cast(wide, a), cast(wide, b), wide)
    if op in BITWISE or op in SHIFTS:
        if facts.kind == "float" or (op in SHIFTS and facts.kind == "bool"):
            raise IRError("{0} takes integers{1}, found {2}", op.value,
                          "" if op in SHIFTS else " or bool", dtype)  # fmt: skip
    elif facts.kind == "bool" and op not in (Op.MIN, Op.MAX):
        raise IRError("{0} takes numbers, found {1}", op.value, dtype, hint="cast to an integer")
    return Binary(op, a, b, dtype)


def _is_integer(operand: Operand) -> bool:
    return not isinstance(operand, (bool, int, float)) and dtypes.is_integer(as_expr(operand).dtype)


def _compare_signs(op: Op, a: Expr, b: Expr) -> Expr:
    """A signed integer compared with a uint64, or the reverse: no dtype holds all of both.

    The one that is outside of the other's dtype decides; else both are compared in that one.
    """
    if dtypes.info(a.dtype).kind == "uint":
        return _compare_signs(_MIRRORED[op], b, a)
    if type(b) in (Var, Const) and type(a) not in (Var, Const):  # the operand that occurs twice
        beyond, within = b > const(dtypes.int_limits(INDEX)[1], "uint64"), cast(INDEX, b)
        compared = binary(op, cast(INDEX, a), within)
    else:
        beyond, compared = a < 0, binary(op, cast("uint64", a), b)
    return beyond | compared if op in (Op.LT, Op.LE, Op.NE) else ~beyond & compared


_MIRRORED = {
    Op.EQ: Op.EQ, Op.NE: Op.NE, Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE,
}  # fmt: skip


def _fold_index(op: Op, a: Expr, b: Expr) -> Expr | None:
    """Folding of int64 arithmetic that does not overflow; `None` if there is nothing to fold."""
    if type(b) is Const:
        y = b.value
        if type(a) is Const:
            if op in _FOLDED and not (y == 0 and op in (Op.FLOORDIV, Op.MOD)):
                value = ON_NUMBERS[op](a.value, y)
                if type(value) is bool:
                    return TRUE if value else FALSE
                if -(1 << 63) <= value < 1 << 63:
                    return const(value)
            return None
        if y == 0 and op in (Op.ADD, Op.SUB):
            return a
        if y == 1 and op in (Op.MUL, Op.FLOORDIV):
            return a
        if (y == 0 and op is Op.MUL) or (y == 1 and op is Op.MOD):
            return _SMALL[0]
    elif type(a) is Const:
        if a.value == 0 and op is Op.ADD:
            return b
        if op is Op.MUL:
            if a.value == 1:
                return b
            if a.value == 0:
                return a
    return None


_FOLDED = (ARITHMETIC | COMPARISONS) - {Op.DIV}


def call(fn: str, *args: Operand) -> Expr:
    """The intrinsic `fn` of `args`, which have one dtype. Raises `IRError` for wrong ones."""
    arity = FUNCTIONS.get(fn)
    if arity is None:
        raise IRError("unknown function {0!r}; expected one of {1}", fn, ", ".join(FUNCTIONS))
    exprs = tuple(as_expr(a) for a in args)
    if len(exprs) != arity:
        raise IRError("{0} takes {1} arguments, found {2}", fn, arity, len(exprs))
    dtype = exprs[0].dtype
    kind = dtypes.info(dtype).kind
    if any(e.dtype != dtype for e in exprs):
        raise IRError("{0} takes arguments of one dtype, found {1}", fn, [e.dtype for e in exprs])
    wrong = (
        kind != "float"
        if fn in FLOAT_FUNCTIONS
        else (kind == "float" if fn == "not" else kind == "bool")
    )
    if wrong:
        raise IRError(
            "{0} does not take {1}", fn, dtype,
            hint=partial(cast_hint, fn, *exprs) if fn in FLOAT_FUNCTIONS else "cast the argument",
        )  # fmt: skip
    if fn == "neg" and dtype == INDEX and type(exprs[0]) is Const:
        return const(-exprs[0].value)
    return Call(fn, exprs, dtype)


_LARGEST_POWER = 64
"""The largest exponent of an integer power: larger ones of 2 are 0."""
_POWERS: dict[float, Callable[[Expr], Expr]] = {
    -1: lambda x: binary(Op.DIV, 1, x),
    0.5: lambda x: call("sqrt", x),
    1: lambda x: x,
    2: lambda x: binary(Op.MUL, x, x),
}
"""Powers of floats to these Python numbers, which numpy's `**` computes so too."""


def power(base: Operand, exponent: Operand) -> Expr:
    """`base ** exponent`: of floats, or of an integer to a Python integer from 0 on.

    It is that of C, but for some Python numbers as exponents: as numpy's `**`, a power of 0.5 is
    the square root, which is NaN at -inf and -0 at -0. The powers of integers are products, which
    wrap around. Raises `IRError` for other dtypes.
    """
    if isinstance(exponent, (int, float)) and isinstance(base, Expr):
        if dtypes.is_float(base.dtype) and exponent in _POWERS:
            return _POWERS[exponent](base)
        whole = type(exponent) is int and dtypes.is_integer(base.dtype)
        if whole and 0 <= exponent <= _LARGEST_POWER:
            return _integer_power(base, int(exponent))
    a, b = unify(base, exponent)
    if dtypes.is_integer(a.dtype):
        raise IRError(
            "an integer to the power of {0!r}; expected a Python integer from 0 to {1}",
            exponent, _LARGEST_POWER,
            hint=f"1 << x is a power of 2; of floats: {cast_hint('pow', a, b)}",
        )  # fmt: skip
    return call("pow", a, b)


def _integer_power(base: Expr, exponent: int) -> Expr:
    """By repeated squares."""
    if exponent == 0:
        return _weak(1, base)
    if exponent == 1:
        return base
    half = _integer_power(base, exponent // 2)
    return half * half * base if exponent % 2 else half * half


def cast_hint(fn: str, *arguments: Expr) -> str:
    """The call of a function of floats with arguments that are not, cast."""
    texts = [text if len(text := repr(e)) <= _SHOWN else "x" for e in arguments]
    casts = ", ".join(f'te.cast({text}, "float32")' for text in texts)
    scripts = ", ".join(f"T.float32({text})" for text in texts)
    return f"cast the argument: te.{fn}({casts}); in a script T.{fn}({scripts})"


def cast(dtype: str, value: Operand) -> Expr:
    """`value` as `dtype`; a scalar `dtype` keeps the lanes of `value`. No node without a change."""
    expr = as_expr(value)
    lanes, own = dtypes.info(expr.dtype).lanes, dtypes.info(dtype).lanes
    wanted = dtypes.vector(dtype, max(lanes, own))
    return expr if wanted == expr.dtype else Cast(expr, wanted)


def select(cond: Operand, then: Operand, other: Operand) -> Expr:
    """`then` where `cond` holds, else `other`; only the side taken is evaluated."""
    cond = as_expr(cond)
    if not dtypes.is_bool(cond.dtype):
        raise IRError(
            "the condition of select must be bool, found {0}", cond.dtype,
            hint="numbers other than 0 are `x != 0`",
        )  # fmt: skip
    then, other = unify(then, other)
    if cond is TRUE:
        return then
    return other if cond is FALSE else Select(cond, then, other, then.dtype)


def dot(acc: Expr, x: Expr, y: Expr) -> Dot:
    """`Dot`. Raises `IRError` if the lanes do not go together."""
    lanes, *others = (dtypes.info(e.dtype).lanes for e in (acc, x, y))
    group = max(others) // lanes
    if dtypes.info(acc.dtype).scalar not in SUMS:
        raise IRError("a dot product cannot be summed in {0}; cast it", acc.dtype)
    if group < 1 or max(others) % lanes or not {lanes * group, group}.issuperset(others):
        raise IRError(
            "the dot product of {0} lanes and {1} lanes makes no {2} sums; expected the same number"
            " of lanes for each sum, on one side or both",
            *others, lanes,
        )  # fmt: skip
    return Dot(acc, x, y, acc.dtype)


def matmul(acc: Expr, x: Expr, y: Expr, rows: int, group: int) -> Matmul:
    """`Matmul`. Raises `IRError` if the lanes do not make matrices that go together."""
    if dtypes.info(acc.dtype).scalar not in SUMS:
        raise IRError("a product of matrices cannot be summed in {0}; cast it", acc.dtype)
    if matrices(acc, x, y, rows, group) is None:
        raise IRError(
            "{0} in {1} rows and {2}, in groups of {3}, make no product that can be added to {4}",
            x.dtype, rows, y.dtype, group, acc.dtype,
            hint="for r rows, c columns, d steps and groups of g, the lanes are r*d*g, d*c*g and"
            " r*c",
        )  # fmt: skip
    return Matmul(acc, x, y, rows, group, acc.dtype)


def matrices(acc: Expr, x: Expr, y: Expr, rows: int, group: int) -> tuple[int, int] | None:
    """The columns and the steps of a `Matmul`; `None` if the lanes do not go together."""
    own, left, right = (dtypes.info(e.dtype).lanes for e in (acc, x, y))
    if min(rows, group) < 1 or own % rows or left % (rows * group):
        return None
    columns, depth = own // rows, left // (rows * group)
    return (columns, depth) if depth * columns * group == right else None


def shuffle(a: Expr, b: Expr, order: tuple[int, ...]) -> Shuffle:
    """`Shuffle`. Raises `IRError` if the operands do not go together or have no such lanes."""
    lanes = dtypes.info(a.dtype).lanes
    if a.dtype != b.dtype or lanes < 2 or len(order) < 2:
        raise IRError(
            "a shuffle of {0} and {1} to {2} lanes; expected vectors of one dtype",
            a.dtype, b.dtype, len(order),
        )  # fmt: skip
    if not all(type(k) is int and 0 <= k < 2 * lanes for k in order):
        raise IRError("a shuffle of lanes {0}; there are {1}", order, 2 * lanes)
    return Shuffle(a, b, order, dtypes.vector(dtypes.info(a.dtype).scalar, len(order)))


def warp_shuffle(value: Operand, xor: int) -> WarpShuffle:
    """`WarpShuffle`. Raises `IRError` for a vector, and where no lane is at that distance."""
    value = as_expr(value)
    if dtypes.info(value.dtype).lanes != 1:
        raise IRError("a warp shuffle of {0}; expected one element", value.dtype)
    if type(xor) is not int or not 0 < xor < WARP:
        raise IRError("a warp shuffle by {0}; expected 1 to {1}", xor, WARP - 1)
    return WarpShuffle(value, xor, value.dtype)


def load(buffer: Buffer, indices: tuple[Operand, ...], mask: Expr | None = None) -> Load:
    """`buffer[indices]`. Raises `IRError` for a wrong number of indices or one not an integer."""
    exprs = index_exprs(buffer, indices)
    lanes = max((dtypes.info(e.dtype).lanes for e in exprs), default=1)
    return Load(buffer, exprs, dtypes.vector(buffer.dtype, lanes), mask)


def store(buffer: Buffer, indices: tuple[Operand, ...], value: Operand) -> Store:
    """`buffer[indices] = value`. Raises `IRError` if dtypes or number of indices do not fit."""
    exprs = index_exprs(buffer, indices)
    value = as_expr(value, None if isinstance(value, Expr) else buffer.dtype)
    if dtypes.info(value.dtype).scalar != buffer.dtype:
        raise IRError(
            "a value of {0} is stored to {1} of {2}", value.dtype, buffer.name, buffer.dtype,
            hint=f"write .astype({buffer.dtype!r})",
        )  # fmt: skip
    return Store(buffer, exprs, value)


def _letters(count: int) -> str:
    """The usual names of so many index variables."""
    return ", ".join("ijklmn"[:count] if count <= 6 else (f"i{n}" for n in range(count))) or "()"


def index_exprs(buffer: Buffer, indices: tuple[Operand, ...]) -> tuple[Expr, ...]:
    if len(indices) != len(buffer.shape):
        raise IRError(
            "{0} has {1} dimensions, found {2} indices",
            buffer.name, len(buffer.shape), len(indices),
            hint=f"{buffer.name}[{_letters(len(buffer.shape))}] is an element",
        )  # fmt: skip
    if any(i is None for i in indices):
        raise IRError(
            "None is no index of {0}", buffer.name,
            hint="a new dimension is one of the result: te.compute((1, n), lambda i, j: X[j])",
        )  # fmt: skip
    exprs = tuple(as_expr(i) for i in indices)
    for e in exprs:
        if not dtypes.is_integer(e.dtype):
            raise IRError(
                "an index of {0} has dtype {1}; expected an integer", buffer.name, e.dtype,
                hint="a // b divides integers, and te.cast(x, 'int64') rounds to zero",
            )  # fmt: skip
    return tuple(e if dtypes.info(e.dtype).scalar == INDEX else cast(INDEX, e) for e in exprs)


def seq(*stmts: Stmt) -> Stmt:
    """The statements in order; nested sequences are flattened, one statement stands alone."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.stmts if type(s) is Seq else (s,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def as_dim(value: Operand) -> Dim:
    """A constant expression as a Python integer; others as they are."""
    if type(value) is Const:
        return int(value.value)
    return value if isinstance(value, Expr) else int(value)


def ceildiv(a: Dim, b: Dim) -> Dim:
    """The quotient rounded up, of positive integers."""
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b)
    return (a + (b - 1)) // b


def integers(dims: Iterable[Dim]) -> tuple[int, ...]:
    """Dimensions of a concrete program as integers."""
    return tuple([int(n) for n in dims])  # type: ignore[arg-type]  # an expression raises TypeError


def product(values: tuple[Dim, ...] | list[Dim]) -> Dim:
    """The product of dimensions, 1 of none."""
    result: Dim = 1
    for v in values:
        result = result * v
    return result

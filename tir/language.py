"""`T` of program text: typed stand-ins, so that decorated functions pass linters.

    import tilewright as tw
    from tilewright import T

Nothing here computes: `tw.script` reads the source of a function. Type checkers accept no call as
an annotation; for them, write `A: T.Buffer = T.Buffer((16,), "float32")`.
"""

# ruff: noqa: ARG001, ARG002, ARG004  (what stands in for syntax has arguments and uses none)

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from ..base.errors import IRError, ParseError, similar
from ..base.hints import MissingNameError, instead
from .ir import Dim, Expr, Func, Operand
from .parser import parse, parse_function
from .source import Source, syntax_tree

Json: TypeAlias = Mapping[str, Any]
Index: TypeAlias = Operand | slice


def _unread() -> NoReturn:
    raise IRError(
        "T stands for program text and computes nothing",
        hint="decorate the function around it with @tw.script",
    )


class Buffer:
    """A parameter: `T.Buffer((16, 16), "float32")`; shape, dtype and facts as in `ir.Buffer`."""

    def __init__(
        self,
        shape: Sequence[Dim],
        dtype: str,
        *,
        strides: tuple[int, ...] | None = None,
        scope: str = "global",
        constant: builtins.bool = False,
        value_range: tuple[int, int] | None = None,
        align: tuple[tuple[int, int, int], ...] = (),
        swizzle: tuple[int, int, int, int] | None = None,
    ) -> None:
        """Annotations are evaluated when a function is defined, so this one may be called."""

    def __getitem__(self, indices: Index | tuple[Index, ...]) -> Expr:
        _unread()

    def __setitem__(self, indices: Operand | tuple[Operand, ...], value: Operand) -> None:
        _unread()

    def __enter__(self) -> Buffer:
        _unread()

    def __exit__(self, *exception: object) -> None:
        _unread()


alloc = scratch = Buffer
"""An internal buffer of the function; one that lives in the rest of its suite."""


class Value(Expr):
    """As an annotation a scalar parameter; called, a constant or a cast."""

    __slots__ = ()

    def __init__(self, value: Operand | str) -> None:
        _unread()


bool: TypeAlias = Value
int8: TypeAlias = Value
int16: TypeAlias = Value
int32: TypeAlias = Value
int64: TypeAlias = Value
uint8: TypeAlias = Value
uint16: TypeAlias = Value
uint32: TypeAlias = Value
uint64: TypeAlias = Value
float8_e4m3fn: TypeAlias = Value
float8_e5m2: TypeAlias = Value
float16: TypeAlias = Value
bfloat16: TypeAlias = Value
float32: TypeAlias = Value
float64: TypeAlias = Value

decision: TypeAlias = Expr
"""The type of a free variable of a program, such as a tile size that is chosen later."""


def inplace(*outputs: Buffer) -> None:
    """The outputs whose contents at entry are read."""
    _unread()


def func_attr(annotations: Json) -> None:
    """Annotations of the function."""
    _unread()


def grid(*extents: Operand) -> Iterator[tuple[Expr, ...]]:
    """Serial loops in each other."""
    _unread()


def serial(
    extent: Operand, *, dtype: str = "int64", annotations: Json | None = None
) -> Iterator[Expr]:
    """A loop, here with a dtype or annotations; `range(extent)` is one without."""
    _unread()


parallel = vectorized = unrolled = serial


def thread(
    axis: str | None, extent: Operand, *, dtype: str = "int64", annotations: Json | None = None
) -> Iterator[Expr]:
    """A loop over a hardware axis such as `threadIdx.x`."""
    _unread()


def block(name: str) -> AbstractContextManager[None]:
    """A block: its axes and directives come first, then its body."""
    _unread()


def init() -> AbstractContextManager[None]:
    """The init of a block, which runs before its body at the zero point of its reduction."""
    _unread()


class axis:
    """The iteration variables of a block: extent, and value in terms of the loops."""

    @staticmethod
    def spatial(extent: Operand, value: Operand, *, dtype: str = "int64") -> Expr:
        _unread()

    reduce = opaque = spatial

    @staticmethod
    def remap(kinds: str, loops: Sequence[Operand]) -> tuple[Expr, ...]:
        """Axes that are just loops: a letter each, S(patial), R(educe) or O(paque)."""
        _unread()


def where(condition: Operand) -> None:
    """The predicate of a block."""
    _unread()


def reads(*regions: Expr) -> None:
    """The regions that a block reads."""
    _unread()


def writes(*regions: Expr) -> None:
    """The regions that a block writes."""
    _unread()


def block_attr(annotations: Json) -> None:
    """Annotations of a block."""
    _unread()


def let(value: Operand) -> AbstractContextManager[Expr]:
    """Binds a name to a value in a suite."""
    _unread()


def load(element: Expr, *, dtype: str | None = None, mask: Operand = True) -> Expr:
    """An element, or a vector of them where an index is one; 0 in lanes that are off."""
    _unread()


def store(element: Expr, value: Operand, *, mask: Operand = True) -> None:
    """`element = value` in the lanes that are on."""
    _unread()


def prefetch(element: Expr) -> None:
    """A hint that an element of a parameter is needed soon; it may be out of bounds."""
    _unread()


def ramp(base: Operand, stride: Operand, lanes: int) -> Expr:
    """The vector base, base + stride, .."""
    _unread()


def broadcast(value: Operand, lanes: int) -> Expr:
    """The vector value, value, .."""
    _unread()


def dot(acc: Operand, x: Operand, y: Operand) -> Expr:
    """Each lane of `acc` plus products of lanes of `x` and `y`; see `ir.Dot`."""
    _unread()


def matmul(acc: Operand, x: Operand, y: Operand, rows: int, group: int) -> Expr:
    """The matrix `acc` plus the product of the matrices `x` and `y`; see `ir.Matmul`."""
    _unread()


def shuffle(a: Operand, b: Operand, order: Sequence[int]) -> Expr:
    """The lanes `order` of those of two vectors; see `ir.Shuffle`."""
    _unread()


def warp_shuffle(value: Operand, xor: int) -> Expr:
    """The value as another thread of the warp computes it; see `ir.WarpShuffle`."""
    _unread()


def cast(dtype: str, value: Operand) -> Expr:
    """`value` as `dtype`; a constant of it where `value` is a number."""
    _unread()


def select(condition: Operand, then: Operand, other: Operand) -> Expr:
    """`then` where the condition holds, else `other`."""
    _unread()


def minimum(a: Operand, b: Operand) -> Expr:
    """The smaller of two values; NaN if one of them is."""
    _unread()


maximum = minimum


def exp(value: Operand) -> Expr:
    """A function of one number; see `ir.FUNCTIONS`."""
    _unread()


exp2 = expm1 = log = log1p = sqrt = rsqrt = cbrt = sin = cos = asin = acos = atan = exp
sinh = cosh = tanh = asinh = acosh = atanh = erf = sigmoid = floor = ceil = trunc = exp
abs = round = exp


def pow(base: Operand, exponent: Operand) -> Expr:
    """`base` to the power of `exponent`."""
    _unread()


def atan2(y: Operand, x: Operand) -> Expr:
    """The angle of the point (x, y) in radians, from -pi to pi."""
    _unread()


def hypot(a: Operand, b: Operand) -> Expr:
    """sqrt(a**2 + b**2), of numbers whose squares overflow too."""
    _unread()


if not TYPE_CHECKING:  # type checkers then still know which names there are

    def __getattr__(name: str) -> Any:
        def hint(name: str) -> str | None:
            return instead("T", name) or similar(name, globals())

        raise MissingNameError("T has no attribute", name, hint)


# `@tw.script`: programs written as decorated Python functions, which are read and never run.


def script(program: Callable[..., Any] | str) -> Func:
    """Returns the program of a decorated function, or of a text.

        @tw.script
        def double(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for i in range(16):
                with T.block("B"):
                    vi = T.axis.spatial(16, i)
                    B[vi] = A[vi] * 2.0

    `T` is `tilewright.T`. Numbers, strings and tuples may be names of the surrounding Python. The
    grammar is in `tilewright/tir/parser.py`. Raises `ParseError`.
    """
    if isinstance(program, str):
        return parse(program)
    if not isinstance(program, FunctionType):
        raise ParseError("script takes a function or its text, found {0!r}", type(program).__name__)
    source, definition = _definition(program)
    scopes: tuple[Mapping[str, Any], ...] = (
        _closure(program),
        sys._getframe(1).f_locals,  # annotations are no part of the closure
        program.__globals__,
    )

    def outside(name: str) -> Any:
        for scope in scopes:
            if name in scope:
                return scope[name]
        raise KeyError(name)

    return parse_function(source, definition, outside)


def _closure(program: FunctionType) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, cell in zip(program.__code__.co_freevars, program.__closure__ or (), strict=True):
        with suppress(ValueError):  # not assigned yet
            values[name] = cell.cell_contents
    return values


def _definition(program: FunctionType) -> tuple[Source, ast.FunctionDef]:
    """The text of a function and the function definition in it."""
    try:
        lines, first = inspect.getsourcelines(program)
        file = inspect.getsourcefile(program) or "<unknown>"
    except (OSError, TypeError) as e:
        raise ParseError(
            "the source of {0} cannot be found", program.__qualname__,
            hint="pass the program as text: tw.script(text)",
        ) from e  # fmt: skip
    text = "".join(lines)
    clean = textwrap.dedent(text)
    indent = len(lines[0]) - len(lines[0].lstrip())
    source = Source(clean, file, first, indent)
    module = syntax_tree(source)
    definition = module.body[0] if module.body else None
    if not isinstance(definition, ast.FunctionDef):
        raise ParseError(
            "{0} is not a function definition", program.__qualname__,
            hint="decorate a `def`, or pass the program as text: tw.script(text)",
        )  # fmt: skip
    return source, definition

"""The signature of a compiled kernel: the contract between code generation, callers and artifacts.

The calling convention, version `ABI_VERSION`: a kernel is a C function

    int32_t name(T0 *a0, T1 *a1, ..., S0 s0, ..., void *workspace)

with one parameter for each argument, in order, and a last one. Tensors are pointers to their first
element, inputs never alias outputs, and a pointer is aligned to its element only. Scalars are
passed by value in the C type of `C_TYPES`: bool as uint8, and float16, bfloat16 and float8 as their
bits in an unsigned integer. Tensors of size zero may have any pointer.

The workspace has the internal buffers that do not fit on the stack: `workspace_bytes` bytes for
this call alone, at an address that is a multiple of `WORKSPACE_ALIGNMENT`. What they hold before
and after the call has no meaning. A kernel of 0 bytes ignores it. The parameters do therefore not
depend on the schedule, which decides about buffers. A kernel allocates nothing itself.

The result is `OK`, or `UNUSABLE_WORKSPACE` where a workspace that is used is null or not aligned:
nothing was computed then.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Final, Literal, TypeAlias

from ..base import dtypes
from ..base.checked_json import Such, at_most, read, show
from ..base.text import arguments, in_lines

ABI_VERSION = 3
OK = 0
UNUSABLE_WORKSPACE = 1
WORKSPACE_ALIGNMENT: Final = 64
"""Bytes: a line of the cache, and the widest vector."""

MAX_ARGUMENTS = 1023
"""Arguments of a kernel: ctypes passes no more beside the workspace."""
MAX_DIMENSIONS = 64
"""Dimensions of a tensor: numpy has no more."""
MAX_BYTES = dtypes.MAX_BYTES
"""Bytes of a tensor, and from its first element to the end of the last: numpy counts no further."""

# Names of functions that C and C++ programs can declare and call.

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
constinit continue contract_assert decltype default delete do double dynamic_cast else enum
explicit export extern false float for friend goto if inline int long mutable namespace new
noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
requires restrict return short signed sizeof static static_assert static_cast struct switch
template this thread_local throw true try typedef typeid typename typeof typeof_unqual union
unsigned using virtual void volatile wchar_t while xor xor_eq
"""
"""Those of C and of C++, which reads headers too."""
_PREDEFINED = frozenset({"i386", "linux", "unix"})
"""Macros of compilers on Linux."""
_REFUSED = _PREDEFINED.union(_KEYWORDS.split())
_STDINT = re.compile(
    r"u?int(_least|_fast)?\d+_t|u?int(max|ptr)_t"
    r"|U?INT(_LEAST|_FAST)?\d+_(MAX|MIN|C|WIDTH)|U?INT(MAX|PTR)_(MAX|MIN|C|WIDTH)"
    r"|(PTRDIFF|SIG_ATOMIC|SIZE|WCHAR|WINT)_(MAX|MIN|WIDTH)"
)
"""The names that <stdint.h> defines, which headers of kernels include."""


def is_c_identifier(name: str) -> bool:
    """Whether a name has only the characters of a name in C."""
    return name.isidentifier() and name.isascii()


def is_function_name(name: str) -> bool:
    """Whether a header of a kernel can declare a function of this name.

    C reserves names of functions that begin with an underscore: the linker, for instance, makes
    `_init` and `_fini` run when a library is loaded and unloaded.
    """
    return (
        is_c_identifier(name)
        and not name.startswith("_")
        and name not in _REFUSED
        and not _STDINT.fullmatch(name)
    )


Role = Literal["in", "out", "inout"]
ArgumentKind = Literal["tensor", "scalar"]
Extents: TypeAlias = Annotated[tuple[int, ...], at_most(MAX_DIMENSIONS, "dimensions")]
FunctionName: TypeAlias = Annotated[str, Such("the name of a C function", is_function_name)]
WorkspaceBytes: TypeAlias = Annotated[
    int,
    Such(
        f"a multiple of {WORKSPACE_ALIGNMENT} up to {MAX_BYTES}",
        lambda size: 0 <= size <= MAX_BYTES and size % WORKSPACE_ALIGNMENT == 0,
    ),
]

C_TYPES: dict[str, str] = {
    "bool": "uint8_t",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "float8_e4m3fn": "uint8_t",
    "float8_e5m2": "uint8_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
}
Dtype: TypeAlias = Annotated[
    str, Such(f"a dtype: one of {', '.join(C_TYPES)}", C_TYPES.__contains__)
]


@dataclass(frozen=True)
class Argument:
    """One parameter of a kernel.

    `strides` are in elements, `None` is compact row-major. `role` says who writes: an `inout`
    tensor is read and overwritten. `value_range` is (low, high), high exclusive, of the integers
    that it holds. If a `constant` operand is packed ahead of the calls, `packing` says how, and
    `dtype` and `shape` are those of the packed operand.
    """

    name: str
    dtype: Dtype
    shape: Extents = ()
    strides: Extents | None = None
    role: Role = "in"
    kind: ArgumentKind = "tensor"
    constant: bool = False
    value_range: tuple[int, int] | None = None
    packing: Packing | None = None

    def __repr__(self) -> str:
        return f"<Argument {self.name}: {self.type_text}, {self.role}>"

    @property
    def type_text(self) -> str:
        """`float32[64, 64]`; of a scalar its dtype."""
        return f"{self.dtype}{list(self.shape)}" if self.kind == "tensor" else self.dtype

    @cached_property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @cached_property
    def itemsize(self) -> int:
        """Bytes of an element, which is its alignment too."""
        return dtypes.nbytes(self.dtype)

    @cached_property
    def element_strides(self) -> tuple[int, ...]:
        """The strides in elements, compact ones spelled out."""
        return compact_strides(self.shape) if self.strides is None else self.strides

    @cached_property
    def span_bytes(self) -> int:
        """Bytes from the first element to the end of the last one; 0 for a tensor of size zero."""
        return dtypes.span_bytes(self.shape, self.strides, self.dtype)

    @property
    def written(self) -> bool:
        return self.role != "in"

    @property
    def packer(self) -> Signature | None:
        """The function that packs it: from the original operand to the packed one."""
        if self.packing is None:
            return None
        packed = replace(self, name=f"{self.name}_packed", role="out", constant=False, packing=None)
        arguments = (self.packing.operand, packed)
        return Signature(self.packing.packer, arguments, self.packing.workspace_bytes)

    def validate(self) -> None:
        """Raise `ValueError` for fields that no argument has together."""
        if self.strides is not None and len(self.strides) != len(self.shape):
            raise ValueError(f"{len(self.strides)} strides for {len(self.shape)} dimensions")
        if any(n < 0 for n in (*self.shape, *self.element_strides)):
            raise ValueError("a negative extent or stride")
        if (beyond := _limit_of_argument(self)) is not None:
            raise ValueError(beyond)
        if self.kind == "scalar" and (self.shape or self.written):
            raise ValueError("a scalar has no shape and is read only")
        if self.value_range is not None and self.value_range[0] >= self.value_range[1]:
            raise ValueError(f"expected a range with the low end first, found {self.value_range}")
        if self.packing is not None:
            operand = self.packing.operand
            if any(a.kind == "scalar" or a.written for a in (self, operand)):
                raise ValueError("only a read-only tensor can be packed")
            if operand.packing is not None:
                raise ValueError("the operand of its packing is packed too")
            if operand.name != self.name:
                raise ValueError(f"it is packed from {operand.name}")


@dataclass(frozen=True)
class Packing:
    """How a constant operand is prepared before the calls.

    The function `packer`, in the code beside the kernel, reads the `operand` as the caller has it
    and writes the packed operand. It needs a workspace of `workspace_bytes`. `layout` describes the
    packed operand for people.
    """

    packer: FunctionName
    operand: Argument
    layout: str
    workspace_bytes: WorkspaceBytes = 0


@dataclass(frozen=True)
class Signature:
    """The symbol of a kernel, its parameters in order, and the bytes of its workspace.

    The workspace is that of one call, with all of the threads that the kernel is compiled for.
    """

    name: FunctionName
    arguments: tuple[Argument, ...]
    workspace_bytes: WorkspaceBytes = 0

    def __repr__(self) -> str:
        *parts, last = self.text
        return in_lines(["<Signature", *parts, f"{last}>"])

    @property
    def text(self) -> list[str]:
        """The parts of `matmul(A: float32[64, 64] in, C: float32[64, 64] out)`, for lines."""
        return arguments(self.name, [f"{a.name}: {a.type_text} {a.role}" for a in self.arguments])

    @property
    def packers(self) -> tuple[Signature, ...]:
        """The functions that pack operands for the kernel, in the order of these."""
        return tuple(p for a in self.arguments if (p := a.packer) is not None)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the kernel and of its packers."""
        return (self.name, *(p.name for p in self.packers))

    @property
    def workspaces(self) -> tuple[int, ...]:
        """The bytes of the workspaces of `symbols`."""
        return (self.workspace_bytes, *(p.workspace_bytes for p in self.packers))

    @property
    def extra_bytes(self) -> int:
        """The bytes that calls take beside the arguments of the caller: workspaces and what is
        packed."""
        packed = (a.span_bytes for a in self.arguments if a.packing is not None)
        return sum(self.workspaces) + sum(packed)

    def with_workspaces(self, sizes: Sequence[int]) -> Signature:
        """This signature with the workspaces of `symbols` in bytes."""
        own, *others = sizes
        pending = iter(others)
        arguments = tuple(
            a
            if a.packing is None
            else replace(a, packing=replace(a.packing, workspace_bytes=next(pending)))
            for a in self.arguments
        )
        return replace(self, arguments=arguments, workspace_bytes=own)

    def to_json(self) -> dict[str, Any]:
        """Its fields, and those of its arguments; JSON has lists for tuples."""
        return asdict(self)

    @staticmethod
    def from_json(data: object) -> Signature:
        """Returns the signature of its JSON form. Raises `ArtifactError` if that is malformed."""
        return read(Signature, data, "signature")

    def validate(self) -> None:
        """Raise `ValueError` for what no kernel has."""
        if (beyond := limit_exceeded(self)) is not None:
            raise ValueError(beyond)
        if len(set(self.symbols)) < len(self.symbols):
            raise ValueError(f"a function is listed twice in {show(self.symbols)}")

    def c_declaration(self) -> str:
        """The C prototype, without a semicolon."""
        parameters = [_c_parameter(i, a) for i, a in enumerate(self.arguments)]
        return f"int32_t {self.name}({', '.join([*parameters, 'void *workspace'])})"


def limit_exceeded(signature: Signature) -> str | None:
    """The first limit of calls that a signature exceeds, as a sentence; `None` if none."""
    name, count, size = signature.name, len(signature.arguments), signature.workspace_bytes
    if count > MAX_ARGUMENTS:
        return f"{name} has {count} arguments, and a call takes at most {MAX_ARGUMENTS}"
    if size > MAX_BYTES - WORKSPACE_ALIGNMENT:
        return f"the internal buffers of {name} need {size} bytes"
    sentences = (_limit_of_argument(a) for a in signature.arguments)
    return next((sentence for sentence in sentences if sentence is not None), None)


def _limit_of_argument(argument: Argument) -> str | None:
    rank = len(argument.shape)
    if rank > MAX_DIMENSIONS:
        return (
            f"argument {argument.name} has {rank} dimensions, and an array at most {MAX_DIMENSIONS}"
        )
    if dtypes.counted_bytes(argument.shape, argument.strides, argument.dtype) > MAX_BYTES:
        return (
            f"argument {argument.name} is too large: its shape {show(argument.shape)} or strides "
            f"reach beyond {MAX_BYTES} bytes"
        )
    return None


def compact_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def _c_parameter(index: int, argument: Argument) -> str:
    """The parameter for an argument, whose role follows its name.

    With that the name is no keyword of C or C++, no type and no macro.
    """
    c_type = C_TYPES[argument.dtype]
    known = is_c_identifier(argument.name)
    name = f"{argument.name}_{argument.role}" if known else f"argument{index}"
    if argument.kind == "scalar":
        return f"{c_type} {name}"
    const = "" if argument.written else "const "
    return f"{const}{c_type} *{name}"

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
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

from ..base import dtypes
from ..base.errors import ArtifactError
from ..base.text import arguments, in_lines
from .c_names import is_c_identifier, is_function_name

ABI_VERSION = 3
OK = 0
UNUSABLE_WORKSPACE = 1
WORKSPACE_ALIGNMENT = 64
"""Bytes: a line of the cache, and the widest vector."""

MAX_ARGUMENTS = 1023
"""Arguments of a kernel: ctypes passes no more beside the workspace."""
MAX_DIMENSIONS = 64
"""Dimensions of a tensor: numpy has no more."""
MAX_BYTES = dtypes.MAX_BYTES
"""Bytes of a tensor, and from its first element to the end of the last: numpy counts no further."""
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64
"""Bounds of what the integers of all dtypes are, the high one exclusive."""

Role = Literal["in", "out", "inout"]
ArgumentKind = Literal["tensor", "scalar"]

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


@dataclass(frozen=True)
class Argument:
    """One parameter of a kernel.

    `strides` are in elements, `None` is compact row-major. `role` says who writes: an `inout`
    tensor is read and overwritten. `value_range` is (low, high), high exclusive, of the integers
    that it holds. If a `constant` operand is packed ahead of the calls, `packing` says how, and
    `dtype` and `shape` are those of the packed operand.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] | None = None
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

    @staticmethod
    def from_json(data: object) -> Argument:
        """Returns the argument of its JSON form. Raises `ArtifactError` if that is malformed."""
        fields = _object(data, "an argument")
        value_range = fields.get("value_range")
        strides = fields.get("strides")
        packing = fields.get("packing")
        argument = Argument(
            name=_text(fields, "name"),
            dtype=_text(fields, "dtype"),
            shape=_integers(fields.get("shape"), "shape"),
            strides=None if strides is None else _integers(strides, "strides"),
            role=_choice(fields, "role", get_args(Role)),
            kind=_choice(fields, "kind", get_args(ArgumentKind)),
            constant=_choice(fields, "constant", (False, True)),
            value_range=None if value_range is None else _pair(value_range),
            packing=None if packing is None else Packing.from_json(packing),
        )
        return _validated(argument)


@dataclass(frozen=True)
class Packing:
    """How a constant operand is prepared before the calls.

    The function `packer`, in the code beside the kernel, reads the `operand` as the caller has it
    and writes the packed operand. It needs a workspace of `workspace_bytes`. `layout` describes the
    packed operand for people.
    """

    packer: str
    operand: Argument
    layout: str
    workspace_bytes: int = 0

    @staticmethod
    def from_json(data: object) -> Packing:
        """Returns the packing of its JSON form. Raises `ArtifactError` if that is malformed."""
        fields = _object(data, "how an operand is packed")
        operand = _object(fields.get("operand"), "an argument")
        if operand.get("packing") is not None:
            raise ArtifactError("packing: its operand is packed too")
        return Packing(
            _c_name(fields, "packer"),
            Argument.from_json(operand),
            _text(fields, "layout"),
            workspace_size(fields.get("workspace_bytes")),
        )


@dataclass(frozen=True)
class Signature:
    """The symbol of a kernel, its parameters in order, and the bytes of its workspace.

    The workspace is that of one call, with all of the threads that the kernel is compiled for.
    """

    name: str
    arguments: tuple[Argument, ...]
    workspace_bytes: int = 0

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

    @property
    def teams_symbol(self) -> str:
        """The variable in parallel code that `openmp.connect` sets; it is not a valid C name."""
        return f"{self.name}.teams"

    def to_json(self) -> dict[str, Any]:
        """Its fields, and those of its arguments; JSON has lists for tuples."""
        return asdict(self)

    @staticmethod
    def from_json(data: object) -> Signature:
        """Returns the signature of its JSON form. Raises `ArtifactError` if that is malformed."""
        fields = _object(data, "a signature")
        arguments = fields.get("arguments")
        if not isinstance(arguments, list | tuple):
            raise ArtifactError(
                "signature: expected a list of arguments, found {0}", show(arguments)
            )
        name = _c_name(fields, "name")
        workspace_bytes = workspace_size(fields.get("workspace_bytes"))
        beyond = _limit_of_call(name, len(arguments), workspace_bytes)
        if beyond is not None:
            raise ArtifactError("{0}", beyond)
        signature = Signature(
            name, tuple(Argument.from_json(a) for a in arguments), workspace_bytes
        )
        if len(set(signature.symbols)) < len(signature.symbols):
            raise ArtifactError(
                "signature: a function is listed twice in {0}", show(signature.symbols)
            )
        return signature

    def c_declaration(self) -> str:
        """The C prototype, without a semicolon."""
        parameters = [_c_parameter(i, a) for i, a in enumerate(self.arguments)]
        return f"int32_t {self.name}({', '.join([*parameters, 'void *workspace'])})"


def limit_exceeded(signature: Signature) -> str | None:
    """The first limit of calls that a signature exceeds, as a sentence; `None` if none."""
    size = signature.workspace_bytes
    beyond = _limit_of_call(signature.name, len(signature.arguments), size)
    if beyond is not None:
        return beyond
    sentences = (_limit_of_argument(a) for a in signature.arguments)
    return next((sentence for sentence in sentences if sentence is not None), None)


def _limit_of_call(name: str, count: int, workspace_bytes: int) -> str | None:
    if count > MAX_ARGUMENTS:
        return f"{name} has {count} arguments, and a call takes at most {MAX_ARGUMENTS}"
    if workspace_bytes > MAX_BYTES - WORKSPACE_ALIGNMENT:
        return f"the internal buffers of {name} need {workspace_bytes} bytes"
    return None


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


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def show(value: object) -> str:
    """The `repr` of a value from a file, shortened: it may be long, or nested deeply."""
    return _SHORT.repr(value)


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


def _validated(argument: Argument) -> Argument:
    if argument.dtype not in C_TYPES:
        raise ArtifactError(
            "argument {0}: unknown dtype {1}; expected one of {2}",
            argument.name,
            show(argument.dtype),
            ", ".join(C_TYPES),
        )
    if argument.strides is not None and len(argument.strides) != len(argument.shape):
        raise ArtifactError(
            "argument {0}: {1} strides for {2} dimensions",
            argument.name,
            len(argument.strides),
            len(argument.shape),
        )
    if any(n < 0 for n in (*argument.shape, *argument.element_strides)):
        raise ArtifactError("argument {0}: negative extent or stride", argument.name)
    beyond = _limit_of_argument(argument)
    if beyond is not None:
        raise ArtifactError("{0}", beyond)
    if argument.kind == "scalar" and (argument.shape or argument.written):
        raise ArtifactError("argument {0}: a scalar has no shape and is read only", argument.name)
    if argument.packing is not None:
        operand = argument.packing.operand
        if any(a.kind == "scalar" or a.written for a in (argument, operand)):
            raise ArtifactError(
                "argument {0}: only a read-only tensor can be packed", argument.name
            )
        if operand.name != argument.name:
            raise ArtifactError("argument {0} is packed from {1}", argument.name, operand.name)
    return argument


def _object(data: object, what: str) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise ArtifactError("expected {0} as a JSON object, found {1}", what, show(data))
    return data


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        raise ArtifactError("{0}: expected a text, found {1}", key, show(value))
    return value


def _c_name(fields: Mapping[str, Any], key: str) -> str:
    name = _text(fields, key)
    if not is_function_name(name):
        raise ArtifactError("signature: {0} is not the name of a C function", show(name))
    return name


def _choice(fields: Mapping[str, Any], key: str, choices: tuple[Any, ...]) -> Any:
    value = fields.get(key)
    if value not in choices or isinstance(value, bool) is not isinstance(choices[0], bool):
        raise ArtifactError("{0}: expected one of {1}, found {2}", key, choices, show(value))
    return value


def workspace_size(value: object) -> int:
    """The bytes of a workspace of their JSON form. Raises `ArtifactError` for anything else."""
    if type(value) is not int or not 0 <= value <= MAX_BYTES or value % WORKSPACE_ALIGNMENT:
        raise ArtifactError(
            "workspace_bytes: expected a multiple of {0} up to {1}, found {2}",
            WORKSPACE_ALIGNMENT,
            MAX_BYTES,
            show(value),
        )
    return value


def _integers(value: object, key: str) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not all(type(n) is int for n in value):
        raise ArtifactError("{0}: expected a list of integers, found {1}", key, show(value))
    if len(value) > MAX_DIMENSIONS:
        raise ArtifactError("{0}: {1} dimensions, at most {2}", key, len(value), MAX_DIMENSIONS)
    if not all(MIN_INTEGER <= n <= MAX_INTEGER for n in value):
        raise ArtifactError("{0}: expected integers of 64 bits, found {1}", key, show(value))
    return tuple(value)


def _pair(value: object) -> tuple[int, int]:
    match _integers(value, "value_range"):
        case (low, high) if low < high:
            return low, high
        case _:
            raise ArtifactError(
                "value_range: expected two integers, the low one first, found {0}", show(value)
            )

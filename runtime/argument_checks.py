"""Check the arguments of a call, with a specific error for each way in which one can be wrong.

Arguments are never copied or converted. What does not match is refused, and the error says how to
make it match. Which objects are arrays, and where they are, is said by the memory of the kind of
target.
"""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from ..base import dtypes
from ..base.errors import ArgumentError, similar
from ..base.text import excerpt
from .dlpack import class_name
from .host_memory import plain
from .memory import ArrayLibrary, Memory, OneBinder, View, memory_for
from .signature import C_TYPES, Argument, Signature

C_SCALARS: dict[str, type[Any]] = {
    dtype: getattr(ctypes, f"c_{c_type.removesuffix('_t')}") for dtype, c_type in C_TYPES.items()
}
"""How ctypes passes scalars."""

Binder = Callable[..., tuple[list[Any], list[Any]]]
"""Converts the arguments of a call; a second parameter is the list that their owners go to."""

_OVERLAP_WORK = 10_000
MAX_PAIRS = 2_000
"""Pairs of arguments, of which one is written, that are compared one by one."""


def ctypes_parameters(signature: Signature) -> list[type[Any]]:
    """The ctypes parameter types of a kernel, its workspace the last."""
    types = [
        ctypes.c_void_p if a.kind == "tensor" else C_SCALARS[a.dtype] for a in signature.arguments
    ]
    return [*types, ctypes.c_void_p]


def make_binder(signature: Signature, memory: Memory) -> Binder:
    """Returns a function that converts the arguments of a call to kernel values and their owners.

    The owners must be held while the kernel runs. The function raises `ArgumentError` for a wrong
    argument.
    """
    binders = [
        memory.binder(a, _tensor_binder(a, memory)) if a.kind == "tensor" else _scalar_binder(a)
        for a in signature.arguments
    ]
    bind_all = memory.all_binder(signature.arguments, binders)
    tensors = [(i, a.span_bytes) for i, a in enumerate(signature.arguments) if a.kind == "tensor"]
    pairs = [
        (i, size, j, other)
        for (i, size), (j, other) in combinations(tensors, 2)
        if signature.arguments[i].written or signature.arguments[j].written
    ]
    spans = [(i, size, signature.arguments[i].written) for i, size in tensors if size]
    many = len(pairs) > MAX_PAIRS
    count = len(binders)

    def bind(values: Sequence[Any], owners: list[Any] | None = None) -> tuple[list[Any], list[Any]]:
        if len(values) != count:
            raise _count_error(signature, values)
        owners = [] if owners is None else owners
        owners.append(values)
        bound = bind_all(values, owners)
        for i, size, j, other in () if many and _are_apart(bound, spans) else pairs:
            first, second = bound[i], bound[j]
            if first < second + other and second < first + size:
                a, b = signature.arguments[i], signature.arguments[j]
                _check_overlap(a, first, b, second, memory.library_of(values[i]))
        return bound, owners

    return bind


def _are_apart(bound: Sequence[Any], spans: Sequence[tuple[int, int, bool]]) -> bool:
    """Whether no written span meets another one: of many, sorted, sooner than pair by pair."""
    end = written_end = 0
    for start, size, written in sorted((bound[i], size, written) for i, size, written in spans):
        if start < (end if written else written_end):
            return False
        end = max(end, start + size)
        written_end = max(written_end, start + size) if written else written_end
    return True


def keyword_error(signature: Signature, keyword: str, known: Sequence[str]) -> ArgumentError:
    """The error for a keyword that a call does not take; it takes those that are `known`."""
    arguments = ", ".join(a.name for a in signature.arguments)
    return ArgumentError(
        "{0} takes its arguments ({1}) by position, found keyword {2}",
        signature.name,
        arguments,
        keyword,
        hint=lambda: (
            similar(keyword, known)
            or f"call module({arguments}): outputs are passed in, after the inputs"
        ),
    )


def _count_error(signature: Signature, values: Sequence[Any]) -> ArgumentError:
    scalars = [a.name for a in signature.arguments if a.kind == "scalar"]
    if len(values) > len(signature.arguments) and signature.workspace_bytes:
        hint = "a workspace is passed by its name: workspace=memory"
    elif scalars and len(values) < len(signature.arguments):
        hint = f"scalars ({', '.join(scalars)}) and outputs are passed in, in the order above"
    else:
        hint = "outputs are passed in, after the inputs"
    return ArgumentError(
        "{0} takes {1} arguments ({2}), found {3}",
        signature.name,
        len(signature.arguments),
        ", ".join(a.name for a in signature.arguments),
        len(values),
        hint=hint,
    )


def _tensor_binder(argument: Argument, memory: Memory) -> OneBinder:
    """The binder of a tensor that takes any array of this memory, or refuses it."""
    strides = tuple(n * argument.itemsize for n in argument.element_strides)
    name, shape = argument.name, argument.shape
    wide = tuple(i for i, n in enumerate(shape) if n > 1) if argument.size else ()
    mask, written = memory.alignment(argument) - 1, argument.written

    def bind(value: Any, owners: list[Any]) -> int:
        view = memory.lent(value, name, owners)
        require_type(argument, view, memory.library_of(value))
        found = view.byte_strides
        if any(found[i] != strides[i] for i in wide):
            raise _stride_error(argument, found, memory.library_of(value))
        if view.pointer & mask and argument.size:
            raise _alignment_error(argument, view.pointer, mask + 1, memory.library_of(value))
        if written and view.unwritable:
            raise ArgumentError(
                "argument {0}: expected memory to write to, found {1}",
                name,
                view.unwritable,
                hint=f"{name} is read and written: pass a copy that may be overwritten"
                if argument.role == "inout"
                else f"{name} is an output: pass an array of your own, "
                f"{memory.library_of(value).empty(argument)}",
            )
        owners.append(view.owner)
        return view.pointer

    return bind


def require_type(argument: Argument, found: View, library: ArrayLibrary) -> None:
    """Raise `ArgumentError` for an array of that library that has another dtype or shape."""
    if found.dtype != argument.dtype:
        raise _dtype_error(argument, found.dtype, library)
    if found.shape != argument.shape:
        raise _shape_error(argument, found.shape, library)


def compact(value: Any, argument: Argument, memory: Memory) -> Any:
    """`value`, or a compact row-major copy of an array with the argument's dtype and shape.

    Raises `ArgumentError` for what is no array; other dtypes and shapes are for a call to refuse.
    Raises `OutOfMemoryError`.
    """
    found = memory.view(value, argument.name)
    if (found.dtype, found.shape) != (argument.dtype, argument.shape) or found.is_compact:
        return value
    copy = memory.empty(argument)
    with memory_for("argument {0}: no memory to copy its elements", argument.name):
        memory.write(memory.view(copy, argument.name), memory.read(found))
    return copy


def _dtype_error(argument: Argument, found: str, library: ArrayLibrary) -> ArgumentError:
    if found.endswith("byte order"):
        remedy = f"{argument.name}.astype({argument.name}.dtype.newbyteorder('='))"
    else:
        remedy = library.converted(argument.name, argument.dtype)
    return ArgumentError(
        "argument {0}: expected dtype {1}, found {2}",
        argument.name,
        argument.dtype,
        found,
        hint=f"pass {library.empty(argument) if argument.role == 'out' else remedy}",
    )


def _shape_error(
    argument: Argument, found: tuple[int, ...], library: ArrayLibrary
) -> ArgumentError:
    hint = "a kernel is compiled for one shape: build one for this shape"
    if argument.packing is not None:
        hint = f"it is packed ahead of the calls: pass module.pack({argument.name!r}, array)"
    elif len(found) == 2 and found[::-1] == argument.shape:
        hint = f"pass {library.transposed(argument.name)} if it is to be transposed"
    elif math.prod(found) == argument.size:
        hint = f"pass {argument.name}.reshape({argument.shape}) if the order of elements is right"
    return ArgumentError(
        "argument {0}: expected shape {1}, found {2}",
        argument.name,
        argument.shape,
        found,
        hint=hint,
    )


def _stride_error(
    argument: Argument, found: tuple[int, ...], library: ArrayLibrary
) -> ArgumentError:
    if argument.strides is not None:
        expected = f"strides of {argument.element_strides} elements"
        hint = "a kernel is compiled for its declared strides: pass a view that has them"
    elif argument.role == "in":
        expected, hint = (
            "a compact row-major array",
            f"pass {library.compact(argument.name)}",
        )
    else:
        expected = "a compact row-major array"
        hint = f"pass {library.empty(argument)} and copy it back"
    return ArgumentError(
        "argument {0}: expected {1}, found strides of {2} bytes",
        argument.name,
        expected,
        found,
        hint=hint,
    )


def _alignment_error(
    argument: Argument, pointer: int, alignment: int, library: ArrayLibrary
) -> ArgumentError:
    return ArgumentError(
        "argument {0}: expected an address that is a multiple of {1} bytes, found {2:#x}",
        argument.name,
        alignment,
        pointer,
        hint=f"pass {library.copied(argument.name)}",
    )


def _check_overlap(
    a: Argument, a_pointer: int, b: Argument, b_pointer: int, library: ArrayLibrary
) -> None:
    """Refuse two tensors of intersecting spans unless their strides keep them apart."""
    if (a.strides is not None or b.strides is not None) and not _shares(a, a_pointer, b, b_pointer):
        return
    out, other = (a, b) if a.written else (b, a)
    raise ArgumentError(
        "argument {0}: its memory overlaps with argument {1}",
        out.name,
        other.name,
        hint=f"pass an array of its own, {library.empty(out)}, or declare {out.name} in place",
    )


def _shares(a: Argument, a_pointer: int, b: Argument, b_pointer: int) -> bool:
    low = min(a_pointer, b_pointer)
    high = max(a_pointer + a.span_bytes, b_pointer + b.span_bytes)
    arena = np.lib.stride_tricks.as_strided(np.empty(0, np.uint8), (high - low,), (1,))
    views = _bytes(arena, a, a_pointer - low), _bytes(arena, b, b_pointer - low)
    try:
        # numpy takes any number, its types know 0 and -1
        return np.shares_memory(*views, max_work=_OVERLAP_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _bytes(arena: np.ndarray[Any, Any], argument: Argument, offset: int) -> np.ndarray[Any, Any]:
    strides = (*(n * argument.itemsize for n in argument.element_strides), 1)
    shape = (*argument.shape, argument.itemsize)
    return np.lib.stride_tricks.as_strided(arena[offset:], shape, strides)


def _scalar_binder(argument: Argument) -> OneBinder:
    read, facts = number_reader(argument), dtypes.info(argument.dtype)
    if facts.kind == "float" and facts.bits < 32:
        return lambda value, _owners: int(
            _rounded(read(value), argument.dtype).view(f"uint{facts.bits}")
        )
    return lambda value, _owners: read(value)


def _rounded(number: float, dtype: str) -> np.ndarray[Any, Any]:
    with np.errstate(over="ignore"):
        return np.asarray(number).astype(dtypes.to_numpy(dtype))


def number_reader(argument: Argument) -> Callable[[Any], bool | int | float]:
    """Returns a function from a number of any kind to the one of the argument's dtype.

    Floats are rounded. The function raises `ArgumentError` for what is no number of that kind, and
    for one that is not within the range.
    """
    name, dtype = argument.name, argument.dtype
    kind = dtypes.info(dtype).kind
    low, high = dtypes.int_limits(dtype) if kind in ("int", "uint") else (0, 0)
    if argument.value_range is not None:
        low, high = max(low, argument.value_range[0]), min(high, argument.value_range[1] - 1)

    def read_bool(value: Any) -> bool:
        item = _item(value, argument)
        if not isinstance(item, bool):
            raise _scalar_error(argument, value)
        return item

    def read_integer(value: Any) -> int:
        number = _item(value, argument)
        if isinstance(number, float):
            raise _scalar_error(argument, value)
        if not low <= number <= high:
            raise ArgumentError(
                "argument {0}: expected an {1} from {2} to {3}, found {4}",
                name,
                dtype,
                low,
                high,
                lambda: _show(number),
            )
        return int(number)

    def read_float(value: Any) -> float:
        item = _item(value, argument)
        if isinstance(item, bool):
            raise _scalar_error(argument, value)
        try:
            number = float(item)
        except OverflowError:
            raise _range_error(argument, item) from None
        if dtype == "float64":
            return number
        found = float(_rounded(number, dtype))
        if math.isfinite(number) and not math.isfinite(found):
            raise _range_error(argument, number)
        return found

    return {"bool": read_bool, "float": read_float}.get(kind, read_integer)


def _item(value: Any, argument: Argument) -> bool | int | float:
    """The number in a Python number, a numpy scalar, a 0-d array or an object with `__index__`.

    Overrides in subclasses have no effect.
    """
    item, kind = value, type(value)
    try:
        if issubclass(kind, np.ndarray):
            array = plain(value)
            item = array.item() if array.ndim == 0 else array
        elif issubclass(kind, np.generic):
            item = np.generic.item(value)
        kind = type(item)
        if kind is bool:
            return bool(item)
        if issubclass(kind, int):
            return int.__index__(item)
        if issubclass(kind, float):
            return float.__float__(item)
        return int.__index__(operator.index(item))
    except Exception as error:
        raise _scalar_error(argument, value) from error


def _scalar_error(argument: Argument, value: Any) -> ArgumentError:
    return ArgumentError(
        "argument {0}: expected a number for {1}, found {2} of type {3}",
        argument.name,
        argument.dtype,
        lambda: _show(value),
        class_name(value),
    )


def _range_error(argument: Argument, number: float) -> ArgumentError:
    return ArgumentError(
        "argument {0}: {1} is beyond the range of {2}",
        argument.name,
        lambda: _show(number),
        argument.dtype,
    )


def _show(value: Any) -> str:
    if type(value) is int and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = str(repr(value))
    except Exception:  # noqa: BLE001  the object's own code, which may raise anything
        return "an object that cannot be shown"
    return excerpt(text, 80)

"""Operators as records: the meaning of each, and how it becomes a program, in one place.

`@operator(kind)` registers a function of `te` tensors that lowers an operator; its keywords are the
operator's attributes, with their defaults. `register` is for operators that are made otherwise.

    @operator(Kind.ROWS, reference=_softmax)
    def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
        return ops.softmax(x, axis=axis)

Where a record gives no `infer`, the types of the outputs are those of its lowering. Attributes are
numbers, strings and tuples of them. Those named `axis` and `axes` are dimensions of the first
operand, which nodes count from the front, and `dtype` is one of `dtypes.SCALARS`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from operator import index
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np

from ..base import dtypes
from ..base.errors import IRError, ModelError, TilewrightError, similar
from ..runtime.guards import first_outside
from ..runtime.model import read_only
from ..tir import te
from ..tir.ir import Buffer, Func
from ..tir.te import Tensor
from ..tir.visit import stored_buffers
from .ir import Attributes, Node, TensorType

Array: TypeAlias = "np.ndarray[Any, Any]"
MAX_RANK = 64
"""The most dimensions of arrays of numpy."""
_MISUSE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
"""What functions raise that are given too many operands, or attributes of another kind."""
_BITS = 1023
"""Of an integer that is a float."""


class Kind(Enum):
    """How the elements of an operator's output depend on those of its inputs; fusion asks it."""

    POINTWISE = "pointwise"  # each on the element at its place, by numpy's broadcasting
    VIEW = "view"  # the same elements in the same order, in another shape
    MOVEMENT = "movement"  # each on one element elsewhere, or on a fill value
    INDEXING = "indexing"  # the same, at a place that data decides
    REDUCTION = "reduction"  # each on all elements along some axes
    ROWS = "rows"  # each on all elements of its row
    WINDOW = "window"  # each on a window without weights
    CONTRACTION = "contraction"  # sums of products of two operands
    SCAN = "scan"  # each on those before it along an axis
    OPAQUE = "opaque"  # by other rules
    LOOP = "loop"  # of a body, which runs step by step
    FOREIGN = "foreign"  # of another program, which is asked when the model runs


@dataclass(frozen=True)
class Limits:
    """Indices that an operand may hold: `least` to `greatest`, both inclusive.

    They are all of its elements, or with `column` those at that place of its last dimension.
    """

    operand: int
    least: int
    greatest: int
    column: int | None = None
    by: str | None = None
    """What demands it, if not the node: what a model asserts, say."""
    broken: str | None = None
    """What is said of an index outside, if not just that; see `runtime.guards.first_outside`."""

    def broken_by(self, operand: Array) -> str | None:
        """What is said of the first index outside; `None` if there is none."""
        data = operand if self.column is None else operand[..., self.column]
        found = first_outside(data, self.least, self.greatest, self.column, self.broken)
        if found is None:
            return None
        if self.broken is not None:
            return f"{self.by}: {found.text}"
        return f"expected indices from {self.least} to {self.greatest}, {found.text}"


def within(
    operand: int, extent: int, column: int | None = None, *, negative: bool = True
) -> Limits:
    """The limits of indices of a dimension; if `negative`, those below 0 count from its end."""
    return Limits(operand, -extent if negative else 0, extent - 1, column)


@dataclass(frozen=True)
class Operator:
    """What the compiler knows of an operator.

    `reference` takes numpy arrays and attributes, and returns an array or a tuple of them; its
    results have the dtypes of `infer`, whatever numpy would promote to. It raises `IndexError` for
    an index out of range. `lower` takes `te` tensors; `None` says that no kernel is made of it.
    `infer` takes types. `attributes` are the names it takes, with their defaults. All of these are
    given attributes as `checked` makes them: of the types that `source` annotates (numbers where it
    says nothing), and `axis` and `axes`, the dimensions of the first operand, from the front.
    `program` is instead of `lower`, for what formulas do not express, such as steps in an order: it
    takes the types of the inputs, and returns a program whose parameters are the inputs, then the
    outputs. It is a kernel of its own.
    `limits` takes types and attributes, and returns those of indices. A kernel has any result for
    others, but stays within its operands.
    `outside`: it is a user's. What its functions return is checked, and what they raise is told as
    an error of the operator.
    """

    name: str
    kind: Kind
    reference: Callable[..., Any]
    lower: Callable[..., Tensor | Sequence[Tensor]] | None = None
    infer: Callable[..., TensorType | Sequence[TensorType]] | None = None
    source: Callable[..., Any] = field(default=lambda *_: None)
    program: Callable[..., Func] | None = None
    limits: Callable[..., Sequence[Limits]] = field(default=lambda *_, **__: ())
    outside: bool = False

    @cached_property
    def attributes(self) -> dict[str, Any]:
        parameters = inspect.signature(self.source).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    @cached_property
    def operands(self) -> tuple[int, float]:
        """How many it takes at least and at most; those with a default may be left out."""
        parameters = inspect.signature(self.source).parameters.values()
        own = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        least = sum(p.default is p.empty for p in own)
        more = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        return least, math.inf if more else len(own)

    @cached_property
    def _annotated(self) -> dict[str, Any]:
        """The types of the attributes; without an annotation they are numbers."""
        parameters = inspect.signature(self.source).parameters
        types = {name: parameters[name].annotation for name in self.attributes}
        told = {n: t for n, t in types.items() if t is not inspect.Parameter.empty}
        # Of attributes alone: what operands are annotated with may be there for type checkers only.
        found = get_type_hints(SimpleNamespace(__annotations__=told), self.source.__globals__)
        return {name: found.get(name, float) for name in self.attributes}

    @property
    def operand_names(self) -> list[str]:
        """The names of its operands, as far as they have names of their own."""
        parameters = inspect.signature(self.source).parameters.values()
        return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]

    def checked(self, inputs: Sequence[TensorType], attributes: dict[str, Any]) -> dict[str, Any]:
        """The attributes as a node with these inputs has them: all, and axes from the front.

        Raises `ModelError` for one that is unknown, missing, of another type than is annotated, or
        an axis that is none, and for fewer or more inputs than it takes.
        """
        least, most = self.operands
        if not least <= len(inputs) <= most:
            count = least if least == most else f"{least} to {most}"
            raise ModelError("{0} takes {1} operands, not {2}", self.name, count, len(inputs))
        known = self.attributes
        for name in attributes:
            if name not in known:
                raise ModelError(
                    "{0} has no attribute {1}; it has {2}",
                    self.name, name, ", ".join(known) or "none", hint=similar(name, known),
                )  # fmt: skip
        complete = {name: attributes.get(name, known[name]) for name in known}
        for name, value in complete.items():
            if value is inspect.Parameter.empty:
                raise ModelError("{0} needs the attribute {1}", self.name, name)
        found = {name: _frozen(value) for name, value in complete.items()}
        for name, value in found.items():
            wanted = self._annotated[name]
            if not _is_of(value, wanted):
                kind = getattr(wanted, "__name__", str(wanted))
                raise ModelError("{0}: {1} is {2!r:.60}, not {3}", self.name, name, value, kind)
        rank = inputs[0].rank if inputs else 0
        return {name: _in_form(self.name, name, value, rank) for name, value in found.items()}

    def types(self, inputs: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
        """The types of the outputs, given attributes that are `checked`.

        Raises `ModelError` for inputs or attributes that it does not take.
        """
        try:
            if self.infer is not None:
                found = self.called("infer", self.infer, *inputs, **attributes)
            else:
                assert self.lower is not None, f"{self.name} has neither `infer` nor `lower`"
                operands = map(placeholder, inputs)
                found = self._types_of(self.called("lowering", self.lower, *operands, **attributes))
            found = (found,) if isinstance(found, TensorType) else tuple(found)
        except (IRError, *_MISUSE) as error:
            taken = ", ".join(map(str, inputs))
            raise ModelError("{0}({1}): {2}", self.name, taken, error) from error
        if self.outside:
            found = tuple(self._own_type(type, inputs) for type in found)
        unknown = self.kind is Kind.FOREIGN
        return tuple(checked_size(type, unknown=unknown) for type in found)

    def lowered(
        self, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
    ) -> tuple[Tensor, ...]:
        """The results as `te` tensors. Raises `ModelError` if they are not of these types."""
        assert self.lower is not None, f"{self.name} has no lowering"
        made = self.called("lowering", self.lower, *operands, **attributes)
        self._require("lowering", self._types_of(made), types)
        return (made,) if isinstance(made, Tensor) else tuple(made)

    def programmed(
        self, inputs: Sequence[TensorType], attributes: Attributes, types: Sequence[TensorType]
    ) -> Func:
        """The program of an operator that is one.

        Raises `ModelError` if its parameters are not the inputs, which it reads, and the outputs,
        which it writes, of these types.
        """
        assert self.program is not None, f"{self.name} is no program"
        func = self.called("program", self.program, *inputs, **attributes)
        if not isinstance(func, Func):
            raise ModelError(
                "{0}: expected a Func of its program, found {1!r:.80}", self.name, func
            )
        written = stored_buffers(func.body)
        found = [
            (p in written, TensorType(p.dtype, p.shape) if isinstance(p, Buffer) else p)  # type: ignore[arg-type]
            for p in func.params
        ]
        self._require(
            "program", found, [*((False, t) for t in inputs), *((True, t) for t in types)]
        )
        return func

    def evaluate(
        self,
        arrays: Sequence[Array],
        attributes: Attributes,
        types: Sequence[TensorType] | None = None,
    ) -> tuple[Array, ...]:
        """The outputs as numpy arrays.

        Raises `IndexError` for an index out of range, and for what is not of the shapes of `types`
        `ModelError`.
        """
        given = [TensorType(dtypes.from_numpy(a.dtype), a.shape) for a in arrays]
        for limits in self.limits_of(given, attributes):
            if (broken := limits.broken_by(arrays[limits.operand])) is not None:
                raise IndexError(broken)
        if self.outside:
            arrays = [read_only(array) for array in arrays]
        found = self.called("reference", self.reference, *arrays, **attributes)
        results = found if isinstance(found, tuple) else (found,)
        if self.outside and types is not None:
            shapes = [np.shape(r) if isinstance(r, np.ndarray | np.generic) else r for r in results]
            self._require("reference", shapes, [type.shape for type in types])
        return tuple(np.asarray(r) for r in results)

    def limits_of(self, types: Sequence[TensorType], attributes: Attributes) -> Sequence[Limits]:
        """The limits of indices. Raises `ModelError` for what a user says that is no limit."""
        found: Sequence[Any] = self.called("limits", self.limits, *types, **attributes)
        for limits in found if self.outside else ():
            if isinstance(limits, Limits) and 0 <= limits.operand < len(types):
                type, column = types[limits.operand], limits.column
                columns = type.shape[-1] if type.shape else 0
                if dtypes.is_integer(type.dtype) and (column is None or 0 <= column < columns):
                    continue
            raise ModelError(
                "{0}: its limits: {1!r:.120} are not those of indices among {2}",
                self.name, limits, ", ".join(map(str, types)),
            )  # fmt: skip
        return found

    def called(self, what: str, function: Callable[..., Any], *operands: Any, **given: Any) -> Any:
        """What one of its functions returns. Raises `ModelError` for what one of a user raises."""
        try:
            return function(*operands, **given)
        except Exception as error:
            told = isinstance(error, TilewrightError)
            if not self.outside or told or (what == "reference" and isinstance(error, IndexError)):
                raise
            raise ModelError(
                "{0}: its {1} raises {2}: {3}", self.name, what, type(error).__name__, error
            ) from error

    def _types_of(self, made: object) -> tuple[TensorType, ...]:
        results = (made,) if isinstance(made, Tensor) else made
        if not isinstance(results, list | tuple) or not all(isinstance(t, Tensor) for t in results):
            raise ModelError(
                "{0}: expected tensors of its lowering, found {1!r:.80}", self.name, made
            )
        return tuple(TensorType(t.dtype, tuple(t.extents)) for t in results)

    def _own_type(self, type: object, inputs: Sequence[TensorType]) -> TensorType:
        """A type that the `infer` of a user says."""
        if not isinstance(type, TensorType) or type.dtype not in dtypes.SCALARS:
            raise ModelError("{0}: its infer: {1!r:.80} is no type of a tensor", self.name, type)
        try:
            found = TensorType(type.dtype, tuple(map(index, type.shape)))
        except TypeError as error:
            raise ModelError("{0}: its infer: {1}: {2}", self.name, type, error) from error
        if self.kind is Kind.VIEW and (found.dtype, found.size) != (
            inputs[0].dtype,
            inputs[0].size,
        ):
            raise ModelError("{0}: {1} is no view of {2}", self.name, found, inputs[0])
        return found

    def _require(self, what: str, found: Sequence[object], wanted: Sequence[object]) -> None:
        if [*found] != [*wanted]:
            raise ModelError(
                "{0}: its {1} has {2}, expected {3}", self.name, what, _show(found), _show(wanted)
            )


def _show(things: Sequence[object]) -> str:
    return ", ".join(map(str, things)) or "nothing"


def checked_name(name: object) -> str:
    """A name of an input or output. Raises `ModelError` if it has what UTF-8 does not, as bytes of
    a damaged file have."""
    if not isinstance(name, str) or any("\ud800" <= c <= "\udfff" for c in name):
        raise ModelError("{0!r:.120} is no name: it is not UTF-8", name)
    return name


def checked_size(type: TensorType, *, unknown: bool = False) -> TensorType:
    """The type. Raises `ModelError` if no array has its shape: extents are integers from 0 on, or
    where that is allowed `dtypes.UNKNOWN`."""
    if type.rank > MAX_RANK:
        raise ModelError("no array has {0} dimensions; it has at most {1}", type.rank, MAX_RANK)
    least = dtypes.UNKNOWN if unknown else 0
    if any(extent < least for extent in type.shape) or type.bytes > dtypes.MAX_BYTES:
        raise ModelError("no array is {0}; it has at most {1} bytes", type, dtypes.MAX_BYTES)
    return type


def placeholder(type: TensorType, name: str = "x", *, constant: bool = False) -> Tensor:
    return te.placeholder(type.shape, type.dtype, name=name, constant=constant)


def one_float(name: str, *operands: Tensor | TensorType) -> None:
    """Raise `IRError` for operands of several dtypes if one is a float; integers may differ."""
    found = {operand.dtype for operand in operands}
    if len(found) > 1 and any(map(dtypes.is_float, found)):
        raise IRError("{0}: operands of dtypes {1}", name, ", ".join(sorted(found)))


OPERATORS: dict[str, Operator] = {}


def register(record: Operator) -> Operator:
    """Add an operator. Raises `ModelError` if there is one of that name."""
    if record.name in OPERATORS:
        raise ModelError("there is an operator {0} already", record.name)
    OPERATORS[record.name] = record
    return record


def operator(
    kind: Kind,
    *,
    reference: Callable[..., Any],
    infer: Callable[..., Any] | None = None,
    limits: Callable[..., Sequence[Limits]] | None = None,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the lowering of an operator of its name."""

    def decorate(lower: Callable[..., Any]) -> Callable[..., Any]:
        own = lower.__name__.rstrip("_") if name is None else name
        record = Operator(own, kind, reference, lower, infer, lower)
        register(record if limits is None else replace(record, limits=limits))
        return lower

    return decorate


def programmed(
    kind: Kind,
    *,
    reference: Callable[..., Any],
    infer: Callable[..., Any],
    limits: Callable[..., Sequence[Limits]] | None = None,
) -> Callable[[Callable[..., Func]], Callable[..., Func]]:
    """Register the decorated function as the `program` of an operator of its name."""

    def decorate(program: Callable[..., Func]) -> Callable[..., Func]:
        name = program.__name__.rstrip("_")
        record = Operator(name, kind, reference, None, infer, program, program)
        register(record if limits is None else replace(record, limits=limits))
        return program

    return decorate


def find(name: str) -> Operator:
    """The operator of that name. Raises `ModelError` if there is none."""
    from . import operators  # noqa: F401  # registers all

    try:
        return OPERATORS[name]
    except KeyError:
        raise ModelError(
            "there is no operator {0!r}", name, hint=similar(name, OPERATORS)
        ) from None


def operators_of(node: Node) -> tuple[str, ...]:
    """What people call the operator of a node; of a foreign one those of its file."""
    if find(node.operator).kind is not Kind.FOREIGN:
        return (node.operator,)
    return tuple(map(str, node.attributes["operators"]))  # type: ignore[arg-type]


def _frozen(value: Any) -> Any:
    """Lists as tuples, numbers of numpy as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return _frozen(value.tolist())
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _is_of(value: Any, type: Any) -> bool:
    """Whether a frozen value is of a type: tuples are sequences, integers floats, bools neither."""
    origin, parts = get_origin(type), get_args(type)
    if origin in (Union, UnionType):
        return any(_is_of(value, part) for part in parts)
    if origin is tuple and parts[-1:] != (...,):
        fits = isinstance(value, tuple) and len(value) == len(parts)
        return fits and all(map(_is_of, value, parts))
    if origin in (Sequence, list, tuple):
        return isinstance(value, tuple) and all(_is_of(item, parts[0]) for item in value)
    if type is float and isinstance(value, int) and value.bit_length() > _BITS:
        return False
    if type in (int, float):
        return isinstance(value, type | int) and not isinstance(value, bool)
    if type in (bool, str, NoneType):
        return isinstance(value, type)
    if isinstance(value, tuple):
        return all(_is_of(item, type) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def _in_form(operator: str, name: str, value: Any, rank: int) -> Any:
    """The value of an attribute, with the dimensions of `axis` and `axes` counted from the front.

    Raises `ModelError` for those out of range, for some that are there twice, and for a `dtype` of
    another name.
    """
    if name == "dtype" and value is not None and value not in dtypes.SCALARS:
        raise ModelError("{0}: there is no dtype {1!r:.60}", operator, value)
    if name not in ("axis", "axes") or value is None:
        return value
    given = value if isinstance(value, tuple) else (value,)
    if not all(-rank <= axis < rank for axis in given):
        raise ModelError("{0}: {1} is {2} of {3} dimensions", operator, name, value, rank)
    places = tuple(axis % rank for axis in given)
    if len(set(places)) < len(places):
        raise ModelError("{0}: {1} is {2}, one of them twice", operator, name, value)
    return places if isinstance(value, tuple) else places[0]

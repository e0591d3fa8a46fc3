"""Translating the nodes of a graph of ATen operators, exported or captured, one by one."""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, TypeAlias

import numpy as np

from ...base import dtypes
from ...base.errors import ModelError
from ...graph.builder import Builder
from ...graph.compose.basics import cast_to
from ...graph.compose.complex import Complex, real_of
from ...graph.ir import TensorType, Value
from ...graph.mapped import shared
from ...graph.operator import Array
from ..translation import Translation, UntranslatedError, checked
from ..unsupported import Reason, Unsupported
from .assertions import CHECKS_OF_LINEAR_ALGEBRA, demand_success
from .table import (
    COMPLEX,
    TABLE,
    Body,
    Operand,
    Translate,
    as_number,
    dtype_name,
    part_dtype,
)

Result: TypeAlias = "Value | tuple[Value, ...] | Complex"

_PLACES = frozenset({"device", "layout", "memory_format", "non_blocking", "pin_memory"})
"""Arguments that say where elements lie, not what they are."""
_DATA_DEPENDENT = frozenset(
    {
        "_assert_scalar.default",
        "_local_scalar_dense.default",
        "masked_select.default",
        "nonzero.default",
        "sym_size.int",
    }
)
_OF_MEMORY = frozenset(
    {"as_strided.default", "as_strided_copy.default", "as_strided_scatter.default"}
)
"""Operators on elements as they lie in memory."""
_DETERMINANTS = frozenset({"_linalg_det.default", "_linalg_slogdet.default"})
"""Operators that return factors of a matrix, or of its transpose if it lies row by row."""
_CHECKS = frozenset({"_assert_tensor_metadata.default"})
"""Operators that compare dtypes, which are known."""
_ASSERTIONS = frozenset({"_assert_async.default", "_assert_async.msg"})
"""Operators that demand that a tensor is not zero."""


_FUNCTIONS: dict[object, str] = {
    operator.add: "add.Tensor",
    operator.sub: "sub.Tensor",
    operator.mul: "mul.Tensor",
    operator.lt: "lt.Scalar",
    operator.le: "le.Scalar",
    operator.gt: "gt.Scalar",
    operator.ge: "ge.Scalar",
    operator.eq: "eq.Scalar",
    operator.ne: "ne.Scalar",
}
"""Functions of Python on numbers, such as what counts the steps of a loop, as operators."""


class AtenNodes(Translation):
    """The values of a graph of ATen operators; `scope` has them by nodes."""

    def __init__(self, name: str, module: Any) -> None:
        super().__init__(name)
        self.module = module
        self.scope: dict[Any, Result | Operand | Body] = {}

    def translate(self) -> list[Result | None]:
        """The results of the graph, `None` for those not known. Arguments are in the scope."""
        made = (self.scope.get(v) if is_node(v) else None for v in self._nodes(self.module))
        return [v if isinstance(v, Value | tuple | Complex) else None for v in made]

    def body(self, module: Any, operands: Sequence[Operand]) -> list[Value]:
        """What a module within the graph returns for values of its arguments.

        Raises `UntranslatedError` if a node of it is not supported, which has been noted.
        """
        for node in module.graph.nodes:  # of the iteration before
            self.scope.pop(node, None)
        arguments = [node for node in module.graph.nodes if node.op == "placeholder"]
        self.scope.update(zip(arguments, operands, strict=True))
        found: list[Value] = []
        for value in self._nodes(module):
            made = self.scope.get(value) if is_node(value) else value
            if isinstance(made, int):
                made = as_number(self.builder, made)
            if not isinstance(made, Value):
                raise UntranslatedError
            found.append(made)
        return found

    def _nodes(self, module: Any) -> Sequence[Any]:
        """Translate the nodes of a module, and return what it returns: nodes and numbers."""
        results: Sequence[Any] = []
        for node in module.graph.nodes:
            if node.op == "call_function" and node.target is operator.getitem:
                self._item(node)
            elif node.op == "call_function":
                self._node(node)
            elif node.op == "output":
                results = _flat(node.args[0])
            elif node.op == "get_attr":
                self._attribute(node, module)
            elif node.op != "placeholder":
                self._refuse(node, Unsupported(Reason.OPERATOR, node.op))
        return results

    def _attribute(self, node: Any, module: Any) -> None:
        """A tensor that the module holds, or a module that an operator runs."""
        import torch

        held = operator.attrgetter(node.target)(module)
        if isinstance(held, torch._subclasses.FakeTensor):
            self._refuse(node, Unsupported(Reason.DATA_DEPENDENT, _LOST))
        elif isinstance(held, torch.Tensor):
            self.scope[node] = constant_of(self.builder, held, node.target)
        elif isinstance(held, torch.fx.GraphModule):
            self.scope[node] = Body(partial(self.body, held), self.apart)
        else:
            self._refuse(node, Unsupported(Reason.TYPE, type(held).__name__))

    def _item(self, node: Any) -> None:
        source, number = node.args
        values = self.scope.get(source)
        if isinstance(values, Value) and not number:  # a list of one
            self.scope[node] = values
        elif isinstance(values, tuple) and number < len(values):
            self.scope[node] = values[number]
        elif values is not None:
            self._refuse(source, Unsupported(Reason.ATTRIBUTE, f"result {number}"))

    def _node(self, node: Any) -> None:
        overload = _overload(node.target)
        target, *given = node.args[1:] if _has_token(node) else (node.target, *node.args)
        if _overload(target) in _CHECKS:
            return
        if _overload(target) in _ASSERTIONS or str(target) == CHECKS_OF_LINEAR_ALGEBRA:
            self._assert(node, target, given)
            return
        with self.node(place(node), str(node.target), lambda p: self._refuse(node, p)):
            translate = _find(node.target, overload, is_complex=_has_complex(node))
            args, kwargs = self._arguments(node)
            if node.target in _FUNCTIONS and not any(isinstance(a, Value) for a in args):
                raise Unsupported(Reason.DATA_DEPENDENT, f"the number {_name(node.target)}")
            if overload in _OF_MEMORY:
                args = [self._in_memory(node.args[0], args[0], overload), *args[1:]]
            if overload in _DETERMINANTS:
                kwargs["transposed"] = node.args[0].meta["val"].is_contiguous()
            declared = [None if v is None else _type(v) for v in _flat(node.meta["val"])]
            first = next(t for t in declared if t is not None)
            made = self._applied(translate, first, args, kwargs)
            if isinstance(made, Complex) and not is_complex(_flat(node.meta["val"])[0]):
                made = real_of(self.builder, made, first.dtype)  # as a dtype that it was given
            if isinstance(made, Complex):
                results = checked((made.real, made.imag), declared * 2, "PyTorch")
            else:
                results = checked(made, declared, "PyTorch")
            self.scope[node] = made if isinstance(made, Value | Complex) else results
            read = [self.scope.get(n) for n in node.all_input_nodes]
            self.source(place(node), str(node.target), read, results)

    def _assert(self, node: Any, target: Any, given: Sequence[Any]) -> None:
        """Have the model demand what a node does."""
        by, b = str(target), self.builder
        with self.node(place(node), by, lambda p: self._refuse(node, p)):
            tested, *said = [self._known(argument) for argument in given]
            if by == CHECKS_OF_LINEAR_ALGEBRA:
                demand_success(b, said[0], tested)
            else:
                failed = b.add("logical_not", cast_to(b, tested, "bool"))
                broken = ": ".join(["what is asserted does not hold", *said])
                b.demand(cast_to(b, failed, "int32"), by=by, broken=broken)

    def _arguments(self, node: Any) -> tuple[Any, dict[str, Any]]:
        """The arguments of a node, in which values of the graph stand for nodes."""
        kwargs = {k: self._known(v) for k, v in node.kwargs.items() if k not in _PLACES}
        return self._known(node.args), kwargs

    def _known(self, argument: Any) -> Any:
        """An argument, in which values of the graph stand for nodes."""
        if is_node(argument):
            if argument in self.scope:
                return self.scope[argument]
            if "val" in argument.meta and not hasattr(argument.meta["val"], "dtype"):
                raise Unsupported(Reason.DATA_DEPENDENT, f"the number {argument.name}")
            raise UntranslatedError
        if isinstance(argument, list | tuple):
            return [self._known(item) for item in argument]
        return argument

    def _in_memory(self, node: Any, value: Value, overload: str) -> Value:
        """A value with its elements in the order in which they lie in PyTorch's memory.

        Raises `Unsupported` where others lie between or before them.
        """
        tensor = node.meta["val"]
        order = sorted(range(tensor.dim()), key=lambda d: (-tensor.stride(d), -tensor.shape[d]))
        scatters = overload.startswith("as_strided_scatter")  # the result is laid out alike
        dense = tensor.is_contiguous() if scatters else tensor.permute(order).is_contiguous()
        if not dense or tensor.storage_offset():
            raise Unsupported(Reason.ATTRIBUTE, f"strides {tuple(tensor.stride())}")
        if tensor.is_contiguous():
            return value
        return self.builder.add("transpose", value, axes=tuple(order))

    def _applied(
        self, translate: Translate, out: TensorType, args: Any, kwargs: dict[str, Any]
    ) -> Value | Sequence[Value] | Complex:
        """What a translation makes. Arguments that it does not have are not supported."""
        try:
            bound = inspect.signature(translate).bind(self.builder, out, *args, **kwargs)
        except TypeError as error:
            raise Unsupported(Reason.ATTRIBUTE, str(error)) from error
        return translate(*bound.args, **bound.kwargs)

    def _refuse(self, node: Any, problem: Unsupported) -> None:
        self.refuse(place(node), _name(node.target), problem)


def _has_token(node: Any) -> bool:
    """Whether a node is an operator with a token, which orders effects and has no elements."""
    return node.op == "call_function" and _overload(node.target) == "higher_order.with_effects"


def is_token(node: Any) -> bool:
    if node.target is operator.getitem:
        return node.args[1] == 0 and _has_token(node.args[0])
    return any(_has_token(user) and user.args[0] is node for user in node.users)


def _has_complex(node: Any) -> bool:
    """Whether a node reads or returns complex numbers."""
    seen = [held for n in (node, *node.all_input_nodes) for held in _flat(n.meta.get("val"))]
    return any(is_complex(held) for held in seen)


def is_complex(tensor: Any) -> bool:
    return hasattr(tensor, "dtype") and bool(tensor.dtype.is_complex)


def _find(target: Any, overload: str, *, is_complex: bool) -> Translate:
    if is_complex and (overload in TABLE or overload in COMPLEX):
        if overload not in COMPLEX:
            raise Unsupported(Reason.DTYPE, f"{overload} of complex numbers")
        return COMPLEX[overload]
    found = TABLE.get(overload) or TABLE.get(overload.replace("_copy.", "."))  # of a view
    if found is not None:
        return found
    if getattr(target, "namespace", "") == "aten":
        known = overload in _DATA_DEPENDENT
        draws = any(tag.name == "nondeterministic_seeded" for tag in target.tags)
        detail = f"{overload}{_DRAWS}" if draws else overload
        raise Unsupported(Reason.DATA_DEPENDENT if known else Reason.OPERATOR, detail)
    if not hasattr(target, "namespace"):  # a function of Python, on numbers
        raise Unsupported(Reason.DATA_DEPENDENT, f"the number {_name(target)}")
    raise Unsupported(Reason.DOMAIN, str(target))


_LOST = (
    "a tensor without elements, as of a check within a branch: call the function before the "
    "branch, or one that returns numbers of failures instead, such as `inv_ex`"
)
_DRAWS = (
    " draws numbers of a state that is no operand: "
    "call `eval` of the module first, or take them as an argument"
)


def _overload(target: Any) -> str:
    """The key of an operator in the table; of a function of Python on numbers, its operator's."""
    if getattr(target, "namespace", "") == "higher_order":
        return f"higher_order.{target}"
    return _FUNCTIONS.get(target, str(target)).removeprefix("aten.")


def _name(target: Any) -> str:
    """The name of an operator, or of a function of Python."""
    return str(target) if hasattr(target, "namespace") else str(getattr(target, "__name__", target))


def is_node(value: Any) -> bool:
    import torch

    return isinstance(value, torch.fx.Node)


def _type(value: Any) -> TensorType:
    """The type of a tensor, of the parts of complex ones, or of a number that is computed."""
    import torch

    if is_complex(value):
        return TensorType(part_dtype(value.dtype), extents_of(value))

    numbers = {torch.SymInt: "int64", torch.SymBool: "bool"}
    kind = numbers.get(type(value))
    return tensor_type(value) if kind is None else TensorType(kind, ())


def _flat(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def tensor_type(value: Any) -> TensorType:
    """The type of a tensor. Raises `Unsupported` for other things, and for open dims."""
    extents = extents_of(value)
    return TensorType(dtype_name(value.dtype), extents)


def input_of(
    b: Builder, name: str, tensor: Any, order: Sequence[int] | None = None
) -> Value | Complex:
    """An input as the tensor lies in memory, with its dimensions in that order, row-major; behind
    them are the parts of complex numbers. Raises `Unsupported` as `tensor_type` does.
    """
    extents = extents_of(tensor)
    order = range(len(extents)) if order is None else order
    lies = tuple(extents[d] for d in order)
    back = sorted(range(len(extents)), key=order.__getitem__)
    if is_complex(tensor):
        pairs = b.input(name, TensorType(part_dtype(tensor.dtype), (*lies, 2)))
        return Complex.of(b, permuted(b, pairs, (*back, len(back))))
    return permuted(b, b.input(name, TensorType(dtype_name(tensor.dtype), lies)), back)


def output_of(b: Builder, result: Value | Complex, order: Sequence[int] | None = None) -> Value:
    """An output as it lies in memory, as for `input_of`."""
    whole = result.pairs(b) if isinstance(result, Complex) else result
    rank = whole.type.rank
    given = range(rank) if order is None else order
    return permuted(b, whole, (*given, *range(len(given), rank)))


def permuted(b: Builder, value: Value, axes: Sequence[int]) -> Value:
    plain = list(axes) == sorted(axes)
    return value if plain else b.add("transpose", value, axes=tuple(axes))


def extents_of(value: Any) -> tuple[int, ...]:
    """The shape of a tensor. Raises `Unsupported` for other things, and for open dims."""
    if not hasattr(value, "dtype"):
        raise Unsupported(Reason.TYPE, type(value).__name__)
    if str(value.layout) != "torch.strided":
        raise Unsupported(Reason.TYPE, str(value.layout))
    dims = tuple(value.shape)
    if not all(isinstance(extent, int) for extent in dims):
        known = ", ".join(map(str, dims))
        raise Unsupported(Reason.DATA_DEPENDENT, f"[{known}]: shapes have to be static")
    return tuple(map(int, dims))


def constant_of(b: Builder, tensor: Any, name: str) -> Value | Complex:
    """The constant of a tensor of this process; of complex ones, the parts are copied."""
    import torch

    if not is_complex(tensor):
        return b.constant(array_of(tensor), name=name)
    held = torch.view_as_real(tensor.detach().resolve_conj())
    return Complex(*(b.constant(array_of(held[..., n]), name=f"{name}.{n}") for n in range(2)))


def array_of(tensor: Any) -> Array:
    """The elements of a tensor of this process, not copied if they are compact and row-major."""
    import torch

    dtype = dtypes.to_numpy(tensor_type(tensor).dtype)
    try:
        own = tensor.detach().contiguous().cpu()
        if dtype.name in dtypes.ML_DTYPES:  # of which torch makes no array
            bits = {1: torch.uint8, 2: torch.int16}[dtype.itemsize]
            elements = own.view(bits).numpy().view(dtype)
        else:
            elements = own.numpy()
    except (RuntimeError, TypeError) as error:  # it has no elements, or they are not in memory
        raise ModelError("{0} cannot be read: {1}", type(tensor).__name__, error) from error
    if tensor.is_inference():  # it is not counted how often these are written
        return np.array(elements)
    return shared(elements, lambda: int(tensor._version))


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def place(node: Any) -> str:
    """Where a node is from: the path of its module, and the line of the user's source."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = str(stack[-1][0]) if stack else ""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f for f in frames if f[0][0] != "<" and "/torch/nn/" not in PurePath(f[0]).as_posix()]
    line = f"{PurePath(own[-1][0]).name}:{own[-1][1]}" if own else ""
    return " ".join(filter(None, (path, line))) or str(node.name)

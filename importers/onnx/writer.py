"""What writes a graph as an ONNX model: the table of graph operators, and a graph in the making.

    @writes("swish")
    def swish(w: Writer, node: Node, x: str) -> str:
        scaled = w.add("Mul", x, w.like(x, node.attributes["alpha"]))
        return w.add("Mul", x, w.add("Sigmoid", scaled))

A function takes the names of a node's inputs, and returns those of its outputs. It adds ONNX nodes,
whose dtypes are inferred and checked by ONNX's own definitions of operators as they are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ...base import dtypes
from ...base.errors import ModelError, UnsupportedError
from ...graph.ir import Constant, Graph, Node, TensorType, Value, constant
from ..translation import registering
from ..unsupported import Reason, Unsupported
from .definitions import ONNX_NAMES, type_string
from .reader import PRODUCER

OPSET = 20
"""The oldest that has all of what is written most; a node may need a later one."""

Write: TypeAlias = "Callable[..., str | Sequence[str]]"
_Function = TypeVar("_Function", bound=Write)

WRITERS: dict[str, Write] = {}
"""How each operator of graphs is written."""


def writes(*names: str) -> Callable[[_Function], _Function]:
    """Register how operators are written."""
    return registering(WRITERS, *names)


class Writer:
    """An ONNX graph in the making, in which a value is its name."""

    def __init__(self, taken: Sequence[str], producers: Mapping[Value, Node]) -> None:
        self.producers = producers
        self.names: dict[Value, str] = {}
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.dtypes: dict[str, str] = {}
        self.opset = OPSET
        self.domains: dict[str, int] = {}
        """The versions of other domains than ONNX's own."""
        self._taken = set(taken)
        self._constants: dict[str, str] = {}
        self._count = 0

    def body(self) -> Writer:
        """What writes the nodes of a body, which may read all that is written here before."""
        inner = copy(self)
        inner.nodes = []
        return inner

    def fresh(self, stem: str) -> str:
        """A name that nothing has yet."""
        name = ""
        while not name or name in self._taken:
            name = f"{stem}_{self._count}"
            self._count += 1
        self._taken.add(name)
        return name

    def add(self, operator: str, *inputs: str, since: int = 0, **attributes: Any) -> str:
        """The output of a new ONNX node; "" is an input that is not given.

        `since` is the opset that the node needs. Raises `Unsupported` if the operator does not take
        the inputs' dtypes.
        """
        self.opset = max(self.opset, since)
        (name,) = self.add_of(1, operator, *inputs, **attributes)
        return name

    def add_of(self, count: int, operator: str, *inputs: str, **attributes: Any) -> tuple[str, ...]:
        """The first outputs of a new node."""
        from onnx import defs, helper

        schema = defs.get_schema(operator, self.opset)
        found = self._types(schema, inputs, attributes)
        names = [self.fresh(operator) for _ in range(count)]
        found = [*found, *[found[-1]] * (count - len(found))]  # of several that ONNX has as one
        self.dtypes.update(zip(names, found, strict=False))
        known = {k: v for k, v in attributes.items() if v not in ([], ())}  # has no type in ONNX
        node = helper.make_node(operator, list(inputs), names, **known)
        node.name = names[0]
        self.nodes.append(node)
        return tuple(names)

    def _types(
        self, schema: Any, inputs: Sequence[str], attributes: dict[str, Any]
    ) -> Sequence[str]:
        allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
        bound: dict[str, str] = {}
        for place, name in enumerate(inputs):
            declared = schema.inputs[min(place, len(schema.inputs) - 1)]
            variable = declared.type_str
            if not name:
                continue
            own = type_string(self.dtypes[name])
            if own not in allowed.get(variable, {variable}):
                raise Unsupported(Reason.DTYPE, f"{schema.name} of {self.dtypes[name]}")
            bound.setdefault(variable, own)
        if "to" in attributes:
            return [dtype_of(attributes["to"])]
        strings = [
            bound.get(o.type_str) or next(iter(allowed.get(o.type_str, {o.type_str})))
            for o in schema.outputs
        ]
        return [_names(string) for string in strings]

    def constant(self, data: Any, dtype: str | None = None) -> str:
        """The name of an initializer; one for equal ones."""
        array = np.asarray(data, None if dtype is None else dtypes.to_numpy(dtype))
        return self.initializer(constant(array))

    def initializer(self, value: Constant) -> str:
        from onnx import helper

        if value.digest not in self._constants:
            name = self._constants[value.digest] = self.fresh("constant")
            self.dtypes[name] = value.dtype
            self.initializers.append(
                helper.make_tensor(
                    name, onnx_dtype(value.dtype), value.shape, value.data.tobytes(), raw=True
                )
            )
        return self._constants[value.digest]

    def name(self, value: Value) -> str:
        """The name of a value of the graph that is written already."""
        return self.initializer(value) if isinstance(value, Constant) else self.names[value]

    def integers(self, values: Sequence[int]) -> str:
        """The name of a vector of int64."""
        return self.constant(np.asarray(tuple(values), np.int64))

    def like(self, x: str, number: Any) -> str:
        """A number in the dtype of another value."""
        return self.constant(number, self.dtypes[x])

    def cast(self, x: str, dtype: str) -> str:
        """As another dtype, of which it is left to ONNX what becomes of what is out of range."""
        if self.dtypes[x] == dtype:
            return x
        saturate = {"saturate": 0} if dtype.startswith("float8") else {}
        return self.add("Cast", x, to=onnx_dtype(dtype), **saturate)

    def saturated(self, x: str, dtype: str) -> str:
        """A float as an integer: towards zero, out of its range the limit, of NaN 0."""
        own = x if dtypes.nbytes(self.dtypes[x]) >= 4 else self.cast(x, "float32")
        low, high = dtypes.int_limits(dtype)
        above = self.add("Not", self.add("Less", own, self.like(own, float(high + 1))))
        bad = self.add("Or", self.add("IsNaN", own), above)
        whole = self.where(bad, self.like(own, 0), self.add("Max", own, self.like(own, float(low))))
        middle = "int64" if dtypes.nbytes(dtype) < 8 else dtype
        limit = self.where(
            self.add("IsNaN", own), self.constant(0, middle), self.constant(high, middle)
        )
        return self.cast(self.where(bad, limit, self.cast(whole, middle)), dtype)

    def whole(self, x: str, dtype: str) -> str:
        """Whole numbers in floats as integers, which wrap around."""
        if dtypes.is_float(self.dtypes[x]) and not dtypes.is_float(dtype):
            x = self.cast(x, "int64")
        return self.cast(x, dtype)

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        zeros = {"allowzero": 1} if 0 in shape else {}
        return self.add("Reshape", x, self.integers(shape), **zeros)

    def transpose(self, x: str, axes: Sequence[int]) -> str:
        return self.add("Transpose", x, perm=list(axes))

    def where(self, condition: str, x: str, other: str) -> str:
        return self.add("Where", condition, x, other)

    def wide(self, *names: str) -> list[str]:
        """Integers of up to 16 bits as int32, in which their arithmetic is the same; bfloat16 as
        float32.

        A cast back wraps around, or rounds once. ONNX or runtimes often lack these dtypes.
        """
        return [self.cast(x, _WIDE.get(self.dtypes[x], self.dtypes[x])) for x in names]


_WIDE = dict.fromkeys(("int8", "uint8", "int16", "uint16"), "int32") | {"bfloat16": "float32"}
_OWN_NAMES = {name: own for own, name in ONNX_NAMES.items()}


def _names(string: str) -> str:
    plain = string.removeprefix("tensor(").removesuffix(")")
    return _OWN_NAMES.get(plain, plain)


def onnx_dtype(dtype: str) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(dtypes.to_numpy(dtype)))


def dtype_of(number: int) -> str:
    from onnx import helper

    return dtypes.from_numpy(helper.tensor_dtype_to_np_dtype(number))


def known(value: Value) -> np.ndarray[Any, Any] | None:
    return value.data if isinstance(value, Constant) else None


def exact(node: Node, *numbers: float) -> bool:
    """Whether attributes of ONNX, which are of float32, change nothing."""
    wide = node.outputs[0].dtype == "float64"
    return not wide or all(float(np.float32(n)) == n for n in numbers)


def to_onnx(graph: Graph) -> Any:
    """The `onnx.ModelProto` that computes what the graph's reference does, but for rounding.

    Inputs and outputs keep their names. Operators that ONNX lacks are written as formulas. Raises
    `UnsupportedError` with all nodes that cannot be written.
    """
    try:
        from onnx import helper
    except ImportError as error:
        raise ModelError("onnx is not installed", hint="pip install 'tilewright[onnx]'") from error
    from . import writers  # noqa: F401  # registers all

    writer = Writer([*graph.inputs, *graph.outputs], graph.producers)
    names = writer.names
    names.update({value: name for name, value in graph.inputs.items()})
    writer.dtypes.update({name: value.dtype for value, name in names.items()})
    wanted = _wanted(graph, names)
    problems: list[tuple[str, str, str]] = []
    described: list[Any] = []
    for node in graph.nodes:
        try:
            made = write_node(writer, node, wanted)
        except Unsupported as problem:
            problems.append((node.operator, problem.reason.name, problem.detail))
            made = [writer.fresh(node.operator) for _ in node.outputs]
            writer.dtypes.update((n, o.dtype) for n, o in zip(made, node.outputs, strict=True))
        names.update(zip(node.outputs, made, strict=True))
        described += [_info(n, o.type) for n, o in zip(made, node.outputs, strict=True)]
    if problems:
        lines = (f"  {operator}: {detail}" for operator, _, detail in dict.fromkeys(problems))
        raise UnsupportedError(
            "{0} nodes cannot be written as ONNX:\n{1}", len(problems), "\n".join(lines),
            reasons=problems,
        )  # fmt: skip
    for name, value in graph.outputs.items():
        given = graph.inputs.get(name)
        if given is not None and given is not value:
            raise UnsupportedError(
                "{0} is an input and another output, which ONNX does not name alike", name,
                reasons=[name], hint="name the output otherwise",
            )  # fmt: skip
        if given is None and wanted.get(value) != name:
            writer.nodes.append(helper.make_node("Identity", [writer.name(value)], [name]))
    nodes = _live(writer.nodes, graph.outputs)
    read = set(_read(nodes))
    known = {name for node in nodes for name in node.output}
    made_graph = helper.make_graph(
        nodes,
        graph.name or "graph",
        [_info(n, v.type) for n, v in graph.inputs.items()],
        [_info(n, v.type) for n, v in graph.outputs.items()],
        [held for held in writer.initializers if held.name in read],
        value_info=[v for v in described if v.name in known and v.name not in graph.outputs],
    )
    opsets = [helper.make_opsetid(*one) for one in {"": writer.opset, **writer.domains}.items()]
    version = helper.find_min_ir_version_for(opsets, ignore_unknown=True)
    return helper.make_model(
        made_graph, producer_name=PRODUCER, opset_imports=opsets, ir_version=version
    )


def _live(nodes: Sequence[Any], outputs: Iterable[str]) -> list[Any]:
    """The nodes that outputs need: a layer is written with what its operands are made of."""
    needed, found = set(outputs), list[Any]()
    for node in reversed(nodes):
        if not needed.isdisjoint(node.output):
            needed.update(_read([node]))
            found.append(node)
    return found[::-1]


def _read(nodes: Iterable[Any]) -> Iterator[str]:
    """The names of what nodes read, in bodies too."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            yield from _read(attribute.g.node)


def _wanted(graph: Graph, names: dict[Value, str]) -> dict[Value, str]:
    """The names of values that are outputs; of several, and of inputs, the others are copies."""
    found: dict[Value, str] = {}
    for name, value in graph.outputs.items():
        if value not in names and not isinstance(value, Constant):
            found.setdefault(value, name)
    return found


def write_node(writer: Writer, node: Node, wanted: dict[Value, str]) -> Sequence[str]:
    """The names of a node's outputs; those that are wanted are given to what computes them."""
    from onnx import helper

    write = WRITERS.get(node.operator)
    if write is None:
        raise Unsupported(Reason.OPERATOR, "ONNX has no such operator")
    start = len(writer.nodes)
    made = write(writer, node, *map(writer.name, node.inputs))
    results = [made] if isinstance(made, str) else list(made)
    for place, (value, name) in enumerate(zip(node.outputs, results, strict=True)):
        own = wanted.get(value)
        assert writer.dtypes[name] == value.dtype, f"{node.operator}: {writer.dtypes[name]}"
        if own is None:
            continue
        producers = [n for n in writer.nodes[start:] if name in n.output]
        if producers and results.count(name) == 1:
            for other in writer.nodes[start:]:
                for held in (other.input, other.output):
                    held[:] = [own if n == name else n for n in held]
        else:
            writer.nodes.append(helper.make_node("Identity", [name], [own]))
        writer.dtypes[own] = value.dtype
        results[place] = own
    return results


def _info(name: str, type: TensorType) -> Any:
    from onnx import helper

    shape = [None if extent == dtypes.UNKNOWN else extent for extent in type.shape]
    return helper.make_tensor_value_info(name, onnx_dtype(type.dtype), shape)

"""The graph: a model as operators on tensors, before it is divided into kernels.

    graph mlp(x: float32[1, 64]) -> (y):
      %0: float32[1, 32] = matmul(x, w0)
      y: float32[1, 32] = relu(%0)

A graph is in static single assignment form and pure: each `Value` is an input, a `Constant` or one
of the outputs of one `Node`, which stands before all nodes that read it. All shapes are concrete.
What a node computes is said by its operator's record (`graph/operator.py`): `infer` gives the types
of its outputs, `reference` computes them with numpy, `lower` with `te`. Values, nodes and graphs
are immutable and compare by identity.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..base import dtypes
from ..base.display import html
from .mapped import can_be_written, check_unchanged, written

if TYPE_CHECKING:
    from ..tir.ir import Func

Attribute: TypeAlias = "bool | int | float | str | tuple[Attribute, ...] | None"
Attributes: TypeAlias = Mapping[str, Attribute]


@dataclass(frozen=True)
class TensorType:
    """The dtype and shape of a value: `float32[1, 64]`.

    An extent that data decide is `dtypes.UNKNOWN`, -1: only foreign nodes have such outputs, and no
    node reads these.
    """

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @cached_property
    def size(self) -> int:
        """Number of elements; extents that data decide count as 1."""
        size = 1
        for extent in self.shape:
            size *= 1 if extent == dtypes.UNKNOWN else extent
        return size

    @property
    def bytes(self) -> int:
        return self.size * dtypes.nbytes(self.dtype)


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor that a graph computes or is given. Its name is for people, and unique in texts."""

    type: TensorType
    name: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.type.dtype

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.type}>"


@dataclass(frozen=True, eq=False, repr=False)
class Constant(Value):
    """A value known when the graph is built."""

    elements: np.ndarray[Any, Any] = None  # type: ignore[assignment]

    @property
    def data(self) -> np.ndarray[Any, Any]:
        """The elements: compact, row-major, read-only, of a file perhaps.

        Raises `ModelError` if the file has changed.
        """
        check_unchanged((self.elements,))
        return self.elements

    @cached_property
    def digest(self) -> str:
        """SHA-256 of its type and elements, hex."""
        return self._hashed()

    def check(self) -> None:
        """Raise `ModelError` if its elements, which may be others' memory, are not those of its
        digest any more."""
        if can_be_written(self.elements) and self._hashed() != self.digest:
            raise written()

    def _hashed(self) -> str:
        digest = hashlib.sha256(str(self.type).encode())
        digest.update(self.data.reshape(-1).view(np.uint8).data)
        return digest.hexdigest()


def constant(data: Any, name: str = "") -> Constant:
    """The constant of an array, which is not copied if it is compact and row-major."""
    array = np.asarray(data)
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    view = array.view()
    view.flags.writeable = False
    dtype = dtypes.from_numpy(array.dtype)
    return Constant(TensorType(dtype, array.shape), name, view)


@dataclass(frozen=True, eq=False)
class Node:
    """An operator applied to values: `outputs = operator(*inputs, **attributes)`."""

    operator: str
    inputs: tuple[Value, ...]
    attributes: Attributes
    outputs: tuple[Value, ...]

    def __repr__(self) -> str:
        return f"<Node {self.operator}: {', '.join(str(o.type) for o in self.outputs)}>"

    @property
    def output(self) -> Value:
        """The only output."""
        (output,) = self.outputs
        return output


@dataclass(frozen=True)
class Source:
    """A node of what a graph was read from, and the values that stand for its outputs.

    One that is a constant, as it was computed ahead, is `None`. `passes`: they are its operands.
    """

    name: str
    operator: str
    outputs: tuple[Value | None, ...]
    passes: bool = False


@dataclass(frozen=True, eq=False)
class Graph:
    """A model: `nodes` in an order of execution, and what is given and returned, by names.

    `sources` say what became of the nodes of a file; they change nothing. Nor does `importer`: what
    is known of that file, facts by name, and who read it.
    """

    name: str
    inputs: Mapping[str, Value]
    nodes: tuple[Node, ...]
    outputs: Mapping[str, Value]
    sources: tuple[Source, ...] = ()
    importer: Mapping[str, str] | None = None

    @cached_property
    def constants(self) -> tuple[Constant, ...]:
        """The constants that nodes or outputs use, in the order of their first use."""
        used = [*(v for node in self.nodes for v in node.inputs), *self.outputs.values()]
        return tuple(dict.fromkeys(v for v in used if isinstance(v, Constant)))

    @cached_property
    def producers(self) -> Mapping[Value, Node]:
        """The node of each value that is computed."""
        return {output: node for node in self.nodes for output in node.outputs}

    @cached_property
    def consumers(self) -> Mapping[Value, tuple[Node, ...]]:
        """The nodes that read each value, each node once; nothing of values that none reads."""
        found: dict[Value, dict[Node, None]] = {}
        for node in self.nodes:
            for value in node.inputs:
                found.setdefault(value, {})[node] = None
        return {value: tuple(nodes) for value, nodes in found.items()}

    @cached_property
    def digest(self) -> str:
        """SHA-256, hex, of what it computes: independent of names but those of its inputs and
        outputs."""
        numbers: dict[Value, str] = {v: f"in {n}" for n, v in self.inputs.items()}
        lines = [f"{n}: {v.type}" for n, v in self.inputs.items()]

        def reference(value: Value) -> str:
            return value.digest if isinstance(value, Constant) else numbers[value]

        for count, node in enumerate(self.nodes):
            operands = " ".join(map(reference, node.inputs))
            attributes = sorted(node.attributes.items())
            lines.append(f"{node.operator} {operands} {attributes!r}")
            for place, output in enumerate(node.outputs):
                numbers[output] = f"{count}.{place}"
        lines += [f"{n} = {reference(v)}" for n, v in self.outputs.items()]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def values(self) -> Iterator[Value]:
        """All values: inputs, constants, and what nodes compute, in order."""
        yield from self.inputs.values()
        yield from self.constants
        for node in self.nodes:
            yield from node.outputs

    def reference(
        self, *arguments: Any, dtype: str | None = None, **named: Any
    ) -> tuple[np.ndarray[Any, Any], ...]:
        """Returns the outputs as numpy computes them, node by node; see `graph/reference.py`."""
        from .reference import run

        return run(self, arguments, named, dtype)

    def optimized(self) -> Graph:
        """The equal graph that is built: after all passes; see `graph/passes/__init__.py`."""
        return self._optimized[0]

    def rewrites(self) -> Mapping[str, int]:
        """How often each rewrite was applied on the way to the graph that is built."""
        return self._optimized[1]

    @cached_property
    def _optimized(self) -> tuple[Graph, Counter[str]]:
        from .passes import stages

        found = stages(self)
        return found[-1].graph, sum((Counter(s.applied) for s in found), Counter[str]())

    def to_onnx(self) -> Any:
        """The `onnx.ModelProto` of what the reference computes; see `importers/onnx/writer.py`."""
        return import_module("..importers.onnx.writer", __package__).to_onnx(self)

    def kernels(self) -> Mapping[Func, int]:
        """The programs that a build makes kernels of, and how often a call runs each."""
        from .lower import kernels_of

        return kernels_of(self.optimized())

    def __str__(self) -> str:
        from .text import graph_text

        return graph_text(self)

    _repr_html_ = html

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.nodes)} nodes>"

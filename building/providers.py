"""The providers that there are: kernels, here or on a device; the reference, onnxruntime, OpenVINO.

`register_provider` adds one of a user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, TypeVar

import numpy as np

from ..base import dtypes
from ..base.errors import BuildError, LockError, UnsupportedError, similar
from ..graph.ir import Constant, Graph, Node, Value
from ..graph.limits import open_limits
from ..graph.loops import is_loop, nodes_of
from ..graph.operator import Kind, find, operators_of
from ..graph.operators.loop import body_of
from ..graph.provider import Provider
from ..graph.reference import not_computed, run
from ..runtime.device_part import DevicePart
from ..runtime.model import Model
from ..runtime.onnx_parts import OnnxruntimeParts, OpenvinoParts
from ..runtime.part_loader import LOADERS, Call, provider_to_register
from ..target import Target
from .choose import POLICIES

P = TypeVar("P", bound=Provider | type[Provider])

PROVIDERS: dict[str, Provider] = {}


def register_provider(provider: P) -> P:
    """Add a provider, whom builds may name then; a class may be decorated.

    A later one of its name replaces it. Raises `BuildError` for what is no provider with a name,
    and for the name of one that is built in.
    """
    _add(provider_to_register(provider, Provider))  # type: ignore[type-abstract]
    return provider


def _add(provider: Provider) -> None:
    PROVIDERS[provider.name] = LOADERS[provider.name] = provider


def provider_of(name: str) -> Provider:
    """The provider of that name. Raises `BuildError` if there is none."""
    if name not in PROVIDERS:
        raise BuildError(
            "there is no provider {0!r}; there are {1}", name, ", ".join(PROVIDERS),
            hint=similar(name, PROVIDERS),
        )  # fmt: skip
    return PROVIDERS[name]


def kernel_refusal(node: Node) -> str | None:
    """Why no kernel of this compiler computes a node."""
    record = find(node.operator)
    known = record.lower or record.program or record.kind is Kind.VIEW
    return None if known else "no kernel"


class Tilewright(Provider):
    """Kernels of this compiler, built with these options of `build_graph`."""

    name = "tilewright"
    call_seconds = 3e-6

    def __init__(self, **options: Any) -> None:
        self.options = options

    def refusal(self, node: Node) -> str | None:
        return None if is_loop(node) else kernel_refusal(node)

    def compile(self, graph: Graph, target: Target) -> Model:
        from .build_model import build_graph

        return build_graph(graph, target, **self.options)


_LEFT_TO_LOCKS: Mapping[str, Any] = {"database": None, "allow": POLICIES, "tolerance": None}
"""The options of a build that say nothing where a lock says which schedules are taken."""


class DeviceProvider(Provider):
    """Kernels of this compiler on a device: `DeviceProvider("gpu", "cuda -arch=sm_90a")`.

    The host copies to it and from it what crosses, and goes on until it needs a result. Options are
    those of `tw.build`; what is left out is as in the build of the model. A lock is for one target:
    `locked=` is here that of `tw.freeze(partition, target)` for the target of the device.
    """

    def __init__(self, name: str, target: Target | str, **options: Any) -> None:
        self.name = self.device = name
        self.target, self.options = target, options

    def with_options(self, options: Mapping[str, Any]) -> DeviceProvider:
        """The same provider with options of a build, but for its own."""
        found = copy(self)
        if self.options.get("locked") is not None:
            options = {**options, **_LEFT_TO_LOCKS}
        found.options = {**options, **self.options}
        return found

    def refusal(self, node: Node) -> str | None:
        if open_limits(alone(node)):
            return "the host would have to compare its indices with their limits"
        return kernel_refusal(node)

    def compile(self, graph: Graph, target: Target) -> DevicePart:
        """For its own target; that of the model is the host's."""
        from ..codegen.detect import resolve
        from .build_program import Ways
        from .device_build import build_for_device
        from .lock_file import lock_of

        del target
        own, lock = resolve(self.target), lock_of(self.options.get("locked"))
        if lock is not None and lock.target != str(own):
            raise LockError(
                "{0} is for {1}, and {2} runs a part of {3} on {4}",
                lock.location, lock.target, self.name, graph.name, own,
                hint="freeze the partition for that target too, and give the lock to the provider: "
                "DeviceProvider(..., locked=...)",
                provider=self.name, expected=str(own), found=lock.target,
            )  # fmt: skip
        ways = Ways(own, **{**self.options, "locked": lock})
        return build_for_device(graph, ways, self.timeout)


class Reference(Provider):
    """Numpy, node by node, floats in float64: slow, and what all others are compared with."""

    name = "reference"

    def refusal(self, node: Node) -> str | None:
        return not_computed(node)

    def store(self, graph: Graph, target: Target) -> bytes:
        del graph, target
        raise UnsupportedError(
            "the provider {0} does not store parts: it computes with the records of operators, "
            "which artifacts do without", self.name, reasons=[self.name],
        )  # fmt: skip

    def seconds(self, node: Node) -> float:
        return 2e-5 + 20 * super().seconds(node)

    def compile(self, graph: Graph, target: Target) -> Call:
        del target
        kept = [dtypes.to_numpy(v.dtype) for v in graph.outputs.values()]

        def call(*given: Any) -> Sequence[Any]:
            results = run(graph, given, dtype="float64")
            with np.errstate(over="ignore", invalid="ignore"):
                return [r.astype(t, copy=False) for r, t in zip(results, kept, strict=True)]

        return call


class _OnnxProvider(Provider):
    """Takes parts as ONNX models. It runs a node if it compiles a model of that node alone."""

    narrows: frozenset[str] = frozenset()
    """Dtypes that it takes, and computes in narrower ones."""
    rounds: frozenset[str] = frozenset()
    """Operators whose integers it computes as floats of fewer digits, or saturates."""
    compares_indices = True
    """Whether it refuses indices that are out of range in a call."""

    def __init__(self) -> None:
        self._asked: dict[str, str | None] = {}

    def refusal(self, node: Node) -> str | None:
        inner = nodes_of(body_of(str(node.attributes["body"]))) if is_loop(node) else ()
        computed = [(each, v) for each in (node, *inner) for v in (*each.inputs, *each.outputs)]
        for each, value in computed:
            if value.dtype in self.narrows:
                return f"it computes {value.dtype} in a narrower dtype"
            if dtypes.is_integer(value.dtype) and each.operator in self.rounds:
                return f"it rounds {each.operator} of {value.dtype}"
            if dtypes.to_numpy(value.dtype).isbuiltin != 1:
                return f"it is given arrays of numpy, which has no {value.dtype}"
        apart = alone(node)
        if not self.compares_indices and open_limits(apart):
            return "it does not compare indices with their limits"
        if apart.digest not in self._asked:
            try:
                self.compile(apart, Target.parse("cpu -threads=1"))
                self._asked[apart.digest] = None
            except UnsupportedError as error:
                reasons = error.data.get("reasons", ())
                self._asked[apart.digest] = str(reasons[0][-1] if reasons else error.first_line)
            except BuildError as error:
                self._asked[apart.digest] = error.first_line
        return self._asked[apart.digest]

    def store(self, graph: Graph, target: Target) -> bytes:
        del target
        content: bytes = graph.to_onnx().SerializeToString()
        return content

    def compile(self, graph: Graph, target: Target) -> Call:
        return self.load(self.store(graph, target), target)


_MOST_BYTES = 1 << 16
"""Of a constant that is part of the model of a node alone."""


def alone(node: Node) -> Graph:
    """The graph of a node; its operands are inputs, but for constants that are not large."""
    stand: dict[Value, Value] = {}
    for value in node.inputs:
        plain = not isinstance(value, Constant) or value.type.bytes > _MOST_BYTES
        stand[value] = Value(value.type) if plain else value
    inner = Node(node.operator, tuple(stand[v] for v in node.inputs), node.attributes, node.outputs)
    given = [v for v in stand.values() if not isinstance(v, Constant)]
    return Graph(
        "node",
        {f"x{n}": v for n, v in enumerate(given)},
        (inner,),
        {f"y{n}": v for n, v in enumerate(node.outputs)},
    )


class Onnxruntime(OnnxruntimeParts, _OnnxProvider):
    """onnxruntime on the processor, with as many threads as the target has."""

    rounds = frozenset({"fmod", "sum", "prod"})


class Openvino(OpenvinoParts, _OnnxProvider):
    """OpenVINO on the processor. Of NaN and infinities it may return other values than we do."""

    narrows = frozenset({"int32", "int64", "uint32", "uint64", "float64"})
    rounds = frozenset({"matmul", "power", "shift_left", "shift_right"})
    compares_indices = False


for _provider in (
    Tilewright(), DeviceProvider("cuda", "cuda"), Reference(), Onnxruntime(), Openvino(),
):  # fmt: skip
    _add(_provider)


def elsewhere(nodes: Sequence[Node]) -> str:
    """The operators of nodes, as a warning has them."""
    return ", ".join(dict.fromkeys(name for node in nodes for name in operators_of(node)))

"""The providers that there are: Tilewright's kernels, the reference, onnxruntime and OpenVINO.

`register_provider` adds one of a user.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from ..base import dtypes
from ..base.errors import BuildError, ProviderError, UnsupportedError, similar
from ..graph.ir import Constant, Graph, Node, Value
from ..graph.operator import Kind, find, operators_of
from ..graph.provider import Call, Provider
from ..graph.reference import not_computed, run
from ..runtime.model import Model
from ..target import Target

P = TypeVar("P", bound=Provider | type[Provider])

PROVIDERS: dict[str, Provider] = {}


def register_provider(provider: P) -> P:
    """Add a provider, whom builds may name then; a class may be decorated.

    A later one of its name replaces it. Raises `BuildError` for what is no provider with a name,
    and for the name of one that is built in.
    """
    own: object = provider() if isinstance(provider, type) else provider
    name = getattr(own, "name", None)
    if not isinstance(own, Provider) or not isinstance(name, str) or not name:
        raise BuildError("expected a Provider with a name, found {0!r:.80}", own)
    known = PROVIDERS.get(name)
    if known is not None and type(known).__module__ == __name__:
        raise BuildError("there is a provider {0} already", name)
    PROVIDERS[name] = own
    return provider


def provider_of(name: str) -> Provider:
    """The provider of that name. Raises `BuildError` if there is none."""
    if name not in PROVIDERS:
        raise BuildError(
            "there is no provider {0!r}; there are {1}", name, ", ".join(PROVIDERS),
            hint=similar(name, PROVIDERS),
        )  # fmt: skip
    return PROVIDERS[name]


class Tilewright(Provider):
    """Kernels of this compiler, built with these options of `build_graph`."""

    name = "tilewright"
    call_seconds = 3e-6

    def __init__(self, **options: Any) -> None:
        self.options = options

    def refusal(self, node: Node) -> str | None:
        record = find(node.operator)
        known = record.lower or record.program or record.kind is Kind.VIEW
        return None if known else "no kernel"

    def compile(self, graph: Graph, target: Target) -> Model:
        from .build_model import build_graph

        return build_graph(graph, target, **self.options)


register_provider(Tilewright())


@register_provider
class Reference(Provider):
    """Numpy, node by node, floats in float64: slow, and what all others are compared with."""

    name = "reference"

    def refusal(self, node: Node) -> str | None:
        return not_computed(node)

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

    def __init__(self) -> None:
        self._asked: dict[str, str | None] = {}

    def refusal(self, node: Node) -> str | None:
        for value in (*node.inputs, *node.outputs):
            if value.dtype in self.narrows:
                return f"it computes {value.dtype} in a narrower dtype"
            if dtypes.to_numpy(value.dtype).isbuiltin != 1:
                return f"it is given arrays of numpy, which has no {value.dtype}"
        alone = _alone(node)
        if alone.digest not in self._asked:
            try:
                self.session(alone, 1)
                self._asked[alone.digest] = None
            except UnsupportedError as error:
                reasons = error.data.get("reasons", ())
                self._asked[alone.digest] = str(reasons[0][-1] if reasons else error.first_line)
            except BuildError as error:
                self._asked[alone.digest] = error.first_line
        return self._asked[alone.digest]

    def compile(self, graph: Graph, target: Target) -> Call:
        return self.session(graph, getattr(target, "threads", 0) or 1)

    def session(self, graph: Graph, threads: int) -> Call:
        """A call of a graph. Raises `BuildError` where the provider does not take it."""
        raise NotImplementedError

    def missing(self) -> ProviderError:
        """The error where its library is not installed."""
        return ProviderError(
            "the provider {0} is not installed", self.name, hint=f"pip install {self.name}",
            provider=self.name,
        )  # fmt: skip


_MOST_BYTES = 1 << 16
"""Of a constant that is part of the model of a node alone."""


def _alone(node: Node) -> Graph:
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


@register_provider
class Onnxruntime(_OnnxProvider):
    """onnxruntime on the processor, with as many threads as the target has."""

    name = "onnxruntime"

    def session(self, graph: Graph, threads: int) -> Call:
        try:
            import onnxruntime as ort
        except ImportError as error:
            raise self.missing() from error
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        content = graph.to_onnx().SerializeToString()
        try:
            session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # it has no public base of its errors
            raise BuildError("onnxruntime does not take {0}: {1}", graph.name, error) from error
        inputs, outputs = list(graph.inputs), list(graph.outputs)

        def call(*given: Any) -> Sequence[Any]:
            found: Sequence[Any] = session.run(outputs, dict(zip(inputs, given, strict=True)))
            return found

        return call


@register_provider
class Openvino(_OnnxProvider):
    """OpenVINO on the processor. Operators on NaN may return other values than ours."""

    name = "openvino"
    narrows = frozenset({"int64", "uint64", "uint32", "float64"})

    def session(self, graph: Graph, threads: int) -> Call:
        try:
            import openvino
        except ImportError as error:
            raise self.missing() from error
        content = graph.to_onnx().SerializeToString()
        options = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        try:
            core = openvino.Core()
            compiled = core.compile_model(core.read_model(content, b""), "CPU", options)
        except Exception as error:
            raise BuildError("OpenVINO does not take {0}: {1}", graph.name, error) from error
        count = len(graph.outputs)

        def call(*given: Any) -> Sequence[Any]:
            request = compiled.create_infer_request()  # of a thread's own
            request.infer(list(given))
            return [np.array(request.get_output_tensor(n).data) for n in range(count)]

        return call


def elsewhere(nodes: Sequence[Node]) -> str:
    """The operators of nodes, as a warning has them."""
    return ", ".join(dict.fromkeys(name for node in nodes for name in operators_of(node)))

"""What an ONNX model says of itself, before its dims have values and its nodes are translated."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ...base.errors import ModelError
from .model import dim_name, domain_of, dtype_name, inlined, versions
from .reader import is_extent, loaded


@dataclass(frozen=True)
class Tensor:
    """An input or output: `shape` has the names of open dims, and is `None` where it has no rank.

    `dtype` is ONNX's name of it where there is no other, and `None` where the model says none.
    """

    name: str
    dtype: str | None
    shape: tuple[int | str, ...] | None

    def __str__(self) -> str:
        shape = "[...]" if self.shape is None else f"[{', '.join(map(str, self.shape))}]"
        return f"{self.dtype or 'of no type'}{shape}"


@dataclass(frozen=True)
class Summary:
    """The facts of an ONNX model.

    `operators` counts nodes, also those in bodies, by operator; other domains than ONNX's own are
    written in front. `opsets` are versions by domain.
    """

    name: str
    producer: str
    opsets: dict[str, int]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    operators: Counter[str]


def summary(model: Any) -> Summary:
    """The facts of what `import_onnx` takes. Raises `ModelError` for a damaged model."""
    read = inlined(loaded(model))
    graph = read.graph
    held = set(graph.initializers)
    domains = ((domain_of(node), node.op_type) for node in graph.all_nodes())
    return Summary(
        graph.name or "model",
        " ".join(filter(None, (read.producer_name, read.producer_version))),
        {domain or "ai.onnx": version for domain, version in versions(read).items()},
        tuple(_tensor(v, read.producer_name) for v in graph.inputs if v.name not in held),
        tuple(_tensor(v, read.producer_name) for v in graph.outputs),
        Counter(f"{domain}.{name}" if domain else name for domain, name in domains),
    )


def _tensor(value: Any, producer: str | None) -> Tensor:
    shape = (
        None
        if value.shape is None
        else tuple(
            dim if is_extent(dim, producer) else dim_name(value.name, place, dim)
            for place, dim in enumerate(value.shape)
        )
    )
    try:
        dtype: str | None = dtype_name(value)
    except ModelError:
        dtype = None if value.dtype is None else value.dtype.name.lower()
    return Tensor(value.name, dtype, shape)

"""What runs nodes of a graph: a provider answers three questions about them.

class Vendor(Provider):
    name = "vendor"

    def refusal(self, node):
        return None if node.operator == "matmul" else "it has matrix products only"

    def compile(self, graph, target):
        return vendor.gemm
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING

from ..base.errors import ProviderError, UnsupportedError
from ..runtime.device_plan import HOST
from ..runtime.part_loader import Call, PartLoader
from ..target import Target
from .ir import Graph, Node
from .operator import Kind, find
from .operators.loop import body_of

if TYPE_CHECKING:
    from ..runtime.device_part import DevicePart

BYTES_PER_SECOND = 1e10
"""That nodes read and write, and copies move, where nothing better is known."""
PRODUCTS_PER_SECOND = 2e10


class Provider(PartLoader):
    """Runs parts of graphs. `name` is what placements call it.

    Its parts keep their place in artifacts if it has `store` and `load`, and are refused there if
    not. `version` and `takes` say which ones are loaded.
    """

    name: str
    device = HOST
    """The name of the device in whose memory its parts compute; none for the host."""
    call_seconds = 1e-5
    """What a call of a part takes beside its nodes."""

    @abstractmethod
    def refusal(self, node: Node) -> str | None:
        """Why it cannot run a node; `None` if it can."""

    def seconds(self, node: Node) -> float:
        """What it expects a node to take: by default, by the bytes and products of it.

        A loop takes what the nodes of its body do, in each of its steps.
        """
        record = find(node.operator)
        if record.kind is Kind.LOOP:
            steps = node.attributes["count"]
            assert isinstance(steps, int), "the record of loops says so"
            return steps * sum(map(self.seconds, body_of(str(node.attributes["body"])).nodes))
        moved = sum(v.type.bytes for v in (*node.inputs, *node.outputs))
        products = 0.0
        if record.kind is Kind.CONTRACTION:
            # Of matrices these are all products; of other contractions it is about as many.
            operands = (*node.inputs[:2], node.outputs[0])
            products = math.sqrt(math.prod(float(v.type.size) for v in operands))
        return moved / BYTES_PER_SECOND + products / PRODUCTS_PER_SECOND

    @abstractmethod
    def compile(self, graph: Graph, target: Target) -> Call | DevicePart:
        """A call of a part, all nodes of which it can run, for a resolved target.

        Of one on a `device`, it is a `DevicePart`.
        """

    def store(self, graph: Graph, target: Target) -> bytes:
        """What `load` makes the call of a part from, in an artifact for a resolved target.

        Raises `UnsupportedError` that says why its parts cannot be stored, as it does by default.
        """
        del graph, target
        raise UnsupportedError(
            "the provider {0} does not store parts", self.name, reasons=[self.name]
        )

    def load(self, content: bytes, target: Target) -> Call:
        del content, target
        raise ProviderError(
            "the provider {0} does not load parts", self.name, provider=self.name,
            hint="it has `store`, and needs `load` too",
        )  # fmt: skip

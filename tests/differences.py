"""Where two trees differ, as text for people."""

from __future__ import annotations

from typing import Any

from tilewright.tir.equality import Encoder
from tilewright.tir.ir import Buffer, Expr, Func, Node


def first_difference(a: Node, b: Node, *, match_free: bool = False) -> str | None:
    """Where two trees first differ; `None` if they are structurally equal."""
    left, right = _Traced(match_free), _Traced(match_free)
    left.root(a)
    right.root(b)
    if left.out == right.out:
        return None
    pairs = enumerate(zip(left.out, right.out, strict=False))
    at = next((k for k, (x, y) in pairs if x != y), min(len(left.out), len(right.out)))
    return f"{left.place(at)}\n  is different from\n{right.place(at)}"


class _Traced(Encoder):
    """An encoder that remembers which tokens came from which node."""

    def __init__(self, match_free: bool) -> None:
        super().__init__(match_free)
        self.spans: list[tuple[int, int, Any]] = []

    def encode(self, node: Any) -> Any:
        start = len(self.out)
        super().encode(node)
        if not isinstance(node, Buffer):
            self.spans.append((start, len(self.out), node))
        return node

    def place(self, at: int) -> str:
        """Token `at`, the innermost node around it, and the statement that holds that."""
        if at == len(self.out):
            return "the end"
        around = [(end - start, n) for start, end, n in self.spans if start <= at < end]
        around.sort(key=lambda pair: pair[0])
        nodes = [n for _, n in around]
        holder = next((n for n in nodes if not isinstance(n, Expr)), None)
        places = [f"`{_headline(n)}`" for n in dict.fromkeys([*nodes[:1], holder]) if n is not None]
        return " in ".join([self.out[at], *places])


def _headline(node: Any) -> str:
    lines = str(node).splitlines()
    return lines[1] if type(node) is Func else lines[0]

"""Branches and loops of PyTorch: chosen, written out, or loops of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.base.errors import UnsupportedError

pytest.importorskip("torch")

import torch
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.scan import scan

from .test_torch import Module, check, exported

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()


def operators(graph: Any) -> list[str]:
    return [node.operator for node in graph.nodes]


def reasons(module: Any, *args: Any) -> list[tuple[str, str]]:
    with pytest.raises(UnsupportedError) as caught:
        exported(module, *args)
    return [(reason[1], reason[2]) for reason in caught.value.data["reasons"]]


class Cell(torch.nn.Module):  # type: ignore[misc]
    """Rows one after the other, from the last one on if it is told so."""

    def __init__(self, reverse: bool) -> None:
        super().__init__()
        self.inner, self.reverse = torch.nn.Linear(4, 4), reverse

    def forward(self, h: Any, x: Any) -> Any:
        def step(h: Any, row: Any) -> tuple[Any, Any]:
            after = torch.tanh(self.inner(h) + row)
            return after, after * 2

        return scan(step, h, x, reverse=self.reverse)


def test_a_scan_is_a_loop_of_the_graph() -> None:
    graph = check(Cell(reverse=True), torch.randn(3, 4), torch.randn(250, 3, 4), tolerance=1e-5)
    assert operators(graph).count("loop") == 1


def test_a_short_scan_is_written_out() -> None:
    graph = check(Cell(reverse=False), torch.randn(3, 4), torch.randn(2, 3, 4), tolerance=1e-5)
    assert operators(graph).count("tanh") == 2


def counted(steps: int, first: Callable[[], Any]) -> Module:
    def body(i: Any, x: Any) -> Any:
        return i + 1, torch.sin(x * 0.9 + i)

    return Module(lambda x: while_loop(lambda i, _: i < steps, body, (first(), x))[1])


def test_a_loop_that_counts() -> None:
    """One of few nodes is written out."""
    assert operators(check(counted(500, lambda: 0), torch.randn(3), tolerance=1e-4)) == ["loop"]
    few = exported(counted(4, lambda: torch.tensor(0)), torch.randn(3))
    assert operators(few).count("sin") == 4


def test_a_loop_whose_end_data_decide_is_refused() -> None:
    module = Module(lambda x: while_loop(lambda x: x.sum() < 9, lambda x: (x * 2,), (x,)))
    assert reasons(module, torch.ones(3)) == [("while_loop", "DATA_DEPENDENT")]


@pytest.mark.parametrize("sign", [1, -1])
def test_of_a_branch_that_data_decide_both_are_computed(sign: int) -> None:
    module = Module(lambda x: torch.cond(x.sum() > 0, lambda x: x.cos(), lambda x: x + 1, (x,)))
    graph = check(module, sign * torch.ones(3))
    assert "where" in operators(graph)


def test_a_branch_that_is_known_is_chosen() -> None:
    holds = torch.tensor(True)
    module = Module(lambda x: torch.cond(holds, lambda x: x.cos(), lambda x: x + 1, (x,)))
    assert operators(check(module, torch.ones(3))) == ["cos"]


def test_branches_of_other_sizes_are_refused() -> None:
    def function(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x[:2] + 0, (x,))

    with pytest.raises(UnsupportedError) as caught:
        torch.compile(function, backend="tilewright")(torch.ones(3))
    assert caught.value.data["reasons"][0][1:3] == ("cond", "DATA_DEPENDENT")


def test_a_branch_that_may_fail_is_refused() -> None:
    """Where it is not taken its index may be out of range, which is no error then."""

    class Branch(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, i: Any) -> Any:
            known = (i < 3).all()
            return torch.cond(known, lambda x, i: x[i], lambda x, i: x[:2] + i[:, None], (x, i))

    given = torch.ones(3, 2), torch.tensor([1, 2])
    with pytest.raises(UnsupportedError) as caught:
        exported(Branch(), *given)
    ((name, operator, reason, detail),) = caught.value.data["reasons"]
    assert (operator, reason) == ("cond", "DATA_DEPENDENT")
    assert name.startswith("test_torch_control.py:")
    assert "take" in detail


def test_what_a_body_does_not_support_is_named() -> None:
    def module(x: Any) -> Any:
        return torch.cond(x.sum() > 0, torch.rand_like, lambda x: x + 1, (x,))

    assert reasons(Module(module), torch.ones(3)) == [("aten.rand_like.default", "OPERATOR")]


def test_loops_and_branches_compile_and_train() -> None:
    """Dynamo captures them, and the gradient of a scan is another one."""
    cell = Cell(reverse=False)
    h, x = torch.randn(3, 4), torch.randn(5, 3, 4)

    def gradients(module: Any) -> list[Any]:
        cell.zero_grad()
        module(h, x)[1].sum().backward()
        return [p.grad.clone() for p in cell.parameters()]

    wanted = gradients(cell)
    fast = torch.compile(cell, backend="tilewright", fullgraph=True, options={"breaks": "fail"})
    for found, expected in zip(gradients(fast), wanted, strict=True):
        torch.testing.assert_close(found, expected)
    loop = counted(6, lambda: 0)
    with torch.no_grad():
        compiled = torch.compile(loop, backend="tilewright", fullgraph=True)
        torch.testing.assert_close(compiled(h), loop(h))

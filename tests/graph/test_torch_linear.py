"""Linear algebra of PyTorch: factors of matrices, and what is solved by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import tilewright as tw
from tilewright.base.errors import GuardError, ModelError, UnsupportedError
from tilewright.graph import TensorType
from tilewright.graph.limits import open_limits
from tilewright.graph.operators import linear
from tilewright.importers.torch.assertions import CHECKS_OF_LINEAR_ALGEBRA

from ..torch_compiled import compiled
from .test_torch import Module, check, exported

pytestmark = pytest.mark.filterwarnings("ignore")
L = torch.linalg
ONE: Any = torch.eye(4, dtype=torch.float64)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cholesky": lambda _a, s, _b: (L.cholesky(s), L.cholesky(s, upper=True)),
    "inverse": lambda a, _s, _b: L.inv(a),
    "solve": lambda a, _s, b: (L.solve(a, b), L.solve(a, b[..., 0]), L.solve(a, b[0, ..., 0])),
    "solve from the right": lambda a, _s, b: torch._linalg_solve_ex(a, b.mT, left=False)[:2],
    "solve that broadcasts": lambda a, _s, b: (
        L.solve(a[0], b),
        L.solve(a, b[0]),
        L.solve(a[:, None], b),
        L.solve(a[0], b.mT, left=False),
    ),
    "solve by factors": lambda a, _s, b: tuple(
        L.lu_solve(*L.lu_factor(a[0]), b if left else b.mT, left=left, adjoint=adjoint)
        for left in (True, False)
        for adjoint in (True, False)
    ),
    "determinants": lambda a, s, _b: (L.det(a), *L.slogdet(a), torch.logdet(s)),
    "factors": lambda a, _s, _b: tuple(L.lu_factor(a)),
    "upper triangle": lambda a, _s, b: L.solve_triangular(a.triu() + 3 * ONE, b, upper=True),
    "lower triangle": lambda a, _s, b: L.solve_triangular(
        a.tril() + ONE, b.mT, upper=False, left=False, unitriangular=True
    ),
    "by roots": lambda _a, s, b: (
        torch.cholesky_solve(b, L.cholesky(s)),
        torch.cholesky_inverse(L.cholesky(s, upper=True), upper=True),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_linear_algebra(name: str) -> None:
    a, b = torch.randn(2, 4, 4, dtype=torch.float64), torch.randn(2, 4, 3, dtype=torch.float64)
    compiled = name in ("solve", "cholesky", "solve by factors")
    check(Module(FUNCTIONS[name]), a, a @ a.mT + ONE, b, tolerance=1e-9, compiled=compiled)


RIGHT, SINGULAR = torch.eye(2), torch.tensor([[1.0, 2.0], [2.0, 4.0]])
INDEFINITE = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
CHECKED: dict[str, tuple[Callable[..., Any], Any]] = {
    "cholesky": (L.cholesky, INDEFINITE),
    "cholesky of a batch": (L.cholesky, torch.stack([RIGHT, RIGHT, INDEFINITE, SINGULAR])),
    "old cholesky": (torch.cholesky, torch.stack([RIGHT, INDEFINITE])),
    "cholesky_ex": (lambda x: L.cholesky_ex(x, check_errors=True), INDEFINITE),
    "inverse": (L.inv, torch.stack([RIGHT, SINGULAR])[None]),
    "inverse_ex": (lambda x: L.inv_ex(x, check_errors=True)[0], SINGULAR),
    "inverse by a root": (torch.cholesky_inverse, torch.stack([RIGHT, 0 * RIGHT])),
    "solve": (lambda x: L.solve(x, x), SINGULAR),
    "solve_ex": (lambda x: L.solve_ex(x, x, check_errors=True), torch.stack([RIGHT, SINGULAR])),
    "factors": (lambda x: L.lu_factor(x)[0], SINGULAR),
    "numbers of an inverse": (lambda x: L.inv_ex(x, check_errors=True)[1], SINGULAR),
    "numbers of a root": (lambda x: L.cholesky_ex(x, check_errors=True)[1], INDEFINITE),
    "pivots": (lambda x: L.lu_factor_ex(x, check_errors=True)[1], SINGULAR),
    "a result that is not used": (lambda x: (L.inv(x), x + 1, x[:0])[1:], SINGULAR),
}


@pytest.mark.parametrize("name", CHECKED)
def test_what_fails_is_an_error_as_pytorch_has_it(name: str) -> None:
    function, matrix = CHECKED[name]
    graph = exported(Module(function), matrix)
    good = np.array(np.broadcast_to(RIGHT.numpy(), matrix.shape))
    compiled = name in ("cholesky of a batch", "solve", "a result that is not used")
    model = tw.build(graph, "cpu -threads=1", allow=("default",)) if compiled else None
    with pytest.raises(RuntimeError) as theirs:
        function(matrix)
    wanted = str(theirs.value).split(" If you")[0]
    for call in (graph.reference, model):
        if call is not None:
            call(good)
            with pytest.raises(GuardError) as caught:
                call(matrix.numpy())
            assert wanted in caught.value.first_line


def test_the_error_says_which_matrix_it_was() -> None:
    graph = exported(Module(L.inv), torch.stack([RIGHT, SINGULAR]))
    with pytest.raises(GuardError) as caught:
        tw.build(graph, "cpu -threads=1")(torch.stack([RIGHT, SINGULAR]).numpy())
    data = caught.value.data
    assert (data["node"], data["index"]) == (CHECKS_OF_LINEAR_ALGEBRA, 2)
    assert data["place"] == (1,)
    assert len(open_limits(graph)) == 1


@pytest.mark.parametrize("wrong", [0, 5, -(2**31)])
def test_pivots_out_of_range_are_an_error(wrong: int) -> None:
    lu, pivots = L.lu_factor(ONE.flip(0)[None])
    graph = exported(Module(L.lu_solve), lu, pivots, ONE[None])
    given = [x.numpy() for x in (lu, pivots, ONE[None])]
    np.testing.assert_array_equal(graph.reference(*given)[0], ONE.flip(0)[None])
    pivots[0, 2] = wrong
    with pytest.raises(GuardError):
        graph.reference(*given)
    with pytest.raises(GuardError) as caught:
        tw.build(graph, "cpu -threads=1", allow=("default",))(*given)
    assert (caught.value.data["index"], caught.value.data["place"]) == (wrong, (0, 2))
    assert not open_limits(exported(Module(lambda x: L.lu_solve(*L.lu_factor_ex(x)[:2], x)), ONE))


def test_a_branch_in_which_a_function_may_fail_is_refused() -> None:
    def choice(function: Callable[..., Any]) -> Module:
        branches = (lambda x: function(x).sum(), torch.sum)
        return Module(lambda x: torch.cond(x.sum() > 0, *branches, (x,)))

    with pytest.raises(UnsupportedError) as caught:
        exported(choice(torch.cholesky), RIGHT)
    assert CHECKS_OF_LINEAR_ALGEBRA in str(caught.value)
    check(choice(lambda x: L.inv_ex(x)[0]), RIGHT, compiled=False)
    with pytest.raises(UnsupportedError):  # where PyTorch leaves out the check
        compiled(choice(L.inv).function)(RIGHT)
    with pytest.raises(ModelError):  # where it has a program that is none
        exported(choice(L.inv), RIGHT)


def test_each_step_of_a_loop_may_fail() -> None:
    from torch._higher_order_ops.map import map as mapped

    def each(xs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = mapped(lambda x: L.inv_ex(x, check_errors=True)[0], xs)
        return found

    graph = exported(Module(each), torch.stack([RIGHT, RIGHT]))
    graph.reference(torch.stack([RIGHT, RIGHT]).numpy())
    with pytest.raises(GuardError):
        graph.reference(torch.stack([RIGHT, SINGULAR]).numpy())


GRADIENTS: dict[str, Callable[..., Any]] = {
    "solve": lambda a, b: L.solve(a[0] + 4 * ONE, b),
    "solve from the right": lambda a, b: L.solve(a, b.mT, left=False),
    "determinants": lambda a, _b: L.det(a) + L.slogdet(a.mT).logabsdet + L.slogdet(a).logabsdet,
    "inverse, root": lambda a, _b: L.inv(a) + L.cholesky(a @ a.mT + ONE),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    shapes = ((2, 4, 4), (2, 4, 3))
    given = [torch.randn(s, dtype=torch.float64, generator=generator) for s in shapes]
    found = []
    for function in (GRADIENTS[name], compiled(GRADIENTS[name])):
        leaves = [x.clone().requires_grad_() for x in given]
        function(*leaves).square().sum().backward()
        found.append([x.grad for x in leaves])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


def test_a_matrix_that_is_known_to_be_singular_is_refused() -> None:
    with pytest.raises(ModelError):
        exported(Module(lambda x: x + L.inv(SINGULAR)), RIGHT)
    none = torch.ones(0, 2, 2)
    assert exported(Module(lambda x: (x, L.inv(none))), RIGHT).outputs


@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (0, 2), (3, 0), (17, 33)])
def test_programs_of_sizes(rows: int, columns: int) -> None:
    """Of none, of a vector and what is left, and of two vectors."""
    a, y = TensorType("float32", (2, rows, rows)), TensorType("float32", (2, rows, columns))
    pivots = TensorType("int32", (2, rows))
    programs = [linear.lu(a), linear.cholesky(a), linear.exchange_rows(y, pivots)]
    programs += [linear.solve_triangular(a, y, lower=lower) for lower in (True, False)]
    for program in programs:
        tw.build(program, "cpu -threads=1", allow=("default",))
    if rows:
        x = torch.eye(rows).repeat(2, 1, 1) * rows + torch.rand(2, rows, rows)
        check(
            Module(lambda x, y: (L.solve(x, y), L.cholesky(x @ x.mT))),
            x,
            torch.rand(y.shape),
            tolerance=1e-4,
        )


def test_numbers_of_failures() -> None:
    singular = torch.ones(3, 3)
    check(Module(lambda x: L.inv_ex(x).info), singular, compiled=False)
    check(Module(lambda x: L.cholesky_ex(x).info), singular - torch.eye(3), compiled=False)
    check(Module(lambda x: L.cholesky_ex(x).info), singular + torch.eye(3), compiled=False)
